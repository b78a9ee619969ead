"""What nobody can survive ends the job with 3 and one line that says what is lost and why; no process is left."""
import os
import signal
import time
import unittest

from perdure_runs import PerdureTest, example
from process_watch import processes_with
from run_checks import read_lines

LONG = ("run.steps=100000", "run.eval_every=0")


class ExitThreeTest(PerdureTest):
    def start(self, *sets, nodes=1):
        words = [word for assignment in (*LONG, *sets) for word in ("--set", assignment)]
        return self.job(example("tiny.toml"), "--out", self.path("run"), "--nodes", nodes, "--quiet", *words)

    def events_of(self, kind):
        return [e for e in read_lines(self.path("run"), "events.jsonl") if e["kind"] == kind]

    def wait_for_steps(self, job):
        """Several: what is lost after the first one would be made from the seed again."""
        metrics = os.path.join(self.path("run"), "metrics.csv")
        while not os.path.exists(metrics) or len(self.read("run", "metrics.csv").splitlines()) < 6:
            self.assertIsNone(job.process.poll(), "the job ended early")
            time.sleep(0.02)

    def check_end(self, job, *words):
        began = time.monotonic()
        code, error = job.end()
        self.assertEqual(code, 3, error)
        lines = [line for line in error.splitlines() if line.startswith("perdure: ")]
        self.assertEqual(len(lines), 1, error)
        for word in words:
            self.assertIn(word, lines[0])
        print(f"after {time.monotonic() - began:.1f} s: {lines[0]}", flush=True)
        self.assertEqual(processes_with(self.path("run")), {})

    def test_all_replicas_of_some_layers_die_at_once(self):
        """Workers 1 and 3 are the second stage of both pipelines."""
        job = self.start("layout.pipelines=2", "layout.stages=2", "recovery.worker_restarts=0", nodes=4)
        self.wait_for_steps(job)
        processes = job.processes()
        for number in (1, 3):
            os.kill(processes["worker", number], signal.SIGKILL)
        self.check_end(job, "holds the state of", "blocks.2", "blocks.3", "head")
        self.assertNotEqual(self.summary("run")["outcome"], "ok")

    def test_they_come_back_with_empty_hands(self):
        job = self.start("layout.pipelines=2", "layout.stages=2", "checkpoint.memory_every=0", nodes=4)
        self.wait_for_steps(job)
        processes = job.processes()
        for number in (0, 2):
            os.kill(processes["worker", number], signal.SIGKILL)
        self.check_end(job, "holds the state of", "blocks.0", "blocks.1")

    def test_the_only_worker_dies(self):
        job = self.start("recovery.worker_restarts=0")
        self.wait_for_steps(job)
        os.kill(job.processes()["worker", 0], signal.SIGKILL)
        self.check_end(job, "no worker is left")

    def test_a_job_that_dies_before_its_first_step_again_and_again(self):
        job = self.start("model.width=512", "model.layers=6", "batch.micro_batches=64", "recovery.worker_restarts=10")
        struck = set()
        while job.process.poll() is None:
            active = self.events_of("epoch.active")
            if active and active[-1]["epoch"] not in struck:
                struck.add(active[-1]["epoch"])
                os.kill(job.processes()["worker", 0], signal.SIGKILL)
            time.sleep(0.01)
        self.assertEqual(self.events_of("step.again"), [], "it has done a step")
        self.check_end(job, "3 recoveries without a committed step", "worker 0", "signal 9")
        self.assertEqual(len(struck), 4, "the first, and three recoveries")

    def test_all_nodes_die(self):
        job = self.start("layout.pipelines=2", "layout.stages=2", nodes=4)
        self.wait_for_steps(job)
        for (role, _), pid in job.processes().items():
            if role == "agent":
                os.killpg(pid, signal.SIGKILL)
        self.check_end(job, "no node is left", "signal 9")

    def test_the_whole_job_dies(self):
        run = self.train(example("tiny.toml"), "layout.pipelines=2", "layout.stages=2", out="run",
                         arguments=["--nodes", 4, "--fault", "at=step:6,phase=reduce target=job do=kill"])
        self.assertEqual(run.code, 3, run.err)
        self.assertIn("perdure: no node is left", run.err)
        self.assertEqual(processes_with(self.path("run")), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
