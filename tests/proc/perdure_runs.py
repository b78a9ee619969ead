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

    def summary(self, out):
        return json.loads(self.read(out, "summary.json"))


def example(name):
    return os.path.join(ROOT, "examples", name)


def shared_data(name):
    """Path of ../shared/data/NAME, or None where this machine has none."""
    path = os.path.join(os.path.dirname(ROOT), "shared", "data", name)
    return path if os.path.exists(path) else None
