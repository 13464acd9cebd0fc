#!/usr/bin/env python3
"""What training on up to 16,384 GPUs would yield, from a model of a step and of failures, checked against runs on this machine.

    scaling.py --measure BUILD            measures steps and collectives of 1 to 4 ranks, and of two hosts (needs root for these),
                                          and records them in results/scaling.json
    scaling.py --write                    computes everything, and writes the tables of docs/scaling.md and the plots
    scaling.py --check                    the same, and 1 if the page or a plot has something else

The same records give the same output: every draw has a seed. Python's standard library is enough.
"""
import argparse
import json
import pathlib
import random
import re
import sys

from harness import curves
from scaling import assumed, failures, runs, step

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests/benchmarks/results/scaling.json"
PAGE = ROOT / "docs/scaling.md"
FIGURES = ROOT / "docs/figures"
MARKED = re.compile(r"^(<!-- scaling: (\w+) -->\n).*?^(<!-- end of scaling -->)$", re.MULTILINE | re.DOTALL)
CHECKPOINTS = 20_000  # Of a simulated job.
SIZES = [8 * 2**power for power in range(12)]


def percent(share):
    return f"{100 * share:.1f} %"


def milliseconds(seconds):
    return f"{1000 * seconds:,.1f} ms"


def checked(record):
    """Rows of (what, measured, computed), seconds: each run that was measured, and what the model makes of its parts."""
    for run in record["runs"]:
        yield run["what"], run["seconds"], runs.computed(run)


def checks_table(record):
    lines = ["| run | measured, median (10th to 90th percentile) | model | difference |", "| --- | --- | --- | --- |"]
    for run, (what, measured, computed) in zip(record["runs"], checked(record)):
        spread = f"{milliseconds(measured)} ({1000 * run['p10']:,.1f} to {1000 * run['p90']:,.1f})"
        lines.append(f"| {what} | {spread} | {milliseconds(computed)} | {100 * (computed / measured - 1):+.0f} % |")
    return "\n".join(lines)


def efficiency(job, ranks, shape):
    """The share of a step of one rank without others in the mean step of so many."""
    tasks = {"ddp": step.ddp, "fsdp": step.fsdp}[job.kind]

    def of(slow):
        return tasks(job.work, assumed.CLUSTER, ranks, shape, slow)

    return job.work.computes() / step.mean_seconds(of, ranks, assumed.STRAGGLERS, random.Random(ranks), draws=100 if job.kind == "ddp" else 25)


def efficiencies():
    """{(job's name, shape): [(ranks, share)]}"""
    return {(job.name, shape): [(ranks, efficiency(job, ranks, shape)) for ranks in SIZES]
            for job in assumed.JOBS for shape in ("ring", "hierarchical", "tree")}


def useful():
    """{policy: [(ranks, share)]}"""
    return {name: [(ranks, useful_share(reliability(ranks), interval, ranks)) for ranks in SIZES]
            for name, reliability, interval in assumed.policies()}


def useful_share(reliability, interval, ranks):
    interval = interval or failures.best_interval(reliability, ranks)
    # Where failures are rare, few of them are many checkpoints.
    count = max(5, min(600, int(CHECKPOINTS * interval / reliability.of_job(ranks))))
    return failures.useful_share(reliability, ranks, interval, assumed.STEP, random.Random(ranks), count)


def table(found, names, sizes=(8, 64, 512, 2048, 4096, 16384)):
    lines = ["| | " + " | ".join(f"{ranks:,} GPUs" for ranks in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
    for key, line in found.items():
        values = dict(line)
        lines.append(f"| {names(key)} | " + " | ".join(percent(values[ranks]) for ranks in sizes) + " |")
    return "\n".join(lines)


def assumptions_table():
    lines = ["| assumption | value | from |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {what} | {value} | {source} |" for what, value, source in assumed.table()])


def words_of(key):
    return f"{key[0]}, {key[1]}"


def outputs():
    """{mark: text}, {file: text}"""
    record = json.loads(RECORDED.read_text(encoding="utf-8"))
    steps, times = efficiencies(), useful()
    marks = {"checks": record["sentence"] + "\n\n" + checks_table(record), "assumptions": assumptions_table(),
             "steps": table(steps, words_of), "useful": table(times, str)}
    panels = [curves.Panel(f"{job.name}: share of a step that computes, %",
                           {shape: [(ranks, 100 * share) for ranks, share in steps[job.name, shape]] for shape in ("ring", "hierarchical", "tree")}, 100)
              for job in assumed.JOBS]
    failing = [curves.Panel("useful time, %", {name: [(ranks, 100 * share) for ranks, share in line] for name, line in times.items()}, 100)]
    note = "A model: docs/scaling.md has its assumptions."
    files = {"scaling_step.svg": curves.drawn("Efficiency of a step", note, panels, "GPUs", logarithmic=True),
             "scaling_useful.svg": curves.drawn("Useful time with failures", note, failing, "GPUs", logarithmic=True)}
    return marks, files


def page_with(marks):
    def part(match):
        begin, name, end = match.groups()
        return f"{begin}{marks[name]}\n{end}"

    return MARKED.sub(part, PAGE.read_text(encoding="utf-8"))


def write():
    marks, files = outputs()
    PAGE.write_text(page_with(marks), encoding="utf-8")
    for name, text in files.items():
        (FIGURES / name).write_text(text, encoding="utf-8")


def stale():
    """What is not as the records make it."""
    marks, files = outputs()
    if page_with(marks) != PAGE.read_text(encoding="utf-8"):
        yield str(PAGE.relative_to(ROOT))
    for name, text in files.items():
        if not (FIGURES / name).exists() or (FIGURES / name).read_text(encoding="utf-8") != text:
            yield f"docs/figures/{name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.measure:
        RECORDED.write_text(json.dumps(runs.measured(options.measure.resolve()), indent=1) + "\n", encoding="utf-8")
    if options.write:
        write()
    if options.check:
        wrong = list(stale())
        for name in wrong:
            print(f"{name}: not what tests/benchmarks/scaling.py --write makes of its records")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
