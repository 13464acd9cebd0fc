#!/usr/bin/env python3
"""The Python package's tokenizers and ours on the same texts: tokenizer_compare.py PEER [COUNT [FILE...]]

PEER is the program tokenizer_peer. COUNT random texts (150 by default) and the written ones are encoded alone and as
pairs, with and without special tokens, truncated and padded in many ways, and decoded. Each FILE, a tokenizer.json, is
compared as well. Needs a Python with `tokenizers`; ends with 77 where there is none. The vocabularies are trained on
this folder's own texts.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
try:
    import tokenizers
except ImportError:
    print("this Python has no package tokenizers: skipped")
    sys.exit(77)

import tokenizer_kinds
import tokenizer_texts


class Peer:
    """Our side: one process, asked line by line."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, request, answers=1):
        # A thread of its own is not needed: the program reads a whole request before it answers.
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        read = []
        while len(read) < answers:
            read.append(json.loads(self.process.stdout.readline()))
            if isinstance(read[-1], dict):
                raise RuntimeError(read[-1]["error"])
        return read

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def plain(values):
    return [-1 if value is None else value for value in values]


def shown(encoding):
    return [encoding.ids, encoding.type_ids, encoding.attention_mask, encoding.special_tokens_mask,
            [list(place) for place in encoding.offsets], plain(encoding.word_ids), plain(encoding.sequence_ids),
            [shown(part) for part in encoding.overflowing], encoding.tokens]


class Comparison:
    def __init__(self, peer, name, theirs):
        self.peer, self.name, self.theirs = peer, name, theirs
        self.encodings, self.differences = 0, 0

    def differ(self, what, text, ours, theirs):
        self.differences += 1
        if self.differences <= 5:
            print(f"{self.name}: {what} of {text!r}:\n  ours   {json.dumps(ours)}\n  theirs {json.dumps(theirs)}")

    def settings(self, truncation, padding):
        self.theirs.no_truncation()
        self.theirs.no_padding()
        if truncation:
            self.theirs.enable_truncation(**truncation)
        if padding:
            self.theirs.enable_padding(**{k: v for k, v in padding.items() if v is not None and not (k == "pad_to_multiple_of" and v == 0)})
        self.peer.ask({"truncation": truncation, "padding": padding})

    def same(self, ours, theirs):
        # Without a post-processor the package knows of no texts in an overflow, and calls all of it, padding too, text 0.
        if self.theirs.post_processor is None:
            return ours[:6] == theirs[:6] and ours[8] == theirs[8] and len(ours[7]) == len(theirs[7]) and all(map(self.same, ours[7], theirs[7]))
        return ours == theirs

    def encode(self, what, texts, pairs=None, special=True):
        inputs = list(zip(texts, pairs)) if pairs else texts
        request = {"encode": texts, "special": special}
        if pairs:
            request["pairs"] = pairs
        theirs = [shown(e) for e in self.theirs.encode_batch(inputs, add_special_tokens=special)]
        for text, ours, expected in zip(inputs, self.peer.ask(request, len(texts)), theirs):
            self.encodings += 1
            if not self.same(ours, expected):
                self.differ(what, text, ours, expected)
        return theirs

    def parts(self, texts):
        """What the normalizer and the pre-tokenizer make of texts."""
        if self.theirs.normalizer:
            for text, ours in zip(texts, self.peer.ask({"normalize": texts}, len(texts))):
                self.encodings += 1
                if ours != (expected := self.theirs.normalizer.normalize_str(text)):
                    self.differ("normalizing", text, ours, expected)
        if self.theirs.pre_tokenizer:
            for text, ours in zip(texts, self.peer.ask({"pre_tokenize": texts}, len(texts))):
                self.encodings += 1
                expected = [[word, list(place)] for word, place in self.theirs.pre_tokenizer.pre_tokenize_str(text)]
                if ours != expected:
                    self.differ("pre-tokenizing", text, ours, expected)

    def decode(self, ids):
        for skip in (True, False):
            for one, ours in zip(ids, self.peer.ask({"decode": ids, "skip": skip}, len(ids))):
                self.encodings += 1
                expected = self.theirs.decode(one, skip_special_tokens=skip)
                if ours != expected:
                    self.differ("decoding", one, ours, expected)


TRUNCATIONS = [dict(max_length=length, strategy=strategy, stride=stride, direction=direction)
               for length, stride in ((12, 0), (14, 3), (7, 0)) for strategy in ("longest_first", "only_first", "only_second")
               for direction in ("left", "right")]
