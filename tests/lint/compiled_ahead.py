"""What scripts/setup compiles while it fetches LibTorch is not compiled again: compiled_ahead.py CMAKE ROOT BUILD

Configures the part without LibTorch in a folder of its own. Each of its files has the options that it has in BUILD, which
uses the LibTorch of .venv; but for the one that says the versions of what was fetched.
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile

SAYS_VERSIONS = "cli/main.cpp.o"


def options(build):
    """By output: a compiler's words from its options on, with `build` as @."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        commands = json.load(file)
    found = {}
    for entry in commands:
        words = shlex.split(entry["command"].replace(os.path.realpath(build), "@"))
        found[words[words.index("-o") + 1]] = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    return found


def main(cmake, root, build):
    with tempfile.TemporaryDirectory() as ahead:
        environment = {name: value for name, value in os.environ.items() if name != "CMAKE_CXX_COMPILER_LAUNCHER"}
        subprocess.run([cmake, "-S", root, "-B", ahead, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOCKSTEP_CORE_ONLY=ON",
                        "-DCMAKE_CXX_COMPILER_LAUNCHER=env"], env=environment, check=True, stdout=subprocess.DEVNULL)
        first, then = options(ahead), options(build)
    different = [output for output, words in first.items() if words != then.get(output) and not output.endswith(SAYS_VERSIONS)]
    for output in different:
        print(f"{output}: ahead {first[output]}, then {then.get(output)}")
    print(f"{len(first)} files are compiled ahead, {len(different)} of them again")
    return 1 if different or not first else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
