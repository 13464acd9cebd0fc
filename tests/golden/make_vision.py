"""Writes vision.txt: what transformers' image classifiers answer, for comparison with Lockstep's.

    python make_vision.py > vision.txt        (transformers 5.24.0, torch 2.11)

NAME config JSON is a config.json, as transformers 4 or 5 writes it: both sides read it. The other lines are those of
make_models.py. Weights are filled by its formula, with the names that published files have and save_pretrained writes;
gradients have these names, too.
"""
import json
import math
import os
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

from make_models import seed_of, show

LABELS = {"id2label": {str(i): f"class {i}" for i in range(5)}, "label2id": {f"class {i}": i for i in range(5)}}
SMALL = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, image_size=24, patch_size=8, num_channels=3,
             initializer_range=0.02, hidden_act="gelu", **LABELS)
STAGES = dict(hidden_sizes=[8, 12, 20], depths=[1, 2, 1], num_stages=3, patch_size=4, num_channels=3, hidden_act="gelu", image_size=32,
              initializer_range=0.02, **LABELS)
V4 = dict(torch_dtype="float32", transformers_version="4.30.0")
V5 = dict(dtype="float32", transformers_version="5.24.0")
LAYER = "encoder.layer.1."
ATTENTION = LAYER + "attention.attention."

# Class, fields, names of the gradients without the prefix of the body.
CASES = {
    "vit": ("ViTForImageClassification", dict(SMALL, intermediate_size=40, layer_norm_eps=1e-12, encoder_stride=8, qkv_bias=True, **V4),
            [ATTENTION + "query.weight", LAYER + "layernorm_after.weight", "embeddings.position_embeddings", "embeddings.cls_token",
             "embeddings.patch_embeddings.projection.weight"]),
    "vit_v5": ("ViTForImageClassification", dict(SMALL, intermediate_size=40, qkv_bias=False, hidden_act="gelu_pytorch_tanh", image_size=[24, 24],
                                                 pooler_act="tanh", pooler_output_size=24, **V5),
               [ATTENTION + "key.weight", LAYER + "output.dense.weight", "embeddings.cls_token"]),
    "deit": ("DeiTForImageClassification", dict(SMALL, intermediate_size=40, **V4),
             [ATTENTION + "value.weight", "embeddings.distillation_token", "embeddings.position_embeddings"]),
    "deit_teacher": ("DeiTForImageClassificationWithTeacher", dict(SMALL, intermediate_size=40, **V5),
                     [ATTENTION + "value.bias", "embeddings.distillation_token", LAYER + "intermediate.dense.weight"]),
    "dinov2": ("Dinov2ForImageClassification", dict(SMALL, mlp_ratio=3, layerscale_value=1.0, drop_path_rate=0.4, use_swiglu_ffn=False,
                                                    layer_norm_eps=1e-6, reshape_hidden_states=True, out_features=["stage2"], out_indices=[2],
                                                    stage_names=["stem", "stage1", "stage2"], **V4),
               [LAYER + "layer_scale1.lambda1", LAYER + "mlp.fc1.weight", "embeddings.position_embeddings"]),
    "dinov2_swiglu": ("Dinov2ForImageClassification", dict(SMALL, mlp_ratio=4, use_swiglu_ffn=True, use_mask_token=False, **V5),
                      [LAYER + "layer_scale2.lambda1", LAYER + "mlp.weights_in.weight", LAYER + "mlp.weights_out.bias"]),
    "convnext": ("ConvNextForImageClassification", dict(STAGES, layer_norm_eps=1e-12, layer_scale_init_value=1e-6, drop_path_rate=0.0, **V4),
                 ["encoder.stages.1.layers.1.layer_scale_parameter", "encoder.stages.2.downsampling_layer.1.weight",
                  "encoder.stages.0.layers.0.dwconv.weight", "embeddings.layernorm.weight"]),
    "convnext_plain": ("ConvNextForImageClassification", dict(STAGES, layer_scale_init_value=0.0, drop_path_rate=0.6, **V5),
                       ["encoder.stages.1.layers.0.pwconv1.weight", "layernorm.bias"]),
}


def model_type_of(name):
    return name.split("_")[0]


def filled(tensors):
    """fill() of make_models.py, by the names of the file."""
    for name, tensor in tensors.items():
        places = torch.arange(tensor.numel(), dtype=torch.float64)
        size = math.sqrt(2 * tensor.shape[0] / tensor.numel()) if tensor.dim() > 1 else 0.1
        values = torch.sin(places * places * 0.0310585 + places * 0.7 + seed_of(name)) * size
        if tensor.dim() == 1 and name.endswith("weight"):
            values = values + 1
        tensor.copy_(values.view(tensor.shape).float())
    return tensors


def saved(model):
    """The tensors that save_pretrained writes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def model_of(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        kind = getattr(transformers, config["architectures"][0])
        tensors = filled(saved(kind(transformers.AutoConfig.from_pretrained(folder))))
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        model, report = kind.from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        return model.eval(), tensors


def images(height, width):
    return torch.sin(torch.arange(2 * 3 * height * width, dtype=torch.float64) * 0.37).view(2, 3, height, width).float()


def logits_of(model, pixels, more=None):
    return model(pixels, **(more or {})).logits


def main():
    torch.set_num_threads(1)
    for name, (kind, fields, gradients) in CASES.items():
        kind_of_model = model_type_of(name)
        config = {"model_type": kind_of_model, "architectures": [kind], **fields}
        print(name, "config", json.dumps(config))
        model, tensors = model_of(config)
        side = 32 if kind_of_model == "convnext" else 24
        logits = logits_of(model, images(side, side))
        show(name, "logits", logits)
        labels = torch.tensor([0, 4])
        loss = torch.nn.functional.cross_entropy(logits, labels)
        show(name, "loss", loss)
        loss.backward()
        other = {"interpolate_pos_encoding": True} if kind_of_model in ("vit", "deit") else {}
        with torch.no_grad():
            show(name, "wide", logits_of(model, images(32, 56), other))
            show(name, "small", logits_of(model, images(17, 17), other))
            model.train()
            torch.manual_seed(5)
            for step in range(2):
                show(name, f"dropped:{step}", logits_of(model, images(side, side)))
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        grads = saved(model)
        heads = [head for head in grads if "classifier" in head and head.endswith("weight")]
        for gradient in [f"{kind_of_model}.{part}" for part in gradients] + heads:
            show(name, "gradient:" + gradient, grads[gradient])
        for tensor in sorted(tensors):
            print(name, "saved:" + tensor, *tensors[tensor].shape)


if __name__ == "__main__":
    sys.exit(main())
