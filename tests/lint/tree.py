"""What the lint checks share: the files of the tree, C++ text without comments, and how a check reports."""
import os
import re
import sys

FOLDERS = ["core", "tokenizers", "net", "coordination", "shm", "comm", "data", "datasets", "kernels", "parallel", "optim", "checkpoint", "train", "models"]
# The launcher may use core and net, and of the others what is free of LibTorch: it reads checkpoints, keeps the cache
# and stages data, and starts in milliseconds all the same.
LAUNCHER_FOLDERS = ["core", "net"]
LAUNCHER_PARTS = ["checkpoint/checkpoint_folder", "checkpoint/dtypes", "checkpoint/safetensors_file",
                  "checkpoint/safetensors_header", "checkpoint/shards", "datasets/cache/cache_entry", "datasets/cache/cache_folder",
                  "datasets/prepare", "datasets/cache/staging"]
# A folder of the data sets includes only folders before it; the files that lie in none of them come last.
DATASETS_FOLDERS = ["cache", "distributed", "arrow", "table", "dataset", "writers", "readers", "stream", "map", "texts"]
# Where Arrow's headers are included.
ARROW_FOLDERS = ["arrow", "table", "writers", "readers"]
# A folder of the launcher includes only folders before it: there are no cycles among them.
LAUNCH_FOLDERS = ["process", "logs", "failure", "config", "rendezvous", "torchrun_interop", "metrics", "agent",
                  "slurm", "checkpoint", "trace", "report", "cli"]
OURS = ["include", "src", "launch", "trainers", "tools", "examples", "tests"]

_TOKEN = re.compile(
    r'R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.MULTILINE)


def files(root, folders=OURS, endings=(".cpp", ".hpp", ".h")):
    """Paths, relative to the root, of the files in these folders; build folders and the like are passed over."""
    found = []
    for folder in folders:
        for place, names, leaves in os.walk(os.path.join(root, folder)):
            names[:] = sorted(n for n in names if not n.startswith((".", "build", "__pycache__")))
            found += [os.path.relpath(os.path.join(place, leaf), root) for leaf in leaves if leaf.endswith(endings)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def code(text):
    """C++ text with comments and the insides of literals blanked; lines keep their numbers."""
    return _TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def includes(text):
    """(line, path, quoted) of every #include that is no part of a comment."""
    comments = [m.span() for m in _TOKEN.finditer(text) if m.group().startswith("/")]
    for match in _INCLUDE.finditer(text):
        if not any(begin <= match.start(0) < end for begin, end in comments):
            line = text.count("\n", 0, match.start(1) if match.group(1) else match.start(2)) + 1
            yield line, match.group(1) or match.group(2), match.group(2) is not None


def report(name, problems, checked):
    """Prints the outcome; the exit status of the check."""
    for problem in problems:
        print(problem)
    print(f"{name}: {checked} checked, {len(problems)} problems")
    if checked == 0:
        print(f"{name}: nothing was there to check: is the root right?")
    sys.exit(1 if problems or checked == 0 else 0)
