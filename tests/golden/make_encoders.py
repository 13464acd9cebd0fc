"""Writes encoders.txt: what transformers' encoders answer, for comparison with Lockstep's.

    python make_encoders.py > encoders.txt        (transformers 5.24.0, torch 2.11)

NAME config JSON is a config.json, as transformers 4 or 5 writes it: both sides read it. The other lines are those of
make_models.py, with weights that both sides fill by its formula: NAME body:..., texts:..., tokens:... and masked:... of the
model without a head and of the three tasks.
"""
import json
import os
import sys
import tempfile

import torch
import transformers

from make_decoders import filled
from make_models import ids, padded, show, show_saved

BERT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=24,
            type_vocab_size=2)
ROBERTA = {**BERT, "max_position_embeddings": 26, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
           "layer_norm_eps": 1e-5}
DISTILBERT = dict(vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=24, pad_token_id=0)
# Heads of 8 elements, a window of two tokens to each side, and texts that are longer.
MODERN = dict(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=20, max_position_embeddings=24,
              pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=4)
CLASSES = dict(id2label={"0": "O", "1": "B-X", "2": "I-X"}, label2id={"O": 0, "B-X": 1, "I-X": 2})
OF_4 = {"torch_dtype": "float32", "position_embedding_type": "absolute", "transformers_version": "4.40.1", "use_cache": True}
OF_5 = {"dtype": "float32", "transformers_version": "5.24.0", "tie_word_embeddings": True}
NOT_TIED = {"tie_word_embeddings": False}

# The first of each family also shows what Python saves, and those whose head for masked words has weights of its own show that.
CASES = {
    "bert": {"model_type": "bert", **BERT, **CLASSES, **OF_4},
    "bert_5": {"model_type": "bert", **BERT, **CLASSES, **OF_5, **NOT_TIED, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "pad_token_id": None},
    "roberta": {"model_type": "roberta", **ROBERTA, **CLASSES, **OF_4},
    "roberta_5": {"model_type": "roberta", **ROBERTA, **CLASSES, **OF_5, **NOT_TIED, "type_vocab_size": 2, "pad_token_id": 3, "hidden_act": "relu",
                  "classifier_dropout": 0.3},
    "xlmroberta": {"model_type": "xlm-roberta", **ROBERTA, **CLASSES, **OF_4, "output_past": True},
    "distilbert": {"model_type": "distilbert", **DISTILBERT, **CLASSES, "sinusoidal_pos_embds": False, **OF_4},
    "distilbert_5": {"model_type": "distilbert", **DISTILBERT, **CLASSES, "activation": "silu", "seq_classif_dropout": 0.4, **OF_5},
    "electra": {"model_type": "electra", **BERT, **CLASSES, "embedding_size": 20, "summary_type": "first", "summary_use_proj": True, **OF_4},
    "electra_5": {"model_type": "electra", **BERT, **CLASSES, "embedding_size": 32, "hidden_act": "relu", **OF_5, **NOT_TIED},
    "modernbert": {"model_type": "modernbert", **MODERN, **CLASSES, "global_attn_every_n_layers": 2, "global_rope_theta": 500.0,
                   "local_rope_theta": 40.0, "classifier_pooling": "mean", "layer_norm_eps": 1e-05, "norm_eps": 1e-05,
                   "reference_compile": True, **OF_4},
    "modernbert_5": {"model_type": "modernbert", **MODERN, **CLASSES, "norm_bias": True, "attention_bias": True, "mlp_bias": True,
                     "classifier_bias": True, "decoder_bias": True, "classifier_activation": "silu", "hidden_activation": "gelu_new",
                     "norm_eps": 1e-3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                     "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 900.0},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}, **OF_5, **NOT_TIED},
    "modernbert_bare": {"model_type": "modernbert", **MODERN, **CLASSES, "decoder_bias": False, **OF_4,
                        "position_embedding_type": "sans_pos"},
}
TASKS = {"body": transformers.AutoModel, "texts": transformers.AutoModelForSequenceClassification,
         "tokens": transformers.AutoModelForTokenClassification, "masked": transformers.AutoModelForMaskedLM}
# The gradients that are shown of the parameters with these ends.
ENDS = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight", "embeddings_project.weight",
        "layer.1.attention.self.query.weight", "layer.1.attention.q_lin.weight", "layer.0.output.LayerNorm.weight",
        "layer.0.sa_layer_norm.weight", "layer.0.attention.out_lin.bias", "dense.weight", "pre_classifier.weight", "out_proj.weight",
        "classifier.bias", "vocab_transform.weight", "vocab_layer_norm.weight", "layer_norm.bias", "predictions.LayerNorm.bias",
        "predictions.bias", "lm_head.bias", "vocab_projector.bias", "generator_lm_head.bias", "decoder.weight", "generator_lm_head.weight",
        "decoder.bias", "tok_embeddings.weight", "embeddings.norm.weight", "layers.1.attn.Wqkv.weight", "layers.2.attn.Wqkv.weight",
        "layers.0.attn.Wo.weight", "layers.1.attn_norm.weight", "layers.2.mlp.Wi.weight", "layers.0.mlp.Wo.bias", "final_norm.weight",
        "head.norm.weight", "head.norm.bias")


