#!/usr/bin/env python3
"""Writes what transformers' DataCollatorForLanguageModeling masks: masking_golden.py > tests/unit/data/masking_golden.txt

Needs transformers 5 and torch. A line of JSON for each case: the options, the seed of the generator, the tokens, which of them
are special, their words, and the result.
"""
import json
import types

import torch
from transformers.data.data_collator import DataCollatorForLanguageModeling as Collator

CASES = [
    dict(),
    dict(mlm_probability=0.5),
    dict(mlm_probability=0.4, mask_replace_prob=1.0, random_replace_prob=0.0),
    dict(mlm_probability=0.6, mask_replace_prob=0.0, random_replace_prob=1.0),
    dict(mlm_probability=0.6, mask_replace_prob=0.5, random_replace_prob=0.2),
    dict(mlm_probability=0.3, whole_word_mask=True),
    dict(mlm_probability=0.8, mask_replace_prob=0.6, random_replace_prob=0.4, whole_word_mask=True),
    dict(mlm_probability=1.0),
]


class Vocabulary:
    mask_token = "[MASK]"

    def __len__(self):
        return 97

    def convert_tokens_to_ids(self, token):
        return 4


def words_of(generator, rows, length):
    """Words of one to three tokens between special ones, and padding at the ends: ids, special, words, offsets."""
    ids = torch.randint(5, 97, (rows, length), generator=generator)
    special = torch.zeros(rows, length, dtype=torch.long)
    words, offsets = [], []
    for row in range(rows):
        end = length - 1 - int(torch.randint(0, 4, (1,), generator=generator))
        special[row, 0] = 1
        special[row, end:] = 1
        ids[row, 0], ids[row, end], ids[row, end + 1:] = 2, 3, 0
        word, place, row_words, row_offsets = -1, 0, [], []
        for token in range(length):
            if special[row, token]:
                row_words.append(-1)
                row_offsets.append((0, 0))
                continue
            begins = word < 0 or int(torch.randint(0, 2, (1,), generator=generator)) == 0
            word, place = (word + 1, place + 1) if begins else (word, place)
            row_words.append(word)
            row_offsets.append((place, place + 2))
            place += 2
        words.append(row_words)
        offsets.append(row_offsets)
    return ids, special, words, torch.tensor(offsets)


def main():
    source = torch.Generator().manual_seed(1)
    for seed, options in enumerate(CASES):
        defaults = dict(mlm_probability=0.15, mask_replace_prob=0.8, random_replace_prob=0.1, whole_word_mask=False)
        collator = types.SimpleNamespace(tokenizer=Vocabulary(), generator=torch.Generator().manual_seed(seed),
                                         _calc_word_ids_and_prob_mask=Collator._calc_word_ids_and_prob_mask,
                                         _whole_word_mask=Collator._whole_word_mask, **{**defaults, **options})
        ids, special, words, offsets = words_of(source, 5, 19)
        inputs, labels = Collator.torch_mask_tokens(collator, ids.clone(), special, offsets)
        print(json.dumps(dict(options=options, seed=seed, ids=ids.tolist(), special=special.tolist(), words=words,
                              inputs=inputs.tolist(), labels=labels.tolist())))


if __name__ == "__main__":
    main()
