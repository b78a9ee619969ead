"""A job that fails says who and how, exits with 3 and leaves no process."""
import os
import select
import signal
import subprocess
import unittest

from perdure_runs import PERDURE, PerdureTest, example

LONG = ["--set", "run.steps=1000000", "--set", "layout.pipelines=2", "--set", "layout.stages=2"]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class FailureTest(PerdureTest):
    def start(self, *arguments):
        """A running job whose first step is done."""
        process = subprocess.Popen([PERDURE, "train", example("tiny.toml"), *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("step 1/"):
                break
        return process

    def end(self, process):
        _, error = process.communicate(timeout=60)
        return error

    def check_gone(self, pids):
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), f"process {pid} is left")

    def test_a_killed_worker_ends_the_job_and_is_named(self):
        for transport in ("tcp", "shm"):
            with self.subTest(transport=transport):
                process = self.start(*LONG, "--set", f"run.transport={transport}", "--out", self.path("run"))
                workers = children(process.pid)
                self.assertEqual(len(workers), 4)
                os.kill(workers[2], signal.SIGKILL)
                error = self.end(process)
                self.assertEqual(process.returncode, 3, error)
                self.assertIn("perdure: worker 2 ended early: signal 9", error)
                self.check_gone(workers)
                self.assertIn("worker 2 ended early", self.summary("run")["outcome"])

    def test_interrupt_ends_the_job(self):
        process = self.start(*LONG)
        workers = children(process.pid)
        process.send_signal(signal.SIGINT)
        error = self.end(process)
        self.assertEqual(process.returncode, 3)
        self.assertIn("perdure: interrupted", error)
        self.check_gone(workers)

    def test_workers_die_with_their_launcher(self):
        process = self.start(*LONG)
        workers = children(process.pid)
        handles = [os.pidfd_open(pid) for pid in workers]
        process.kill()
        process.wait()
        for handle in handles:
            self.assertTrue(wait_readable(handle, 30), "a worker outlives its launcher")
            os.close(handle)

    def test_a_worker_program_that_quits(self):
        script = self.write("quits", "#!/bin/sh\nexit 7\n")
        os.chmod(script, 0o755)
        run = self.train(example("tiny.toml"), "layout.pipelines=2", arguments=["--worker-program", script])
        self.assertEqual(run.code, 3, run.err)
        self.assertIn("ended early: exit code 7", run.err)


def wait_readable(handle, seconds):
    return bool(select.select([handle], [], [], seconds)[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
