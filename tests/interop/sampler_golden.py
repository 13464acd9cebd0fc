"""Prints what PyTorch's DistributedSampler and random_split give, for sampler_interop_test to compare with.

Lines:
  sampler LENGTH REPLICAS RANK SHUFFLE DROP_LAST SEED EPOCH : INDICES | error
  hash    LENGTH REPLICAS RANK SHUFFLE DROP_LAST SEED EPOCH : FNV-1a of the indices, one step for each 64-bit index
  split   SEED LENGTHS... : INDICES of all parts, one part after another
"""

import itertools

import torch
from torch.utils.data import DistributedSampler, random_split


def indices(length, replicas, rank, shuffle, drop_last, seed, epoch):
    sampler = DistributedSampler(range(length), replicas, rank, bool(shuffle), seed, bool(drop_last))
    sampler.set_epoch(epoch)
    result = list(sampler)
    assert len(result) == len(sampler)
    return result


def line(kind, case, shown):
    print(kind, *case, ":", *shown)


def small():
    cases = itertools.product(range(31), range(1, 6), range(-1, 6), (0, 1), (0, 1), (0, 1, 12345), (0, 1, 7))
    for case in cases:
        length, replicas, rank = case[:3]
        if rank > replicas:
            continue
        try:
            line("sampler", case, indices(*case))
        except Exception:
            line("sampler", case, ["error"])


def fnv(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = ((result ^ value) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return result


def large():
    for length, replicas in itertools.product((100003, 131072, 250007), (1, 3, 8)):
        for rank, drop_last, (seed, epoch) in itertools.product(range(replicas), (0, 1), ((0, 0), (12345, 7))):
            case = (length, replicas, rank, 1, drop_last, seed, epoch)
            line("hash", case, [fnv(indices(*case))])


def splits():
    for seed in (0, 1, 12345):
        for lengths in ([0], [1], [3, 2], [0, 7, 0], [10, 20, 30], [1000, 1, 234], [30000, 5003]):
            parts = random_split(range(sum(lengths)), lengths, generator=torch.Generator().manual_seed(seed))
            line("split", [seed] + lengths, [index for part in parts for index in part.indices])


small()
large()
splits()
