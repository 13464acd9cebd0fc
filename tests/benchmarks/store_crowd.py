"""Many clients at a store of PyTorch's protocol: the same bytes for every server. For store.py.

Each client counts itself, publishes its address and waits until all have; then reads another one's, as the ranks of a job do.
"""
import struct
import time

from harness import clients

GREETING = b"\0\xce\xf7\x85\x3c\x0dping"
SET, GET, ADD, WAIT = 1, 3, 4, 6
ADDRESS = b"127.0.0.1:12345 of a rank, as long as that of Gloo is: " + b"x" * 64
SECONDS = 2.0  # Of requests.


def number(value):
    return struct.pack("<Q", value)


def text(value):
    return number(len(value)) + value


def meet(rank, count):
    """A client of `count`, until all have met; then it stays, and asks for `get` after `get` when it is told."""
    yield GREETING, 4
    yield clients.Clients.JOINED
    joined = yield bytes([SET]) + text(b"/address/%d" % rank) + text(ADDRESS) + bytes([ADD]) + text(b"/joined") + number(1), 8
    first = bytes([SET]) + text(b"/all") + text(b"1") if struct.unpack("<Q", joined)[0] == count else b""
    yield first + bytes([WAIT]) + number(1) + text(b"/all"), 1
    found = yield bytes([GET]) + text(b"/address/%d" % ((rank + 1) % count)), 8 + len(ADDRESS)
    assert found == text(ADDRESS)
    MET.append(rank)
    while True:
        yield b"", 1 << 40


MET = []  # Of this process.


def work(port, count):
    """What a process of clients does, when it is told."""
    def run(numbers, pipe):
        clients.allow_descriptors()
        crowd = clients.Clients(port, numbers, lambda rank: meet(rank, count))
        wanted = len(crowd.numbers)
        pipe.recv()
        begin = time.monotonic()
        crowd.run(until=lambda _: len(MET) == wanted)
        pipe.send((time.monotonic() - begin, crowd.turned_away))
        pipe.recv()
        pipe.send(requests(crowd))
        pipe.recv()
        crowd.close_all()
        pipe.send(None)
    return run


def requests(crowd):
    """How many requests were answered, one at a time for each client."""
    asked, size = bytes([GET]) + text(b"/address/0"), 8 + len(ADDRESS)
    for client in crowd.open.values():
        client[3].clear()
        client[0].sendall(asked)
    answered, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        for descriptor, _ in crowd.poll.poll(0.1):
            client = crowd.open[descriptor]
            client[3] += client[0].recv(4096)
            if len(client[3]) == size:
                client[3].clear()
                client[0].sendall(asked)
                answered += 1
    return answered


def measure(server, count):
    """{what: value} of `count` clients at a server ({port, pid}): seconds until all have met, and of its processor; memory for
    each; requests a second, and of a second of its processor."""
    pid, port = server.process.pid, server.port
    before, used = clients.resident(pid), clients.processor_seconds(pid)
    pipes = clients.in_processes(work(port, count), count)
    met = clients.ask(pipes, "meet")
    after, spent = clients.resident(pid), clients.processor_seconds(pid) - used
    answered = sum(clients.ask(pipes, "request"))
    busy = clients.processor_seconds(pid) - used - spent
    clients.ask(pipes, "end")
    for worker, _ in pipes:
        worker.join()
    return {"met": max(seconds for seconds, _ in met), "processor": spent, "turned away": sum(away for _, away in met),
            "KiB a client": (after - before) * 1024 / count, "requests a second": answered / SECONDS,
            "requests a processor second": answered / busy}
