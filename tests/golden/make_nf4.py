"""Writes nf4.txt: what bitsandbytes' quantized weights are on a CPU, and what transformers and PEFT answer with them, for comparison with
Lockstep's.

    python make_nf4.py > nf4.txt        (bitsandbytes 0.50.2, peft 0.21.2, transformers 5.24.0, accelerate, torch 2.11)

CASE quantized PACKED ABSMAX NESTED OFFSET F32 BF16 F16: the CRC-32 of a quantized tensor's parts and of what becomes of them in three
dtypes, and its offset. The values are exact (see values), so that no sum of them is rounded. Blocks of 64 follow one another in memory,
whatever the rows are; bitsandbytes' CPU library scales by wrong blocks in rows of 32, 80, 96 or 160. So what
becomes of a tensor is computed by its general implementation, and rows of the small model are multiples of 64. CASE text JSON: its
quant_state. qlora tensor:NAME CRC: a tensor of the folder that transformers saves of a small model, which it has quantized; the other
lines are those of make_models.py, with an adapter and without.
"""
import json
import os
import sys
import tempfile
import zlib
from types import SimpleNamespace

import bitsandbytes.functional as bnb
import peft
import torch
import transformers
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
from safetensors.torch import load_file

from make_lora import base_model, clean, fill
from make_models import ids, show

LLAMA = dict(model_type="llama", vocab_size=50, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, attention_bias=True,
             tie_word_embeddings=False)
CASES = {
    "small": ((7, 10), torch.float32, True), "odd": ((3, 5), torch.bfloat16, True), "plain": ((40, 24), torch.float16, False),
    "rows": ((24, 96), torch.float32, True), "large": ((300, 512), torch.float32, True),
    "large_bf16": ((300, 512), torch.bfloat16, True), "zeros": ((4, 64), torch.float32, True),
}


def values(shape, dtype, name):
    """Multiples of 2^-12 of at most 1; rounded for 16 bits."""
    i = torch.arange(shape[0] * shape[1])
    whole = (i * i * 13 + i * 7919) % 2003 - 1001
    scaled = whole.float() / 1024 / 2 ** (i // 64 % 3).float()
    if name == "zeros":
        scaled[64:128] = 0
    return scaled.view(shape).to(dtype)


def crc(tensor):
    return zlib.crc32(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def quantized(name, shape, dtype, double_quant):
    packed, state = bnb.quantize_4bit(values(shape, dtype, name), blocksize=64, compress_statistics=double_quant, quant_type="nf4")
    parts = [crc(packed), crc(state.absmax), crc(state.state2.absmax) if double_quant else 0]
    scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if double_quant else state.absmax
    back = []
    for other in (torch.float32, torch.bfloat16, torch.float16):
        back.append(crc(_dequantize_4bit_compute(packed.view(-1), scales, state.code, state.blocksize, shape, other)))
    print(name, "quantized", *parts, float(state.offset) if double_quant else 0, *back)
    print(name, "text", bytes(state.as_dict(packed=True)["quant_state.bitsandbytes__nf4"].tolist()).decode())


def qlora():
    print("qlora config", json.dumps(LLAMA))
    settings = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                               bnb_4bit_compute_dtype=torch.float32)
    tokens = ids(2, 12, 50)
    with tempfile.TemporaryDirectory() as folder:
        whole = base_model(LLAMA)
        fill(whole)
        whole.save_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings, dtype=torch.float32).train()
        saved = os.path.join(folder, "saved")
        model.save_pretrained(saved)
        with open(os.path.join(saved, "config.json")) as file:
            print("qlora settings", json.dumps(json.load(file)["quantization_config"]))
        for name, tensor in sorted(load_file(os.path.join(saved, "model.safetensors")).items()):
            print("qlora", f"tensor:{name}", crc(tensor), *tensor.shape)
        show("qlora", "base", model(input_ids=tokens).logits)
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
        trained = {name: tensor for name, tensor in adapted.named_parameters() if ".lora_" in name}
        fill(SimpleNamespace(named_parameters=trained.items))
        out = adapted(input_ids=tokens, labels=tokens)
        show("qlora", "logits", out.logits)
        show("qlora", "loss", out.loss)
        out.loss.backward()
        for name, tensor in trained.items():
            show("qlora", "gradient:" + clean(name), tensor.grad)


def main():
    torch.set_num_threads(1)
    print("levels nested", crc(bnb.create_dynamic_map()))
    print("levels nf4", crc(bnb.get_4bit_type("nf4", device="cpu")))
    for name, (shape, dtype, double_quant) in CASES.items():
        quantized(name, shape, dtype, double_quant)
    qlora()


if __name__ == "__main__":
    sys.exit(main())
