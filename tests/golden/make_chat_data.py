#!/usr/bin/env python3
"""What transformers and trl make of conversations as data: make_chat_data.py

Writes chat_data.json beside it, with transformers 5.24.0 and trl 1.16.0: "files" of a tokenizer's folder besides its tokenizer.json,
which is ../unit/tokenizers/roberta.json; "chats", conversations with the texts, ids and masks of apply_chat_template(); "sft", rows
with the ids, labels and positions that SFTTrainer prepares; "losses" of SFTTrainer per predicted token, ten steps with all rows in a
batch, of the GPT-2 that make_models.py fills by a formula.
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
import torch
import transformers
from trl import SFTConfig, SFTTrainer

datasets.disable_progress_bars()
TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- 'A: ' }}{% generation %}{{ (message.content or '') | trim }}{% for call in message.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor %}{{ eos_token }}{% endgeneration %}{{ '\\n' }}
{%- else %}
{{- message.role | upper }}: {{ message.content }}{{ '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'A: ' }}{% endif %}"""
TOOL_TEMPLATE = "{{ tools | length }} tools{% for tool in tools %} {{ tool.function.name }}{% endfor %}\n" + TEMPLATE
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
          "model_max_length": 512, "clean_up_tokenization_spaces": False}
FILES = {"tokenizer_config.json": json.dumps(CONFIG), "chat_template.jinja": TEMPLATE, "additional_chat_templates/tool_use.jinja": TOOL_TEMPLATE}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CHATS = [[user("Hi"), assistant("Hello, citizen.")], [{"role": "system", "content": "Be \u00e4."}, user("First"), assistant(" one "), user("Then"), assistant("two\nlines")],
         [user("\u4f60\u597d \U0001f600"), assistant(None, tool_calls=[{"type": "function", "function": {"name": "speak", "arguments": {"x": 1.5, "y": None}}}])]]
TOOLS = [{"type": "function", "function": {"name": "speak", "parameters": {"type": "object"}}}]
ROWS = {
    "messages": [{"messages": chat} for chat in
                 [[user("Speak"), assistant("No.")], [user("Who are you?"), assistant("All.")], [user("Go"), assistant("We go"), user("Now"), assistant("Yes")],
                  [user("Hear me"), assistant("Speak, speak.")], [user("You are all resolved rather to die than to famish? Say it"), assistant("Resolved.")]]],
    "prompts": [{"prompt": "First Citizen: ", "completion": "speak."}, {"prompt": "All:", "completion": " Resolved"}, {"prompt": "x", "completion": "We know't</s>"}],
    "chats": [{"prompt": [user("Speak")], "completion": [assistant("No more")]}, {"prompt": [user("A"), assistant("B"), user("C")], "completion": [assistant("D")]}],
    "texts": [{"text": "Before we proceed any further"}, {"text": "hear me speak.</s>"}, {"text": ""}],
    "sharegpt": [{"conversations": [{"from": "user", "value": "Speak"}, {"from": "assistant", "value": "No"}]}],
}
SFT = [("messages", {}), ("messages", {"assistant_only_loss": True}), ("messages", {"assistant_only_loss": True, "max_length": 24}),
       ("messages", {"assistant_only_loss": True, "max_length": 12, "truncation_mode": "keep_end"}), ("messages", {"packing": True, "max_length": 40}),
       ("messages", {"packing": True, "max_length": 15, "packing_strategy": "bfd_split", "assistant_only_loss": True}), ("messages", {"packing": True, "max_length": 20, "packing_strategy": "wrapped"}),
       ("prompts", {}), ("prompts", {"completion_only_loss": False}), ("chats", {}), ("chats", {"assistant_only_loss": True}),
       ("chats", {"completion_only_loss": False, "assistant_only_loss": True}), ("texts", {}), ("texts", {"packing": True, "max_length": 16}), ("sharegpt", {})]


