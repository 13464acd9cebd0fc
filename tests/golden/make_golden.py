"""Trains the golden cases with Python's DistributedDataParallel and writes down every number exactly.

  torchrun --nproc-per-node 2 make_golden.py FOLDER CASE...     (or without torchrun: a world of one)

Every rank writes FOLDER/CASE.RANK.txt: the losses of all ranks at every step, all gradients after some of the steps, and
the last weights. golden_train.cpp writes the same text; README.md describes it. Numbers are hexadecimal, so that equal
texts mean equal bits.
"""

import contextlib
import faulthandler
import os
import pathlib
import re
import sys

# No hang outlives the test: whatever happens, this process ends.
faulthandler.dump_traceback_later(50, exit=True)

import torch
import torch.distributed as dist

from golden_cases import CASES, batch, fill_with_whole_numbers, loss_of

RECORDED_STEPS = (1, 2, 10)


def hexadecimal(value):
    """As C's %a writes it."""
    return re.sub(r"\.?0*p", "p", value.hex(), count=1)


class Text:
    def __init__(self):
        self.lines = []

    def add(self, heading, tensor):
        if tensor is None:
            self.lines.append(f"{heading} none")
            return
        self.lines.append(f"{heading} {list(tensor.shape)}")
        self.lines += [hexadecimal(value) for value in tensor.detach().double().flatten().tolist()]

    def add_of_all_ranks(self, heading, tensor):
        """What may differ between ranks stands in every rank's text, so that all texts are the same."""
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.detach().contiguous())
        for rank, part in enumerate(parts):
            self.add(f"{heading} of rank {rank}", part)


def make_net(case, file):
    """Seeded the same on every rank. A scripted net goes through its file, as it does in C++."""
    torch.manual_seed(7)
    net = case.net()
    if case.task == "whole":
        fill_with_whole_numbers(net)
    if not case.scripted:
        return net
    if dist.get_rank() == 0:
        torch.jit.script(net).save(str(file))
    dist.barrier()
    return torch.jit.load(str(file))


def backward(case, ddp, step, text):
    inputs, targets = batch(case, step, dist.get_rank(), dist.get_world_size())
    parts = zip(inputs.chunk(case.micro_batches), targets.chunk(case.micro_batches))
    for index, (x, y) in enumerate(parts):
        last = index + 1 == case.micro_batches
        with contextlib.nullcontext() if last else ddp.no_sync():
            outputs = ddp(x)
            logits = outputs[0] if isinstance(outputs, tuple) else outputs
            loss = loss_of(case, logits, y) / case.micro_batches
            loss.backward()
        text.add_of_all_ranks(f"step {step} loss", loss)


def train(case, net):
    text = Text()
    ddp = torch.nn.parallel.DistributedDataParallel(net, **case.ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=case.learning_rate, momentum=case.momentum)
    for step in range(1, case.steps + 1):
        optimizer.zero_grad()
        backward(case, ddp, step, text)
        if step in RECORDED_STEPS:
            for name, parameter in net.named_parameters():
                text.add(f"step {step} gradient {name}", parameter.grad)
        optimizer.step()
    for name, parameter in net.named_parameters():
        text.add(f"weight {name}", parameter)
    for name, buffer in net.named_buffers():
        text.add_of_all_ranks(f"buffer {name}", buffer)
    return "\n".join(text.lines) + "\n"


def main(folder, names):
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for name in names:
        case = CASES[name]
        with torch.jit.optimized_execution(not case.interpreted):
            text = train(case, make_net(case, folder / f"{name}.pt"))
        (folder / f"{name}.{dist.get_rank()}.txt").write_text(text)
    dist.barrier()
    dist.destroy_process_group()


main(pathlib.Path(sys.argv[1]), sys.argv[2:])
# Without Python's own way out: while the interpreter is taken down, a thread of torch that still asks for its lock is
# ended in a way that aborts the process, now and then.
os._exit(0)
