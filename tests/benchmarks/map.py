"""Map beside datasets.map, in one run: map.py MAP_BENCHMARK TEXTS.csv TOKENIZER.json [WORKERS] [ROWS] [ROUNDS]

Tokenises the column 'text' in batches of 1,000 and halves ROWS numbers; both sides write their result to the disk. Needs
the packages datasets and tokenizers. Prints the median of the rounds, in rows a second, and the ratio.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

program, texts, tokenizer = sys.argv[1:4]
given = [int(word) for word in sys.argv[4:7]]
workers, rows, rounds = given + [1, 500_000, 3][len(given):]
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_DATASETS_OFFLINE="1", OMP_NUM_THREADS="1")


def ours(folder):
    done = subprocess.run([program, texts, tokenizer, str(workers), str(rows)], check=True, text=True, stdout=subprocess.PIPE,
                          env={**os.environ, "LOCKSTEP_CACHE": os.path.join(folder, "ours")})
    return {name: float(seconds) for name, seconds in (line.split() for line in done.stdout.splitlines())}


def timed(action):
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def peers(folder, source, numbers, encoder):
    def tokenize(batch):
        return {"input_ids": [encoding.ids for encoding in encoder.encode_batch(batch["text"])]}

    def halve(batch):
        return {"half": [number / 2 for number in batch["n"]]}

    def run(dataset, function, name):
        return lambda: dataset.map(function, batched=True, num_proc=workers if workers > 1 else None,
                                   cache_file_name=os.path.join(folder, name))

    return {"tokenize": timed(run(source, tokenize, "tokens.arrow")), "hit": timed(run(source, tokenize, "tokens.arrow")),
            "numbers": timed(run(numbers, halve, "halves.arrow"))}


def main():
    import datasets
    import tokenizers
    datasets.disable_progress_bars()
    encoder = tokenizers.Tokenizer.from_file(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        source = datasets.Dataset.from_csv(texts, cache_dir=folder)
        numbers = datasets.Dataset.from_dict({"n": list(range(rows))})
        results = []
        for number in range(rounds):
            place = os.path.join(folder, str(number))
            os.mkdir(place)
            results.append((ours(place), peers(place, source, numbers, encoder)))
    for name, count in (("tokenize", len(source)), ("numbers", rows), ("hit", 0)):
        mine, theirs = (statistics.median(result[side][name] for result in results) for side in (0, 1))
        speed = f"{count / mine:12.0f} rows/s against {count / theirs:12.0f}" if count else f"{1000 * mine:9.1f} ms against {1000 * theirs:.1f} ms"
        print(f"{name:10} {workers} workers: {speed}, {theirs / mine:.1f} times as fast")


if __name__ == "__main__":
    main()