def write_folder(folder):
    os.makedirs(os.path.join(folder, "additional_chat_templates"), exist_ok=True)
    shutil.copy(os.path.join(HERE, "..", "unit", "tokenizers", "roberta.json"), os.path.join(folder, "tokenizer.json"))
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def chats(tokenizer):
    for messages in CHATS:
        for options in ({}, {"add_generation_prompt": True}, {"continue_final_message": True}, {"return_assistant_tokens_mask": True}, {"tools": TOOLS}, {"chat_template": "{{ messages[-1].role }}{{ unk_token }}"}):
            row = {"messages": messages, "options": options}
            try:
                row["text"] = tokenizer.apply_chat_template(messages, tokenize=False, **{k: v for k, v in options.items() if k != "return_assistant_tokens_mask"})
                tokens = tokenizer.apply_chat_template(messages, return_dict=True, **options)
                row["ids"] = tokens["input_ids"]
                row["mask"] = tokens.get("assistant_masks", [])
            except ValueError as error:
                row["fails"] = str(error)
            yield row


def model_of(folder):
    from make_models import fill

    config = transformers.GPT2Config(vocab_size=403, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                     bos_token_id=402, eos_token_id=402)
    model = transformers.GPT2LMHeadModel(config)
    fill(model)
    return model


class Recorded(SFTTrainer):
    losses = []

    def compute_loss(self, model, inputs, *args, **kwargs):
        # transformers also counts the label of a row's first token, which nothing predicts; Lockstep does not.
        labels = inputs["labels"]
        counted, predicted = (labels != -100).sum(), (labels[:, 1:] != -100).sum()
        result = super().compute_loss(model, inputs, *args, **kwargs)
        self.losses.append(float((result[0] if isinstance(result, tuple) else result) * counted / predicted))
        return result


def trainer_of(folder, tokenizer, rows, options, steps=1):
    one = dict(options)
    if not one.get("packing"):
        one.setdefault("max_length", 64)
    # A strategy other than wrapped flattens a batch into one row, which the tokens of each row are taken from below.
    args = SFTConfig(output_dir=os.path.join(folder, "out"), max_steps=steps, per_device_train_batch_size=8, learning_rate=1e-3, bf16=False, use_cpu=True, report_to=[],
                     gradient_checkpointing=False, save_strategy="no", lr_scheduler_type="linear", weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, disable_tqdm=True, eos_token="</s>", **one)
    return Recorded(model=model_of(folder), args=args, train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)


def prepared(folder, tokenizer, name, options):
    trainer = trainer_of(folder, tokenizer, ROWS[name], options)
    rows = [dict(row) for row in trainer.train_dataset]
    made = {"rows": name, "options": options, "ids": [row["input_ids"] for row in rows]}
    if options.get("packing") and options.get("packing_strategy") != "wrapped":
        batches = [trainer.data_collator([row]) for row in rows]
        made["labels"] = [batch["labels"][0].tolist() for batch in batches]
        made["positions"] = [batch["position_ids"][0].tolist() for batch in batches]
    else:
        made["labels"] = [row["labels"] for row in rows]
    return made


def losses(folder, tokenizer, options):
    Recorded.losses = []
    trainer_of(folder, tokenizer, ROWS["messages"], options, steps=10).train()
    return [round(loss, 8) for loss in Recorded.losses]


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        single = transformers.AutoTokenizer.from_pretrained(folder)
        made = {"files": FILES, "rows": ROWS, "chats": list(chats(tokenizer))}
        single.chat_template = TEMPLATE
        made["sft"] = [prepared(folder, single, name, options) for name, options in SFT]
        made["losses"] = {"assistant_only": losses(folder, single, {"assistant_only_loss": True, "max_length": 32}), "all": losses(folder, single, {"max_length": 32})}
    with open(os.path.join(HERE, "chat_data.json"), "w", encoding="utf-8") as file:
        text = json.dumps(made, ensure_ascii=False)
        file.write(text.replace('"messages":', '\n"messages":').replace('{"rows": "', '\n{"rows": "') + "\n")


torch.manual_seed(0)
main()
