"""Many faults in one run, at random: kills, stops, dropped connections and slow workers; what died comes back. The run
ends with the bits of an undisturbed one and leaves nothing behind, and what lives through it all does not grow."""
import json
import math
import os
import random
import re
import signal
import sys
import threading
import time
import unittest

from perdure_runs import PerdureTest, Run, example, state
from process_watch import ProcessWatch, dead_shared_memory, listening_ports, processes_with, shared_memory
from run_checks import digests, fault_errors, read_lines, run_errors

DROP = signal.SIGRTMIN + 2  # runtime/faults/fault_signals.h
START = signal.SIGUSR1
NODES, LAYERS = 6, 6
SETS = ("layout.pipelines=3", "layout.stages=2", "batch.micro_batch=1", "batch.micro_batches=6", "model.context=32",
        "recovery.worker_restarts=1000", "run.eval_every=500", "run.eval_batches=1")
# How likely a fault is, and of whom.
KINDS = {("kill", "worker"): 8, ("kill", "node"): 4, ("kill", "coordinator"): 2, ("stop", "worker"): 4,
         ("stop", "node"): 2, ("stop", "coordinator"): 2, ("drop", "worker"): 4, ("drop", "node"): 2,
         ("drop", "coordinator"): 1}
COORDINATOR_KILLS_APART_S = 8  # its launcher starts it ten times a minute
KEPT_NODE, KEPT_WORKER = 0, 5  # never killed: they must not grow


