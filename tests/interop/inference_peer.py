"""Programs from Python for batch_inference: inference_peer.py write FOLDER TOKENIZER | read FOLDER TOKENIZER

write leaves classifier.pt (TorchScript), encoder.pt2 (a package of AOTInductor, which takes a minute) and texts of several
lengths. read computes anew what batch_inference has written into labels.jsonl and vectors.jsonl, and fails unless it is the same.
"""
import json
import os
import sys

import torch
from tokenizers import Tokenizer
from torch import nn

WIDTH, CLASSES, ROWS = 16, 8, 30


class Encoder(nn.Module):
    """Hidden states [rows, tokens, width]; each sees the mean of its row's tokens."""

    def __init__(self, words):
        super().__init__()
        self.words, self.inner = nn.Embedding(words, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens, mask):
        words, weights = self.words(tokens), mask.unsqueeze(2).float()
        mean = (words * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp_min(1)
        return torch.tanh(self.inner(torch.cat([words, mean.expand_as(words)], 2)))


class Classifier(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.encoder, self.head = Encoder(words), nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens, mask):
        return {"logits": self.head(self.encoder(tokens, mask)[:, 0])}


def nets(words):
    torch.manual_seed(0)
    return Classifier(words).eval(), Encoder(words).eval()


def package(net, path):
    rows, tokens = torch.export.Dim("rows", max=64), torch.export.Dim("tokens", max=64)
    example = (torch.ones(3, 8, dtype=torch.long), torch.ones(3, 8, dtype=torch.long))
    with torch.no_grad():
        program = torch.export.export(net, example, dynamic_shapes=({0: rows, 1: tokens}, {0: rows, 1: tokens}))
        torch._inductor.aoti_compile_and_package(program, package_path=path)


def write(folder, tokenizer):
    classifier, encoder = nets(tokenizer.get_vocab_size())
    torch.jit.script(classifier).save(os.path.join(folder, "classifier.pt"))
    package(encoder, os.path.join(folder, "encoder.pt2"))
    with open(os.path.join(folder, "texts.jsonl"), "w") as file:
        for row in range(ROWS):
            words = ["citizen", "speak", "people", "corn", "what", "the"]
            file.write(json.dumps({"text": " ".join(words[row * i % 6] for i in range(1, 3 + row % 5))}) + "\n")


def rows_of(folder, name):
    with open(os.path.join(folder, name)) as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == ROWS, (name, len(rows))
    return rows


def read(folder, tokenizer):
    classifier, encoder = nets(tokenizer.get_vocab_size())
    labels = []
    for classes, vectors in zip(rows_of(folder, "labels.jsonl"), rows_of(folder, "vectors.jsonl")):
        tokens = torch.tensor([tokenizer.encode(classes["text"]).ids])
        with torch.no_grad():
            label = classifier(tokens, torch.ones_like(tokens))["logits"].argmax().item()
            vector = nn.functional.normalize(encoder(tokens, torch.ones_like(tokens))[0].mean(0), dim=0)
        assert classes["label"] == label, classes
        torch.testing.assert_close(torch.tensor(vectors["embedding"]), vector, rtol=1e-5, atol=1e-5)
        labels.append(label)
    assert len(set(labels)) > 1, "all texts are of one class: nothing was compared"


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], Tokenizer.from_file(sys.argv[3]))
