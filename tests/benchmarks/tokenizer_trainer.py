#!/usr/bin/env python3
"""Training byte-level BPE here and by the Python package: tokenizer_trainer.py LAUNCHER TEXT [VOCAB_SIZE [THREADS]]

Both read the same text in turns, from a fresh process each, and must write the same vocabulary. Prints the medians of three
runs and their ratio.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

LAUNCHER, TEXT = sys.argv[1:3]
SIZE = sys.argv[3] if len(sys.argv) > 3 else "16000"
THREADS = sys.argv[4] if len(sys.argv) > 4 else "1"
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


def seconds(words):
    begin = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "RAYON_NUM_THREADS": THREADS})
    return time.monotonic() - begin


with tempfile.TemporaryDirectory() as folder:
    files = [os.path.join(folder, name) for name in ("ours.json", "theirs.json")]
    ours = [LAUNCHER, "tokenizer", "train", "--vocab-size", SIZE, "--threads", THREADS, "--output", files[0], TEXT]
    theirs = [sys.executable, "-c", PACKAGE, TEXT, SIZE, files[1]]
    times = [(seconds(ours), seconds(theirs)) for _ in range(3)]
    assert Tokenizer.from_file(files[0]).get_vocab() == Tokenizer.from_file(files[1]).get_vocab()
one, other = (statistics.median(column) for column in zip(*times))
print(f"{os.path.getsize(TEXT) / 1e6:.0f} MB, {SIZE} tokens, {THREADS} thread(s): {one:.2f} s here, {other:.2f} s in the package: "
      f"{statistics.median(b / a for a, b in times):.1f}x")
