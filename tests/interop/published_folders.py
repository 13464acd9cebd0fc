"""Tiny models in the layout in which their authors publish them: published_folders.py FOLDER

Writes FOLDER/NAME for each of the names below: the tokenizer's files of tests/golden/pretrained.jsonl, config.json with the
fields and generation_config.json with the settings of the hub, and weights under the published names, in the published form:
a pickle of torch.save (opt-125m in float16, nllb, mbart), or safetensors (bert-base-uncased with TensorFlow's norms and the
heads of the pretraining; gpt2 without prefix and with masks). Weights are a formula of names, so that all runs have the same.
"""
import json
import os
import sys
import zlib

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, LAYERS, HEADS, INNER, POSITIONS = 16, 2, 2, 24, 64


def tokenizer_files(name):
    with open(os.path.join(HERE, "..", "golden", "pretrained.jsonl"), encoding="ascii") as file:
        rows = [json.loads(line) for line in file]
    row = next(row for row in rows if row["name"] == name)
    files = {file: rows[text]["files"][file] if isinstance(text, int) else text for file, text in row["files"].items()}
    return files, row["size"]


def values(name, shape):
    """Numbers around 0 for weights, around 1 for norms, of integers alone: the same on every machine."""
    count = torch.Size(shape).numel()
    places = torch.arange(count, dtype=torch.int64) + zlib.crc32(name.encode()) % 1000003
    mixed = (places * places * 2654435761 + places * 40503) % 2000003
    spread = mixed.double() / 1000001.5 - 1
    if len(shape) > 1:
        return (spread * (3.0 / shape[-1]) ** 0.5).float().reshape(shape)
    return (spread * 0.2 + (1 if name.endswith(("weight", "gamma")) else 0)).float()


class Weights(dict):
    def add(self, name, *shape):
        self[name] = values(name, shape)

    def pair(self, name, *shape, transposed=False):
        self.add(f"{name}.weight", *shape)
        self.add(f"{name}.bias", shape[-1] if transposed else shape[0])


def attention(weights, name):
    for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
        weights.pair(f"{name}.{part}", WIDTH, WIDTH)
    weights.pair(f"{name}_layer_norm", WIDTH)


def layer(weights, name, crosses=False):
    attention(weights, f"{name}.self_attn")
    if crosses:
        attention(weights, f"{name}.encoder_attn")
    weights.pair(f"{name}.fc1", INNER, WIDTH)
    weights.pair(f"{name}.fc2", WIDTH, INNER)
    weights.pair(f"{name}.final_layer_norm", WIDTH)


def opt_125m():
    files, words = tokenizer_files("opt-125m")
    weights = Weights()
    weights.add("decoder.embed_tokens.weight", words, WIDTH)
    weights.add("decoder.embed_positions.weight", POSITIONS + 2, WIDTH)
    weights.pair("decoder.final_layer_norm", WIDTH)
    for i in range(LAYERS):
        layer(weights, f"decoder.layers.{i}")
    config = {"_name_or_path": "facebook/opt-125m", "_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu",
              "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": True, "dropout": 0.0,
              "eos_token_id": 2, "ffn_dim": INNER, "hidden_size": WIDTH, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": POSITIONS,
              "model_type": "opt", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "pad_token_id": 1, "prefix": "</s>",
              "torch_dtype": "float16", "transformers_version": "4.21.0.dev0", "use_cache": True, "vocab_size": words, "word_embed_proj_dim": WIDTH}
    generation = {"_from_model_config": True, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "transformers_version": "4.27.0.dev0"}
    return files, config, generation, "pytorch_model.bin", {name: tensor.half() for name, tensor in weights.items()}


