#!/usr/bin/env python3
"""Folders of tokenizers as models are published, and what AutoTokenizer of transformers makes of them: make_pretrained.py [--anew]

Run it with a Python that has transformers 5 (PyTorch is not needed) and tokenizers. Adds the folders that are not yet there to
pretrained.jsonl beside it, or with --anew writes all: one folder a line, {"name", "files": {file: text}, "options", and "error" or "size", "settings", "texts", "targets", "decoded",
"padded"}. The files have the names, the keys and the layout that the models on the hub have, and small vocabularies, which
are trained on ../interop/tokenizer_training.txt.
"""
import base64
import json
import os
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
INTEROP = os.path.join(HERE, "..", "interop")
sys.path.insert(0, INTEROP)

import tokenizer_charsmap
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

with open(os.path.join(INTEROP, "tokenizer_training.txt"), encoding="utf-8") as training_file:
    LINES = training_file.read().splitlines()[:120]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
TEXTS = ["Hello world, don't STOP!", "  two  blanks \n", "caf\u00e9 na\u00efve \u4e2d\u6587 12345 \U0001f600", "", "a <s> b </s> <mask> c <pad> [MASK] [SEP]",
         "x <|endoftext|> y<unk>z", "<|im_start|>user\nhi<|im_end|> <extra_id_0> eng_Latn de_DE"]
PAIRS = [("one text", "and another"), ("<s>", " lead")]
CHARSMAP = base64.b64encode(tokenizer_charsmap.charsmap({"\ufb01": "fi", "\u00a0": " ", "\uff21": "A", "\u2026": "..."})).decode()


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def byte_level(special, size=400):
    """(vocabulary, merges) of a byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=ALPHABET, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def word_pieces(special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), size=300):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(special), show_progress=False))
    return json.loads(tokenizer.to_str())["model"]["vocab"]


def pieces(special, size=260, more=()):
    """The vocabulary of a Unigram: [piece, score]."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, trainers.UnigramTrainer(vocab_size=size, special_tokens=list(special), unk_token="<unk>", show_progress=False))
    return json.loads(tokenizer.to_str())["model"]["vocab"] + [[token, 0.0] for token in more]


