"""Texts for comparing tokenizers: written ones for the rules that are known to be hard, and random ones."""
import random

WRITTEN = [
    "", " ", "  ", "\n", "a", "Hello world", "Hello, y'all! How are you?", "don't DON'T We'Re I'M he'LL she'd they've'S",
    "'\u017fx '\u017f's'", "   leading", "trailing   ", "a  b   c\n\n\td \n e\r\n\r\nf", "x\u00a0y\u2003z\u3000w\u200bv\ufeffu",
    "\u00c9t\u00e9 caf\u00e9 cafe\u0301 na\u00efve \u0130stanbul \u1e9e \u03a3\u03a3 \u01c5 \ufb01", "e\u0323\u0301 \u00e9\u0323 \u0344\u0323 q\u0307\u0323 \u1e0b\u0323",
    "\u1100\u1161\u11a8 \uac00\uac01 \u1100\u1161 \ud55c\uad6d\uc5b4", "\u4e2d\u6587\u5b57\u7b26 mixed \u65e5\u672c\u8a9e \U00020000\U0002f800 \uf900",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "1234567 12 3,456.78 \u0661\u0662\u0663 \u00bd \u2168 x1y22z333 \U00011de7\u26e6\U00016ff4",
    "\x00\x01\x1f\x7f\x80\x85\u2028\u2029\ufffd\ue000\U0010ffff", "unaffable" * 30, "a" * 100, "a" * 101, "a" * 5000, "\u00e9" * 101, "!" * 300, " " * 200,
    "[CLS] [SEP][MASK] [UNK]x[PAD]", "<s></s><mask> <mask>  <mask>a <|endoftext|>b", "<|begin_of_text|>hi<|eot_id|>",
    "added ADDED xadded added_ added, Add\u00e9d", "##ing #hash ##", "$a+b=c; (x)[y]{z} \u00ab\u00bb \u201cq\u201d \u2014 \u20ac \u00a3",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u0631\u062d\u0628\u064b\u0627 \u10d8\u10d4", "http://a.b/c?d=e&f#g user@host.org C++ #1",
    "a whole line that no merge makes", "so a whole line that no merge makes", "thet", "a line with thet in the middle of it", "<0x41>", "no <0x41> in a long line",
]
ADDED = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "<s>", "</s>", "<mask>", "<|endoftext|>", "<|eot_id|>", "added", "Add\u00e9d", "other", "OTHER", "two words", "[x", "[x]y"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'\u017f", "'Re", "'", "''"]
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\x0b", "\x1c", "\u200b"]
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0, 0x1F), (0x80, 0xFF), (0x100, 0x24F), (0x250, 0x52F), (0x531, 0x7FF), (0x800, 0xFFF), (0x1000, 0x1FFF),
          (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0x1100, 0x11FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF),
          (0x1F300, 0x1FAFF), (0x20000, 0x2FFFF), (0x30000, 0x10FFFF)]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x610, 0x61A), (0x64B, 0x65F), (0x730, 0x74A), (0x900, 0x903), (0x1AB0, 0x1ACE),
         (0x1DC0, 0x1DFF), (0x20D0, 0x20F0), (0x302A, 0x302F), (0x1D165, 0x1D172), (0x1E000, 0x1E02A)]


def character(source, ranges):
    first, last = source.choice(ranges)
    return chr(source.randint(first, last))


def piece(source, words):
    kind = source.random()
    if kind < 0.35:
        word = source.choice(words)
        return source.choice([word, word, word.upper(), word.title(), word + source.choice(words)])
    if kind < 0.50:
        return source.choice(SPACES)
    if kind < 0.56:
        return source.choice(ADDED)
    if kind < 0.61:
        return source.choice(CONTRACTIONS)
    if kind < 0.68:
        return "".join(character(source, MARKS) for _ in range(source.randint(1, 4)))
    if kind < 0.74:
        return str(source.randint(0, 10 ** source.randint(1, 9)))
    if kind < 0.76:
        return character(source, RANGES) * source.randint(20, 150)
    return "".join(character(source, RANGES) for _ in range(source.randint(1, 5)))


def texts(count, seed, words):
    """The written texts and `count` random ones. Half of the pieces are parted by a blank."""
    source = random.Random(seed)
    made = []
    for _ in range(count):
        parts = [piece(source, words) for _ in range(source.randint(1, 14))]
        made.append("".join(part + source.choice(["", " "]) for part in parts))
    return WRITTEN + made
