#!/usr/bin/env python3
"""What jinja2 makes of chat templates: make_chats.py

Writes chats.jsonl beside it: one rendering a line, {"template": its source, or the file's name in chat_templates, "variables", and "text"
with "generated", or "fails"}. Run it with a Python that has jinja2 3.1.6. The templates are Lockstep's own, and random ones;
tests/interop/chat_compare.py compares those of real models, which an installed trl has.
"""
import json
import os
import random
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))
warnings.simplefilter("ignore")
os.environ["TZ"] = "UTC"

import chat_conversations
import chat_environment
import chat_random


def row(environment, template, source, variables):
    made = {"template": template, "variables": variables}
    try:
        made["text"], made["generated"] = chat_environment.render(environment.from_string(source), variables)
        made["text"].encode()
    except Exception:
        made.pop("text", None)
        made["fails"] = True
    return made


def main():
    environment = chat_environment.environment()
    rows = []
    for name in sorted(os.listdir(os.path.join(HERE, "chat_templates"))):
        with open(os.path.join(HERE, "chat_templates", name), encoding="utf-8") as file:
            source = file.read()
        rows += [row(environment, name, source, variables) for variables in chat_conversations.conversations(3, 25)]
    rng = random.Random(4)
    texts = 0
    while texts < 400:
        source, variables = chat_random.template(rng)
        made = row(environment, source, source, variables)
        if " at 0x" in made.get("text", "") or ("fails" in made and rng.random() < 0.8):
            continue
        texts += "text" in made
        rows.append(made)
    with open(os.path.join(HERE, "chats.jsonl"), "w", encoding="utf-8") as file:
        for made in rows:
            file.write(json.dumps(made, ensure_ascii=False) + "\n")


main()
