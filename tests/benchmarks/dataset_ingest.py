#!/usr/bin/env python3
"""Text files turned into data sets, ours beside Python's `datasets`: dataset_ingest.py PROGRAM [MEGABYTES]

PROGRAM is dataset_peer. Both read the same files of comma-separated values and of JSON lines, each into a cache that is empty.
Prints the megabytes of text a second of 3 rounds of each, in turns, with the program's start in ours; and the most memory of
their own (not mapped files) that 4 processes have together which load one text file at the same time.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
import datasets

ROUNDS = 3


def write(path, size, header, line):
    with open(path, "w", encoding="utf-8") as file:
        file.write(header)
        row = written = 0
        while written < size:
            written += file.write(line(row))
            row += 1


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def anonymous_bytes(pid):
    """Private memory of a process; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))
    except (OSError, StopIteration):
        return 0


def most_memory(command, environment):
    """The largest sum over 4 processes that run the command."""
    ranks = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(4)]
    most = 0
    while any(rank.poll() is None for rank in ranks):
        most = max(most, sum(anonymous_bytes(rank.pid) for rank in ranks))
        time.sleep(0.01)
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{command[0]} failed")
    return most


LOAD_TEXT = "import sys, datasets; datasets.Dataset.from_text(sys.argv[1], cache_dir=sys.argv[2])"


def main():
    program, megabytes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory(prefix="lockstep-ingest-") as folder:
        size = megabytes * 1_000_000
        text = "a text of some words, as reviews have them, and then some more of it"
        write(folder + "/a.csv", size, "id,score,text\n", lambda row: f'{row},{row / 3},"{text} {row}"\n')
        write(folder + "/a.jsonl", size, "", lambda row: f'{{"id": {row}, "score": {row / 3}, "text": "{text} {row}"}}\n')
        for name, read in (("a.csv", datasets.Dataset.from_csv), ("a.jsonl", datasets.Dataset.from_json)):
            ours, theirs = [], []
            for number in range(ROUNDS):
                environment = {**os.environ, "LOCKSTEP_CACHE": f"{folder}/ours-{name}-{number}"}
                ours.append(seconds(lambda: subprocess.run([program, f"{folder}/{name}", "rows="], env=environment, check=True, capture_output=True)))
                theirs.append(seconds(lambda: read(f"{folder}/{name}", cache_dir=f"{folder}/theirs-{name}-{number}")))
            print(f"{name:8} ours {megabytes / statistics.median(ours):6.0f} MB/s, datasets {megabytes / statistics.median(theirs):6.0f} MB/s")
        path = folder + "/a.txt"
        write(path, size, "", lambda row: f"{text} {row}\n")
        ours = most_memory([program, path, "rows="], {**os.environ, "LOCKSTEP_CACHE": folder + "/ours-memory"})
        theirs = most_memory([sys.executable, "-c", LOAD_TEXT, path, folder + "/theirs-memory"], os.environ)
        print(f"4 processes and {megabytes} MB of text: ours {ours / 1e6:.0f} MB, datasets {theirs / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
