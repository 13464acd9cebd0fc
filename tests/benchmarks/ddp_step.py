#!/usr/bin/env python3
"""Times a training step of ranks with one thread each, with AdamW: Lockstep and PyTorch's DDP over Gloo in turns, and prints
medians and ratios for an MLP, a ResNet-18 and a small GPT; Hugging Face's Accelerate too, where it is installed. Then what
averaging gradients costs: Lockstep's steps without it, with ranks that only meet after backward, and with it, taking turns
within one run, so that a slow moment hits all three.

Usage: ddp_step.py LAUNCHER DDP_STEP [MODEL ...]      run it with a Python that has torch
RANKS=n, ROUNDS=n and STEPS=n in the environment: ranks (2), rounds of all variants (3), and steps timed in each (15)
"""

import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys

from harness.benchmark import OURS, Benchmark, Row

PEER = str(pathlib.Path(__file__).parent / "ddp_peer.py")
RANKS = os.environ.get("RANKS", "2")
ROUNDS, STEPS, WARMUP = int(os.environ.get("ROUNDS", "3")), os.environ.get("STEPS", "15"), "4"


def lockstep(program, *flags, steps=STEPS):
    return lambda model: [program, "--model", model, "--steps", steps, "--warmup", WARMUP, *flags]


def python(optimizer, sync, steps=STEPS):
    return lambda model: [PEER, model, steps, WARMUP, optimizer, sync]


def variants(program):
    """The first one is what the ratios are to."""
    accelerate = {"Python Accelerate, fused AdamW": python("fused", "accelerate")}
    return {
        "Python DDP, gloo": python("default", "sync"),
        "Python DDP, gloo, fused AdamW": python("fused", "sync"),
        **(accelerate if importlib.util.find_spec("accelerate") else {}),
        "Python no_sync, fused AdamW": python("fused", "alone"),
        "Lockstep, gloo": lockstep(program, "--backend", "gloo"),
        "Lockstep, gloo, bucket views": lockstep(program, "--backend", "gloo", "--view"),
        "Lockstep, gloo, all_reduce hook": lockstep(program, "--backend", "gloo", "--hook", "all_reduce"),
        "Lockstep, gloo, torch::optim::AdamW": lockstep(program, "--backend", "gloo", "--optimizer", "torch"),
        "Lockstep, default backend": lockstep(program),
        "Lockstep, default, bucket views": lockstep(program, "--view"),
        "Lockstep no_sync": lockstep(program, "--sync", "no"),
    }


def times(launcher, command, more=None):
    """Milliseconds of each step, as rank 0 prints them, the last word of a line."""
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable} | (more or {})
    result = subprocess.run([launcher, "run", "--nproc-per-node", RANKS, *command], env=settings, text=True,
                            stdout=subprocess.PIPE, check=True, timeout=600)
    return [float(line.split()[-1]) for line in result.stdout.splitlines()]


def print_cost(launcher, program, model):
    command = lockstep(program, "--view", "--sync", "turns")(model)
    command[command.index("--steps") + 1], command[command.index("--warmup") + 1] = str(9 * int(STEPS)), "6"
    steps = times(launcher, command)
    alone, meeting, averaging = steps[0::3], steps[1::3], steps[2::3]
    print(f"in turns: alone {statistics.median(alone):.1f}, meeting {statistics.median(meeting):.1f}, averaging "
          f"{statistics.median(averaging):.1f} ms; each to its neighbours, medians: averaging is "
          f"{statistics.median(one / other for one, other in zip(averaging, alone)):.2f} of alone, "
          f"{statistics.median(one / other for one, other in zip(averaging, meeting)):.2f} of meeting", flush=True)


def main(launcher, program, *models):
    for model in models or ("mlp", "resnet", "gpt"):
        medians = {name: [] for name in variants(program)}
        for _ in range(ROUNDS):
            for name, command in variants(program).items():
                medians[name].append(statistics.median(times(launcher, command(model))))
        first = statistics.median(next(iter(medians.values())))
        print(f"\n{model:38}  ms  of Python's   rounds")
        for name, values in medians.items():
            middle = statistics.median(values)
            print(f"{name:36} {middle:7.2f} {middle / first:9.2f}   {' '.join(f'{value:.1f}' for value in values)}", flush=True)
        print_cost(launcher, program, model)


def turn(setting, command, kinds):
    """Both kinds of matrix products where the side has a choice: its own, and MKL's, which Python has."""
    steps, values = "8" if setting.quick else STEPS, {}
    for model in ("mlp", "gpt") if setting.quick else ("mlp", "resnet", "gpt"):
        for kind, more in kinds.items():
            measured = times(setting.launcher, command(steps)(model), more)
            setting.outputs.same(f"steps timed of {model}", len(measured))
            values[model + kind] = measured
    return values


def python_turn(setting, sync):
    values = turn(setting, lambda steps: python("fused", sync, steps), {"": None})
    return {**values, **{model + "_mkl": measured for model, measured in values.items()}}


def sides(setting):
    def ours(*flags, kinds=KINDS):
        return lambda: turn(setting, lambda steps: lockstep(setting.program("tests/ddp_step"), *flags, steps=steps), kinds)

    return {OURS: ours("--view"), "PyTorch DDP over Gloo": lambda: python_turn(setting, "sync"),
            "Accelerate": lambda: python_turn(setting, "accelerate"), ALONE: ours("--sync", "no", kinds={"": None} if setting.quick else KINDS)}


ALONE = "no communication"
KINDS = {"": None, "_mkl": {"LOCKSTEP_ONEDNN_MATMUL": "0"}}
MODELS = {"mlp": "8 layers of 1024", "resnet": "ResNet-18", "gpt": "a small GPT"}
BENCHMARK = Benchmark(
    "ddp_step", "steps of two data-parallel ranks with one thread each, fused AdamW", "performance.md",
    tuple(Row(model + kind, f"DDP step of {text}, 2 ranks" + (", MKL on both sides" if kind else ""), "ms", limit=ALONE)
          for model, text in MODELS.items() for kind in KINDS),
    sides, ("bin/lockstep", "tests/ddp_step"), {"PyTorch DDP over Gloo": ("torch",), "Accelerate": ("torch", "accelerate")},
    rounds=3, quick_rounds=2, quick_share=3)

if __name__ == "__main__":
    main(*sys.argv[1:])
