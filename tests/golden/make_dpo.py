#!/usr/bin/env python3
"""What trl's DPOTrainer makes of preferences: make_dpo.py

Writes dpo.json beside it, with transformers 5.24.0, trl 1.16.0 and peft 0.21.2: "rows" of preferences; "pairs", the ids and labels that
DPOTrainer prepares of them; "runs", ten steps each with all rows of "texts" in a batch, with the loss and the other values that it logs.
The model is the GPT-2 that make_models.py fills by a formula, the tokenizer that of make_chat_data.py. In the runs with "lora", adapters
are filled by that formula as well, and the reference is the model without them; in those with "adapter", DPOTrainer gets a model with such
an adapter, and the reference is what it was at first.
"""
import json
import os
import shutil
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="", HF_DATASETS_CACHE=tempfile.mkdtemp())
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import datasets
import peft
import torch
import transformers
from trl import DPOConfig, DPOTrainer, maybe_extract_prompt

from make_lora import fill as fill_adapted
from make_models import fill

datasets.disable_progress_bars()


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


ROWS = {
    "texts": [{"prompt": "First Citizen: ", "chosen": "speak.", "rejected": "we know"}, {"prompt": "All:", "chosen": " Resolved", "rejected": " No more talking"},
              {"prompt": "Who", "chosen": " is there?</s>", "rejected": "ever"}, {"prompt": "You are all resolved", "chosen": " rather to die", "rejected": " to famish"}],
    "chats": [{"prompt": [user("Speak")], "chosen": [assistant("No more")], "rejected": [assistant("Speak, speak.")]},
              {"prompt": [user("A"), assistant("B"), user("C")], "chosen": [assistant("D")], "rejected": [assistant("E"), user("F"), assistant("G")]}],
    "implicit": [{"chosen": "Speak: No more", "rejected": "Speak: No less of it"}, {"chosen": "Resolved. Resolved", "rejected": "Resolved."},
                 {"chosen": "die \u00e4ngst", "rejected": "die \u00f6ffn"}, {"chosen": "one two", "rejected": "one three"}],
    "implicit_chats": [{"chosen": [user("Go"), assistant("We go")], "rejected": [user("Go"), assistant("No")]},
                       {"chosen": [user("Go"), assistant("We go"), user("Now"), assistant("Yes")], "rejected": [user("Go"), assistant("We go"), user("Now"), assistant("No")]},
                       {"chosen": [user("Go"), assistant("We go")], "rejected": [user("Go"), assistant("We go"), user("Now"), assistant("No")]},
                       {"chosen": [user("Go"), assistant("We go")], "rejected": [user("Go"), user("Now"), assistant("No")]}],
    # The prompt is also in the conversations, as in some published data sets.
    "prompt_texts": [{"prompt": "Go", "chosen": [user("Go"), assistant("We go")], "rejected": [user("Go"), assistant("No")]}],
}
PAIRS = [("texts", {}), ("texts", {"max_length": 8}), ("texts", {"max_length": 5}), ("texts", {"max_length": 5, "truncation_mode": "keep_end"}),
         ("chats", {}), ("implicit", {}), ("implicit_chats", {}), ("implicit_chats", {"max_length": 18}), ("prompt_texts", {})]
RUNS = [("full", {"loss_type": "sigmoid"}), ("full", {"loss_type": "ipo", "beta": 0.3}), ("full", {"loss_type": "robust", "label_smoothing": 0.2}), ("full", {"loss_type": "hinge", "beta": 2.0}),
        ("lora", {"loss_type": "sigmoid", "beta": 0.5}), ("lora", {"loss_type": "ipo", "beta": 0.3}),
        ("adapter", {"loss_type": "sigmoid", "beta": 0.5}), ("full", {"loss_type": "sigmoid", "precompute_ref_log_probs": True})]
LOGGED = ["loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
LORA = dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM")


def write_folder(folder):
    with open(os.path.join(HERE, "chat_data.json"), encoding="utf-8") as file:
        files = json.load(file)["files"]
    shutil.copy(os.path.join(HERE, "..", "unit", "tokenizers", "roberta.json"), os.path.join(folder, "tokenizer.json"))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(files[name])
    config = transformers.GPT2Config(vocab_size=403, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                     bos_token_id=402, eos_token_id=402)
    model = transformers.GPT2LMHeadModel(config)
    fill(model)
    model.save_pretrained(folder)


def fill_adapter(model):
    fill_adapted(model)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if ".lora_" in name:
                tensor.mul_(0.3)


def trainer_of(folder, tokenizer, rows, options, kind="full", steps=1):
    options = {"max_length": 32, **options}
    args = DPOConfig(output_dir=os.path.join(folder, "out"), max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-3, bf16=False, use_cpu=True, report_to=[],
                     gradient_checkpointing=False, save_strategy="no", lr_scheduler_type="linear", weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, disable_tqdm=True, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    if kind == "adapter":
        model = peft.get_peft_model(model, peft.LoraConfig(**LORA))
        fill_adapter(model)
    trainer = DPOTrainer(model=model, args=args, train_dataset=datasets.Dataset.from_list([maybe_extract_prompt(row) for row in rows] if "prompt" in rows[0] else rows), processing_class=tokenizer,
                         peft_config=peft.LoraConfig(**LORA) if kind == "lora" else None)
    if kind == "lora":
        fill_adapter(trainer.model)
    return trainer


def prepared(folder, tokenizer, name, options):
    trainer = trainer_of(folder, tokenizer, ROWS[name], options)
    made = {"rows": name, "options": options, "chosen_ids": [], "chosen_labels": [], "rejected_ids": [], "rejected_labels": []}
    for row in trainer.train_dataset:
        batch = trainer.data_collator([dict(row)])
        for number, side in enumerate(("chosen", "rejected")):
            length = int(batch["attention_mask"][number].sum())
            ids = batch["input_ids"][number][:length].tolist()
            mask = batch["completion_mask"][number][:length].tolist()
            made[side + "_ids"].append(ids)
            made[side + "_labels"].append([token if counts else -100 for token, counts in zip(ids, mask)])
    return made


def run(folder, tokenizer, kind, options):
    trainer = trainer_of(folder, tokenizer, ROWS["texts"], options, kind, steps=10)
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {"kind": kind, "options": options, **{name: [round(float(entry[name]), 8) for entry in steps] for name in LOGGED}}


def main():
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        made = {"rows": ROWS, "pairs": [prepared(folder, tokenizer, name, options) for name, options in PAIRS],
                "runs": [run(folder, tokenizer, kind, options) for kind, options in RUNS]}
    with open(os.path.join(HERE, "dpo.json"), "w", encoding="utf-8") as file:
        text = json.dumps(made, ensure_ascii=False)
        file.write(text.replace('{"rows": "', '\n{"rows": "').replace('{"kind"', '\n{"kind"') + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    main()
