"""What our binaries need at run time: link_lines.py LIBRARY TRAINER DATASETS [LAUNCHER]

The core library needs libtorch_cpu and libc10 and otherwise the system only: no CUDA, no libgloo, no Arrow. The launcher
needs no LibTorch, so that it starts in milliseconds. TRAINER trains on tensors: of our libraries it loads the core library
and that of the models, but no data sets. DATASETS is the one library that loads Arrow, and Oniguruma for tokenizers: an install takes them along.
"""
import re
import subprocess
import sys

import tree

SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|z|asan|ubsan|tsan))\.so(\.\d+)*$")
LIBTORCH = re.compile(r"lib(torch_cpu|c10)\.so$")
TAKEN_ALONG = re.compile(r"lib(arrow|parquet|onig)\.so(\.\d+)*$")


def needed(binary):
    listing = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", listing)


def problems_of(binary, names, may_need_libtorch):
    for name in names:
        if not SYSTEM.match(name) and not (may_need_libtorch and LIBTORCH.match(name)):
            yield f"{binary} needs {name}, which it must not"


def trainer_problems(binary, names):
    for name in names:
        if (name.startswith("liblockstep_") and not name.startswith("liblockstep_models.")) or TAKEN_ALONG.match(name):
            yield f"{binary} needs {name}, though it trains on tensors alone"


def datasets_problems(binary, names):
    for name in names:
        ours = re.match(r"liblockstep\.so", name)
        if not (ours or SYSTEM.match(name) or LIBTORCH.match(name) or TAKEN_ALONG.match(name)):
            yield f"{binary} needs {name}, which it must not: libarrow, libparquet and libonig alone are installed with it"


def problems(library, trainer, datasets, launcher=None):
    found = [*problems_of(library, needed(library), True), *trainer_problems(trainer, needed(trainer)),
             *datasets_problems(datasets, needed(datasets))]
    if launcher:
        found += problems_of(launcher, needed(launcher), False)
    return found, 4 if launcher else 3


if __name__ == "__main__":
    tree.report("link lines", *problems(*sys.argv[1:]))
