#!/usr/bin/env python3
"""A fully sharded GPT-2 here and with PyTorch's fully_shard (FSDP2) over Gloo: fsdp_compare.py LAUNCHER PEER

PEER is the program fsdp_peer. Both start from the same weights and see the same tokens; the losses of all steps must
agree within 1e-4, those of a bfloat16 MixedPrecisionPolicy within 0.02, and a rank must keep no more than 2 % more
numbers than PyTorch's.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
from model_peer import heads_of, read_safetensors

LAUNCHER, PEER = sys.argv[1:3]
RANKS, STEPS, HEADS, LAYERS = 2, 12, 2, 3


class Named(nn.Module):
    """The tensors whose names begin with `prefix`, as parameters."""

    def __init__(self, tensors, prefix):
        super().__init__()
        for name, tensor in tensors.items():
            if name.startswith(prefix):
                self.register_parameter(name.removeprefix(prefix).replace(".", "_"), nn.Parameter(tensor))

    def norm(self, name, x):
        return functional.layer_norm(x, x.shape[-1:], getattr(self, name + "_weight"), getattr(self, name + "_bias"), 1e-5)


class Block(Named):
    def project(self, name, x):
        return x @ getattr(self, name + "_weight") + getattr(self, name + "_bias")

    def forward(self, x):
        parts = self.project("attn_c_attn", self.norm("ln_1", x)).chunk(3, 2)
        mixed = functional.scaled_dot_product_attention(*(heads_of(part, HEADS) for part in parts), is_causal=True)
        x = x + self.project("attn_c_proj", mixed.transpose(1, 2).reshape(x.shape))
        return x + self.project("mlp_c_proj", functional.gelu(self.project("mlp_c_fc", self.norm("ln_2", x)),
                                                              approximate="tanh"))


class Gpt2(Named):
    def __init__(self, tensors):
        root = {name: tensor for name, tensor in tensors.items() if not name.startswith("transformer.h.")}
        super().__init__(root, "transformer.")
        self.blocks = nn.ModuleList(Block(tensors, f"transformer.h.{layer}.") for layer in range(LAYERS))

    def forward(self, tokens):
        x = self.wte_weight[tokens] + self.wpe_weight[: tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm("ln_f", x), self.wte_weight)


def tokens_of(rank, step):
    return (torch.arange(3 * 17) * 7 + rank * 13 + step * 5).remainder(101).view(3, 17)


def losses_of(rank, folder, dtype):
    model = Gpt2(read_safetensors(os.path.join(folder, "model.safetensors")))
    for block in model.blocks:
        fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype,
                                                      output_dtype=torch.float32))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        tokens = tokens_of(rank, step)
        logits = model(tokens)
        loss = functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(2)), tokens[:, 1:].reshape(-1))
        loss.backward()
        adam.step()
        adam.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    return losses, sum(parameter.to_local().numel() for parameter in model.parameters())


def train(rank, folder):
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{folder}/rendezvous")
    losses, numbers = losses_of(rank, folder, None)
    bf16_losses, _ = losses_of(rank, folder, torch.bfloat16)
    if rank == 0:
        with open(os.path.join(folder, "python.json"), "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "bf16_losses": bf16_losses, "numbers": numbers}, file)
    dist.destroy_process_group()
    # Without Python's own end, during which a thread of c10d that releases an object aborts the process.
    os._exit(0)


def apart(ours, theirs, kind):
    return max(abs(one - other) for one, other in zip(ours[kind], theirs[kind], strict=True))


def main():
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.run([LAUNCHER, "run", "--nproc-per-node", str(RANKS), PEER, folder, str(STEPS)],
                             capture_output=True, text=True, check=False)
        assert job.returncode == 0, job.stderr
        ours = json.loads(job.stdout.splitlines()[-1])
        torch.multiprocessing.spawn(train, (folder,), RANKS)
        with open(os.path.join(folder, "python.json"), encoding="utf-8") as file:
            theirs = json.load(file)
    worst, worst_bf16 = apart(ours, theirs, "losses"), apart(ours, theirs, "bf16_losses")
    print(f"losses {theirs['losses'][0]:.4f} to {theirs['losses'][-1]:.4f}, apart by {worst:.1e} at most, "
          f"in bfloat16 by {worst_bf16:.1e}, and by {apart(theirs, {'losses': theirs['bf16_losses']}, 'losses'):.1e} "
          f"from float32; rank 0 keeps {ours['numbers']} of each number, PyTorch {theirs['numbers']}")
    assert theirs["losses"][-1] < theirs["losses"][0] - 0.5, "nothing was learnt"
    assert worst < 1e-4
    assert worst_bf16 < 0.02 and ours["bf16_losses"] != ours["losses"]
    assert ours["same_weights"], "a model that is divided while it is made has other weights"
    assert ours["numbers"] <= 1.02 * theirs["numbers"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
