"""Programs that Python leaves in files, for model_step --program: program_peer.py script|compiled DEVICE FILE

Writes the program, TorchScript or a package of AOTInductor, and prints what it makes of the input as a JSON list.
"""
import json
import sys

import torch
from torch import nn


def main(kind, device, file):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 4)).to(device).eval()
    rows = torch.linspace(-1, 1, 128).view(2, 64).to(device)
    with torch.no_grad():
        if kind == "script":
            torch.jit.trace(net, rows).save(file)
        else:
            torch._inductor.aoti_compile_and_package(torch.export.export(net, (rows,)), package_path=file)
        print(json.dumps(net(rows).flatten().tolist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
