"""A fault's folder, its jobs of `lockstep run`, and what has to be true when they have ended: for promises.py."""
import pathlib
import re
import subprocess
import time

import jobs
from traces import first_difference, left_behind, trace

RANKS = 2
EPOCHS, STEPS = 4, 200  # Of two ranks.
PROBE = ("--epochs", str(EPOCHS), "--every", "10")
STEP_MILLISECONDS = 20  # A fault comes in the middle of a training of four seconds; what is compared with it does not wait.
SLACK = 20  # Seconds that a busy machine may take for what is at once on an idle one.


class Skipped(Exception):
    """This machine cannot make the fault; the reason."""


class Trial:
    """One fault. `seconds`, `left` and `said` are what the table and the record show of it."""

    def __init__(self, build, folder, choice, few, undisturbed):
        self.build, self.folder, self.choice, self.few, self.undisturbed = build, folder, choice, few, undisturbed
        self.seconds, self.left, self.said = None, "nothing", ""
        self.jobs = []

    def start(self, *probe_words, launcher=(), folder=None, step_time=STEP_MILLISECONDS, **options):
        """A training in `folder`, the trial's own if none is named."""
        folder = folder or self.folder
        folder.mkdir(exist_ok=True)
        job = jobs.Job(self.build, folder, (*PROBE, "--step-time", str(step_time), *probe_words),
                       launcher, RANKS, **options)
        self.jobs.append(job)
        return job

    def start_and_train(self, *probe_words, **options):
        """A training that is somewhere between its first checkpoint and its middle."""
        job = self.start(*probe_words, **options)
        assert job.await_training() is not None, f"the training did not begin:\n{job.errors()[-3000:]}"
        job.await_step(11 + self.choice.randrange(60))
        assert job.process.poll() is None, f"the training ended too early:\n{job.errors()[-3000:]}"
        return job

    def a_rank(self):
        return self.choice.randrange(RANKS)

    def ran(self, program, words, launcher=(), limit=60, **options):
        """A job of another program of the build, until its end."""
        command = [self.build / "bin/lockstep", "run", "--nproc-per-node", str(RANKS), *launcher, *program_of(self.build, program), *words]
        begin = time.monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit + SLACK, check=False, **options)
        self.took(time.monotonic() - begin, limit)
        return ended

    def took(self, seconds, limit):
        """The longest of a trial counts. `limit`: of an idle machine."""
        self.seconds = max(self.seconds or 0, seconds)
        assert seconds <= limit + SLACK, f"it took {seconds:.1f} s, of {limit} s and {SLACK} s for a busy machine"

    def says(self, text, *words):
        """One line has all these words: it is shown in the record."""
        lines = [line for line in text.splitlines() if all(word in line for word in words)]
        assert lines, f"no line has {words}:\n{text[-3000:]}"
        self.said = re.sub(r"\s+", " ", self.without_places(lines[0]))[:400]

    def without_places(self, text):
        """The same words on every machine."""
        return text.replace(str(self.build), "BUILD").replace(str(self.folder), "FOLDER")

    def ended(self, job, since, statuses, *words, limit=5, killed=False):
        """The job has ended as promised, and nothing of it is left but whole checkpoints. `killed`: in the middle of a write, whose hidden
        folder the next start removes."""
        status = job.wait()
        self.took(time.monotonic() - since, limit)
        assert status in statuses, f"exit status {status} instead of {statuses}:\n{job.errors()[-3000:]}"
        if words:
            self.says(job.errors(), *words)
        running = jobs.members_of(job.process.pid)
        assert not running, f"processes are left: {running}"
        self.left = self.on_disk(job.folder, killed)
        return status

    def on_disk(self, folder, killed=False):
        """In words; fails on a damaged checkpoint or a half-written one."""
        checkpoints, unfinished = folder / "checkpoints", left_behind(folder)
        assert killed or not unfinished, f"left behind: {unfinished}"
        steps = sorted(int(path.name.split("-")[1]) for path in checkpoints.glob("checkpoint-*"))
        for step in steps:
            verified = subprocess.run([self.build / "bin/lockstep", "checkpoint", "verify", checkpoints / f"checkpoint-{step}"],
                                      capture_output=True, text=True, check=False)
            assert verified.returncode == 0, f"{verified.stdout}{verified.stderr}"
        words = f"{len(steps)} whole checkpoint{'s' * (len(steps) != 1)}" if steps else "no checkpoint"
        return words + (f", {len(unfinished)} hidden folder of a killed write" if unfinished else "")

    def newest(self, folder=None):
        found = ((folder or self.folder) / "checkpoints").glob("checkpoint-*")
        return max((int(path.name.split("-")[1]) for path in found), default=0)

    def completes(self, job, folder=None):
        """The job ends with success, and with the bits of an undisturbed one."""
        folder = folder or self.folder
        status = job.wait()
        assert status == 0, f"it ended with {status}:\n{job.errors()[-3000:]}"
        assert not (left := left_behind(folder)), f"left behind: {left}"
        difference = first_difference(self.undisturbed(), trace(folder, RANKS, torn_lines=True))
        assert difference is None, f"other bits: {difference}"

    def resumes(self, folder=None, **options):
        """Started again, it goes on from the newest checkpoint, and ends with the bits of an undisturbed job."""
        folder = folder or self.folder
        newest, said = self.newest(folder), len(text_of(folder / "stdout"))
        self.completes(self.start(folder=folder, step_time=0, **options), folder)
        words = text_of(folder / "stdout")[said:]
        assert not newest or f"step {newest}" in words, f"it did not resume from step {newest}: {words}"
        self.left += "; resumed: the same bits"

    def end(self):
        for job in self.jobs:
            job.end()


def program_of(build, program):
    """A test program of the build, or a command that is found by PATH."""
    return [build / "tests/probe"] if program == "probe" else [program]


def text_of(path):
    return path.read_text(errors="replace") if path.exists() else ""


def peak_mib(pid):
    """The most memory that the process has held."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None
