"""Writes generation.jsonl: what transformers' generate() writes with each of its settings, for comparison with Lockstep's.

    python make_generation.py > generation.jsonl        (transformers 5.24.0, torch 2.11)

The models are those of make_models.py, tiny and filled by its formula. One line a case:
{"model", "settings", "prompts", "texts"}: `settings` as a generation_config.json has them, for each prompt (or source text)
the texts that it gets alone, without the prompt's tokens and without padding.
{"settings", "texts", "prompt", "sources", "scores"}: what processors and warpers make of fixed scores; null is minus infinity.
{"model", "settings", "prompts", "seed", "texts"}: samples after torch.manual_seed(seed).
{"config", "generation", "texts"}: a BART's folder with these fields in config.json and this generation_config.json.
"""
import json
import os
import sys
import tempfile

import torch
import transformers
from make_models import fill, ids, small_bart

PADDING = 1
# An end token, and other tokens that the models like.
LIKED = {"gpt2": (25, 39, 6, 27, 15), "bart": (47, 35, 0, 39, 28)}


def gpt2():
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=3, bos_token_id=49, eos_token_id=49)
    model = transformers.GPT2LMHeadModel(config).eval()
    fill(model, 3.0)
    return model


def bart():
    model = small_bart()
    # So that texts do not repeat one token.
    with torch.no_grad():
        model.model.decoder.embed_positions.weight.mul_(20)
    return model


def prompts():
    """Texts of different lengths, which repeat themselves."""
    rows = ids(4, 9, 50).tolist()
    rows[0] = rows[0][:4]
    rows[1] = rows[1][:3] + rows[1][:3] + [rows[1][0]]
    rows[2] = rows[2][:1]
    return rows


def base(name):
    if name == "gpt2":
        return {"eos_token_id": LIKED[name][0], "pad_token_id": PADDING, "bos_token_id": 49}
    return {"eos_token_id": LIKED[name][0], "pad_token_id": PADDING, "bos_token_id": 0, "decoder_start_token_id": 2}


def cut(text, end):
    """Without what follows the first end token."""
    ends = end if isinstance(end, list) else [end]
    for place, token in enumerate(text):
        if token in ends:
            return text[:place + 1]
    return text


def written(name, model, settings, row, seed=None):
    model.generation_config = transformers.GenerationConfig.from_dict(dict(settings))
    if seed is not None:
        torch.manual_seed(seed)
    tokens = torch.tensor([row])
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens)).tolist()
    skipped = len(row) if name == "gpt2" else 1
    return [cut(text[skipped:], settings["eos_token_id"]) for text in out]


def show(**line):
    print(json.dumps(line, separators=(",", ":")))


def case(models, name, **settings):
    settings = {**base(name), **settings}
    texts = [written(name, models[name], settings, row) for row in prompts()]
    show(model=name, settings=settings, prompts=prompts(), texts=texts)


def each_setting(models, name):
    def both(**settings):
        case(models, name, **settings)
        case(models, name, num_beams=3, **settings)

    (end, first, second, third, fourth), room = LIKED[name], {"max_new_tokens": 9}
    both()
    both(max_length=12)
    both(max_new_tokens=5)
    both(max_length=30, max_new_tokens=4)
    both(min_length=11, max_new_tokens=12)
    both(min_new_tokens=6, **room)
    both(min_length=3, min_new_tokens=8, **room)
    both(repetition_penalty=1.4, **room)
    both(repetition_penalty=0.7, **room)
    for size in (1, 2, 3):
        both(no_repeat_ngram_size=size, **room)
        both(encoder_no_repeat_ngram_size=size, **room)
    both(bad_words_ids=[[first], [second, second], [third, fourth, third], [end], [third, end]], **room)
    both(suppress_tokens=[first, third, 60, -1], **room)
    both(begin_suppress_tokens=[first, 8, 25, 41, 38], **room)
    both(begin_suppress_tokens=[first, 8, 25, 41, 38], forced_bos_token_id=7, **room)
    both(forced_bos_token_id=7, **room)
    both(forced_eos_token_id=8, **room)
    both(forced_eos_token_id=end, max_length=12)
    both(eos_token_id=[end, second, 32], **room)
    both(eos_token_id=[end, second, 32], min_new_tokens=3, **room)
    both(renormalize_logits=True, suppress_tokens=[first, second], **room)
    for stopping in (True, False, "never"):
        for penalty in (-1.0, 0.0, 1.0, 2.5):
            case(models, name, num_beams=4, early_stopping=stopping, length_penalty=penalty, eos_token_id=[end, third, 23, 30], **room)
    case(models, name, num_beams=4, num_return_sequences=3, **room)
    case(models, name, num_beams=4, num_return_sequences=4, early_stopping=True, eos_token_id=[end, third, 23, 30], **room)
    case(models, name, num_beams=4, num_return_sequences=4, forced_bos_token_id=7, max_new_tokens=1)
    # As published for summaries, and for translations.
    both(length_penalty=2.0, early_stopping=True, min_length=6, max_length=14, no_repeat_ngram_size=3, forced_bos_token_id=0)
    both(bad_words_ids=[[PADDING]], forced_eos_token_id=end, max_length=14, renormalize_logits=True)
    both(repetition_penalty=1.2, no_repeat_ngram_size=2, encoder_no_repeat_ngram_size=3, min_new_tokens=4, suppress_tokens=[first],
         begin_suppress_tokens=[8, 25], bad_words_ids=[[third, third], [3]], renormalize_logits=True, **room)


