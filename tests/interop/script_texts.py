"""Networks for --model of the trainers on texts: script_texts.py write FOLDER | read FOLDER

write leaves a TorchScript file for each trainer (classifier.pt, language.pt, translator.pt), of the sizes of the tokenizers
that the test uses, and small data to learn. read takes the programs that the trainers have saved, and fails unless they have
learnt.
"""
import json
import os
import sys

import torch
from torch import nn

WORDS, PAIR_WORDS, CLASSES = 160, 403, 2  # Tokens of bert.json and of roberta.json.
SPEAKERS = ["citizen", "menenius"]


class Classifier(nn.Module):
    """Of tokens and their mask alone: the trainer leaves the types out."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 16), nn.Linear(16, CLASSES)

    def forward(self, tokens, mask):
        weights = mask.unsqueeze(2).float()
        return {"logits": self.head((self.words(tokens) * weights).sum(1) / weights.sum(1).clamp_min(1))}


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(PAIR_WORDS, 32), nn.Linear(32, PAIR_WORDS)

    def forward(self, tokens):
        return self.head(self.words(tokens)), tokens


class Translator(nn.Module):
    """The mean of the source beside the target's last token."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(PAIR_WORDS, 32), nn.Embedding(PAIR_WORDS, 32)
        self.head = nn.Linear(64, PAIR_WORDS)

    def forward(self, tokens, mask, target):
        weights = mask.unsqueeze(2).float()
        source = (self.source(tokens) * weights).sum(1) / weights.sum(1).clamp_min(1)
        both = torch.cat([source.unsqueeze(1).expand(-1, target.size(1), -1), self.target(target)], 2)
        return self.head(both)


NETS = {"classifier": Classifier, "language": Language, "translator": Translator}


def write(folder):
    torch.manual_seed(0)
    for name, net in NETS.items():
        torch.jit.script(net()).save(os.path.join(folder, name + ".pt"))
    with open(os.path.join(folder, "texts.jsonl"), "w") as file:
        for row in range(64):
            file.write(json.dumps({"text": "what is the " + SPEAKERS[row % 2], "label": row % 2}) + "\n")
    with open(os.path.join(folder, "pairs.jsonl"), "w") as file:
        for row in range(64):
            file.write(json.dumps({"source": SPEAKERS[row % 2], "target": SPEAKERS[1 - row % 2]}) + "\n")
    with open(os.path.join(folder, "lines.txt"), "w") as file:
        file.write("speak citizen speak citizen speak citizen\n" * 64)


def has_learnt(name, folder):
    fresh, trained = torch.jit.load(os.path.join(folder, name + ".pt")), torch.jit.load(os.path.join(folder, name, "model.pt"))
    assert set(fresh.state_dict()) == set(trained.state_dict())
    for key, before in fresh.state_dict().items():
        after = trained.state_dict()[key]
        assert after.shape == before.shape and torch.isfinite(after).all(), key
        assert not torch.equal(after, before), f"{name}: {key} is as it was"
    with open(os.path.join(folder, name, "checkpoint-30", "trainer_state.json")) as file:
        losses = [entry["loss"] for entry in json.load(file)["log_history"] if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0], (name, losses)


def read(folder):
    for name in NETS:
        has_learnt(name, folder)
        assert os.path.exists(os.path.join(folder, name, "tokenizer.json")), name


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
