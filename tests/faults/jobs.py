"""A job of `lockstep run` that is disturbed from outside, and what its processes hold, for the scripts beside."""
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

RANKS = 4
LONGEST_WAIT = 300  # Seconds for whatever has to happen.
LOSS = re.compile(r"^(\d+) (-?0x[0-9a-f.]+p[+-]\d+|nan|-?inf)$", re.MULTILINE)


class Job:
    """checkpoint_probe on RANKS ranks, with its output in `folder`/out and its checkpoints in `folder`/checkpoints."""

    def __init__(self, build, folder, probe_words, launcher_words=(), ranks=RANKS):
        self.folder, self.out, self.ranks = folder, folder / "out", ranks
        self.out.mkdir(exist_ok=True)
        for old in self.out.glob("pid.*"):
            old.unlink()
        self.launcher = build / "bin/lockstep"
        command = [self.launcher, "run", "--nproc-per-node", str(ranks), *launcher_words,
                   build / "tests/checkpoint_probe", "--out", self.out, "--folder", folder / "checkpoints", *probe_words]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")}
        (folder / "tmp").mkdir(exist_ok=True)
        with open(folder / "stdout", "ab") as out, open(folder / "stderr", "ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                                            start_new_session=True)

    def pids(self):
        """{rank: process id} of the ranks that have begun to train, the newest of each."""
        found = {}
        for rank in range(self.ranks):
            try:
                found[rank] = int((self.out / f"pid.{rank}").read_text())
            except (FileNotFoundError, ValueError):
                pass
        return found

    def trains(self, apart_from=()):
        """Whether every rank trains, in other processes than `apart_from`."""
        pids = self.pids()
        return len(pids) == self.ranks and not set(pids.values()) & set(apart_from) and all(map(is_alive, pids.values()))

    def await_training(self, apart_from=(), limit=LONGEST_WAIT):
        """Seconds until every rank trains; None if the job ends before."""
        begin = time.monotonic()
        while not self.trains(apart_from):
            if self.process.poll() is not None:
                return None
            if time.monotonic() > begin + limit:
                raise AssertionError(f"the ranks did not train within {limit} s:\n{self.state()}")
            time.sleep(0.01)
        return time.monotonic() - begin

    def state(self):
        """What it said last, its processes, and where its ranks are in their programs."""
        tree = subprocess.run(["ps", "-o", "pid,ppid,stat,etimes,wchan:20,args", "--forest", "-g", str(self.process.pid)], text=True,
                              stdout=subprocess.PIPE, check=False).stdout
        stacks = subprocess.run([self.launcher, "stacks", str(self.process.pid)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=LONGEST_WAIT, check=False).stdout
        return f"{self.errors()[-3000:]}\n{tree}\n{stacks}"

    def steps(self):
        """Lines of rank 0's losses: the steps done, those that were done again included."""
        try:
            return (self.out / "losses.0").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def await_step(self, count=1, limit=LONGEST_WAIT):
        wanted, end = self.steps() + count, time.monotonic() + limit
        while self.steps() < wanted and self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"no step within {limit} s:\n{self.errors()[-4000:]}")
            time.sleep(0.01)

    def errors(self):
        return (self.folder / "stderr").read_text(errors="replace")

    def wait(self, limit=LONGEST_WAIT):
        return self.process.wait(limit)

    def end(self):
        """Kills what is left of it: the launcher's death ends its ranks."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def losses_in(path):
    """{step: bits}; fails where a step that was done again had another loss. A killed rank may leave half a line."""
    losses = {}
    for step, bits in LOSS.findall(path.read_text()):
        if losses.setdefault(int(step), bits) != bits:
            raise AssertionError(f"{path}: step {step} had the losses {losses[int(step)]} and {bits}")
    return losses


def trace(out, ranks=RANKS):
    """What a training has computed: the bits of all losses and evaluations, and the files of its last state."""
    texts = {path.name: losses_in(path) for kind in ("losses", "evaluations") for path in sorted(out.glob(f"{kind}.*"))}
    files = {path.name: path.read_bytes() for path in sorted((out / "final").iterdir()) if path.name != "manifest.json"}
    if len(files) < 5 or len(texts) != 2 * ranks:
        raise AssertionError(f"too little to compare: {sorted(files)}, {sorted(texts)}")
    return texts, files


def first_difference(wanted, found):
    """None if two traces are the same, bit for bit."""
    for kind, (left, right) in zip(("losses", "files"), zip(wanted, found)):
        for name in sorted(left.keys() | right.keys()):
            if left.get(name) != right.get(name):
                return f"{kind}: {name}"
    return None


def holdings(pid, connections):
    """What a process holds: MiB of memory, descriptors, threads, shared-memory files, TCP connections. None: it is gone."""
    place = pathlib.Path(f"/proc/{pid}")
    try:
        links = [os.readlink(entry) for entry in (place / "fd").iterdir() if entry.is_symlink()]
        mapped = {line.split(None, 5)[5].strip() for line in (place / "maps").read_text().splitlines()
                  if "/memfd:" in line or " /dev/shm/" in line}
        return {"memory": int((place / "statm").read_text().split()[1]) * resource.getpagesize() / 2**20,
                "descriptors": len(links), "threads": len(list((place / "task").iterdir())),
                "shared": len(mapped), "tcp": sum(link in connections for link in links)}
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def tcp_connections():
    """The links of /proc/PID/fd that are TCP sockets of this network namespace."""
    lines = [line for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {f"socket:[{line.split()[9]}]" for line in lines}


def limit_of(pid, kind, value):
    """Lowers a soft limit of another process; its children inherit it, a restarted rank does not."""
    hard = resource.prlimit(pid, kind)[1]
    resource.prlimit(pid, kind, (value, hard))


def pause(pid, seconds):
    send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    send(pid, signal.SIGCONT)
