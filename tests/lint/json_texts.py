"""JSON becomes text in core/json_text.hpp, which takes any bytes; the library's dump() throws for some: json_texts.py ROOT"""
import re
import sys

import tree

HEADER = "src/core/json_text.hpp"
# A FlightRecorder's dump() is another one.
_DUMP = re.compile(r"(?P<of>\w*)(?:\.|->)\s*dump\s*\((?P<arguments>[^;]*)")


def problems(root):
    """Programs outside of the library do not see its header: they say what becomes of bytes that are not UTF-8."""
    found, checked = [], tree.files(root, ["include", "src", "launch", "tools", "trainers"])
    for path in checked:
        if path == HEADER:
            continue
        text = tree.code(tree.read(root, path))
        for call in _DUMP.finditer(text):
            handles = path.startswith("trainers/") and "error_handler_t::" in call.group("arguments")
            if not handles and not call.group("of").startswith("recorder"):
                line = text.count("\n", 0, call.start()) + 1
                found.append(f"{path}:{line}: dump() throws for texts that are not UTF-8: use json_text()")
    return found, len(checked)


if __name__ == "__main__":
    tree.report("JSON texts", *problems(sys.argv[1]))
