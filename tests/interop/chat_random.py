"""Random templates and variables: expressions of all kinds, statements, white space and its control."""
import random

NAMES = ["a", "b", "c", "n", "s", "xs", "d", "messages", "missing"]
ATTRIBUTES = ["role", "content", "items", "get", "keys", "x", "y", "0", "length", "upper", "append", "_x", "count", "title", "tool_calls"]
STRINGS = ["", "a", "A b", " pad ", "\u00e4\u00d6\u00df", "\u4f60\u597d", "x,y,,z", "1", "2.5", "l1\nl2\n", "it's", "\u01c4o", "-", "\u1e9eI\u0307"]
VALUES = [None, True, False, 0, 1, -3, 7, 2.5, 1e16, 1e-5, 100000.0, [], [1, 2, 3], ["b", "A", "c"], {}, {"x": 1, "y": [1, {"z": None}]}, {"b": 2, "a": 1},
          [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}], [[1, 2], [3, 4]]] + STRINGS
FILTERS = ["trim", "upper", "lower", "length", "count", "capitalize", "title", "string", "list", "first", "last", "reverse", "sort", "unique", "join", "tojson",
           "abs", "int", "float", "items", "dictsort", "safe", "e", "min", "max", "sum", "round", "wordcount", "default('d')", "default('d', true)", "d(1)",
           "join(',')", "join('-', attribute='role')", "replace('a', 'bb')", "replace('', '.')", "replace('a', 'b', 1)", "tojson(indent=2)", "tojson(separators=(',', ':'))",
           "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "map('upper')", "map(attribute='role')", "map(attribute='role', default='?')", "select", "reject",
           "select('string')", "reject('none')", "selectattr('role', 'equalto', 'user')", "selectattr('content')", "rejectattr('content')", "selectattr('role', 'in', ['user'])",
           "sort(reverse=true)", "sort(attribute='role')", "sort(case_sensitive=true)", "batch(2)", "batch(2, 'f')", "slice(2)", "groupby('role')", "indent", "indent(2, true)",
           "indent(width='> ', blank=true)", "center(9)", "trim('a ')", "round(1)", "round(1, 'floor')", "int(5)", "int(0, 16)", "attr('x')", "format(1)", "format('x', 2)", "unique|list", "map('length')",
           "dictsort(by='value')", "dictsort(reverse=true)", "max(attribute='x')", "sum(start=1)", "forceescape", "map('default', 'z')", "map('tojson')", "select('equalto', 1)"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "callable", "odd", "even",
         "divisibleby 3", "divisibleby(2)", "equalto 1", "eq 'a'", "in [1, 'a']", "in('abc')", "lower", "upper", "sameas none", "escaped", "gt 1", "lt(2)", "ne 0", "ge 1", "filter", "test"]
METHODS = ["strip()", "lstrip()", "rstrip()", "strip('a ')", "upper()", "lower()", "split()", "split(',')", "split(',', 1)", "rsplit(',', 1)", "rsplit(None, 1)", "split(' ')[0]", "startswith('a')",
           "endswith(('a', 'b'))", "replace('a', 'b')", "title()", "capitalize()", "swapcase()", "splitlines()", "splitlines(true)", "find('b')", "rfind('')", "index('a')", "count('')",
           "join(['x', 'y'])", "partition(',')", "rpartition(' ')", "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "isalnum()", "zfill(4)", "ljust(5, '.')", "rjust(5)",
           "center(6)", "center(7, '*')", "removeprefix('a')", "removesuffix('b')", "format(1, x=2)", "expandtabs(2)", "isascii()", "get('x')", "get('q', 5)", "items()", "keys()", "values()", "copy()", "index(1)",
           "items()|list", "keys()|list", "append(1)", "update({})", "pop()", "startswith('b', 1)", "find('b', 1, 3)", "count('a')", "isprintable()"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "~", "~", "+"]
SPACES = ["", " ", "\n", "  \n", "\n\n", "\t", "x", "\n  ", "text\n", "{", "%}", "\u00a0", "\r\n"]


def quoted(rng, text):
    quote = rng.choice("'\"")
    return quote + text.replace("\\", "\\\\").replace("\n", "\\n").replace(quote, "\\" + quote) + quote


