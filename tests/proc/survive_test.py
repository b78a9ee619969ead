"""Whatever dies, the job ends, and with the bits of an undisturbed run."""
import json
import os
import signal
import time
import unittest

from perdure_runs import PerdureTest, Run, example

SHAPE = ["layout.pipelines=2", "layout.stages=2"]
NODES = ["--nodes", 2]


class SurviveTest(PerdureTest):
    def run_with(self, *faults, out="run", arguments=(), sets=()):
        words = [word for fault in faults for word in ("--fault", fault)]
        run = self.train(example("tiny.toml"), *SHAPE, *sets, out=out, arguments=[*NODES, *arguments, *words])
        self.assertEqual(run.code, 0, run.err)
        struck = len(self.read(out, "faults.jsonl").splitlines()) if faults else 0
        self.assertEqual(struck, len(faults), run.err)
        return run

    def digests(self, out):
        return self.read(out, "digests.csv")

    def check_same(self, *faults, **options):
        self.run_with(out="calm", sets=options.get("sets", ()))
        run = self.run_with(*faults, **options)
        self.assertEqual(self.digests("run"), self.digests("calm"))
        return run

    def test_a_worker_is_killed(self):
        for phase in ("begin", "reduce", "vote", "voted", "apply", "commit"):
            with self.subTest(phase=phase):
                self.check_same(f"at=step:8,phase={phase} target=worker:2 do=kill")
                self.assertEqual(self.summary("run")["steps"], 20)

    def test_a_node_is_killed(self):
        self.check_same("at=step:8,phase=reduce target=node:1 do=kill")

    def test_a_node_is_killed_and_a_spare_takes_over(self):
        self.check_same("at=step:8 target=node:0 do=kill", arguments=["--spares", 1])

    def test_a_node_comes_back(self):
        self.check_same("at=step:8 target=node:1 do=kill", "at=step:12 target=node:1 do=start",
                        sets=["run.steps=40"])

    def test_the_coordinator_is_killed(self):
        self.check_same("at=step:8 target=coordinator do=kill")
        self.assertEqual(len(self.events("run", "coordinator.start")), 2)

    def test_a_worker_is_stopped(self):
        self.check_same("at=step:8,phase=vote target=worker:1 do=stop")

    def test_a_worker_loses_its_connections(self):
        self.check_same("at=step:8 target=worker:1 do=drop")

    def test_the_whole_job_is_stopped_for_a_while(self):
        self.check_same("at=step:8 target=job do=stop:2")

    def test_the_source_of_a_transfer_is_killed(self):
        run = self.train(example("tiny.toml"), "layout.pipelines=3", out="run",
                         arguments=["--nodes", 3, "--spares", 1, "--fault", "at=step:8 target=node:2 do=kill",
                                    "--fault", "at=epoch:2,phase=transfer target=source do=kill"])
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(len(self.read("run", "faults.jsonl").splitlines()), 2, run.err)
        self.run_with(out="calm")
        self.assertEqual(self.digests("run"), self.digests("calm"))

    def check_restored(self, *faults, steps_lost=1, sets=()):
        self.check_same(*faults, sets=sets)
        restored = self.events("run", "epoch.restore")
        self.assertTrue(restored, "nothing was brought back")
        for event in restored:
            self.assertLessEqual(event["steps_lost"], steps_lost, event)

    def test_all_holders_of_a_stage_are_killed(self):
        """Their nodes keep what they had: workers 1 and 3 are the second stage of both pipelines."""
        self.check_restored("at=step:8 target=worker:1 do=kill", "at=step:8 target=worker:3 do=kill",
                            sets=["layout.stages=2"])

    def test_all_workers_are_killed(self):
        sets = ("run.steps=300", "run.eval_every=0")
        self.run_with(out="calm", sets=sets)
        words = [word for assignment in (*SHAPE, *sets) for word in ("--set", assignment)]
        job = self.job(example("tiny.toml"), "--out", self.path("run"), *NODES, "--quiet", *words)
        metrics = os.path.join(self.path("run"), "metrics.csv")
        while not os.path.exists(metrics) or len(self.read("run", "metrics.csv").splitlines()) < 20:
            self.assertIsNone(job.process.poll(), "the job ended early")
            time.sleep(0.02)
        for (role, _), pid in job.processes().items():
            if role == "worker":
                os.kill(pid, signal.SIGKILL)
        code, error = job.end()
        self.assertEqual(code, 0, error)
        self.assertTrue(self.events("run", "epoch.restore"), "nothing was brought back")
        self.assertEqual(self.digests("run"), self.digests("calm"))

    def test_the_only_holder_is_killed_while_it_takes_a_snapshot(self):
        self.check_restored("at=step:8,phase=snapshot target=worker:1 do=kill",
                            sets=["layout.pipelines=1", "layout.stages=2"])

    def test_snapshots_of_every_fourth_step(self):
        self.check_restored("at=step:8 target=worker:0 do=kill", steps_lost=4,
                            sets=["layout.pipelines=1", "checkpoint.memory_every=4"])

    def test_what_never_strikes_is_named(self):
        run = self.train(example("tiny.toml"), arguments=["--fault", "at=step:21 target=job do=kill"])
        self.assertEqual(run.code, 0)
        self.assertIn("never struck: at=step:21", run.err)

    def test_status_tells_of_a_running_job(self):
        job = self.job(example("tiny.toml"), "--set", "run.steps=1000000", "--out", self.path("run"))
        job.wait_for("step 1/")
        for _ in range(50):
            raw = Run(["status", self.path("run"), "--json"])
            self.assertEqual(raw.code, 0, raw.err)
            page = json.loads(raw.out)
            if page["committed_step"] > 0:
                break
            time.sleep(0.1)
        self.assertEqual(page["epoch"], 1)
        self.assertEqual(page["nodes"][0]["workers"][0]["pid"], job.processes()["worker", 0])
        table = Run(["status", self.path("run")])
        self.assertEqual(table.code, 0, table.err)
        self.assertRegex(table.out, r"(?m)^epoch +1$")
        self.assertRegex(table.out, r"(?m)^  node +alive +incarnation")
        with open(self.path("run/control/secret"), "w", encoding="ascii") as file:
            file.write("another")
        self.assertEqual(Run(["status", self.path("run")]).code, 3)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end()[0], 3)
        self.assertEqual(os.stat(self.path("run/control")).st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main(verbosity=2)
