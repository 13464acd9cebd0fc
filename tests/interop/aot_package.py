"""Writes a package of AOTInductor with inputs and outputs, for python_models_test: aot_package.py FOLDER [light]

With "light" the package does not name libtorch.so.

    aot_package.py /tmp/package && LOCKSTEP_AOT_PACKAGE=/tmp/package build/tests/python_models_test
"""
import os
import sys

import torch
from safetensors.torch import save_file


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)
        self.outer = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))


def main(folder, light):
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    net = Net().eval()
    rows = torch.export.Dim("rows", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(net, (torch.ones(3, 8),), dynamic_shapes=({0: rows},))
        torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(folder, "net.pt2"),
                                                 inductor_configs={"aot_inductor.link_libtorch": not light})
        tensors = {}
        for count in (2, 5):
            tensors[f"input_{count}"] = torch.randn(count, 8)
            tensors[f"output_{count}"] = net(tensors[f"input_{count}"])
    save_file(tensors, os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["light"])