def literal(rng):
    kind = rng.random()
    if kind < 0.4:
        return quoted(rng, rng.choice(STRINGS))
    if kind < 0.7:
        return rng.choice(["0", "1", "2", "-1", "3.5", "1e3", "10", "true", "false", "none", "True", "None", "0x1f", "1_000", "2.0"])
    if kind < 0.8:
        return "[" + ", ".join(literal(rng) for _ in range(rng.randrange(4))) + "]"
    if kind < 0.9:
        return "{" + ", ".join(f"{quoted(rng, rng.choice(STRINGS))}: {literal(rng)}" for _ in range(rng.randrange(3))) + "}"
    return rng.choice(["()", "(1,)", "(1, 'b')", "range(3)", "range(5, 0, -2)", "dict(x=1)", "namespace(x=1)", "'%s-%5.1f' ", "'{} {x}'", "'%d' "])


# Sources of a type, and what may follow them with the type that it gives: most random expressions then mean something.
SOURCES = {
    "str": ["s", "a", "messages[0].role", "missing", "ns.x|string"] + [None] * 6,
    "int": ["n", "1", "0", "7", "-2", "xs|length", "messages|length", "2.5"],
    "list": ["xs", "messages", "[1, 2, 3]", "['b', 'A', 'c']", "range(4)", "d.keys()", "(1, 'b')", "xs|list", "[]", "'a,b'.split(',')", "d|dictsort"],
    "dict": ["d", "{'x': 1, 'y': [1, 2]}", "{}", "messages[0]", "dict(x=1)", "{'b': 'v', 'A': none}"],
    "bool": ["true", "false", "a is defined", "missing is defined", "n == 1", "xs", "d", "loop is defined"],
}
STRING_FILTERS = ["trim", "upper", "lower", "capitalize", "title", "string", "tojson", "replace('a', 'bb')", "replace('', '.')", "replace('a', 'b', 1)", "safe", "e", "indent", "indent(2, true)",
                  "indent(width='> ', blank=true)", "center(9)", "trim('a ')", "default('d')", "default('d', true)", "forceescape", "reverse"]
STRING_METHODS = [m for m in METHODS if m.split("(")[0] in ("strip", "lstrip", "rstrip", "upper", "lower", "replace", "title", "capitalize", "swapcase", "join", "zfill", "ljust", "rjust", "center",
                                                             "removeprefix", "removesuffix", "format", "expandtabs") or m.endswith("[0]")]
LIST_FILTERS = ["list", "reverse|list", "sort", "unique|list", "map('string')|list", "map('upper')|list", "select|list", "reject('none')|list", "select('string')|list", "batch(2)|list", "slice(2)|list",
                "map(attribute='role')|list", "selectattr('role', 'equalto', 'user')|list", "selectattr('content')|list", "rejectattr('content')|list", "sort(reverse=true)", "map('tojson')|list",
                "groupby('role')", "sort(attribute='role')", "map(attribute='role', default='?')|list"]


