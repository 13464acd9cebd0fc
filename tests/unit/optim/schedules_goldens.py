"""Writes schedules_goldens.txt: the learning rates of transformers' get_scheduler over whole runs, and of torch's
ReduceLROnPlateau. schedules_test.cpp compares. Run with a Python that has transformers.

A case is a line of JSON, the options of the C++ schedule, and a line with the factor at each step, in hexadecimal.
"""
import json
import math
import pathlib

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import get_scheduler

LR = 0.5
STEPS = 40


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)


def rates(name, warmup, training, extra):
    sgd = optimizer()
    scheduler = get_scheduler(name, sgd, warmup, training, scheduler_specific_kwargs=extra)
    found = []
    for _ in range(STEPS):
        found.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()
    return found


def cases():
    for warmup in (0, 1, 7):
        yield {"name": "constant"}, ("constant", warmup, 30, {})
        for name in ("constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt"):
            more = {"end_lr_rate": 1e-7 / LR} if name == "polynomial" else {}
            yield {"name": name, "warmup_steps": warmup, "training_steps": 30, **more}, (name, warmup, 30, {})
        yield ({"name": "cosine", "warmup_steps": warmup, "training_steps": 30, "num_cycles": 1.25},
               ("cosine", warmup, 30, {"num_cycles": 1.25}))
        yield ({"name": "cosine_with_restarts", "warmup_steps": warmup, "training_steps": 30, "num_cycles": 3},
               ("cosine_with_restarts", warmup, 30, {"num_cycles": 3}))
        yield ({"name": "cosine_with_min_lr", "warmup_steps": warmup, "training_steps": 30, "min_lr_rate": 0.25},
               ("cosine_with_min_lr", warmup, 30, {"min_lr_rate": 0.25}))
        yield ({"name": "polynomial", "warmup_steps": warmup, "training_steps": 30, "power": 2.5, "end_lr_rate": 0.125},
               ("polynomial", warmup, 30, {"power": 2.5, "lr_end": 0.125 * LR}))
        yield ({"name": "inverse_sqrt", "warmup_steps": warmup, "timescale": 13},
               ("inverse_sqrt", warmup, None, {"timescale": 13}))
        for first in (None, 0.125):
            options = {"name": "cosine_warmup_with_min_lr", "warmup_steps": warmup, "training_steps": 30,
                       "min_lr_rate": 0.25}
            more = {} if first is None else {"warmup_lr_rate": first}
            yield {**options, **more}, ("cosine_warmup_with_min_lr", warmup, 30, {"min_lr_rate": 0.25, **more})
        for rise, fall in (("linear", "cosine"), ("cosine", "linear"), ("1-sqrt", "1-sqrt")):
            options = {"warmup_type": rise, "decay_type": fall}
            yield ({"name": "warmup_stable_decay", "warmup_steps": warmup, "training_steps": 30, "decay_steps": 9,
                    "min_lr_rate": 0.125, **options},
                   ("warmup_stable_decay", warmup, 30, {"num_decay_steps": 9, "min_lr_ratio": 0.125, **options}))
    # A training that is shorter than warm-up and decay, such as a trial run of a few steps.
    yield ({"name": "warmup_stable_decay", "warmup_steps": 7, "training_steps": 12, "decay_steps": 9},
           ("warmup_stable_decay", 7, 12, {"num_decay_steps": 9}))
    yield ({"name": "warmup_stable_decay", "warmup_steps": 3, "stable_steps": 4, "decay_steps": 9},
           ("warmup_stable_decay", 3, None, {"num_decay_steps": 9, "num_stable_steps": 4}))


def plateau_cases():
    for options in ({}, {"mode": "max"}, {"patience": 0}, {"patience": 1, "cooldown": 2}, {"threshold": 0.1, "patience": 1},
                    {"threshold": 0.05, "threshold_mode": "abs", "patience": 1}, {"patience": 0, "min_lr": 0.01},
                    {"patience": 0, "factor": 0.5, "eps": 0.02}):
        sgd = optimizer()
        scheduler = ReduceLROnPlateau(sgd, **options)
        found = []
        for step in range(STEPS):
            scheduler.step(metric(step))
            found.append(sgd.param_groups[0]["lr"])
        yield {"plateau": True, **options}, found


def metric(step):
    """Falls, stays, and rises a little; exact in the test's arithmetic too."""
    return (32 - min(step, 16)) / 16 + (step % 3) / 64


def main():
    with open(pathlib.Path(__file__).parent / "schedules_goldens.txt", "w", encoding="ascii") as file:
        for options, arguments in cases():
            file.write(json.dumps(options) + "\n" + " ".join(float(rate).hex() for rate in rates(*arguments)) + "\n")
        for options, found in plateau_cases():
            assert all(math.isfinite(rate) for rate in found)
            file.write(json.dumps(options) + "\n" + " ".join(float(rate).hex() for rate in found) + "\n")


if __name__ == "__main__":
    main()
