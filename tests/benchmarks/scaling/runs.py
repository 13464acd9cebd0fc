"""Real steps on this machine, and what the model makes of their parts: computing alone, and collectives alone.

On one host the ranks share the processors, so that communication overlaps with nothing; between two hosts (network namespaces
with a cable of a limited rate) it does. The parts are measured beside the whole, in turns.
"""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile

from harness import machine
from scaling import step

MODELS = {  # Bytes of the gradients of each layer in the order of forward, as tests/benchmarks/ddp_models.cpp makes them.
    "mlp": (4 * (1024 * 1024 + 1024),) * 8,
}
# FSDP: a GPT-2 of fully_shard.cpp, of which the embeddings and the last norm are the root, and each block is a unit.
BLOCKS, WIDTH, VOCABULARY, PLACES = 12, 256, 1000, 64
MODELS["gpt2"] = (4 * WIDTH * (VOCABULARY + PLACES + 2), *[4 * (12 * WIDTH**2 + 13 * WIDTH)] * BLOCKS)
ROUNDS, STEPS = 2, 10
OPTIMIZER_SHARE = 0.15  # Of a step that computes alone; forward is a third of the rest.
RATE = "1gbit"
RATES = {"1gbit": 1e9 / 8}
PAYLOAD = 1448 / 1514  # Of an Ethernet frame with TCP's timestamps; the kernel's limit counts whole frames.


def work_of(run):
    computes = run["alone"] * (1 - OPTIMIZER_SHARE)
    return step.Work(computes / 3, computes * 2 / 3, run["alone"] * OPTIMIZER_SHARE, MODELS[run["model"]])


def between(points):
    """A function of bytes through measured (bytes, seconds), straight between them and beyond them."""
    def seconds(size):
        pairs = list(zip(points, points[1:]))
        (x1, y1), (x2, y2) = next((pair for pair in pairs if size <= pair[1][0]), pairs[-1])
        return y1 + (size - x1) * (y2 - y1) / (x2 - x1)
    return seconds


def computed(run):
    """The step's seconds, of the model."""
    if run["model"] == "gpt2":
        return computed_fsdp(run)
    if run["hosts"] == 1:
        cluster = step.Cluster(run["ranks"], step.Link(0, 1e12), step.Link(0, 1e12), overlaps=False)
        cost = between([tuple(point) for point in run["collectives"]]) if run["ranks"] > 1 else None
        tasks = step.ddp(work_of(run), cluster, run["ranks"], "ring", cost=cost)
    else:
        cable = step.Link(run["latency"], RATES[run["rate"]] * PAYLOAD)
        tasks = step.ddp(work_of(run), step.Cluster(1, cable, cable), run["hosts"], "ring")
    return max(step.finish_times(tasks).values())


def computed_fsdp(run):
    """Each rank steps its own part of the weights."""
    work = work_of(run)
    work = step.Work(work.forward, work.backward, work.optimizer / run["ranks"], work.layers)
    cluster, cost = step.Cluster(run["ranks"], step.Link(0, 1e12), step.Link(0, 1e12), overlaps=False), None
    if run["hosts"] > 1:
        cable = step.Link(run["latency"], RATES[run["rate"]] * PAYLOAD)
        cluster = step.Cluster(1, cable, cable)
    elif run["ranks"] > 1:
        measured = {what: between([tuple(point) for point in run["collectives"][what]]) for what in ("gather", "scatter")}

        def cost(what, size):
            return measured[what](size)
    return max(step.finish_times(step.fsdp(work, cluster, run["ranks"], "ring", cost=cost, keeps_first=True)).values())


def steps(prefix, build, ranks, flags, model, nodes=("",)):
    """Seconds of each step, as rank 0 prints them."""
    program = [str(build / "tests/ddp_step"), "--model", model, "--steps", str(STEPS), "--warmup", "4", *flags]
    return [float(line.split()[-1]) / 1000 for line in output_of(prefix, build, ranks, program, nodes).splitlines()]


def fsdp_steps(prefix, build, ranks, nodes=("",)):
    """{"alone" or "full shard": seconds of each step}. The kinds take turns in one run."""
    program, found = [str(build / "tests/fully_shard_benchmark"), str(BLOCKS), str(WIDTH), "times"], {}
    for line in output_of(prefix, build, ranks, program, nodes).splitlines():
        kind, milliseconds = line.rsplit(": ", 1)
        found.setdefault(kind, []).append(float(milliseconds) / 1000)
    return found


def output_of(prefix, build, ranks, program, nodes):
    """What the first node's launcher prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LOCKSTEP_JOB_TOKEN": "0123456789abcdef0123456789abcdef"}
    jobs = [subprocess.Popen([*prefix(number), str(build / "bin/lockstep"), "run", "--nproc-per-node", str(ranks), *words_of(number, len(nodes)), *program],
                             env=environment, text=True, stdout=subprocess.PIPE) for number in range(len(nodes))]
    texts = [job.communicate(timeout=300)[0] for job in jobs]
    if any(job.returncode for job in jobs):
        raise RuntimeError(f"a job of {len(nodes)} launchers ended with {[job.returncode for job in jobs]}")
    return texts[0]


def words_of(number, nodes):
    if nodes == 1:
        return []
    return ["--nnodes", str(nodes), "--node-rank", str(number), "--master-addr", "10.78.0.1"]


def collectives(build, ranks, name="all_reduce"):
    """Measured (bytes, seconds) of one kind."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "table.json")
        subprocess.run([str(build / "bin/lockstep"), "run", "--nproc-per-node", str(ranks), str(build / "bin/lockstep-bench"), "--collective", name, "--min-bytes", "1M",
                        "--max-bytes", "64M", "--step-factor", "4", "--iterations", "8", "--json", output],
                       check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, timeout=300)
        with open(output, encoding="utf-8") as file:
            return points_of(json.load(file))


