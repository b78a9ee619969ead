"""A job that cannot go on says why, exits with 3 and leaves no process."""
import os
import select
import signal
import unittest

from perdure_runs import PerdureTest, example

LONG = ["--set", "run.steps=1000000", "--set", "layout.pipelines=2", "--set", "layout.stages=2"]


class FailureTest(PerdureTest):
    def start(self, *arguments):
        """A running job whose first step is done."""
        job = self.job(example("tiny.toml"), *LONG, *arguments)
        job.wait_for("step 1/")
        return job

    def test_interrupt_ends_the_job(self):
        job = self.start("--nodes", "2")
        processes = job.processes()
        self.assertEqual(len(processes), 1 + 2 + 4, processes)
        job.process.send_signal(signal.SIGINT)
        code, error = job.end()
        self.assertEqual(code, 3)
        self.assertIn("perdure: interrupted", error)
        self.check_gone(processes.values())

    def test_all_die_with_their_launcher(self):
        job = self.start("--nodes", "2")
        handles = [os.pidfd_open(pid) for pid in job.processes().values()]
        job.process.kill()
        job.process.wait()
        for handle in handles:
            self.assertTrue(wait_readable(handle, 30), "a process outlives its launcher")
            os.close(handle)

    def test_a_node_is_a_process_group(self):
        job = self.start("--nodes", "2")
        processes = job.processes()
        for (role, number), pid in processes.items():
            leader = processes["agent", number // 2] if role == "worker" else pid
            self.assertEqual(os.getpgid(pid), leader, (role, number))
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end()[0], 3)

    def test_the_last_node_takes_the_job_with_it(self):
        job = self.start()
        processes = job.processes()
        os.killpg(processes["agent", 0], signal.SIGKILL)
        code, error = job.end()
        self.assertEqual(code, 3, error)
        self.assertIn("perdure: no node is left: the last ended by signal 9", error)
        self.check_gone(processes.values())

    def test_a_worker_program_that_quits(self):
        script = self.write("quits", "#!/bin/sh\nexit 7\n")
        os.chmod(script, 0o755)
        run = self.train(example("tiny.toml"), "layout.pipelines=2", "recovery.worker_restarts=0",
                         arguments=["--worker-program", script])
        self.assertEqual(run.code, 3, run.err)
        self.assertIn("perdure: ", run.err)

    def test_a_run_folder_in_use_is_left_alone(self):
        job = self.start("--out", self.path("run"))
        second = self.train(example("tiny.toml"), out="run")
        self.assertEqual(second.code, 2)
        self.assertIn("in use", second.err)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end()[0], 3)
        self.assertEqual(self.train(example("tiny.toml"), "run.steps=6", out="run").code, 0)


def wait_readable(handle, seconds):
    return bool(select.select([handle], [], [], seconds)[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
