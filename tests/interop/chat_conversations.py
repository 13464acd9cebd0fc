"""Conversations that chat templates are compared on: system texts, tools and their calls, reasoning, documents, and texts of all kinds."""
import random

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather \u00b7 of a \"city\".", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "A city's name"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "The unit"},
            "days": {"type": ["integer", "null"], "default": 1}},
        "required": ["city"]}, "return": {"type": "string", "description": "The weather."}}},
    {"type": "function", "function": {"name": "add", "description": "Adds numbers", "parameters": {
        "type": "object", "properties": {"values": {"type": "array", "items": {"type": "number"}, "description": "Numbers"},
                                          "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}}},
        "required": ["values"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
DOCUMENTS = [{"title": "One", "text": "The first document."}, {"title": "Zwei \u00fc", "text": "Line\nline <b>"}]
TEXTS = ["Hello", "  Two  words \n", "", "\u00dcn\u00efc\u00f6de \u4f60\u597d \U0001f600", "a\nb\n\nc", "<think>\nreason\n</think>\n\nAnswer", "'quotes' \"and\" \\ back\\n",
         "<|im_end|> inside", "{{ not a tag }} {% nor this %}", "x" * 300, "\u00a0wide\u3000", "<think>open", "123", "[1, 2]", "tab\tand\rreturn"]


def text(rng):
    return rng.choice(TEXTS)


def call(rng, number):
    name = rng.choice(["get_weather", "add", "now"])
    arguments = {"get_weather": {"city": rng.choice(["Paris", "K\u00f6ln"]), "days": rng.choice([1, 2.5, None, True])},
                 "add": {"values": [1, 2.0, 1e20, -3], "options": {"deep": False}}, "now": {}}[name]
    function = {"name": name, "arguments": arguments}
    if rng.random() < 0.15:
        return function
    return {"id": f"call0000{number}", "type": "function", "function": function}


def assistant(rng, number, with_tools):
    message = {"role": "assistant", "content": text(rng)}
    if rng.random() < 0.25:
        message["reasoning_content"] = text(rng)
    if with_tools and rng.random() < 0.5:
        message["tool_calls"] = [call(rng, number + i) for i in range(rng.choice([1, 1, 2]))]
        if rng.random() < 0.5:
            message["content"] = rng.choice([None, "", "I call."])
        if rng.random() < 0.1:
            del message["content"]
    return message


def parts(rng):
    made = [{"type": "text", "text": text(rng)} for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        made.insert(0, {"type": "image"})
    return made


def conversation(rng):
    """Messages, and the other variables of a template."""
    variables = {}
    with_tools = rng.random() < 0.4
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": rng.choice(["system", "system", "system", "developer"]), "content": text(rng)})
    lists = rng.random() < 0.15
    for turn in range(rng.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": parts(rng) if lists else text(rng)})
        if rng.random() < 0.85 or turn == 0:
            messages.append(assistant(rng, turn, with_tools))
            for made in messages[-1].get("tool_calls", []):
                answer = {"role": "tool", "name": made.get("function", made)["name"], "content": rng.choice(["22 degrees", "{\"a\": 1}", text(rng)])}
                if "id" in made:
                    answer["tool_call_id"] = made["id"]
                messages.append(answer)
            if len(messages) > 1 and messages[-1]["role"] == "tool" and rng.random() < 0.7:
                messages.append(assistant(rng, turn + 5, False))
    if lists:
        for message in messages:
            if isinstance(message.get("content"), str):
                message["content"] = [{"type": "text", "text": message["content"]}]
    variables["messages"] = messages
    variables["tools"] = rng.sample(TOOLS, rng.choice([1, 2, 3])) if with_tools else None
    variables["documents"] = DOCUMENTS if rng.random() < 0.1 else None
    variables["add_generation_prompt"] = rng.random() < 0.5
    if rng.random() < 0.2:
        variables["enable_thinking"] = rng.random() < 0.5
    if rng.random() < 0.1:
        variables["date_string"] = "26 Jul 2024"
    if rng.random() < 0.1:
        variables["reasoning_effort"] = "high"
    if rng.random() < 0.9:
        variables.update(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    return variables


def conversations(seed, count):
    rng = random.Random(seed)
    return [conversation(rng) for _ in range(count)]
