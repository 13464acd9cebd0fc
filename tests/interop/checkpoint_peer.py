"""Takes the checkpoint in FOLDER/before into torch.optim, does one step, and compares with FOLDER/after.

The gradients are those of checkpoint_interop_test.cpp: each parameter's elements numbered from 1, over 8. Prints the names
of the optimizer's tensors, then what differs; a random state is taken as well and gives one number of each checkpoint.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file


def optimizer_from(folder, parameters):
    described = json.loads((folder / "optimizer.json").read_text())
    groups = []
    for group in described["param_groups"]:
        options = {name: tuple(value) if isinstance(value, list) else value
                   for name, value in group.items() if name != "params"}
        groups.append({"params": [parameters[name] for name in group["params"]], **options})
    optimizer = getattr(torch.optim, described["optimizer"])(groups, foreach=False)
    for key, tensor in load_file(folder / "optimizer.safetensors").items():
        name, field = key.removeprefix("state.").rsplit(".", 1)
        optimizer.state[parameters[name]][field] = tensor.float() if field == "step" else tensor
    return optimizer


def compare(what, mine, theirs):
    # LibTorch's AdamW multiplies and adds where Python's interpolates: the last bit may differ.
    if not torch.allclose(mine, theirs.to(mine.dtype), rtol=1e-6, atol=1e-7):
        print(f"{what} differs by up to {(mine - theirs).abs().max().item()}")


def main(folder):
    before, after = folder / "before", folder / "after"
    print(" ".join(sorted(load_file(before / "optimizer.safetensors"))))
    parameters = {name: tensor.requires_grad_() for name, tensor in load_file(before / "model.safetensors").items()}
    optimizer = optimizer_from(before, parameters)
    for tensor in parameters.values():
        tensor.grad = (torch.arange(1, tensor.numel() + 1) / 8).reshape(tensor.shape)
    optimizer.step()
    for name, tensor in load_file(after / "model.safetensors").items():
        compare(name, parameters[name].detach(), tensor)
    for key, tensor in load_file(after / "optimizer.safetensors").items():
        name, field = key.removeprefix("state.").rsplit(".", 1)
        compare(key, optimizer.state[parameters[name]][field], tensor)
    torch.set_rng_state(load_file(before / "random_states_0.safetensors")["cpu"])
    print(torch.rand(1, dtype=torch.float64).item().hex())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
