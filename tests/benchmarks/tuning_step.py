#!/usr/bin/env python3
"""Steps of fine-tuning a Llama of 15 million parameters on conversations (sft) and preferences (dpo), one thread:
    tuning_step.py BUILD [ROUNDS]

Beside trl's SFTTrainer and DPOTrainer. Both sides load the same folder, with random weights, and the same four rows, which are each
step's batch: the first losses must be equal. A step's time is the runtime that the trainers report, divided by the steps. Run it with
a Python that has torch, transformers, trl and datasets. Prints medians.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from harness.benchmark import OURS, Benchmark, Outputs, Row, Setting

ROWS, WORDS, KINDS = 4, 96, ("sft", "dpo")
TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def make_folder(place):
    """The model, its tokenizer of whole words, and the rows. Made once."""
    folder = os.path.join(place, "tuned")
    if os.path.exists(folder):
        return folder
    import tokenizers
    import torch
    import transformers
    names = ["<|end|>", "<|user|>", "<|assistant|>", *(f"w{i}" for i in range(7997))]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(names[:3])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(names), hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=512, bos_token_id=None, eos_token_id=0, pad_token_id=0)).save_pretrained(folder)
    fast.save_pretrained(folder)
    def say(row, role, count):
        return {"role": role, "content": " ".join(f"w{(row * 977 + i * 31 + count) % 7997}" for i in range(count))}
    with open(os.path.join(place, "sft.jsonl"), "w", encoding="utf-8") as file:
        for row in range(ROWS):
            file.write(json.dumps({"messages": [say(row, "user", WORDS // 3), say(row, "assistant", 2 * WORDS // 3)]}) + "\n")
    with open(os.path.join(place, "dpo.jsonl"), "w", encoding="utf-8") as file:
        for row in range(ROWS):
            file.write(json.dumps({"prompt": [say(row, "user", WORDS // 3)], "chosen": [say(row, "assistant", 2 * WORDS // 3)],
                                   "rejected": [say(row, "assistant", WORDS // 2)]}) + "\n")
    return folder


def train(folder, kind, rows_file, steps, output):
    """trl's side: prints what the programs print of it."""
    import datasets
    import torch
    import transformers
    import trl
    torch.set_num_threads(1)
    rows = datasets.Dataset.from_list([json.loads(line) for line in open(rows_file, encoding="utf-8")])
    config, trainer = (trl.SFTConfig, trl.SFTTrainer) if kind == "sft" else (trl.DPOConfig, trl.DPOTrainer)
    args = config(output_dir=output, max_steps=int(steps), per_device_train_batch_size=ROWS, logging_steps=1, learning_rate=1e-4,
                  save_strategy="no", report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    made = trainer(model, args=args, train_dataset=rows, processing_class=transformers.AutoTokenizer.from_pretrained(folder))
    made.train()
    for entry in made.state.log_history:
        print(json.dumps(entry))


def turn(command_of, setting):
    found, settings = {}, {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    folder = make_folder(setting.folder)
    for kind in KINDS:
        steps = 4 if setting.quick else 12
        output = os.path.join(setting.folder, "out")
        done = subprocess.run(command_of(kind, folder, os.path.join(setting.folder, kind + ".jsonl"), str(steps), output), env=settings,
                              check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        setting.outputs.same(f"first loss, {kind}", round(float(re.search(r"['\"]loss['\"]: '?([\d.]+)", done.stdout).group(1)), 3))
        found[kind] = 1000 * float(re.search(r"['\"]train_runtime['\"]: '?([\d.]+)", done.stdout).group(1)) / steps
    return found


def sides(setting):
    def ours(kind, folder, rows, steps, output):
        return [setting.program("bin/" + kind), "--model", folder, "--train-file", rows, "--max-steps", steps, "--output-dir", output,
                "--per-device-train-batch-size", str(ROWS), "--logging-steps", "1", "--learning-rate", "1e-4", "--save-strategy", "no",
                "--device", "cpu", "--disable-tqdm", "--report-to", "none", "--resume-from-checkpoint", "never",
                "--cache-dir", os.path.join(setting.folder, "cache")]

    def peer(kind, folder, rows, steps, output):
        return [sys.executable, "-B", os.path.abspath(__file__), "--train", folder, kind, rows, steps, output]
    return {OURS: lambda: turn(ours, setting), "trl": lambda: turn(peer, setting)}


BENCHMARK = Benchmark(
    "tuning_step", "a Llama of 15 million parameters, 4 conversations of 100 tokens, AdamW, one thread", "performance.md",
    (Row("sft", "a step of SFT", "ms"), Row("dpo", "a step of DPO, with a second model as reference", "ms")),
    sides, ("bin/sft", "bin/dpo"), {OURS: ("torch", "transformers"), "trl": ("torch", "transformers", "trl", "datasets")},
    rounds=3, quick_rounds=2)


def main():
    if sys.argv[1] == "--train":
        return train(*sys.argv[2:7])
    rounds, times = int(sys.argv[2]) if len(sys.argv) > 2 else 3, {}
    with tempfile.TemporaryDirectory() as place:
        setting = Setting(os.path.abspath(sys.argv[1]), place, False, Outputs())
        for _ in range(rounds):
            for side, action in sides(setting).items():
                for kind, value in action().items():
                    times.setdefault((kind, side), []).append(value)
    for (kind, side), values in sorted(times.items()):
        print(f"{kind:8} {side:8} {statistics.median(values):10.1f}")


if __name__ == "__main__":
    main()
