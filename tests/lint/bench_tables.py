"""The tables of benchmarks in our pages are those of the recorded results: bench_tables.py ROOT

What stands between `<!-- bench: ... -->`, or `bench short:`, and `<!-- end of bench -->` in README.md and docs/ is what bench.py --write-docs makes of
tests/benchmarks/results/recorded.json; and every mark has its end.
"""
import os
import pathlib
import re
import sys

import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "benchmarks"))
from harness import pages


def problems(root):
    root = pathlib.Path(root)
    found, marked = list(pages.stale(root)), pages.marked_pages(root)
    for page in tree.files(root, ["docs"], (".md",)) + ["README.md"]:
        text = tree.read(root, page) if (root / page).exists() else ""
        begun, ended = len(re.findall(r"<!-- bench( short)?:", text)), text.count("<!-- end of bench -->")
        if begun != ended or begun != len(pages.MARKED.findall(text)):
            found.append(f"{page}: {begun} marks of tables and {ended} ends of them: each mark has its end, on lines of their own")
    return found, len(marked)


if __name__ == "__main__":
    tree.report("tables of benchmarks", *problems(sys.argv[1]))
