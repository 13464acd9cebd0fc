"""Writes decoders.txt: what transformers' decoders answer, for comparison with Lockstep's.

    python make_decoders.py > decoders.txt        (transformers 5.24.0, torch 2.11)

NAME config JSON is a config.json, as transformers 4 or 5 writes it: both sides read it. The other lines are those of
make_models.py, with weights that both sides fill by its formula.
"""
import json
import os
import sys
import tempfile

import torch
import transformers

from make_models import fill, ids, padded, show, show_saved

SMALL = dict(vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, bos_token_id=1, eos_token_id=2)


def case(model_type, **fields):
    return {"model_type": model_type, **SMALL, **fields}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
SHORT, LONG = [1.0, 1.1, 1.3], [1.5, 2.0, 4.0]
NOT_TIED = dict(tie_word_embeddings=False)
TIED = dict(tie_word_embeddings=True)

# The first of each family also shows what Python saves.
CASES = {
    "llama": case("llama", rope_theta=500.0, rope_scaling=None, eos_token_id=[2, 7], pretraining_tp=1, rms_norm_eps=1e-5, **NOT_TIED),
    "llama_v5": case("llama", rope_parameters={"rope_type": "default", "rope_theta": 500.0}, rms_norm_eps=1e-5, **NOT_TIED),
    "llama_biases": case("llama", head_dim=10, num_key_value_heads=None, attention_bias=True, mlp_bias=True, hidden_act="gelu",
                         pad_token_id=1, **TIED),
    "llama_linear": case("llama", rope_theta=100, rope_scaling={"type": "linear", "factor": 4.0}, **TIED),
    "llama_linear_v5": case("llama", rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}, **TIED),
    "llama_dynamic": case("llama", max_position_embeddings=8, rope_scaling={"rope_type": "dynamic", "factor": 3.0}, **TIED),
    "llama_dynamic_v5": case("llama", max_position_embeddings=8, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 1000.0, "factor": 3.0}, **TIED),
    "llama_yarn": case("llama", head_dim=16, rope_theta=50.0, rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                                                             "original_max_position_embeddings": 8}, **TIED),
    "llama_yarn_v5": case("llama", head_dim=16, rope_parameters={
        "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 0.8,
        "mscale_all_dim": 0.5, "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False}, **TIED),
    "llama_llama3": case("llama", head_dim=16, rope_theta=500.0, rope_scaling={"rope_type": "llama3", **LLAMA3}, **TIED),
    "llama_llama3_v5": case("llama", head_dim=16, rope_parameters={"rope_type": "llama3", "rope_theta": 40.0, **LLAMA3}, **TIED),
    "llama_longrope": case("llama", rope_parameters={"rope_type": "longrope", "rope_theta": 100.0, "short_factor": SHORT,
                                                     "long_factor": LONG, "original_max_position_embeddings": 9}, **TIED),
    "mistral": case("mistral", head_dim=8, sliding_window=4, rope_theta=1000.0, **NOT_TIED),
    "mistral_open": case("mistral", sliding_window=None, **NOT_TIED),
    "qwen2": case("qwen2", use_sliding_window=True, sliding_window=3, max_window_layers=1, rope_theta=1000.0, **TIED),
    "qwen2_no_window": case("qwen2", use_sliding_window=False, sliding_window=3, max_window_layers=0, **NOT_TIED),
    "qwen3": case("qwen3", head_dim=8, attention_bias=True, rope_theta=1000.0, **NOT_TIED),
    "qwen3_v5": case("qwen3", head_dim=8, use_sliding_window=True, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
                     rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 2.0, "original_max_position_embeddings": 16},
                     **TIED),
    "gemma": case("gemma", head_dim=8, num_key_value_heads=1, hidden_act="gelu", pad_token_id=0),
    "gemma2": case("gemma2", head_dim=8, num_hidden_layers=3, sliding_window=4, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
                   final_logit_softcapping=3.0, pad_token_id=0),
    "gemma2_no_caps": case("gemma2", head_dim=8, sliding_window=4, attn_logit_softcapping=None, final_logit_softcapping=None,
                           rope_parameters={"rope_type": "default", "rope_theta": 100.0}),
    "gemma3": case("gemma3_text", head_dim=8, num_hidden_layers=3, sliding_window=4, sliding_window_pattern=2, rope_theta=1000.0,
                   rope_local_base_freq=100.0, rope_scaling={"rope_type": "linear", "factor": 8.0}, query_pre_attn_scalar=8),
    "gemma3_v5": case("gemma3_text", head_dim=8, sliding_window=3, layer_types=["full_attention", "sliding_attention"],
                      rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1000.0},
                                       "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}, final_logit_softcapping=4.0),
    "phi3": case("phi3", sliding_window=5, partial_rotary_factor=0.75, num_attention_heads=3, num_key_value_heads=1, rope_theta=100.0,
                 pad_token_id=0),
    "phi3_long": case("phi3", rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG}, max_position_embeddings=24,
                      original_max_position_embeddings=6, pad_token_id=0),
    "phi3_su": case("phi3", rope_scaling={"type": "su", "original_max_position_embeddings": 9, "short_factor": SHORT,
                                                  "long_factor": LONG}, max_position_embeddings=24,
                    original_max_position_embeddings=9, pad_token_id=0, **TIED),
    "smollm3": case("smollm3", no_rope_layer_interval=2, rope_theta=1000.0, pad_token_id=0),
    "smollm3_window": case("smollm3", no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=3, attention_bias=True, mlp_bias=True,
                           pad_token_id=0),
    "granite": case("granite", embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.3, attention_multiplier=0.2, **TIED),
    "olmo2": case("olmo2", rope_theta=1000.0, pad_token_id=1, **NOT_TIED),
    "olmo2_biases": case("olmo2", attention_bias=True, num_key_value_heads=4, pad_token_id=1, **TIED),
}


