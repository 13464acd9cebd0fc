"""Texts to measure with: those of this repository, so that nothing has to be fetched."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACES = (("docs", "*.md"), ("src", "*.cpp"), ("include", "*.hpp"), ("launch", "*.cpp"), ("tests", "*.cpp"), ("tests", "*.py"))


def repository_text(megabytes):
    """As many bytes of pages and sources, in whole lines; of all that there is, again from the beginning."""
    paths = [path for folder, pattern in PLACES for path in sorted((ROOT / folder).rglob(pattern))]
    parts, size, limit = [], 0, megabytes * 1_000_000
    while size < limit:
        for path in paths:
            parts.append(path.read_text(encoding="utf-8", errors="replace"))
            size += len(parts[-1])
            if size >= limit:
                break
    text = "".join(parts)[:int(limit)]
    return text[:text.rindex("\n") + 1]


def repository_lines(count):
    """Lines with at least four words, over and over if there are not enough."""
    lines = [line.strip() for line in repository_text(2).splitlines() if len(line.split()) >= 4]
    return [lines[number % len(lines)] for number in range(count)]
