#!/usr/bin/env python3
"""Starts the same jobs with torchrun and with `lockstep run`, in turns, and prints times, memory and ratios: an empty
job of 2 and of 8 ranks, and the time from the death of a rank (SIGKILL) to the end of a job of 2.

Usage: launch.py LAUNCHER [REPEATS]      run it with a Python that has torch
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from harness.benchmark import OURS, Benchmark, Row

PROGRAM = "/bin/true"


def seconds(command):
    """Wall time of one run."""
    words = command + [PROGRAM]
    start = time.monotonic()
    child = os.posix_spawn(words[0], words, os.environ, file_actions=silence())
    _, status = os.waitpid(child, 0)
    elapsed = time.monotonic() - start
    if status != 0:
        sys.exit(f"{' '.join(words)} ended with status {status}")
    return elapsed


def mebibytes(command):
    """Peak resident memory of the launcher, as its ranks see it: what wait4 says of a child counts this program's as well."""
    words = command + ["/bin/sh", "-c", "grep VmHWM /proc/$PPID/status"]
    output = subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return max(int(size) for size in re.findall(r"VmHWM:\s*(\d+) kB", output)) / 1024


def silence():
    return [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]


def started(folder):
    """The process ids of both ranks, once they have written them."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        names = [name for name in os.listdir(folder) if not name.endswith(".new")]
        if len(names) == 2:
            return {name: int(open(os.path.join(folder, name)).read()) for name in names}
        time.sleep(0.005)
    sys.exit("the ranks did not start")


def time_to_end(command):
    """Seconds from the SIGKILL of rank 1 to the end of the launcher."""
    with tempfile.TemporaryDirectory() as folder:
        # The shell's process id without two dollar signs, of which torchrun makes one.
        rank = (f"exec {sys.executable} -S -c 'import os, time; new = \"{folder}/\" + os.environ[\"RANK\"]; "
                f"open(new + \".new\", \"w\").write(str(os.getpid())); os.rename(new + \".new\", new); time.sleep(100)'")
        words = command + ["/bin/sh", "-c", rank]
        child = os.posix_spawn(words[0], words, os.environ, file_actions=silence())
        pids = started(folder)
        start = time.monotonic()
        os.kill(pids["1"], signal.SIGKILL)
        os.waitpid(child, 0)
        return time.monotonic() - start


def commands(launcher, ranks):
    return {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone",
                     "--nproc-per-node", str(ranks)],
        "lockstep run": [launcher, "run", "--standalone", "--nproc-per-node", str(ranks)],
    }


def compare(launcher, ranks, repeats):
    both = commands(launcher, ranks)
    runs = {name: [] for name in both}
    for _ in range(repeats):
        for name, command in both.items():
            runs[name].append((seconds(command), mebibytes(command)))
    medians = {name: [statistics.median(values) for values in zip(*results)] for name, results in runs.items()}
    for name, (time_taken, memory) in medians.items():
        print(f"{ranks:2d} ranks  {name:13s} {time_taken * 1000:9.1f} ms  {memory:7.1f} MiB")
    ratios = [theirs / ours for theirs, ours in zip(medians["torchrun"], medians["lockstep run"])]
    print(f"{ranks:2d} ranks  ratio         {ratios[0]:9.0f} x   {ratios[1]:7.0f} x")


def compare_deaths(launcher, repeats):
    both = commands(launcher, 2)
    times = {name: statistics.median(time_to_end(command) for _ in range(repeats)) for name, command in both.items()}
    for name, seconds in times.items():
        print(f"a rank dies, the job has ended: {name:13s} {seconds * 1000:9.1f} ms")
    print(f"a rank dies, the job has ended: ratio         {times['torchrun'] / times['lockstep run']:9.0f} x")


def main():
    launcher = sys.argv[1]
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    for ranks in (2, 8):
        compare(launcher, ranks, repeats)
    compare_deaths(launcher, repeats)


def spawn_seconds(ranks):
    """Starting so many programs, and waiting for them, is the least that a launcher does."""
    begin = time.monotonic()
    for child in [os.posix_spawn(PROGRAM, [PROGRAM], os.environ, file_actions=silence()) for _ in range(ranks)]:
        os.waitpid(child, 0)
    return time.monotonic() - begin


def turn(setting, who, repeats):
    counts = [2] if setting.quick else [2, 8, 64] if who == "lockstep run" else [2, 8]
    values = {}
    for ranks in counts:
        command = commands(setting.launcher, ranks)[who]
        values[f"start_{ranks}"] = [seconds(command) * 1000 for _ in range(repeats)]
        values[f"memory_{ranks}"] = mebibytes(command)
    return {**values, "death": time_to_end(commands(setting.launcher, 2)[who]) * 1000}


def spawn_turn():
    return {f"start_{ranks}": [spawn_seconds(ranks) * 1000 for _ in range(5)] for ranks in (2, 8, 64)}


def sides(setting):
    return {OURS: lambda: turn(setting, "lockstep run", 5), "torchrun": lambda: turn(setting, "torchrun", 1), SPAWN: spawn_turn}


SPAWN = "starting the programs alone"
BENCHMARK = Benchmark(
    "launch", "the launcher beside torchrun: empty jobs on one node", "performance.md",
    (*[Row(f"start_{ranks}", f"starting {ranks} ranks that do nothing", "ms", limit=SPAWN) for ranks in (2, 8, 64)],
     *[Row(f"memory_{ranks}", f"the launcher's memory, {ranks} ranks", "MiB") for ranks in (2, 8, 64)],
     Row("death", "a rank's SIGKILL to the job's end", "ms")),
    sides, ("bin/lockstep",), {"torchrun": ("torch",)})

if __name__ == "__main__":
    main()
