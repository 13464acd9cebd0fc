"""Folders of models as their authors publish them, against transformers: model_folders_compare.py PEER

For each family a tiny folder is written in the published layout: its names of weights, dtype and fields. PEER (model_folders_peer)
loads it, says its logits and texts, and saves it. transformers must say the same of the folder, and
load what PEER saved: no name missing or unexpected, the same logits and texts, the same configuration and generation settings. What
transformers then saves of a decoder, an encoder or an image classifier are the bytes that PEER saved.
Leaves with 77 (skipped) where transformers is not installed.
"""
import filecmp
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError:
    sys.exit(77)

os.environ["HF_HUB_OFFLINE"] = "1"
SMALL = dict(vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
             encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40)
IMAGES = {"vit", "deit", "dinov2", "convnext"}
KINDS = {"encoder": transformers.AutoModel, "causal": transformers.AutoModelForCausalLM, "seq2seq": transformers.AutoModelForSeq2SeqLM,
         "texts": transformers.AutoModelForSequenceClassification, "tokens": transformers.AutoModelForTokenClassification,
         "masked": transformers.AutoModelForMaskedLM, "image": transformers.AutoModelForImageClassification}
DECODERS = {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "smollm3", "granite", "olmo2"}
ENCODERS = {"bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert"}
TENSORFLOW = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


def tf_norms(tensors):
    for new, old in TENSORFLOW.items():
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    return {**tensors, "bert.embeddings.position_ids": torch.arange(40)[None]}


