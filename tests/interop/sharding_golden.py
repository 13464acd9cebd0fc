"""Writes how Accelerate divides data between processes: sharding_golden.py > tests/unit/data/sharding_golden.txt

Needs accelerate (made with 1.15.0 on torch 2.11.0). A line for each setting of a rule, with one answer for each length
from 0 to 24:
  batch    BATCH_SIZE PROCESSES SPLIT EVEN DROP_LAST : ANSWERS    BatchSamplerShard over a sequential sampler
  stream   BATCH_SIZE PROCESSES SPLIT DROP_LAST : ANSWERS         IterableDatasetShard
An answer is a 32-bit FNV-1a hash (hexadecimal) over the processes' batches: one step for each index + 1, a step with 0
behind each batch, and one with 4294967295 behind each process. A stream's samples are one batch.
"""

import itertools

from accelerate.data_loader import BatchSamplerShard, IterableDatasetShard
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

LENGTHS = range(25)
FLAGS = (False, True)


def hashed(processes):
    result = 0x811C9DC5
    steps = itertools.chain.from_iterable(
        [*itertools.chain.from_iterable([*(i + 1 for i in batch), 0] for batch in batches), 0xFFFFFFFF]
        for batches in processes)
    for step in steps:
        result = ((result ^ step) * 0x01000193) & 0xFFFFFFFF
    return f"{result:x}"


class Numbers(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


def batches(length, size, processes, split, even, drop_last):
    def of(process):
        sampler = BatchSampler(SequentialSampler(range(length)), size, drop_last)
        return list(BatchSamplerShard(sampler, processes, process, split, even))
    return hashed(of(process) for process in range(processes))


def stream(length, size, processes, split, drop_last):
    def of(process):
        return [list(IterableDatasetShard(Numbers(length), size, drop_last, processes, process, split))]
    return hashed(of(process) for process in range(processes))


def write(kind, answer, flags):
    for size, processes, *setting in itertools.product(range(1, 7), (2, 3, 4), *[FLAGS] * flags):
        if setting[0] and size % processes:
            continue
        answers = (answer(length, size, processes, *setting) for length in LENGTHS)
        print(kind, size, processes, *map(int, setting), ":", *answers)


write("batch", batches, 3)
write("stream", stream, 2)
