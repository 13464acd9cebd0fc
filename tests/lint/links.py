"""Links and paths in our pages lead somewhere: links.py ROOT

Checks README.md, docs/ and the examples' pages: relative links with their anchors, and `paths` in backquotes that begin
with a folder of the repository.
"""
import os
import re
import sys

import tree

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`([\w.-]+(?:/[\w.+-]+)+/?)`")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def anchors(text):
    """The anchors of a page's headings, as the usual renderers name them."""
    found = set()
    for title in re.findall(r"^#+[ \t]+(.+?)[ \t]*#*$", FENCE.sub(blank, text), re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))
    return found


def link_problem(root, page, link):
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not os.path.exists(os.path.join(root, target)):
        return f"links to {link}, which does not exist"
    if anchor and target.endswith(".md") and anchor not in anchors(tree.read(root, target)):
        return f"links to {link}, but {target} has no such heading"
    return None


def path_problem(root, path):
    ours = path.split("/")[0] in set(os.listdir(root)) - {"build", "out", "bench"}
    return f"names `{path}`, which does not exist" if ours and not os.path.exists(os.path.join(root, path)) else None


def page_problems(root, page):
    text = FENCE.sub(blank, tree.read(root, page))
    for number, line in enumerate(text.split("\n"), 1):
        found = [link_problem(root, page, link) for link in LINK.findall(line)]
        found += [path_problem(root, path) for path in PATH.findall(line)]
        for problem in filter(None, found):
            yield f"{page}:{number}: {problem}"


def problems(root):
    pages = tree.files(root, ["docs", "examples"], (".md",))
    pages += ["README.md"] if os.path.exists(os.path.join(root, "README.md")) else []
    return [problem for page in pages for problem in page_problems(root, page)], len(pages)


if __name__ == "__main__":
    tree.report("links", *problems(sys.argv[1]))
