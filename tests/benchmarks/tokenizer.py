#!/usr/bin/env python3
"""The Python package's tokenizers and ours on one thread each, in turns: MB/s and ratios.

Usage: tokenizer.py TOKENIZER_BENCHMARK TEXT_FILE [TOKENIZER_JSON ...]      run it with a Python that has `tokenizers`

Without a file it trains tokenizers on the text: BERT's WordPiece, GPT-2's and Llama 3's BPE of 8,000 tokens, and smaller ones of the other
kinds. Both sides encode the text's lines by encode_batch, with special tokens, offsets and all masks; the ids' number is compared.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"

import tokenizers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import tokenizer_kinds as kinds

ROUNDS = 7


def trained(lines, folder):
    bert = kinds.word_piece(lines, tokenizers.normalizers.BertNormalizer(), tokenizers.pre_tokenizers.BertPreTokenizer(), size=8000)
    gpt2 = kinds.byte_level(lines, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], size=8000)
    parts = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(tokenizers.Regex(kinds.LLAMA3), "isolated"),
                                                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3 = kinds.byte_level(lines, parts, [], size=8000, ignore_merges=True)
    others = [(kind.__name__, kind(lines)) for kind in (kinds.o200k, kinds.deepseek, kinds.clip, kinds.llama2, kinds.mistral, kinds.gemma, kinds.t5,
                                                        kinds.xlm_roberta, kinds.unigram_bytes, kinds.continued)]
    for name, tokenizer in (("bert", bert), ("gpt2", gpt2), ("llama3", llama3), *others):
        path = os.path.join(folder, name + ".json")
        tokenizer.save(path)
        yield path


def measure(program, path, text_file, lines):
    theirs = tokenizers.Tokenizer.from_file(path)
    theirs.no_padding()
    theirs.no_truncation()
    ours = subprocess.Popen([program, path, text_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    seconds = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        ours.stdin.write("\n")
        ours.stdin.flush()
        taken, tokens = ours.stdout.readline().split()
        seconds["ours"].append(float(taken))
        begin = time.monotonic()
        encodings = theirs.encode_batch(lines)
        seconds["theirs"].append(time.monotonic() - begin)
        assert sum(len(e.ids) for e in encodings) == int(tokens), "the two sides differ"
    ours.stdin.close()
    ours.wait()
    return {side: statistics.median(values) for side, values in seconds.items()}


def main():
    program, text_file = sys.argv[1:3]
    with open(text_file, encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    megabytes = os.path.getsize(text_file) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[3:] or list(trained(lines, folder)):
            medians = measure(program, path, text_file, lines)
            print(f"{os.path.basename(path):16} ours {megabytes / medians['ours']:7.1f} MB/s   theirs {megabytes / medians['theirs']:6.1f} MB/s   "
                  f"ratio {medians['theirs'] / medians['ours']:5.1f}", flush=True)


if __name__ == "__main__":
    main()
