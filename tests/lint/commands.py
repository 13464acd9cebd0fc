"""The commands in our pages can be given: commands.py ROOT BUILD

Every command in README.md and docs/, in a block or within a line, names programs, sub-commands, targets, presets and files
that are there, and flags that their --help lists. A block behind `<!-- run -->` is run, but for lines that ask a cluster's
scheduler or a torchrun that is not installed: in an empty folder where `build` is the build folder, `lockstep` is on PATH,
`./my_trainer` is an example and some texts lie.
"""
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import tree

BLOCK = re.compile(r"^(<!-- run -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
STARTS = ("lockstep ", "build/bin/", "build/examples/", "build/tests/", "make ", "cmake ", "ctest ", "scripts/", "tests/benchmarks/", "python3 tests/", "srun ", "sbatch ",
          "torchrun ", "./", "source ")
FLAG = re.compile(r"--(?:\[no-\])?[a-z0-9][a-z0-9-]*")
ENDS = {"|", "&&", ";", "||"}
# Programs of the pages' readers.
READERS = {"./my_trainer", "./trainer", "./program", "PROGRAM", "program"}
TEXT = "".join(f"line {number}: the quick brown fox jumps over {number * 7} lazy dogs, again and again\n" for number in range(400))


def commands_in(text):
    """The lines of a block or a span that are commands, each with its words up to a comment."""
    for line in text.replace("\\\n", " ").splitlines():
        if not line.startswith(STARTS) or line.startswith("lockstep:") or re.match(r"lockstep \w+:", line):
            continue
        try:
            yield line, shlex.split(line, comments=True)
        except ValueError:
            continue


@functools.lru_cache(maxsize=None)
def flags_of(*command):
    """The flags that a program's help lists; None where it has no help."""
    answer = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    if answer.returncode != 0:
        return None
    found = set()
    for flag in FLAG.findall(answer.stdout):
        found.add(flag.replace("[no-]", ""))
        if "[no-]" in flag:
            found.add(flag.replace("[no-]", "no-"))
    return found


def unknown(command, words):
    known = flags_of(*command)
    if known is None:
        yield f"{' '.join(command)} has no help"
        return
    for word in words:
        flag = word.split("=")[0].replace("_", "-")
        if flag.startswith("--") and flag != "--" and flag not in known:
            yield f"{os.path.basename(command[0])} {' '.join(command[1:])} has no flag {flag}"


class Checker:
    def __init__(self, root, build):
        self.root = root
        self.build = build
        self.launcher = os.path.join(build, "bin", "lockstep")
        help_text = subprocess.run([self.launcher, "--help"], capture_output=True, text=True, timeout=60).stdout
        self.commands = set(re.findall(r"^  ([a-z]+) ", help_text, re.MULTILINE))
        with open(os.path.join(root, "CMakePresets.json")) as file:
            self.presets = {preset["name"] for preset in json.load(file)["configurePresets"]}
        self.benchmarks = tree.read(root, os.path.join("tests", "benchmarks", "CMakeLists.txt"))
        self.targets = set(re.findall(r"^([a-z-]+):", tree.read(root, "Makefile"), re.MULTILINE))

    def program(self, words):
        """A program of ours with its flags; or one of the reader's."""
        name = words[0]
        if name.startswith("build/bin/") or name in ("image_classification", "./image_classification"):
            path = os.path.join(self.build, "bin", os.path.basename(name))
            if not os.path.exists(path):
                yield f"{name} is not built"
            else:
                yield from unknown((path,), words[1:])
        elif name.startswith("build/"):
            built = os.path.exists(os.path.join(self.build, name.removeprefix("build/")))
            if not built and not re.search(rf"\({os.path.basename(name)} ", self.benchmarks):  # Built by their own target.
                yield f"{name} is not built"

    def lockstep(self, words):
        if not words or words[0].startswith("--"):
            return
        command = [self.launcher, words[0]]
        if words[0] not in self.commands:
            yield f"lockstep has no command {words[0]}"
            return
        words = words[1:]
        if words and command[1] in ("bench", "cache", "checkpoint", "slurm", "tokenizer") and re.fullmatch("[a-z]+", words[0]):
            command.append(words[0])
            words = words[1:]
        if command[1] == "bench":  # The launcher's flags stand among its own.
            known = (flags_of(self.launcher, "run") or set()) | (flags_of(*command) or set())
            yield from (f"lockstep bench has no flag {word}" for word in words if word.startswith("--") and word not in known)
            return
        if command[1:] in (["cache"], ["checkpoint"], ["slurm"], ["tokenizer"]):
            return
        start = next((number for number, word in enumerate(words)
                      if word in READERS or word.startswith(("build/", "./"))), len(words))
        yield from unknown(tuple(command), [word for word in words[:start] if not word.startswith("[")])
        if start < len(words):
            yield from self.program(words[start:])

    def check(self, words):
        parts, part = [], []
        for word in words:
            if word in ENDS:
                parts.append(part)
                part = []
            else:
                part.append(word)
        for words in filter(None, [*parts, part]):
            yield from self.check_one(words)

    def check_one(self, words):
        name = words[0]
        if name in ("srun", "torchrun", "sbatch"):
            start = next((number for number, word in enumerate(words)
                          if word == "lockstep" or word.startswith(("build/", "./")) or word == "image_classification"), None)
            if start is not None:
                yield from self.check_one(words[start:])
        elif name == "lockstep":
            yield from self.lockstep(words[1:])
        elif name == "make":
            yield from (f"make has no target {word}" for word in words[1:] if "=" not in word and word not in self.targets)
        elif name in ("cmake", "ctest"):
            yield from (f"there is no preset {preset}" for flag, preset in zip(words, words[1:])
                        if flag == "--preset" and preset not in self.presets)
        elif name == "python3":
            yield from self.check_one(words[1:])
        elif name.startswith(("scripts/", "tests/")):
            if not os.path.exists(os.path.join(self.root, name)):
                yield f"{name} is not there"
            text = tree.read(self.root, name)
            yield from (f"{name} has no flag {word}" for word in words[1:] if word.startswith("--") and f'"{word}"' not in text)
        else:
            yield from self.program(words)

    def run(self, block):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(self.build, os.path.join(folder, "build"))
            os.symlink(os.path.join(self.build, "examples", "ddp"), os.path.join(folder, "my_trainer"))
            for name in ("part1.txt", "part2.txt"):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(TEXT)
            subprocess.run("gzip -k part2.txt && mv part2.txt.gz more.txt.gz", shell=True, cwd=folder, check=True)
            path = os.pathsep.join([os.path.dirname(self.launcher), os.path.dirname(sys.executable), os.environ["PATH"]])
            elsewhere = ("srun ", "sbatch ") if shutil.which("torchrun", path=path) else ("srun ", "sbatch ", "torchrun ")
            lines = [line for line in block.splitlines() if not line.startswith(elsewhere)]
            environment = dict(os.environ, PATH=path, LOCKSTEP_CACHE=os.path.join(folder, "cache"))
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=environment, capture_output=True,
                                  text=True, timeout=300)
            if done.returncode != 0:
                yield f"ends with {done.returncode}: {done.stderr[-1500:]}"


def problems(root, build):
    checker = Checker(root, build)
    found, count = [], 0
    for page in tree.files(root, ["docs"], (".md",)) + ["README.md"]:
        text = tree.read(root, page)
        pieces = [block.group(3) for block in BLOCK.finditer(text) if block.group(2) in ("", "sh")]
        pieces += SPAN.findall(BLOCK.sub("", text))
        for piece in pieces:
            for line, words in commands_in(piece):
                count += 1
                found += [f"{page}: {problem}: {line}" for problem in checker.check(words)]
        for block in BLOCK.finditer(text):
            if block.group(1):
                count += 1
                found += [f"{page}: a block {problem}" for problem in checker.run(block.group(3))]
    return found, count


if __name__ == "__main__":
    tree.report("commands", *problems(os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])))
