"""Thousands of clients of one server from a few processes: each is a socket and a generator, and waits cost nothing."""
import errno
import multiprocessing
import os
import resource
import select
import socket
import struct
import time

SILENCE = 120  # Seconds without any answer after which a measurement has failed.
AGAIN = 0.1  # Seconds until a client that was turned away tries again, as a launcher does.


class Clients:
    """Runs `talk(number)` for each number: a generator that yields (bytes to send, number of bytes to wait for) and is given
    those bytes. One that loses its connection before it has said `Clients.JOINED` begins again, and is counted."""

    JOINED = object()

    def __init__(self, port, numbers, talk):
        self.port, self.talk, self.numbers = port, talk, list(numbers)
        self.poll, self.open, self.waiting, self.turned_away = select.epoll(), {}, [], 0
        self.joined = 0

    def begin(self, number):
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # No port stays behind.
        failure = one.connect_ex(("127.0.0.1", self.port))
        if failure not in (0, errno.EINPROGRESS):
            raise OSError(failure, os.strerror(failure))
        self.open[one.fileno()] = [one, self.talk(number), None, bytearray(), number, False]
        self.poll.register(one.fileno(), select.EPOLLOUT)

    def advance(self, client, reply):
        """Goes on with a client until it waits for bytes that are not there; False at its end."""
        one, talk, _, got, _, _ = client
        while True:
            try:
                asked = talk.send(reply)
            except StopIteration:
                return False
            if asked is Clients.JOINED:
                client[5], reply = True, None
                self.joined += 1
                continue
            data, count = asked
            if data:
                one.sendall(data)
            client[2] = count
            if len(got) < count:
                return True
            reply = bytes(got[:count])
            del got[:count]

    def serve(self, descriptor, events):
        """False when the client has ended."""
        client = self.open[descriptor]
        if client[2] is None:  # The connection is made, or refused.
            client[0].getpeername()
            self.poll.modify(descriptor, select.EPOLLIN)
            return self.advance(client, None)
        data = client[0].recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        client[3] += data
        if len(client[3]) < client[2]:
            return True
        reply = bytes(client[3][:client[2]])
        del client[3][:client[2]]
        return self.advance(client, reply)

    def run(self, until=lambda clients: not clients.open and not clients.waiting):
        """Serves the clients until a condition holds."""
        for number in self.numbers:
            self.begin(number)
            if number % 64 == 0:
                self.turn(0)
        self.numbers, last = [], time.monotonic()
        while not until(self):
            if self.turn(0.05):
                last = time.monotonic()
            if time.monotonic() > last + SILENCE:
                raise TimeoutError(f"nothing for {SILENCE} s: {len(self.open)} clients wait")

    def turn(self, seconds):
        now = time.monotonic()
        while self.waiting and self.waiting[0][0] <= now:
            self.begin(self.waiting.pop(0)[1])
        ready = self.poll.poll(seconds)
        for descriptor, events in ready:
            try:
                if not self.serve(descriptor, events):
                    self.close(descriptor)
            except OSError:
                client = self.open[descriptor]
                self.close(descriptor)
                if client[5]:
                    raise
                self.turned_away += 1
                self.waiting.append((now + AGAIN, client[4]))
        return len(ready)

    def close(self, descriptor):
        self.open.pop(descriptor)[0].close()

    def close_all(self):
        for descriptor in list(self.open):
            self.close(descriptor)


def allow_descriptors():
    """As many as this user may have; for this process and those that it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def processor_seconds(pid):
    with open(f"/proc/{pid}/schedstat", encoding="utf-8") as stat:
        main = int(stat.read().split()[0])
    with os.scandir(f"/proc/{pid}/task") as tasks:
        others = [open(f"{task.path}/schedstat", encoding="utf-8").read() for task in tasks if task.name != str(pid)]
    return (main + sum(int(text.split()[0]) for text in others)) / 1e9


def in_processes(work, count, processes=2):
    """work(numbers, pipe) in each process, for its share of the numbers; pipes to talk with them."""
    pipes = []
    for part in range(processes):
        ours, theirs = multiprocessing.Pipe()
        worker = multiprocessing.Process(target=work, args=(range(part, count, processes), theirs), daemon=True)
        worker.start()
        theirs.close()
        pipes.append((worker, ours))
    return pipes


def ask(pipes, what):
    """Tells all processes to go on, and returns what each answers."""
    for _, pipe in pipes:
        pipe.send(what)
    return [pipe.recv() for _, pipe in pipes]
