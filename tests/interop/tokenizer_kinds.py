"""The tokenizers that are compared: built and trained here, one for each kind of file in use, and saved as tokenizer.json."""
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
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


KINDS = [bert, bert_cased, accents, composed, gpt2, roberta, llama3, qwen2, prefixed]


def save_all(lines, folder):
    """{name: path} of the saved tokenizers."""
    paths = {}
    for kind in KINDS:
        paths[kind.__name__] = os.path.join(folder, kind.__name__ + ".json")
        kind(lines).save(paths[kind.__name__])
    return paths
