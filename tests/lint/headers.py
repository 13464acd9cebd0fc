"""Every public header compiles by itself, and the light ones stay light: headers.py ROOT COMPILER LIBTORCH [-Idir ...]

core headers compile without LibTorch's headers at all. The other light headers may show ATen/core/Tensor.h (optim and
train torch/optim/optimizer.h too) and compile with LibTorch's own guard: its heavy headers then say #error. What shows
torch/nn on purpose is heavy: models/, the headers listed in heavy_headers.txt, and what includes one of these.

The widest header of LibTorch that a header includes anyway is compiled beforehand, once for all that share it: it
hides nothing that the header itself would not have had.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import tree

LIGHT = {"ATen/core/Tensor.h"}
LIST = "tests/lint/heavy_headers.txt"
WIDEST_FIRST = ("torch/nn/module.h", "torch/optim/optimizer.h", "ATen/core/Tensor.h")
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


def all_includes(header, texts):
    """What the header includes, by itself or through our other headers."""
    seen, rest = set(), [header]
    while rest:
        for _, include, _ in tree.includes(texts[rest.pop()]):
            rest += [include] if include in texts and include not in seen else []
            seen.add(include)
    return seen


def command(compiler, root, header, heavy, libtorch, includes):
    """The compiler's words for a header, without what is to be compiled."""
    words = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(root, "include"), *includes]
    if not header.startswith("lockstep/core/"):
        for folder in ("include", "include/torch/csrc/api/include"):
            words += ["-isystem", os.path.join(libtorch, folder)]
        words += [] if header in heavy else GUARD
    return words


def precompiled(words, widest, number, folder):
    """Compiles a header of LibTorch beforehand; the words that use it, or none where it does not compile."""
    path = os.path.join(folder, f"{number}.hpp")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#include <{widest}>\n")
    done = subprocess.run([*words, "-x", "c++-header", path, "-o", path + ".gch"], capture_output=True, check=False)
    return ["-include", path] if done.returncode == 0 else []


def compile_problem(words, header):
    done = subprocess.run([*words, "-fsyntax-only", "-x", "c++", "-"], input=f'#include "{header}"\n',
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    reason = next((line for line in done.stderr.split("\n") if "error" in line), done.stderr[-400:])
    return f"include/{header} does not compile by itself: {reason}"


def compile_problems(headers, texts, words):
    """What is wrong with the headers, each compiled by its words."""
    shared = {}
    for header in headers:
        widest = next((wide for wide in WIDEST_FIRST if wide in all_includes(header, texts)), None)
        if widest:
            shared.setdefault((widest, *words[header]), []).append(header)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda of: precompiled(of[1][1:], of[1][0], of[0], folder), enumerate(shared))
        for group, more in zip(shared.values(), list(made)):
            for header in group:
                words[header] = words[header] + more
        return [problem for problem in pool.map(compile_problem, words.values(), words) if problem]


def problems(root, compiler, libtorch, includes=()):
    headers = [os.path.relpath(path, "include") for path in tree.files(root, ["include"])]
    texts = {header: tree.read(root, os.path.join("include", header)) for header in headers}
    listed = [line for line in tree.read(root, LIST).split("\n") if line and not line.startswith("#")]
    heavy = heavy_headers(headers, texts, listed)
    found = [f"{LIST}: there is no include/{gone}" for gone in listed if gone not in texts]
    for header in headers:
        found += [] if header in heavy or header.count("/") < 2 else show_problems(header, texts[header])
    words = {header: command(compiler, root, header, heavy, libtorch, includes) for header in headers}
    return found + compile_problems(headers, texts, words), len(headers)


if __name__ == "__main__":
    tree.report("headers", *problems(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