def typed(rng, kind, depth):
    """An expression that mostly has this type."""
    if depth == 0 or rng.random() < 0.25:
        source = rng.choice(SOURCES[kind])
        return source if source is not None else quoted(rng, rng.choice(STRINGS))
    if rng.random() < 0.06:
        kind = rng.choice(list(SOURCES))
    inner = lambda other: typed(rng, other, depth - 1)
    if rng.random() < 0.1:
        return f"({inner(kind)} if {inner('bool')} else {inner(kind)})"
    if rng.random() < 0.05:
        return f"({inner(kind)} {rng.choice(['or', 'and'])} {inner(kind)})"
    if kind == "str":
        return rng.choice([
            lambda: f"{inner('str')}|{rng.choice(STRING_FILTERS)}", lambda: f"({inner('str')}).{rng.choice(STRING_METHODS)}", lambda: f"({inner('str')} ~ {inner(rng.choice(list(SOURCES)))})",
            lambda: f"({inner('str')} + {inner('str')})", lambda: f"({inner('str')})[{rng.choice(['0:', '1:', ':-1', '::-1', ':2', '-2:', '::2', '1:10:3'])}]",
            lambda: f"{inner(rng.choice(['list', 'dict', 'int']))}|{rng.choice(['tojson', 'string', 'tojson(indent=2)', 'tojson(sort_keys=true)', 'tojson(ensure_ascii=true)'])}",
            lambda: f"{inner('list')}|{rng.choice(['join', 'join(' + chr(39) + ', ' + chr(39) + ')', 'first|string', 'last|string', 'join(' + chr(39) + '-' + chr(39) + ', attribute=0)'])}",
            lambda: f"('%s-%5s' % ({inner('str')}, {inner('int')}))", lambda: f"('{{}} {{!r:>6}}'.format({inner('str')}, {inner('str')}))", lambda: f"({inner('str')} * 2)"])()
    if kind == "int":
        return rng.choice([
            lambda: f"({inner('int')} {rng.choice(['+', '-', '*', '//', '%', '/', '**'])} {rng.choice(['1', '2', '3', '-2', inner('int')])})", lambda: f"{inner('list')}|length",
            lambda: f"({inner('str')}).{rng.choice(['find', 'count', 'rfind'])}({quoted(rng, rng.choice(STRINGS))})", lambda: f"{inner('str')}|{rng.choice(['length', 'int', 'float', 'wordcount', 'int(5)'])}",
            lambda: f"{inner('int')}|{rng.choice(['abs', 'round', 'round(1)', 'int', 'float', 'round(1, ' + chr(39) + 'floor' + chr(39) + ')'])}", lambda: f"(-{inner('int')})",
            lambda: f"[{inner('int')}, {inner('int')}]|{rng.choice(['sum', 'min', 'max', 'first', 'last'])}"])()
    if kind == "list":
        return rng.choice([
            lambda: f"{inner('list')}|{rng.choice(LIST_FILTERS)}", lambda: f"({inner('list')})[{rng.choice(['0:', '1:', ':-1', '::-1', ':2', '-2:', '::2'])}]",
            lambda: f"({inner('list')}|list + {inner('list')}|list)", lambda: f"({inner('str')}).{rng.choice(['split()', 'splitlines()', 'split(' + chr(39) + ',' + chr(39) + ')', 'rsplit(none, 1)', 'partition(' + chr(39) + ',' + chr(39) + ')'])}",
            lambda: f"{inner('dict')}|{rng.choice(['items|list', 'dictsort', 'list', 'dictsort(reverse=true)', 'dictsort(case_sensitive=true)'])}",
            lambda: f"({inner('dict')}).{rng.choice(['items()', 'keys()', 'values()'])}|list", lambda: f"[{inner(rng.choice(list(SOURCES)))}, {inner(rng.choice(list(SOURCES)))}]", lambda: f"{inner('str')}|list"])()
    if kind == "dict":
        return rng.choice([lambda: f"{{'x': {inner(rng.choice(list(SOURCES)))}, {inner('str')}: 2}}", lambda: f"dict({inner('dict')}, z={inner('int')})", lambda: f"({inner('dict')}).copy()"])()
    return rng.choice([
        lambda: f"({inner('int')} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {inner('int')})", lambda: f"({inner('str')} {rng.choice(['==', '!=', 'in', 'not in', '<'])} {inner('str')})",
        lambda: f"({inner(rng.choice(list(SOURCES)))} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})", lambda: f"(not {inner('bool')})", lambda: f"({inner('str')}).{rng.choice(['startswith', 'endswith'])}({inner('str')})",
        lambda: f"({inner('str')} in {inner('list')})", lambda: f"({inner('str')} in {inner('dict')})",
        lambda: f"({inner('str')}).{rng.choice(['isdigit()', 'isalpha()', 'isspace()', 'isupper()', 'islower()', 'isalnum()', 'isascii()'])}"])()


def expression(rng, depth=3):
    if rng.random() < 0.93:
        return typed(rng, rng.choice(["str", "str", "str", "int", "list", "dict", "bool"]), depth)
    return anything(rng, depth)


