#!/usr/bin/env python3
"""Random access to rows, ours beside Python's `datasets`: dataset_access.py PROGRAM [ROWS]

PROGRAM is dataset_access. Both sides read the four columns of the same saved data set in the same shuffled order, ours by
typed columns, theirs row by row (d[i]) and in batches of 32 (d[i:i+32]). Prints the median nanoseconds a row of 5 rounds
of each, in turns, and the ratios.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

from harness.benchmark import OURS, Benchmark, Row

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

ROUNDS = 5


def sample(rows):
    import datasets
    return datasets.Dataset.from_dict({
        "text": [f"row {row} of a text of about fifty letters, as reviews" for row in range(rows)],
        "label": list(range(rows)),
        "score": [row / 3 for row in range(rows)],
        "tokens": [list(range(row % 16 + 1)) for row in range(rows)],
    }, features=datasets.Features({
        "text": datasets.Value("string"), "label": datasets.Value("int64"), "score": datasets.Value("float64"),
        "tokens": datasets.List(datasets.Value("int32"))}))


def per_row(count, read):
    begin = time.perf_counter()
    read()
    return (time.perf_counter() - begin) / count * 1e9


def our_time(program, folder):
    done = subprocess.run([program, folder, "3"], capture_output=True, text=True, check=True)
    return statistics.median(map(float, done.stdout.split()))


def row_by_row(data, count):
    return per_row(count, lambda: [data[row] for row in range(count)])


def in_batches(data, count):
    return per_row(count, lambda: [data[row:row + 32] for row in range(0, count, 32)])


def main():
    import datasets
    program, rows = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    with tempfile.TemporaryDirectory(prefix="lockstep-access-") as folder:
        sample(rows).save_to_disk(folder)
        data = datasets.load_from_disk(folder).shuffle(seed=1)
        few = min(rows, 3000)
        ours, single, batched = [], [], []
        for _ in range(ROUNDS):
            ours.append(our_time(program, folder))
            single.append(row_by_row(data, few))
            batched.append(in_batches(data, few))
    base = statistics.median(ours)
    print(f"{'ours, typed columns':32} {base:10.0f} ns a row")
    for name, times in (("datasets, d[i]", single), ("datasets, d[i:i+32]", batched)):
        print(f"{name:32} {statistics.median(times):10.0f} ns a row  {statistics.median(times) / base:6.0f} times ours")


def sides(setting):
    rows, folder = 30000 if setting.quick else 100000, os.path.join(setting.folder, "rows")

    def data():
        import datasets
        if not os.path.exists(folder):
            sample(rows).save_to_disk(folder)
        return datasets.load_from_disk(folder).shuffle(seed=1)

    def ours():
        data()
        return {"row": our_time(setting.program("tests/dataset_access"), folder)}

    return {OURS: ours, "datasets, d[i]": lambda: {"row": row_by_row(data(), 3000)},
            "datasets, d[i:i+32]": lambda: {"row": in_batches(data(), 3000)}}


BENCHMARK = Benchmark(
    "dataset_access", "random access to rows of a data set in memory-mapped files", "datasets.md",
    (Row("row", "random row of four columns", "ns"),), sides, ("tests/dataset_access",),
    {name: ("datasets",) for name in (OURS, "datasets, d[i]", "datasets, d[i:i+32]")})

if __name__ == "__main__":
    main()
