"""Two builds side by side: what is slower in the second one."""
import os
import pathlib
import subprocess

from harness import figures, suite, tables

MARGIN = 0.02  # Below this, a difference may be that of the addresses at which two builds lie.
HEAD = ["what", "first", "second", "second to first", ""]


def verdict(row):
    """By nine of ten rounds."""
    ratio = change(row)
    return "slower" if ratio["p10"] > 1 + MARGIN else "faster" if ratio["p90"] < 1 - MARGIN else ""


def change(row):
    """Above 1 where the second build is worse."""
    return next(side["ratio"] for side in row["sides"].values() if "ratio" in side)


def ordered(rows):
    """What became slower first, the worst at the top; then what became faster; then the rest. Without counts of nothing."""
    rank = {"slower": 0, "faster": 1, "": 2}
    return sorted((row for row in rows if len(row["sides"]) == 2 and change(row)), key=lambda row: (rank[verdict(row)], -change(row)["median"]))


def cells(row):
    first, second = (figures.spread(side) + " " + row["unit"] for side in row["sides"].values())
    return [row["what"], first, second, figures.spread(change(row), lambda value: f"{value:.3f}"), verdict(row)]


def terminal(rows):
    return tables.aligned([HEAD, *(cells(row) for row in ordered(rows))])


def markdown(rows):
    out = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    return "\n".join(out + ["| " + " | ".join(cells(row)) + " |" for row in ordered(rows)]) + "\n"


def base_build(root, name, names, tell):
    """A build folder to compare with: `name` is one, or a commit, which is built in build/compare."""
    folder = pathlib.Path(name)
    if folder.is_dir():
        return folder.resolve()
    done = subprocess.run(["git", "-C", root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{name} is neither a build folder nor a commit of this checkout")
    return build_commit(root, done.stdout.strip(), names, tell)


def build_commit(root, commit, names, tell):
    source = root / "build" / "compare" / commit[:12]
    if not source.exists():
        subprocess.run(["git", "-C", root, "worktree", "prune"], check=True)
        subprocess.run(["git", "-C", root, "worktree", "add", "--quiet", "--detach", source, commit], check=True)
        if (root / ".venv").exists():
            (source / ".venv").symlink_to(root / ".venv")
    tell(f"building commit {commit[:12]} in {source}")
    build = source / "build"
    jobs = subprocess.run([root / "scripts" / "jobs"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["cmake", "--preset", "tests"], cwd=source, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "-j", os.environ.get("JOBS", jobs), "--target", *suite.targets(names)], check=True)
    return build
