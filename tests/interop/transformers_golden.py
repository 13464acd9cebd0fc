"""Writes what transformers gives: transformers_golden.py > tests/unit/data/transformers_golden.txt

Needs transformers (made with 5.23.0 on torch 2.11.0). Lines:
  grouped SAMPLES BATCH_SIZE MEGA_BATCH_MULT SEED : FNV-1a of LengthGroupedSampler's indices
      The length of sample i is (7919 i mod 97) + 1; MEGA_BATCH_MULT 0 is transformers' own choice.
  padded  SIDE MULTIPLE TOKEN_LABELS : NAME SHAPE VALUES ...
      DataCollatorWithPadding (DataCollatorForTokenClassification with labels for each token) over three samples of 3, 1
      and 5 tokens: sample s has the tokens 10 s + 1, 10 s + 2, ..., the label s or the tokens' labels 0, 1, 2, ..., and
      token types 1. The pad token is 99.
  causal  SIDE MULTIPLE : NAME SHAPE VALUES ...
      DataCollatorForLanguageModeling without masks over the same samples without labels.
"""

import itertools

import torch
from tokenizers import Tokenizer, models
from transformers import (DataCollatorForLanguageModeling, DataCollatorForTokenClassification, DataCollatorWithPadding,
                          PreTrainedTokenizerFast)
from transformers.trainer_pt_utils import get_length_grouped_indices


def fnv(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = ((result ^ value) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return result


def grouped():
    for samples, size, mult, seed in itertools.product((1, 5, 64, 1003, 20011), (1, 8, 32), (0, 3), (0, 12345)):
        lengths = [7919 * i % 97 + 1 for i in range(samples)]
        generator = torch.Generator().manual_seed(seed)
        print("grouped", samples, size, mult, seed, ":",
              fnv(get_length_grouped_indices(lengths, size, mult or None, generator)))


def features(token_labels):
    for sample, length in enumerate((3, 1, 5)):
        label = {"labels": list(range(length))} if token_labels else {"label": sample}
        yield {"input_ids": [10 * sample + 1 + i for i in range(length)], "token_type_ids": [1] * length, **label}


def show(*heading, batch):
    words = itertools.chain.from_iterable(
        (name, "x".join(map(str, batch[name].shape)), *batch[name].flatten().tolist()) for name in sorted(batch))
    print(*heading, *words)


def padded():
    vocabulary = {"[PAD]": 99, "a": 1}
    for side, multiple, token_labels in itertools.product(("right", "left"), (1, 4), (0, 1)):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "a")),
                                            pad_token="[PAD]", padding_side=side)
        kind = DataCollatorForTokenClassification if token_labels else DataCollatorWithPadding
        batch = kind(tokenizer, pad_to_multiple_of=multiple)(list(features(token_labels)))
        show("padded", side, multiple, token_labels, ":", batch=batch)


def causal():
    for side, multiple in itertools.product(("right", "left"), (1, 4)):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[PAD]": 99, "a": 1}, "a")),
                                            pad_token="[PAD]", padding_side=side)
        collate = DataCollatorForLanguageModeling(tokenizer, mlm=False, pad_to_multiple_of=multiple)
        samples = [{"input_ids": f["input_ids"], "token_type_ids": f["token_type_ids"]} for f in features(False)]
        show("causal", side, multiple, ":", batch=collate(samples))


grouped()
padded()
causal()
