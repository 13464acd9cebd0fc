"""results.json: what was measured, where, and in which order it is shown."""
import json
import os

from harness.benchmark import OURS

FORMAT = 1


def peers_of(row):
    """The sides that Lockstep is compared with, but for the limit."""
    return [name for name, side in row["sides"].items() if name not in (OURS, row["limit"]) and "ratio" in side]


def compared(row):
    """Those peers to which there is a ratio."""
    return [name for name in peers_of(row) if row["sides"][name]["ratio"]]


def worst(row):
    """The ratio to the peer that does best; above every ratio where there is none."""
    return min((row["sides"][name]["ratio"]["median"] for name in compared(row)), default=float("inf"))


def ordered(rows):
    """Rows in which Lockstep is behind a peer come first, the worst of them at the top."""
    behind = sorted((row for row in rows if worst(row) < 1), key=worst)
    return behind + [row for row in rows if worst(row) >= 1]


def write(results, path):
    text = json.dumps(results, indent=1)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(f"{path}.new", path)


def read(path):
    with open(path, encoding="utf-8") as file:
        results = json.load(file)
    if results.get("format") != FORMAT:
        raise ValueError(f"{path} has format {results.get('format')}, and this is written for {FORMAT}: measure again")
    return results


def select(results, names):
    """Rows by names of benchmarks (`launch`) or of rows (`launch.start_2`), in the order of these; all without names."""
    if not names:
        return ordered(results["rows"])
    found = []
    for name in names:
        rows = [row for row in results["rows"] if name in (row["benchmark"], f"{row['benchmark']}.{row['row']}")]
        if not rows:
            raise ValueError(f"the results have no row {name}: measure it as well")
        found += rows
    return found