PADDINGS = [dict(length=length, pad_to_multiple_of=multiple, direction=direction, pad_id=1, pad_type_id=3, pad_token="<filler>")
            for length in (None, 17) for multiple in (0, 8) for direction in ("left", "right")]


def batches(values, size=100):
    return [values[begin:begin + size] for begin in range(0, len(values), size)]


def long_enough(comparison, texts, pairs, strategy):
    """What a strategy can cut: the package refuses the others, and so do we."""
    if strategy == "longest_first":
        return list(zip(texts, pairs))
    comparison.settings(None, None)
    lengths = [(len(comparison.theirs.encode(a).ids), len(comparison.theirs.encode(b).ids)) for a, b in zip(texts, pairs)]
    good = (lambda a, b: a > b + 14) if strategy == "only_first" else (lambda a, b: b > a + 14)
    short = [b if strategy == "only_first" else a for a, b in lengths]
    return [pair for pair, (a, b), other in zip(zip(texts, pairs), lengths, short) if good(a, b) and other < 4]


def compare(peer, name, theirs, request, texts):
    comparison = Comparison(peer, name, theirs)
    size, = peer.ask(request)
    if size != theirs.get_vocab_size():
        comparison.differ("size", request, size, theirs.get_vocab_size())
    comparison.settings(None, None)
    pairs = texts[1:] + texts[:1]
    ids = []
    for batch, other in zip(batches(texts), batches(pairs)):
        ids += [one[0] for one in comparison.encode("encoding", batch)]
        comparison.encode("encoding without special tokens", batch, special=False)
        comparison.encode("pair", batch, other)
        comparison.parts(batch)
    # The overflow of a pair is the product of both texts' pieces: short texts.
    short = [text for text in texts if len(text) < 25]
    some = random.Random(7).sample(short, min(len(short), 20)) + ["", "a", "b c"]
    source = random.Random(8)
    comparison.decode(ids + [[source.randrange(size + 5) for _ in range(source.randint(0, 20))] for _ in range(200)])
    for number, truncation in enumerate(TRUNCATIONS):
        chosen = long_enough(comparison, some, some[1:] + some[:1], truncation["strategy"])
        comparison.settings(truncation, PADDINGS[number % len(PADDINGS)])
        if chosen:
            comparison.encode(f"truncated pair ({truncation})", [a for a, _ in chosen], [b for _, b in chosen])
            comparison.encode(f"truncated pair ({truncation})", [a for a, _ in chosen], [b for _, b in chosen], special=False)
        if truncation["strategy"] == "longest_first":
            comparison.encode(f"truncated ({truncation})", some)
    for padding in PADDINGS:
        comparison.settings(None, padding)
        comparison.encode(f"padded ({padding})", some)
    print(f"{name}: {comparison.encodings} compared, {comparison.differences} differences")
    return comparison.differences


def from_vocabularies(paths, folder):
    """(name, their tokenizer, our request) of what is made of a vocab.txt, and of a vocab.json with a merges.txt."""
    load = tokenizers.Tokenizer.from_file
    vocab, = load(paths["bert"]).model.save(folder, "bert")
    for lowercase in (True, False):
        made = tokenizers.BertWordPieceTokenizer(vocab, lowercase=lowercase)
        yield f"vocab.txt, lowercase {lowercase}", made._tokenizer, {"load": vocab, "lowercase": lowercase}
    vocab, merges = load(paths["gpt2"]).model.save(folder, "gpt2")
    for prefix, trim in ((False, False), (True, True)):
        made = tokenizers.ByteLevelBPETokenizer(vocab, merges, add_prefix_space=prefix, trim_offsets=trim)
        yield f"vocab.json, prefix {prefix}", made._tokenizer, {"load": vocab, "merges": merges, "prefix": prefix, "trim": trim}


def cases(lines, files, folder):
    paths = tokenizer_kinds.save_all(lines, folder)
    for name, path in [*paths.items(), *((path, path) for path in files)]:
        yield name, tokenizers.Tokenizer.from_file(path), {"load": path}
    yield from from_vocabularies(paths, folder)


def main():
    peer, count = Peer(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 150
    with open(os.path.join(HERE, "tokenizer_training.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    words = sorted({word for line in lines for word in line.split()})
    with tempfile.TemporaryDirectory() as folder:
        differences = sum(compare(peer, name, theirs, request, tokenizer_texts.texts(count, seed, words))
                          for seed, (name, theirs, request) in enumerate(cases(lines, sys.argv[3:], folder)))
    status = peer.end()
    print(f"{differences} differences in all; the peer ended with {status}")
    sys.exit(1 if differences or status else 0)


if __name__ == "__main__":
    main()
