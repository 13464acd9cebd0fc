"""The Python side of ddp_step.py: the same models under PyTorch's DDP over Gloo, or under Accelerate; rank 0 prints each
step's milliseconds.

Usage: ddp_peer.py MODEL STEPS WARMUP default|fused sync|alone|accelerate      under a launcher
"""
import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                                  nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.side = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.main(x) + self.side(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.projection = nn.LayerNorm(384), nn.Linear(384, 1152), nn.Linear(384, 384)
        self.wide = nn.Sequential(nn.LayerNorm(384), nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384))

    def forward(self, x):
        query, key, value = (part.view(x.size(0), x.size(1), 6, -1).transpose(1, 2)
                             for part in self.attention(self.before(x)).chunk(3, 2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.wide(x)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(65, 384), nn.Embedding(64, 384)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(6))), nn.LayerNorm(384)
        self.head = nn.Linear(384, 65)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1)))
        return self.head(self.norm(self.blocks(x))).view(-1, 65)


def mlp():
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers[:-1]), torch.randn(32, 1024), torch.randint(0, 1024, (32,))


def resnet():
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for outputs in (64, 128, 256, 512):
        layers += [Residual(width, outputs, 1 if outputs == 64 else 2), Residual(outputs, outputs, 1)]
        width = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))


def gpt():
    return Gpt(), torch.randint(0, 65, (4, 64)), torch.randint(0, 65, (4 * 64,))


def prepared(module, adamw, sync):
    """The model, the optimizer, and what computes gradients of a loss."""
    if sync == "accelerate":
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
        return *accelerator.prepare(module, adamw), accelerator.backward
    dist.init_process_group("gloo")
    return DistributedDataParallel(module), adamw, torch.Tensor.backward


def main(model, steps, warmup, optimizer, sync):
    torch.manual_seed(1)
    module, example, target = {"mlp": mlp, "resnet": resnet, "gpt": gpt}[model]()
    adamw = torch.optim.AdamW(module.parameters(), fused=optimizer == "fused")
    ddp, adamw, backward = prepared(module, adamw, sync)
    for step in range(int(warmup) + int(steps)):
        begin = time.perf_counter()
        with ddp.no_sync() if sync == "alone" else contextlib.nullcontext():
            backward(functional.cross_entropy(ddp(example), target))
        adamw.step()
        adamw.zero_grad()
        if step >= int(warmup) and dist.get_rank() == 0:
            print((time.perf_counter() - begin) * 1000, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
