#!/usr/bin/env python3
"""The API reference: HTML of the public headers and of the pages, by Doxygen with docs/Doxyfile.

    make_reference.py OUT    writes OUT/html, whose index.html is the README; OUT is made new

A warning of Doxygen is an error, and so is a link in the HTML to a file or an anchor that is not there. Doxygen's Markdown is not
that of our pages, so it reads changed copies, in OUT/sources: headings have the anchors that links name, words in angle
brackets are no HTML, and links to files that are not in the reference are plain text.
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
DOXYGENS_OWN = "nested-classes"  # Doxygen 1.9.4 links to it also where only private classes are nested.
PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md")  # And all of docs/.


def outside(pattern, text, change):
    """Applies `change` to what is outside of the matches of `pattern`."""
    parts, end = [], 0
    for match in pattern.finditer(text):
        parts += [change(text[end:match.start()]), match.group()]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def label(page, title):
    """Doxygen's anchor of a heading, by its page and by the anchor that the usual renderers give it."""
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return label_of(page, anchor)


def label_of(page, anchor):
    return re.sub(r"\W", "_", page.removesuffix(".md")) + "__" + re.sub(r"\W", "_", anchor)


def target_of(page, link):
    """What a link becomes: an address, a label of a page, a header, or None."""
    if re.match(r"[a-z]+:", link):
        return link
    path, _, anchor = link.partition("#")
    place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if place.startswith("docs/") and place.endswith(".md") or place in PAGES:
        return "#" + label_of(place, anchor) if anchor else f"@ref {page_name(place)}"
    return "@ref " + place.removeprefix("include/") if place.startswith("include/lockstep/") and place.endswith(".hpp") else None


def page_name(place):
    return "index" if place == "README.md" else re.sub(r"\W", "_", place.removesuffix(".md"))


def page_text(page, text):
    def links(part):
        def replaced(match):
            target = target_of(page, match.group(2))
            return f"[{match.group(1)}]({target})" if target else f"{match.group(1)}"
        return LINK.sub(replaced, part)

    def prose(part):
        part = outside(SPAN, part, lambda words: re.sub(r"<(?=[a-z][^>\n]*>)(?!a |br|details|summary|/)", "&lt;", words))
        part = re.sub(r"^(##+) (.+?)$", lambda match: f"{match.group(1)} {match.group(2)} {{#{label(page, match.group(2))}}}", part, flags=re.MULTILINE)
        return links(part)

    text = outside(FENCE, text, prose)
    title = "" if page == "README.md" else f" {{#{page_name(page)}}}"
    return re.sub(r"\A# (.+)$", lambda match: f"# {match.group(1)}{title}", text, flags=re.MULTILINE)


CODE = re.compile(r"`[^`]+`")


def first_sentence(words):
    """Where it ends. Doxygen would also end it within `code.with.dots`."""
    blank = CODE.sub(lambda code: re.sub(r"[^\n]", "-", code.group()), words)
    end = re.search(r"\.(?=\s)", blank)
    return end.end() if end else len(words)


def paragraph_text(words, begins):
    """A paragraph of a comment: words in angle brackets are no HTML. `begins`: its first sentence is the brief description."""
    def prose(part):
        return outside(CODE, part, lambda text: text.replace("<", "&lt;"))

    if not begins:
        return prose(words)
    end = first_sentence(words)
    rest = words[end:].strip()
    return "@brief " + prose(words[:end]) + ("\n\n" + prose(rest) if rest else "")


def header_text(text):
    """The comments of a header, one paragraph at a time. Examples, which are indented, stay as they are."""
    changed, paragraph, begins = [], [], True

    def flush():
        if paragraph:
            indent = re.match(r"\s*", paragraph[0]).group()
            words = "\n".join(re.sub(r"^\s*///<? ?", "", line) for line in paragraph)
            changed.extend(f"{indent}/// {line}" for line in paragraph_text(words, begins).split("\n"))
            paragraph.clear()

    for line in text.split("\n"):
        if re.match(r"\s*/// {0,4}\S", line) and "```" not in line:
            paragraph.append(line)
            continue
        flush()
        changed.append(line)
        begins = not re.match(r"\s*///", line)
    flush()
    return "\n".join(changed)


def write_sources(folder):
    """Copies of what Doxfile names as its input, changed."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "include").rglob("*.hpp"), *(ROOT / page for page in PAGES)]
    for path in pages:
        name = os.path.relpath(path, ROOT)
        text = path.read_text(encoding="utf-8")
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page_text(name, text) if name.endswith(".md") else header_text(text), encoding="utf-8")


class Links(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links |= {values[name] for name in ("href", "src") if values.get(name)}


def broken_links(folder):
    pages = {path.name: Links(path.read_text(encoding="utf-8")) for path in folder.glob("*.html")}
    for name, page in sorted(pages.items()):
        for link in sorted(page.links):
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            if path and not (folder / path).exists():
                yield f"{name} links to {link}, which is not there"
            elif anchor not in ("", DOXYGENS_OWN) and (path or name) in pages and anchor not in pages[path or name].anchors:
                yield f"{name} links to {link}, which has no such anchor"


def version():
    return re.search(r"project\(lockstep\s+VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.IGNORECASE).group(1)


def make(out):
    if not shutil.which("doxygen"):
        print("make_reference.py: doxygen is not installed: scripts/setup docs", file=sys.stderr)
        sys.exit(77)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_sources(out / "sources")
    settings = f'@INCLUDE = {ROOT}/docs/Doxyfile\nPROJECT_NUMBER = {version()}\nOUTPUT_DIRECTORY = "{out}"\nIMAGE_PATH = "{ROOT}/docs"\n'
    done = subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=out / "sources", check=False)
    shutil.rmtree(out / "sources")
    problems = list(broken_links(out / "html"))
    print("".join(problem + "\n" for problem in problems), end="", file=sys.stderr)
    if done.returncode or problems:
        sys.exit(f"make_reference.py: doxygen ended with {done.returncode}; {len(problems)} broken links")
    print(f"reference: {out}/html/index.html")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    make(pathlib.Path(sys.argv[1]).resolve())
