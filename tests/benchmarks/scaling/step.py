"""A training step as tasks on the resources of the slowest rank: what communication costs on n ranks.

The times of collectives are those of the ring and of its hierarchical form, from a link's latency and bandwidth. A rank has
two resources, its processor and its network; each does one task after the other, in the order in which they were issued. A
task begins when its resource is free and all tasks that it comes after are done. On a CPU without a network of its own,
communication uses the processor, too: then nothing overlaps.
"""
import dataclasses
import heapq
import math
import statistics
from typing import Tuple


@dataclasses.dataclass(frozen=True)
class Link:
    """Seconds until a message's first byte has arrived, and bytes a second of one rank in one direction."""
    latency: float
    bandwidth: float

    def seconds(self, size):
        return self.latency + size / self.bandwidth


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes with so many ranks each; every rank has its own share of the network between them."""
    ranks_per_node: int
    inside: Link
    between: Link
    overlaps: bool = True  # False: communication takes the processor.

    def nodes(self, ranks):
        return -(-ranks // self.ranks_per_node)


def half_ring(ranks, size, link):
    """All-gather or reduce-scatter of `size` bytes in all."""
    return (ranks - 1) * link.seconds(size / ranks)


def half_tree(ranks, size, link):
    """The same by doubling: as many bytes, and a logarithm of the latencies."""
    return math.ceil(math.log2(ranks)) * link.latency + (ranks - 1) / ranks * size / link.bandwidth


HALVES = {"ring": half_ring, "tree": half_tree}


def half(cluster, ranks, size, shape):
    """All-gather or reduce-scatter on all ranks. "ring": one ring through all of them. "hierarchical": within a node, and
    between the nodes as many rings as a node has ranks, each with its share of the bytes. "tree": the same with doubling
    between the nodes."""
    inside, nodes = min(ranks, cluster.ranks_per_node), cluster.nodes(ranks)
    if nodes == 1:
        return half_ring(ranks, size, cluster.inside) if ranks > 1 else 0.0
    if shape == "ring":
        # A node's boundary is one link of the ring: all steps go at its pace.
        return half_ring(ranks, size, cluster.between)
    between = HALVES["tree" if shape == "tree" else "ring"]
    local = half_ring(inside, size, cluster.inside) if inside > 1 else 0.0
    return local + between(nodes, size / inside, cluster.between)


def all_reduce(cluster, ranks, size, shape):
    return 2 * half(cluster, ranks, size, shape)


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    resource: str
    seconds: float
    after: Tuple[str, ...] = ()


def finish_times(tasks):
    """{name: when it ends}. Events in the order of time: a task's end frees its resource and what comes after it."""
    done, running, queues = {}, [], {}
    for task in tasks:
        queues.setdefault(task.resource, []).append(task)
    free, now, turn = set(queues), 0.0, 0
    while True:
        for resource in sorted(free):
            if queues[resource] and all(name in done for name in queues[resource][0].after):
                task = queues[resource].pop(0)
                free.remove(resource)
                turn += 1
                heapq.heappush(running, (now + task.seconds, turn, task))
        if not running:
            break
        now, _, task = heapq.heappop(running)
        done[task.name] = now
        free.add(task.resource)
    waiting = [task.name for queue in queues.values() for task in queue]
    if waiting:
        raise ValueError(f"these tasks wait for each other, or for none that there is: {waiting}")
    return done


@dataclasses.dataclass(frozen=True)
class Work:
    """What a rank computes in a step, and the bytes of each layer's gradients, in the order of forward."""
    forward: float
    backward: float
    optimizer: float
    layers: Tuple[float, ...]

    def computes(self):
        return self.forward + self.backward + self.optimizer


def buckets(layers, first, most):
    """The bytes of DDP's buckets, in the order of backward: the first is small, so that communication begins early."""
    result, size = [], 0.0
    for layer in reversed(layers):
        size += layer
        if size >= (most if result else first):
            result.append(size)
            size = 0.0
    return result + ([size] if size else [])


MEBIBYTE = 1 << 20