class Driver:
    """Strikes a running job so that every layer's state is always alive somewhere."""

    def __init__(self, test, job, folder, seed, steps, faults):
        self.test, self.job, self.folder = test, job, folder
        self.random = random.Random(seed)
        self.steps, self.faults = steps, faults
        self.done, self.counts = 0, {}
        self.struck = {}  # pid: a plan made after this time (ms) may count on it again
        self.coordinator_killed_at = 0.0
        self.step_at_fault, self.faults_at_step = -1, 0
        self.watch, self.timers = ProcessWatch(), []

    def run(self):
        while self.done < self.faults:
            if self.job.process.poll() is not None:
                self.test.fail(f"the job ended after {self.done} faults: {self.job.end()}")
            page = self.page()
            if page is None:
                time.sleep(0.05)
                continue
            self.watch.sample(self.job.processes())
            if self.may_strike(page) and self.strike(page):
                self.done += 1
                ahead = page["committed_step"] / self.steps > self.done / self.faults
                time.sleep(0.05 if ahead else self.random.uniform(0.2, 0.5))
            else:
                time.sleep(0.05)
        for timer in self.timers:
            timer.join()

    def page(self):
        run = Run(["status", self.folder, "--json"])
        return json.loads(run.out) if run.code == 0 else None

    def may_strike(self, page):
        """Three recoveries without a step between them would end the job, rightly."""
        if page["committed_step"] > self.step_at_fault:
            self.step_at_fault, self.faults_at_step = page["committed_step"], 0
        return self.faults_at_step < 1 or (self.faults_at_step < 2 and self.random.random() < 0.02)

    def holders(self):
        """When the newest plan was made, and {layer: workers that hold it}."""
        plans = [e for e in read_lines(self.folder, "events.jsonl") if e["kind"] == "epoch.plan"]
        found = {layer: set() for layer in range(LAYERS)}
        for first, last, worker in re.findall(r"layers (\d+)-(\d+) of .*? on worker (\d+)", plans[-1]["layout"]):
            for layer in range(int(first), int(last) + 1):
                found[layer].add(int(worker))
        return plans[-1]["t_ms"], found

    def is_safe(self, processes, workers, page):
        pids = {number: pid for (role, number), pid in processes.items() if role == "worker"}
        kept = 1 if page["phase"] == "active" else 2
        planned_ms, found = self.holders()
        for holders in found.values():
            alive = [w for w in holders - set(workers) if w in pids and self.struck.get(pids[w], 0) < planned_ms
                     and state(pids[w]) in ("R", "S")]
            if len(alive) < kept:
                return False
        return True

    def strike(self, page):
        deed, role = self.random.choices(list(KINDS), KINDS.values())[0]
        processes = self.job.processes()
        numbers = {"worker": "worker", "node": "agent", "coordinator": "coordinator"}
        targets = [key for key in processes if key[0] == numbers[role]]
        if not targets:
            return False
        key = self.random.choice(sorted(targets))
        if not self.is_allowed(deed, role, key[1], processes, page):
            return False
        pid = processes[key]
        stop_s = self.random.choice((0.2, 0.6, 1.6))
        self.mark(deed, role, key[1], processes, stop_s if deed == "stop" else math.inf)
        try:
            self.act(deed, pid, role == "node", stop_s)
        except ProcessLookupError:
            return False
        self.counts[deed, role] = self.counts.get((deed, role), 0) + 1
        self.faults_at_step += 1
        self.heal(processes)
        return True

    def is_allowed(self, deed, role, number, processes, page):
        if role == "coordinator":
            half_over = self.done > self.faults / 2  # the last one shall live long
            since = time.monotonic() - self.coordinator_killed_at
            return deed != "kill" or (since > COORDINATOR_KILLS_APART_S and not half_over)
        if deed != "drop" and (role, number) in (("node", KEPT_NODE), ("node", KEPT_WORKER), ("worker", KEPT_WORKER)):
            return False
        return self.is_safe(processes, [number], page)  # worker N is on node N

    def mark(self, deed, role, number, processes, gone_s):
        if role == "coordinator":
            self.coordinator_killed_at = time.monotonic() if deed == "kill" else self.coordinator_killed_at
        elif ("worker", number) in processes and deed != "drop":
            self.struck[processes["worker", number]] = (time.monotonic() + gone_s) * 1000

    def act(self, deed, pid, group, stop_s):
        send = os.killpg if group else os.kill
        if deed == "kill":
            send(pid, signal.SIGKILL)
        elif deed == "drop":
            os.kill(pid, DROP)
        else:
            send(pid, signal.SIGSTOP)
            timer = threading.Timer(stop_s, self.resume, (send, pid))
            timer.start()
            self.timers = [t for t in self.timers if t.is_alive()] + [timer]

    @staticmethod
    def resume(send, pid):
        try:
            send(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it was struck again, or given up

    def heal(self, processes):
        """Workers whose restarts wait longer and longer are started now."""
        for (role, number), pid in processes.items():
            if role == "agent" and ("worker", number) not in processes and state(pid) in ("R", "S"):
                self.resume(lambda pid, _: os.kill(pid, START), pid)


class SoakTest(PerdureTest):
    def soak(self, faults, steps):
        seed = int(os.environ.get("PERDURE_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"seed {seed} (again: PERDURE_SEED={seed})", flush=True)
        sets = (*SETS, f"run.steps={steps}")
        calm = self.train(example("tiny.toml"), *sets, "layout.pipelines=1", "layout.stages=1", out="calm",
                          timeout_s=300)
        self.assertEqual(calm.code, 0, calm.err)
        memory = shared_memory()
        temporary = self.path("tmp")
        os.mkdir(temporary)
        driver, ports = self.drive(seed, faults, steps, sets, temporary)
        self.check_end(driver, steps)
        left = processes_with(self.folder)
        self.assertEqual(left, {}, "processes are left")
        self.assertEqual(listening_ports() & ports, set(), "ports are left")
        self.assertEqual(dead_shared_memory(memory), set(), "shared memory is left")
        self.assertEqual(os.listdir(temporary), [], "temporary files are left")
        driver.watch.report()
        self.assertEqual(driver.watch.growth(), [])

    def drive(self, seed, faults, steps, sets, temporary):
        """Dead nodes are started by the launcher at fixed times; some workers slow down at fixed steps."""
        folder = self.path("run")
        plans = [f"at=time:{2 + t * 0.5}s target=node:{t % NODES} do=start" for t in range(4 * faults + 40)]
        for i in range(faults // 20):
            plans.append(f"at=step:{steps * (i + 1) // (faults // 20 + 2)} target=worker:{i % NODES} do=slow:1.5")
        words = [word for plan in plans for word in ("--fault", plan)]
        words += [word for assignment in sets for word in ("--set", assignment)]
        job = self.job(example("tiny.toml"), "--out", folder, "--nodes", NODES, *words, "--quiet",
                       environment={"TMPDIR": temporary})
        errors = []
        reader = threading.Thread(target=lambda: errors.extend(job.process.stderr), daemon=True)
        reader.start()
        driver = Driver(self, job, folder, seed, steps, faults)
        while not any(e["kind"] == "epoch.active" for e in read_lines(folder, "events.jsonl")):
            time.sleep(0.1)
        ports = set()
        try:
            ports |= listening_ports(job.processes().values())
            driver.run()
            ports |= listening_ports(job.processes().values())
            while job.process.poll() is None:
                driver.watch.sample(job.processes())
                driver.heal(job.processes())
                time.sleep(0.5)
        finally:
            reader.join(10)
            self.stderr = "".join(errors)
        self.assertEqual(job.process.returncode, 0, self.stderr[-3000:])
        return driver, ports

    def check_end(self, driver, steps):
        folder = driver.folder
        epochs = [e["epoch"] for e in read_lines(folder, "events.jsonl") if e["kind"] == "epoch.active"]
        print(f"{driver.done} faults, {len(epochs)} epochs, the newest {max(epochs)}:",
              ", ".join(f"{count} {' '.join(kind)}" for kind, count in sorted(driver.counts.items())))
        struck = len(read_lines(folder, "faults.jsonl"))
        self.assertEqual(run_errors(folder, digests(self.path("calm")), steps, struck), [])

    def test_faults_at_random(self):
        self.soak(faults=20, steps=1500)


class LongSoakTest(SoakTest):
    def test_faults_at_random(self):
        self.soak(faults=200, steps=8000)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv if len(sys.argv) > 1 else [*sys.argv, "SoakTest"])
