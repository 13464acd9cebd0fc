"""The tables in our pages: what stands between two marks is written from the recorded results.

    <!-- bench: launch all_reduce.2_64m -->      benchmarks, or single rows; without names everything, behind rows first
    ...
    <!-- end of bench -->

`bench short:` has medians alone, beside the peer that did best, and links to the rows' pages. A page that shows figures/benchmarks.svg
gets the plot of all ratios.
"""
import pathlib
import re

from harness import machine, plots, results, tables

RECORDED = pathlib.Path("tests/benchmarks/results/recorded.json")
PLOT = pathlib.Path("docs/figures/benchmarks.svg")
MARKED = re.compile(r"^(<!-- bench( short)?:([^\n]*) -->\n).*?^(<!-- end of bench -->)$", re.MULTILINE | re.DOTALL)


def rendered(text, found, docs=""):
    """A page with its marked parts as the results have them; `docs` leads from it to the folder docs."""
    def part(match):
        mark, short, names, end = match.groups()
        rows = results.select(found, names.split())
        return f"{mark}{machine.sentence(found)}\n\n{tables.short(rows, docs) if short else tables.markdown(rows)}{end}"

    return MARKED.sub(part, text)


def fresh(root, page, found):
    return rendered(page.read_text(encoding="utf-8"), found, "docs/" if page.parent == root else "")


def plot_of(root, found):
    """The text of the plot; None where no page shows it."""
    shown = any("](figures/benchmarks.svg)" in page.read_text(encoding="utf-8") for page in (root / "docs").glob("*.md"))
    return plots.overview(results.ordered(found["rows"]), machine.sentence(found)) if shown else None


def marked_pages(root):
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [page for page in pages if page.exists() and MARKED.search(page.read_text(encoding="utf-8"))]


def write(root, path):
    """Records the results of the file `path`, and writes them into every marked page. Nothing is written if a row is missing."""
    found = results.read(path)
    texts = {page: fresh(root, page, found) for page in marked_pages(root)}
    recorded = root / RECORDED
    recorded.parent.mkdir(parents=True, exist_ok=True)
    if recorded.resolve() != pathlib.Path(path).resolve():
        results.write(found, recorded)
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
    if plot := plot_of(root, found):
        (root / PLOT).parent.mkdir(exist_ok=True)
        (root / PLOT).write_text(plot, encoding="utf-8")
    return [str(page.relative_to(root)) for page in texts]


def stale(root):
    """Pages whose marked parts are not those of the recorded results."""
    found = results.read(root / RECORDED)
    plot = plot_of(root, found)
    if plot and (not (root / PLOT).exists() or (root / PLOT).read_text(encoding="utf-8") != plot):
        yield f"{PLOT}: not the plot of {RECORDED}: run tests/benchmarks/bench.py --write-docs {RECORDED}"
    for page in marked_pages(root):
        try:
            same = fresh(root, page, found) == page.read_text(encoding="utf-8")
        except ValueError as error:
            yield f"{page.relative_to(root)}: {error}"
            continue
        if not same:
            yield f"{page.relative_to(root)}: a marked table is not that of {RECORDED}: run tests/benchmarks/bench.py --write-docs {RECORDED}"
