"""A wrong call is one error of the compiler's that says what was expected: compile_errors.py ROOT COMPILER LIBTORCH

In wrong_calls.cpp a line with a comment at its end is a wrong call; the comment is a part of the one message.
"""
import os
import re
import subprocess
import sys

import tree

SOURCE = "tests/lint/wrong_calls.cpp"


def problems(root, compiler, libtorch):
    expected = re.findall(r"^\s*[^\s/].*  // (.*)$", tree.read(root, SOURCE), re.MULTILINE)
    words = [compiler, "-std=c++20", "-fsyntax-only", "-Werror=unused-result", "-I", os.path.join(root, "include")]
    for folder in ("include", "include/torch/csrc/api/include"):
        words += ["-isystem", os.path.join(libtorch, folder)]
    result = subprocess.run([*words, os.path.join(root, SOURCE)], capture_output=True, text=True, check=False)
    errors = re.findall(r"error: (.*)", result.stderr)
    found = [f"{SOURCE}: no error says '{part}'" for part in expected if not any(part in error for error in errors)]
    if len(errors) != len(expected):
        found += [f"{SOURCE}: {len(expected)} wrong calls are {len(errors)} errors", *errors]
    return found, len(expected)


if __name__ == "__main__":
    tree.report("compile errors", *problems(*sys.argv[1:]))
