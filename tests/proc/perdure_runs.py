"""What the process tests share: running the perdure binary in a folder of its own."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PERDURE = os.environ.get("PERDURE_BINARY", os.path.join(ROOT, "build", "release", "perdure"))


class Run:
    """One finished run of the binary."""

    def __init__(self, arguments, timeout_s=120, **options):
        process = subprocess.run([PERDURE, *map(str, arguments)], capture_output=True, text=True,
                                 timeout=timeout_s, check=False, **options)
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    def last_line(self):
        return self.out.strip().split("\n")[-1]


class Job:
    """A running job: its launcher, and the processes below it by what they are."""

    def __init__(self, arguments, environment=None):
        self.process = subprocess.Popen([PERDURE, "train", *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self.lines = []

    def wait_for(self, start):
        """Reads its output up to the first line that begins so."""
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return
        raise AssertionError(f"no line {start!r} in {self.lines}, {self.process.stderr.read()}")

    def processes(self):
        """{("worker", 2): pid, ("agent", 0): pid, ("coordinator", 0): pid, ...}"""
        found = {}
        for pid in descendants(self.process.pid):
            words = command_line(pid)
            if len(words) < 2 or words[1] not in ("coordinator", "agent", "worker"):
                continue
            name = {"agent": "--node", "worker": "--worker"}.get(words[1])
            found[words[1], int(words[words.index(name) + 1]) if name else 0] = pid
        return found

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def end(self, timeout_s=60):
        """Its exit code, and what it wrote to stderr."""
        out, err = self.process.communicate(timeout=timeout_s)
        self.lines += out.splitlines()
        return self.process.returncode, err


def descendants(pid):
    """Process numbers of children, grandchildren and so on."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []
    return children + [below for child in children for below in descendants(child)]


def state(pid):
    """"R", "S", ...; "Z" when it is dead and its new parent has not asked for it yet; "" when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")
    except FileNotFoundError:
        return []


class PerdureTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="perdure-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode="w"):
        with open(self.path(name), mode) as file:
            file.write(text)
        return self.path(name)

    def read(self, *parts):
        with open(os.path.join(self.folder, *parts), encoding="utf-8") as file:
            return file.read()

    def train(self, job, *sets, out=None, arguments=(), **options):
        words = ["train", job, "--quiet", *arguments]
        for assignment in sets:
            words += ["--set", assignment]
        if out is not None:
            words += ["--out", self.path(out)]
        return Run(words, **options)

    def job(self, *arguments, environment=None):
        job = Job(arguments, environment)
        self.addCleanup(job.close)
        return job

    def check_gone(self, pids):
        for pid in pids:
            self.assertIn(state(pid), ("", "Z"), f"process {pid} is left: {command_line(pid)}")

    def summary(self, out):
        return json.loads(self.read(out, "summary.json"))

    def events(self, out, kind):
        """Of both lives, when the coordinator was started again."""
        events = [json.loads(line) for line in self.read(out, "events.jsonl").splitlines()]
        return [event for event in events if event["kind"] == kind]


def example(name):
    return os.path.join(ROOT, "examples", name)


def shared_data(name):
    """Path of ../shared/data/NAME, or None where this machine has none."""
    path = os.path.join(os.path.dirname(ROOT), "shared", "data", name)
    return path if os.path.exists(path) else None
