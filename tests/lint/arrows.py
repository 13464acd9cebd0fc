"""Who may include whom, and who may read the environment: arrows.py ROOT

A folder of the library includes only folders above it in the list; data and data sets do not know parallel, nor parallel
them; the launcher includes core and net, and the parts that tree.py names. The folders of the launcher and of the data sets
include each other in one order only. Arrow's headers stay in four folders of the data sets.
c10d stays in src/comm and src/parallel. The environment is read, the host asked for its name, and cxxopts included, in
one file each; launch/cli by itself alone.
"""
import os
import re
import sys

import tree

ENVIRONMENT = os.path.join("src", "core", "environment.cpp")
GETENV = re.compile(r"\b(?:secure_getenv|getenv|__environ|environ)\b")
OPTION_PARSER = os.path.join("src", "core", "options_parser.cpp")
HOST_NAME = os.path.join("src", "core", "host_name.hpp")
STRANGERS = [{"data", "parallel"}, {"datasets", "parallel"}]


def folder_of(path):
    """The library folder that a file belongs to: core ... models, launch, or None for a program or a test."""
    parts = path.split(os.sep)
    if parts[0] == "launch":
        return "launch"
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ["include", "lockstep"] and len(parts) > 3:
        return parts[2]
    return None


def target_of(root, path, include, quoted):
    """The library folder that an #include leads to, or None when it leads out of the library."""
    if include.startswith("lockstep/"):
        parts = include.split("/")
        return parts[1] if len(parts) > 2 else None
    for place in (os.path.dirname(path), "src", "launch"):
        found = os.path.normpath(os.path.join(place, include))
        if quoted and os.path.exists(os.path.join(root, found)):
            return folder_of(found)
    return None


def allowed(source, target, include):
    if source == target or target is None or source is None:
        return True
    if source == "launch":
        part = include.removeprefix("lockstep/").removesuffix(".hpp")
        return target in tree.LAUNCHER_FOLDERS or part in tree.LAUNCHER_PARTS
    if {source, target} in STRANGERS or source not in tree.FOLDERS or target not in tree.FOLDERS:
        return False
    return tree.FOLDERS.index(target) < tree.FOLDERS.index(source)


def is_launcher_part(path):
    return path.startswith(os.path.join("src", "datasets", "cache", "")) or path.endswith(tuple(part + ending for part in tree.LAUNCHER_PARTS for ending in (".cpp", ".hpp")))


def arrow_problems(root, path, text):
    source = folder_of(path)
    for line, include, quoted in tree.includes(text):
        target = target_of(root, path, include, quoted)
        if not allowed(source, target, include):
            yield f"{path}:{line}: {source} must not include {target} ({include})"
        if (source in ("core", "tokenizers", "net", "shm", "launch") or is_launcher_part(path)) and re.match(r"(torch|ATen|c10|caffe2)/", include):
            yield f"{path}:{line}: {os.path.basename(path) if is_launcher_part(path) else source} must not include LibTorch ({include})"


def launch_problems(root, path, text):
    """Cycles among the launcher's folders, and a folder that the order does not know. Only cli includes agent."""
    parts = path.split(os.sep)
    if parts[0] != "launch" or len(parts) < 3:
        return
    source = parts[1]
    if source not in tree.LAUNCH_FOLDERS:
        yield f"{path}:1: launch/{source} has no place in tree.LAUNCH_FOLDERS"
        return
    for line, include, quoted in tree.includes(text):
        target = include.split("/")[0]
        if not quoted or target == source or not os.path.exists(os.path.join(root, "launch", include)):
            continue
        known = target in tree.LAUNCH_FOLDERS[:tree.LAUNCH_FOLDERS.index(source)]
        if not known or (target == "agent" and source != "cli"):
            yield f"{path}:{line}: launch/{source} must not include launch/{target} ({include})"


def dataset_problems(root, path, text):
    """Cycles among the folders of the data sets, and Arrow's headers outside of theirs."""
    parts = path.split(os.sep)
    if parts[:2] != ["src", "datasets"]:
        return
    source = parts[2] if len(parts) > 3 else None
    if source and source not in tree.DATASETS_FOLDERS:
        yield f"{path}:1: datasets/{source} has no place in tree.DATASETS_FOLDERS"
        return
    for line, include, quoted in tree.includes(text):
        if re.match(r"(arrow|parquet)/.*\.h$", include) and source not in tree.ARROW_FOLDERS:
            yield f"{path}:{line}: Arrow's headers belong in {', '.join(tree.ARROW_FOLDERS)} only ({include})"
        target = include.split("/")[1] if quoted and include.startswith("datasets/") else source
        known = tree.DATASETS_FOLDERS[:tree.DATASETS_FOLDERS.index(source)] if source else tree.DATASETS_FOLDERS
        if target != source and target not in known:
            yield f"{path}:{line}: datasets/{source} must not include datasets/{target} ({include})"


def c10d_problems(path, text):
    if path.startswith(("tests" + os.sep, os.path.join("src", "comm"), os.path.join("src", "parallel"))):
        return
    for line, include, _ in tree.includes(text):
        if "torch/csrc/distributed" in include:
            yield f"{path}:{line}: c10d headers belong in src/comm and src/parallel only ({include})"


def command_problems(path, text):
    """The launcher's commands are on top of its other folders; cxxopts has one door."""
    for line, include, _ in tree.includes(text):
        if include.startswith("cli/") and not path.startswith((os.path.join("launch", "cli"), "tests" + os.sep)):
            yield f"{path}:{line}: launch/cli is on top of the launcher: nobody includes it ({include})"
        if include == "cxxopts.hpp" and path != OPTION_PARSER:
            yield f"{path}:{line}: cxxopts.hpp belongs in {OPTION_PARSER} only; use lockstep::OptionTable"


def environment_problems(path, text):
    if path == ENVIRONMENT or path.startswith("tests" + os.sep):
        return
    for number, line in enumerate(tree.code(text).split("\n"), 1):
        found = GETENV.search(line)
        if found:
            yield f"{path}:{number}: {found.group()}: only {ENVIRONMENT} reads the environment; use lockstep::Environment"


def host_name_problems(path, text):
    for number, line in enumerate(tree.code(text).split("\n"), 1):
        if path != HOST_NAME and re.search(r"\bgethostname\b", line):
            yield f"{path}:{number}: gethostname: only {HOST_NAME} asks; use host_name() or this_process().host"


def problems(root):
    found, paths = [], tree.files(root)
    for path in paths:
        text = tree.read(root, path)
        found += arrow_problems(root, path, text)
        found += launch_problems(root, path, text)
        found += dataset_problems(root, path, text)
        found += c10d_problems(path, text)
        found += command_problems(path, text)
        found += environment_problems(path, text)
        found += host_name_problems(path, text)
    return found, len(paths)


if __name__ == "__main__":
    tree.report("arrows", *problems(sys.argv[1]))
