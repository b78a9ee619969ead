"""Wrong input: one clear line, exit code 2, nothing half-written, no process left."""
import os
import socket
import unittest

from perdure_runs import PerdureTest, Run, example

TINY = example("tiny.toml")


class BadInputTest(PerdureTest):
    def refused(self, run, *words):
        self.assertEqual(run.code, 2, run.out + run.err)
        lines = [line for line in run.err.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, run.err)
        self.assertTrue(lines[0].startswith("perdure: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(run.out, "")

    def refused_job(self, *sets_and_words, **options):
        """Sets come first, then the words that the message must have, after None."""
        cut = sets_and_words.index(None)
        run = self.train(TINY, *sets_and_words[:cut], out="run", **options)
        self.refused(run, *sets_and_words[cut + 1:])
        self.assertFalse(os.path.exists(self.path("run")), "nothing is written before the input is checked")

    def data(self, text):
        self.write("corpus.txt", text)
        run = Run(["data", "prepare", self.path("corpus.txt"), "--out", self.path("data")])
        self.assertEqual(run.code, 0, run.err)
        return self.path("data")

    def use_data(self, folder):
        return [f"data.path={folder}", "data.synthetic_tokens=0"]

    def test_unknown_key_suggests_the_nearest(self):
        self.refused_job("layout.pipelins=2", None, "layout.pipelins", "layout.pipelines")

    def test_wrong_type(self):
        self.refused_job("run.steps=many", None, "run.steps", "integer")

    def test_out_of_range(self):
        self.refused_job("layout.pipelines=0", None, "layout.pipelines")

    def test_layers_fewer_than_stages(self):
        self.refused_job("layout.stages=9", None, "layout.stages")

    def test_batch_not_divisible(self):
        self.refused_job("numerics.grain=3", None, "micro_batches", "grain")

    def test_more_pipelines_than_micro_batches(self):
        self.refused_job("layout.pipelines=9", None, "micro_batches", "pipelines")

    def test_missing_job_file(self):
        self.refused(Run(["train", self.path("none.toml")]), "none.toml")

    def test_job_file_that_is_no_toml(self):
        job = self.write("bad.toml", "[model\nlayers = 4\n")
        self.refused(Run(["train", job]), "bad.toml:1")

    def test_missing_token_file(self):
        self.refused_job(*self.use_data(self.path("nowhere")), None, "nowhere")

    def test_truncated_token_file(self):
        data = self.data("in the beginning " * 400)
        path = os.path.join(data, "train.tokens")
        os.truncate(path, os.path.getsize(path) - 100)
        self.refused_job(*self.use_data(data), None, "train.tokens")

    def test_token_file_of_something_else(self):
        data = self.data("in the beginning " * 400)
        self.write("data/train.tokens", b"\x00" * 4000, "wb")
        self.refused_job(*self.use_data(data), None, "train.tokens")

    def test_token_beyond_the_vocabulary(self):
        data = self.data("in the beginning ~" * 400)
        self.refused_job(*self.use_data(data), "model.vocabulary=120", None, "model.vocabulary", "120")

    def test_vocabulary_mismatch_by_tokenizer(self):
        data = self.data("in the beginning " * 400)
        self.refused_job(*self.use_data(data), "data.tokenizer=gpt2", None, "tokenizer", "gpt2")

    def test_corpus_shorter_than_one_sample(self):
        data = self.data("short, but a text. " * 2)
        self.refused_job(*self.use_data(data), "run.eval_every=0", None, "token")

    def test_empty_corpus(self):
        corpus = self.write("empty.txt", "")
        run = Run(["data", "prepare", corpus, "--out", self.path("data")])
        self.refused(run, "empty.txt")
        self.assertFalse(os.path.exists(self.path("data/train.tokens")))

    def test_output_folder_not_writable(self):
        self.write("file", "not a folder")
        self.refused(self.train(TINY, out="file/run"), "file/run")

    def test_port_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refused(self.train(TINY, f"run.port={port}"), str(port))

    def test_worker_program_that_cannot_start(self):
        self.refused(self.train(TINY, arguments=["--worker-program", self.path("nothing")]), "nothing")
        broken = self.write("broken", "not a program")
        os.chmod(broken, 0o755)
        self.refused(self.train(TINY, arguments=["--worker-program", broken]), "broken")

    def test_a_fault_for_nobody(self):
        for target, word in (("worker:9", "workers 0 to 0"), ("node:1", "nodes 0 to 0")):
            fault = f"at=step:3 target={target} do=kill"
            self.refused(self.train(TINY, out="run", arguments=["--fault", fault]), word)

    def test_a_fault_that_says_nothing(self):
        for fault, word in (("at=step:0 target=job do=kill", "step:N"), ("at=step:1 target=worker do=kill", "target"),
                            ("at=step:1 target=job do=explode", "do"), ("kill", "at=")):
            self.refused(self.train(TINY, out="run", arguments=["--fault", fault]), word)
            self.assertFalse(os.path.exists(self.path("run")))

    def test_more_nodes_than_workers(self):
        self.refused(self.train(TINY, arguments=["--nodes", 2]), "--nodes", "1")
        self.refused(self.train(TINY, arguments=["--nodes", 0]), "--nodes")

    def test_status_of_no_job(self):
        self.refused(Run(["status", self.path("nowhere")]), "nowhere")
        self.refused(Run(["status"]), "--coordinator")

    def test_an_agent_without_a_place_or_a_secret(self):
        self.refused(Run(["agent", "--node", 0]), "--coordinator")
        self.refused(Run(["agent", "--node", 0, "--coordinator", "nowhere"]), "nowhere")
        self.refused(Run(["agent", "--node", 0, "--coordinator", "127.0.0.1:9"]), "PERDURE_JOB_SECRET")

    def test_unknown_command_and_missing_argument(self):
        for words in (["trian"], ["train"], ["data", "prepare"], []):
            run = Run(words)
            self.assertEqual(run.code, 2, words)
            self.assertIn("--help", run.err)

    def test_help_has_examples(self):
        for words in ([], ["train"], ["data", "prepare"], ["keys"], ["status"], ["agent"], ["coordinator"], ["worker"]):
            run = Run([*words, "--help"])
            self.assertEqual(run.code, 0)
            self.assertIn("perdure " + " ".join(words), run.out)
            self.assertRegex(run.out, "Example|start it as")


if __name__ == "__main__":
    unittest.main(verbosity=2)
