"""A kill in every phase of a step, and a second one in every phase of the change that answers it: the run ends with
the bits, the samples and the steps of an undisturbed one. Prints what was run as tables."""
import concurrent.futures
import os
import time
import unittest

from perdure_runs import PerdureTest, example
from run_checks import digests, read_lines, run_errors

STEPS = 12
STEP = 6  # where the first fault strikes; evaluated there too
STEP_PHASES = ("begin", "compute", "reduce", "vote", "voted", "apply", "commit", "evaluate")
EPOCH_PHASES = ("fence", "collect", "decide", "prepare", "transfer", "gate", "go")
SETS = (f"run.steps={STEPS}", f"run.eval_every={STEP}", "run.eval_batches=2", "data.synthetic_tokens=16384",
        "recovery.lease_ms=5000")  # a kill is seen without it, and a busy machine is late
AT_A_TIME = 2


class MatrixTest(PerdureTest):
    def setUp(self):
        super().setUp()
        self.failures, self.cells = [], {}

    def calm(self, job, *sets):
        out = f"calm-{len(os.listdir(self.folder))}"
        run = self.train(example(job), *SETS, *sets, out=out)
        self.assertEqual(run.code, 0, run.err)
        return digests(self.path(out))

    def strike(self, name, calm, shape, faults, sets=(), job="tiny.toml", arguments=()):
        """One run; what is wrong with it goes to `failures`."""
        pipelines, stages = shape
        out = "run-" + "-".join(name)
        words = [word for fault in faults for word in ("--fault", fault)]
        began = time.monotonic()
        run = self.train(example(job), *SETS, f"layout.pipelines={pipelines}", f"layout.stages={stages}", *sets,
                         out=out, arguments=["--nodes", pipelines * stages, *words, *arguments])
        took = time.monotonic() - began
        folder = self.path(out)
        errors = [f"exit {run.code}: {run.err[-2000:]}"] if run.code != 0 else []
        if run.code == 0:
            errors = run_errors(folder, calm, STEPS, len(faults))
        decided = [event["epoch"] for event in read_lines(folder, "events.jsonl") if event["kind"] == "epoch.decided"]
        self.cells[name] = f"{'ok' if not errors else 'WRONG'} {took:.1f}s e{max(decided, default=0)}"
        self.failures += [f"{' '.join(name)}: {error}" for error in errors]

    def run_all(self, runs):
        self.cells = {words[0]: "" for words, _ in runs}  # in this order
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            for future in [pool.submit(self.strike, *words, **options) for words, options in runs]:
                future.result()

    def end(self, title):
        """Prints the table: the first word of a name is its row, the second its column."""
        rows = list(dict.fromkeys(name[0] for name in self.cells))
        columns = list(dict.fromkeys(name[1] for name in self.cells))
        print(f"\n{title} (seconds, newest epoch)")
        print(f"{'':12}" + "".join(f"{column:16}" for column in columns))
        for row in rows:
            print(f"{row:12}" + "".join(f"{self.cells.get((row, column), ''):16}" for column in columns), flush=True)
        self.assertEqual(self.failures, [], "\n" + "\n".join(self.failures))

    def step_matrix(self, *sets):
        calm = self.calm("tiny.toml")
        self.run_all([(((phase, target), calm, (2, 2), [f"at=step:{STEP},phase={phase} target={target} do=kill"], sets),
                       {}) for phase in STEP_PHASES for target in ("worker:2", "node:1", "coordinator")])
        self.end("a kill in a step, 2 pipelines of 2 stages, " + (" ".join(sets) or "workers come back"))

    def epoch_matrix(self, *sets):
        calm = self.calm("tiny.toml")
        runs = []
        for phase in EPOCH_PHASES:
            for target in ("worker:3", "node:4", "coordinator") + (("source",) if phase == "transfer" else ()):
                faults = [f"at=step:{STEP},phase=reduce target=worker:0 do=kill",
                          f"at=epoch:2,phase={phase} target={target} do=kill"]
                runs.append((((phase, target), calm, (3, 2), faults, sets), {}))
        self.run_all(runs)
        self.end("a second kill in the change, 3 pipelines of 2 stages, " + (" ".join(sets) or "workers come back"))


class KillMatrixTest(MatrixTest):
    def test_step_phases(self):
        self.step_matrix("recovery.worker_restarts=0")

    def test_epoch_phases(self):
        self.epoch_matrix("recovery.worker_restarts=0")


class KillMatrixWithRestartsTest(MatrixTest):
    def test_step_phases(self):
        self.step_matrix()

    def test_epoch_phases(self):
        self.epoch_matrix()


class VariantsTest(MatrixTest):
    def test_other_jobs(self):
        """The first step, which runs twice to find the exponents; other numbers; the other family."""
        variants = {"first": ("tiny.toml", 1, ()), "bf16": ("tiny.toml", STEP, ("numerics.compute=bf16",)),
                    "width32": ("tiny.toml", STEP, ("numerics.width=32",)), "gpt2": ("tiny_gpt2.toml", STEP, ())}
        runs = []
        for name, (job, step, sets) in variants.items():
            calm = self.calm(job, *sets)
            for phase in ("compute", "vote"):
                fault = f"at=step:{step},phase={phase} target=worker:2 do=kill"
                runs.append((((name, phase), calm, (2, 2), [fault], sets), {"job": job}))
        self.run_all(runs)
        self.end("other jobs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