def gpt2():
    files, words = tokenizer_files("gpt2")
    weights = Weights()
    weights.add("wte.weight", words, WIDTH)
    weights.add("wpe.weight", POSITIONS, WIDTH)
    for i in range(LAYERS):
        weights.pair(f"h.{i}.ln_1", WIDTH)
        weights["h.%d.attn.bias" % i] = torch.ones(1, 1, POSITIONS, POSITIONS).tril()
        weights.pair(f"h.{i}.attn.c_attn", WIDTH, 3 * WIDTH, transposed=True)
        weights.pair(f"h.{i}.attn.c_proj", WIDTH, WIDTH, transposed=True)
        weights.pair(f"h.{i}.ln_2", WIDTH)
        weights.pair(f"h.{i}.mlp.c_fc", WIDTH, 4 * WIDTH, transposed=True)
        weights.pair(f"h.{i}.mlp.c_proj", 4 * WIDTH, WIDTH, transposed=True)
    weights.pair("ln_f", WIDTH)
    config = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": words - 1, "embd_pdrop": 0.1,
              "eos_token_id": words - 1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": POSITIONS, "n_embd": WIDTH,
              "n_head": HEADS, "n_layer": LAYERS, "n_positions": POSITIONS, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
              "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
              "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": words}
    config["bos_token_id"] = config["eos_token_id"] = json.loads(files["vocab.json"])["<|endoftext|>"]
    generation = {"bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"], "transformers_version": "4.26.0.dev0", "_from_model_config": True}
    return files, config, generation, "model.safetensors", weights


def bert_base_uncased():
    files, words = tokenizer_files("bert-base-uncased")
    weights = Weights()

    def norm(name):
        weights.add(f"{name}.LayerNorm.gamma", WIDTH)
        weights.add(f"{name}.LayerNorm.beta", WIDTH)

    weights.add("bert.embeddings.word_embeddings.weight", words, WIDTH)
    weights.add("bert.embeddings.position_embeddings.weight", POSITIONS, WIDTH)
    weights.add("bert.embeddings.token_type_embeddings.weight", 2, WIDTH)
    norm("bert.embeddings")
    for i in range(LAYERS):
        name = f"bert.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            weights.pair(f"{name}.attention.self.{part}", WIDTH, WIDTH)
        weights.pair(f"{name}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{name}.attention.output")
        weights.pair(f"{name}.intermediate.dense", INNER, WIDTH)
        weights.pair(f"{name}.output.dense", WIDTH, INNER)
        norm(f"{name}.output")
    weights.pair("bert.pooler.dense", WIDTH, WIDTH)
    weights.add("cls.predictions.bias", words)
    weights.pair("cls.predictions.transform.dense", WIDTH, WIDTH)
    norm("cls.predictions.transform")
    weights.pair("cls.seq_relationship", 2, WIDTH)
    config = {"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False, "hidden_act": "gelu",
              "hidden_dropout_prob": 0.1, "hidden_size": WIDTH, "initializer_range": 0.02, "intermediate_size": INNER, "layer_norm_eps": 1e-12,
              "max_position_embeddings": POSITIONS, "model_type": "bert", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "pad_token_id": 0,
              "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": True, "vocab_size": words}
    return files, config, None, "model.safetensors", weights


def seq2seq(words, learned_positions):
    """The weights of M2M100's and mBART's family, each name of the shared embedding as the published pickles have it."""
    weights = Weights()
    weights.add("model.shared.weight", words, WIDTH)
    # Languages and other special tokens are at the end: they are chosen less often than words.
    weights["model.shared.weight"][-56:] *= 0.25
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_tokens.weight"] = weights["model.shared.weight"]
        if learned_positions:
            weights.add(f"model.{side}.embed_positions.weight", POSITIONS + 2, WIDTH)
            weights.pair(f"model.{side}.layernorm_embedding", WIDTH)
        for i in range(LAYERS):
            layer(weights, f"model.{side}.layers.{i}", crosses=side == "decoder")
        weights.pair(f"model.{side}.layer_norm", WIDTH)
    weights["lm_head.weight"] = weights["model.shared.weight"]
    if learned_positions:
        weights["final_logits_bias"] = torch.zeros(1, words)
    return weights


