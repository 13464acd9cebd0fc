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

PEER = str(pathlib.Path(__file__).parent / "ddp_peer.py")
RANKS = os.environ.get("RANKS", "2")
ROUNDS, STEPS, WARMUP = int(os.environ.get("ROUNDS", "3")), os.environ.get("STEPS", "15"), "4"


def lockstep(program, *flags):
    return lambda model: [program, "--model", model, "--steps", STEPS, "--warmup", WARMUP, *flags]


def python(optimizer, sync):
    return lambda model: [PEER, model, STEPS, WARMUP, optimizer, sync]


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


def times(launcher, command):
    """Milliseconds of each step, as rank 0 prints them, the last word of a line."""
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": sys.executable}
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


if __name__ == "__main__":
    main(*sys.argv[1:])
