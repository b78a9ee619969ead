"""Strangers, and peers that say nonsense, at the ports of a running job: refused and logged, and the job is not
disturbed: it ends with the bits of one that was left alone."""
import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest

from control_wire import AGENT, HELLO, OBSERVER, PROOF, WORKER, XXHASH, Peer, blob, frame
from perdure_runs import PERDURE, PerdureTest, Run, example
from process_watch import listening_ports
from run_checks import digests, read_lines, read_table, run_errors

STEPS = 1000
SETS = ("layout.pipelines=2", "layout.stages=2", f"run.steps={STEPS}", "run.eval_every=0", "batch.micro_batch=1",
        "model.context=32")
FLOOD = 200


@unittest.skipIf(XXHASH is None, "needs libxxhash.so")
class ControlPlaneTest(PerdureTest):
    calm = None

    def setUp(self):
        super().setUp()
        words = [word for assignment in SETS for word in ("--set", assignment)]
        self.running = self.job(example("tiny.toml"), "--out", self.path("run"), "--nodes", 2, *words, "--quiet")
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.running.process.stderr), daemon=True)
        self.reader.start()
        while not any(e["kind"] == "epoch.active" for e in read_lines(self.path("run"), "events.jsonl")):
            self.assertIsNone(self.running.process.poll(), self.lines)
            time.sleep(0.05)
        self.secret = self.read("run", "control", "secret")
        self.coordinator = int(json.loads(self.read("run", "control", "coordinator.json"))["address"].split(":")[1])
        (self.agent,) = listening_ports([self.running.processes()["agent", 1]])

    def check_end(self, epochs=1):
        """The job ends as if nothing had been, without a change of its shape."""
        self.assertEqual(self.running.process.wait(120), 0, self.lines)
        self.reader.join(10)
        if ControlPlaneTest.calm is None:
            calm = self.train(example("tiny.toml"), *SETS, "layout.pipelines=1", "layout.stages=1", out="calm")
            self.assertEqual(calm.code, 0, calm.err)
            ControlPlaneTest.calm = digests(self.path("calm"))
        self.assertEqual(run_errors(self.path("run"), self.calm, STEPS), [])
        self.assertEqual(self.summary("run")["epochs"], epochs)

    def log(self, words):
        return [line for line in self.lines if words in line]

    def wait_for_log(self, words, count):
        """A line may come after the connection that it is about was closed."""
        give_up = time.monotonic() + 20
        while len(self.log(words)) < count and time.monotonic() < give_up:
            time.sleep(0.05)
        self.assertGreaterEqual(len(self.log(words)), count, words)

    def is_running(self):
        self.assertIsNone(self.running.process.poll(), self.lines)
        return True

    def nonsense(self):
        """{what: bytes} of which none is a handshake."""
        whole = frame(HELLO, b"\1" + bytes(12) + blob(os.urandom(32)))
        bad = {"garbage": random.randbytes(1 << 16), "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "nothing": b"",
               "zeros": bytes(4096), "version": frame(HELLO, whole[40:], version=1),
               "magic": frame(HELLO, whole[40:], magic=b"PDRX"), "huge": frame(HELLO, b"", length=0xFFFFFFFF),
               "too large": frame(HELLO, bytes(1000)), "checksum": whole[:-1] + bytes([whole[-1] ^ 1]),
               "no hello": frame(77, whole[40:]), "short hello": frame(HELLO, whole[40:-5]),
               "empty hello": frame(HELLO, b""), "proof first": frame(PROOF, blob(bytes(32)))}
        bad |= {f"{cut} bytes": whole[:cut] for cut in (1, 4, 39, 40, 41, len(whole) - 1)}
        return bad

    def test_nonsense_is_refused(self):
        for port in (self.coordinator, self.agent):
            peers = {name: Peer(port).send(data) for name, data in self.nonsense().items()}
            for name, peer in peers.items():
                with self.subTest(name):
                    self.assertEqual(peer.rest(), b"", "a stranger is told nothing")
            self.is_running()
        refused = len(self.nonsense())
        self.wait_for_log("connection refused", refused)  # of the coordinator
        self.wait_for_log("refused a connection", refused)  # of the agent
        self.check_end()

    def test_who_does_not_know_the_secret_is_refused(self):
        for port, role in ((self.coordinator, AGENT), (self.coordinator, OBSERVER), (self.agent, WORKER)):
            with self.subTest(role=role):
                self.assertEqual(Peer(port).shake_hands(role, 0, "another secret").rest(), b"")
                mirror = Peer(port).say_hello(role, 0)
                mirror.send(frame(PROOF, blob(mirror.proof(self.secret, "server"))))
                self.assertEqual(mirror.rest(), b"", "a proof of the other side is none")
        self.assertEqual(Peer(self.coordinator).say_hello(9, 0).rest(), b"", "no such role")
        self.check_end()

    def test_who_knows_the_secret_and_talks_nonsense(self):
        """Also such a peer is refused; node 7 is not one of the job, and workers speak to their agents."""
        for data in (frame(64, b"more than nothing"), frame(999, b""), random.randbytes(5000),
                     frame(64, b"", length=1 << 30)):
            peer = Peer(self.coordinator).shake_hands(OBSERVER, 0, self.secret)
            self.assertTrue(peer.is_welcome())
            self.assertEqual(peer.send(data).rest(), b"")
        for number, data in ((0, frame(999, b"")), (1, random.randbytes(500)), (1, frame(16, bytes(3)))):
            peer = Peer(self.coordinator).shake_hands(AGENT, number, self.secret)
            self.assertTrue(peer.is_welcome())
            peer.send(data).rest()  # it is told why
        for port, number in ((self.coordinator, 0), (self.agent, 77)):
            Peer(port).shake_hands(WORKER, number, self.secret).rest()
        self.assertNotEqual(self.log("no business here"), [])
        self.check_end()

    def test_agents_that_do_not_belong(self):
        stranger = self.agent_process(1, "another secret")
        outside = self.agent_process(7, self.secret)
        self.assertEqual(outside.wait(30), 3, "told that it is not wanted")
        time.sleep(1)
        self.assertIsNone(stranger.poll())
        stranger.send_signal(signal.SIGTERM)
        self.assertEqual(stranger.wait(30), 3)
        self.assertNotEqual(self.log("node refused"), [])
        self.assertNotEqual(self.log("connection refused"), [])
        self.check_end()

    def agent_process(self, node, secret):
        words = [PERDURE, "agent", "--node", str(node), "--coordinator", f"127.0.0.1:{self.coordinator}"]
        process = subprocess.Popen(words, env={**os.environ, "PERDURE_JOB_SECRET": secret})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_flood_of_silent_connections(self):
        before = self.rate(1.5)
        peers = [Peer(port) for port in (self.coordinator, self.agent) for _ in range(FLOOD // 2)]
        during = self.rate(1.5)
        page = Run(["status", self.path("run"), "--json"])
        self.assertEqual(page.code, 0, page.err)
        for peer in peers:
            self.assertEqual(peer.rest(), b"")
        print(f"steps/s {before:.0f} before, {during:.0f} with {FLOOD} silent connections")
        self.assertGreater(during, before / 2)
        self.check_end()

    def rate(self, seconds):
        """Steps per second; both ends are times at which a step was written."""
        first, began = len(read_table(self.path("run"), "metrics.csv")), time.monotonic()
        time.sleep(seconds)
        return (len(read_table(self.path("run"), "metrics.csv")) - first) / (time.monotonic() - began)


if __name__ == "__main__":
    unittest.main(verbosity=2)
