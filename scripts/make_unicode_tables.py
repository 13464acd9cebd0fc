#!/usr/bin/env python3
"""Writes the character tables of the tokenizers: make_unicode_tables.py [FOLDER]

Run it with a Python that has `tokenizers`; FOLDER is src/tokenizers by default. Nothing is taken from a Unicode
database: every code point is shown to the PyPI package itself, whose parts stand on Unicode tables of several ages, and
what it does with it is written down.
"""
import os
import struct
import sys

import tokenizers
from tokenizers import Regex
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)
HEAD = """// Written by scripts/make_unicode_tables.py from what tokenizers {version} does. Change the script, not this
// file.
#include "unicode_tables.hpp"

namespace lockstep::tokenizer {{

// clang-format off
"""
TAIL = """// clang-format on

}  // namespace lockstep::tokenizer
"""


def removed_or_alone(splitter):
    """(removed, isolated): what becomes of each code point between two letters."""
    removed, alone = set(CODES), set()
    for piece, (begin, _) in splitter.pre_tokenize_str("".join(f"a{chr(c)}a\n" for c in CODES)):
        code = CODES[begin // 4]
        if len(piece) == 3 or (begin % 4 == 1 and len(piece) == 1):
            removed.discard(code)
        if begin % 4 == 1 and len(piece) == 1:
            alone.add(code)
    return removed, alone


def matched(pattern):
    """The code points that a pattern of one character matches."""
    found = set()
    for piece, _ in p.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str("".join(map(chr, CODES))):
        found.update(map(ord, piece))
    return found


def changed(normalizer):
    """{code point: text} of the code points that the normalizer changes."""
    results = ((c, normalizer.normalize_str(chr(c))) for c in CODES)
    return {c: text for c, text in results if text != chr(c)}


def properties():
    clean = changed(n.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False))
    ideographs = changed(n.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False))
    accents = changed(n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False))
    space, _ = removed_or_alone(p.WhitespaceSplit())
    bert_space, punctuation = removed_or_alone(p.BertPreTokenizer())
    regex_space, symbols = removed_or_alone(p.Whitespace())
    assert space == bert_space == regex_space == matched(r"\s"), "the kinds of white space have come apart"
    # Of the white space the control characters among it are removed, and the rest becomes a blank.
    assert all(c in space if text == " " else text == "" for c, text in clean.items())
    assert all(c in clean for c in space - {0x20})
    return {
        "Space": space,
        "BertControl": {c for c, text in clean.items() if text == ""},
        "BertIdeograph": set(ideographs),
        "BertAccent": {c for c, text in accents.items() if text == ""},
        "CombiningMark": {c for c, text in changed(n.StripAccents()).items() if text == ""},
        "BertPunctuation": punctuation,
        "Word": set(CODES) - regex_space - symbols,
        "Digit": removed_or_alone(p.Digits(individual_digits=True))[1],
        "Han": matched(r"\p{Han}"),
    }


# In the order of the enumeration Category.
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"]


def categories():
    """{code point: number of its general category}, for letters, marks, numbers, punctuation and symbols."""
    return {code: number for number, name in enumerate(CATEGORIES, 1) for code in matched(rf"\p{{{name}}}")}


def charsmap_of_everything():
    """A charsmap of SentencePiece that turns each character into an exclamation mark: a double-array trie whose branches
    are shared, in blocks of 256 units."""
    units = [0] * (6 * 256)

    def branch(block, first, last, target, is_leaf=False):
        for label in range(first, last + 1):
            place = block * 256 + label
            units[place] = label | is_leaf << 8 | (place ^ target * 256) << 10

    units[0] = 256 << 10
    branch(1, 0x01, 0x7F, 5, True)
    branch(1, 0xC2, 0xDF, 2)
    branch(1, 0xE0, 0xEF, 3)
    branch(1, 0xF0, 0xF4, 4)
    branch(2, 0x80, 0xBF, 5, True)
    branch(3, 0x80, 0xBF, 2)
    branch(4, 0x80, 0xBF, 3)
    return struct.pack(f"<{1 + len(units)}I", 4 * len(units), *units) + b"!\0"


# In the order of the enumeration GraphemeClass.
GRAPHEME_CLASSES = ["control", "extend", "conjunct_extend", "linker", "spacing", "prepend", "lead", "vowel", "tail", "pictographic", "consonant"]


