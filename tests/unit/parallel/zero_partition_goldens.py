"""Writes zero_partition_goldens.txt: who owns what in torch.distributed.optim.ZeroRedundancyOptimizer.

Usage: zero_partition_goldens.py > zero_partition_goldens.txt   (torch 2.11)

A line is: the number of ranks, then for each group '|' and pairs elements:owner.
"""
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

CASES = [
    [[10, 10, 10, 10]],
    [[1, 2, 3, 4, 5, 6, 7]],
    [[768, 589824, 768, 2359296, 3072, 2359296, 768], [768, 768, 768]],
    [[5], [5], [5], [1]],
    [[100, 1, 1, 1, 1, 50, 50]],
]


def owners(groups, ranks):
    parameters = [[torch.nn.Parameter(torch.zeros(n)) for n in group] for group in groups]
    optimizer = ZeroRedundancyOptimizer([{"params": group} for group in parameters], torch.optim.SGD, lr=0.1)
    found = {}
    for rank, share in enumerate(optimizer._partition_parameters()):
        found.update({id(p): rank for group in share for p in group["params"]})
    return [[found[id(p)] for p in group] for group in parameters]


for ranks in (1, 2, 3, 4):
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    for groups in CASES:
        pairs = zip(groups, owners(groups, ranks))
        print(ranks, *("| " + " ".join(f"{n}:{o}" for n, o in zip(*pair)) for pair in pairs))
    dist.destroy_process_group()