def points_of(found):
    return [(row["size"], row["time_us"] / 1e6) for row in found["results"]]


def summary(values):
    ordered = sorted(values)
    return {"seconds": statistics.median(ordered), "p10": ordered[len(ordered) // 10], "p90": ordered[-1 - len(ordered) // 10]}


def on_one_host(build, model, ranks):
    whole, alone, points = [], [], []
    for _ in range(ROUNDS):
        alone += steps(lambda _: [], build, ranks, ["--sync", "no"], model)
        whole += steps(lambda _: [], build, ranks, ["--view"], model)
        if ranks > 1:
            points.append(collectives(build, ranks))
    return {"what": f"{model}, {ranks} rank{'s' * (ranks > 1)} on one host", "model": model, "hosts": 1, "ranks": ranks,
            "alone": statistics.median(alone), "collectives": medians_of(points), **summary(whole)}


def medians_of(points):
    return [(column[0][0], statistics.median(seconds for _, seconds in column)) for column in zip(*points)]


def sharded_on_one_host(build, ranks):
    whole, alone, points = [], [], {"gather": [], "scatter": []}
    for _ in range(ROUNDS):
        found = fsdp_steps(lambda _: [], build, ranks)
        alone += found["alone"]
        whole += found["full shard"]
        for what, name in (("gather", "all_gather"), ("scatter", "reduce_scatter")):
            points[what].append(collectives(build, ranks, name) if ranks > 1 else [])
    return {"what": f"FSDP of gpt2, {ranks} rank{'s' * (ranks > 1)} on one host", "model": "gpt2", "hosts": 1, "ranks": ranks,
            "alone": statistics.median(alone), "collectives": {what: medians_of(rounds) for what, rounds in points.items()}, **summary(whole)}


ECHO = """import socket
server = socket.create_server(("10.78.0.1", 5000)); print(flush=True)
one = server.accept()[0]
while data := one.recv(1): one.sendall(data)"""
ASK = """import socket, time
one = socket.create_connection(("10.78.0.1", 5000)); one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(200):
    begin = time.perf_counter(); one.sendall(b"x"); one.recv(1); print(time.perf_counter() - begin)"""


class Hosts:
    """Two network namespaces with a cable between them."""

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE) for _ in range(2)]
        for holder in self.holders:
            holder.stdout.readline()
        first, second = (holder.pid for holder in self.holders)
        subprocess.run(["nsenter", "-t", str(first), "-n", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second)], check=True)
        for number in range(2):
            for words in (["ip", "addr", "add", f"10.78.0.{number + 1}/24", "dev", "eth0"], ["ip", "link", "set", "eth0", "up"], ["ip", "link", "set", "lo", "up"],
                          ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", RATE, "burst", "256kb", "latency", "200ms"]):
                subprocess.run([*self.enter(number), *words], check=True)

    def enter(self, number):
        return ["nsenter", "-t", str(self.holders[number].pid), "-n"]

    def latency(self):
        """Half of the time of a byte's way there and back through TCP, seconds."""
        server = subprocess.Popen([*self.enter(0), sys.executable, "-S", "-c", ECHO], stdout=subprocess.PIPE, text=True)
        server.stdout.readline()
        text = subprocess.run([*self.enter(1), sys.executable, "-S", "-c", ASK], check=True, text=True, stdout=subprocess.PIPE).stdout
        server.wait()
        return statistics.median(map(float, text.split())) / 2

    def end(self):
        for holder in self.holders:
            holder.send_signal(signal.SIGKILL)
            holder.wait()


def on_two_hosts(build, model):
    hosts = Hosts()
    try:
        latency, whole, alone = hosts.latency(), [], []
        for _ in range(ROUNDS):
            alone += steps(lambda _: [], build, 2, ["--sync", "no"], model)
            whole += steps(hosts.enter, build, 1, ["--view", "--backend", "gloo"], model, nodes=("a", "b"))
        return {"what": f"{model}, one rank on each of two hosts, {RATE[0]} Gbit/s", "model": model, "hosts": 2, "ranks": 2, "rate": RATE, "latency": latency,
                "alone": statistics.median(alone), **summary(whole)}
    finally:
        hosts.end()


def sharded_on_two_hosts(build):
    hosts = Hosts()
    try:
        latency, whole, alone = hosts.latency(), [], []
        for _ in range(ROUNDS):
            found = fsdp_steps(hosts.enter, build, 1, nodes=("a", "b"))
            alone += found["alone"]
            whole += found["full shard"]
        return {"what": f"FSDP of gpt2, one rank on each of two hosts, {RATE[0]} Gbit/s", "model": "gpt2", "hosts": 2, "ranks": 2, "rate": RATE,
                "latency": latency, "alone": statistics.median(alone), **summary(whole)}
    finally:
        hosts.end()


def measured(build):
    """What results/scaling.json holds."""
    watch = machine.Watch()
    may_make_hosts = os.geteuid() == 0
    found = [on_one_host(build, "mlp", ranks) for ranks in (1, 2, 4)]
    found += [on_two_hosts(build, "mlp")] if may_make_hosts else []
    found += [sharded_on_one_host(build, ranks) for ranks in (1, 2, 4)]
    found += [sharded_on_two_hosts(build)] if may_make_hosts else []
    described = machine.describe()
    return {"sentence": sentence(described, watch.others()), "runs": found}


def sentence(described, others):
    return (f"Measured on {described['cores']} cores with one thread a rank; other programs used {others:.1f} cores meanwhile: "
            f"medians of {ROUNDS} times {STEPS} steps.")