def anything(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(NAMES) if rng.random() < 0.6 else literal(rng)
    inner = anything(rng, depth - 1)
    kind = rng.random()
    if kind < 0.22:
        return f"{inner}|{rng.choice(FILTERS)}"
    if kind < 0.32:
        return f"{inner} {rng.choice(BINARY)} {anything(rng, depth - 1)}"
    if kind < 0.42:
        return f"({inner} {rng.choice(BINARY)} {anything(rng, depth - 1)})"
    if kind < 0.52:
        return f"{inner}.{rng.choice(METHODS)}"
    if kind < 0.58:
        return f"{inner}.{rng.choice(ATTRIBUTES)}"
    if kind < 0.66:
        return f"{inner}[{rng.choice(['0', '-1', '1', repr(rng.choice(ATTRIBUTES)), '1:', ':-1', '::-1', ':2', '-2:', '::2', '1:10:3', anything(rng, 0)])}]"
    if kind < 0.76:
        return f"({inner} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind < 0.84:
        return f"({inner} if {anything(rng, depth - 1)} else {anything(rng, depth - 1)})"
    if kind < 0.88:
        return f"(not {inner})"
    if kind < 0.91:
        return f"(-{inner})"
    return f"({inner})"


def tag(rng, text, kind="%"):
    begin = rng.choice(["", "", "", "-", "+"]) if kind == "%" else rng.choice(["", "", "", "-"])
    end = rng.choice(["", "", "", "-", "+"]) if kind == "%" else rng.choice(["", "", "", "-"])
    return "{" + kind + begin + " " + text + " " + end + (kind if kind == "%" else "") + "}" if kind == "%" else "{{" + begin + " " + text + " " + end + "}}"


def space(rng):
    return rng.choice(SPACES)


def body(rng, depth, in_loop=False):
    made = ""
    for _ in range(rng.choice([1, 1, 2, 3])):
        made += space(rng) + statement(rng, depth, in_loop)
    return made + space(rng)


def statement(rng, depth, in_loop):
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        shown = expression(rng)
        return tag(rng, shown, "{")
    if kind < 0.5:
        made = tag(rng, "if " + expression(rng, 2)) + body(rng, depth - 1, in_loop)
        if rng.random() < 0.4:
            made += tag(rng, "elif " + expression(rng, 2)) + body(rng, depth - 1, in_loop)
        if rng.random() < 0.5:
            made += tag(rng, "else") + body(rng, depth - 1, in_loop)
        return made + tag(rng, "endif")
    if kind < 0.66:
        target = rng.choice(["i", "i", "i", "k, v", "a"])
        source = rng.choice(["messages", "xs", "d.items()", "d|dictsort", typed(rng, "list", 2), "range(3)", "[1, 2, 3]", "'abc'"])
        if target == "k, v":
            source = rng.choice(["d.items()", "d|items", "[[1, 2], (3, 4)]"])
        condition = " if i" if rng.random() < 0.15 and target == "i" else ""
        made = tag(rng, f"for {target} in {source}{condition}") + body(rng, depth - 1, True)
        if rng.random() < 0.6:
            made += tag(rng, rng.choice(["loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.previtem", "loop.nextitem is defined", "i",
                                         "loop.cycle('x', 'y')", "loop.changed(i)", "loop.depth", "loop.revindex0"]), "{")
        if rng.random() < 0.25:
            made += tag(rng, "else") + body(rng, depth - 1, in_loop)
        return made + tag(rng, "endfor")
    if kind < 0.76:
        return tag(rng, f"set {rng.choice(['a', 'b', 'z', 's', 'ns.x', 'a, b'])} = {expression(rng, 2)}")
    if kind < 0.80:
        return tag(rng, f"set {rng.choice(['w', 'z'])}{rng.choice(['', ' | upper', ' | trim'])}") + body(rng, depth - 1) + tag(rng, "endset")
    if kind < 0.84:
        return tag(rng, "generation") + body(rng, depth - 1) + tag(rng, "endgeneration")
    if kind < 0.87:
        return tag(rng, rng.choice(["filter upper", "filter replace('a', 'b')|trim"])) + body(rng, depth - 1) + tag(rng, "endfilter")
    if kind < 0.90:
        return tag(rng, f"with a = {expression(rng, 1)}, q = 2") + body(rng, depth - 1, in_loop) + tag(rng, "endwith")
    if kind < 0.94:
        made = tag(rng, f"macro m(p, q={expression(rng, 1)})") + body(rng, depth - 1) + tag(rng, rng.choice(["p", "q", "caller()", "varargs", "kwargs", "p ~ q"]), "{") + tag(rng, "endmacro")
        if rng.random() < 0.3:
            return made + tag(rng, f"call m({expression(rng, 1)})") + body(rng, depth - 1) + tag(rng, "endcall")
        return made + tag(rng, rng.choice([f"m({expression(rng, 1)})", "m()", "m(1, 2, 3)", "m(1, q=3, r=4)", "m(*xs)", "m(**d)"]), "{")
    if kind < 0.97 and in_loop:
        return tag(rng, f"if {expression(rng, 1)}") + tag(rng, rng.choice(["break", "continue"])) + tag(rng, "endif")
    return rng.choice(["{# a comment #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} a {%- endraw -%}", "  {# c #}\n", "{{ '%s' % a }}"])


def template(rng):
    made = "{% set ns = namespace(x=0) %}" if rng.random() < 0.5 else ""
    variables = {name: rng.choice(VALUES) for name in NAMES if name != "missing"}
    if rng.random() < 0.9:
        variables["s"], variables["a"], variables["n"] = rng.choice(STRINGS), rng.choice(STRINGS), rng.choice([0, 1, 3, -5, 2.5])
    variables["messages"] = rng.choice([VALUES[17], VALUES[17], [], [{"role": "user", "content": "a"}]])
    variables["xs"] = rng.choice([[1, 2, 3], ["b", "a"], [], [0, None, "x"]])
    variables["d"] = rng.choice([{"x": 1, "y": 2}, {}, {"b": [1], "A": None}])
    return made + body(rng, 3), variables
