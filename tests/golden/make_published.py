#!/usr/bin/env python3
"""What transformers makes of the folders of ../interop/published_folders.py: make_published.py

Run it with a Python that has torch, safetensors and transformers 5. Writes published.json beside it: tokens, generated texts,
translations, vectors and losses, which ../interop/published_folders_test.py compares with those of Lockstep's programs.
"""
import json
import os
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))

import torch
import transformers
from published_folders import publish
from published_texts import BLOCK, LINES, NEW_TOKENS, PAIRS, PROMPTS, TEXTS

LANGUAGES = {"nllb-200-distilled-600M": ("eng_Latn", "deu_Latn"), "mbart-large-50-many-to-many-mmt": ("en_XX", "ro_RO"),
             "mbart-large-cc25": ("en_XX", "ro_RO")}


def greedy(model, **how):
    return model.generate(**how, max_new_tokens=NEW_TOKENS, do_sample=False)


def causal(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    generated = []
    for prompt in PROMPTS:
        tokens = tokenizer(prompt, return_tensors="pt")
        generated.append(tokenizer.decode(greedy(model, **tokens, num_beams=1)[0, tokens.input_ids.shape[1]:], skip_special_tokens=True))
    joined = [token for line in LINES for token in tokenizer(line + "\n").input_ids]
    blocks = torch.tensor(joined[: len(joined) // BLOCK * BLOCK]).reshape(-1, BLOCK)
    logits = model(blocks).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), blocks[:, 1:].reshape(-1))
    return {"tokens": [tokenizer(prompt).input_ids for prompt in PROMPTS], "texts": generated, "blocks": len(blocks), "loss": loss.item()}


def translations(folder, source, target):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    language = tokenizer.convert_tokens_to_ids(target)
    first = {"decoder_start_token_id" if type(tokenizer).__name__ == "MBartTokenizer" else "forced_bos_token_id": language}
    answers = {"tokens": [tokenizer(text).input_ids for text in TEXTS[:3]],
               "targets": [tokenizer(text_target=text).input_ids for text in TEXTS[:3]], "language": language}
    for name, beams, how in (("greedy", 1, first), ("beams", 2, first), ("without", 1, {})):
        answers[name] = []
        for text in TEXTS:
            tokens = tokenizer(text, return_tensors="pt")
            ids = greedy(model, **tokens, **how, num_beams=beams, early_stopping=False)[0, 1:]
            answers[name].append(tokenizer.decode(ids, skip_special_tokens=True))
    total, count = 0, 0
    for pair in PAIRS:
        labels = tokenizer(text_target=pair["target"], return_tensors="pt").input_ids
        loss = model(**tokenizer(pair["source"], return_tensors="pt"), labels=labels).loss
        total, count = total + loss.item() * labels.shape[1], count + labels.shape[1]
    return {**answers, "loss": total / count}


def vectors(folder):
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()
    means = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS[:3]]
    return {"tokens": [tokenizer(text).input_ids for text in TEXTS[:3]], "vectors": [(mean / mean.norm()).tolist() for mean in means]}


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        folders = publish(root)
        answers = {name: causal(folders[name]) for name in ("opt-125m", "gpt2")}
        answers |= {name: translations(folders[name], *languages) for name, languages in LANGUAGES.items()}
        answers["bert-base-uncased"] = vectors(folders["bert-base-uncased"])
    with open(os.path.join(HERE, "published.json"), "w", encoding="ascii") as file:
        json.dump(answers, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