def grapheme_classes():
    """{code point: class} of what decides where a character as users see it ends. The normalizer Precompiled makes one
    exclamation mark of such a character of less than six bytes, else one of each code point: their number tells whether
    two are parted. Regional indicators and Hangul syllables are left out, as are U+0000 and what has no influence."""
    everything = n.Precompiled(charsmap_of_everything())
    mark, virama, ka, joiner = "\u0301", "\u094d", "\u0915", "\u200d"

    def parts(text):
        return len(everything.normalize_str(text))

    def class_of(c):
        if parts(c + mark + mark) == 2:
            return "control"
        if parts("a" + c) == 1:
            if parts(ka + c + ka + mark) == 4:
                return "linker"
            if parts(ka + c + virama + ka + mark) == 5:
                return "conjunct_extend"
            return "extend" if parts("\u00a9" + c + joiner + "\u00ae" + mark) == 5 else "spacing"
        if parts(c + "a" + mark) != 2:
            return "prepend"
        if parts(c + joiner + "\u00a9" + mark) == 4:
            return "pictographic"
        if parts(c + virama + ka + mark) == 4:
            return "consonant"
        if parts(c + "\u1161" + mark) == 3 and parts("\u1161" + c + mark) != 3:
            return "lead"
        if parts("\u1100" + c + mark) == 3 and parts(c + "\u1161" + mark) == 3:
            return "vowel"
        return "tail" if parts("\u1161" + c + mark) == 3 else None

    skipped = {0, *HANGUL, *range(0x1F1E6, 0x1F200)}
    found = {c: class_of(chr(c)) for c in CODES if c not in skipped}
    return {0: 1} | {c: 1 + GRAPHEME_CLASSES.index(name) for c, name in found.items() if name}


def scripts():
    """{code point: number of its script}, as UnicodeScripts parts text by it; what joins every script has none."""
    def parts(text):
        return len(p.UnicodeScripts().pre_tokenize_str(text))

    codes = [c for c in CODES if parts("a" + chr(c)) > 1 or parts("\u0431" + chr(c)) > 1]
    begins = [begin for _, (begin, _) in p.UnicodeScripts().pre_tokenize_str("".join(map(chr, codes)))]
    found, examples = {}, []
    for first, last in zip(begins, begins[1:] + [len(codes)]):
        example = chr(codes[first])
        script = next((number for number, other in enumerate(examples, 1) if parts(other + example) == 1), None)
        if script is None:
            examples.append(example)
            script = len(examples)
        found |= dict.fromkeys(codes[first:last], script)
    return found


def compatibilities():
    """[(first, last, count)] of neighbours that become `count` code points each, and these, in order."""
    nfd, nfkd = n.NFD(), n.NFKD()
    rows, parts = [], []
    for c in CODES:
        text = nfkd.normalize_str(chr(c))
        if text == nfd.normalize_str(chr(c)):
            continue
        if rows and rows[-1][1:] == [c - 1, len(text)]:
            rows[-1][1] = c
        else:
            rows.append([c, c, len(text)])
        parts += map(ord, text)
    return rows, parts


def ranges(codes):
    """[(first, last)] of a set; the gap of the surrogates, which no text holds, ends no range."""
    found = []
    for code in sorted(codes):
        if found and (code == found[-1][1] + 1 or (found[-1][1] == 0xD7FF and code == 0xE000)):
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def combining_classes():
    """{code point: class}. Marks are ordered by class, so two of the same class, and only those, stay as they are in
    either order. The classes' numbers are this table's own, in their right order."""
    def swapped(first, second):
        # What decomposes has no class to ask for: its parts have.
        return n.NFD().normalize_str(chr(first) + chr(second)) == chr(second) + chr(first)

    whole = n.NFD()
    low, high = 0x334, 0x345
    marks = [c for c in CODES if c not in HANGUL and whole.normalize_str(chr(c)) == chr(c)
             and (swapped(high, c) or swapped(c, low))] + [low, high]
    examples = []  # one code point of each class, in order
    classes = {}
    for mark in sorted(set(marks)):
        below = [e for e in examples if swapped(mark, e)]
        above = [e for e in examples if swapped(e, mark)]
        same = [e for e in examples if e not in below and e not in above]
        assert len(same) <= 1
        if not same:
            examples.insert(len(below), mark)
        classes[mark] = same[0] if same else mark
    return {mark: 1 + examples.index(example) for mark, example in classes.items()}


