#!/usr/bin/env python3
"""Writes the small tokenizers of this folder and what the Python package makes of some texts: make_golden.py

Run it with a Python that has `tokenizers`. golden.jsonl has one case a line: [file, truncation or null, padding or null,
text, pair or null, special tokens or not, the encoding as lists, the decoded text].
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
INTEROP = os.path.join(HERE, "..", "..", "..", "interop")
sys.path.insert(0, INTEROP)

import tokenizer_compare
import tokenizer_kinds
import tokenizer_texts

KINDS = {"bert": 160, "roberta": 400, "llama3": 400}
SETTINGS = [(None, None),
            (dict(max_length=12, strategy="longest_first", stride=2, direction="right"), None),
            (dict(max_length=11, strategy="longest_first", stride=1, direction="left"),
             dict(length=None, pad_to_multiple_of=8, direction="left", pad_id=1, pad_type_id=0))]


def cases(name, tokenizer, texts):
    for truncation, padding in SETTINGS:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if truncation:
            tokenizer.enable_truncation(**truncation)
        if padding:
            tokenizer.enable_padding(**{key: value for key, value in padding.items() if value is not None})
        # The overflow of a pair is the product of both texts' pieces: short texts.
        chosen = texts if truncation is None else [text for text in texts if len(text) < 20][:6]
        for number, text in enumerate(chosen):
            pair = chosen[number - 1] if number % 2 else None
            special = number % 3 > 0
            encoding = tokenizer.encode(text, pair, add_special_tokens=special)
            yield [name + ".json", truncation, padding, text, pair, special, tokenizer_compare.shown(encoding),
                   tokenizer.decode(encoding.ids)]


def main():
    with open(os.path.join(INTEROP, "tokenizer_training.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()[:150]
    texts = [text for text in tokenizer_texts.texts(10, 3, sorted(set(" ".join(lines).split()))) if len(text) < 90]
    with open(os.path.join(HERE, "golden.jsonl"), "w", encoding="ascii") as file:
        for name, size in KINDS.items():
            for function in ("word_piece", "byte_level"):
                getattr(tokenizer_kinds, function).__defaults__ = (size,)
            tokenizer = getattr(tokenizer_kinds, name)(lines)
            tokenizer.save(os.path.join(HERE, name + ".json"), pretty=False)
            for case in cases(name, tokenizer, texts):
                file.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
