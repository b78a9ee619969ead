#!/usr/bin/env python3
"""How long a job stands still when a worker or a node is killed, and in which phase.

    python3 bench/recovery/recovery_bench.py --kills 60

Real processes on this machine, the job of --job in 2 pipelines x 2 stages on 4 nodes. Workers and whole nodes get
SIGKILL at moments that are drawn; killed workers are started again, so that one job takes many kills. All times are of
one clock: this script's, the events' and the workers' are CLOCK_MONOTONIC.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PHASES = ["collect", "decide", "prepare", "transfer", "gate", "go"]
COLUMNS = ["detected", "left", "active", "next step"]


def now_ms():
    return time.clock_gettime(time.CLOCK_MONOTONIC) * 1e3


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return children + [below for child in children for below in descendants(child)]


class Job:
    def __init__(self, arguments, out):
        self.events_path = os.path.join(out, "events.jsonl")
        self.events, self.read_bytes = [], 0
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def processes(self, what, option):
        """{number: pid}"""
        found = {}
        for pid in descendants(self.process.pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if len(words) > 1 and words[1] == what:
                found[int(words[words.index(option) + 1])] = pid
        return found

    def poll(self):
        if os.path.exists(self.events_path):
            with open(self.events_path, "rb") as file:
                file.seek(self.read_bytes)
                whole = file.read().rpartition(b"\n")[0]
            self.read_bytes += len(whole) + (1 if whole else 0)
            self.events += [json.loads(line) for line in whole.splitlines()]
        return self.process.poll() is None

    def wait_for(self, holds, timeout_s):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if not self.poll():
                return False
            if holds(self.events):
                return True
            time.sleep(0.01)
        return False

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[1]


def runs_with(ranks):
    """The newest epoch has so many ranks, and has committed a step."""
    def holds(events):
        begun = [e["epoch"] for e in events if e["kind"] == "epoch.begin"]
        decided = [e for e in events if e["kind"] == "epoch.decided"]
        stepped = [e["epoch"] for e in events if e["kind"] == "epoch.step"]
        return bool(decided) and decided[-1]["ranks"] >= ranks and stepped[-1:] == begun[-1:]
    return holds


def measure(kill, events):
    """The times after one kill, in ms; None when the job did not go on."""
    after = [e for e in events if e["t_ms"] >= kill["t_ms"]]
    first = {}
    for event in after:
        first.setdefault(event["kind"], event)
    if not all(kind in first for kind in ("epoch.begin", "epoch.measured", "epoch.active", "epoch.step")):
        return None
    epoch = first["epoch.active"]["epoch"]
    began = {e["phase"]: e["t_ms"] for e in after if e["kind"] == "epoch.phase" and e["epoch"] == epoch}
    step = next((e for e in after if e["kind"] == "epoch.step" and e["epoch"] == epoch), None)
    if step is None or any(phase not in began for phase in PHASES):
        return None
    result = {"detected": first["epoch.begin"]["t_ms"], "left": first["epoch.measured"]["left_t_ms"],
              "active": first["epoch.active"]["t_ms"], "next step": step["t_ms"]}
    result = {name: t - kill["t_ms"] for name, t in result.items()}
    ends = [began[phase] for phase in PHASES[1:]] + [step["t_ms"]]
    result.update({phase: end - began[phase] for phase, end in zip(PHASES, ends)})
    result["decision"] = first["epoch.measured"]["decide_ms"]
    result["attempts"] = sum(1 for e in after if e["kind"] == "epoch.begin" and e["epoch"] <= epoch)
    return result


def run_job(options, random_, kills_wanted):
    kills, results = [], []
    with tempfile.TemporaryDirectory() as folder:
        job = Job([options.perdure, "train", options.job, "--set", "layout.pipelines=2", "--set", "layout.stages=2",
                   "--set", "run.steps=1000000", "--set", "run.eval_every=0", "--nodes", "4", "--out", folder,
                   "--quiet"], folder)
        try:
            for index in range(kills_wanted + 2):
                node_kill = index >= kills_wanted  # for good: the last ones of a job
                ranks = 4 if not node_kill else 3
                if not job.wait_for(runs_with(ranks), 60):
                    break
                time.sleep(random_.uniform(0.3, 0.8))
                job.poll()
                if not runs_with(ranks)(job.events):
                    continue
                if node_kill:
                    target, pid = random_.choice(sorted(job.processes("agent", "--node").items()))
                else:
                    target, pid = sorted(job.processes("worker", "--worker").items())[index % 4]
                kills.append({"t_ms": now_ms(), "what": f"{'node' if node_kill else 'worker'} {target}"})
                (os.killpg if node_kill else os.kill)(pid, signal.SIGKILL)
                t = kills[-1]["t_ms"]
                job.wait_for(lambda events: any(e["kind"] == "epoch.step" and e["t_ms"] > t for e in events), 30)
            job.poll()
        finally:
            text = job.close()
            if text.strip():
                print(text.strip().splitlines()[-1], file=sys.stderr)
        for kill, following in zip(kills, kills[1:] + [{"t_ms": float("inf")}]):
            until = [e for e in job.events if e["t_ms"] < following["t_ms"]]
            results.append((kill, measure(kill, until)))
        steps = []
        with open(os.path.join(folder, "metrics.csv"), encoding="ascii") as file:
            for line in file.read().splitlines()[1:]:
                steps.append(float(line.split(",")[5]))
    return results, steps


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def print_table(title, rows, names):
    print(f"\n{title} ({len(rows)} kills), ms\n{'':>12} {'min':>8} {'median':>8} {'p99':>8}")
    for name in names:
        values = [row[name] for row in rows]
        print(f"{name:>12} {min(values):8.1f} {quantile(values, 0.5):8.1f} {quantile(values, 0.99):8.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perdure", default=os.path.join(ROOT, "build", "release", "perdure"))
    parser.add_argument("--job", default=os.path.join(ROOT, "examples", "tiny.toml"))
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print each kill, too")
    options = parser.parse_args()
    with open("/proc/cpuinfo", encoding="ascii") as file:
        model = next((l.split(":")[1].strip() for l in file if l.startswith("model name")), "unknown")
    print(f"{os.cpu_count()} cores of {model}; load {os.getloadavg()[0]:.1f} before; seed {options.seed}", flush=True)
    random_ = random.Random(options.seed)
    results, steps = [], []
    while len(results) < options.kills:
        more, times = run_job(options, random_, min(8, options.kills))
        if not more:
            sys.exit("no job came far enough to be killed")
        results += more
        steps += times
        print(f"{len(results)} kills, load {os.getloadavg()[0]:.1f}", flush=True)
    if options.each:
        for kill, times in results:
            text = "no measurement" if times is None else "  ".join(f"{k} {v:.1f}" for k, v in times.items())
            print(f"{kill['what']:>9}: {text}")
    good = [(kill, times) for kill, times in results if times is not None]
    print(f"{len(results) - len(good)} kills without a measurement (another change was under way)")
    print(f"median step {quantile(steps, 0.5):.1f} ms, p99 {quantile(steps, 0.99):.1f} ms, {len(steps)} steps")
    for what in ("worker", "node"):
        rows = [times for kill, times in good if kill["what"].startswith(what)]
        if rows:
            print_table(f"from the death of a {what}", rows, COLUMNS)
            print_table("time in each phase", rows, PHASES + ["decision", "attempts"])


if __name__ == "__main__":
    main()
