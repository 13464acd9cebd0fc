"""Writes what Python's loaders give of streams: stream_loader_golden.py > tests/unit/data/stream_loader_golden.txt

Needs accelerate and datasets (made with 1.15.0 and 5.2.0 on torch 2.11.0). The stream is the numbers from 0 on, in shards of
the LENGTHS. A line for each setting, with each rank's batches ("0 1 / 2 / "), ranks parted by ";":
  torch    RANKS WORKERS BATCH_SIZE SPLIT DROP_LAST LENGTHS : BATCHES   DataLoader over split_dataset_by_node
  dispatch RANKS WORKERS BATCH_SIZE SPLIT DROP_LAST LENGTHS : BATCHES   Accelerate's DataLoaderDispatcher
"""

import itertools
import os
import sys
import tempfile

import torch
import torch.distributed
import torch.multiprocessing
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

SHARDS = [[9], [5, 8], [4, 7, 2], [6, 1, 9, 3], [2, 0, 5, 4, 1, 3]]
FLAGS = (False, True)


def rows(shards):
    for begin, length in shards:
        yield from ({"id": number} for number in range(begin, begin + length))


def stream_of(lengths):
    begins = [0, *itertools.accumulate(lengths)]
    return IterableDataset.from_generator(rows, gen_kwargs={"shards": list(zip(begins, lengths))})


def text_of(batches):
    return "".join("".join(f"{number} " for number in batch["id"].tolist()) + "/ " for batch in batches)


def line(kind, ranks, workers, size, split, drop_last, lengths, texts):
    head = " ".join(map(str, [kind, ranks, workers, size, int(split), int(drop_last), *lengths]))
    return f"{head} : {'; '.join(texts)}"


def torch_lines():
    for lengths, ranks, workers, drop_last in itertools.product(SHARDS, (1, 2, 3), (0, 1, 2), FLAGS):
        # DataLoader starts no more workers than there are shards; ours would read an empty part.
        stream = stream_of(lengths).with_format("torch")
        texts = [text_of(DataLoader(split_dataset_by_node(stream, rank, ranks), batch_size=3, num_workers=workers,
                                    drop_last=drop_last)) for rank in range(ranks)]
        yield line("torch", ranks, workers, 3, False, drop_last, lengths, texts)


def dispatch(rank, ranks, path):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29731", ACCELERATE_USE_CPU="1")
    torch.distributed.init_process_group("gloo")
    PartialState(cpu=True)
    lines = []
    for lengths, (split, size), drop_last in itertools.product(SHARDS, ((True, 2 * ranks), (False, 1), (False, 3)),
                                                               FLAGS):
        loader = DataLoader(stream_of(lengths).with_format("torch"), batch_size=size, drop_last=drop_last)
        mine = text_of(prepare_data_loader(loader, split_batches=split, dispatch_batches=True,
                                             put_on_device=True, device=torch.device("cpu")))
        texts = [None] * ranks
        torch.distributed.all_gather_object(texts, mine)
        lines.append(line("dispatch", ranks, 0, size, split, drop_last, lengths, texts))
    if rank == 0:
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    for text in torch_lines():
        print(text)
    for count in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lines")
            torch.multiprocessing.spawn(dispatch, (count, path), count)
            with open(path) as file:
                sys.stdout.write(file.read())
