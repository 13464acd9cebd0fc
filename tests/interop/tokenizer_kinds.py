"""The tokenizers that are compared: built and trained here, one for each kind of file in use, and saved as tokenizer.json."""
import json
import os

import tokenizer_charsmap
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK_HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            r"""|\s*[\r\n]+|\s+(?!\S)|\s+""")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def word_piece(lines, normalizer, pre_tokenizer, size=1500):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False))
    return tokenizer


def byte_level(lines, pre_tokenizer, special, size=1200, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=ALPHABET,
                                                             show_progress=False))
    return tokenizer


def bert(lines):
    tokenizer = word_piece(lines, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def bert_cased(lines):
    """With added tokens of every kind, the older post-processor, and words of ten characters."""
    tokenizer = word_piece(lines, normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer())
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_tokens(["two words", AddedToken("added", single_word=True), AddedToken("Add\u00e9d", lstrip=True, rstrip=True),
                          AddedToken("[x", normalized=False), AddedToken("[x]y", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.model.max_input_chars_per_word = 10
    return tokenizer


def accents(lines):
    """A sequence of plain normalizers, with added tokens that are normalized."""
    steps = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    tokenizer = word_piece(lines, steps, pre_tokenizers.Whitespace())
    tokenizer.add_tokens([AddedToken("Add\u00e9d", single_word=True), AddedToken("OTHER"), AddedToken("two words", rstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:3 [SEP]:2", pair="[CLS]:4 $B:5 [SEP] $A:2", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def composed(lines):
    """Bare white space, NFC, no post-processor."""
    return word_piece(lines, normalizers.NFC(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer()]))


def gpt2(lines):
    tokenizer = byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta(lines):
    tokenizer = byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("added", lstrip=True, rstrip=True), AddedToken("  two words ", normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def llama3(lines):
    parts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(lines, parts, [], ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return tokenizer


def qwen2(lines):
    parts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(lines, parts, ["<|endoftext|>"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=True)
    return tokenizer


def prefixed(lines):
    """GPT-2's pattern as a Split whose inverse is removed, then words that each get a blank."""
    parts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT2), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    return byte_level(lines, parts, ["<|endoftext|>"])


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def o200k(lines):
    parts = pre_tokenizers.Sequence([isolated(O200K), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(lines, parts, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def deepseek(lines):
    parts = pre_tokenizers.Sequence([isolated(r"\p{N}{1,3}"), isolated(DEEPSEEK_HAN), isolated(DEEPSEEK),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_level(lines, parts, [])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B:1", special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])
    return tokenizer


def clip(lines):
    """Bytes with a suffix, and white space that is dropped."""
    parts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = parts
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")])
    both = ["<|startoftext|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=both, initial_alphabet=ALPHABET, end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    # The trainer knows only the ends of words that it has seen.
    saved = json.loads(tokenizer.to_str())
    for letter in sorted(ALPHABET):
        saved["model"]["vocab"].setdefault(letter + "</w>", len(saved["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), add_prefix_space=False, trim_offsets=False)
    return tokenizer


def falcon(lines):
    """Digits and a Split behind ByteLevel, which see its visible characters."""
    parts = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                     pre_tokenizers.Digits(), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    tokenizer = byte_level(lines, parts, [">>TITLE<<", "<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def some_letters(lines):
    """A byte-level vocabulary learnt without its alphabet, as in Hugging Face's course: what is in no text has no token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=900, special_tokens=["<|endoftext|>"], show_progress=False))
    return tokenizer


def words_of_bytes(lines):
    """Whole words, of the characters that stand for bytes, by a normalizer."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("\u0120")
    tokenizer.train_from_iterator(lines, trainers.WordLevelTrainer(vocab_size=800, special_tokens=["[UNK]", "[PAD]"], show_progress=False))
    return tokenizer


def scripts_and_lengths(lines):
    """Words by script, cut into pieces of three characters; bytes for a Unigram."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(3), pre_tokenizers.ByteLevel(use_regex=False)])
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>"], unk_token="<unk>", initial_alphabet=ALPHABET, show_progress=False))
    tokenizer.decoder = decoders.CTC(pad_token="<unk>", word_delimiter_token="\u0120")
    return tokenizer


def character_bpe(lines, size=1500, **model):
    """BPE on characters with SentencePiece's blanks, trained word by word, and with a token for each byte."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
                                  limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = saved["added_tokens"][:3]
    saved["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2(lines):
    tokenizer = character_bpe(lines)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return tokenizer


def mistral(lines):
    """With tokens that no merge makes: words are these alone where they are such a token as a whole."""
    saved = json.loads(character_bpe(lines, ignore_merges=True).to_str())
    for token in ("\u2581a\u2581whole\u2581line\u2581that\u2581no\u2581merge\u2581makes", "thet", "\u2581thet"):
        saved["model"]["vocab"][token] = len(saved["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens([AddedToken("[INST]", normalized=False)])
    return tokenizer


def gemma(lines):
    tokenizer = character_bpe(lines)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("<mask>")])
    return tokenizer


def some_bytes(lines):
    """Some bytes have tokens, so that unknown characters wait behind them; words by Metaspace."""
    saved = json.loads(character_bpe(lines).to_str())
    vocab = {token: number for number, token in enumerate(
        token for token in saved["model"]["vocab"] if not (token.startswith("<0x") and token[3] in "9B"))}
    saved["model"]["vocab"] = vocab
    for token in saved["added_tokens"]:
        token["id"] = vocab[token["content"]]
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="_", prepend_scheme="first")
    return tokenizer


def unigram(lines, size=1200, **trainer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False, **trainer))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def t5(lines):
    tokenizer = unigram(lines)
    tokenizer.normalizer = normalizers.Precompiled(tokenizer_charsmap.charsmap(tokenizer_charsmap.like_nmt_nfkc()))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def xlm_roberta(lines):
    tokenizer = unigram(lines)
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(tokenizer_charsmap.charsmap(tokenizer_charsmap.like_nmt_nfkc())), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def unigram_bytes(lines):
    """Unknown characters by their bytes, whole texts as one word, and what SentencePiece did before it had a table."""
    saved = json.loads(unigram(lines).to_str())
    saved["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
    saved["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex("^| {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    return tokenizer


def continued(lines):
    """BPE on characters with a prefix and a suffix; unknown characters one by one."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.decoder = decoders.BPEDecoder()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=1500, special_tokens=["[UNK]"], continuing_subword_prefix="##",
                                                             end_of_word_suffix="</w>", limit_alphabet=100, show_progress=False))
    return tokenizer


def left_out(lines):
    """All behaviors of Split, and unknown characters that leave no token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKC()
    splits = [(Regex(r"\s+"), "removed", False), (Regex(r"\p{Lu}"), "merged_with_next", False), (Regex(r"[aeiou]+"), "merged_with_previous", False),
              (Regex(r"\p{L}|\p{M}"), "contiguous", False), (Regex(r"(?<=l)|x*"), "isolated", False), ("th", "merged_with_next", True),
              (Regex(r"[\p{Han}\p{^Ll}]"), "merged_with_previous", True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(*split) for split in splits] + [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits()])
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=600, limit_alphabet=60, show_progress=False))
    return tokenizer


KINDS = [bert, bert_cased, accents, composed, gpt2, roberta, llama3, qwen2, prefixed, o200k, deepseek, clip, llama2, mistral, gemma, some_bytes,
         t5, xlm_roberta, unigram_bytes, continued, left_out, falcon, some_letters, words_of_bytes, scripts_and_lengths]


def save_all(lines, folder):
    """{name: path} of the saved tokenizers."""
    paths = {}
    for kind in KINDS:
        paths[kind.__name__] = os.path.join(folder, kind.__name__ + ".json")
        kind(lines).save(paths[kind.__name__])
    return paths
