"""Samples of tar files in the page cache beside a plain read of the same bytes: tar_stream.py TAR_STREAM FOLDER [ROUNDS]

Writes 384 MB into FOLDER, and prints the program's line for samples of 10 kB, of 100 kB and of 1 MB.
"""
import re
import subprocess
import sys

from harness.benchmark import OURS, Benchmark, Row
from harness.turns import Together

SIZES = {"10k": ("10 kB", 10_000), "100k": ("100 kB", 100_000), "1m": ("1 MB", 1_000_000)}


def line_of(program, folder, size, rounds):
    done = subprocess.run([program, folder, str(size), str(rounds)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main():
    program, folder = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    for name, size in SIZES.values():
        print(f"{name}: {line_of(program, folder, size, rounds)}", flush=True)


def both(setting):
    found = {OURS: {}, PLAIN: {}}
    for row in ("100k",) if setting.quick else SIZES:
        line = line_of(setting.program("tests/tar_stream"), setting.folder, SIZES[row][1], 2 if setting.quick else 3)
        plain, samples = re.match(r"read plainly (\d+) MiB/s, as samples (\d+) MiB/s", line).groups()
        found[PLAIN][row], found[OURS][row] = float(plain), float(samples)
    return found


def sides(setting):
    together = Together(lambda: both(setting))
    return {OURS: together.side(OURS), PLAIN: together.side(PLAIN)}


PLAIN = "reading as many bytes"
BENCHMARK = Benchmark(
    "tar_stream", "samples streamed from tar files in the page cache, nothing decoded", "datasets.md",
    tuple(Row(row, f"samples of {name} from tar files", "MiB/s", "higher", PLAIN) for row, (name, _) in SIZES.items()),
    sides, ("tests/tar_stream",))

if __name__ == "__main__":
    main()
