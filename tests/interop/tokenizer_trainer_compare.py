#!/usr/bin/env python3
"""Tokenizers that are trained here and by the Python package: tokenizer_trainer_compare.py PEER LAUNCHER

PEER is the program tokenizer_peer. BPE's tokenizer.json must be the package's to the last byte. The package numbers
WordPiece's first tokens anew in each run, and chooses by these numbers among pairs that are equally frequent: its
vocabularies differ from run to run, and ours may differ from them as much. LAUNCHER's `lockstep tokenizer` is used as
a user would.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("this Python has no package tokenizers: skipped")
    sys.exit(77)

from tokenizer_compare import Peer

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer_training.txt")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bpe(pre_tokenizer, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def byte_level():
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


EXACT = {
    "bytes": (byte_level, dict(vocab_size=900, special_tokens=["<s>", "</s>"], initial_alphabet=ALPHABET)),
    "all there is": (byte_level, dict(vocab_size=30000)),
    "twice at least": (byte_level, dict(vocab_size=30000, min_frequency=3)),
    "short tokens": (byte_level, dict(vocab_size=2000, max_token_length=6)),
    "characters": (lambda: bpe(pre_tokenizers.Whitespace(), normalizers.NFKC(), unk_token="[UNK]"),
                   dict(vocab_size=1500, special_tokens=["[UNK]"])),
    "few characters": (lambda: bpe(pre_tokenizers.Whitespace(), unk_token="[UNK]"),
                       dict(vocab_size=1500, special_tokens=["[UNK]"], limit_alphabet=30)),
    "blanks": (lambda: bpe(pre_tokenizers.Metaspace(), normalizers.Lowercase()), dict(vocab_size=1500)),
    "digits": (lambda: bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=True)])),
               dict(vocab_size=1000, initial_alphabet=ALPHABET)),
}
# Their first tokens are numbered by the order of a hash table: ten trainings, as four of them may agree by chance.
BY_CHANCE = {
    "WordPiece": (word_piece, trainers.WordPieceTrainer, dict(vocab_size=800, special_tokens=BERT_TOKENS)),
    "suffixes": (lambda: bpe(pre_tokenizers.Whitespace(), normalizers.Lowercase()), trainers.BpeTrainer,
                 dict(vocab_size=1500, end_of_word_suffix="</w>")),
    "prefixes": (lambda: bpe(pre_tokenizers.Whitespace(), normalizers.Lowercase()), trainers.BpeTrainer,
                 dict(vocab_size=1000, continuing_subword_prefix="@@", max_token_length=12)),
}


def trained(peer, make, options, lines):
    answer, = peer.ask({"template": make().to_str(), "options": options, "train": lines})
    return answer


def check_exact(peer, lines):
    for name, (make, options) in EXACT.items():
        theirs = make()
        theirs.train_from_iterator(lines, trainers.BpeTrainer(show_progress=False, **options))
        ours = trained(peer, make, options, lines)
        assert ours == theirs.to_str(pretty=True), f"{name}: another tokenizer.json"
        print(f"{name}: {theirs.get_vocab_size()} tokens, the same file")


def check_by_chance(peer, lines):
    for name, (make, trainer, options) in BY_CHANCE.items():
        runs = []
        for _ in range(10):
            theirs = make()
            theirs.train_from_iterator(lines, trainer(show_progress=False, **options))
            runs.append(theirs)
        ours = Tokenizer.from_str(trained(peer, make, options, lines))
        vocabularies = [set(run.get_vocab()) for run in runs]
        apart = [len(set(ours.get_vocab()) ^ vocabulary) for vocabulary in vocabularies]
        own = max(len(one ^ other) for one in vocabularies for other in vocabularies)
        print(f"{name}: {len(ours.get_vocab())} tokens, apart from the package's by {apart}, which are apart by up to {own}")
        assert ours.get_vocab_size() == runs[0].get_vocab_size()
        assert min(apart) <= 2 * max(own, 4)
        # The order of merges is by frequency alone, so that texts become as few tokens.
        count = [sum(len(encoding.ids) for encoding in one.encode_batch(lines)) for one in (ours, *runs)]
        assert abs(count[0] - count[1]) <= 0.01 * count[1], count


def check_files(run, folder, lines, expected):
    """Lines and rows, compressed or not, in one file or several, are the same texts."""
    def write(name, text, opener=open):
        with opener(os.path.join(folder, name), "wb") as out:
            out.write(text.encode())
        return os.path.join(folder, name)

    half = len(lines) // 2
    rows = "".join(json.dumps({"id": i, "body": line}) + "\n" for i, line in enumerate(lines))
    write("part-0.txt", "\n".join(lines[:half]) + "\n")
    write("part-1.txt", "\n".join(lines[half:]))
    for words in [(write("texts.gz", "\n".join(lines), gzip.open),), (os.path.join(folder, "part-*.txt"),),
                  (write("rows.jsonl", rows), "--text-column", "body")]:
        job = run("train", "--vocab-size", "700", "--special-tokens", "<s>,</s>", "--output", "again.json", *words)
        assert job.returncode == 0, job.stderr
        with open(os.path.join(folder, "again.json"), encoding="utf-8") as file:
            assert file.read() == expected, words
    job = run("train", write("rows.jsonl", rows))
    assert job.returncode == 1 and "'text'" in job.stderr and "id, body" in job.stderr, job
    with open(os.path.join(folder, "bad.txt"), "wb") as out:
        out.write(b"good\n" * 3 + b"a\xff\n")
    job = run("train", os.path.join(folder, "bad.txt"))
    assert job.returncode == 1 and "bad.txt" in job.stderr and "UTF-8" in job.stderr, job
    job = subprocess.run(run.command + ["train", "-"], input=b"good\n" * 3 + b"a\xff\n", capture_output=True, check=False)
    assert job.returncode == 1 and b"text 4 is not valid UTF-8" in job.stderr, job


def check_command(launcher, lines):
    def run(*words, given=None):
        return subprocess.run([launcher, "tokenizer", *words], input=given, capture_output=True, text=True, check=False,
                              cwd=folder)

    run.command = [launcher, "tokenizer"]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "tokenizer.json")
        job = run("train", "--vocab-size", "700", "--special-tokens", "<s>,</s>", "--output", file, TEXT)
        assert job.returncode == 0, job.stderr
        theirs = byte_level()
        theirs.post_processor, theirs.decoder = processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
        theirs.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, min_frequency=2, initial_alphabet=ALPHABET,
                                                              special_tokens=["<s>", "</s>"], show_progress=False))
        assert Tokenizer.from_file(file).get_vocab() == theirs.get_vocab()
        texts = ["<s>Hello w\u00f6rld, again", "", "two  blanks\tand more"]
        ids = [theirs.encode(text).ids for text in texts]
        job = run("encode", "--tokenizer", file, given="\n".join(texts) + "\n")
        assert job.stdout.splitlines() == [" ".join(map(str, one)) for one in ids], job
        job = run("encode", "--tokenizer", file, "--tokens", texts[0])
        assert job.stdout.split() == theirs.encode(texts[0]).tokens, job
        job = run("decode", "--tokenizer", file, given="\n".join(" ".join(map(str, one)) for one in ids))
        assert job.stdout.splitlines() == [theirs.decode(one) for one in ids], job
        check_files(run, folder, lines, open(file, encoding="utf-8").read())
        job = run("train", "--model", "wordpiece", "--vocab-size", "500", "--output", file, TEXT)
        assert job.returncode == 0 and "500 tokens" in job.stdout, job
        job = run("encode", "--tokenizer", file, "--normalized", "H\u00c9llo")
        assert job.stdout == "hello\n", job
        job = run("encode", "--tokenizer", file, "--pre-tokens", "Hi, you")
        assert job.stdout.split() == ['"hi"', "0:2", '","', "2:3", '"you"', "4:7"], job
        for words, given, expected in [(["train", "-"], "", "no words"), (["train", "-"], b"a\xff".decode("latin-1"), ""),
                                       (["train", "--vocab-size", "9", TEXT], None, "vocab_size"),
                                       (["train", "--special-tokens", "a,a", TEXT], None, "twice"),
                                       (["encode", "--tokenizer", "absent.json", "a"], None, "absent.json"),
                                       (["decode", "--tokenizer", file, "1x"], None, "'1x' is not an id")]:
            job = subprocess.run([launcher, "tokenizer", *words], input=given, capture_output=True, text=True, check=False,
                                 cwd=folder)
            assert not expected or (job.returncode in (1, 2) and expected in job.stderr), (words, job)
    print("lockstep tokenizer: as a user would")


def main():
    with open(TEXT, encoding="utf-8") as file:
        lines = file.read().splitlines()
    peer = Peer(sys.argv[1])
    check_exact(peer, lines)
    check_by_chance(peer, lines)
    assert peer.end() == 0
    check_command(sys.argv[2], lines)


if __name__ == "__main__":
    main()