def bare(prefix, more=()):
    return lambda tensors: {**{name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, **dict(more)}


def every_name(tensors):
    words = tensors["model.shared.weight"]
    names = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"]
    return {**tensors, **{name: words.clone() for name in names}}


def encoders():
    """Those of today, with what their published files have besides."""
    sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=40)
    roberta = dict(sizes, type_vocab_size=1, max_position_embeddings=42, layer_norm_eps=1e-5)
    positions = lambda prefix, length: lambda tensors: {**tensors, f"{prefix}.embeddings.position_ids": torch.arange(length)[None]}
    with_words = lambda name, words: lambda tensors: {**tensors, name: tensors[words].clone()}
    distil = transformers.DistilBertConfig(vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40)
    modern = transformers.ModernBertConfig(**sizes, local_attention=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
                                           sep_token_id=2, classifier_pooling="mean")
    # As answerdotai/ModernBERT-base spells it.
    modern_4 = {"layer_types": None, "rope_parameters": None, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
                "local_rope_theta": 10000.0, "layer_norm_eps": 1e-5, "position_embedding_type": "absolute"}
    not_tied = dict(tie_word_embeddings=False)
    for config in (transformers.BertConfig(**sizes, **not_tied), transformers.RobertaConfig(**roberta, **not_tied),
                   transformers.ElectraConfig(**sizes, embedding_size=12, **not_tied)):
        yield (f"{config.model_type}-untied", "masked", KINDS["masked"].from_config(config), dict, {}, None)
    for kind in ("encoder", "texts", "tokens", "masked"):
        for name, config, change, fields in (
                ("bert", transformers.BertConfig(**sizes), dict, {"position_embedding_type": "absolute"}),
                ("roberta", transformers.RobertaConfig(**roberta), positions("roberta", 42), {"transformers_version": "4.17.0"}),
                ("xlm-roberta", transformers.XLMRobertaConfig(**roberta), dict, {"output_past": True}),
                ("distilbert", distil, dict, {"sinusoidal_pos_embds": False, "tie_weights_": True}),
                ("electra", transformers.ElectraConfig(**sizes, embedding_size=12), positions("electra", 40), {"summary_use_proj": True}),
                ("modernbert", modern, dict, {"reference_compile": False}), ("modernbert-4", modern, dict, modern_4)):
            words = {"roberta": with_words("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
                     "distilbert": with_words("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight")}
            yield (f"{name}-{kind}", kind, KINDS[kind].from_config(config), words.get(name, change) if kind == "masked" else change, fields, None)


def cases():
    """Name, task, model, what the published file has otherwise, fields of config.json, generation_config.json."""
    bert = transformers.BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                                   max_position_embeddings=40)
    yield ("bert", "encoder", transformers.BertForPreTraining(bert), tf_norms,
           {"gradient_checkpointing": False, "transformers_version": "4.6.0.dev0"}, None)
    gpt2 = transformers.GPT2Config(vocab_size=60, n_positions=40, n_embd=16, n_layer=2, n_head=2, bos_token_id=59, eos_token_id=59)
    masks = [(f"h.{i}.attn.bias", torch.ones(1, 1, 40, 40).tril()) for i in range(2)]
    yield ("gpt2", "causal", transformers.GPT2LMHeadModel(gpt2), bare("transformer.", masks),
           {"n_ctx": 40, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}},
           {"_from_model_config": True, "bos_token_id": 59, "eos_token_id": 59, "transformers_version": "4.26.0.dev0"})
    opt = transformers.OPTConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2, ffn_dim=24, num_attention_heads=2,
                                 max_position_embeddings=40)
    yield ("opt", "causal", transformers.OPTForCausalLM(opt), bare("model."), {"prefix": "</s>", "activation_dropout": 0.0},
           {"_from_model_config": True, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1})
    m2m = transformers.M2M100Config(**SMALL)
    yield ("nllb", "seq2seq", transformers.M2M100ForConditionalGeneration(m2m), every_name,
           {"max_length": 200, "tokenizer_class": "NllbTokenizer", "num_hidden_layers": 2},
           {"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "max_length": 200, "pad_token_id": 1})
    mbart = transformers.MBartConfig(**SMALL, scale_embedding=True, decoder_start_token_id=5)
    yield ("mbart", "seq2seq", transformers.MBartForConditionalGeneration(mbart), every_name,
           {"normalize_before": True, "add_final_layer_norm": True, "static_position_embeddings": False}, None)
    marian = transformers.MarianConfig(**SMALL, pad_token_id=59, decoder_start_token_id=59, activation_function="swish", scale_embedding=True)
    yield ("marian", "seq2seq", transformers.MarianMTModel(marian), every_name, {"static_position_embeddings": True, "extra_pos_embeddings": 58101},
           {"bad_words_ids": [[59]], "bos_token_id": 0, "decoder_start_token_id": 59, "eos_token_id": 0, "forced_eos_token_id": 0,
            "max_length": 40, "pad_token_id": 59, "num_beams": 1})
    sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=2, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=40, bos_token_id=1, eos_token_id=2, pad_token_id=None)
    tokens = {"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 0}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    frequencies = lambda tensors: {**tensors, **{f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}}
    with_head = lambda tensors: {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    for kind, change, fields, more in (
            ("Llama", frequencies, {"pretraining_tp": 1}, {"rope_parameters": {"rope_theta": 500.0, **llama3}, "tie_word_embeddings": False}),
            ("Mistral", dict, {}, {"sliding_window": 4, "head_dim": 6, "tie_word_embeddings": False}),
            ("Qwen2", with_head, {}, {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "tie_word_embeddings": True}),
            ("Qwen3", dict, {}, {"head_dim": 6, "tie_word_embeddings": False}),
            ("Gemma", dict, {}, {"head_dim": 6}),
            ("Gemma2", dict, {}, {"head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 12, "attn_logit_softcapping": 2.0,
                                  "final_logit_softcapping": 3.0}),
            ("Gemma3Text", dict, {"sliding_window_pattern": 2}, {"head_dim": 6, "sliding_window": 4}),
            ("Phi3", dict, {"embd_pdrop": 0.0}, {"sliding_window": 5}),
            ("SmolLM3", dict, {}, {"no_rope_layer_interval": 2}),
            ("Granite", dict, {}, {"residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 2.0, "embedding_multiplier": 3.0}),
            ("Olmo2", dict, {}, {})):
        config = getattr(transformers, kind + "Config")(**{**sizes, **more})
        yield (kind, "causal", transformers.AutoModelForCausalLM.from_config(config), change, fields, tokens)
    yield from encoders()
    yield from image_cases()


def image_cases():
    """As the hub has them: without a head under bare names, with a pooler, with fields of old versions."""
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8)
    pooler = {"vit.pooler.dense.weight": torch.ones(16, 16), "vit.pooler.dense.bias": torch.ones(16)}
    vit = transformers.ViTConfig(**sizes, intermediate_size=24, num_labels=3)
    yield ("vit", "image", transformers.ViTForImageClassification(vit), lambda tensors: {**tensors, **pooler}, {"layer_norm_eps": 1e-12}, None)
    deit = transformers.DeiTConfig(**sizes, intermediate_size=24)
    yield ("deit", "image", transformers.DeiTForImageClassificationWithTeacher(deit), dict, {"encoder_stride": 8}, None)
    dinov2 = transformers.Dinov2Config(**sizes, mlp_ratio=2, use_swiglu_ffn=True, num_labels=4)
    yield ("dinov2", "image", transformers.Dinov2ForImageClassification(dinov2), dict, {"apply_layernorm": False}, None)
    convnext = transformers.ConvNextConfig(hidden_sizes=[8, 12], depths=[1, 2], num_stages=2, num_labels=3, layer_scale_init_value=0.5)
    yield ("convnext", "image", transformers.ConvNextForImageClassification(convnext), dict, {"image_size": 64}, None)


def publish(folder, model, change, fields, generation):
    model.save_pretrained(folder)
    tensors = {name: tensor.contiguous() for name, tensor in change(load_file(f"{folder}/model.safetensors")).items()}
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    config.pop("dtype", None)
    config.update({"torch_dtype": "float32", **fields})
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)
    if generation is None:
        if os.path.exists(f"{folder}/generation_config.json"):
            os.remove(f"{folder}/generation_config.json")
    else:
        with open(f"{folder}/generation_config.json", "w") as file:
            json.dump(generation, file)


def answers(folder, task):
    with open(f"{folder}/config.json") as file:
        # The kernels of sdpa have no caps.
        kernel = {"attn_implementation": "eager"} if json.load(file)["model_type"] == "gemma2" else {}
    model, report = KINDS[task].from_pretrained(folder, output_loading_info=True, **kernel)
    model.eval()
    tokens = torch.tensor([[5, 9, 12, 33, 4, 7, 2]])
    with torch.no_grad():
        if task == "image":
            pixels = torch.arange(3 * 32 * 48).mul(0.37).sin().view(1, 3, 32, 48)
            interpolates = model.config.model_type in ("vit", "deit")
            return report, {"logits": model(pixels, **({"interpolate_pos_encoding": True} if interpolates else {})).logits}
        if task == "encoder":
            return report, {"logits": model(tokens).last_hidden_state}
        if task in ("texts", "tokens", "masked"):
            return report, {"logits": model(tokens).logits}
        if task == "causal":
            out = {"logits": model(tokens).logits}
        else:
            out = {"logits": model(input_ids=tokens, decoder_input_ids=tokens).logits}
        # The other settings are the folder's.
        out["texts"] = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, num_beams=2)
    return report, out


def same(one, other):
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=1e-4, atol=1e-4)


def compare(peer, root, name, task, model, change, fields, generation):
    folder, out = f"{root}/{name}", f"{root}/{name}-again"
    publish(folder, model, change, fields, generation)
    subprocess.run([peer, task, folder, out], check=True)
    _, theirs = answers(folder, task)
    ours = load_file(f"{out}/answers.safetensors")
    problems = [f"{name}: {key} differ: {theirs[key].flatten()[:8].tolist()} {ours[key].flatten()[:8].tolist()}"
                for key in theirs if not same(theirs[key], ours[key])]
    report, again = answers(out, task)
    problems += [f"{name}: {kind} of the saved folder: {sorted(names)}" for kind, names in report.items()
                 if names and "pooler" not in str(names)]
    problems += [f"{name}: {key} of the saved folder differ" for key in theirs if not same(theirs[key], again[key])]
    if model.config.model_type in DECODERS | ENCODERS | IMAGES:
        KINDS[task].from_pretrained(out).save_pretrained(f"{out}-python")
        if not filecmp.cmp(f"{out}/model.safetensors", f"{out}-python/model.safetensors", shallow=False):
            problems.append(f"{name}: model.safetensors has other bytes than that which Python saves of it")
    for file in ("config.json", "generation_config.json"):
        exists = [os.path.exists(f"{place}/{file}") for place in (folder, out)]
        if exists != [exists[0]] * 2:
            problems.append(f"{name}: {file} exists {exists}")
        elif exists[0]:
            before, after = (json.load(open(f"{place}/{file}")) for place in (folder, out))
            before.pop("architectures", None), after.pop("architectures", None)
            if before != after:
                problems.append(f"{name}: {file} changed: {before} {after}")
    return problems


def main(peer):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    problems = []
    with tempfile.TemporaryDirectory() as root:
        for case in cases():
            # Larger weights than new ones, so that texts differ.
            with torch.no_grad():
                for parameter in case[2].parameters():
                    if parameter.requires_grad and parameter.dim() > 1:
                        parameter.mul_(20)
            problems += compare(peer, root, *case)
    print("\n".join(problems) or "the folders are the same")
    return 1 if problems else 0


sys.exit(main(sys.argv[1]))
