"""A BART of transformers under DistributedDataParallel, for comparison with trainers/translation.

    make_translation.py pairs FILE
        writes 64 made-up pairs as JSON lines: between one and five words, and the same ones from the last to the first.
    make_translation.py init FOLDER --tokenizer F [--formula] [--positions N --width N --layers N --heads N]
        writes config.json, model.safetensors and tokenizer.json: first weights as transformers draws them (seed 0), or by
        the formula of make_models.py, so that a test can make the same ones without Python. Without dropout.
    torchrun --nproc-per-node 2 make_translation.py train FOLDER FILE [--steps N --batch-size N --lr LR] [--times]
        trains on pairs of "source" and "target" and prints "STEP LOSS": the sum over all ranks' tokens by their number,
        before each step. Every token weighs the same, as with num_items_in_batch of transformers' Trainer.

translation.txt is (with transformers 5.23.0, torch 2.11.0):

    make_translation.py pairs /tmp/pairs.jsonl
    make_translation.py init /tmp/bart --formula --tokenizer tests/unit/tokenizers/roberta.json
    torchrun --nproc-per-node 2 tests/golden/make_translation.py train /tmp/bart /tmp/pairs.jsonl
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

WORDS = ["speak", "citizen", "people", "corn", "hungry"]


def parse():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pairs").add_argument("file")
    init = commands.add_parser("init")
    init.add_argument("folder")
    init.add_argument("--formula", action="store_true")
    init.add_argument("--tokenizer", required=True)
    for name, value in ("positions", 32), ("width", 32), ("layers", 2), ("heads", 2):
        init.add_argument(f"--{name}", type=int, default=value)
    train = commands.add_parser("train")
    train.add_argument("folder")
    train.add_argument("file")
    for name, value in ("steps", 40), ("batch-size", 4), ("max-length", 32):
        train.add_argument(f"--{name}", type=int, default=value)
    train.add_argument("--lr", type=float, default=1e-3)
    train.add_argument("--times", action="store_true", help="print the median time of a step at the end")
    return parser.parse_args()


def write_pairs(args):
    with open(args.file, "w") as file:
        for row in range(64):
            words = [WORDS[(row + i * i) % 5] for i in range(1 + row % 5)]
            json.dump({"source": " ".join(words), "target": " ".join(reversed(words))}, file)
            file.write("\n")


def write_model(args):
    import transformers
    from tokenizers import Tokenizer

    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(args.tokenizer)
    start, pad, end = (tokenizer.token_to_id(token) for token in ("<s>", "<pad>", "</s>"))
    config = transformers.BartConfig(
        vocab_size=tokenizer.get_vocab_size(), d_model=args.width, max_position_embeddings=args.positions,
        encoder_layers=args.layers, decoder_layers=args.layers, encoder_attention_heads=args.heads,
        decoder_attention_heads=args.heads, encoder_ffn_dim=4 * args.width, decoder_ffn_dim=4 * args.width, dropout=0.0,
        pad_token_id=pad, bos_token_id=start, eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=None)
    model = transformers.BartForConditionalGeneration(config)
    if args.formula:
        from make_models import fill

        fill(model)
    model.save_pretrained(args.folder)
    tokenizer.save(os.path.join(args.folder, "tokenizer.json"))


def samples_of(args):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(args.folder, "tokenizer.json"))
    tokenizer.enable_truncation(args.max_length)
    with open(args.file) as file:
        pairs = [json.loads(line) for line in file]
    return [{side: torch.tensor(tokenizer.encode(pair[side]).ids) for side in ("source", "target")} for pair in pairs]


def collate(pad):
    def joined(samples, side, fill):
        return torch.nn.utils.rnn.pad_sequence([sample[side] for sample in samples], batch_first=True, padding_value=fill)

    def batch_of(samples):
        ids = joined(samples, "source", pad)
        lengths = torch.tensor([len(sample["source"]) for sample in samples])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        return {"input_ids": ids, "attention_mask": mask, "labels": joined(samples, "target", -100)}

    return batch_of


def batches_of(args, samples, pad):
    sampler = DistributedSampler(samples, shuffle=True, seed=42)
    loader = DataLoader(samples, batch_size=args.batch_size, sampler=sampler, collate_fn=collate(pad))
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def sum_of_ranks(number):
    total = torch.tensor(float(number), dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def train(args):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    dist.init_process_group("gloo")
    model = transformers.BartForConditionalGeneration.from_pretrained(args.folder).train()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    scheduler = transformers.get_scheduler("linear", optimizer, 0, args.steps)
    times = []
    batches = batches_of(args, samples_of(args), model.config.pad_token_id)
    for step, batch in enumerate(itertools.islice(batches, args.steps), 1):
        begin = time.monotonic()
        tokens = (batch["labels"] != -100).sum().item()
        all_tokens = sum_of_ranks(tokens)
        loss_sum = ddp(**batch).loss * tokens
        optimizer.zero_grad()
        (loss_sum * dist.get_world_size() / all_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        times.append(time.monotonic() - begin)
        mean = sum_of_ranks(loss_sum.item()) / all_tokens
        if dist.get_rank() == 0:
            print(step, format(mean, ".9g"), flush=True)
    if args.times and dist.get_rank() == 0:
        print("median step", format(statistics.median(times), ".4f"), "s", file=sys.stderr)
    dist.destroy_process_group()


arguments = parse()
{"pairs": write_pairs, "init": write_model, "train": train}[arguments.command](arguments)
