"""lockstep.hpp holds every light public header, by itself or through another one, and no heavy one: one_header.py ROOT"""
import os
import sys

import headers
import tree

ONE = "lockstep/lockstep.hpp"


def problems(root):
    names = [os.path.relpath(path, "include") for path in tree.files(root, ["include"])]
    texts = {name: tree.read(root, os.path.join("include", name)) for name in names}
    listed = [line for line in tree.read(root, headers.LIST).split("\n") if line and not line.startswith("#")]
    light = set(names) - headers.heavy_headers(names, {**texts, ONE: ""}, listed) - {ONE}
    held = headers.all_includes(ONE, texts)
    named = {name for _, name, _ in tree.includes(texts[ONE])}
    found = [f"include/{ONE} lacks {name}" for name in sorted(light - held)]
    found += [f"include/{ONE} holds {name}, which is heavy or not there" for name in sorted(named - light)]
    return found, len(light)


if __name__ == "__main__":
    tree.report("one header", *problems(sys.argv[1]))
