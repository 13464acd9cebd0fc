"""jinja2 as transformers sets it up for chat templates: its sandbox, tojson, raise_exception, strftime_now, and the tag `generation`."""
import contextlib
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """Notes which part of the text a generation block wrote."""

    tags = {"generation"}
    blocks = None
    spans = None

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller):
        text = caller()
        if self.blocks is not None:
            begin = len("".join(self.blocks))
            self.spans.append([begin, begin + len(text)])
        return text

    @contextlib.contextmanager
    def noting(self):
        self.blocks, self.spans = [], []
        yield
        self.blocks = None


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment(now=0):
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(now).strftime(format)
    made.globals["dict"] = TemplateDict()
    made.globals["namespace"] = TemplateNamespace
    return made


def render(template, variables):
    """The text and the spans of the generation blocks."""
    extension = next(iter(e for e in template.environment.extensions.values() if isinstance(e, Generation)))
    with extension.noting():
        for block in template.generate(**variables):
            extension.blocks.append(block)
        return "".join(extension.blocks), extension.spans
