"""A job over two machines: two network namespaces with a cable between them, which is cut, both ways or one way. The
node behind it is found lost within its lease and fences itself; the others train on; it joins again when healed."""
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import unittest

from perdure_runs import PERDURE, PerdureTest, example
from run_checks import digests, read_lines, run_errors

STEPS = 1500
LEASE_MS = 1000
DEVICE = "pdrm0"  # the cable's end, on both sides
SUBNET = f"10.{os.getpid() % 200 + 20}.77"
SETS = (f"run.steps={STEPS}", "run.eval_every=0", "layout.pipelines=2", f"recovery.lease_ms={LEASE_MS}")
CUTS = {"both ways": ("INPUT", "OUTPUT"), "towards it": ("INPUT",), "from it": ("OUTPUT",)}


def call(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


def why_not():
    """What is missing on this machine; "" when the test can run."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    name = f"pdrm-try-{os.getpid()}"
    made = call("ip", "netns", "add", name)
    if made.returncode != 0:
        return "cannot make a network namespace: " + made.stderr.strip()
    rules = call("ip", "netns", "exec", name, "iptables", "-L", "-n")
    cable = call("ip", "link", "add", DEVICE, "netns", name, "type", "veth", "peer", "name", DEVICE + "b", "netns", name)
    call("ip", "netns", "del", name)
    return (rules.stderr + cable.stderr).strip() if rules.returncode or cable.returncode else ""


class Process:
    """One process in a namespace, and what it writes."""

    def __init__(self, space, words, environment):
        self.process = subprocess.Popen(["ip", "netns", "exec", space, PERDURE, *words], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, text=True, env={**os.environ, **environment})
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def close(self):
        """An agent ends its workers."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        self.process.stderr.close()


@unittest.skipIf(why_not(), f"no network namespaces here: {why_not()}")
class NetworkTest(PerdureTest):
    def setUp(self):
        super().setUp()
        self.started = []
        self.spaces = [f"pdrm-{os.getpid()}-{side}" for side in "ab"]
        for space in self.spaces:
            self.must("ip", "netns", "add", space)
            self.addCleanup(call, "ip", "netns", "del", space)
        self.must("ip", "link", "add", DEVICE, "netns", self.spaces[0], "type", "veth", "peer", "name", DEVICE, "netns",
                  self.spaces[1])
        for number, space in enumerate(self.spaces, 1):
            self.must("ip", "-n", space, "link", "set", "lo", "up")
            self.must("ip", "-n", space, "addr", "add", f"{SUBNET}.{number}/24", "dev", DEVICE)
            self.must("ip", "-n", space, "link", "set", DEVICE, "up")
        for space in self.spaces:  # UCX passes over a device that is not up yet
            self.wait_for(lambda: "state UP" in call("ip", "-n", space, "link", "show", DEVICE).stdout)

    def must(self, *words):
        done = call(*words)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")

    def start(self):
        folder = self.path("run")
        os.makedirs(os.path.join(folder, "control"), 0o700)
        shutil.copy(example("tiny.toml"), os.path.join(folder, "control", "job.toml"))
        self.write("run/control/secret", "a secret of this test")
        secret = {"PERDURE_JOB_SECRET": "a secret of this test"}
        sets = (*SETS, f"run.listen={SUBNET}.1", f"run.network_device={DEVICE}")
        words = [word for assignment in sets for word in ("--set", assignment)]
        self.coordinator = self.process(0, ["coordinator", "--run-folder", folder, "--out", folder, "--nodes", "2",
                                            "--workers-per-node", "1", "--quiet", *words], secret)
        place = self.wait_for(lambda: os.path.exists(os.path.join(folder, "control", "coordinator.json")) and
                              json.loads(self.read("run", "control", "coordinator.json"))["address"])
        self.agents = [self.process(node, ["agent", "--node", str(node), "--coordinator", place], secret)
                       for node in (0, 1)]
        self.wait_for(lambda: self.ranks_since(0) == 2)

    def process(self, side, words, environment):
        process = Process(self.spaces[side], words, environment)
        self.addCleanup(process.close)
        self.started.append(process)
        return process

    def wait_for(self, what, seconds=40):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := what():
                return value
            time.sleep(0.02)
        self.fail(f"waited in vain: {read_lines(self.path('run'), 'events.jsonl')[-12:]}, {self.logs()}")

    def logs(self):
        return [process.lines for process in self.started]

    def events_since(self, kind, time_ms):
        return [e for e in read_lines(self.path("run"), "events.jsonl") if e["kind"] == kind and e["t_ms"] > time_ms]

    def ranks_since(self, time_ms):
        """Of the newest epoch that became active since then; 0: none did."""
        plans = self.events_since("epoch.plan", time_ms)
        return plans[-1]["layout"].count("rank ") if plans else 0

    def rules(self, deed, chains):
        for chain in chains:
            direction = "-i" if chain == "INPUT" else "-o"
            self.must("ip", "netns", "exec", self.spaces[1], "iptables", deed, chain, direction, DEVICE, "-j", "DROP")

    def cut_and_heal(self, name, chains):
        fenced = len(self.fences())
        began_ms = time.monotonic() * 1000
        self.rules("-A", chains)
        cut_ms = time.monotonic() * 1000
        (lost, *_) = self.wait_for(lambda: self.events_since("node.lost", began_ms))
        self.assertEqual(lost["node"], 1)
        self.wait_for(lambda: self.ranks_since(began_ms) == 1)
        self.wait_for(lambda: len(self.fences()) > fenced)
        active = self.events_since("epoch.active", began_ms)[0]
        self.rules("-D", chains)
        healed_ms = time.monotonic() * 1000
        self.wait_for(lambda: self.ranks_since(healed_ms) == 2)
        back = self.events_since("epoch.active", healed_ms)[-1]
        print(f"cut {name}: node.lost after {lost['t_ms'] - cut_ms:.0f} ms ({lost['why']}), trains on after "
              f"{active['t_ms'] - cut_ms:.0f} ms; healed: two again after {back['t_ms'] - healed_ms:.0f} ms", flush=True)
        # Beats come four times in a lease; whoever is late by one is found one later.
        self.assertLess(lost["t_ms"] - cut_ms, 2 * LEASE_MS)

    def fences(self):
        return [line for line in self.agents[1].lines if "lease over: workers leave their epoch" in line]

    def test_the_cable_is_cut(self):
        self.start()
        for name, chains in CUTS.items():
            self.cut_and_heal(name, chains)
        self.assertEqual(self.coordinator.process.wait(180), 0, self.logs())
        for agent in self.agents:
            self.assertEqual(agent.process.wait(20), 0, agent.lines)
        calm = self.train(example("tiny.toml"), *SETS, "layout.pipelines=1", out="calm")
        self.assertEqual(calm.code, 0, calm.err)
        self.assertEqual(run_errors(self.path("run"), digests(self.path("calm")), STEPS), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
