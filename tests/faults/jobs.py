"""A job of `lockstep run` that is disturbed from outside, and what its processes hold, for the scripts beside."""
import ctypes
import os
import pathlib
import resource
import signal
import subprocess
import time

RANKS = 4
STANDSTILL = 300  # Seconds without any sign of progress: a machine that is busy with other work slows a job down, but it goes on.
LONGEST_WAIT = 1800  # Seconds for whatever has to happen.


class Job:
    """checkpoint_probe on RANKS ranks, with its output in `folder`/out and its checkpoints in `folder`/checkpoints."""

    def __init__(self, build, folder, probe_words, launcher_words=(), ranks=RANKS, environment=None, before=None):
        """`before` is called in the launcher's process before its program, for limits."""
        self.folder, self.out, self.ranks = folder, folder / "out", ranks
        self.read = self.lines = 0
        self.out.mkdir(exist_ok=True)
        for old in self.out.glob("pid.*"):
            old.unlink()
        self.launcher = build / "bin/lockstep"
        command = [self.launcher, "run", "--nproc-per-node", str(ranks), *launcher_words,
                   build / "tests/checkpoint_probe", "--out", self.out, "--folder", folder / "checkpoints", *probe_words]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")} | (environment or {})
        (folder / "tmp").mkdir(exist_ok=True)
        with open(folder / "stdout", "ab") as out, open(folder / "stderr", "ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                                            start_new_session=True, preexec_fn=before)

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

    def signs(self):
        """Changes while the job does anything: starts processes, loads libraries, trains, or reports."""
        group = {pid: resident_mib(pid) for pid in members_of(self.process.pid)}
        return len(self.errors()), self.steps(), group

    def await_that(self, happens, what):
        """Seconds until `happens()`; None if the job ends before. Fails when the job stands still, and prints where."""
        begin = moved = time.monotonic()
        signs = self.signs()
        while not happens():
            now = time.monotonic()
            if self.process.poll() is not None:
                return None
            if now > moved + 1 and (newer := self.signs()) != signs:
                moved, signs = now, newer
            assert now < min(moved + STANDSTILL, begin + LONGEST_WAIT), \
                f"{what}: not within {now - begin:.0f} s, and nothing moved for {now - moved:.0f} s:\n{self.state()}"
            time.sleep(0.01)
        return time.monotonic() - begin

    def await_training(self, apart_from=()):
        """Seconds until every rank trains; None if the job ends before."""
        return self.await_that(lambda: self.trains(apart_from), "all ranks train")

    def state(self):
        """What it said last, its processes, and where its ranks are in their programs."""
        tree = subprocess.run(["ps", "-o", "pid,ppid,stat,etimes,wchan:20,args", "--forest", "-g", str(self.process.pid)], text=True,
                              stdout=subprocess.PIPE, check=False).stdout
        stacks = subprocess.run([self.launcher, "stacks", str(self.process.pid)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=STANDSTILL, check=False).stdout
        return f"{self.errors()[-3000:]}\n{tree}\n{stacks}"

    def steps(self):
        """Lines of rank 0's losses: the steps done, those that were done again included. Reads what is new of them."""
        try:
            with open(self.out / "losses.0", "rb") as file:
                file.seek(self.read)
                new = file.read()
        except FileNotFoundError:
            return 0
        self.read += len(new)
        self.lines += new.count(b"\n")
        return self.lines

    def await_step(self, count=1):
        wanted = self.steps() + count
        self.await_that(lambda: self.steps() >= wanted, f"{count} more steps")

    def errors(self):
        return (self.folder / "stderr").read_text(errors="replace")

    def wait(self):
        """Its exit status."""
        self.await_that(lambda: False, "the end of the job")
        return self.process.returncode

    def end(self):
        """Kills what is left of it: the launcher's death ends its ranks."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Disk:
    """A file system of its own at `place`: small, and full whenever a test says so. Not mounted where that is not allowed."""

    def __init__(self, place, size="4m"):
        place.mkdir()
        self.place, self.filler = place, place / "filler"
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.mounted = self.mount(0, f"size={size}")

    def mount(self, flags, words=""):
        return self.libc.mount(b"tmpfs", bytes(self.place), b"tmpfs", flags, words.encode()) == 0

    def unmount(self):
        if self.mounted:
            self.libc.umount2(bytes(self.place), 2)

    def may_be_written(self, allowed):
        """Also for root, and for what is open only if nothing writes at this moment: False where something does."""
        return self.mount(32 | (0 if allowed else 1))

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self):
        self.filler.unlink(missing_ok=True)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def members_of(group):
    """The processes of a process group's session: a launcher and its ranks."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and session_of(int(pid)) == group]


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def resident_mib(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 2**20
    except (FileNotFoundError, ProcessLookupError):
        return None


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


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
