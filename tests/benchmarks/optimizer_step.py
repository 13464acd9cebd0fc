"""An optimizer's step on the parameters of a small GPT, one thread: optimizer_step.py OPTIMIZER_STEP [ROUNDS] [STEPS]

Lockstep's optimizers and LibTorch's own (the program prints both) beside Python's torch.optim with fused=True and with its
default, in turns. Run it with a Python that has torch. Prints medians in milliseconds and what each is of Lockstep's.
"""
import functools
import re
import statistics
import subprocess
import sys
import time

from harness.benchmark import OURS, Benchmark, Row
from harness.turns import Together

# How each is called in Python, and how many numbers a step reads or writes for each parameter.
ADAM = {"lr": 1e-3}
SGD = {"lr": 1e-4, "momentum": 0.9, "weight_decay": 0.01}
PEERS = {"AdamW": ("AdamW", ADAM, 7), "Adam": ("Adam", ADAM, 7), "SGD, momentum": ("SGD", SGD, 5)}


def milliseconds(optimizer, steps):
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[2:])  # State is made in the first steps.


def cpp_times(program, steps):
    """{"Lockstep" or "LibTorch": {optimizer: milliseconds}}."""
    done = subprocess.run([program, str(steps)], check=True, text=True, stdout=subprocess.PIPE)
    found = {"Lockstep": {}, "LibTorch": {}}
    for line in done.stdout.splitlines():
        name, ours, theirs = re.match(r"(.+?) +lockstep::optim +([\d.]+) +torch::optim +([\d.]+)", line).groups()
        found["Lockstep"][name], found["LibTorch"][name] = float(ours), float(theirs)
    return found


@functools.lru_cache(maxsize=None)
def parameters():
    import torch

    import ddp_peer
    torch.set_num_threads(1)
    every = list(ddp_peer.Gpt().parameters())
    for parameter in every:
        parameter.grad = torch.randn_like(parameter) * 0.01
    return every


def python_times(steps, **how):
    import torch
    return {name: milliseconds(getattr(torch.optim, kind)(parameters(), **options, **how), steps) for name, (kind, options, _) in PEERS.items()}


def memory_times(steps):
    """The time of reading and writing as many bytes as a step does, in place, as it does: a copy would also read what it overwrites."""
    import torch
    numbers_of_all, times = torch.cat([parameter.detach().flatten() for parameter in parameters()]), []
    for _ in range(steps):
        begin = time.perf_counter()
        numbers_of_all.neg_()
        times.append((time.perf_counter() - begin) * 1000)
    return {name: statistics.median(times) * numbers / 2 for name, (_, _, numbers) in PEERS.items()}


def measure(program, steps, times):
    every = {**cpp_times(program, steps), "Python, fused": python_times(steps, fused=True), "Python, default": python_times(steps)}
    for who, values in every.items():
        for name, value in values.items():
            times.setdefault((name, who), []).append(value)


def main():
    program = sys.argv[1]
    rounds, steps = ([int(word) for word in sys.argv[2:4]] + [3, 15][len(sys.argv) - 2:])[:2]
    times = {}
    for _ in range(rounds):
        measure(program, steps, times)
    medians = {key: statistics.median(values) for key, values in times.items()}
    for name, who in sorted(medians):
        print(f"{name:16} {who:16} {medians[name, who]:8.2f} ms {medians[name, who] / medians[name, 'Lockstep']:6.2f}")


def sides(setting):
    steps = 8 if setting.quick else 15
    ours = Together(lambda: cpp_times(setting.program("tests/optimizer_step"), steps))
    return {OURS: ours.side("Lockstep"), "PyTorch, fused": lambda: python_times(steps, fused=True),
            "PyTorch, default": lambda: python_times(steps), "LibTorch's torch::optim": ours.side("LibTorch"), MEMORY: lambda: memory_times(steps)}


MEMORY = "reading and writing as many bytes"
BENCHMARK = Benchmark(
    "optimizer_step", "an optimizer's step on 10.7 million parameters, one thread", "performance.md",
    tuple(Row(name, f"step of {name}, 10.7 million parameters", "ms", limit=MEMORY) for name in PEERS),
    sides, ("tests/optimizer_step",), {name: ("torch",) for name in ("PyTorch, fused", "PyTorch, default", MEMORY)})

if __name__ == "__main__":
    main()
