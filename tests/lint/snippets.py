"""Code in our pages is code that compiles: snippets.py ROOT

A block of C++ in README.md and under docs/ stands behind `<!-- from PATH -->`, and its lines stand in that file, as they
are or further to the right: the file belongs to the build, and a test runs it. Of a table behind `<!-- lines from PATH -->`,
each piece of code in the last column stands in that file.
"""
import os
import re
import sys
import textwrap

import tree

BLOCK = re.compile(r"(?:^<!-- from (\S+) -->\n)?^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


TABLE = re.compile(r"^<!-- lines from (\S+) -->\n\|.*\n\| ---.*\n((?:\|.*\n)+)", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def table_problems(root, page, text):
    for table in TABLE.finditer(text):
        source, rows = table.groups()
        if not os.path.exists(os.path.join(root, source)):
            yield f"{page}: {source} is not there"
            continue
        known = tree.read(root, source)
        for row in rows.splitlines():
            cell = row.rstrip(" |").rsplit(" | ", 1)[-1]
            yield from (f"{page}: `{code}` does not stand in {source}" for code in CODE.findall(cell) if code not in known)


def contains(source, code):
    lines = textwrap.dedent(code)
    return any("\n" + textwrap.indent(lines, " " * depth) in "\n" + source for depth in range(0, 20, 2))


def page_problems(root, page, text):
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        source, code = block.groups()
        if source is None:
            yield f"{page}:{line}: a block of C++ must say where it is from: <!-- from examples/NAME.cpp -->"
        elif not os.path.exists(os.path.join(root, source)):
            yield f"{page}:{line}: {source} is not there"
        elif not contains(tree.read(root, source), code):
            yield f"{page}:{line}: these lines do not stand in {source} like this"
    yield from table_problems(root, page, text)


def problems(root):
    pages = tree.files(root, ["docs"], (".md",)) + ["README.md"]
    return [found for page in pages for found in page_problems(root, page, tree.read(root, page))], len(pages)


if __name__ == "__main__":
    tree.report("snippets", *problems(sys.argv[1]))
