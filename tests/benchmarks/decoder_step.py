#!/usr/bin/env python3
"""Steps of a Llama of 100 million parameters, full and with LoRA, and the memory of a loss over 128,256 tokens, one thread:
    decoder_step.py DECODER_STEP [ROUNDS]

Beside transformers, with PEFT for the adapters and PyTorch's fused AdamW. Ours trains with an Accelerator, as programs do, which tunes
malloc and, on processors where that is faster, multiplies by oneDNN. Both sides load the same folder, with random weights,
and read the same ids: the first losses must be equal. Memory is what a process needs at most beyond the loaded model. Run it with
a Python that has torch, transformers and peft. Prints medians.
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from harness.benchmark import OURS, Benchmark, Outputs, Row, Setting

SIZES = {"full": {"vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 12,
                  "num_key_value_heads": 4},
         "loss": {"vocab_size": 128256, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4,
                  "num_key_value_heads": 4, "tie_word_embeddings": True}}
SHAPES = {"full": (2, 128), "lora": (2, 128), "loss": (2, 512)}
KINDS = tuple(SHAPES)


def make_folder(kind, place):
    """Made once."""
    import torch
    import transformers
    size = "loss" if kind == "loss" else "full"
    folder = os.path.join(place, size)
    if not os.path.exists(folder):
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(max_position_embeddings=1024, **SIZES[size])).save_pretrained(folder)
    return folder


def status(name):
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def begin_peak():
    """The resident size, with which VmHWM begins anew: loading may have needed more than the steps do."""
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")
    return status("VmRSS:")


def train(folder, kind, rows, tokens, steps):
    """Prints what decoder_step does."""
    import torch
    import transformers
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if kind == "lora":
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4, fused=True)
    ids = (torch.arange(rows * tokens) * 7919 % model.config.vocab_size).reshape(rows, tokens)
    before = begin_peak()
    for step in range(steps):
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        if kind != "loss":
            optimizer.step()
        optimizer.zero_grad()
        took = (time.perf_counter() - begin) * 1000
        if step == 0:
            print(f"loss {loss.item():.4f}")
        print(f"step {took:.3f}")
    print(f"memory {status('VmHWM:') - before:.1f}")


def parse(text, outputs, kind):
    """The milliseconds of each step but the first, in which memory is made, or of the loss the memory."""
    outputs.same(f"first loss, {kind}", round(float(re.search(r"loss ([\d.]+)", text).group(1)), 3))
    if kind == "loss":
        return float(re.search(r"memory ([\d.]+)", text).group(1))
    return [float(found) for found in re.findall(r"step ([\d.]+)", text)][1:]


def turn(command, setting):
    """One run of each kind: a process of its own, whose memory nothing else has used."""
    found, settings = {}, {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for kind in KINDS:
        rows, tokens = SHAPES[kind]
        steps = 2 if kind == "loss" else 3 if setting.quick else 6
        words = [*command, make_folder(kind, setting.folder), kind, str(rows), str(tokens), str(steps)]
        done = subprocess.run(words, env=settings, check=True, text=True, stdout=subprocess.PIPE)
        found[kind] = parse(done.stdout, setting.outputs, kind)
    return found


def sides(setting):
    peer = [sys.executable, "-B", os.path.abspath(__file__), "--train"]
    return {OURS: lambda: turn([setting.program("tests/decoder_step")], setting), "transformers, peft": lambda: turn(peer, setting)}


BENCHMARK = Benchmark(
    "decoder_step", "a Llama of 100 million parameters, 2 x 128 tokens, AdamW, one thread", "performance.md",
    (Row("full", "a full step of a Llama, 100 M parameters", "ms"),
     Row("lora", "a LoRA step of it, r = 16, all linear layers", "ms"),
     Row("loss", "memory of a loss over 128,256 tokens and its gradients", "MiB")),
    sides, ("tests/decoder_step",), {name: ("torch", "transformers", "peft") for name in (OURS, "transformers, peft")},
    rounds=3, quick_rounds=2)


def main():
    if sys.argv[1] == "--train":
        return train(*sys.argv[2:4], *map(int, sys.argv[4:7]))
    rounds, times = int(sys.argv[2]) if len(sys.argv) > 2 else 3, {}
    with tempfile.TemporaryDirectory() as place:
        setting = Setting(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1]))), place, False, Outputs())
        for _ in range(rounds):
            for side, action in sides(setting).items():
                for kind, values in action().items():
                    times.setdefault((kind, side), []).append(statistics.median(values) if isinstance(values, list) else values)
    for (kind, side), values in sorted(times.items()):
        print(f"{kind:8} {side:20} {statistics.median(values):10.1f}")


if __name__ == "__main__":
    main()
