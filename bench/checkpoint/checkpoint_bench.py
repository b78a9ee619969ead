#!/usr/bin/env python3
"""Checkpoints to disk and back beside fio, in turns (fio, ours, fio, ours, ..., fio): each run of ours is compared with
the mean of the two fio runs around it. Then copies, hashes and parity beside memcpy.

    python3 bench/checkpoint/checkpoint_bench.py [--binary build/release/bench_checkpoint] [--dir .] [--gib 2] [--rounds 3]

Needs fio, and room for one file. Leaves nothing behind.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

TARGETS = {"recycled": 0.95, "fresh": 0.95, "restore": 0.95}  # of fio
CORES_MAX = 0.15
STALL_MAX = 1.1  # copy_and_hash, in times of memcpy


def fio(path, gib, direction):
    """GB/s of fio at its best: memory of huge pages, as slabs have it, and no time spent on what it writes."""
    words = ["fio", "--name=peer", f"--filename={path}", f"--rw={direction}", "--bs=4M", "--iodepth=32",
             "--ioengine=io_uring", "--direct=1", "--thread", "--scramble_buffers=0", f"--size={gib}G", "--end_fsync=1",
             "--output-format=json"]
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0][direction]["bw_bytes"] * 1e-9


def ours(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"checkpoint_bench: {' '.join(map(str, words))}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def remove(path):
    if os.path.exists(path):
        os.remove(path)


def compare(kind, arguments, path):
    """Ratios to fio, and the cores that ours took."""
    direction = "read" if kind == "restore" else "write"

    def prepare():
        if kind == "fresh":
            remove(path)

    def peer():
        prepare()
        return fio(path, arguments.gib, direction)

    if kind != "fresh":
        fio(path, arguments.gib, "write")  # laid out
    peers, runs = [peer()], []
    for _ in range(arguments.rounds):
        prepare()
        runs += ours(arguments.binary, direction, "--file", path, "--gib", arguments.gib)
        peers.append(peer())
    rates = [run["gbytes_per_s"] for run in runs]
    ratios = [2 * rate / (before + after) for rate, before, after in zip(rates, peers, peers[1:])]
    cores = max(run["cores"] for run in runs)
    show = lambda values: " ".join(f"{value:.2f}" for value in values)
    print(f"{kind:9} ours {show(rates)} GB/s, fio {show(peers)} GB/s, {runs[0]['mode']}")
    print(f"{'':9} ratio {show(ratios)}, median {statistics.median(ratios):.2f} (target >= {TARGETS[kind]}); "
          f"cores {show(run['cores'] for run in runs)} (target < {CORES_MAX})", flush=True)
    return statistics.median(ratios), cores


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bench_checkpoint")
    parser.add_argument("--dir", default=".", help="where the file is made")
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("checkpoint_bench: needs fio (scripts/install-deps.sh --bench)")
    if not os.path.exists(arguments.binary):
        sys.exit(f"checkpoint_bench: no {arguments.binary}; build the target bench_checkpoint")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", dir=arguments.dir) as folder:
        for kind in TARGETS:
            compare(kind, arguments, os.path.join(folder, "file"))
    for line in ours(arguments.binary, "memory"):
        target = f" (target <= {STALL_MAX})" if line["name"] == "copy_and_hash" else ""
        print(f"{line['name']:18} {line['gbytes_per_s']:6.1f} GB/s, best {line['best']:5.1f}, {line['ratio']:.2f} times "
              f"of memcpy{target}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
