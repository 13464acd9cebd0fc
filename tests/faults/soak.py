"""Half an hour of training with a fault every few seconds; its end is compared with an undisturbed run, bit for bit.

    python3 tests/faults/soak.py BUILD [--minutes 30] [--seed 1] [--recoveries] [--spares 0] [--plot FILE.svg] [--record FILE.json]
    python3 tests/faults/soak.py --draw FILE.json FILE.svg         # the plot of a recorded run, without running anything

BUILD is a build folder of the `tests` preset with the targets lockstep_launcher and checkpoint_probe. Four ranks train with
dropout, shuffling, a loader's worker thread each, an evaluation every 50 steps and a checkpoint every 10. The faults of FAULTS
come in a random order, every one as often as any other; a job that stands still for five minutes, or has not recovered from one
within half an hour, fails the test.
The last fifth of the time has none. Then the job is asked to stop (SIGUSR1), and resumed for its last state. An undisturbed
run of as many steps has to have the same bits: all losses, evaluations, weights and states.

With --recoveries, ranks 1 to 3 are lost one at a time, and replaced (--max-recoveries); all others keep their processes, and rank 0
its own from the beginning to the end: what it and the launcher hold is what must not grow.

Once a second it is noted what the launcher and the ranks hold. None of it may grow beyond ROOM. A full disk needs root, for a small tmpfs.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time

import jobs
from traces import first_difference, left_behind, trace, with_lost_lines

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmarks"))
from harness import curves

HANG_SECONDS = 10
LAUNCHER = ("--max-restarts", "1000000", "--restart-backoff", "0", "--shutdown-timeout", "2", "--heartbeat-timeout", str(HANG_SECONDS))
RECOVERIES = ("--max-recoveries", "1000000", "--shutdown-timeout", "2", "--heartbeat-timeout", str(HANG_SECONDS))
PROBE = ("--epochs", "1000000", "--every", "10", "--evaluate-every", "50")
STEP_MILLISECONDS = 40  # So that the undisturbed run, which does not wait, takes a fraction of the time.
KINDS = {"memory": "memory, MiB", "descriptors": "descriptors", "threads": "threads", "shared": "shared-memory files",
         "tcp": "TCP connections"}
# How much more a process may hold at the end than at the beginning: a share of it, and an amount.
ROOM = {"memory": (0.05, 1.0), "descriptors": (0, 1), "threads": (0, 1), "shared": (0, 1), "tcp": (0, 1)}
POINTS = 240  # Of each curve.


class Faults:
    """Each does something to the job and returns. Those of `RESTARTS` end the ranks; after the others they go on."""

    RESTARTS = {"a rank is killed (SIGKILL)": "kill", "two ranks are killed at once": "kill_two", "a rank crashes (SIGSEGV)": "crash",
                "a rank throws an exception": "throw", "a rank exits with success": "leave",
                f"a rank is stopped for good (SIGSTOP), noticed after {HANG_SECONDS} s": "stop",
                "rank 0 has no descriptors left at a checkpoint": "exhaust", "the disk is full at a checkpoint": "fill"}
    OTHERS = {"a rank pauses for 1 s (SIGSTOP, SIGCONT)": "pause", "all ranks pause for 1 s": "pause_all"}

    def __init__(self, job, disk, choice):
        self.job, self.disk, self.choice = job, disk, choice

    def names(self):
        return [name for name in [*self.RESTARTS, *self.OTHERS] if self.disk.mounted or self.RESTARTS.get(name) != "fill"]

    def a_rank(self):
        return self.choice.randrange(self.job.ranks)

    def kill(self, pids):
        jobs.send(pids[self.a_rank()], signal.SIGKILL)

    def kill_two(self, pids):
        for rank in self.choice.sample(range(self.job.ranks), 2):
            jobs.send(pids[rank], signal.SIGKILL)

    def crash(self, pids):
        jobs.send(pids[self.a_rank()], signal.SIGSEGV)

    def throw(self, _):
        (self.job.out / f"throw.{self.a_rank()}").touch()

    def leave(self, _):
        (self.job.out / f"leave.{self.a_rank()}").touch()

    def stop(self, pids):
        jobs.send(pids[self.a_rank()], signal.SIGSTOP)

    def exhaust(self, pids):
        jobs.limit_of(pids[0], resource.RLIMIT_NOFILE, 3)

    def fill(self, _):
        self.disk.fill()

    def pause(self, pids):
        jobs.pause(pids[self.a_rank()], 1)

    def pause_all(self, pids):
        for pid in pids.values():
            jobs.send(pid, signal.SIGSTOP)
        time.sleep(1)
        for pid in pids.values():
            jobs.send(pid, signal.SIGCONT)

    def happen(self, name):
        """Seconds from the fault until every rank trains again: in new processes, or in the old ones."""
        pids, begin = self.job.pids(), time.monotonic()
        getattr(self, (self.RESTARTS | self.OTHERS)[name])(pids)
        if name == "the disk is full at a checkpoint":
            self.await_full_disk()
        again = self.lasts(name, pids)
        assert again is not None, f"{name}: the job ended with {self.job.process.returncode}:\n{self.job.errors()[-4000:]}"
        return time.monotonic() - begin

    def lasts(self, name, pids):
        """The fault has happened to ranks with these processes: how long until all train again; None if the job ends."""
        if name in self.RESTARTS:
            return self.job.await_training(apart_from=pids.values())
        again = self.job.await_training()
        self.job.await_step()
        assert self.job.pids() == pids, f"{name}: the ranks were restarted:\n{self.job.errors()[-4000:]}"
        return again

    def await_full_disk(self):
        """The next checkpoint fails; a person makes room when they read why."""
        said = len(self.job.errors())
        self.job.await_that(lambda: "No space left on device" in self.job.errors()[said:], "the job says that the disk is full")
        self.disk.free()


class Losses(Faults):
    """Those of one rank, which is replaced. Rank 0 is never lost."""

    RESTARTS = {name: way for name, way in Faults.RESTARTS.items() if way in ("kill", "crash", "throw", "leave", "stop")}
    victim = None

    def a_rank(self):
        self.victim = self.choice.randrange(1, self.job.ranks)
        return self.victim

    def lasts(self, name, pids):
        if name not in self.RESTARTS:
            return super().lasts(name, pids)
        again = self.job.await_training(apart_from=[pids[self.victim]])
        self.job.await_step()
        found = self.job.pids()
        others = [rank for rank in pids if rank != self.victim and found[rank] != pids[rank]]
        assert not others, f"{name} {self.victim}: ranks {others} were restarted as well:\n{self.job.errors()[-4000:]}"
        return again


class Watch(threading.Thread):
    """Notes once a second what the processes hold: lines of (second, process, the age of its ranks, holdings)."""

    def __init__(self, job):
        super().__init__(daemon=True)
        self.job, self.samples, self.ends, self.begin = job, [], threading.Event(), time.monotonic()

    def run(self):
        ranks, since = {}, self.begin
        while not self.ends.wait(1):
            now, pids, connections = time.monotonic(), self.job.pids(), jobs.tcp_connections()
            if pids != ranks:
                ranks, since = pids, now
            for name, pid in [("launcher", self.job.process.pid), *pids.items()]:
                held = jobs.holdings(pid, connections)
                if held and held["memory"] > 0:
                    self.samples.append((now - self.begin, name, now - since, held))

    def stop(self):
        self.ends.set()
        self.join()


def within(samples, low, high):
    """Those of a part of the time. A short run may have none in it: then the part is made larger until it has."""
    while not (found := [sample for sample in samples if low <= sample[0] < high]):
        low, high = low - 1, high + 1
    return found


def medians(samples, kind, first, last):
    """The holdings of a kind in the first and the last part of the time, as medians of what each second had."""
    assert samples, "no rank has trained for a second: train longer (--minutes)"
    return [statistics.median(sample[3][kind] for sample in within(samples, low, high)) for low, high in (first, last)]


def growth_of_survivors(samples, end):
    """The same of a job whose rank 0 lives from the beginning to the end: its traces are full after 10,000 steps."""
    first, last, found = (end * 0.4, end * 0.5), (end * 0.7, end * 0.8), {}
    for who, process in (("launcher", "launcher"), ("rank 0", 0)):
        chosen = [sample for sample in samples if sample[1] == process]
        for kind in KINDS:
            found[who, kind] = medians(chosen, kind, first, last)
    return found


def growth(samples, end):
    """{(who, kind): [at the beginning, at the end]}: the launcher, and ranks that have trained for a second or more."""
    first, last, found = (end * 0.05, end * 0.2), (end * 0.65, end * 0.8), {}
    for who in ("launcher", "ranks"):
        chosen = [sample for sample in samples if (sample[1] == "launcher") == (who == "launcher") and (who == "launcher" or sample[2] >= 1)]
        for kind in KINDS:
            found[who, kind] = medians(chosen, kind, first, last)
    calm = [sample for sample in samples if sample[1] != "launcher" and sample[0] >= end * 0.85]
    for kind in KINDS:
        found["ranks, in the calm end", kind] = medians(calm, kind, (end * 0.85, end * 0.9), (end * 0.95, end + 1))
    return found


def grown(found):
    for (who, kind), (before, after) in found.items():
        share, amount = ROOM[kind]
        if after > before * (1 + share) + amount:
            yield f"{who}: {kind} {before:g} at the beginning, {after:g} at the end"


def points(samples, who, kind, end):
    """The largest value of each of POINTS parts of the time."""
    parts = {}
    for second, name, _, held in samples:
        if (name == "launcher") == (who == "launcher"):
            part = int(second / end * POINTS)
            parts[part] = max(parts.get(part, 0), held[kind])
    return [[round(part * end / POINTS / 60, 2), round(value, 2)] for part, value in sorted(parts.items())]


def disturb(job, disk, options, choice):
    """Faults until four fifths of the time are over: [(second, name, seconds until the ranks train again)]."""
    faults, done, begin, waiting = (Losses if options.recoveries else Faults)(job, disk, choice), [], time.monotonic(), []
    while time.monotonic() - begin < options.minutes * 60 * 0.8:
        if not waiting:
            waiting = choice.sample(faults.names(), len(faults.names()))
        job.await_step(1 + choice.randrange(60))
        assert job.process.poll() is None, f"the job ended with {job.process.returncode}:\n{job.errors()[-4000:]}"
        name, at = waiting.pop(), time.monotonic() - begin
        done.append((round(at, 2), name, round(faults.happen(name), 3)))
    time.sleep(max(0, options.minutes * 60 - (time.monotonic() - begin)))
    return done


def launcher_words(options):
    return (*RECOVERIES, "--spares", str(options.spares)) if options.recoveries else LAUNCHER


def disturbed(options, folder, disk):
    launcher = launcher_words(options)
    job = jobs.Job(options.build, folder, (*PROBE, "--step-time", str(STEP_MILLISECONDS)), launcher)
    watch = Watch(job)
    try:
        job.await_training()
        watch.start()
        done = disturb(job, disk, options, random.Random(options.seed))
        watch.stop()
        jobs.send(job.process.pid, signal.SIGUSR1)
        assert job.wait() == 85, f"asked to stop, the job ended with {job.process.returncode}:\n{job.errors()[-4000:]}"
    finally:
        job.end()
    newest = max(int(path.name.split("-")[1]) for path in (folder / "checkpoints").glob("checkpoint-*"))
    last = jobs.Job(options.build, folder, (*PROBE, "--steps", str(newest)), launcher)
    assert last.wait() == 0, last.errors()[-4000:]
    return done, watch.samples, newest


def undisturbed(options, folder, steps):
    folder.mkdir()
    job = jobs.Job(options.build, folder, (*PROBE, "--steps", str(steps)), launcher_words(options) if options.recoveries else ())
    assert job.wait() == 0, job.errors()[-4000:]
    return traced(folder)


def traced(folder):
    return trace(folder, jobs.RANKS, torn_lines=True, kinds=("losses", "evaluations"))


def run(options):
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as name:
        folder = pathlib.Path(name)
        disk = jobs.Disk(folder / "checkpoints")  # Two checkpoints are a small part of it.
        try:
            begin = time.monotonic()
            done, samples, steps = disturbed(options, folder, disk)
            seconds = time.monotonic() - begin
            left = left_behind(folder)
            found, wanted = traced(folder), undisturbed(options, folder / "undisturbed", steps)
        finally:
            disk.unmount()
    assert not left, f"left behind: {left}"
    if options.recoveries:
        found = with_lost_lines(found, wanted, jobs.RANKS, sum(name in Losses.RESTARTS for _, name, _ in done))
    assert (difference := first_difference(wanted, found)) is None, f"other bits: {difference}"
    held = (growth_of_survivors if options.recoveries else growth)(samples, options.minutes * 60)
    result = {"minutes": options.minutes, "seed": options.seed, "steps": steps, "seconds": round(seconds), "losses": sum(map(len, wanted[0])),
              "faults": done, "growth": {f"{who}: {kind}": values for (who, kind), values in held.items()},
              "curves": {kind: {who: points(samples, who, kind, options.minutes * 60) for who in ("launcher", "ranks")} for kind in KINDS}}
    return result, list(grown(held))


def table(result):
    """Markdown: how often each fault came, and how long until all ranks trained again."""
    lines = ["| fault | times | all ranks train again after, median (longest) |", "| --- | --- | --- |"]
    times = {}
    for _, name, seconds in result["faults"]:
        times.setdefault(name, []).append(seconds)
    for name in [*Faults.RESTARTS, *Faults.OTHERS]:
        if name in times:
            lines.append(f"| {name} | {len(times[name])} | {statistics.median(times[name]):.2f} s ({max(times[name]):.2f} s) |")
    lines += ["", "| held, median | at the beginning | at the end |", "| --- | --- | --- |"]
    lines += [f"| {name} | {before:.4g} | {after:.4g} |" for name, (before, after) in result["growth"].items()]
    return "\n".join(lines)


def drawn(result):
    panels = [curves.Panel(words, {("launcher" if who == "launcher" else "ranks, largest"): line for who, line in result["curves"][kind].items()})
              for kind, words in KINDS.items()]
    marks = [at / 60 for at, name, _ in result["faults"] if name in Faults.RESTARTS]
    note = (f"{len(result['faults'])} faults in {result['minutes']:g} minutes; ticks above the curves: faults after which all ranks "
            f"were restarted ({len(marks)}). The largest value of each {result['minutes'] * 60 / POINTS:g} s.")
    return curves.drawn("What the launcher and the ranks hold during the soak", note, panels, "minutes", marks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recoveries", action="store_true", help="single ranks are lost and replaced")
    parser.add_argument("--spares", type=int, default=0, help="with --recoveries: as of lockstep run")
    parser.add_argument("--plot", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--draw", type=pathlib.Path, nargs=2, metavar=("FILE.json", "FILE.svg"))
    options = parser.parse_args()
    if options.draw:
        options.draw[1].write_text(drawn(json.loads(options.draw[0].read_text())))
        return
    result, growing = run(options)
    if options.record:
        options.record.write_text(json.dumps(result, indent=None, separators=(",", ":")) + "\n")
    if options.plot:
        options.plot.write_text(drawn(result))
    print(table(result))
    assert not growing, "; ".join(growing)
    print(f"{len(result['faults'])} faults, {result['steps']} steps, {result['losses']} losses and evaluations: the same bits; nothing grew beyond its room")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
