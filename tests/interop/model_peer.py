"""The Python side of training_interop_test: lockstep::models::SmallConvNet as a module of PyTorch.

  model_peer.py read FOLDER    reads the trained FOLDER/model.safetensors, and fails unless it knows the digits
  model_peer.py write FOLDER   writes FOLDER/model.safetensors with first weights of its own
Both write FOLDER/images.safetensors, all the digits, and FOLDER/logits.safetensors, what the model says of them.
"""

import pathlib
import sys

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn

DIGITS = pathlib.Path(__file__).parents[2] / "data" / "digits"


class SmallConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(1024, 128)
        self.output = nn.Linear(128, 10)

    def forward(self, images):
        x = torch.relu(self.conv1(images))
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.output(torch.relu(self.hidden(x.flatten(1))))


def idx(name, header, shape):
    data = numpy.fromfile(DIGITS / name, dtype=numpy.uint8)[header:]
    return torch.from_numpy(data.reshape(shape).copy())


def main(action, folder):
    torch.manual_seed(11)
    model = SmallConvNet()
    if action == "write":
        save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    else:
        model.load_state_dict(load_file(folder / "model.safetensors"))
    images = idx("digits-images-idx3-ubyte", 16, (-1, 1, 8, 8)).to(torch.float32)
    images = images / images.max()
    with torch.no_grad():
        logits = model(images)
    save_file({"images": images}, folder / "images.safetensors")
    save_file({"logits": logits}, folder / "logits.safetensors")
    if action == "read":
        accuracy = (logits.argmax(1) == idx("digits-labels-idx1-ubyte", 8, (-1,))).double().mean().item()
        assert accuracy > 0.85, f"the trained model knows only {accuracy:.3f} of the digits"


main(sys.argv[1], pathlib.Path(sys.argv[2]))
