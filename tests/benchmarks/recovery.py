"""Kills a rank of one small training under Lockstep, torchrun and torchft, in turns, and measures what that costs.

    python3 tests/benchmarks/recovery.py BUILD [--rounds 3] [--quick]

BUILD is a build folder with the targets lockstep_launcher and checkpoint_probe. Run it with a Python that has torch, and
torchft-nightly with opentelemetry 1.39.1, without which that side is left out; or run bench.py, which installs them.

Each turn trains two ranks for 20 s, and kills one of them (SIGKILL; each round another one) in the middle. The training has a
batch norm and dropout, and a checkpoint every 100 steps. Its bits are compared with those of one that nothing disturbs, and its
time with that of as many steps at the pace before the kill. The other rank stands still from the kill to its next step's end.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from harness import one, turns
from harness.benchmark import OURS, Benchmark, Outputs, Row, Setting

RANKS = 2
STEP_TIME = 20  # Milliseconds that a step waits, as if it computed.
PERIOD, QUICK_PERIOD = 20, 4  # Seconds of training for each kill.
CHECKPOINTS = 100
LIMIT = 180  # Seconds.
LINE = re.compile(r"^(\d+) (\S+)$")
PEER = pathlib.Path(__file__).with_name("recovery_peer.py")
SPARE = ("--max-recoveries", "100", "--spares", str(RANKS))


class Job:
    """`lockstep run` with checkpoint_probe, which writes the losses of each rank, and the pids of its processes."""

    def __init__(self, setting, out, steps, step_time, words):
        self.run([setting.launcher, "run", "--nproc-per-node", str(RANKS), *words, setting.program("tests/checkpoint_probe"), "--out", out,
                  "--folder", out / "checkpoints", "--every", str(CHECKPOINTS), "--epochs", "100000", "--steps", str(steps),
                  "--step-time", str(step_time)], out, {})

    def run(self, command, out, more):
        self.process = start(command, out, more)

    def goes_on(self):
        return self.process.poll() is None

    def end(self):
        end(self.process)


class TorchrunJob(Job):
    def __init__(self, _, out, steps, step_time):
        self.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "--max-restarts", "100",
                  "--monitor-interval", "0.1", PEER, "torchrun", out, *peer_words(steps, step_time)], out,
                 {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


class TorchftJob(Job):
    """A lighthouse and a process for each replica, which is started again at once when it was killed."""
    LIGHTHOUSE = ("from torchft.coordination import LighthouseServer as L; import time; s = L(bind='127.0.0.1:0', min_replicas=1, "
                  "join_timeout_ms=10000); print(s.address(), flush=True); time.sleep(10**6)")

    def __init__(self, _, out, steps, step_time):
        self.out, self.words = out, peer_words(steps, step_time)
        self.lighthouse = subprocess.Popen([sys.executable, "-c", self.LIGHTHOUSE], stdout=subprocess.PIPE, text=True,
                                           stderr=subprocess.DEVNULL, start_new_session=True)
        self.environment = {"TORCHFT_LIGHTHOUSE": self.lighthouse.stdout.readline().strip(), "REPLICAS": str(RANKS)}
        self.replicas = {rank: self.start(rank) for rank in range(RANKS)}

    def start(self, rank):
        return start([sys.executable, PEER, "torchft", self.out, *self.words], self.out, self.environment | {"REPLICA": str(rank)})

    def goes_on(self):
        for rank, process in self.replicas.items():
            if process.poll() not in (None, 0):
                self.replicas[rank] = self.start(rank)
        return any(process.poll() is None for process in self.replicas.values())

    def end(self):
        for process in (*self.replicas.values(), self.lighthouse):
            end(process)
        self.lighthouse.stdout.close()


def peer_words(steps, step_time):
    return ["--steps", str(steps), "--step-time", str(step_time), "--every", str(CHECKPOINTS)]


def start(command, out, more):
    with open(out / "stderr", "ab") as errors:
        return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"} | more, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()


class Losses:
    """A rank's file, read on as it grows."""

    def __init__(self, path):
        self.path, self.place, self.rest = path, 0, ""
        self.bits, self.lines, self.newest = {}, 0, -1

    def read(self):
        """Whether there are new lines."""
        if not self.path.exists():
            return False
        with open(self.path, encoding="utf-8") as file:
            file.seek(self.place)
            text = file.read()
            self.place = file.tell()
        *lines, self.rest = (self.rest + text).split("\n")
        before = self.lines
        for match in filter(None, map(LINE.match, lines)):
            self.lines += 1
            self.bits[int(match[1])] = match[2]
            self.newest = max(self.newest, int(match[1]))
        return self.lines > before


@dataclasses.dataclass
class Training:
    """What one has left. `seconds`: from its fifth step to its last one; `pace`: those of a step before the kill. Of the rank that was
    not killed: how long it stood still, which steps it has computed again, and how many after the kill without the other one."""
    seconds: float
    pace: float
    standstill: float
    computed_again: int
    absent: int
    processes: int
    bits: tuple


def words_in(path):
    return path.read_text().split() if path.exists() else []


def final_bits(out):
    """Those of weights and optimizer."""
    if (out / "final").exists():
        return tuple(path.read_bytes() for path in sorted((out / "final").iterdir()) if path.name != "manifest.json")
    return tuple(word for rank in range(RANKS) for word in words_in(out / f"digest.{rank}"))


