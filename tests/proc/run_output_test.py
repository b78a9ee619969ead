"""What a run leaves behind, and what it needs while it runs."""
import json
import unittest

from perdure_runs import PerdureTest, example


class RunOutputTest(PerdureTest):
    def test_the_folder_has_what_the_documentation_says(self):
        run = self.train(example("tiny.toml"), "layout.stages=2", out="run")
        self.assertEqual(run.code, 0, run.err)
        summary = self.summary("run")
        self.assertEqual(summary["steps"], 20)
        self.assertGreater(summary["tokens_per_s"], 0)
        self.assertLess(summary["val_loss"], 5.0)
        self.assertIn(summary["params_digest"], run.last_line())
        self.assertIn(f"{summary['loss']:.6f}", run.last_line())
        events = [json.loads(line) for line in self.read("run", "events.jsonl").splitlines()]
        self.assertEqual([e["seq"] for e in events], list(range(len(events))))
        kinds = {e["kind"] for e in events}
        self.assertLessEqual({"coordinator.start", "node.join", "worker.prepared", "epoch.active", "evaluation",
                              "worker.finished", "job.end"}, kinds)
        metrics = self.read("run", "metrics.csv").splitlines()
        self.assertEqual(len(metrics), 1 + 20)
        self.assertTrue(metrics[0].startswith("step,loss,"))

    def test_memory_stays_within_the_plan(self):
        for sets in (["layout.pipelines=1"], ["layout.stages=2", "numerics.compute=bf16"],
                     ["model.width=256", "model.layers=6", "numerics.width=32", "numerics.block=256"],
                     ["model.width=256", "model.layers=6", "numerics.width=64", "numerics.grain=2"]):
            with self.subTest(sets=sets):
                run = self.train(example("tiny.toml"), "run.steps=4", *sets, out="run")
                self.assertEqual(run.code, 0, run.err)
                memory = self.summary("run")["memory"]
                self.assertLessEqual(memory["peak_to_plan_max"], 1.2, memory)
                self.assertGreaterEqual(memory["peak_to_plan_max"], 0.5, memory)

    def test_a_second_run_replaces_the_first(self):
        for steps in (7, 6):
            self.assertEqual(self.train(example("tiny.toml"), f"run.steps={steps}", out="run").code, 0)
        self.assertEqual(len(self.read("run", "digests.csv").splitlines()), 1 + 7)
        self.assertEqual(self.summary("run")["steps"], 6)
        self.assertEqual(self.read("run", "events.jsonl").count("coordinator.start"), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
