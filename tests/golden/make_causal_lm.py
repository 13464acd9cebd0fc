"""A GPT-2 of transformers under DistributedDataParallel, for comparison with trainers/causal_lm.

    make_causal_lm.py init FOLDER [--formula] [--vocab-size N --positions N --width N --layers N --heads N] [--tokenizer F]
        writes config.json, model.safetensors and tokenizer.json: first weights as transformers draws them (seed 0), or by
        the formula of make_models.py, so that a test can make the same ones without Python. Without --tokenizer a
        byte-level tokenizer of that many tokens is trained on --text.
    torchrun --nproc-per-node 2 make_causal_lm.py train FOLDER TEXT [--steps N --batch-size N --block-size N --lr LR]
        trains on the text and prints "STEP LOSS": the mean over the ranks, before each step.

causal_lm.txt is (with transformers 5.24.0, torch 2.11.0, datasets 5.2.0):

    make_causal_lm.py init /tmp/gpt2 --formula --tokenizer tests/unit/tokenizers/roberta.json
    torchrun --nproc-per-node 2 tests/golden/make_causal_lm.py train /tmp/gpt2 tests/interop/tokenizer_training.txt
"""

import argparse
import itertools
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def parse():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init")
    init.add_argument("folder")
    init.add_argument("--formula", action="store_true")
    for name, value in ("vocab-size", 403), ("positions", 32), ("width", 32), ("layers", 2), ("heads", 2):
        init.add_argument(f"--{name}", type=int, default=value)
    init.add_argument("--tokenizer")
    init.add_argument("--text")
    train = commands.add_parser("train")
    train.add_argument("folder")
    train.add_argument("text")
    for name, value in ("steps", 20), ("batch-size", 4), ("block-size", 32):
        train.add_argument(f"--{name}", type=int, default=value)
    train.add_argument("--lr", type=float, default=1e-3)
    train.add_argument("--times", action="store_true", help="print the median time of a step at the end")
    return parser.parse_args()


def trained_tokenizer(args):
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(args.text, vocab_size=args.vocab_size, show_progress=False)
    return tokenizer


def write_model(args):
    import transformers
    from tokenizers import Tokenizer

    torch.manual_seed(0)
    last = args.vocab_size - 1
    config = transformers.GPT2Config(
        vocab_size=args.vocab_size, n_positions=args.positions, n_embd=args.width, n_layer=args.layers, n_head=args.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=last, eos_token_id=last)
    model = transformers.GPT2LMHeadModel(config)
    if args.formula:
        from make_models import fill

        fill(model)
    model.save_pretrained(args.folder)
    tokenizer = Tokenizer.from_file(args.tokenizer) if args.tokenizer else trained_tokenizer(args)
    tokenizer.save(os.path.join(args.folder, "tokenizer.json"))


def blocks_of(args):
    import datasets
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(args.folder, "tokenizer.json"))
    texts = datasets.load_dataset("text", data_files=args.text, split="train", keep_linebreaks=True)

    def encode(rows):
        return {"input_ids": [e.ids for e in tokenizer.encode_batch(rows["text"])]}

    def group(rows):
        ids = list(itertools.chain.from_iterable(rows["input_ids"]))
        size = args.block_size
        return {"input_ids": [ids[i:i + size] for i in range(0, len(ids) // size * size, size)]}

    tokens = texts.map(encode, batched=True, remove_columns=["text"], keep_in_memory=True)
    return tokens.map(group, batched=True, keep_in_memory=True).with_format("torch")


def batches_of(args, blocks):
    sampler = DistributedSampler(blocks, shuffle=True, seed=42)
    loader = DataLoader(blocks, batch_size=args.batch_size, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def train(args):
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    dist.init_process_group("gloo")
    model = transformers.GPT2LMHeadModel.from_pretrained(args.folder).train()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    scheduler = transformers.get_scheduler("linear", optimizer, 0, args.steps)
    times = []
    for step, batch in enumerate(itertools.islice(batches_of(args, blocks_of(args)), args.steps), 1):
        begin = time.monotonic()
        ids = batch["input_ids"]
        loss = ddp(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        times.append(time.monotonic() - begin)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(step, format(float(mean) / dist.get_world_size(), ".9g"), flush=True)
    if args.times and dist.get_rank() == 0:
        print("median step", format(statistics.median(times), ".4f"), "s", file=sys.stderr)
    dist.destroy_process_group()


arguments = parse()
write_model(arguments) if arguments.command == "init" else train(arguments)
