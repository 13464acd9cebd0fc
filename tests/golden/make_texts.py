"""Writes what `datasets` and `tokenizers` make of a text: make_texts.py > tests/golden/texts.txt

Needs datasets (made with 5.2.0) and tokenizers (0.23.3). Lines:
  lines KEEP : rows and FNV-1a of the bytes of all rows, each followed by a zero byte
  tokens KEEP SPECIAL MAX_LENGTH : rows and FNV-1a of all input_ids, each row followed by -1
  blocks BLOCK_SIZE BATCH_SIZE : rows and FNV-1a of the blocks' input_ids of the text with line ends, without special tokens

The function that makes blocks is the one of Hugging Face's example for causal language models: all lists of a batch are
joined, cut into blocks, and the rest is left out.
"""

import itertools
import os
import tempfile

import datasets
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "../interop/tokenizer_training.txt")
TOKENIZER = os.path.join(HERE, "../unit/tokenizers/roberta.json")


def fnv(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = ((result ^ (value & 0xFFFFFFFFFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return result


def load(keep):
    return datasets.load_dataset("text", data_files=TEXT, split="train", keep_linebreaks=keep)


def tokenized(keep, special, max_length):
    tokenizer = Tokenizer.from_file(TOKENIZER)
    if max_length:
        tokenizer.enable_truncation(max_length)
    return load(keep).map(
        lambda rows: {"input_ids": [e.ids for e in tokenizer.encode_batch(rows["text"], add_special_tokens=special)]},
        batched=True, remove_columns=["text"])


def blocks(block_size, batch_size):
    def group(rows):
        ids = list(itertools.chain.from_iterable(rows["input_ids"]))
        end = len(ids) // block_size * block_size
        return {"input_ids": [ids[i:i + block_size] for i in range(0, end, block_size)]}

    return tokenized(True, False, 0).map(group, batched=True, batch_size=batch_size)


def show(heading, lists):
    print(heading, ":", len(lists), fnv(itertools.chain.from_iterable((*values, -1) for values in lists)))


datasets.disable_progress_bars()
with tempfile.TemporaryDirectory() as cache:
    datasets.config.HF_DATASETS_CACHE = cache
    for keep in (0, 1):
        rows = [text.encode() for text in load(bool(keep))["text"]]
        print("lines", keep, ":", len(rows), fnv(b"".join(row + b"\0" for row in rows)))
    for keep, special, length in ((0, 1, 0), (1, 0, 0), (1, 1, 7)):
        show(f"tokens {keep} {special} {length}", tokenized(bool(keep), bool(special), length)["input_ids"])
    for block_size, batch_size in ((16, 1000), (16, 7), (64, 100), (100, 13)):
        show(f"blocks {block_size} {batch_size}", blocks(block_size, batch_size)["input_ids"])
