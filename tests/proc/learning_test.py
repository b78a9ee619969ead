"""It learns: tinyshakespeare, bytes, nanoGPT's CPU setting (which reports 1.88 after 2,000 steps)."""
import unittest

from perdure_runs import PerdureTest, Run, example, shared_data


class LearningTest(PerdureTest):
    def test_shakespeare(self):
        corpus = shared_data("corpus/tinyshakespeare.txt")
        if corpus is None:
            self.skipTest("needs ../shared/data/corpus/tinyshakespeare.txt")
        prepared = Run(["data", "prepare", "--tokenizer", "byte", corpus, "--out", self.path("data")])
        self.assertEqual(prepared.code, 0, prepared.err)
        run = self.train(example("shakespeare.toml"), f"data.path={self.path('data')}", "run.eval_every=2000",
                         out="run", timeout_s=1200)
        self.assertEqual(run.code, 0, run.err)
        summary = self.summary("run")
        print("validation loss", summary["val_loss"], "tokens/s", summary["tokens_per_s"])
        self.assertLessEqual(summary["val_loss"], 1.90)


if __name__ == "__main__":
    unittest.main(verbosity=2)
