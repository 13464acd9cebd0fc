"""Every public header compiles by itself, and the light ones stay light: headers.py ROOT COMPILER LIBTORCH [-Idir ...]

core headers compile without LibTorch's headers at all. The other light headers may show ATen/core/Tensor.h (optim and
train torch/optim/optimizer.h too) and compile with LibTorch's own guard: its heavy headers then say #error. What shows
torch/nn on purpose is heavy: models/, the headers listed in heavy_headers.txt, and what includes one of these.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

import tree

LIGHT = {"ATen/core/Tensor.h"}
LIST = "tests/house/heavy_headers.txt"
GUARD = ["-DAT_PER_OPERATOR_HEADERS", "-DTORCH_ASSERT_ONLY_METHOD_OPERATORS"]


def heavy_headers(headers, texts, listed):
    """The headers that are heavy themselves or include one that is."""
    heavy = {h for h in headers if h in listed or h.startswith("lockstep/models/")}
    grown = True
    while grown:
        more = {h for h in headers if h not in heavy and any(i in heavy for _, i, _ in tree.includes(texts[h]))}
        heavy |= more
        grown = bool(more)
    return heavy


def show_problems(header, text):
    """LibTorch headers that a light header names but must not."""
    folder = header.split("/")[1]
    may_show = LIGHT | ({"torch/optim/optimizer.h"} if folder in ("optim", "train") else set())
    for line, include, _ in tree.includes(text):
        if re.match(r"(torch|ATen|caffe2)/", include) and include not in may_show:
            yield f"include/{header}:{line}: a light header of {folder} must not show {include}"


def command(compiler, root, header, heavy, libtorch, includes):
    words = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    words += ["-I", os.path.join(root, "include"), *includes]
    if not header.startswith("lockstep/core/"):
        for folder in ("include", "include/torch/csrc/api/include"):
            words += ["-isystem", os.path.join(libtorch, folder)]
        words += [] if header in heavy else GUARD
    return [*words, "-x", "c++", "-"]


def compile_problem(words, header):
    done = subprocess.run(words, input=f'#include "{header}"\n', capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    reason = next((line for line in done.stderr.split("\n") if "error" in line), done.stderr[-400:])
    return f"include/{header} does not compile by itself: {reason}"


def problems(root, compiler, libtorch, includes=()):
    headers = [os.path.relpath(path, "include") for path in tree.files(root, ["include"])]
    texts = {header: tree.read(root, os.path.join("include", header)) for header in headers}
    listed = [line for line in tree.read(root, LIST).split("\n") if line and not line.startswith("#")]
    heavy = heavy_headers(headers, texts, listed)
    found = [f"{LIST}: there is no include/{gone}" for gone in listed if gone not in texts]
    for header in headers:
        found += [] if header in heavy or header.count("/") < 2 else show_problems(header, texts[header])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        words = [command(compiler, root, header, heavy, libtorch, includes) for header in headers]
        found += [problem for problem in pool.map(compile_problem, words, headers) if problem]
    return found, len(headers)


if __name__ == "__main__":
    tree.report("headers", *problems(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
