"""A wrong call is one error of the compiler's that says what was expected: compile_errors.py ROOT COMPILER LIBTORCH

Each line of wrong_calls.cpp that ends with a comment is a wrong call; the comment is a part of the one message.
"""
import os
import re
import subprocess
import sys


def main(root, compiler, libtorch):
    source = os.path.join(root, "tests/lint/wrong_calls.cpp")
    with open(source, encoding="utf-8") as file:
        expected = [line.split("//")[1].strip() for line in file if not line.startswith("//") and "  // " in line]
    words = [compiler, "-std=c++20", "-fsyntax-only", "-I", os.path.join(root, "include")]
    for folder in ("include", "include/torch/csrc/api/include"):
        words += ["-isystem", os.path.join(libtorch, folder)]
    result = subprocess.run([*words, source], capture_output=True, text=True)
    errors = re.findall(r"error: (.*)", result.stderr)
    problems = [f"no error says '{part}'" for part in expected if not any(part in error for error in errors)]
    if len(errors) != len(expected):
        problems.append(f"{len(expected)} wrong calls are {len(errors)} errors")
    print("\n".join(problems + (errors if problems else [])))
    return 1 if problems or not expected else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