def new_model(config, task):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        read = transformers.AutoConfig.from_pretrained(folder)
    model = TASKS[task].from_config(read).eval()
    # XLM-R has its head first, where the embedding would be called by the head's name.
    if "lm_head" in model._modules:
        model._modules["lm_head"] = model._modules.pop("lm_head")
    return model


def show_gradients(name, task, model):
    layers = ("layer.0.intermediate", "layer.0.attention.output", "layer.1.", "layer.0.output.dense")
    for parameter, tensor in model.named_parameters():
        ends = parameter.endswith(ENDS) and (not parameter.endswith("dense.weight") or not any(part in parameter for part in layers))
        if ends and tensor.grad is not None:
            show(name, f"{task}:gradient:{parameter}", tensor.grad)


def inputs(config):
    """Texts with padding at the end, and their types."""
    padding = config.get("pad_token_id", 0) or 0
    tokens, mask = ids(3, 9, 60), torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    tokens[1, 6:] = padding
    # A token that is none of padding, but has its id.
    tokens[2, 4] = padding
    types = (torch.arange(9) > 4).long().expand(3, 9)
    has_types = config.get("type_vocab_size", 1) > 1
    return {"input_ids": tokens, "attention_mask": mask, **({"token_type_ids": types} if has_types else {})}


def body(name, config):
    model = filled(new_model(config, "body"))
    given = inputs(config)
    out = model(**given)
    show(name, "body:hidden", out.last_hidden_state[given["attention_mask"].bool()])
    if "pooler_output" in out:
        show(name, "body:pooled", out.pooler_output)
    padding = config.get("pad_token_id", 0) or 0
    rows, mask = padded(3, 7, 60, padding)
    show(name, "body:front", model(input_ids=rows, attention_mask=mask).last_hidden_state[mask.bool()])
    positions = torch.tensor([[(2 * i + row) % 9 for i in range(9)] for row in range(3)])
    if "roberta" in config["model_type"]:
        positions = positions + padding + 1
    ones = torch.ones_like(positions)
    show(name, "body:places", model(input_ids=ids(3, 9, 60), attention_mask=ones, position_ids=positions).last_hidden_state)
    return model


def task(name, config, kind):
    model = filled(new_model(config, kind))
    given = inputs(config)
    if kind == "texts":
        labels = torch.tensor([0, 2, 1])
    else:
        labels = ids(3, 9, 3 if kind == "tokens" else 60, first=1)
        labels[given["attention_mask"] == 0] = -100
        labels[:, ::2] = -100
    out = model(**given, labels=labels)
    shown = out.logits if kind == "texts" else out.logits[given["attention_mask"].bool()]
    show(name, f"{kind}:logits", shown)
    show(name, f"{kind}:loss", out.loss)
    out.loss.backward()
    show_gradients(name, kind, model)
    return model


def main():
    torch.set_num_threads(1)
    for name, config in CASES.items():
        print(name, "config", json.dumps(config))
        models = {"body": body(name, config), **{kind: task(name, config, kind) for kind in ("texts", "tokens", "masked")}}
        for kind, model in models.items():
            if "_" not in name or (kind == "masked" and not model.config.tie_word_embeddings):
                show_saved(f"{name}.{kind}", model)


if __name__ == "__main__":
    sys.exit(main())
