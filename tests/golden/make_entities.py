"""Writes what seqeval says of tagged texts: make_entities.py > tests/golden/entities.jsonl    (seqeval 1.2.2)

Each line is a case: the tags, the texts' labels and predictions as numbers of them, and the scores. The texts are random, so
that they have all mistakes that a model can make in IOB2 and in IOBES: entities that begin with I- or E-, S- inside of others,
changes of the type without a B-.
"""
import json
import random
import warnings

from seqeval.metrics import accuracy_score, classification_report

SCHEMES = {"iob2": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-a-b", "I-a-b"],
           "iobes": ["O", *(f"{letter}-{kind}" for kind in ("PER", "ORG") for letter in "BIES")],
           "bare": ["O", "B", "I"],
           "alone": ["B-X", "I-X"]}


def text(draw, tags, length, like=None):
    chosen = [draw.randrange(len(tags)) for _ in range(length)]
    return [tag if like is None or draw.random() < 0.3 else other for tag, other in zip(chosen, like or chosen)]


def case(draw, scheme, count):
    tags = SCHEMES[scheme]
    labels = [text(draw, tags, draw.randrange(1, 12)) for _ in range(count)]
    predictions = [text(draw, tags, len(row), row) for row in labels]
    named = [[[tags[tag] for tag in row] for row in rows] for rows in (labels, predictions)]
    report = classification_report(*named, output_dict=True, zero_division=0)
    scores = {kind: [float(values[score]) for score in ("precision", "recall", "f1-score", "support")]
              for kind, values in report.items() if not kind.endswith(" avg")}
    micro = [float(report["micro avg"][score]) for score in ("precision", "recall", "f1-score")]
    return {"name": scheme, "tags": tags, "labels": labels, "predictions": predictions, "types": scores,
            "overall": [*micro, float(accuracy_score(*named))]}


def main():
    warnings.simplefilter("ignore")
    draw = random.Random(7)
    for scheme in SCHEMES:
        for rows in (1, 3, 8, 20):
            print(json.dumps(case(draw, scheme, rows)))


if __name__ == "__main__":
    main()
