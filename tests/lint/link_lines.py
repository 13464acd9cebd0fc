"""What our binaries need at run time: link_lines.py LIBRARY TRAINER [LAUNCHER]

The core library needs libtorch_cpu and libc10 and otherwise the system only: no CUDA, no libgloo. The launcher needs no
LibTorch, so that it starts in milliseconds. TRAINER trains on tensors: of our libraries it loads the core library alone.
"""
import re
import subprocess
import sys

import tree

SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|z|asan|ubsan|tsan))\.so(\.\d+)*$")
LIBTORCH = re.compile(r"lib(torch_cpu|c10)\.so$")


def needed(binary):
    listing = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", listing)


def problems_of(binary, names, may_need_libtorch):
    for name in names:
        if not SYSTEM.match(name) and not (may_need_libtorch and LIBTORCH.match(name)):
            yield f"{binary} needs {name}, which it must not"


def trainer_problems(binary, names):
    for name in names:
        if name.startswith("liblockstep_"):
            yield f"{binary} needs {name}, though it trains on tensors alone"


def problems(library, trainer, launcher=None):
    found = [*problems_of(library, needed(library), True), *trainer_problems(trainer, needed(trainer))]
    if launcher:
        found += problems_of(launcher, needed(launcher), False)
    return found, 3 if launcher else 2


if __name__ == "__main__":
    tree.report("link lines", *problems(*sys.argv[1:]))
