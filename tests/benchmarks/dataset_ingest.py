#!/usr/bin/env python3
"""Text files turned into data sets, ours beside Python's `datasets`: dataset_ingest.py PROGRAM [MEGABYTES]

PROGRAM is dataset_peer. Both read the same files of comma-separated values and of JSON lines, each into a cache that is empty.
Prints the megabytes of text a second of 3 rounds of each, in turns, with the program's start in ours.
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


if __name__ == "__main__":
    main()