def sizes(words):
    return {"activation_dropout": 0.0, "attention_dropout": 0.1, "d_model": WIDTH, "decoder_attention_heads": HEADS, "decoder_ffn_dim": INNER,
            "decoder_layerdrop": 0.0, "decoder_layers": LAYERS, "dropout": 0.1, "encoder_attention_heads": HEADS, "encoder_ffn_dim": INNER,
            "encoder_layerdrop": 0.0, "encoder_layers": LAYERS, "init_std": 0.02, "is_encoder_decoder": True, "max_position_embeddings": POSITIONS,
            "num_hidden_layers": LAYERS, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "scale_embedding": True, "use_cache": True,
            "vocab_size": words}


def nllb():
    files, words = tokenizer_files("nllb-200-distilled-600M")
    config = {**sizes(words), "_name_or_path": "facebook/nllb-200-distilled-600M", "activation_function": "relu", "architectures": ["M2M100ForConditionalGeneration"],
              "decoder_start_token_id": 2, "max_length": 200, "model_type": "m2m_100", "tokenizer_class": "NllbTokenizer", "torch_dtype": "float32",
              "transformers_version": "4.21.0.dev0"}
    generation = {"_from_model_config": True, "bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "max_length": 200, "pad_token_id": 1,
                  "transformers_version": "4.27.0.dev0"}
    return files, config, generation, "pytorch_model.bin", seq2seq(words, learned_positions=False)


def mbart_50():
    files, words = tokenizer_files("mbart-large-50-many-to-many-mmt")
    config = {**sizes(words), "activation_function": "relu", "add_bias_logits": False, "add_final_layer_norm": True, "architectures": ["MBartForConditionalGeneration"],
              "classifier_dropout": 0.0, "decoder_start_token_id": 2, "early_stopping": True, "forced_eos_token_id": 2, "max_length": 200, "model_type": "mbart",
              "normalize_before": True, "normalize_embedding": True, "num_beams": 5, "static_position_embeddings": False, "tokenizer_class": "MBart50Tokenizer"}
    return files, config, None, "pytorch_model.bin", seq2seq(words, learned_positions=True)


def mbart_en_ro():
    files, words = tokenizer_files("mbart-large-en-ro")
    config = {**sizes(words), "activation_function": "gelu", "add_final_layer_norm": True, "architectures": ["MBartForConditionalGeneration"],
              "max_length": 200, "model_type": "mbart", "normalize_before": True, "normalize_embedding": True, "num_beams": 5,
              "static_position_embeddings": False, "task_specific_params": {"translation_en_to_ro": {"decoder_start_token_id": 250020}}}
    return files, config, None, "pytorch_model.bin", seq2seq(words, learned_positions=True)


FOLDERS = {"opt-125m": opt_125m, "gpt2": gpt2, "bert-base-uncased": bert_base_uncased, "nllb-200-distilled-600M": nllb,
           "mbart-large-50-many-to-many-mmt": mbart_50, "mbart-large-cc25": mbart_en_ro}


def write_weights(tensors, path):
    if path.endswith(".safetensors"):
        save_file(dict(tensors), path, metadata={"format": "pt"})
    else:
        torch.save(dict(tensors), path)


def publish(root):
    """Writes all folders; returns their paths by their names."""
    for name, make in FOLDERS.items():
        folder = os.path.join(root, name)
        os.makedirs(folder)
        files, config, generation, weights_file, tensors = make()
        files = {**files, "config.json": json.dumps(config, indent=2)}
        if generation:
            files["generation_config.json"] = json.dumps(generation, indent=2)
        for file, text in files.items():
            with open(os.path.join(folder, file), "w", encoding="utf-8", newline="") as out:
                out.write(text)
        write_weights(tensors, os.path.join(folder, weights_file))
    return {name: os.path.join(root, name) for name in FOLDERS}


if __name__ == "__main__":
    publish(sys.argv[1])