def decompositions():
    """([(code, first, second or 0)], the codes that composition does not bring back)."""
    nfd, nfc = n.NFD(), n.NFC()
    whole = {c: text for c, text in changed(nfd).items() if c not in HANGUL}
    pairs, lost = [], set()
    for code, text in whole.items():
        if nfc.normalize_str(text) != chr(code):
            lost.add(code)
        head = text[:-1] if len(text) > 1 else text
        if len(head) > 1:
            head = next((chr(c) for c, other in whole.items() if other == head and c not in lost), None) \
                or next(chr(c) for c, other in whole.items() if other == head)
        pairs.append((code, ord(head), ord(text[-1]) if len(text) > 1 else 0))
    return pairs, lost


def lower_case():
    """[(first, last, step, difference)], and [(code, its two code points)] of those that become two."""
    runs, doubles = [], []
    for code, text in changed(n.Lowercase()).items():
        if len(text) > 1:
            doubles.append((code, *map(ord, text)))
            continue
        difference = ord(text) - code
        if runs and runs[-1][3] == difference and code - runs[-1][1] in (1, 2) and \
                (runs[-1][0] == runs[-1][1] or code - runs[-1][1] == runs[-1][2]):
            runs[-1][2] = code - runs[-1][1]
            runs[-1][1] = code
        else:
            runs.append([code, code, 1, difference])
    assert all(len(double) == 3 for double in doubles)
    return runs, doubles


def number(value):
    return f"0x{value:X}" if value > 9 else str(value)


def class_ranges(classes):
    """[(first, last, class)] of {code point: class}."""
    by_class = {}
    for code, value in classes.items():
        by_class.setdefault(value, set()).add(code)
    return sorted((*r, value) for value, codes in by_class.items() for r in ranges(codes))


def class_runs(classes):
    """[(first, last, step, class)] of {code point: class}: capital letters and small ones take turns."""
    runs = []
    for first, last, value in sorted(class_ranges(classes), key=lambda row: (row[2], row[0])):
        before = runs[-1] if runs else None
        if before and first == last == before[1] + 2 and before[3] == value and (before[2] == 2 or before[0] == before[1]):
            before[1:3] = [first, 2]
        else:
            runs.append([first, last, 1, value])
    return runs


def table(kind, name, rows):
    """The rows as a table of C++, filled into lines."""
    text, line = [f"static constexpr {kind} {name}Rows[] = {{"], "   "
    for row in rows:
        item = f" {number(row)}," if isinstance(row, int) else " {" + ",".join(str(v) if v < 0 else number(v) for v in row) + "},"
        if len(line) + len(item) > 118:
            text.append(line)
            line = "   "
        line += item
    text += [line, "};", f"const Rows<{kind}> {name} = {name}Rows;", ""]
    return "\n".join(text)


def write(folder, name, parts):
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(HEAD.format(version=tokenizers.__version__) + "\n".join(parts) + TAIL)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "src", "tokenizers")
    sets = properties()
    pairs, lost = decompositions()
    runs, doubles = lower_case()
    compatible, parts = compatibilities()
    write(folder, "unicode_properties.cpp", [table("Range", "k" + name, ranges(codes)) for name, codes in sets.items()])
    write(folder, "unicode_forms.cpp", [
        table("Decomposition", "kDecompositions", pairs),
        table("Range", "kNotComposed", ranges(lost)),
        table("ClassRange", "kCombiningClasses", class_ranges(combining_classes()))])
    write(folder, "unicode_compatibility.cpp", [table("Compatibility", "kCompatibilities", compatible),
                                                table("char32_t", "kCompatibilityParts", parts)])
    write(folder, "unicode_categories.cpp", [table("ClassRun", "kCategories", class_runs(categories()))])
    write(folder, "unicode_graphemes.cpp", [table("ClassRange", "kGraphemeClasses", class_ranges(grapheme_classes()))])
    write(folder, "unicode_scripts.cpp", [table("ClassRange", "kScripts", class_ranges(scripts()))])
    write(folder, "unicode_case.cpp", [table("CaseRun", "kLowerCase", runs), table("CasePair", "kLowerCasePairs", doubles)])


if __name__ == "__main__":
    main()
