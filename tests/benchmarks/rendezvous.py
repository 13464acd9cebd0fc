#!/usr/bin/env python3
"""How many nodes one coordinator bears: a real launcher as node 0, and all other nodes as sockets that say what launchers say.

Usage: rendezvous.py LAUNCHER [NODES ...]      (1000 4000)

For each number of nodes: the time from the first connection until every node knows its ranks, the coordinator's memory and
processor time, how busy it is while every node reports its eight ranks once a second, how long the news of a lost node takes
to all others, and the same for the end of the job. Nodes connect all at once; one that is turned away tries again, as a launcher does.
The nodes' processes share the machine with the coordinator: its processor time is what another machine would need, too.
"""
import hashlib
import hmac
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from harness import clients
from harness.benchmark import OURS, Benchmark, Row

TOKEN = "0123456789abcdef0123456789abcdef"
GREETING = b"\0\xce\xf7\x85\x3c\x0dLKSC"
VERSION = 5
RANKS = 8  # Of each node.
REPORT_SECONDS = 5


def proof(side, server, client):
    return hmac.new(TOKEN.encode(), b"lockstep " + side + b" 1 C" + server + client, hashlib.sha256).digest()


def message(kind, **fields):
    text = json.dumps({"type": kind, **fields}).encode()
    return struct.pack(">I", len(text)) + text


def info(number, count):
    return message("join", version=VERSION, run_id="none", host=f"host{number}", pid=1000 + number, node_rank=number, role="default",
                   program="sleep", arguments="1000", min_nodes=count, max_nodes=count, local_world_size=RANKS,
                   wall_clock=int(time.time() * 1000))


def status(number):
    """What a launcher reports of its ranks."""
    ranks = [{"rank": number * RANKS + local, "process": f"host{number}, pid {2000 + local}", "still": 0, "process_state": 83,
              "beat": {"activity": 1, "what": "forward", "number": 0, "step": 57}} for local in range(RANKS)]
    return message("status", round=1, ranks=ranks)


def talk(number, count, mailbox):
    """A node that joins and counts what it is told, by kind."""
    hello = yield GREETING, 8 + 1 + 32
    assert hello.startswith(b"LOCKSTEP"), hello
    challenge = os.urandom(32)
    answer = yield challenge + proof(b"client", hello[9:], challenge), 33
    assert answer == b"+" + proof(b"server", hello[9:], challenge), answer
    yield clients.Clients.JOINED
    data = info(number, count)
    while True:
        head = yield data, 4
        text = yield b"", struct.unpack(">I", head)[0]
        kind = json.loads(text)["type"]
        mailbox[kind] = mailbox.get(kind, 0) + 1
        data = b""


def work(port, count):
    """What a process of nodes does when it is told; the answer is the seconds that it took."""
    def run(numbers, pipe):
        numbers = [number for number in numbers if number > 0]
        clients.allow_descriptors()
        mailbox = {}
        crowd = clients.Clients(port, numbers, lambda number: talk(number, count, mailbox))

        def until(kind, wanted):
            begin = time.monotonic()
            crowd.run(until=lambda _: mailbox.get(kind, 0) >= wanted)
            return time.monotonic() - begin

        pipe.recv()
        pipe.send((until("start", len(numbers)), crowd.turned_away))
        pipe.recv()
        pipe.send(report(crowd, numbers))
        lost = pipe.recv()
        if lost:
            crowd.close(next(iter(crowd.open)))
        pipe.send(until("stop", len(numbers) - lost))
        pipe.recv()
        for client in crowd.open.values():
            client[0].sendall(message("ended", round=1, ok=False, failures=[]))
        pipe.send(until("finish", len(numbers) - lost))
        pipe.recv()
        crowd.close_all()
        pipe.send(None)
    return run


