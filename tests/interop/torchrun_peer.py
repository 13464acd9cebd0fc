"""Starts one command line under torchrun and under `lockstep run`, and gives both in one form."""
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE = os.path.join(HERE, "torchrun_probe.py")
TORCHRUN = ["torchrun"]
LEGACY = [sys.executable, "-B", "-W", "ignore", "-m", "torch.distributed.launch"]


class Outcome:
    """What came of one start: `status`, `out`, `err`, the probes' notes by "restart.rank", and the files that were kept
    by path, without the random names in them."""

    def __init__(self, scratch, process, out, err):
        self.status = process.returncode
        self.out = out
        self.err = err
        self.notes = {name[:-5]: self.read_note(scratch, name) for name in os.listdir(scratch) if name.endswith(".json")}
        self.files = dict(self.kept_files(os.path.join(scratch, "logs")))
        self.passed_on = self.read_passed_on(os.path.join(scratch, "passed_on"))

    @staticmethod
    def read_note(scratch, name):
        with open(os.path.join(scratch, name)) as file:
            note = json.load(file)
        note["environment"] = {name: value.replace(scratch, "SCRATCH") for name, value in note["environment"].items()}
        note["directory"] = note["directory"].replace(scratch, "SCRATCH")
        return note

    @staticmethod
    def read_passed_on(path):
        if not os.path.exists(path):
            return None
        with open(path) as file:
            return json.load(file)

    @staticmethod
    def kept_files(folder):
        for path, _, names in os.walk(folder):
            for name in names:
                full = os.path.join(path, name)
                with open(full, errors="replace") as file:
                    text = file.read()
                # The run's folder: <run id>_<8 random signs>.
                yield re.sub(r"^([^/]*)_[^/]{8}/", r"\1_RANDOM/", os.path.relpath(full, folder)), text

    def lines(self):
        """The console's lines in order of the alphabet, as ranks write at the same time. torchrun puts no blank behind
        the rank."""
        return sorted(re.sub(r"^(\[\w+\]:) ", r"\1", line) for line in self.out.splitlines())

    def events(self):
        return [json.loads(line) for line in self.err.splitlines() if line.startswith('{"name"')]


class Torchrun:
    """A start of torchrun by this thread's preloaded_torchrun.py, with the members of subprocess.Popen that are used here."""

    thread = threading.local()

    def __init__(self, words, environment, directory):
        if not hasattr(self.thread, "server"):
            self.thread.server, theirs = socket.socketpair()
            with theirs:
                subprocess.Popen([sys.executable, "-B", os.path.join(HERE, "preloaded_torchrun.py")], stdin=theirs)
        self.returncode = None
        self.streams = [tempfile.TemporaryFile() for _ in range(2)]
        stdin, self.stdin = os.pipe()
        message = json.dumps({"words": words, "environment": environment, "directory": directory}).encode()
        socket.send_fds(self.thread.server, [message], [stdin, *(stream.fileno() for stream in self.streams)])
        os.close(stdin)
        self.pid = self.answer(120)

    def answer(self, timeout):
        self.thread.server.settimeout(timeout)
        answer = self.thread.server.recv(4)
        if not answer:
            raise RuntimeError("preloaded_torchrun.py has ended")
        return struct.unpack("i", answer)[0]

    def poll(self, timeout=0):
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(self.answer(timeout))
            except (BlockingIOError, TimeoutError):
                pass
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, stdin="", timeout=None):
        """Like Popen's; what is given fits into a pipe."""
        if self.stdin is not None:
            os.write(self.stdin, stdin.encode())
            os.close(self.stdin)
            self.stdin = None
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired("torchrun", timeout)
        for stream in self.streams:
            stream.seek(0)
        return [stream.read().decode() for stream in self.streams]


def wait_for(path, process):
    for _ in range(3000):
        if os.path.exists(path) or process.poll() is not None:
            return
        time.sleep(0.02)


def run(launcher, flags, program, variables=None, send=None, after=(), stdin=""):
    """Starts `launcher` with the flags and a program, in which SCRATCH stands for a folder of this start's own. `send` is
    a signal for the launcher once the notes `after` are there."""
    with tempfile.TemporaryDirectory(prefix="lockstep_compare_") as scratch:
        words = [word.replace("SCRATCH", scratch) for word in [*launcher, *flags, *program]]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
        environment.update({"TMPDIR": scratch, "PYTHON_EXEC": sys.executable})
        environment.update({name: value.replace("SCRATCH", scratch) for name, value in (variables or {}).items()})
        if launcher is TORCHRUN:
            process = Torchrun(words[1:], environment, scratch)
        else:
            process = subprocess.Popen(words, env=environment, cwd=scratch, text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if send is not None:
                for note in after:
                    wait_for(os.path.join(scratch, note + ".json"), process)
                process.send_signal(send)
            out, err = process.communicate(stdin, timeout=400)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
        return Outcome(scratch, process, out, err)
