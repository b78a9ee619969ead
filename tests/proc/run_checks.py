"""What must be true of a run folder, however often and wherever the job was struck. Each check gives a list of
sentences, empty when all is well."""
import csv
import json
import os

MASK = (1 << 64) - 1


def sample_mark(index):
    """As parallel/sample_mark.h says it, made anew."""
    x = (index * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sample_marks(first, count):
    return sum(sample_mark(first + i) for i in range(count)) & MASK


def read_lines(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_table(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def digests(folder):
    with open(os.path.join(folder, "digests.csv"), encoding="utf-8") as file:
        return file.read()


def ledger_errors(folder, steps):
    """Every step once, all samples once and in order, and those that were really read."""
    rows = read_table(folder, "ledger.csv")
    if [int(row["step"]) for row in rows] != list(range(1, steps + 1)):
        return [f"ledger.csv has the steps {[row['step'] for row in rows]}"]
    errors, next_sample, epoch = [], 0, 0
    for row in rows:
        first, count = int(row["first_sample"]), int(row["samples"])
        if first != next_sample:
            errors.append(f"step {row['step']} begins at sample {first} and not at {next_sample}")
        if int(row["marks"], 16) != sample_marks(first, count):
            errors.append(f"step {row['step']} has read other samples than its own")
        if int(row["epoch"]) < epoch:
            errors.append(f"step {row['step']} was committed by an older epoch than the step before")
        next_sample, epoch = first + count, int(row["epoch"])
    return errors


def progress_errors(folder):
    """A failure costs no more than the step that was being computed: what is decided after it resumes there."""
    errors, floor, hits = [], 0, []
    for hit in read_lines(folder, "faults.jsonl"):
        if hit.get("point", "").startswith("step."):
            hits.append((hit["t_ms"], hit["step"] - 1))
    for event in read_lines(folder, "events.jsonl"):
        if event["kind"] == "epoch.begin":
            floor = max(floor, event["committed"])
        if event["kind"] != "epoch.decided":
            continue
        seen = max([floor] + [step for at_ms, step in hits if at_ms < event["t_ms"]])
        if event["resume_step"] < seen:
            errors.append(f"epoch {event['epoch']} resumes at step {event['resume_step']}, {seen} was committed")
        floor = max(floor, event["resume_step"])
    return errors


def fault_errors(folder, count):
    struck = len(read_lines(folder, "faults.jsonl"))
    return [] if struck == count else [f"{struck} of {count} faults struck"]


def bad_events(folder):
    kinds = ("ledger.wrong", "step.differs")
    return [str(event) for event in read_lines(folder, "events.jsonl") if event["kind"] in kinds]


def run_errors(folder, calm_digests, steps, faults=0):
    """All of it, for a run that ended with 0."""
    errors = fault_errors(folder, faults) + ledger_errors(folder, steps) + progress_errors(folder)
    errors += bad_events(folder)
    if digests(folder) != calm_digests:
        errors.append("digests.csv is not that of an undisturbed run")
    return errors