def filtered(model, settings, texts, prompt, sources):
    """What processors and warpers make of fixed scores."""
    model.generation_config = transformers.GenerationConfig()
    config, _ = model._prepare_generation_config(transformers.GenerationConfig.from_dict(dict(settings)))
    model._prepare_special_tokens(config, True, device="cpu", batch_size=len(texts))
    config.max_length = prompt + 5
    beams = config.num_beams
    processors = model._get_logits_processor(config, input_ids_seq_length=prompt, encoder_input_ids=torch.tensor(sources), device="cpu",
                                             model_kwargs={})
    places = torch.arange(len(texts) * 50, dtype=torch.float64)
    scores = (torch.sin(places * places * 0.0310585 + places * 0.7) * 4).float().view(len(texts), 50)
    if beams > 1:
        scores = scores.log_softmax(-1)
    out = processors(torch.tensor(texts), scores)
    values = [[None if value == -float("inf") else float(format(value, ".7g")) for value in row] for row in out.tolist()]
    show(settings=settings, texts=texts, prompt=prompt, sources=sources, scores=values)


def distributions(model):
    texts, prompt = ids(4, 7, 50).tolist(), 3
    texts[1] = [4, 5, 6, 4, 5, 6, 4]
    for settings in (
            {}, {"temperature": 0.6}, {"temperature": 1.7, "top_k": 0}, {"top_k": 5}, {"top_k": 1}, {"top_k": 0, "top_p": 0.8},
            {"top_k": 0, "top_p": 1e-6}, {"top_k": 0, "min_p": 0.1}, {"min_p": 0.3, "top_p": 0.9, "temperature": 1.3},
            {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "temperature": 0.8, "top_k": 10, "top_p": 0.7},
            {"bad_words_ids": [[3], [6, 4]], "suppress_tokens": [7, 8], "min_new_tokens": 6, "top_k": 20, "renormalize_logits": True},
            {"encoder_no_repeat_ngram_size": 1, "top_p": 0.95}, {"forced_eos_token_id": 9, "top_k": 3},
            {"begin_suppress_tokens": list(range(40)), "top_k": 0}):
        for beams in (1, 3):
            own = {**base("gpt2"), "do_sample": True, "num_beams": beams, **settings}
            rows = [text for text in texts for _ in range(beams)]
            filtered(model, own, rows, prompt, [text[:prompt] for text in texts])
            filtered(model, own, [text[:prompt] for text in rows], prompt, [text[:prompt] for text in texts])


def samples(models):
    for name in ("gpt2", "bart"):
        for seed, settings in ((4, {}), (5, {"temperature": 1.5, "top_k": 0}), (6, {"top_p": 0.8, "min_p": 0.02}),
                               (7, {"num_return_sequences": 3, "temperature": 2.0}), (8, {"num_beams": 3, "temperature": 2.0}),
                               (9, {"num_beams": 3, "num_return_sequences": 2, "top_p": 0.9, "temperature": 3.0})):
            own = {**base(name), "do_sample": True, "max_new_tokens": 10, **settings}
            # One that ends no text before the others: all are drawn for in each step.
            own["eos_token_id"] = own["eos_token_id"] if "num_return_sequences" not in own or "num_beams" in own else 50
            rows = prompts()[:1]
            show(model=name, settings=own, prompts=rows, seed=seed,
                 texts=[written(name, models[name], own, row, seed) for row in rows])


def folders(model):
    """Which of a folder's files count."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path, own = os.path.join(folder, "config.json"), os.path.join(folder, "generation_config.json")
        with open(path) as file:
            config = json.load(file)
        summary = {"num_beams": 3, "min_length": 6, "no_repeat_ngram_size": 2, "length_penalty": 2.0, "max_length": 12}
        for fields, generation in (
                (summary, None), (summary, {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}),
                ({"force_bos_token_to_be_generated": True}, None), ({"decoder_start_token_id": None}, None),
                ({}, {"bos_token_id": 0, "eos_token_id": 2}), ({}, {"decoder_start_token_id": 5, "max_length": 7, "a_note": "of others"}),
                ({"task_specific_params": {"summarization": {"num_beams": 7, "max_length": 5}}}, None)):
            with open(path, "w") as file:
                json.dump({**config, **fields}, file)
            if os.path.exists(own):
                os.remove(own)
            if generation is not None:
                with open(own, "w") as file:
                    json.dump(generation, file)
            read = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
            tokens = ids(1, 8, 50)
            show(config=fields, generation=generation, texts=read.generate(tokens, attention_mask=torch.ones_like(tokens)).tolist())


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    models = {"gpt2": gpt2(), "bart": bart()}
    for name in models:
        each_setting(models, name)
    distributions(models["gpt2"])
    samples(models)
    folders(models["bart"])


if __name__ == "__main__":
    sys.exit(main())
