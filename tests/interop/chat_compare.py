"""Compares chat templates with jinja2: chat_compare.py PEER COUNT [FOLDER...]

Renders the templates of tests/golden/chat_templates, those of an installed trl and of the given folders over COUNT
conversations each, then COUNT * 20 random templates, with PEER (chat_peer) and with jinja2 as transformers sets it up. Texts and
generation spans must be the same, byte for byte, and where jinja2 fails PEER must fail too.
"""
import glob
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import warnings

import chat_conversations
import chat_environment
import chat_random

HERE = os.path.dirname(os.path.abspath(__file__))
# What is refused on purpose, though jinja2 does it.
ON_PURPOSE = re.compile(r"not supported|has no slices|beyond 64 bits|has no text|nested too deeply|steps than|bytes of text")


class Peer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def render(self, source, variables):
        self.process.stdin.write(json.dumps({"template": source, "variables": variables}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer ended ({self.process.wait()}) on:\n{source}\n{json.dumps(variables)}")
        return json.loads(line)


def folders(given):
    found = [os.path.join(HERE, "..", "golden", "chat_templates")] + given
    trl = importlib.util.find_spec("trl")
    if trl:
        found.append(os.path.join(os.path.dirname(trl.origin), "chat_templates"))
    return found


class Comparison:
    def __init__(self, program):
        self.peer = Peer(program)
        self.environment = chat_environment.environment()
        self.cases = self.failures = self.refused = self.wrong = 0
        self.compiled = {}

    def check(self, name, source, variables):
        self.cases += 1
        try:
            if source not in self.compiled:
                self.compiled = {source: self.environment.from_string(source)}
            expected, spans = chat_environment.render(self.compiled[source], variables)
            expected.encode()
        except Exception as error:  # Whatever it is, the peer has to fail as well.
            expected, spans = None, f"{type(error).__name__}: {error}"
            self.failures += 1
        got = self.peer.render(source, variables)
        if expected is None:
            if "error" in got:
                return
        elif got.get("text") == expected and got.get("generated") == spans:
            return
        elif " at 0x" in expected:  # The address of an object.
            self.refused += 1
            return
        elif "error" in got and ON_PURPOSE.search(got["error"]):
            self.refused += 1
            return
        self.wrong += 1
        if self.wrong <= 20:
            print(f"--- {name}\n{source if len(source) < 600 else source[:200] + '...'}\n{json.dumps(variables, ensure_ascii=False)[:1500]}")
            print("expected:", json.dumps(expected, ensure_ascii=False), spans)
            print("got:     ", json.dumps(got, ensure_ascii=False))

    def report(self, what):
        print(f"{what}: {self.cases} renderings, {self.failures} of them errors in both, {self.refused} refused on purpose, {self.wrong} differ")
        self.cases = self.failures = self.refused = 0


def main():
    warnings.simplefilter("ignore")
    comparison = Comparison(sys.argv[1])
    count = int(sys.argv[2])
    conversations = chat_conversations.conversations(0, count)
    for folder in folders(sys.argv[3:]):
        for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
            source = open(path, encoding="utf-8").read()
            for variables in conversations:
                comparison.check(os.path.basename(path), source, variables)
        comparison.report(os.path.basename(folder))
    rng = random.Random(1)
    for number in range(count * 20):
        source, variables = chat_random.template(rng)
        comparison.check(f"random {number}", source, variables)
    comparison.report("random templates")
    sys.exit(1 if comparison.wrong else 0)


main()
