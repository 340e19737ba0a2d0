#!/usr/bin/env python3
"""test_server_fields.py BUILD [PATH ...]: what the server does with each field of each dialect, as data/server/fields.json has it.

A row is [what, value, with, before]: the request is the base of its endpoint, changed by `before`, and with the field and `with`. "honoured": the
answer differs from that without the field. "no effect": its text does not. "refused": 400, and the error names the field; instead of `with`
come values that are taken, as null is, and change nothing, or "required". clients/fields.js compares the rows with the clients' types. Speaks TAP.
"""
import copy
import json
import os
import shutil
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, "support"))
sys.dont_write_bytecode = True
CHOSEN = sys.argv[2:]
sys.argv = sys.argv[:2]
import tap
import test_server_api as api

TABLE = json.load(open("tests/data/server/fields.json"))
VOLATILE = {"id", "created", "created_at", "completed_at", "timings", "cached_tokens", "cache_read_input_tokens", "input_tokens", "prompt_eval_count",
            "total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "item_id", "call_id", "previous_response_id"}
ELEMENTS = {"/v1/responses": {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
            "/v1/messages": {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def joined(path, request, name, value):
    """The request with a value at "a.b" or "a[].b"; "speculative.n_max" is one name."""
    request = copy.deepcopy(request)
    parts = [name] if name.startswith("speculative.") else name.split(".")
    at = request
    for part in parts[:-1]:
        if part.endswith("[]"):
            at = at.setdefault(part[:-2], [copy.deepcopy(ELEMENTS.get(path, api.TOOL))])[0]
        else:
            at = at.setdefault(part, {})
    at[parts[-1]] = value
    return request


def merged(request, more):
    request = copy.deepcopy(request)
    for key, value in more.items():
        request[key] = {**request[key], **value} if key == "options" and key in request else value
    return request


def stable(value):
    if isinstance(value, dict):
        return {k: stable(v) for k, v in value.items() if k not in VOLATILE}
    return [stable(v) for v in value] if isinstance(value, list) else value


def answer_of(text):
    """What does not depend on the moment, of an answer or of a stream."""
    try:
        return stable(json.loads(text))
    except json.JSONDecodeError:
        lines = [line.removeprefix("data: ") for line in text.split("\n")]
        return [stable(json.loads(line)) for line in lines if line.startswith("{")]


def text_of(answer):
    """All texts of it."""
    if isinstance(answer, dict):
        own = [v for k, v in answer.items() if k in ("content", "text", "response", "arguments") and isinstance(v, str)]
        return "".join(own) + "".join(text_of(v) for k, v in answer.items() if k not in ("usage", "metadata", "generation_settings"))
    return "".join(text_of(v) for v in answer) if isinstance(answer, list) else ""


def tokens_of(text):
    found = json.loads(text)
    return found.get("input_tokens")


def check_section(server, section):
    path, base, status = section["path"], section["base"], section.get("answer", 200)
    seen = {}

    def ask(request):
        key = json.dumps(request, sort_keys=True)
        if key not in seen:
            seen[key] = server.ask(path, request)[:2]
        return seen[key]

    wrong = []
    for name, row in section["fields"].items():
        does, value, more, before = row + [None] * (4 - len(row))
        start = merged(base, before or {})
        if "[]" in name:  # the list is there without the field too
            head = name.split("[]")[0]
            start.setdefault(head, [copy.deepcopy(ELEMENTS.get(path, api.TOOL))])
        if does != "refused":
            start = merged(start, {k: v for k, v in (more or {}).items() if before is None})
        code, text = ask(merged(joined(path, start, name, value), (more or {}) if before is not None and does != "refused" else {}))
        before_code, before_text = ask(start)
        if before_code != status:
            wrong.append("%s: without it: %d %s" % (name, before_code, before_text[:200]))
        elif does == "refused" and status == 200:
            if code != 400 or name.replace("[]", "[0]") not in text:
                wrong.append("%s is not refused by name: %d %s" % (name, code, text[:200]))
            for neutral in [] if more == "required" else [None] + (more or []):
                code, text = ask(joined(path, start, name, neutral))
                if code != 200 or text_of(answer_of(text)) != text_of(answer_of(before_text)):
                    wrong.append("%s: %s is not taken: %d %s" % (name, json.dumps(neutral), code, text[:200]))
        elif code != status:
            wrong.append("%s: %d %s" % (name, code, text[:200]))
        elif status == 200 and "token" in path:
            if (tokens_of(text) == tokens_of(before_text)) == (does == "honoured"):
                wrong.append("%s: %s, but %s" % (name, does, text[:200]))
        elif does == "honoured" and answer_of(text) == answer_of(before_text):
            wrong.append("%s changes nothing: %s" % (name, text[:200]))
        elif does == "no effect" and text_of(answer_of(text)) != text_of(answer_of(before_text)):
            wrong.append("%s changes the text: %s / %s" % (name, text_of(answer_of(text))[:100], text_of(answer_of(before_text))[:100]))
    assert not wrong, "\n".join(wrong)


def unknown_fields_are_logged_once(server):
    for path, more in (("/v1/chat/completions", {"made_up": 1}), ("/v1/chat/completions", {"made_up": 2, "system": "x"}), ("/api/chat", {"options": {"made_up": 1}, "stream": False}),
                       ("/v1/messages", {"made_up": 3, "evil\nname\u202e": 1}),
                       ("/v1/chat/completions", {"messages": [{**api.HELLO[0], "made_up": 1}] * 3, "stream_options": {"made_up": 1}, "metadata": {"free": "x"}}),
                       ("/v1/chat/completions", {"tools": [{"type": "function", "function": {"name": "f", "made_up": 1, "parameters": {"free": 1}}}]}),
                       ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "made_up": 1}]}]})):
        server.post(path, {"model": "pebble", "messages": api.HELLO, "max_tokens": 1, **more})
    for agent, path in (("claude_code", "/v1/messages"), ("codex", "/v1/responses")):
        server.ask(path, json.load(open("tests/data/server/agents.json"))[agent])
    for number in range(300):
        server.post("/v1/chat/completions", {"model": "pebble", "messages": api.HELLO, "max_tokens": 0, "made_up_%d" % number: 1})
    end = time.monotonic() + 20 * api.SLOW
    while not any("further unknown fields" in line for line in server.lines) and time.monotonic() < end:
        time.sleep(0.05)
    said = [line for line in server.lines if " unknown_field" in line]
    assert 50 < len(said) < 140 and "further" in said[-1], (len(said), said[-1:])
    for field in ("made_up", "options.made_up", "system", "messages[].made_up", "stream_options.made_up", "tools[].function.made_up",
                  "messages[].content[].made_up"):
        assert sum(" unknown_field field=%s:" % field in line for line in said) == 1, [field, said]
    inner = {line.split(" field=")[1].split(":")[0] for line in said if " field=" in line}
    inner = {field for field in inner if "." in field and "made_up" not in field}
    assert not inner, inner  # what the table of fields and the agents send is known
    assert sum("evil" in line for line in said) == 1 and not any(line.startswith("name") for line in server.lines), said


def main():
    api.make_models()
    server = api.Server()
    tests = [(section["path"], lambda section=section: check_section(server, section)) for section in TABLE]
    tests.append(("unknown_fields_are_logged_once", lambda: unknown_fields_are_logged_once(server)))
    for name, run in tests:
        run.__name__ = name
    try:
        status = tap.run([run for _, run in tests], CHOSEN)
        server.stop()
    finally:
        if server.process.poll() is None:
            server.process.kill()
        shutil.rmtree(api.FOLDER, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
