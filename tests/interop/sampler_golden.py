"""Prints what PyTorch's samplers and random_split give, for sampler_interop_test to compare with.

Lines:
  sampler LENGTH REPLICAS RANK SHUFFLE DROP_LAST SEED EPOCH : INDICES | error
  hash    LENGTH REPLICAS RANK SHUFFLE DROP_LAST SEED EPOCH : FNV-1a of the indices, one step for each 64-bit index
  split   SEED LENGTHS... : INDICES of all parts, one part after another
  random  LENGTH COUNT REPLACEMENT SEED : hash of RandomSampler's indices in epoch 2
  weighted LENGTH COUNT REPLACEMENT SEED : hash of WeightedRandomSampler's; weight i is (7 i mod 5) / 8
  subset  LENGTH SEED : SubsetRandomSampler's indices of 0, 3, 6, ... in epoch 2
An epoch's generator has the seed SEED + epoch.
"""

import itertools

import torch
from torch.utils.data import (DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler,
                              random_split)


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


def generator(seed):
    return torch.Generator().manual_seed(seed + 2)


def random():
    for length, seed in itertools.product((1, 7, 32, 1000, 100003), (0, 1, 12345)):
        for replacement, count in itertools.product((0, 1), (1, 31, 64, 2500)):
            sampler = RandomSampler(range(length), bool(replacement), count, generator(seed))
            line("random", (length, count, replacement, seed), [fnv(sampler)])


def weighted():
    for length, seed in itertools.product((3, 40, 5000), (0, 1, 12345)):
        weights = [i * 7 % 5 / 8 for i in range(length)]
        above = sum(weight > 0 for weight in weights)
        for replacement, count in [(1, 1), (1, 33), (1, length), (1, 9999), (0, 1), (0, above // 2), (0, above)]:
            sampler = WeightedRandomSampler(weights, count, bool(replacement), generator(seed))
            line("weighted", (length, count, replacement, seed), [fnv(sampler)])


def subset():
    for length, seed in itertools.product((0, 1, 20, 333), (0, 1, 12345)):
        sampler = SubsetRandomSampler([3 * i for i in range(length)], generator(seed))
        line("subset", (length, seed), sampler)


small()
large()
splits()
random()
weighted()
subset()
