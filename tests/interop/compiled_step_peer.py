"""The Python side of compiled_step_test.cpp.

Usage: compiled_step_peer.py write EXPORTER FOLDER     exports modules, trains them, and writes what came out
       compiled_step_peer.py load FOLDER MODEL        loads a model of the C++ side into Python's module, strictly, and prints
                                                      the sum of its outputs in evaluation
"""

import importlib.util
import os
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

STEPS, CLIP = 6, 0.5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention, self.projection = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 16))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        query, key, value = (part.view(*x.shape[:2], 2, -1).transpose(1, 2)
                             for part in self.attention(self.before(x)).chunk(3, 2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.projection(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.wide(x))


class Texts(nn.Module):
    """A small GPT with dropout, its head tied to its words, and one parameter that is not trained."""

    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.norm = nn.Embedding(50, 16), nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(16)
        self.scale = nn.Parameter(torch.tensor(0.5), requires_grad=False)

    def forward(self, tokens, labels):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.words.weight) * self.scale
        return {"loss": functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, images, labels):
        x = functional.relu(self.norm(self.stem(images)))
        logits = self.head((x + x.roll(1, 2)).mean((2, 3)))
        return functional.cross_entropy(logits, labels), logits


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, rows, labels):
        return functional.cross_entropy(self.net(rows), labels)


def texts():
    return Texts(), lambda: (torch.randint(0, 50, (2, 12)), torch.randint(0, 50, (2, 12)))


def images():
    return Images(), lambda: (torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,)))


def rows():
    return Rows(), lambda: (torch.randn(6, 8), torch.randint(0, 4, (6,)))


def outputs(result):
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple) else [result]


def state(module):
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def trained(module, batch_of):
    """Batches, losses, norms, the last state, and outputs in evaluation, by name."""
    optimizer = torch.optim.AdamW([one for one in module.parameters() if one.requires_grad], lr=1e-2, fused=True)
    written, losses, norms = {}, [], []
    module.train()
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        batch = batch_of()
        written |= {f"batch.{step}.{i}": tensor for i, tensor in enumerate(batch)}
        loss = outputs(module(*batch))[0]
        loss.backward()
        losses.append(loss.detach())
        norms.append(nn.utils.clip_grad_norm_(module.parameters(), CLIP))
        optimizer.step()
        optimizer.zero_grad()
    module.eval()
    with torch.no_grad():
        written |= {f"evaluated.{i}": tensor.contiguous() for i, tensor in enumerate(outputs(module(*batch)))}
    return {**written, "losses": torch.stack(losses), "norms": torch.stack(norms),
            **{"state." + name: tensor for name, tensor in state(module).items()}}


def write(exporter, folder):
    spec = importlib.util.spec_from_file_location("lockstep_export", exporter)
    export = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(export)
    for name, make in {"texts": texts, "images": images, "rows": rows}.items():
        torch.manual_seed(1)
        module, batch_of = make()
        before = state(module)
        export.export_step(module, batch_of(), folder / name, exact=name != "rows")
        after = state(module)
        assert all(torch.equal(before[key], after[key]) for key in before), "the export changed the module"
        save_file(trained(module, batch_of), folder / (name + ".safetensors"))
    write_refusals(export)


def write_refusals(export):
    """What cannot be exported is named."""
    class Number(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, rows):
            return (self.weight * rows).sum(), 3

    dropping = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    for module, exact in ((Number(), True), (dropping, False)):
        try:
            export.export_step(module, (torch.ones(2, 2),), "nowhere", exact)
        except export.ExportError as error:
            print(error)


def load(folder, model):
    module, _ = images()
    module.load_state_dict(load_file(model), strict=True)
    batch = load_file(folder / "images.safetensors")
    module.eval()
    with torch.no_grad():
        logits = module(batch["batch.0.0"], batch["batch.0.1"])[1]
    print(logits.sum().item().hex())


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "write":
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(pathlib.Path(sys.argv[3]) / "cache")
        write(sys.argv[2], pathlib.Path(sys.argv[3]))
    else:
        load(pathlib.Path(sys.argv[2]), sys.argv[3])
