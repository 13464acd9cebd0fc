"""A header leads to its source: one_idea.py ROOT

A source holds one idea, that of its name: it has one anonymous namespace, and what it defines is declared in the header of
its name. A class or a set of functions that is too long for one source is spread over sources that bear the header's name
before theirs (arrow_dataset_sort.cpp), or that lie in a folder of that name (readers/csv.cpp of readers.hpp). Includes are
written from the root of the sources ("comm/x.hpp"), never "../x.hpp" nor "x.hpp" of the same folder.
"""
import os
import re
import sys

import tree

_SPECIFIER = re.compile(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_CLASS = re.compile(r"^(?:class|struct|union)\s+([\w:]+)(?:\s+final)?\s*(?::(?!:).*)?$", re.DOTALL)
_CALLED = re.compile(r"((?:\w+::)*~?\w+)\s*\(")
_NO_FUNCTION = ("using ", "typedef ", "static_assert", "friend ", "return ", "if ", "enum ", "static ")


def _without_templates(text):
    """A statement without template<...> and template arguments, attributes and alignment."""
    text = _SPECIFIER.sub(" ", text)
    shorter = None
    while shorter != text:
        shorter, text = text, re.sub(r"<[^<>;{}]*>", "", text)
    return re.sub(r"^\s*(?:template\s*)*", "", text).strip()


def statements(text):
    """(line, namespace, statement, opens a block) at namespace level; the namespace of an anonymous one ends in None."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), tree.code(text), flags=re.MULTILINE)
    scopes, begin, inner, within = [], 0, 0, 0
    for match in re.finditer(r"[{};()]", text):
        at, sign = match.start(), match.group()
        within += {"(": 1, ")": -1}.get(sign, 0)
        if within or sign == ")":
            continue
        if inner:
            inner += {"{": 1, "}": -1, ";": 0}[sign]
            begin = at + 1
            continue
        raw = text[begin:at]
        line = text.count("\n", 0, begin + len(raw) - len(raw.lstrip())) + 1
        statement, begin = _without_templates(raw), at + 1
        space = re.match(r"(?:inline\s+)?namespace\b\s*([\w:]*)$", statement)
        if sign == "{" and (space or re.fullmatch(r"extern", statement)):
            yield line, tuple(scopes), statement, True
            scopes.append((space.group(1) or None) if space else "")
        elif sign == "}":
            scopes = scopes[:-1]
        else:
            if statement and not statement.startswith(","):
                yield line, tuple(scopes), statement, sign == "{"
            inner = 1 if sign == "{" else 0


def _qualified(scopes, name):
    return "::".join([scope for scope in scopes if scope] + [name])


def _function_name(statement):
    """The name, as it is written, of the function that a statement declares or defines; None for other statements."""
    if statement.startswith(_NO_FUNCTION) or "operator" in statement.split("(")[0]:
        owner = re.search(r"((?:\w+::)+)operator", statement)
        return owner.group(1) + "operator" if owner else None
    called = _CALLED.search(statement)
    if not called or "=" in statement[:called.start()] or not statement[:called.start()].strip() and "::" not in called.group(1):
        return None
    return called.group(1)


def declared(text):
    """(classes, functions) that a header defines, and declares without a body, with their namespaces."""
    classes, functions = set(), set()
    for _, scopes, statement, block in statements(text):
        found = _CLASS.match(statement) if block else None
        if found:
            classes.add(_qualified(scopes, found.group(1)))
        elif not block and not statement.startswith("extern"):
            name = _function_name(statement)
            functions |= {_qualified(scopes, name)} if name else set()
    return classes, functions


def defined(text):
    """(line, name) of the functions that a source defines for others, and the classes of its own."""
    own, found = set(), []
    for line, scopes, statement, block in statements(text):
        if not block:
            continue
        kind = _CLASS.match(statement)
        name = None if kind else _function_name(statement)
        if kind:
            own.add(_qualified(scopes, kind.group(1)))
        elif name and None not in scopes:
            found.append((line, _qualified(scopes, name)))
    return own, found


def bears_name(path, header):
    """Whether a source is the one that a header's name leads to."""
    stem, name = (os.path.splitext(os.path.basename(each))[0] for each in (path, header))
    return stem == name or stem.startswith(name + "_") or name in os.path.dirname(path).split(os.sep)[2:]


def declaring(name, own, classes, functions):
    """The headers that declare a function: those of its class, or its own. None where the source itself declares its class."""
    parts = name.split("::")
    for length in range(len(parts) - 1, 0, -1):
        owner = "::".join(parts[:length])
        if owner in own:
            return None
        if owner in classes:
            return classes[owner]
    return functions.get(name)


def include_problems(root, path, text):
    beside = os.path.dirname(path)
    for line, include, quoted in tree.includes(text):
        is_beside = "/" not in include and is_in(path, ["launch", "src"]) and os.path.exists(os.path.join(root, beside, include))
        if quoted and (include.startswith(".") or is_beside):
            yield f'{path}:{line}: "{include}": write includes from the root of the sources ("folder/x.hpp")'


def namespace_problems(path, text):
    found = [line for line, _, statement, _ in statements(text) if statement == "namespace"]
    if len(found) > 1:
        yield f"{path}:{found[1]}: another anonymous namespace: a source has one (or each of its ideas a source)"


def definition_problems(path, text, classes, functions):
    own, found = defined(text)
    told = set()
    for line, name in found:
        headers = declaring(name, own, classes, functions)
        if not headers or any(bears_name(path, header) for header in headers) or headers[0] in told:
            continue
        told.add(headers[0])
        yield f"{path}:{line}: {name} is declared in {headers[0]}: define it in the source of that name"


def is_in(path, places):
    return any((path + os.sep).startswith(place.replace("/", os.sep) + os.sep) for place in places)


def problems(root):
    classes, functions = {}, {}
    for header in tree.files(root, ["include", "src", "launch"], (".hpp",)):
        for table, names in zip((classes, functions), declared(tree.read(root, header))):
            for name in names:
                table.setdefault(name, []).append(header)
    found, paths = [], tree.files(root)
    for path in paths:
        text = tree.read(root, path)
        found += include_problems(root, path, text)
        if path.endswith(".cpp") and is_in(path, ["launch", "src"]):
            found += namespace_problems(path, text)
            found += definition_problems(path, text, classes, functions)
    return found, len(paths)


if __name__ == "__main__":
    tree.report("one_idea", *problems(sys.argv[1]))
