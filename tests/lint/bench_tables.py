"""The tables of benchmarks and faults in our pages are those of the recorded results: bench_tables.py ROOT

What stands between `<!-- bench: ... -->`, or `bench short:`, and `<!-- end of bench -->` in README.md and docs/ is what bench.py --write-docs makes of
tests/benchmarks/results/recorded.json; and every mark has its end. What stands between `<!-- faults: FILE -->` and `<!-- end of faults -->` is
what tests/faults/table.py --write makes of FILE.
"""
import json
import os
import pathlib
import re
import sys

import tree

for folder in ("benchmarks", "faults"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
import table
from harness import pages


def stale_faults(root, page, text):
    """Tables of faults that are not those of their records."""
    for begin, record, end in table.PLACE.findall(text):
        if not (pathlib.Path(root) / record).exists():
            yield f"{page}: {record} is not there"
        elif begin + table.as_markdown(json.loads(tree.read(root, record))) + end not in text:
            yield f"{page}: its table of faults is not that of {record}: run tests/faults/table.py --write"


def problems(root):
    root = pathlib.Path(root)
    found, checked = list(pages.stale(root)), len(pages.marked_pages(root))
    for page in tree.files(root, ["docs"], (".md",)) + ["README.md"]:
        text = tree.read(root, page) if (root / page).exists() else ""
        begun, ended = len(re.findall(r"<!-- bench( short)?:", text)), text.count("<!-- end of bench -->")
        found += stale_faults(root, page, text)
        checked += "<!-- faults:" in text
        if text.count("<!-- faults:") != len(table.PLACE.findall(text)):
            found.append(f"{page}: each mark of a table of faults has its end, on lines of their own")
        if begun != ended or begun != len(pages.MARKED.findall(text)):
            found.append(f"{page}: {begun} marks of tables and {ended} ends of them: each mark has its end, on lines of their own")
    return found, checked


if __name__ == "__main__":
    tree.report("tables of benchmarks", *problems(sys.argv[1]))
