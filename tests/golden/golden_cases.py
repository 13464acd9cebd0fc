"""The golden cases: what is trained, on what, and how. golden_cases.cpp says the same in C++."""

import dataclasses
from typing import Callable, Tuple

import torch
from torch import nn
from torch.nn import functional as F


class Heads(nn.Module):
    """Two heads on one body. The batch decides which one is used, so ranks may differ in it."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.left = nn.Linear(32, 10)
        self.right = nn.Linear(32, 10)

    def forward(self, x) -> Tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.body(x))
        if bool(x[0, 0] > 0):
            return self.left(hidden), hidden
        return self.right(hidden), hidden


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )


def batch_norm():
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


@dataclasses.dataclass
class Case:
    net: Callable[[], nn.Module]
    # "mse": inputs and targets on a coarse grid; "cross_entropy": normal inputs; "whole": whole numbers only.
    task: str = "mse"
    momentum: float = 0.0
    learning_rate: float = 0.1
    steps: int = 10
    micro_batches: int = 1
    # All ranks together make one batch of 32 rows; else each has 8 rows of its own.
    split: bool = False
    # The net is written to a TorchScript file, which both languages load.
    scripted: bool = False
    # TorchScript runs the graph as it is written. Otherwise its first runs profile it, and after them one node of autograd
    # stands for the whole net, so that no parameter is unused any more.
    interpreted: bool = False
    ddp: dict = dataclasses.field(default_factory=dict)


CASES = {
    "mlp": Case(mlp, momentum=0.9),
    "cnn": Case(cnn),
    "bucket_view": Case(cnn, momentum=0.9, ddp={"gradient_as_bucket_view": True}),
    "tiny_buckets": Case(mlp, "cross_entropy", ddp={"bucket_cap_mb": 0.0005}),
    "static_graph": Case(mlp, "cross_entropy", ddp={"static_graph": True}),
    "no_sync": Case(mlp, momentum=0.9, micro_batches=2),
    "batch_norm": Case(batch_norm, "cross_entropy"),
    "split": Case(mlp, "cross_entropy", steps=2, split=True),
    # A learning rate of 0 keeps the weights whole.
    "split_exact": Case(mlp, "whole", learning_rate=0.0, steps=2, split=True),
    "script_mlp": Case(batch_norm, "cross_entropy", steps=5, scripted=True),
    "script_cnn": Case(cnn, "cross_entropy", steps=5, scripted=True),
    "script_unused": Case(Heads, steps=5, scripted=True, interpreted=True, ddp={"find_unused_parameters": True}),
}


def fill_with_whole_numbers(net):
    """Each parameter becomes -2 -1 0 1 2 -2 ..., every one from another start."""
    with torch.no_grad():
        for start, parameter in enumerate(net.parameters()):
            values = (torch.arange(parameter.numel()) + start).remainder(5) - 2
            parameter.copy_(values.view(parameter.shape))


def grid(most, step, sizes):
    """Whole multiples of `step` from -most to most: exact in any order of computing."""
    return torch.randint(-round(most / step), round(most / step) + 1, sizes).to(torch.float32) * step


def batch(case, step, rank, world):
    """Inputs and targets of one rank, from a generator that both languages have."""
    torch.manual_seed(1000 * step + (0 if case.split else rank))
    rows = 32 if case.split else 8
    sizes = [rows, 1, 8, 8] if case.net is cnn else [rows, 16]
    if case.task == "cross_entropy":
        inputs, targets = torch.randn(sizes), torch.randint(0, 10, [rows])
    elif case.task == "mse":
        inputs, targets = grid(1.0, 0.125, sizes), grid(1.0, 0.25, [rows, 10])
    else:
        inputs, targets = grid(3.0, 1.0, sizes), grid(2.0, 1.0, [rows, 10])
    if not case.split:
        return inputs, targets
    share = rows // world
    return inputs.narrow(0, rank * share, share), targets.narrow(0, rank * share, share)


def loss_of(case, outputs, targets):
    if case.task == "cross_entropy":
        return F.cross_entropy(outputs, targets)
    if case.task == "mse":
        return F.mse_loss(outputs, targets)
    return (outputs * targets).sum() / outputs.shape[0]