def ddp(work, cluster, ranks, shape, slow=1.0, cost=None, first=MEBIBYTE, most=25 * MEBIBYTE):
    """The tasks of a data-parallel step; `slow`: how much longer than usual the slowest rank computes. `cost(bytes)` replaces
    the all-reduce's formula."""
    network = "network" if cluster.overlaps else "processor"
    cost = cost or (lambda size: all_reduce(cluster, ranks, size, shape))
    sizes, whole = buckets(work.layers, first, most), sum(work.layers)
    tasks, last = [Task("forward", "processor", work.forward * slow)], "forward"
    for number, size in enumerate(sizes):
        tasks.append(Task(f"backward {number}", "processor", work.backward * slow * size / whole, (last,)))
        last = f"backward {number}"
        if ranks > 1:
            tasks.append(Task(f"reduce {number}", network, cost(size), (last,)))
    reduced = tuple(f"reduce {number}" for number in range(len(sizes)) if ranks > 1)
    return tasks + [Task("optimizer", "processor", work.optimizer * slow, (last, *reduced))]


def fsdp(work, cluster, ranks, shape, slow=1.0, cost=None, keeps_first=False):
    """Weights divided among all ranks: each layer is gathered before its forward and again before its backward, one layer
    ahead, and its gradients are reduce-scattered. `work.layers` has the bytes of the weights; gradients are as large.
    `cost("gather" or "scatter", bytes)` replaces the formula. `keeps_first`: the first layer is not gathered again, as the root
    of a model."""
    network = "network" if cluster.overlaps else "processor"
    count, whole = len(work.layers), sum(work.layers)
    cost = cost or (lambda _, size: half(cluster, ranks, size, shape))
    tasks = []

    def gather(what, layer, after):
        kept = what == "again" and layer == 0 and keeps_first
        tasks.append(Task(f"{what} {layer}", network, 0.0 if kept else cost("gather", work.layers[layer]), after))

    gather("gather", 0, ())
    for layer, size in enumerate(work.layers):
        # The next layer is gathered while this one computes; so two are there at a time.
        if layer + 1 < count:
            gather("gather", layer + 1, (f"forward {layer - 1}",) if layer > 0 else ())
        before = (f"forward {layer - 1}",) if layer > 0 else ()
        tasks.append(Task(f"forward {layer}", "processor", work.forward * slow * size / whole, (f"gather {layer}", *before)))
    gather("again", count - 1, (f"forward {count - 1}",))
    for layer in reversed(range(count)):
        if layer > 0:
            gather("again", layer - 1, (f"backward {layer + 1}",) if layer + 1 < count else ())
        before = (f"backward {layer + 1}",) if layer + 1 < count else (f"forward {count - 1}",)
        tasks.append(Task(f"backward {layer}", "processor", work.backward * slow * work.layers[layer] / whole, (f"again {layer}", *before)))
        tasks.append(Task(f"scatter {layer}", network, cost("scatter", work.layers[layer]), (f"backward {layer}",)))
    return tasks + [Task("optimizer", "processor", work.optimizer * slow, ("backward 0", "scatter 0"))]


@dataclasses.dataclass(frozen=True)
class Stragglers:
    """How long ranks compute, relative to the median: log-normal, and rarely a pause. All draws are independent."""
    spread: float = 0.0  # Standard deviation of the logarithm.
    pauses: float = 0.0  # Probability of one, for each rank and step.
    pause: float = 0.0  # Its seconds.

    def slowest(self, ranks, random):
        """(factor, seconds of pause) of the slowest of so many ranks: the largest of n draws is one draw of the n-th root."""
        largest = random.random() ** (1 / ranks)
        factor = math.exp(self.spread * statistics.NormalDist().inv_cdf(min(max(largest, 1e-12), 1 - 1e-12))) if self.spread else 1.0
        paused = random.random() < -math.expm1(ranks * math.log1p(-self.pauses))
        return factor, self.pause if paused else 0.0


def mean_seconds(tasks_of, ranks, stragglers, random, draws=200):
    """The mean time of a step: `tasks_of(slow)` with the slowest rank of each of so many steps. The same rank is the slowest
    in all of a step, and a pause delays all of it."""
    total = 0.0
    for _ in range(draws):
        slow, paused = stragglers.slowest(ranks, random)
        total += max(finish_times(tasks_of(slow)).values()) + paused
    return total / draws
