"""A network for image_classification --model: script_net.py write FOLDER | read FOLDER

write leaves net.pt, a TorchScript file. read takes the weights that the trainer has saved into the same network, and
fails unless it tells the digits apart.
"""
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                            torch.nn.MaxPool2d(2), torch.nn.Flatten())
        self.head = torch.nn.Linear(8 * 4 * 4, 10)

    def forward(self, images):
        return {"logits": self.head(self.features(images))}


def write(folder):
    torch.manual_seed(0)
    torch.jit.script(Net()).save(os.path.join(folder, "net.pt"))


def read(folder):
    digits = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "digits")
    images = np.fromfile(os.path.join(digits, "digits-images-idx3-ubyte"), np.uint8)[16:].reshape(-1, 1, 8, 8)
    labels = np.fromfile(os.path.join(digits, "digits-labels-idx1-ubyte"), np.uint8)[8:]
    net = Net().eval()
    net.load_state_dict(load_file(os.path.join(folder, "model.safetensors")))
    with torch.no_grad():
        scores = net(torch.from_numpy(images / images.max()).float())["logits"]
    accuracy = (scores.argmax(1).numpy() == labels).mean()
    assert accuracy > 0.85, accuracy


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
