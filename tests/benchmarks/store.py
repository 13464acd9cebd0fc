#!/usr/bin/env python3
"""The same PyTorch clients at PyTorch's store server and at ours, in turns: times and ratios.

Usage: store.py STORE_SERVER [REPEATS]                      run it with a Python that has torch
       store.py STORE_SERVER --crowd CLIENTS [REPEATS]      so many clients at once, from two processes

Every server runs in a process of its own. A round trip is one get of a key that is there (which is a wait and a get), or
one add; the barrier is an add and a wait by each of 64 clients in 4 processes. A crowd meets as the ranks of a job do
(store_crowd.py); its clients are only sockets, so that the time is the server's as far as possible.
"""

import datetime
import json
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time

import store_crowd
from harness import clients
from harness.benchmark import OURS, Benchmark, Row

ROUND_TRIPS = 2000
CLIENTS, PROCESSES, BARRIERS = 64, 4, 20
THEIRS = ("import sys, torch.distributed as d\n"
          "s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, use_libuv=sys.argv[1] == 'libuv')\n"
          "print(s.port, flush=True); sys.stdin.read()\n")


class Server:
    def __init__(self, command):
        start = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(self.process.stdout.readline())
        self.start_seconds = time.monotonic() - start

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def client(port):
    import torch.distributed as dist
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False,
                         timeout=datetime.timedelta(seconds=60))


def per_call(call):
    start = time.monotonic()
    for _ in range(ROUND_TRIPS):
        call()
    return (time.monotonic() - start) / ROUND_TRIPS


def barriers(port, ready, go, seconds):
    """The clients of one process, each in a thread, through one barrier after the other."""
    stores = [client(port) for _ in range(CLIENTS // PROCESSES)]
    ready.release()
    go.wait()
    start = time.monotonic()
    threads = [threading.Thread(target=through, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds.put((time.monotonic() - start) / BARRIERS)


def through(store):
    for number in range(BARRIERS):
        if store.add(f"barrier/{number}", 1) == CLIENTS:
            store.set(f"done/{number}", "1")
        store.wait([f"done/{number}"])


def barrier_seconds(port):
    ready, go, seconds = multiprocessing.Semaphore(0), multiprocessing.Event(), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=barriers, args=(port, ready, go, seconds)) for _ in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    go.set()
    slowest = max(seconds.get() for _ in workers)
    for worker in workers:
        worker.join()
    return slowest


def measure(command):
    server = Server(command)
    try:
        store = client(server.port)
        store.set("key", "value")
        large = b"x" * (1 << 20)
        return {
            "start": server.start_seconds,
            "get": per_call(lambda: store.get("key")),
            "add": per_call(lambda: store.add("sum", 1)),
            "set and get 1 MiB": per_pair(store, large),
            "barrier of 64": barrier_seconds(server.port),
        }
    finally:
        server.end()


def per_pair(store, value, pairs=50):
    start = time.monotonic()
    for _ in range(pairs):
        store.set("large", value)
        store.get("large")
    return (time.monotonic() - start) / pairs


def commands_with(server):
    return {OURS: [server], "TCPStore (libuv)": [sys.executable, "-c", THEIRS, "libuv"],
            "TCPStore (legacy)": [sys.executable, "-c", THEIRS, "legacy"]}


def print_times(server, repeats):
    commands = commands_with(server)
    runs = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(measure(command))
    for what in runs[OURS][0]:
        medians = {name: statistics.median(run[what] for run in results) for name, results in runs.items()}
        columns = "  ".join(f"{name} {seconds * 1e6:10.1f} us" for name, seconds in medians.items())
        print(f"{what:18s} {columns}  libuv/ours {medians['TCPStore (libuv)'] / medians[OURS]:6.2f} x")


def crowd(command, count):
    """In a network of its own where the system allows one: PyTorch's server looks up the name of each client, and without a
    name server that answers, those lookups would be most of its time."""
    words = [sys.executable, "-B", __file__, "--crowd-alone", str(count), *command]
    alone = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
    possible = subprocess.run([*alone, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    return json.loads(subprocess.run([*alone * possible, *words], check=True, stdout=subprocess.PIPE, timeout=600).stdout)


def crowd_alone(count, *command):
    clients.allow_descriptors()
    server = Server(command)
    try:
        print(json.dumps(store_crowd.measure(server, int(count))))
    finally:
        server.end()


def print_crowd(server, count, repeats):
    runs = {name: [] for name in commands_with(server)}
    for _ in range(repeats):
        for name, command in commands_with(server).items():
            runs[name].append(crowd(command, count))
    print(f"{count} clients: medians of {repeats}")
    for what in runs[OURS][0]:
        print(f"{what:28s}" + "".join(f"  {name} {statistics.median(run[what] for run in results):12.3f}" for name, results in runs.items()))


def main():
    if sys.argv[1] == "--crowd-alone":
        crowd_alone(*sys.argv[2:])
    elif sys.argv[2:3] == ["--crowd"]:
        print_crowd(sys.argv[1], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 3)
    else:
        print_times(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)


def turn(command, quick):
    values = {ROWS[what]: seconds * 1e6 for what, seconds in measure(command).items()}
    for count in (1000,) if quick else (1000, 4000):
        found = crowd(command, count)
        values |= {f"meet_{count}": found["met"] * 1000, f"memory_{count}": found["KiB a client"],
                   f"requests_{count}": found["requests a processor second"]}
    return values


def sides(setting):
    """A quick run leaves out the server that PyTorch does not use by default."""
    return {name: lambda command=command: turn(command, setting.quick)
            for name, command in commands_with(setting.program("tests/store_server")).items() if not (setting.quick and "legacy" in name)}


CROWD = tuple(row for count in (1000, 4000) for row in (
    Row(f"meet_{count}", f"{count:,} clients at once, until all have met", "ms"),
    Row(f"memory_{count}", f"the server's memory for each of {count:,} clients", "KiB"),
    Row(f"requests_{count}", f"requests of {count:,} clients, by the server's processor time", "requests/s", "higher")))
ROWS = {"start": "start", "get": "get", "add": "add", "set and get 1 MiB": "large", "barrier of 64": "barrier"}
BENCHMARK = Benchmark(
    "store", "the key-value store beside PyTorch's TCPStore, with PyTorch's clients", "network.md",
    (Row("start", "starting the store's server", "us"), Row("get", "get of a key (a wait and a get)", "us"),
     Row("add", "add to a key", "us"), Row("large", "set and get of 1 MiB", "us"),
     Row("barrier", "barrier of 64 clients", "us"), *CROWD),
    sides, ("tests/store_server",), {name: ("torch",) for name in (OURS, "TCPStore (libuv)", "TCPStore (legacy)")}, quick_rounds=2, quick_share=2)

if __name__ == "__main__":
    main()