def characters(special, size=500, more=()):
    """(vocabulary, merges) of a BPE on characters, as SentencePiece's are converted."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), limit_alphabet=60, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    for token in more:
        model["vocab"][token] = len(model["vocab"])
    return model["vocab"], model["merges"]


def merge_lines(merges):
    return "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)


def token(content, **how):
    """A token as tokenizer_config.json and special_tokens_map.json have had it."""
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, **how}


def typed(content, **how):
    return {"__type": "AddedToken", **token(content, **how)}


def added(tokens, vocab, **how):
    return [{"id": vocab[t] if t in vocab else None, "special": True, **token(t, normalized=False), **how} for t in tokens]


def document(model, added_tokens=(), normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None, truncation=None, padding=None):
    part = lambda value: json.loads(value.__getstate__()) if value is not None else None
    return {"version": "1.0", "truncation": truncation, "padding": padding, "added_tokens": list(added_tokens), "normalizer": part(normalizer),
            "pre_tokenizer": part(pre_tokenizer), "post_processor": part(post_processor), "decoder": part(decoder), "model": model}


def metaspace(**how):
    return {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True, **how}


def template(single, pair, vocab):
    names = sorted({name.split(":")[0] for name in single.split() + pair.split() if not name.startswith("$")})
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(name, vocab[name]) for name in names])


def in_order(vocab):
    return [t for t, _ in sorted(vocab.items(), key=lambda item: item[1])]


def bert_folders():
    vocab = word_pieces()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    lines = "".join(t + "\n" for t in in_order(vocab))
    # As it was saved years ago: with a type in neither, and the length of the training.
    file = document({"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}, added(specials, vocab),
                    normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", vocab),
                    decoders.WordPiece())
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": len(vocab)}
    yield "bert-base-uncased", {"config.json": config, "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 512}, "tokenizer.json": file, "vocab.txt": lines}, {}
    yield "bert-base-cased", {"config.json": config, "tokenizer_config.json": {"do_lower_case": False, "model_max_length": 512}, "vocab.txt": lines}, {}
    yield "bert of accents", {"config.json": config, "vocab.txt": lines, "tokenizer_config.json": {
        "do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False, "tokenizer_class": "BertTokenizer", "clean_up_tokenization_spaces": True,
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]", "model_max_length": 1000000000000000019884624838656}}, {}
    yield "bert without configurations", {"config.json": config, "vocab.txt": lines}, {"do_lower_case": False}
    # sentence-transformers saves what it trained with.
    cut = {"direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    typed_file = {**file, "model": {"type": "WordPiece", **file["model"]}}
    decoder = {str(vocab[t]): token(t, normalized=False, special=True) for t in specials}
    yield "all-MiniLM-L6-v2", {"config.json": config, "tokenizer.json": {**typed_file, "truncation": cut, "padding": fill}, "vocab.txt": lines, "tokenizer_config.json": {
        "do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
        "tokenize_chinese_chars": True, "strip_accents": None, "name_or_path": "nreimers/MiniLM-L6-H384-uncased", "do_basic_tokenize": True, "never_split": None,
        "tokenizer_class": "BertTokenizer", "model_max_length": 512}, "special_tokens_map.json": {
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}}, {}
    yield "distilbert-base-uncased", {"config.json": {**config, "model_type": "distilbert"}, "tokenizer.json": typed_file, "vocab.txt": lines, "tokenizer_config.json": {
        "tokenizer_class": "DistilBertTokenizer", "do_lower_case": True, "model_max_length": 512, "added_tokens_decoder": decoder, "padding_side": "left", "truncation_side": "left"}}, {}
    yield "electra-small", {"config.json": {**config, "model_type": "electra"}, "vocab.txt": lines, "tokenizer_config.json": {"do_lower_case": True, "tokenizer_class": "ElectraTokenizer"}}, {}


def gpt2_folders():
    vocab, merges = byte_level(["<|endoftext|>"])
    files = {"vocab.json": vocab, "merges.txt": merge_lines(merges)}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False, "vocab": vocab,
             "merges": [f"{a} {b}" for a, b in merges]}
    file = document(model, added(["<|endoftext|>"], vocab, normalized=True), None, pre_tokenizers.ByteLevel(add_prefix_space=False), processors.ByteLevel(trim_offsets=False),
                    decoders.ByteLevel())
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": len(vocab)}
    yield "gpt2", {"config.json": config, "tokenizer_config.json": {"model_max_length": 1024}, "tokenizer.json": file, **files}, {}
    yield "gpt2 as vocabulary and merges", {"config.json": config, **files}, {}
    yield "gpt2 with a padding token", {"config.json": config, "tokenizer_config.json": {"model_max_length": 1024}, "tokenizer.json": file, **files}, {"special_tokens": {"pad_token": "<|endoftext|>"}}
    yield "gpt2 with a prefix", {"config.json": config, "tokenizer.json": file, **files}, {"add_prefix_space": True}
    yield "gpt2 with added tokens", {"config.json": config, **files, "added_tokens.json": {"[PAD]": len(vocab), "<new>": len(vocab) + 1},
                                     "special_tokens_map.json": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "pad_token": "[PAD]"},
                                     "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "model_max_length": 1024}}, {}
    yield "phi-2", {"config.json": {"model_type": "phi"}, **files, "tokenizer.json": file, "tokenizer_config.json": {
        "add_prefix_space": False, "added_tokens_decoder": {str(vocab["<|endoftext|>"]): token("<|endoftext|>", normalized=False, special=True),
                                                            str(len(vocab)): token("  ", special=False), str(len(vocab) + 1): token("   ", special=False)},
        "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "model_max_length": 2048, "return_token_type_ids": False,
        "tokenizer_class": "CodeGenTokenizer"}}, {}
    yield "ids that contradict", {"config.json": config, "tokenizer.json": file, **files, "tokenizer_config.json": {"added_tokens_decoder": {"7": token("<|endoftext|>", special=True)}}}, {}

    vocab, merges = byte_level(["<s>", "<pad>", "</s>", "<unk>"], 402)
    files = {"vocab.json": vocab, "merges.txt": merge_lines(merges)}
    yield "opt-125m", {"config.json": {"model_type": "opt", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}, **files, "tokenizer_config.json": {
        "errors": "replace", "unk_token": typed("</s>"), "bos_token": typed("</s>"), "eos_token": typed("</s>"), "pad_token": typed("<pad>"), "add_prefix_space": False,
        "add_bos_token": True, "special_tokens_map_file": None, "name_or_path": "patrickvonplaten/opt-30b", "tokenizer_class": "GPT2Tokenizer"}, "special_tokens_map.json": {
        "bos_token": token("</s>"), "eos_token": token("</s>"), "unk_token": token("</s>"), "pad_token": token("<pad>")}}, {}

    vocab, merges = byte_level(["<s>", "<pad>", "</s>", "<unk>"], 402)
    vocab["<mask>"] = len(vocab)
    files = {"vocab.json": vocab, "merges.txt": merge_lines(merges)}
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    model = {**model, "type": "BPE", "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]}
    tokens = [{**t, "normalized": True, "lstrip": t["content"] == "<mask>"} for t in added(specials, vocab)]
    file = document(model, tokens, None, pre_tokenizers.ByteLevel(add_prefix_space=False), processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False),
                    decoders.ByteLevel())
    config = {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta"}
    yield "roberta-base", {"config.json": config, "tokenizer_config.json": {"model_max_length": 512}, "tokenizer.json": file, **files}, {}
    yield "roberta as vocabulary and merges", {"config.json": config, **files, "special_tokens_map.json": {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>", "mask_token": token("<mask>", lstrip=True)},
        "tokenizer_config.json": {"add_prefix_space": True, "trim_offsets": True, "tokenizer_class": "RobertaTokenizer", "model_max_length": 512}}, {}
    yield "bart-base", {"config.json": {"model_type": "bart"}, "tokenizer.json": file, **files}, {}


def chat_folders():
    vocab, merges = byte_level([], 380)
    chat = {t: len(vocab) + i for i, t in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": False, "vocab": vocab, "merges": merges}
    decoder = {str(i): token(t, normalized=False, special=True) for t, i in chat.items()}
    qwen = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    parts = pre_tokenizers.Sequence([pre_tokenizers.Split(qwen, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    file = document(model, [{"id": i, "special": True, **token(t, normalized=False)} for t, i in chat.items()], normalizers.NFC(), parts,
                    processors.ByteLevel(add_prefix_space=False, trim_offsets=False), decoders.ByteLevel())
    settings = {"add_prefix_space": False, "added_tokens_decoder": decoder, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "bos_token": None,
                "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}", "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
                "model_max_length": 131072, "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    yield "Qwen2-chat", {"config.json": {"model_type": "qwen2"}, "tokenizer_config.json": settings, "tokenizer.json": file, "vocab.json": vocab, "merges.txt": merge_lines(merges)}, {}
    yield "Qwen2 as vocabulary and merges", {"config.json": {"model_type": "qwen3"}, "tokenizer_config.json": settings, "vocab.json": vocab, "merges.txt": merge_lines(merges)}, {}

    begin, eot = len(vocab), len(vocab) + 1
    file = document({**model, "ignore_merges": True}, [{"id": i, "special": True, **token(t, normalized=False)} for t, i in (("<|begin_of_text|>", begin), ("<|eot_id|>", eot))],
                    None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s?\p{L}+|\s+|."), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                    processors.Sequence([processors.ByteLevel(add_prefix_space=True, trim_offsets=False),
                                         processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", begin)])]),
                    decoders.ByteLevel())
    settings = {"added_tokens_decoder": {str(begin): token("<|begin_of_text|>", normalized=False, special=True), str(eot): token("<|eot_id|>", normalized=False, special=True)},
                "bos_token": "<|begin_of_text|>", "clean_up_tokenization_spaces": True, "eos_token": "<|eot_id|>", "model_input_names": ["input_ids", "attention_mask"],
                "model_max_length": 131072, "tokenizer_class": "PreTrainedTokenizerFast"}
    yield "Llama-3.2-1B-Instruct", {"config.json": {"model_type": "llama"}, "tokenizer_config.json": settings, "tokenizer.json": file}, {}
    yield "Llama-3 by the name of Llama 2", {"config.json": {"model_type": "llama"}, "tokenizer_config.json": {**settings, "tokenizer_class": "LlamaTokenizer"}, "tokenizer.json": file}, {}
    yield "Llama-3 with an end", {"config.json": {"model_type": "llama"}, "tokenizer_config.json": settings, "tokenizer.json": file}, {"add_bos_token": True, "add_eos_token": True}

    parts = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), pre_tokenizers.Digits(False),
                                     pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    file = document(model, [{"id": len(vocab), "special": True, **token("<|endoftext|>", normalized=False)}], None, parts, processors.ByteLevel(add_prefix_space=True, trim_offsets=False),
                    decoders.ByteLevel())
    yield "falcon-7b", {"config.json": {"model_type": "falcon"}, "tokenizer.json": file, "tokenizer_config.json": {
        "add_prefix_space": False, "eos_token": "<|endoftext|>", "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 2048, "special_tokens_map_file": None,
        "tokenizer_class": "PreTrainedTokenizerFast"}, "special_tokens_map.json": {"additional_special_tokens": [">>TITLE<<"], "eos_token": "<|endoftext|>"}}, {}

    file = document(model, [{"id": len(vocab) + i, "special": i < 2, **token(t, normalized=i == 2)} for i, t in enumerate(["<|endoftext|>", "<|padding|>", "  "])], normalizers.NFC(),
                    pre_tokenizers.ByteLevel(add_prefix_space=False), processors.ByteLevel(add_prefix_space=False), decoders.ByteLevel())
    yield "pythia-70m", {"config.json": {"model_type": "gpt_neox"}, "tokenizer.json": file, "tokenizer_config.json": {
        "unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "add_prefix_space": False, "name_or_path": "EleutherAI/gpt-neox-20b",
        "tokenizer_class": "GPTNeoXTokenizer"}, "special_tokens_map.json": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}}, {}


def sentence_piece_folders():
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab, merges = characters(["<unk>", "<s>", "</s>", *bytes_], 620)
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
             "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]}
    llama_decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    file = document(model, added(["<unk>", "<s>", "</s>"], vocab), normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None,
                    template("<s> $A", "<s> $A <s>:1 $B:1", vocab), llama_decoder)
    settings = {"add_bos_token": True, "add_eos_token": False, "bos_token": typed("<s>", normalized=False), "clean_up_tokenization_spaces": False,
                "eos_token": typed("</s>", normalized=False), "legacy": False, "model_max_length": 1000000000000000019884624838656, "pad_token": None, "padding_side": "right",
                "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer", "unk_token": typed("<unk>", normalized=False)}
    names = {"bos_token": token("<s>", normalized=False), "eos_token": token("</s>", normalized=False), "unk_token": token("<unk>", normalized=False)}
    yield "Llama-2-7b-hf", {"config.json": {"model_type": "llama"}, "tokenizer.json": file, "tokenizer_config.json": settings, "special_tokens_map.json": names}, {}
    yield "TinyLlama", {"config.json": {"model_type": "llama"}, "tokenizer.json": file, "tokenizer_config.json": {k: v for k, v in settings.items() if k not in ("legacy", "padding_side")}}, {}
    yield "llama of old", {"config.json": {"model_type": "llama"}, "tokenizer.json": file, "tokenizer_config.json": {**settings, "legacy": True}, "special_tokens_map.json": names}, {}
    yield "Mistral-7B-v0.1", {"config.json": {"model_type": "mistral"}, "tokenizer.json": file, "tokenizer_config.json": {
        **settings, "added_tokens_decoder": {str(vocab[t]): token(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")}, "additional_special_tokens": []}}, {}
    gemma_vocab, gemma_merges = characters(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *bytes_], 620)
    file = document({**model, "vocab": gemma_vocab, "merges": gemma_merges}, added(["<pad>", "<eos>", "<bos>", "<unk>"], gemma_vocab), normalizers.Replace(" ", "\u2581"),
                    pre_tokenizers.Split(" ", "merged_with_previous"), template("<bos> $A", "<bos> $A <bos>:1 $B:1", gemma_vocab), llama_decoder)
    yield "gemma-2b", {"config.json": {"model_type": "gemma"}, "tokenizer.json": file, "tokenizer_config.json": {
        "add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": {str(gemma_vocab[t]): token(t, normalized=False, special=True) for t in ("<pad>", "<eos>", "<bos>", "<unk>")},
        "additional_special_tokens": ["<pad>"], "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>", "tokenizer_class": "GemmaTokenizer"}}, {}

    languages = ["deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"]
    vocab, merges = characters(["<s>", "<pad>", "</s>", "<unk>"], 420, [*languages, "<mask>"])
    tokens = added(["<s>", "<pad>", "</s>", "<unk>", *languages], vocab) + added(["<mask>"], vocab, normalized=True, lstrip=True)
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "vocab": vocab,
             "merges": [f"{a} {b}" for a, b in merges]}
    file = document(model, tokens, None, None, template("$A </s> eng_Latn", "$A $B </s> eng_Latn", vocab), None)
    file["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": CHARSMAP}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    file["pre_tokenizer"] = file["decoder"] = metaspace()
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>", "mask_token": typed("<mask>", lstrip=True),
                "sp_model_kwargs": {}, "special_tokens_map_file": None, "name_or_path": "facebook/nllb-200-distilled-600M", "src_lang": None, "tgt_lang": None,
                "additional_special_tokens": None, "tokenizer_class": "NllbTokenizer"}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>", "mask_token": token("<mask>", lstrip=True),
             "additional_special_tokens": languages}
    nllb = {"config.json": {"model_type": "m2m_100"}, "tokenizer.json": file, "tokenizer_config.json": settings, "special_tokens_map.json": names}
    yield "nllb-200-distilled-600M", nllb, {}
    yield "nllb from English to German", nllb, {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    yield "nllb from French", nllb, {"src_lang": "fra_Latn"}
    yield "nllb of old", {**nllb, "tokenizer_config.json": {**settings, "legacy_behaviour": True}}, {"src_lang": "fra_Latn", "tgt_lang": "zho_Hans"}
    yield "nllb with unknown language", nllb, {"src_lang": "xxx_Latn"}

    from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as mbart
    vocab = pieces(["<s>", "<pad>", "</s>", "<unk>"], 240, [*mbart, "<mask>"])
    ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    tokens = added(["<s>", "<pad>", "</s>", "<unk>", *mbart], ids) + added(["<mask>"], ids, normalized=True, lstrip=True)
    file = document({"unk_id": 3, "vocab": vocab}, tokens, None, None, template("$A </s> en_XX", "$A $B </s> en_XX", ids), None)
    file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace()]}
    file["decoder"] = metaspace()
    yield "mbart-large-en-ro", {"config.json": {"model_type": "mbart"}, "tokenizer.json": file, "tokenizer_config.json": {"model_max_length": 1024}}, {"src_lang": "en_XX", "tgt_lang": "ro_RO"}
    yield "mbart-large-cc25", {"config.json": {"model_type": "mbart"}, "tokenizer.json": file, "tokenizer_config.json": {"model_max_length": 1024}}, {}

    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as mbart50
    vocab = pieces(["<s>", "<pad>", "</s>", "<unk>"], 240, [*mbart50, "<mask>"])
    ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    tokens = added(["<s>", "<pad>", "</s>", "<unk>", *mbart50], ids) + added(["<mask>"], ids, normalized=True, lstrip=True)
    file = document({"type": "Unigram", "unk_id": 3, "vocab": vocab}, tokens, None, None, template("en_XX $A </s>", "en_XX $A $B </s>", ids), None)
    file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    file["pre_tokenizer"] = file["decoder"] = metaspace()
    yield "mbart-large-50-many-to-many-mmt", {"config.json": {"model_type": "mbart"}, "tokenizer.json": file, "tokenizer_config.json": {
        "src_lang": None, "tgt_lang": None, "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>",
        "tokenizer_class": "MBart50Tokenizer", "additional_special_tokens": mbart50}}, {"src_lang": "de_DE", "tgt_lang": "gl_ES"}

    sentinels = [f"<extra_id_{number}>" for number in range(99, -1, -1)]
    vocab = pieces(["<pad>", "</s>", "<unk>"], 240, sentinels)
    ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    file = document({"unk_id": 2, "vocab": vocab}, added(["<pad>", "</s>", "<unk>", *sentinels], ids), None, None, template("$A </s>", "$A </s> $B </s>", ids), None)
    file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace()]}
    file["decoder"] = metaspace()
    yield "t5-small", {"config.json": {"model_type": "t5"}, "tokenizer.json": file, "tokenizer_config.json": {"model_max_length": 512}}, {}
    yield "flan-t5-small", {"config.json": {"model_type": "t5"}, "tokenizer.json": file, "tokenizer_config.json": {
        "additional_special_tokens": sentinels[::-1], "eos_token": "</s>", "extra_ids": 100, "model_max_length": 512, "name_or_path": "google/t5-v1_1-small", "pad_token": "<pad>",
        "sp_model_kwargs": {}, "special_tokens_map_file": None, "tokenizer_class": "T5Tokenizer", "unk_token": "<unk>"}, "special_tokens_map.json": {
        "additional_special_tokens": sentinels[::-1], "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}}, {}

    vocab = pieces(["<s>", "<pad>", "</s>", "<unk>"], 260, ["<mask>"])
    ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    tokens = added(["<s>", "<pad>", "</s>", "<unk>"], ids) + added(["<mask>"], ids, normalized=True, lstrip=True)
    file = document({"unk_id": 3, "vocab": vocab}, tokens, None, None, template("<s> $A </s>", "<s> $A </s> </s> $B </s>", ids), None)
    file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace()]}
    file["decoder"] = metaspace()
    yield "xlm-roberta-base", {"config.json": {"model_type": "xlm-roberta"}, "tokenizer.json": file, "tokenizer_config.json": {"model_max_length": 512}}, {}
    vocab = pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], 260)
    ids = {piece: number for number, (piece, _) in enumerate(vocab)}
    file = document({"unk_id": 1, "vocab": vocab}, added(["<pad>", "<unk>", "[CLS]", "[SEP]"], ids) + added(["[MASK]"], ids, lstrip=True), None, None,
                    template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids), None)
    file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace()]}
    file["decoder"] = metaspace()
    yield "albert-base-v2", {"config.json": {"model_type": "albert"}, "tokenizer.json": file, "tokenizer_config.json": {"model_max_length": 512}}, {}
    yield "a class of another model", {"config.json": {"model_type": "gpt2"}, "tokenizer.json": file, "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}, {}
    vocab = pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], 260)
    ids = {piece: number for number, (piece, _) in enumerate(vocab)} | {"[MASK]": len(vocab)}
    file = document({"type": "Unigram", "unk_id": 3, "vocab": vocab}, added(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], ids), None, None,
                    template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids), None)
    file["pre_tokenizer"] = file["decoder"] = metaspace()
    yield "deberta-v3-small", {"config.json": {"model_type": "deberta-v2"}, "tokenizer.json": file, "tokenizer_config.json": {
        "do_lower_case": False, "vocab_type": "spm", "tokenizer_class": "DebertaV2Tokenizer", "unk_token": "[UNK]"}}, {}


def plain(kind, vocab, specials, merges=None, **how):
    """The tokenizer.json of a class that takes no more than the vocabulary of it."""
    ids = vocab if isinstance(vocab, dict) else {piece: number for number, (piece, _) in enumerate(vocab)}
    model = {"type": kind, "vocab": vocab, **how}
    if merges is not None:
        model["merges"] = [f"{a} {b}" for a, b in merges]
    return document(model, added(specials, ids))


def other_byte_level_folders():
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab, merges = byte_level(tokens)
    yield "blenderbot-3B", {"config.json": {"model_type": "blenderbot"}, "tokenizer.json": plain("BPE", vocab, tokens, merges), "tokenizer_config.json": {
        "add_prefix_space": True, "tokenizer_class": "BlenderbotTokenizer", "model_max_length": 128}}, {}
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    vocab, merges = byte_level(tokens)
    yield "deberta-base", {"config.json": {"model_type": "deberta"}, "tokenizer.json": plain("BPE", vocab, tokens, merges), "tokenizer_config.json": {
        "do_lower_case": False, "vocab_type": "gpt2", "tokenizer_class": "DebertaTokenizer"}}, {}
    tokens = ["<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<EOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"]
    vocab, merges = byte_level(tokens)
    file = {**plain("BPE", vocab, tokens, merges), "post_processor": json.loads(template("<BOS_TOKEN> $A", "<BOS_TOKEN> $A $B:1", vocab).__getstate__())}
    yield "c4ai-command-r", {"config.json": {"model_type": "cohere"}, "tokenizer.json": file, "tokenizer_config.json": {
        "add_bos_token": True, "add_eos_token": False, "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "pad_token": "<PAD>", "unk_token": None,
        "tokenizer_class": "CohereTokenizer"}}, {}
    vocab, merges = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    yield "Qwen3.5-0.8B", {"config.json": {"model_type": "qwen3_5"}, "tokenizer.json": plain("BPE", vocab, tokens, merges), "tokenizer_config.json": {
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "model_max_length": 262144,
        "tokenizer_class": "Qwen2Tokenizer"}}, {}
    vocab, merges = byte_level(["<|endoftext|>"])
    files = {"vocab.json": vocab, "merges.txt": merge_lines(merges)}
    yield "gpt2 that splits special tokens", {"config.json": {"model_type": "gpt2"}, **files, "tokenizer_config.json": {
        "split_special_tokens": True, "added_tokens_decoder": {str(vocab["<|endoftext|>"]): token("<|endoftext|>", normalized=False, special=True),
                                                               str(len(vocab)): token("user", normalized=False, special=False)}}}, {}
    vocab = word_pieces()
    lines = "".join(t + "\n" for t in in_order(vocab))
    yield "bert that splits special tokens", {"config.json": {"model_type": "bert"}, "vocab.txt": lines, "tokenizer_config.json": {"split_special_tokens": True}}, {}


def other_word_piece_folders():
    tokens = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocab = word_pieces(tokens)
    yield "all-mpnet-base-v2", {"config.json": {"model_type": "mpnet"}, "tokenizer.json": plain("WordPiece", vocab, tokens, unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100), "tokenizer_config.json": {
        "do_lower_case": True, "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "[UNK]", "pad_token": "<pad>", "mask_token": "<mask>",
        "tokenize_chinese_chars": True, "strip_accents": None, "model_max_length": 512, "tokenizer_class": "MPNetTokenizer"}}, {}
    tokens = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>"]
    vocab = word_pieces(["[UNK]", *tokens])
    yield "funnel-transformer-small", {"config.json": {"model_type": "funnel"}, "tokenizer.json": plain("WordPiece", vocab, tokens, unk_token="<unk>", continuing_subword_prefix="##", max_input_chars_per_word=100), "tokenizer_config.json": {
        "do_lower_case": True, "tokenizer_class": "FunnelTokenizer", "model_max_length": 512}}, {}


def other_piece_folders():
    def unigram(name, kind, tokens, settings, normalizer=True, unk_id=None, more=()):
        vocab = pieces(tokens, 260, more)
        file = plain("Unigram", vocab, [*tokens, *more], unk_id=tokens.index("<unk>") if unk_id is None else unk_id)
        if normalizer:
            file["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
        return name, {"config.json": {"model_type": kind}, "tokenizer.json": file, "tokenizer_config.json": settings}, {}

    fairseq = ["<s>", "<pad>", "</s>", "<unk>"]
    yield unigram("barthez", "barthez", fairseq, {"tokenizer_class": "BarthezTokenizer", "model_max_length": 1024}, more=["<mask>"])
    yield unigram("bigbird-roberta-base", "big_bird", ["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], {"tokenizer_class": "BigBirdTokenizer", "model_max_length": 4096})
    yield unigram("camembert-base", "camembert", ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"], {
        "tokenizer_class": "CamembertTokenizer", "model_max_length": 512, "additional_special_tokens": ["<s>NOTUSED", "</s>NOTUSED"]}, more=["<mask>"])
    yield unigram("pegasus-xsum", "pegasus", ["<pad>", "</s>", "<mask_1>", "<mask_2>", *[f"<unk_{i}>" for i in range(2, 103)], "<unk>"], {
        "tokenizer_class": "PegasusTokenizer", "model_max_length": 512, "offset": 103})
    yield unigram("pegasus of few words", "pegasus", ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk_2>", "<unk>"], {
        "tokenizer_class": "PegasusTokenizer", "model_max_length": 512, "offset": 3, "mask_token_sent": None})
    name, files, options = unigram("rembert", "rembert", ["<pad>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], {
        "tokenizer_class": "RemBertTokenizer", "do_lower_case": False, "keep_accents": True})
    yield "rembert without a post-processor", files, options
    ids = {piece: number for number, (piece, _) in enumerate(files["tokenizer.json"]["model"]["vocab"])}
    post = json.loads(template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids).__getstate__())
    yield name, {**files, "tokenizer.json": {**files["tokenizer.json"], "post_processor": post}}, options
    yield unigram("xlnet-base-cased", "xlnet", ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"], {"tokenizer_class": "XLNetTokenizer"})

    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab, merges = characters(["<unk>", "<s>", "</s>", *bytes_], 620, ["\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>", "\u2581<EOT>"])
    tokens = ["<unk>", "<s>", "</s>", "\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>", "\u2581<EOT>"]
    yield "CodeLlama-7b-hf", {"config.json": {"model_type": "llama"}, "tokenizer.json": plain("BPE", vocab, tokens, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                              "tokenizer_config.json": {"tokenizer_class": "CodeLlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": None, "bos_token": "<s>",
                                                        "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 16384}}, {}
    vocab, merges = byte_level(["<|endoftext|>"])
    yield "gpt2 with tokens that its class has not", {"config.json": {"model_type": "gpt2"}, "vocab.json": vocab, "merges.txt": merge_lines(merges), "tokenizer_config.json": {
        "tokenizer_class": "GPT2Tokenizer", "cls_token": "[CLS]", "sep_token": "<|endoftext|>"}}, {}
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(tokenizer, trainers.BpeTrainer(vocab_size=400, special_tokens=tokens, end_of_word_suffix="</w>", show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    yield "herbert-base-cased", {"config.json": {"model_type": "herbert"}, "tokenizer.json": plain("BPE", model["vocab"], tokens, model["merges"], unk_token="<unk>", end_of_word_suffix="</w>"),
                                 "tokenizer_config.json": {"tokenizer_class": "HerbertTokenizer", "model_max_length": 514, "bos_token": "<s>", "sep_token": "</s>"}}, {}


def settings_of(tokenizer):
    known = tokenizer.model_max_length < 2**31
    return {"class": type(tokenizer).__name__, "model_max_length": tokenizer.model_max_length if known else None, "padding_side": tokenizer.padding_side,
            "truncation_side": tokenizer.truncation_side, "model_input_names": list(tokenizer.model_input_names),
            "special_tokens": {name: str(value) for name, value in tokenizer._special_tokens_map.items() if value is not None},
            "src_lang": getattr(tokenizer, "src_lang", None) or "", "tgt_lang": getattr(tokenizer, "tgt_lang", None) or getattr(tokenizer, "src_lang", None) or ""}


def encoded(tokenizer, text, pair=None, special=True):
    encoding = tokenizer(text, pair, add_special_tokens=special).encodings[0]
    return [text, pair, special, encoding.ids, encoding.type_ids, encoding.special_tokens_mask, [list(place) for place in encoding.offsets]]


def answers(folder, options):
    options = dict(options)
    options.update(options.pop("special_tokens", {}))
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    found = {"size": len(tokenizer), "settings": settings_of(tokenizer), "texts": [encoded(tokenizer, text) for text in TEXTS]}
    found["texts"] += [encoded(tokenizer, a, b) for a, b in PAIRS] + [encoded(tokenizer, TEXTS[0], None, False), encoded(tokenizer, *PAIRS[0], False)]
    found["targets"] = [[text, tokenizer(text_target=text)["input_ids"]] for text in TEXTS[:2]]
    ids = [case[3] for case in found["texts"]] + [list(range(0, len(tokenizer), 3)), [5, len(tokenizer) + 3, 6, 70, 71, 200, 101, 33, 18]]
    found["decoded"] = [[one, tokenizer.decode(one, skip_special_tokens=True), tokenizer.decode(one)] for one in ids]
    if tokenizer.pad_token is not None:
        found["padded"] = [tokenizer(TEXTS[:3], padding=True)["input_ids"], tokenizer.pad_token_id]
    return found


ERRORS = {"ids that contradict": ["tokenizer_config.json", "added_tokens_decoder", "<|endoftext|>", "7"],
          "nllb with unknown language": ["src_lang", "xxx_Latn", "eng_Latn"],
          "a class of another model": ["tokenizer_config.json", "tokenizer_class is GPT2Tokenizer", "BPE", "Unigram"]}


def line_of(name, files, options):
    row = {"name": name, "files": {file: text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for file, text in files.items()}, "options": options}
    if name in ERRORS:
        # Python goes on in silence, or with an error of its own.
        return {**row, "error": ERRORS[name]}
    with tempfile.TemporaryDirectory() as folder:
        for file, text in row["files"].items():
            with open(os.path.join(folder, file), "w", encoding="utf-8", newline="") as out:
                out.write(text)
        return {**row, **answers(folder, options)}


def kept_rows(path):
    """The rows that are there, whose references to earlier rows are their numbers: vocabularies of another run differ."""
    if "--anew" in sys.argv[1:] or not os.path.exists(path):
        return []
    with open(path, encoding="ascii") as file:
        return [json.loads(line) for line in file]


def main():
    path = os.path.join(HERE, "pretrained.jsonl")
    rows = kept_rows(path)
    names = {row["name"] for row in rows}
    written = {(name, text): number for number, row in reversed(list(enumerate(rows))) for name, text in row["files"].items() if isinstance(text, str)}
    makers = (bert_folders, gpt2_folders, chat_folders, sentence_piece_folders, other_byte_level_folders, other_word_piece_folders, other_piece_folders)
    for folder in (folder for folders in makers for folder in folders() if folder[0] not in names):
        row = line_of(*folder)
        for name, text in row["files"].items():
            first = written.setdefault((name, text), len(rows))
            if first < len(rows):
                row["files"][name] = first
        rows.append(row)
    with open(path, "w", encoding="ascii") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
