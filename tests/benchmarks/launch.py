#!/usr/bin/env python3
"""Starts the same empty job with torchrun and with `lockstep run`, in turns, and prints times, memory and ratios.

Usage: launch.py LAUNCHER [REPEATS]      run it with a Python that has torch
"""

import os
import statistics
import sys
import time

PROGRAM = "/bin/true"


def measure(command):
    """Wall time in seconds and peak resident memory in MiB of one run."""
    start = time.monotonic()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=silence())
    _, status, usage = os.wait4(child, 0)
    elapsed = time.monotonic() - start
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with status {status}")
    return elapsed, usage.ru_maxrss / 1024


def silence():
    return [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]


def compare(launcher, ranks, repeats):
    commands = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone",
                     "--nproc-per-node", str(ranks), PROGRAM],
        "lockstep run": [launcher, "run", "--standalone", "--nproc-per-node", str(ranks), PROGRAM],
    }
    runs = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(measure(command))
    medians = {name: [statistics.median(values) for values in zip(*results)] for name, results in runs.items()}
    for name, (seconds, mebibytes) in medians.items():
        print(f"{ranks:2d} ranks  {name:13s} {seconds * 1000:9.1f} ms  {mebibytes:7.1f} MiB")
    ratios = [theirs / ours for theirs, ours in zip(medians["torchrun"], medians["lockstep run"])]
    print(f"{ranks:2d} ranks  ratio         {ratios[0]:9.0f} x   {ratios[1]:7.0f} x")


def main():
    launcher = sys.argv[1]
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for ranks in (2, 8):
        compare(launcher, ranks, repeats)


if __name__ == "__main__":
    main()
