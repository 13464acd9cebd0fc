#!/usr/bin/env python3
"""Training byte-level BPE here and by the Python package: tokenizer_trainer.py LAUNCHER TEXT [VOCAB_SIZE [THREADS]]

Both read the same text in turns, from a fresh process each, and must write the same vocabulary. Prints the medians of three
runs and their ratio.
"""
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from harness import texts
from harness.benchmark import OURS, Benchmark, Row

PACKAGE = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.train_from_iterator((line.rstrip("\\n") for line in open(sys.argv[1], newline="\\n")), trainers.BpeTrainer(
    vocab_size=int(sys.argv[2]), min_frequency=2, special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.save(sys.argv[3])
"""


def seconds(words, threads):
    begin = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "RAYON_NUM_THREADS": threads})
    return time.monotonic() - begin


def our_command(launcher, text, size, threads, output):
    return [launcher, "tokenizer", "train", "--vocab-size", size, "--threads", threads, "--output", output, text]


def their_command(text, size, output):
    return [sys.executable, "-c", PACKAGE, text, size, output]


def vocabulary(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["model"]["vocab"]


def main():
    launcher, text = sys.argv[1:3]
    size = sys.argv[3] if len(sys.argv) > 3 else "16000"
    threads = sys.argv[4] if len(sys.argv) > 4 else "1"
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("ours.json", "theirs.json")]
        times = [(seconds(our_command(launcher, text, size, threads, files[0]), threads),
                  seconds(their_command(text, size, files[1]), threads)) for _ in range(3)]
        assert vocabulary(files[0]) == vocabulary(files[1])
    one, other = (statistics.median(column) for column in zip(*times))
    print(f"{os.path.getsize(text) / 1e6:.0f} MB, {size} tokens, {threads} thread(s): {one:.2f} s here, {other:.2f} s in the package: "
          f"{statistics.median(b / a for a, b in times):.1f}x")


def sides(setting):
    text, output = os.path.join(setting.folder, "text.txt"), os.path.join(setting.folder, "tokenizer.json")

    def turn(command):
        if not os.path.exists(text):
            with open(text, "w", encoding="utf-8", newline="\n") as file:
                file.write(texts.repository_text(3 if setting.quick else 10))
        taken = seconds(command, "1")
        words = json.dumps(vocabulary(output), sort_keys=True).encode()
        setting.outputs.same("vocabulary (SHA-256)", hashlib.sha256(words).hexdigest())
        return {"bpe": taken}

    return {OURS: lambda: turn(our_command(setting.launcher, text, "8000", "1", output)),
            "tokenizers": lambda: turn(their_command(text, "8000", output))}


BENCHMARK = Benchmark(
    "tokenizer_trainer", "training byte-level BPE on source texts, one thread, with the start of the process", "data.md",
    (Row("bpe", "training BPE of 8,000 tokens", "s"),), sides, ("bin/lockstep", "bin/lockstep-tokenizer"),
    {"tokenizers": ("tokenizers",)}, rounds=3, quick_rounds=2)

if __name__ == "__main__":
    main()
