"""The same job in every layout, as real processes: equal digests.csv, all steps."""
import itertools
import unittest

from perdure_runs import PerdureTest, example

LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (3, 1), (3, 2)]
JOBS = {"llama": "tiny.toml", "gpt2": "tiny_gpt2.toml"}


class LayoutTest(PerdureTest):
    def digests(self, job, pipelines, stages, *sets):
        out = f"{pipelines}x{stages}-{len(sets)}"
        run = self.train(example(job), f"layout.pipelines={pipelines}", f"layout.stages={stages}", *sets, out=out)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.last_line(), r"^step 20  loss \d+\.\d+  params [0-9a-f]{16}$")
        text = self.read(out, "digests.csv")
        self.assertEqual(len(text.splitlines()), 1 + 21, "a header, and the state after each of 0 ... 20 steps")
        return text

    def check_all(self, job, *sets):
        expected = self.digests(job, 1, 1, *sets)
        for pipelines, stages in LAYOUTS[1:]:
            with self.subTest(job=job, pipelines=pipelines, stages=stages, sets=sets):
                self.assertEqual(self.digests(job, pipelines, stages, *sets), expected)
        return expected

    def test_llama_f32(self):
        one_thread = self.check_all("tiny.toml", "layout.threads=1")
        self.assertEqual(self.check_all("tiny.toml", "layout.threads=2"), one_thread)

    def test_llama_bf16(self):
        one_thread = self.check_all("tiny.toml", "numerics.compute=bf16", "layout.threads=1")
        two_threads = self.check_all("tiny.toml", "numerics.compute=bf16", "layout.threads=2")
        self.assertEqual(two_threads, one_thread)

    def test_gpt2_f32(self):
        one_thread = self.check_all("tiny_gpt2.toml", "layout.threads=1")
        self.assertEqual(self.check_all("tiny_gpt2.toml", "layout.threads=2"), one_thread)

    def test_gpt2_bf16(self):
        one_thread = self.check_all("tiny_gpt2.toml", "numerics.compute=bf16", "layout.threads=1")
        two_threads = self.check_all("tiny_gpt2.toml", "numerics.compute=bf16", "layout.threads=2")
        self.assertEqual(two_threads, one_thread)

    def test_shared_memory_carries_the_same_bits(self):
        tcp = self.digests("tiny.toml", 2, 2, "run.transport=tcp")
        self.assertEqual(self.digests("tiny.toml", 2, 2, "run.transport=shm", "run.seed=1"), tcp)

    def test_the_comparison_can_fail(self):
        """Floating-point sums depend on who adds what; another seed is another run."""
        fast = [self.digests(job, p, 1, "numerics.mode=fast") for job, p in itertools.product(JOBS.values(), (1, 3))]
        self.assertEqual(len(set(fast)), 4)
        self.assertNotEqual(self.digests("tiny.toml", 1, 1), self.digests("tiny.toml", 1, 1, "run.seed=99"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
