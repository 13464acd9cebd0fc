"""Kills ranks of a training at random times and compares its end with an uninterrupted run, bit for bit.

    python3 tests/faults/kill_and_resume.py BUILD [--kills 200] [--ranks 2] [--every 3] [--seed 1] [--asynchronous]

BUILD is a build folder of the `tests` preset with the targets lockstep_launcher and checkpoint_probe. Each job takes ten
kills, at random ranks and at random times within the first --latest-kill steps after a start: in steps, in writes of
checkpoints, and while other ranks still start. Prints a line for each job and ends with 1 at the first difference.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

from traces import left_behind, trace

KILLS_OF_A_JOB = 10
LONGEST_JOB = 600


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--latest-kill", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--asynchronous", action="store_true", help="checkpoints are written beside the training")
    return parser.parse_args()


def run_job(options, folder, kills, seed):
    (folder / "out").mkdir()
    command = [options.build / "bin/lockstep", "run", "--nproc-per-node", str(options.ranks),
               "--max-restarts", str(kills), "--restart-backoff", "0", options.build / "tests/checkpoint_probe",
               "--out", folder / "out", "--folder", folder / "checkpoints", "--every", str(options.every),
               "--step-time", "4", "--kills", str(kills), "--seed", str(seed),
               "--latest-kill", str(options.latest_kill)]
    if options.asynchronous:
        command.append("--asynchronous")
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_JOB, check=False)


def interrupted(options, wanted, kills, seed):
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
        folder, begin = pathlib.Path(name), time.monotonic()
        job = run_job(options, folder, kills, seed)
        done = job.stderr.count("FAILED: rank ")
        assert job.returncode == 0, job.stderr
        assert "' is skipped: " not in job.stderr, job.stderr
        assert trace(folder, options.ranks) == wanted, f"seed {seed}: the training ended differently\n{job.stdout}"
        left = left_behind(folder)
        assert not left, f"left behind: {left}"
        print(f"seed {seed}: {done} kills, {job.stdout.count('resumed from')} resumes, "
              f"{time.monotonic() - begin:.1f} s, same bits", flush=True)
        return done


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="lockstep-faults-") as name:
        job = run_job(options, pathlib.Path(name), 0, 0)
        assert job.returncode == 0, job.stderr
        wanted = trace(pathlib.Path(name), options.ranks)
    kills, seed = 0, options.seed
    while kills < options.kills:
        kills += interrupted(options, wanted, min(KILLS_OF_A_JOB, options.kills - kills), seed)
        seed += 1
    print(f"{kills} kills in {seed - options.seed} jobs: every training ended with the same bits")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
