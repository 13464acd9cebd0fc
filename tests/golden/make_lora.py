"""Writes lora.txt: what PEFT's adapters answer and how it saves them, for comparison with Lockstep's.

    PYTHONHASHSEED=0 python make_lora.py > lora.txt        (peft 0.21.2, transformers 5.24.0, torch 2.11)

NAME config JSON is the config.json of the model, NAME adapter JSON the text of adapter_config.json as PEFT saves it, and NAME file the
size and the CRC-32 of its adapter_model.safetensors. The other lines are those of make_models.py. Weights are filled by its formula, under
their names in files.
"""
import json
import math
import os
import sys
import tempfile
import zlib

import peft
import torch
import transformers

from make_models import ids, seed_of, show

SMALL = dict(vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, bos_token_id=1, eos_token_id=2)
LLAMA = dict(model_type="llama", **SMALL)
GPT2 = dict(model_type="gpt2", vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
CAUSAL = "CAUSAL_LM"

CASES = {
    "llama": (dict(LLAMA, tie_word_embeddings=False), dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type=CAUSAL)),
    "llama_usual": (dict(LLAMA, tie_word_embeddings=True), dict(r=2, lora_alpha=3, init_lora_weights="gaussian", task_type=CAUSAL)),
    "llama_all": (dict(LLAMA, tie_word_embeddings=True, attention_bias=True),
                  dict(r=4, lora_alpha=8, target_modules="all-linear", bias="all", use_rslora=True, rank_pattern={"down_proj": 2},
                       alpha_pattern={r"layers\.1\.self_attn.q_proj": 5}, task_type=CAUSAL)),
    "llama_saved": (dict(LLAMA, tie_word_embeddings=False, attention_bias=True),
                    dict(r=3, lora_alpha=6, target_modules=r".*\.(q|o)_proj", bias="lora_only", modules_to_save=["lm_head"],
                         task_type=CAUSAL)),
    "llama_layers": (dict(LLAMA, tie_word_embeddings=True),
                     dict(r=2, target_modules=["up_proj", "q_proj", "k_proj"], layers_to_transform=[1], layers_pattern="layers",
                          exclude_modules=["self_attn.q_proj"], task_type=CAUSAL)),
    "llama_tokens": (dict(LLAMA, tie_word_embeddings=False),
                     dict(r=3, lora_alpha=6, target_modules=["embed_tokens", "q_proj"], task_type=CAUSAL)),
    "llama_norms": (dict(LLAMA, tie_word_embeddings=True),
                    dict(r=2, lora_alpha=6, target_modules=["q_proj"], modules_to_save=["norm"], task_type=CAUSAL)),
    "gpt2": (GPT2, dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, task_type=CAUSAL)),
}


def clean(name):
    for part in ("base_model.model.", ".default", ".base_layer", ".modules_to_save"):
        name = name.replace(part, "")
    return name


def fill(model):
    """make_models.py's fill(), under the names in files."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if ".original_module" in name:
                continue
            places = torch.arange(tensor.numel(), dtype=torch.float64)
            size = math.sqrt(2 * tensor.shape[0] / tensor.numel()) if tensor.dim() > 1 else 0.1
            values = torch.sin(places * places * 0.0310585 + places * 0.7 + seed_of(clean(name))) * size
            if tensor.dim() == 1 and name.endswith("weight"):
                values = values + 1
            tensor.copy_(values.view(tensor.shape).float())


def base_model(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        read = transformers.AutoConfig.from_pretrained(folder)
    read._name_or_path = "models/base"
    return transformers.AutoModelForCausalLM.from_config(read).eval()


def case(name, config, adapter):
    print(name, "config", json.dumps(config))
    base = base_model(config)
    torch.manual_seed(3)
    model = peft.get_peft_model(base, peft.LoraConfig(**adapter)).eval()
    trained = {clean(key): value for key, value in model.named_parameters() if value.requires_grad}
    layers = [key for key in trained if ".lora_" in key]
    for key in (layers[0], layers[-2]):
        show(name, "new:" + key, trained[key])
    fill(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(os.path.join(folder, "adapter_config.json")) as file:
            print(name, "adapter", json.dumps(file.read()))
        with open(os.path.join(folder, "adapter_model.safetensors"), "rb") as file:
            content = file.read()
        print(name, "file", len(content), zlib.crc32(content))
    print(name, "trained", *sorted(trained))
    tokens = ids(2, 12, 50)
    out = model(input_ids=tokens, labels=tokens)
    show(name, "logits", out.logits)
    show(name, "loss", out.loss)
    out.loss.backward()
    for key, value in trained.items():
        show(name, "gradient:" + key, value.grad)
    if adapter.get("bias", "none") == "none" and "modules_to_save" not in adapter:
        with model.disable_adapter():
            show(name, "off", model(input_ids=tokens).logits)
    merged = model.merge_and_unload()
    show(name, "merged", merged(input_ids=tokens).logits)
    weight = layers[0].split(".lora_")[0] + ".weight"
    show(name, "merged:" + weight, dict(merged.named_parameters())[weight])


def main():
    torch.set_num_threads(1)
    for name, (config, adapter) in CASES.items():
        case(name, config, adapter)


if __name__ == "__main__":
    sys.exit(main())
