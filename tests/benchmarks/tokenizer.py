#!/usr/bin/env python3
"""The Python package's tokenizers and ours on one thread each, in turns: MB/s and ratios.

Usage: tokenizer.py TOKENIZER_BENCHMARK TEXT_FILE [TOKENIZER_JSON ...]      run it with a Python that has `tokenizers`

Without a file it trains tokenizers on the text: BERT's WordPiece, GPT-2's and Llama 3's BPE of 8,000 tokens, and smaller ones of the other
kinds. Both sides encode the text's lines by encode_batch, with special tokens, offsets and all masks; the ids' number is compared.
"""
import atexit
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time

from harness import texts
from harness.benchmark import OURS, Benchmark, Row

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "true"

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))

ROUNDS = 7


def trained(lines, folder, names=None):
    """Paths of tokenizers of all kinds, or of those named."""
    import tokenizer_kinds as kinds
    import tokenizers
    parts = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(tokenizers.Regex(kinds.LLAMA3), "isolated"),
                                                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    plain = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    others = (kinds.o200k, kinds.deepseek, kinds.clip, kinds.llama2, kinds.mistral, kinds.gemma, kinds.t5, kinds.xlm_roberta,
              kinds.unigram_bytes, kinds.continued)
    makers = {
        "bert": lambda: kinds.word_piece(lines, tokenizers.normalizers.BertNormalizer(), tokenizers.pre_tokenizers.BertPreTokenizer(), size=8000),
        "gpt2": lambda: kinds.byte_level(lines, plain, ["<|endoftext|>"], size=8000),
        "llama3": lambda: kinds.byte_level(lines, parts, [], size=8000, ignore_merges=True),
        **{kind.__name__: lambda kind=kind: kind(lines) for kind in others},
    }
    for name, make in makers.items():
        if names is None or name in names:
            path = os.path.join(folder, name + ".json")
            make().save(path)
            yield path


class Ours:
    """A process that encodes the text each time it is asked: (seconds, tokens)."""

    def __init__(self, program, path, text_file):
        self.process = subprocess.Popen([program, path, text_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def encode(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        taken, tokens = self.process.stdout.readline().split()
        return float(taken), int(tokens)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Theirs:
    def __init__(self, path, lines):
        import tokenizers
        self.tokenizer, self.lines = tokenizers.Tokenizer.from_file(path), lines
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def encode(self):
        begin = time.monotonic()
        encodings = self.tokenizer.encode_batch(self.lines)
        return time.monotonic() - begin, sum(len(e.ids) for e in encodings)


def measure(program, path, text_file, lines):
    ours, theirs = Ours(program, path, text_file), Theirs(path, lines)
    seconds = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        (our_time, our_tokens), (their_time, their_tokens) = ours.encode(), theirs.encode()
        assert our_tokens == their_tokens, "the two sides differ"
        seconds["ours"].append(our_time)
        seconds["theirs"].append(their_time)
    ours.end()
    return {side: statistics.median(values) for side, values in seconds.items()}


def lines_of(text_file):
    with open(text_file, encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def main():
    program, text_file = sys.argv[1:3]
    lines = lines_of(text_file)
    megabytes = os.path.getsize(text_file) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        for path in sys.argv[3:] or list(trained(lines, folder)):
            medians = measure(program, path, text_file, lines)
            print(f"{os.path.basename(path):16} ours {megabytes / medians['ours']:7.1f} MB/s   theirs {megabytes / medians['theirs']:6.1f} MB/s   "
                  f"ratio {medians['theirs'] / medians['ours']:5.1f}", flush=True)


@functools.lru_cache(maxsize=None)
def prepare(megabytes):
    """A text file and {kind: a tokenizer trained on it}. Made once for all sides: two trainings can differ in a token."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    text = os.path.join(folder.name, "text.txt")
    with open(text, "w", encoding="utf-8", newline="\n") as file:
        file.write(texts.repository_text(megabytes))
    return text, {os.path.basename(path).removesuffix(".json"): path for path in trained(lines_of(text), folder.name, KINDS)}


class Kinds:
    """The turns of one setting."""

    def __init__(self, setting):
        self.setting, self.theirs, self.megabytes = setting, {}, 1 if setting.quick else 3

    def prepare(self):
        self.text, paths = prepare(self.megabytes)
        return paths

    def speed(self, name, encode):
        seconds, tokens = encode()
        self.setting.outputs.same(f"tokens of {name}", tokens)
        return os.path.getsize(self.text) / 1e6 / seconds

    def our_turn(self):
        values = {}
        for name, path in self.prepare().items():
            process = Ours(self.setting.program("tests/tokenizer_benchmark"), path, self.text)
            values[name] = [self.speed(name, process.encode) for _ in range(3)]
            process.end()
        return values

    def their_turn(self):
        for name, path in self.prepare().items():
            self.theirs[name] = self.theirs.get(name) or Theirs(path, lines_of(self.text))
        return {name: self.speed(name, theirs.encode) for name, theirs in self.theirs.items()}


def sides(setting):
    kinds = Kinds(setting)
    return {OURS: kinds.our_turn, "tokenizers": kinds.their_turn}


KINDS = {"bert": "BERT's WordPiece", "gpt2": "GPT-2's BPE", "llama3": "Llama 3's BPE"}
BENCHMARK = Benchmark(
    "tokenizer", "encoding source texts, one thread, with offsets and all masks", "data.md",
    tuple(Row(name, f"encoding, {text}", "MB/s", "higher") for name, text in KINDS.items()), sides,
    ("tests/tokenizer_benchmark",), {OURS: ("tokenizers",), "tokenizers": ("tokenizers",)})

if __name__ == "__main__":
    main()