def filled(model, scale=1.0):
    """Frequencies are buffers here: they stay."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    fill(model, scale)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
    return model


def new_model(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        read = transformers.AutoConfig.from_pretrained(folder)
    # The kernels of sdpa have no caps.
    eager = config["model_type"] == "gemma2"
    return transformers.AutoModelForCausalLM.from_config(read, attn_implementation="eager" if eager else "sdpa").eval()


def decoder(name, config):
    print(name, "config", json.dumps(config))
    model = filled(new_model(config))
    tokens = ids(2, 12, 50)
    out = model(input_ids=tokens, labels=tokens)
    show(name, "logits", out.logits)
    show(name, "loss", out.loss)
    out.loss.backward()
    parameters = dict(model.named_parameters())
    shown = [f"model.layers.1.{part}" for part in ("self_attn.k_proj.weight", "self_attn.k_proj.bias", "self_attn.qkv_proj.weight",
                                                   "self_attn.q_norm.weight", "mlp.gate_up_proj.weight", "post_attention_layernorm.weight")]
    for parameter in ["model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.down_proj.weight", *shown]:
        if parameter in parameters:
            show(name, "gradient:" + parameter, parameters[parameter].grad)
    if "_" not in name:
        show_saved(name, model)
    rows, mask = padded(3, 7, 50, 1)
    show(name, "padded", model(input_ids=rows, attention_mask=mask).logits[mask.bool()])
    if name == "llama_longrope":
        return
    model = filled(new_model(config), 4.0)
    settings = dict(do_sample=False, max_new_tokens=8, pad_token_id=1)
    show(name, "greedy", model.generate(tokens[:, :4], attention_mask=torch.ones(2, 4, dtype=torch.long), **settings))
    show(name, "greedy:padded", model.generate(rows, attention_mask=mask, **settings))
    if "_" not in name:
        show(name, "beams:padded", model.generate(rows, attention_mask=mask, num_beams=3, **settings))


def main():
    torch.set_num_threads(1)
    for name, config in CASES.items():
        decoder(name, config)


if __name__ == "__main__":
    sys.exit(main())
