"""Writes what scikit-learn says: make_metrics.py > tests/golden/metrics.txt

Needs scikit-learn (made with 1.9.1) and sacrebleu (2.6.0). Lines, each a heading and numbers:
  classes N / predictions ... / labels ... : a case of classification, followed by its scores
  outputs N / predictions ... / targets ... : a case of regression, row by row, followed by its errors
  bleu N / N pairs of lines, a translation and its reference : followed by the score
  SCORE [AVERAGE ZERO_DIVISION] VALUE : a score of the case above
"""

import itertools
import math
import warnings

import numpy
import sacrebleu
from sklearn import metrics

CASES = {  # name: classes, labels, predictions
    "even": (2, lambda r: (r.integers(0, 2, 40), r.integers(0, 2, 40))),
    "all right": (3, lambda r: ([0, 1, 2, 2], [0, 1, 2, 2])),
    "all wrong": (3, lambda r: ([0, 1, 2, 0], [1, 2, 0, 1])),
    "one class predicted": (4, lambda r: (r.integers(0, 4, 30), [2] * 30)),
    "one class present": (4, lambda r: ([1] * 20, r.integers(0, 4, 20))),
    "none of class 1": (2, lambda r: ([0] * 6, [0] * 6)),
    "none of class 1 but predicted": (2, lambda r: ([0] * 6, [0, 1, 0, 0, 1, 0])),
    "class 1 never predicted": (2, lambda r: ([0, 1, 0, 1], [0] * 4)),
    "classes that are absent": (9, lambda r: (r.choice([0, 3, 7], 50), r.choice([0, 3, 8], 50))),
    "many": (77, lambda r: (r.integers(0, 77, 400), r.integers(0, 77, 400))),
    "skewed": (5, lambda r: (r.choice(5, 200, p=[0.7, 0.2, 0.05, 0.03, 0.02]),
                             r.choice(5, 200, p=[0.5, 0.3, 0.1, 0.05, 0.05]))),
}


def regression_cases(r):
    target = r.normal(size=50)
    yield 1, target + 0.3 * r.normal(size=50), target
    yield 1, target + 1e8 + 0.1 * r.normal(size=50), target + 1e8
    yield 1, [2.0, 2.0, 2.5], [2.1, 2.1, 2.1]
    yield 1, [0.1, 0.1, 0.1], [0.1, 0.1, 0.1]
    yield 1, [1.0], [3.0]
    several = r.normal(size=(20, 3)) * [1, 10, 100]
    several[:, 1] = 0.5
    yield 3, several + r.normal(size=(20, 3)), several


def show(*words):
    print(*(repr(float(w)) if isinstance(w, (float, numpy.floating)) else w for w in words))


def classification(classes, labels, predictions):
    show("classes", classes)
    show("predictions", *(int(p) for p in predictions))
    show("labels", *(int(l) for l in labels))
    show("accuracy", metrics.accuracy_score(labels, predictions))
    show("matthews", metrics.matthews_corrcoef(labels, predictions))
    averages = ("binary", "micro", "macro", "weighted")[0 if classes == 2 else 1:]
    for average, zero in itertools.product(averages, (0.0, 1.0, math.nan)):
        for name in ("precision", "recall", "f1"):
            score = getattr(metrics, name + "_score")
            show(name, average, zero, score(labels, predictions, average=average, zero_division=zero))


def regression(outputs, predictions, targets):
    show("outputs", outputs)
    for name, values in ("predictions", predictions), ("targets", targets):
        show(name, *(float(v) for v in numpy.ravel(values)))
    show("mse", metrics.mean_squared_error(targets, predictions))
    show("rmse", metrics.root_mean_squared_error(targets, predictions))
    show("mae", metrics.mean_absolute_error(targets, predictions))
    show("r2", metrics.r2_score(targets, predictions))


SENTENCES = ("the cat sat on the mat and slept all day", "a man walks down the street with his dog", "yes", "",
             "she sells sea shells by the sea shore today", "the the the the the the the")


def translations(r):
    """Pairs in which words are left out, doubled or swapped, more and more of them."""
    for strength in (0.0, 0.1, 0.3, 0.6, 0.95):
        pairs = []
        for reference in SENTENCES:
            words = reference.split()
            kept = [w for w in words if r.random() > strength / 2]
            doubled = [w for w in kept for _ in range(1 + int(r.random() < strength / 4))]
            if r.random() < strength:
                r.shuffle(doubled)
            pairs.append((" ".join(doubled), reference))
        yield pairs
    yield [("one two", "three four")]
    yield [("one two", "one two three")]
    yield [("a b c d x", "a b c d e"), ("q", "r")]


def bleu(pairs):
    show("bleu", len(pairs))
    for pair in pairs:
        print("\n".join(pair))
    hypotheses, references = zip(*pairs)
    show("score", sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score)


warnings.simplefilter("ignore")
for number, (count, draw) in enumerate(CASES.values()):
    classification(count, *draw(numpy.random.default_rng(number)))
for case in regression_cases(numpy.random.default_rng(0)):
    regression(*case)
for case in translations(numpy.random.default_rng(1)):
    bleu(case)
