"""How long our files and functions are: sizes.py ROOT

Prints the numbers that we watch, and fails on a file above 500 lines. Functions are told by their clang-format layout:
a line that ends in `{` behind a parameter list, and the next `}` that is not deeper: the line may continue the one above.
"""
import re
import statistics
import sys

import tree

LONGEST_FILE = 500
OPENING = re.compile(r"^( *)(?!\s*(?:if|for|while|switch|else|do|try|catch|namespace|class|struct|enum|union|extern)\b)"
                     r"[^=#]*\)[^=;]*\{$")


def function_lengths(text):
    """(line, length) of every function whose body is longer than its first line."""
    lines = tree.code(text).split("\n")
    for number, line in enumerate(lines):
        opening = OPENING.match(line.rstrip())
        if not opening:
            continue
        for end in range(number + 1, len(lines)):
            depth = len(lines[end]) - len(lines[end].lstrip())
            if depth <= len(opening.group(1)) and lines[end].lstrip().startswith("}"):
                yield number + 1, end - number + 1
                break


def describe(lengths, name):
    """One line of numbers, and the three longest."""
    counts = [length for length, _ in lengths]
    print(f"{name}: {len(counts)}, median {statistics.median(counts):g}, longest {max(counts)}")
    for length, place in sorted(lengths, reverse=True)[:3]:
        print(f"  {length:4d} lines  {place}")


def problems(root):
    paths = tree.files(root, endings=(".cpp", ".hpp", ".h", ".py", ".sh"))
    texts = {path: tree.read(root, path) for path in paths}
    lengths = [(text.count("\n"), path) for path, text in texts.items()]
    functions = [(length, f"{path}:{line}") for path, text in texts.items() if path.endswith(("pp", ".h"))
                 for line, length in function_lengths(text)]
    if lengths:
        describe(lengths, "files")
    if functions:
        describe(functions, "functions")
        above = sum(length > 60 for length, _ in functions)
        print(f"functions above 60 lines: {above} ({100 * above / len(functions):.1f} %)")
    return [f"{path}: {length} lines, at most {LONGEST_FILE} are allowed: give each idea a file of its own"
            for length, path in lengths if length > LONGEST_FILE], len(paths)


if __name__ == "__main__":
    tree.report("sizes", *problems(sys.argv[1]))
