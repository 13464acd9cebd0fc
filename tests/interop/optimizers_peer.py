"""The Python side of optimizers_interop_test: torch.optim's classes with fused=True.

  optimizers_peer.py FOLDER   writes FOLDER/start.safetensors, first weights and the gradients of every step, and
                              FOLDER/python.safetensors, weights and optimizer state after each step of each case
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file

SHAPES = {"matrix": (37, 19), "vector": (1031,), "cube": (5, 7, 9), "one": (1,)}
STEPS = 5
ADAM = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def cases():
    return {
        "adamw": lambda p: torch.optim.AdamW(p, fused=True),
        "adamw_all": lambda p: torch.optim.AdamW(p, **ADAM, amsgrad=True, maximize=True, fused=True),
        "adam": lambda p: torch.optim.Adam(p, fused=True),
        "adam_all": lambda p: torch.optim.Adam(p, **ADAM, amsgrad=True, maximize=True, fused=True),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01, fused=True),
        "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, maximize=True, fused=True),
        "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01,
                                                  fused=True),
        "groups": lambda p: torch.optim.AdamW([{"params": p[:2]}, {"params": p[2:], "lr": 0.02, "weight_decay": 0.0}],
                                              lr=0.005, fused=True),
    }


def correct(optimizer, dtype):
    """PyTorch 2.11's fused SGD computes wrong weights in half-wide numbers on CPUs."""
    if isinstance(optimizer, torch.optim.SGD) and dtype == torch.bfloat16:
        for group in optimizer.param_groups:
            group["fused"], group["foreach"] = False, False
    return optimizer


def run(name, make, start, dtype):
    parameters = {key: start["w." + key].to(dtype, copy=True).requires_grad_() for key in SHAPES}
    optimizer = correct(make(list(parameters.values())), dtype)
    result = {}
    for step in range(STEPS):
        for key, parameter in parameters.items():
            # The last one has no gradient at first: its count of steps differs. Python's fused SGD cannot do that.
            late = key == "one" and step < 2 and "sgd_" not in name
            parameter.grad = None if late else start[f"g.{key}.{step}"].to(dtype)
        optimizer.step()
        for key, parameter in parameters.items():
            place = f"{name}.{str(dtype).removeprefix('torch.')}.{step}.{key}"
            result[place] = parameter.detach().clone()
            for field, value in optimizer.state[parameter].items():
                if value is not None and field != "step":
                    result[f"{place}.{field}"] = value.clone()
    return result


def main(folder):
    torch.manual_seed(2)
    start = {"w." + key: torch.randn(shape) for key, shape in SHAPES.items()}
    for step in range(STEPS):
        start |= {f"g.{key}.{step}": torch.randn(shape) for key, shape in SHAPES.items()}
    save_file(start, folder / "start.safetensors")
    result = {}
    for name, make in cases().items():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            result |= run(name, make, start, dtype)
    save_file(result, folder / "python.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
