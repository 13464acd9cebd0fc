"""Map beside datasets.map, in one run: map.py MAP_BENCHMARK TEXTS.csv TOKENIZER.json [WORKERS] [ROWS] [ROUNDS]

Tokenises the column 'text' in batches of 1,000 and halves ROWS numbers; both sides write their result to the disk. Needs
the packages datasets and tokenizers. Prints the median of the rounds, in rows a second, and the ratio.
"""
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time

from harness import texts
from harness.benchmark import OURS, Benchmark, Row

SETTINGS = {"TOKENIZERS_PARALLELISM": "false", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def ours(program, inputs, workers, rows, cache):
    done = subprocess.run([program, *inputs, str(workers), str(rows)], check=True, text=True, stdout=subprocess.PIPE,
                          env={**os.environ, **SETTINGS, "LOCKSTEP_CACHE": cache})
    return {name: float(seconds) for name, seconds in (line.split() for line in done.stdout.splitlines())}


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class Peer:
    """datasets.map over the same texts, by the package's tokenizer."""

    def __init__(self, inputs, rows, folder):
        os.environ.update(SETTINGS)
        import datasets
        import tokenizers
        datasets.disable_progress_bars()
        self.encoder = tokenizers.Tokenizer.from_file(inputs[1])
        self.source = datasets.Dataset.from_csv(inputs[0], cache_dir=folder)
        self.numbers = datasets.Dataset.from_dict({"n": list(range(rows))})

    def times(self, workers, folder):
        def tokenize(batch):
            return {"input_ids": [encoding.ids for encoding in self.encoder.encode_batch(batch["text"])]}

        def halve(batch):
            return {"half": [number / 2 for number in batch["n"]]}

        def run(dataset, function, name):
            return lambda: dataset.map(function, batched=True, num_proc=workers if workers > 1 else None,
                                       cache_file_name=os.path.join(folder, name))

        return {"tokenize": timed(run(self.source, tokenize, "tokens.arrow")), "hit": timed(run(self.source, tokenize, "tokens.arrow")),
                "numbers": timed(run(self.numbers, halve, "halves.arrow"))}


def main():
    program, *inputs = sys.argv[1:4]
    given = [int(word) for word in sys.argv[4:7]]
    workers, rows, rounds = given + [1, 500_000, 3][len(given):]
    with tempfile.TemporaryDirectory() as folder:
        peer, results = Peer(inputs, rows, folder), []
        for number in range(rounds):
            place = os.path.join(folder, str(number))
            os.mkdir(place)
            results.append((ours(program, inputs, workers, rows, os.path.join(place, "ours")), peer.times(workers, place)))
    for name, count in (("tokenize", len(peer.source)), ("numbers", rows), ("hit", 0)):
        mine, theirs = (statistics.median(result[side][name] for result in results) for side in (0, 1))
        speed = f"{count / mine:12.0f} rows/s against {count / theirs:12.0f}" if count else f"{1000 * mine:9.1f} ms against {1000 * theirs:.1f} ms"
        print(f"{name:10} {workers} workers: {speed}, {theirs / mine:.1f} times as fast")


class Inputs:
    """The texts of one setting, with a BPE tokenizer trained on them, made in the first turn."""

    def __init__(self, setting):
        self.setting, self.rows, self.numbers = setting, 3000 if setting.quick else 10000, 200_000 if setting.quick else 500_000
        self.paths = [os.path.join(setting.folder, name) for name in ("texts.csv", "tokenizer.json")]
        self.peer = None

    def files(self):
        if not os.path.exists(self.paths[1]):
            lines = texts.repository_lines(self.rows)
            plain = os.path.join(self.setting.folder, "texts.txt")
            with open(plain, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            with open(self.paths[0], "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([["text"], *([line] for line in lines)])
            subprocess.run([self.setting.launcher, "tokenizer", "train", "--vocab-size", "8000", "--output", self.paths[1], plain], check=True,
                           stdout=subprocess.DEVNULL)
        return self.paths

    def speeds(self, seconds):
        return {"tokenize": self.rows / seconds["tokenize"], "numbers": self.numbers / seconds["numbers"], "hit": 1000 * seconds["hit"]}

    def ours(self):
        cache = tempfile.mkdtemp(dir=self.setting.folder)
        return self.speeds(ours(self.setting.program("tests/map_benchmark"), self.files(), 1, self.numbers, cache))

    def theirs(self):
        self.peer = self.peer or Peer(self.files(), self.numbers, self.setting.folder)
        return self.speeds(self.peer.times(1, tempfile.mkdtemp(dir=self.setting.folder)))


def sides(setting):
    inputs = Inputs(setting)
    return {OURS: inputs.ours, "datasets": inputs.theirs}


BENCHMARK = Benchmark(
    "map", "map() beside datasets.map, one worker", "map.md",
    (Row("tokenize", "map: tokenizing texts", "rows/s", "higher"), Row("numbers", "map: halving numbers", "rows/s", "higher"),
     Row("hit", "map: a second call, from the cache", "ms")),
    sides, ("bin/lockstep", "bin/lockstep-tokenizer", "tests/map_benchmark"), {"datasets": ("datasets", "tokenizers")})

if __name__ == "__main__":
    main()