def wait_until(job, condition):
    """False if the job ends before."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if not job.goes_on():
            return False
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing for {LIMIT} s")
        time.sleep(0.001)
    return True


def train(make, out, steps, kill=None):
    """`kill`: (the rank that is killed, after how many steps)."""
    out.mkdir()
    job, losses = make(out), [Losses(out / f"losses.{rank}") for rank in range(RANKS)]
    pace, standstill, survivor, alone_before = 0.0, 0.0, 0, 0

    def read():
        return [each.read() for each in losses]

    try:
        if not wait_until(job, lambda: read() and min(each.newest for each in losses) >= 5):
            raise RuntimeError("the training did not begin:\n" + (out / "stderr").read_text()[-3000:])
        begin, first = time.monotonic(), min(each.newest for each in losses)
        if kill:
            rank, step = kill
            survivor = 1 - rank
            wait_until(job, lambda: read() and min(each.newest for each in losses) >= step)
            killed, alone_before = time.monotonic(), len(words_in(out / f"absent.{survivor}"))
            pace = (killed - begin) / (min(each.newest for each in losses) - first)
            os.kill(int(words_in(out / f"pids.{rank}")[0]), signal.SIGKILL)  # The next one is the spare's.
            time.sleep(0.003)  # A step whose last operation is over ends.
            losses[survivor].read()
            wait_until(job, losses[survivor].read)
            standstill = time.monotonic() - killed
        wait_until(job, lambda: read() and max(each.newest for each in losses) >= steps - 1)
        seconds = time.monotonic() - begin
        wait_until(job, lambda: False)
    finally:
        job.end()
    read()
    return Training(seconds, pace, standstill, losses[survivor].lines - len(losses[survivor].bits),
                    len(words_in(out / f"absent.{survivor}")) - alone_before,
                    sum(len(words_in(out / f"pids.{rank}")) for rank in range(RANKS)) - RANKS,
                    (final_bits(out), [each.bits for each in losses]))


def same_bits(wanted, found):
    """A rank that was killed before it wrote a loss may lack it."""
    if not wanted[0] or wanted[0] != found[0]:
        return False
    return all(own.get(step, bits) == bits for every, own in zip(wanted[1], found[1]) for step, bits in every.items())


class Side:
    """One way of training. Rounds kill rank 1, 0, 1, ... in turn."""

    def __init__(self, setting, make):
        self.setting, self.make = setting, make
        self.period = QUICK_PERIOD if setting.quick else PERIOD
        self.steps = self.period * 1000 // (STEP_TIME + 2)
        self.wanted, self.turns = None, 0

    def folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.setting.folder)) / "out"

    def turn(self):
        if self.wanted is None:
            self.wanted = train(lambda out: self.make(self.setting, out, self.steps, 0), self.folder(), self.steps).bits
        self.turns += 1
        found = train(lambda out: self.make(self.setting, out, self.steps, STEP_TIME), self.folder(), self.steps,
                      (self.turns % 2, self.steps // 2))
        return {"standstill": found.standstill, "again": found.computed_again, "absent": found.absent,
                "processes": found.processes - self.spares(), "bits": 0 if same_bits(self.wanted, found.bits) else 1,
                "useful": min(100, 100 * found.pace * (self.steps - 6) / found.seconds)}

    def spares(self):
        return 0


class OurSide(Side):
    """With spares. Also: the time of a step while nothing is lost."""

    def spares(self):
        return RANKS

    def turn(self):
        return {**super().turn(), "step": step_time(self.setting, ("--max-recoveries", "100"))}


def step_time(setting, words):
    """Milliseconds of a step of this small training, which waits for nothing."""
    steps = 500 if setting.quick else 2000
    out = pathlib.Path(tempfile.mkdtemp(dir=setting.folder)) / "out"
    found = train(lambda folder: Job(setting, folder, steps, 0, words), out, steps)
    return 1000 * found.seconds / (steps - 6)


def by_launcher(*words):
    return lambda setting, out, steps, step: Job(setting, out, steps, step, words)


def sides(setting):
    return {OURS: OurSide(setting, by_launcher(*SPARE)).turn,
            COLD: Side(setting, by_launcher("--max-recoveries", "100")).turn,
            RESTARTED: Side(setting, by_launcher("--max-restarts", "100", "--restart-backoff", "0")).turn,
            "torchrun": Side(setting, TorchrunJob).turn,
            "torchft": Side(setting, TorchftJob).turn,
            OFF: lambda: {"step": step_time(setting, ())}}


COLD, RESTARTED, OFF = "without a spare", "all restarted", "without recoveries"
BENCHMARK = Benchmark(
    "recovery", "a rank is killed in the middle of 20 s of training", "reliability.md",
    (Row("standstill", "the other rank stands still", "s"),
     Row("again", "steps that it computes again", "steps"),
     Row("absent", "steps that it makes without the killed one", "steps"),
     Row("processes", "processes started", "processes"),
     Row("bits", "trainings with other bits", "of 1"),
     Row("useful", "share of useful time", "%", "higher"),
     Row("step", "a step while nothing is lost", "ms")),
    sides, ("bin/lockstep", "tests/checkpoint_probe"), {"torchrun": ("torch",), "torchft": ("torch", "torchft", "opentelemetry")}, rounds=5,
    quick_rounds=2, quick_share=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=BENCHMARK.rounds)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory(prefix="lockstep-recovery-") as folder:
        setting = Setting(options.build.resolve(), pathlib.Path(folder), options.quick, Outputs())
        absent = one.absent_peers(BENCHMARK)
        chosen = {name: turn for name, turn in sides(setting).items() if name not in absent}
        found = turns.take(chosen, options.rounds, lambda text: print(text, file=sys.stderr, flush=True))
    for row in BENCHMARK.rows:
        print(f"{row.what} ({row.unit})")
        for name, rounds in found[row.name].items():
            values = [value for several in rounds for value in several]
            print(f"  {name:20} median {statistics.median(values):8.3f}, most {max(values):8.3f}, least {min(values):8.3f}")


if __name__ == "__main__":
    main()
