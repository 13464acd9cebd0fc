"""SentencePiece's compiled table of replacements, as the normalizer Precompiled reads it, from a dictionary."""
import struct
import unicodedata

BLOCK = 256


def charsmap(replacements):
    """The bytes of a precompiled_charsmap: a double-array trie (darts-clone) whose nodes have a block of units each, and
    the texts that its values point to."""
    blob, places = b"", {}
    for text in sorted(set(replacements.values())):
        places[text] = len(blob)
        blob += text.encode() + b"\0"
    root = {}
    for key, text in replacements.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = places[text]

    blocks, leaves = [], []  # nodes with children, and (parent's unit, value) of those without

    def lay_out(node):
        blocks.append(node)
        node["block"] = len(blocks)
        for label, child in list(node.items()):
            if isinstance(label, int) and any(isinstance(key, int) for key in child):
                lay_out(child)

    lay_out(root)
    units = [0] * ((1 + len(blocks)) * BLOCK)
    units[0] = BLOCK << 10
    for node in blocks:
        base = node["block"] * BLOCK
        units[base] = node.get(None, 0)
        for label, child in node.items():
            if not isinstance(label, int):
                continue
            if "block" in child:
                target = child["block"] * BLOCK
            else:
                target = len(units)
                units.append(child[None])
            units[base + label] = label | (None in child) << 8 | ((base + label) ^ target) << 10
    return struct.pack(f"<{1 + len(units)}I", 4 * len(units), *units) + blob


def like_nmt_nfkc():
    """What SentencePiece's rule nmt_nfkc does, nearly: NFKC of single characters and of letters with a mark, blanks of
    all kinds, control characters that go, and some letters that grow."""
    found = {}
    for code in [*range(1, 0xD800), *range(0xE000, 0x10000), *range(0x1D400, 0x1D800), *range(0x1F100, 0x1F252), *range(0x2F800, 0x2FA1E)]:
        composed = unicodedata.normalize("NFKC", chr(code))
        if composed != chr(code):
            found[chr(code)] = composed
        parts = unicodedata.normalize("NFD", chr(code))
        if len(parts) > 1 and composed == chr(code):
            found[parts] = chr(code)
    for code in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F, 0xAD]:
        found[chr(code)] = ""
    for code in [9, 0xA, 0xC, 0xD, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0xFEFF, 0xFFFD]:
        found[chr(code)] = " "
    return found
