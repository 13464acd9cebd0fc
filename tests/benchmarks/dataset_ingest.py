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

from harness.benchmark import OURS, Benchmark, Row

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

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
TEXT = "a text of some words, as reviews have them, and then some more of it"


def write_files(folder, size):
    write(folder + "/a.csv", size, "id,score,text\n", lambda row: f'{row},{row / 3},"{TEXT} {row}"\n')
    write(folder + "/a.jsonl", size, "", lambda row: f'{{"id": {row}, "score": {row / 3}, "text": "{TEXT} {row}"}}\n')
    write(folder + "/a.txt", size, "", lambda row: f"{TEXT} {row}\n")


def our_load(program, path, cache):
    environment = {**os.environ, "LOCKSTEP_CACHE": cache}
    return seconds(lambda: subprocess.run([program, path, "rows="], env=environment, check=True, capture_output=True))


def our_memory(program, folder):
    return most_memory([program, folder + "/a.txt", "rows="], {**os.environ, "LOCKSTEP_CACHE": folder + "/ours-memory"})


def their_memory(folder):
    return most_memory([sys.executable, "-c", LOAD_TEXT, folder + "/a.txt", folder + "/theirs-memory"], os.environ)


def main():
    import datasets
    program, megabytes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory(prefix="lockstep-ingest-") as folder:
        write_files(folder, megabytes * 1_000_000)
        for name, read in (("a.csv", datasets.Dataset.from_csv), ("a.jsonl", datasets.Dataset.from_json)):
            ours, theirs = [], []
            for number in range(ROUNDS):
                ours.append(our_load(program, f"{folder}/{name}", f"{folder}/ours-{name}-{number}"))
                theirs.append(seconds(lambda: read(f"{folder}/{name}", cache_dir=f"{folder}/theirs-{name}-{number}")))
            print(f"{name:8} ours {megabytes / statistics.median(ours):6.0f} MB/s, datasets {megabytes / statistics.median(theirs):6.0f} MB/s")
        ours, theirs = our_memory(program, folder), their_memory(folder)
        print(f"4 processes and {megabytes} MB of text: ours {ours / 1e6:.0f} MB, datasets {theirs / 1e6:.0f} MB")


class Files:
    """The files of one setting, and a new cache for every load."""

    def __init__(self, setting):
        self.folder, self.megabytes = str(setting.folder), 30 if setting.quick else 100

    def cache(self):
        return tempfile.mkdtemp(dir=self.folder)

    def turn(self, load, memory=None):
        """Megabytes a second of load(path), and what memory() says."""
        if not os.path.exists(self.folder + "/a.txt"):
            write_files(self.folder, self.megabytes * 1_000_000)
        values = {kind: self.megabytes / load(f"{self.folder}/a.{kind}") for kind in ("csv", "jsonl")}
        if memory:
            values["memory"] = memory(tempfile.mkdtemp(dir=self.folder)) / 1e6
        return values


def read_plainly(path):
    with open(path, "rb") as file:
        return seconds(lambda: file.read())


def sides(setting):
    files, program = Files(setting), setting.program("tests/dataset_peer")

    def text_in(place):
        os.link(files.folder + "/a.txt", place + "/a.txt")
        return place

    def their_load(path):
        import datasets
        read = datasets.Dataset.from_csv if path.endswith(".csv") else datasets.Dataset.from_json
        return seconds(lambda: read(path, cache_dir=files.cache()))

    return {OURS: lambda: files.turn(lambda path: our_load(program, path, files.cache()), lambda place: our_memory(program, text_in(place))),
            "datasets": lambda: files.turn(their_load, lambda place: their_memory(text_in(place))),
            PLAIN: lambda: files.turn(read_plainly)}


PLAIN = "reading the file"
BENCHMARK = Benchmark(
    "dataset_ingest", "text files turned into data sets, each into an empty cache", "datasets.md",
    (Row("csv", "CSV into an empty cache", "MB/s", "higher", PLAIN), Row("jsonl", "JSON lines into an empty cache", "MB/s", "higher", PLAIN),
     Row("memory", "memory of 4 processes that load one text", "MB")),
    sides, ("tests/dataset_peer",), {"datasets": ("datasets",)}, rounds=3, quick_rounds=2)

if __name__ == "__main__":
    main()
