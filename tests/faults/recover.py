"""Loses ranks of trainings in every way and compares their ends with those of undisturbed runs, bit for bit.

    python3 tests/faults/recover.py BUILD [--losses 1000] [--ranks 2,3,4] [--backend shm,gloo] [--ways kbxe2p] [--spares 0] [--seed 1]

BUILD is a build folder of the `tests` preset with the targets lockstep_launcher and checkpoint_probe. Each job loses ten
ranks, which the launcher replaces while the others keep their processes: by SIGKILL at random moments (k), in backward (b) and of a
new process in its set-up (2), by exceptions (x), by exit(0) (e) and by SIGSTOP (p). The jobs take the numbers of --ranks and the
backends in turn. Each must end with the same bits, must have started as many processes as it has lost and no more, and must leave
nothing behind. Prints a line for each job, and in the end how many were lost in which way and how long the survivors stood still;
ends with 1 at the first difference.

Of a rank that is stopped the others notice it after --timeout seconds in an operation, and it is killed --recovery-timeout later;
where they wait without a limit, as at a checkpoint, the launcher notices it after twice --timeout. Without `p` in --ways a
thousand losses take about an hour on two cores, with it about two.
"""
import argparse
import collections
import dataclasses
import itertools
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from traces import first_difference, left_behind, trace, with_lost_lines

LOSSES_OF_A_JOB = 10
LONGEST_JOB = 900
STANDSTILL = re.compile(r"all ranks are there again after ([0-9.]+) s")
WAYS = {"k": "SIGKILL", "b": "SIGKILL in backward", "2": "SIGKILL, and of the new process in its set-up", "x": "exception", "e": "exit(0)",
        "p": "SIGSTOP"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--losses", type=int, default=1000)
    parser.add_argument("--ranks", default="2,3,4", help="One number, or several that take turns.")
    parser.add_argument("--backend", default="shm,gloo", help="One backend, or several that take turns.")
    parser.add_argument("--ways", default="".join(WAYS))
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=10)
    parser.add_argument("--recovery-timeout", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spares", type=int, default=0, help="As of lockstep run.")
    return parser.parse_args()


@dataclasses.dataclass
class Found:
    """What all jobs have shown."""
    ways: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    standstills: list = dataclasses.field(default_factory=list)
    by_spares: int = 0
    others: int = 0


class World:
    """Jobs of so many ranks on that backend, and their undisturbed end."""

    def __init__(self, options, ranks, backend):
        self.options, self.ranks, self.backend = options, ranks, backend
        with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
            job = self.run_job(pathlib.Path(name), 0, 0)
            assert job.returncode == 0, job.stderr
            self.wanted = self.trace_in(pathlib.Path(name))

    def run_job(self, folder, losses, seed):
        (folder / "out").mkdir()
        options, steps = self.options, 4 * 100 // self.ranks
        command = [options.build / "bin/lockstep", "run", "--nproc-per-node", str(self.ranks), "--max-recoveries",
                   "1000", "--recovery-timeout", str(options.recovery_timeout), "--spares", str(options.spares), options.build / "tests/checkpoint_probe",
                   "--out", folder / "out", "--folder", folder / "checkpoints", "--every", str(options.every), "--step-time", "2",
                   "--losses", str(losses), "--losses-until", str(steps - 20), "--ways", options.ways, "--seed", str(seed), "--backend",
                   self.backend, "--evaluate-every", "11", "--timeout", str(options.timeout)]
        if "p" in options.ways:
            command[2:2] = ["--heartbeat-timeout", str(2 * options.timeout)]
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_JOB, check=False)

    def trace_in(self, folder):
        return trace(folder, self.ranks, torn_lines=True, kinds=("losses", "evaluations"))

    def disturb(self, losses, seed, found):
        """How many were lost."""
        with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
            folder, begin = pathlib.Path(name), time.monotonic()
            job = self.run_job(folder, losses, seed)
            what = f"seed {seed}, {self.ranks} ranks, {self.backend}"
            assert job.returncode == 0, f"{what}:\n{job.stderr}"
            marks = list((folder / "out").glob("lost.*"))
            complete = with_lost_lines(self.trace_in(folder), self.wanted, self.ranks, len(marks))
            assert (difference := first_difference(self.wanted, complete)) is None, f"{what}: other bits: {difference}\n{job.stderr}"
            processes = lines_in(folder, "pids")
            needed = self.ranks + len(marks)
            assert needed <= len(processes) <= needed + min(self.options.spares, self.ranks), \
                f"{what}: {len(processes)} processes for {len(marks)} losses: survivors were replaced\n{job.stderr}"
            left = left_behind(folder)
            assert not left, f"{what}: left behind: {left}"
            found.ways.update(mark.read_text() for mark in marks if mark.suffix != ".again")
            found.standstills += [float(seconds) for seconds in STANDSTILL.findall(job.stderr)]
            successors = [line for line in lines_in(folder, "trained") if not line.endswith(" -")]
            found.by_spares += sum(line.endswith(":spare") for line in successors)
            found.others += sum(not line.endswith(":spare") for line in successors)
            print(f"{what}: {len(marks)} processes lost, {time.monotonic() - begin:.1f} s, same bits", flush=True)
            return len(marks)


def lines_in(folder, kind):
    return [line for path in (folder / "out").glob(f"{kind}.*") for line in path.read_text().splitlines()]


def main():
    options = arguments()
    kinds = [(int(ranks), backend) for ranks in options.ranks.split(",") for backend in options.backend.split(",")]
    worlds, lost, jobs, found = {}, 0, 0, Found()
    for kind in itertools.cycle(kinds):
        if lost >= options.losses:
            break
        if kind not in worlds:
            worlds[kind] = World(options, *kind)
        lost += worlds[kind].disturb(min(LOSSES_OF_A_JOB, options.losses - lost), options.seed + jobs, found)
        jobs += 1
    for way, count in sorted(found.ways.items()):
        print(f"{WAYS.get(way, way)}: {count}")
    if options.spares:
        print(f"{found.by_spares} lost ranks were replaced by spares, {found.others} by processes that were started then")
        assert found.by_spares >= found.others, "few were replaced by spares"
    print(f"{lost} processes lost in {jobs} jobs: every training ended with the same bits, in the "
          f"survivors' first processes. They stood still for {statistics.median(found.standstills):.2f} s (median), "
          f"{max(found.standstills):.2f} s at most, from the loss to the plan")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