def report(crowd, numbers):
    """Every node reports once a second, evenly spread, and sends a keep-alive; what comes back is read."""
    texts = {client[4]: status(client[4]) for client in crowd.open.values()}
    ping, begin, sent = message("ping"), time.monotonic(), 0
    order = list(crowd.open.values())
    while (now := time.monotonic()) < begin + REPORT_SECONDS:
        due = min(int((now - begin) * len(order)), len(order) * REPORT_SECONDS)
        for place in range(sent, due):
            client = order[place % len(order)]
            client[0].sendall(texts[client[4]] + (ping if place < len(order) else b""))
        sent = max(sent, due)
        crowd.turn(0.002)
    return sent


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def measure(launcher, count):
    """{what: value} for a job of so many nodes."""
    clients.allow_descriptors()
    port = free_port()
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen([launcher, "run", "--nnodes", str(count), "--nproc-per-node", "1", "--node-rank", "0", "--master-addr", "127.0.0.1",
                                "--master-port", str(port), "--shutdown-timeout", "2", "sleep", "1000"],
                               env=os.environ | {"LOCKSTEP_JOB_TOKEN": TOKEN}, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            return talk_with(job, port, count)
        except Exception:
            said.seek(0)
            sys.stderr.writelines(line[:200] + "\n" for line in said.read().splitlines()[-8:])
            raise
        finally:
            job.send_signal(signal.SIGKILL)
            job.wait()


def talk_with(job, port, count):
    await_listener(port)
    pipes = clients.in_processes(work(port, count), count)
    before, used = clients.resident(job.pid), clients.processor_seconds(job.pid)
    met = clients.ask(pipes, "meet")
    spent, memory = clients.processor_seconds(job.pid) - used, clients.resident(job.pid)
    clients.ask(pipes, "report")
    busy = clients.processor_seconds(job.pid) - used - spent
    for place, (_, pipe) in enumerate(pipes):
        pipe.send(1 if place == 0 else 0)
    told = max(pipe.recv() for _, pipe in pipes)
    finished = max(clients.ask(pipes, "end"))
    clients.ask(pipes, "close")
    return {"all have ranks, s": max(seconds for seconds, _ in met), "of it processor, s": spent,
            "turned away, tries": sum(away for _, away in met), "memory, MiB": memory, "KiB a node": (memory - before) * 1024 / count,
            "busy with reports, %": 100 * busy / REPORT_SECONDS, "a loss is known to all, s": told, "the end is known to all, s": finished}


def await_listener(port):
    for _ in range(2000):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise TimeoutError("the coordinator does not listen")


def main():
    for count in [int(word) for word in sys.argv[2:]] or COUNTS:
        print(f"{count} nodes of {RANKS} ranks: " + ", ".join(f"{what} {value:.4g}" for what, value in measure(sys.argv[1], count).items()), flush=True)


def turn(setting):
    values = {}
    for count in COUNTS[:1] if setting.quick else COUNTS:
        found = measure(setting.launcher, count)
        values |= {f"{row}_{count}": found[what] * factor for row, (_, _, what, factor) in ROWS.items()}
    return values


COUNTS = [1000, 4000]
ROWS = {"meet": ("until all know their ranks", "ms", "all have ranks, s", 1000),
        "processor": ("the coordinator's processor time until then", "ms", "of it processor, s", 1000),
        "memory": ("the coordinator's memory for each", "KiB", "KiB a node", 1),
        "busy": ("the share of a core that their reports take", "%", "busy with reports, %", 1),
        "loss": ("until all know that one is lost", "ms", "a loss is known to all, s", 1000),
        "end": ("until all know that the job has ended", "ms", "the end is known to all, s", 1000)}
BENCHMARK = Benchmark(
    "rendezvous", f"a coordinator with many nodes of {RANKS} ranks; the nodes' sockets share the machine with it", "network.md",
    tuple(Row(f"{row}_{count}", f"{count:,} nodes: {words}", unit) for count in COUNTS for row, (words, unit, _, _) in ROWS.items()),
    lambda setting: {OURS: lambda: turn(setting)}, ("bin/lockstep",), rounds=3, quick_rounds=2)

if __name__ == "__main__":
    main()
