"""Loses ranks of a training in every way and compares its end with that of an undisturbed run, bit for bit.

    python3 tests/faults/recover.py BUILD [--losses 200] [--ranks 2] [--backend auto] [--ways kbxe2] [--every 3] [--seed 1] [--spares 0]

BUILD is a build folder of the `tests` preset with the targets lockstep_launcher and checkpoint_probe. Each job loses ten
ranks, which the launcher replaces while the others keep their processes: by SIGKILL at random moments, in backward and of a
new process in its set-up, by exceptions and by exit(0). Prints a line for each job and how long the survivors stood
still, and ends with 1 at the first difference. With a `p` in --ways ranks are stopped (SIGSTOP), too: the others notice it
after --timeout seconds in an operation, and it is killed --recovery-timeout later; where they wait without a limit, as at a
checkpoint, the launcher notices it after twice --timeout.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from traces import left_behind, trace

LOSSES_OF_A_JOB = 10
LONGEST_JOB = 600
STANDSTILL = re.compile(r"all ranks are there again after ([0-9.]+) s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--losses", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--ways", default="kbxe2")
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=40)
    parser.add_argument("--recovery-timeout", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spares", type=int, default=0, help="As of lockstep run.")
    return parser.parse_args()


def run_job(options, folder, losses, seed):
    (folder / "out").mkdir()
    steps = 4 * 100 // options.ranks
    command = [options.build / "bin/lockstep", "run", "--nproc-per-node", str(options.ranks), "--max-recoveries",
               "1000", "--recovery-timeout", str(options.recovery_timeout), "--spares", str(options.spares), options.build / "tests/checkpoint_probe", "--out",
               folder / "out", "--folder", folder / "checkpoints", "--every", str(options.every), "--step-time", "2", "--losses", str(losses),
               "--losses-until", str(steps - 20), "--ways", options.ways, "--seed", str(seed), "--backend",
               options.backend, "--evaluate-every", "11", "--timeout", str(options.timeout)]
    if "p" in options.ways:
        command[2:2] = ["--heartbeat-timeout", str(2 * options.timeout)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_JOB, check=False)


def trace_in(folder, ranks):
    return trace(folder, ranks, torn_lines=True, kinds=("losses", "evaluations"))


def is_same(found, wanted, lost, ranks):
    """A rank that is lost after the others have got its gradients writes no loss for that step, and is not asked again."""
    missing = 0
    if found[0][ranks:] != wanted[0][ranks:]:
        return False
    for own, all_of_them in zip(found[0][:ranks], wanted[0][:ranks]):
        missing += len(all_of_them) - len(own)
        if own != {step: bits for step, bits in all_of_them.items() if step in own}:
            return False
    return found[1:] == wanted[1:] and missing <= lost


def disturbed(options, wanted, losses, seed, standstills):
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
        folder, begin = pathlib.Path(name), time.monotonic()
        job = run_job(options, folder, losses, seed)
        assert job.returncode == 0, f"seed {seed}:\n{job.stderr}"
        marks = [path.name for path in (folder / "out").iterdir() if path.name.startswith("lost.")]
        assert is_same(trace_in(folder, options.ranks), wanted, len(marks), options.ranks), f"seed {seed}: ended differently\n{job.stderr}"
        processes = sum(len(path.read_text().split()) for path in (folder / "out").glob("pids.*"))
        needed = options.ranks + len(marks)
        assert needed <= processes <= needed + options.spares, \
            f"seed {seed}: {processes} processes for {len(marks)} losses: survivors were replaced\n{job.stderr}"
        left = left_behind(folder)
        assert not left, f"seed {seed}: left behind: {left}"
        standstills += [float(seconds) for seconds in STANDSTILL.findall(job.stderr)]
        print(f"seed {seed}: {len(marks)} processes lost, {time.monotonic() - begin:.1f} s, same bits", flush=True)
        return len(marks)


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
        job = run_job(options, pathlib.Path(name), 0, 0)
        assert job.returncode == 0, job.stderr
        wanted = trace_in(pathlib.Path(name), options.ranks)
    lost, seed, standstills = 0, options.seed, []
    while lost < options.losses:
        lost += disturbed(options, wanted, min(LOSSES_OF_A_JOB, options.losses - lost), seed, standstills)
        seed += 1
    print(f"{lost} processes lost in {seed - options.seed} jobs: every training ended with the same bits, in the "
          f"survivors' first processes. They stood still for {statistics.median(standstills):.2f} s (median), "
          f"{max(standstills):.2f} s at most, from the loss to the plan")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
