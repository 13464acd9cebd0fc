"""Writes what tokenizers and run_ner.py's alignment make of words with labels: make_words.py > tests/golden/words.jsonl

Needs transformers (5.24.0) and tokenizers. Each line is a case: the tokenizer's file, the words of the rows and their labels,
the options, and what comes out. tokenize_and_align_labels is the function of Hugging Face's example for token classification.
"""
import json
import os

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [["First", "Citizen", ":", "Before", "we", "proceed"], ["unbelievably", "Menenius", "", "speak!", "x"], [],
        ["What's", "the", "matter", "--", "you", "dissentious", "rogues"], ["ﬁne", "Ångström", "don't", "a b"]]
LABELS = [[(3 * i + row) % 5 for i in range(len(words))] for row, words in enumerate(ROWS)]
INNER = [0, 2, 2, 4, 4]


def tokenize_and_align_labels(tokenizer, words, labels, max_length, inner):
    cut = dict(truncation=True, max_length=max_length) if max_length else {}
    inputs = tokenizer(words, is_split_into_words=True, return_token_type_ids=True, **cut)
    aligned = []
    for row, label in enumerate(labels):
        previous, ids = None, []
        for word in inputs.word_ids(batch_index=row):
            if word is None:
                ids.append(-100)
            elif word != previous:
                ids.append(label[word])
            else:
                ids.append(inner[label[word]] if inner else -100)
            previous = word
        aligned.append(ids)
    return {"input_ids": inputs["input_ids"], "token_type_ids": inputs["token_type_ids"], "labels": aligned}


def main():
    for file in ("bert.json", "roberta.json"):
        for max_length in (0, 8):
            for inner in ([], INNER):
                tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, "../unit/tokenizers", file))
                tokenizer.backend_tokenizer.no_truncation(), tokenizer.backend_tokenizer.no_padding()
                print(json.dumps({"tokenizer": file, "words": ROWS, "word_labels": LABELS, "max_length": max_length, "inner_labels": inner,
                                  **tokenize_and_align_labels(tokenizer, ROWS, LABELS, max_length, inner)}))


if __name__ == "__main__":
    main()
