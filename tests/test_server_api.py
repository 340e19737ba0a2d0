#!/usr/bin/env python3
"""test_server_api.py BUILD [NAME ...]: what clients of OpenAI, Anthropic, llama-server and Ollama are answered.

Speaks TAP, as the other test programs do. Python's own library alone; clients/ has the same with the official clients. One
server serves all tests, with the built-in model and one that says what a script says.
"""
import http.client
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "moraine")
FOLDER = tempfile.mkdtemp(prefix="moraine-api-")
SLOW = 4 if os.environ.get("MO_SLOW") else 1  # builds with sanitizers
CALL = '<think>\\nlook\\n</think>\\n\\nI look.\\n<tool_call>\\n{"name": "get_weather", "arguments": {"city": "Bern", "days": 2}}\\n</tool_call>'
HARMONY = ('<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>'
           '{"city": "Bern", "days": 2}<|call|>')
TWO = ('<tool_call>\\n{"name": "get_weather", "arguments": {"city": "Bern", "days": 1}}\\n</tool_call>\\n'
       '<tool_call>\\n{"name": "get_weather", "arguments": {"city": "Z\u00fcrich", "days": 3}}\\n</tool_call>')

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"],
           "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}}
HELLO = [{"role": "user", "content": "Tell me a story about a fox."}]
GREEDY = {"temperature": 0, "max_tokens": 24}


def path(name):
    return os.path.join(FOLDER, name)


def make_models():
    """pebble, and one that thinks, calls and answers."""
    program = os.path.join(BUILD, "tests", "make_scripted_model")
    subprocess.run([program, path("scripted.gguf"), "@tests/data/server/hermes.jinja", "Hello there, friend.", "@call", CALL, "@two", TWO,
                    "sunny", "It is sunny in Bern."], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, path("bare.gguf"), "", HARMONY, "sunny", "<|channel|>final<|message|>It is sunny.<|return|>"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([program, path("broken.gguf"), "{% for %}<|im_start|>{{ tools }}", "Hello there, friend.", "sunny", "It is sunny."], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([program, path("comment.gguf"), "{# no tools #}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
                    "Hello there, friend.", "sunny", "It is sunny."], check=True, stdout=subprocess.DEVNULL)
    shutil.copy("models/pebble.gguf", path("pebble.gguf"))


class Server:
    def __init__(self, *models):
        models = models or tuple(path(name + ".gguf") for name in ("pebble", "scripted", "bare", "broken", "comment"))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "MORAINE_", "LISTEN_", "NOTIFY_"))}
        environment["XDG_CACHE_HOME"] = path("cache")
        self.process = subprocess.Popen([PROGRAM, "serve", *models, "--port", "0", "--profile", "off",
                                         "--models-max", "2", "--ctx", "2048", "--threads", "2"], stderr=subprocess.PIPE, env=environment, text=True)
        self.lines, self.port, self.ready = [], None, threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        assert self.ready.wait(60 * SLOW) and self.process.poll() is None, "".join(self.lines)

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening.*?http://[^ \"]*:(\d+)", line)
            self.port = int(found.group(1)) if found else self.port
            if " ready " in line:
                self.ready.set()
        self.ready.set()

    def ask(self, where, body, method="POST", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
        try:
            connection.request(method, where, body if isinstance(body, (str, bytes)) or body is None else json.dumps(body), headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def post(self, where, body, status=200):
        code, text, _ = self.ask(where, body)
        assert code == status, (where, body, code, text)
        return json.loads(text)

    def events(self, where, body):
        """[(event name or None, data)] of a stream; the [DONE] of OpenAI's is a string."""
        code, text, headers = self.ask(where, {**body, "stream": True})
        assert code == 200, (code, text)
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        found = []
        for block in text.split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if not lines:
                continue
            name = next((line[7:] for line in lines if line.startswith("event: ")), None)
            data = next(line[6:] for line in lines if line.startswith("data: "))
            found.append((name, data if data == "[DONE]" else json.loads(data)))
        return found

    def lines_of(self, where, body):
        code, text, headers = self.ask(where, body)
        assert code == 200, (code, text)
        assert headers["Content-Type"].startswith("application/x-ndjson"), headers
        return [json.loads(line) for line in text.split("\n") if line]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30 * SLOW) == 0, "".join(self.lines)


def chat(body=None, **more):
    return {"model": "pebble", "messages": HELLO, **GREEDY, **(body or {}), **more}


def scripted(word="", **more):
    return {"model": "scripted", "messages": [{"role": "user", "content": "say " + word}], **more}


def gather(chunks):
    """The choices of a streamed chat, put together as clients do."""
    choices = {}
    for _, chunk in chunks:
        if chunk == "[DONE]":
            continue
        for choice in chunk["choices"]:
            c = choices.setdefault(choice["index"], {"content": "", "reasoning": "", "calls": [], "finish": None, "logprobs": []})
            delta = choice["delta"]
            c["content"] += delta.get("content") or ""
            c["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(c["calls"]) and call["type"] == "function"
                    c["calls"].append({"name": call["function"]["name"], "arguments": call["function"]["arguments"]})
                else:
                    c["calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            c["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            if choice["finish_reason"]:
                assert c["finish"] is None and delta == {}
                c["finish"] = choice["finish_reason"]
    return choices


def flat(choice):
    """A choice of a whole answer in the form of gather()."""
    message = choice["message"]
    calls = [{"name": c["function"]["name"], "arguments": c["function"]["arguments"]} for c in message.get("tool_calls", [])]
    return {"content": message["content"] or "", "reasoning": message.get("reasoning_content", ""), "calls": calls,
            "finish": choice["finish_reason"], "logprobs": (choice["logprobs"] or {}).get("content") or []}


TESTS = []


def test(function):
    TESTS.append(function)
    return function


# ---- OpenAI: chat


@test
def a_chat_is_answered(s):
    a = s.post("/v1/chat/completions", chat())
    assert a["id"].startswith("chatcmpl-") and a["object"] == "chat.completion" and a["model"] == "pebble"
    assert a["system_fingerprint"].startswith("moraine-") and abs(a["created"] - time.time()) < 60
    c = a["choices"][0]
    assert c["index"] == 0 and c["message"]["role"] == "assistant" and c["message"]["content"] and c["finish_reason"] in ("stop", "length")
    assert c["logprobs"] is None
    u = a["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] and u["prompt_tokens_details"]["cached_tokens"] >= 0
    assert u["completion_tokens_details"]["reasoning_tokens"] == 0
    t = a["timings"]
    assert t["cache_n"] + t["prompt_n"] == u["prompt_tokens"] and t["predicted_n"] == u["completion_tokens"] and t["prompt_ms"] >= 0
    assert s.post("/chat/completions", chat())["choices"] == a["choices"]


@test
def a_stream_has_the_order_clients_expect(s):
    whole = s.post("/v1/chat/completions", chat())
    chunks = s.events("/v1/chat/completions", chat(stream_options={"include_usage": True}))
    assert chunks[-1][1] == "[DONE]" and all(name is None for name, _ in chunks)
    data = [d for _, d in chunks[:-1]]
    assert len({(d["id"], d["created"], d["model"], d["object"]) for d in data}) == 1 and data[0]["object"] == "chat.completion.chunk"
    assert data[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in d["choices"][0]["delta"] for d in data[1:-1])
    assert data[-1]["choices"] == [] and data[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert data[-2]["choices"][0]["finish_reason"] and data[-2]["choices"][0]["delta"] == {}
    assert gather(chunks)[0] == flat(whole["choices"][0])
    without = s.events("/v1/chat/completions", chat())
    assert all("usage" not in d or d["usage"] is None for _, d in without[:-1])


@test
def several_choices_share_a_prompt(s):
    body = chat(n=3, temperature=1, seed=7, max_tokens=12)
    whole = s.post("/v1/chat/completions", body)
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    assert len({c["message"]["content"] for c in whole["choices"]}) > 1
    streamed = gather(s.events("/v1/chat/completions", body))
    assert [streamed[i] for i in range(3)] == [flat(c) for c in whole["choices"]]
    assert s.post("/v1/chat/completions", chat(n=2))["usage"]["prompt_tokens"] == s.post("/v1/chat/completions", chat())["usage"]["prompt_tokens"]
    assert s.post("/v1/chat/completions", chat(n=100), 400)["error"]["message"]


@test
def log_probabilities_belong_to_the_tokens(s):
    body = chat(logprobs=True, top_logprobs=4, max_tokens=10)
    choice = s.post("/v1/chat/completions", body)["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert b"".join(bytes(t["bytes"]) for t in tokens).decode().strip() == choice["message"]["content"].strip()
    for t in tokens:
        assert len(t["top_logprobs"]) == 4 and t["logprob"] <= 0
        assert t["top_logprobs"][0]["logprob"] == t["logprob"] and t["top_logprobs"][0]["token"] == t["token"]  # greedy
        assert [x["logprob"] for x in t["top_logprobs"]] == sorted((x["logprob"] for x in t["top_logprobs"]), reverse=True)
        assert sum(math.exp(x["logprob"]) for x in t["top_logprobs"]) <= 1.0001
    assert gather(s.events("/v1/chat/completions", body))[0]["logprobs"] == tokens
    assert s.post("/v1/chat/completions", chat(logprobs=True))["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


@test
def stop_strings_are_never_shown(s):
    text = s.post("/v1/chat/completions", chat())["choices"][0]["message"]["content"]
    word = text.split()[2]
    for stop in (word, ["@@@", word]):
        a = s.post("/v1/chat/completions", chat(stop=stop))["choices"][0]
        assert a["message"]["content"] == text[:text.index(word)] and a["finish_reason"] == "stop", (text, word, a)
        assert gather(s.events("/v1/chat/completions", chat(stop=stop)))[0] == flat(a)


@test
def lengths_are_obeyed(s):
    a = s.post("/v1/chat/completions", chat(max_tokens=5))
    assert a["usage"]["completion_tokens"] == 5 and a["choices"][0]["finish_reason"] == "length"
    assert s.post("/v1/chat/completions", chat(max_tokens=9, max_completion_tokens=3))["usage"]["completion_tokens"] == 3
    a = s.post("/v1/chat/completions", chat(max_tokens=0))
    assert a["usage"]["completion_tokens"] == 0 and a["choices"][0]["message"]["content"] == ""
    assert gather(s.events("/v1/chat/completions", chat(max_tokens=0)))[0]["finish"] == a["choices"][0]["finish_reason"] == "length"


@test
def seeds_repeat_a_text(s):
    body = chat(temperature=1.5, seed=11, top_k=0, top_p=1, min_p=0)
    texts = {s.post("/v1/chat/completions", {**body, "seed": seed})["choices"][0]["message"]["content"] for seed in (11, 11, 11.0)}
    assert len(texts) == 1
    assert len({s.post("/v1/chat/completions", {**body, "seed": i})["choices"][0]["message"]["content"] for i in range(4)}) > 1
    assert len({s.post("/v1/chat/completions", {**body, "seed": -1})["choices"][0]["message"]["content"] for i in range(4)}) > 1


@test
def seeds_that_are_drawn_can_be_sent_back(s):
    body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 1.5}
    for _ in range(4):
        a = s.post("/completion", body)
        seed = a["generation_settings"]["seed"]
        assert 0 <= seed < 0xffffffff, seed
        assert s.post("/completion", {**body, "seed": float(seed)})["content"] == a["content"]


@test
def biases_change_the_choice(s):
    first = s.post("/v1/chat/completions", chat(logprobs=True, top_logprobs=2, max_tokens=1))["choices"][0]["logprobs"]["content"][0]
    best, second = (t["id"] for t in first["top_logprobs"])
    for bias in ({str(best): -100}, [[best, False]], [[first["top_logprobs"][0]["token"], -100]], {str(second): 100}):
        a = s.post("/v1/chat/completions", chat(logit_bias=bias, logprobs=True, max_tokens=1))["choices"][0]["logprobs"]["content"][0]
        assert a["id"] == second, (bias, a)


@test
def what_is_unknown_or_null_is_ignored(s):
    a = s.post("/v1/chat/completions", chat(user="x", store=True, metadata={}, service_tier="auto", unknown=[1], temperature=0, stop=None,
                                            tools=None, response_format=None, n=None, seed=None, logit_bias=None, stream=None))
    assert a["choices"] == s.post("/v1/chat/completions", chat())["choices"]


@test
def developers_are_heard(s):
    one = s.post("/v1/chat/completions/input_tokens", {"messages": [{"role": "developer", "content": "Be brief."}] + HELLO})
    two = s.post("/v1/chat/completions/input_tokens", {"messages": [{"role": "system", "content": "Be brief."}] + HELLO})
    assert one == two and one["object"] == "response.input_tokens"


@test
def an_answer_can_be_begun_by_the_client(s):
    text = s.post("/v1/chat/completions", chat())["choices"][0]["message"]["content"]
    head = text[:len(text) // 2]
    head = head[:head.rindex(" ")]
    a = s.post("/v1/chat/completions", chat(messages=HELLO + [{"role": "assistant", "content": head}]))
    assert a["choices"][0]["message"]["content"][:10] == text[len(head):][:10], (text, head, a)
    parts = [{"type": "text", "text": "It"}, {"type": "text", "text": "is"}]  # joined as llama-server joins them
    for model in ("pebble", "scripted"):
        said = s.post("/apply-template", {"model": model, "messages": HELLO + [{"role": "assistant", "content": parts}]})["prompt"]
        assert said.endswith("It\n\nis"), said


@test
def wrong_requests_are_400_and_name_the_field(s):
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    cases = [("messages", {"messages": None}), ("messages[0].role", {"messages": [{"content": "x"}]}),
             ("messages[0].content", {"messages": [{"role": "user"}]}), ("messages[0].content[0]", {"messages": image}),
             ("temperature", {"temperature": "hot"}), ("samplers", {"samplers": ["top_k", "magic"]}), ("samplers", {"samplers": "top_k;top_k"}), ("max_tokens", {"max_tokens": "many"}), ("stop[1]", {"stop": ["a", 5]}),
             ("top_logprobs", {"top_logprobs": 3}), ("n", {"n": 0}), ("n", {"n": 100}), ("stream", {"stream": "yes"}), ("mirostat", {"mirostat": 1}),
             ("tools[0].function", {"tools": [{"type": "function"}]}), ("tool_choice", {"tool_choice": "required"}),
             ("tool_choice.function.name", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "nothing"}}}),
             ("response_format.type", {"response_format": {"type": "yaml"}}), ("logit_bias.-1", {"logit_bias": {"-1": 1}})]
    for stream in (False, True):
        for param, change in cases:
            if param == "stream" and stream:
                continue
            error = s.post("/v1/chat/completions", {**chat(stream=stream), **change}, 400)["error"]
            assert error["type"] == "invalid_request_error" and error["param"] == param and error["code"] is None, (change, error)
            assert error["message"].startswith(param), error
    for body in ("", "{", "[]", "nonsense", '{"messages":[}'):
        code, text, _ = s.ask("/v1/chat/completions", body)
        assert code == 400 and json.loads(text)["error"]["type"] == "invalid_request_error", (body, code, text)


@test
def bodies_may_begin_with_a_mark_and_have_large_numbers(s):
    body = json.dumps(chat(seed=18446744073709551615, metadata={"x": 10 ** 30}))
    code, text, _ = s.ask("/v1/chat/completions", b"\xef\xbb\xbf" + body.encode())
    assert code == 200, text
    assert s.post("/v1/chat/completions", chat(max_tokens=10 ** 30), 400)["error"]["param"] == "max_tokens"


@test
def fields_that_cannot_be_served_are_named(s):
    cases = [("/v1/chat/completions", chat(), [("echo", True), ("best_of", 2), ("suffix", "x"), ("modalities", ["text", "audio"]), ("guided_regex", "a")]),
             ("/v1/messages", {"max_tokens": 5, "messages": HELLO}, [("logprobs", True), ("top_logprobs", 2), ("n", 2), ("mcp_servers", [{"url": "x"}])]),
             ("/v1/responses", {"input": "x"}, [("n", 2), ("prompt", {"id": "x"})]),
             ("/api/chat", {"messages": HELLO}, [("n", 2), ("echo", True)]),
             ("/v1/completions", {"prompt": "x"}, [("think", True), ("thinking", {"type": "enabled"}), ("reasoning", {"effort": "high"}), ("tools", [TOOL])]),
             ("/completion", {"prompt": "x"}, [("reasoning_effort", "low"), ("chat_template_kwargs", {"a": 1})]),
             ("/api/generate", {"prompt": "x", "raw": True}, [("think", True)])]
    for where, body, fields in cases:
        for name, value in fields:
            error = s.post(where, {**body, name: value}, 400)["error"]
            message = error if isinstance(error, str) else error["message"]
            assert message.startswith(name + ":"), (where, name, message)


@test
def constraints_mean_the_same_everywhere(s):
    texts = {"/v1/chat/completions": lambda a: a["choices"][0]["message"]["content"], "/v1/completions": lambda a: a["choices"][0]["text"],
             "/v1/messages": lambda a: a["content"][-1]["text"], "/v1/responses": lambda a: a["output"][-1]["content"][0]["text"],
             "/api/chat": lambda a: a["message"]["content"], "/api/generate": lambda a: a["response"], "/completion": lambda a: a["content"]}
    fields = [{"grammar": 'root ::= "[1,2]"'}, {"json_schema": {"const": [1, 2]}}, {"guided_choice": ["[1,2]"]}, {"format": {"const": [1, 2]}},
              {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": [1, 2]}}}}]
    for where, text in texts.items():
        for field in fields:
            a = s.post(where, {"model": "pebble", "messages": HELLO, **({} if where == "/v1/responses" else {"prompt": "x"}), "input": "x", "max_tokens": 50,
                               "stream": False, **field})
            assert json.loads(text(a)) == [1, 2], (where, field, a)


@test
def thinking_is_switched_by_every_name(s):
    messages = [{"role": "user", "content": "say x"}]
    for off in ({"think": False}, {"thinking": {"type": "disabled"}}, {"thinking": False}, {"reasoning": {"effort": "none"}}, {"enable_thinking": False}):
        prompt = s.post("/apply-template", {"model": "scripted", "messages": messages, **off})["prompt"]
        assert prompt.endswith("<think>\n\n</think>\n\n"), (off, prompt)


@test
def a_broken_history_is_taken(s):
    history = HELLO + [{"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"a\":"}}]},
                       {"role": "tool", "tool_call_id": "x", "content": "sunny"}]
    a = s.post("/v1/chat/completions", {"model": "scripted", "messages": history})
    assert a["choices"][0]["message"]["content"] == "It is sunny in Bern."
    for arguments in (5, {"a": 1}, None, [1]):
        history[1]["tool_calls"][0]["function"]["arguments"] = arguments
        a = s.post("/v1/chat/completions", {"model": "scripted", "messages": history + [{"role": "assistant", "content": None}] + HELLO})
        assert a["choices"][0]["message"]["content"] == "It is sunny in Bern.", arguments
    blocks = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
              {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "title": "sunny"}]},
              {"type": "tool_use", "id": "t", "name": "f", "input": "{\"a\":"}]
    a = s.post("/v1/messages", {"model": "scripted", "max_tokens": 50, "messages": HELLO + [{"role": "assistant", "content": blocks}, {
        "role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]})
    assert a["content"][-1]["text"] == "It is sunny in Bern."
    items = [{"role": "user", "content": "x"}, {"type": "item_reference", "id": "msg_1"},
             {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}, {"type": "local_shell_call_output", "id": "c", "output": "sunny"}]
    a = s.post("/v1/responses", {"model": "scripted", "input": items})
    assert a["output"][-1]["content"][0]["text"] == "It is sunny in Bern." and a["warnings"][0].startswith("input[1]: ")


@test
def a_prompt_too_long_is_told_with_numbers(s):
    long = [{"role": "user", "content": "fox " * 5000}]
    for where in ("/v1/chat/completions", "/v1/responses"):
        body = {"model": "pebble", "messages": long, "input": "fox " * 5000, "stream": True}
        error = s.post(where, body, 400)["error"]
        assert error["code"] == "context_length_exceeded" and error["type"] == "exceed_context_size_error"
        assert error["n_ctx"] == 2048 and error["n_prompt_tokens"] > 2048 and "exceeds the available context size" in error["message"]
    error = s.post("/v1/messages", {"model": "pebble", "max_tokens": 5, "messages": long}, 400)
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error" and "exceeds the available context size" in error["error"]["message"]
    assert "exceeds the available context size" in s.post("/api/chat", {"model": "pebble", "messages": long}, 400)["error"]


@test
def a_second_turn_is_cached(s):
    messages = [{"role": "user", "content": "A fox and a crow met under an old oak tree. " * 8}]
    first = s.post("/v1/chat/completions", chat(messages=messages))
    again = messages + [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    u = s.post("/v1/chat/completions", chat(messages=again))["usage"]
    assert u["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 8, (first["usage"], u)
    cold = s.post("/v1/chat/completions", chat(messages=again, cache_prompt=False))
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


# ---- Constraints


@test
def json_objects_are_enforced(s):
    for temperature in (0, 1):
        a = s.post("/v1/chat/completions", chat(response_format={"type": "json_object"}, temperature=temperature, seed=3, max_tokens=400))
        text = a["choices"][0]["message"]["content"]
        if a["choices"][0]["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict), text
        else:
            assert text.lstrip().startswith("{"), text


@test
def schemas_are_enforced(s):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "colour": {"enum": ["red", "green"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["ok", "colour", "n"], "additionalProperties": False}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    for where, body in (("/v1/chat/completions", chat(response_format=asked, max_tokens=200)),):
        answer = json.loads(s.post(where, body)["choices"][0]["message"]["content"])
        assert isinstance(answer["ok"], bool) and answer["colour"] in ("red", "green") and 0 <= answer["n"] <= 99
        assert json.loads(gather(s.events(where, body))[0]["content"]) == answer
    text = s.post("/v1/completions", {"prompt": "x", "json_schema": schema, **GREEDY, "max_tokens": 200})["choices"][0]["text"]
    assert set(json.loads(text)) == {"ok", "colour", "n"}
    a = s.post("/v1/responses", {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}, "temperature": 0})
    assert set(json.loads(a["output"][-1]["content"][0]["text"])) == {"ok", "colour", "n"}
    a = s.post("/api/chat", {"messages": HELLO, "format": schema, "stream": False, "options": {"temperature": 0}})
    assert set(json.loads(a["message"]["content"])) == {"ok", "colour", "n"}


@test
def grammars_are_enforced(s):
    body = chat(grammar='root ::= "yes" | "no"')
    assert s.post("/v1/chat/completions", body)["choices"][0]["message"]["content"] in ("yes", "no")
    assert s.post("/completion", {"prompt": "x", "grammar": 'root ::= ("ab"){3}'})["content"] == "ababab"


@test
def constraints_that_cannot_hold_are_400(s):
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "unicorn"}}}
    assert s.post("/v1/chat/completions", chat(response_format=wrong), 400)["error"]["param"].startswith("response_format")
    strict = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "not": {"required": ["a"]}}}}
    assert "not" in s.post("/v1/chat/completions", chat(response_format=strict), 400)["error"]["message"]
    strict["json_schema"]["strict"] = False
    a = s.post("/v1/chat/completions", chat(response_format=strict, max_tokens=60))
    assert any("not" in w for w in a["warnings"]), a
    assert s.post("/v1/chat/completions", chat(grammar="root ::= missing"), 400)["error"]["param"] == "grammar"
    assert s.post("/v1/chat/completions", chat(grammar='root ::= "a"', response_format={"type": "json_object"}), 400)["error"]["message"]
    assert s.post("/v1/chat/completions", chat(grammar='root ::= "a"', tools=[TOOL]), 400)["error"]["param"] == "grammar"


@test
def wide_schemas_are_enforced(s):
    def ask(schema, **more):
        a = s.post("/v1/chat/completions", chat(json_schema=schema, max_tokens=60, **more))
        assert "warnings" not in a, a
        return a["choices"][0]
    names = ["p%d" % i for i in range(2000)]
    wide = {"type": "object", "properties": {n: {"type": "integer"} for n in names}, "additionalProperties": False}
    first = ask({**wide, "required": ["p1500"]})
    if first["finish_reason"] == "stop":
        assert "p1500" in json.loads(first["message"]["content"])
    some = ask({**wide, "additionalProperties": True})
    assert some["message"]["content"].startswith("{")
    one = ask({"anyOf": [{"type": "object", "properties": {n: {"const": 1}}, "required": [n], "additionalProperties": False} for n in names]})
    assert one["finish_reason"] == "stop" and list(json.loads(one["message"]["content"]).values()) == [1]


@test
def constraints_that_no_answer_can_follow_are_400(s):
    vocabulary = s.ask("/v1/models/pebble", None, "GET")[1]
    none = {str(i): -100 for i in range(json.loads(vocabulary)["meta"]["n_vocab"])}
    for stream in (False, True):
        code, text, _ = s.ask("/v1/chat/completions", chat(logit_bias=none, stream=stream))
        data = text[6:] if code == 200 else text  # a stream may have begun
        error = json.loads(data.split("\n\n")[-2][6:] if code == 200 else text)["error"]
        assert error["type"] == "invalid_request_error" and error["param"] == "logit_bias", (code, text)
    code, text, _ = s.ask("/v1/chat/completions", chat(grammar='root ::= ("a"? "a"? ("b"? "b"?){0,3000}){0,3000} "c"', max_tokens=300))
    assert code == 200 or (code == 400 and json.loads(text)["error"]["param"] == "grammar"), (code, text)


# ---- Tools


@test
def calls_are_taken_apart(s):
    body = scripted("@call", tools=[TOOL])
    a = s.post("/v1/chat/completions", body)["choices"][0]
    message = a["message"]
    assert a["finish_reason"] == "tool_calls" and message["content"] == "I look." and message["reasoning_content"] == "look"
    call = message["tool_calls"][0]
    assert len(message["tool_calls"]) == 1 and len(call["id"]) >= 9 and call["type"] == "function"
    assert call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"]) == {"city": "Bern", "days": 2}
    chunks = s.events("/v1/chat/completions", body)
    assert gather(chunks)[0] == flat(a)
    pieces = [d for _, c in chunks[:-1] for x in c["choices"] for d in x["delta"].get("tool_calls", []) if "id" not in d]
    assert len(pieces) > 2, pieces  # arguments come as they are made
    turn = body["messages"] + [message, {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
    assert s.post("/v1/chat/completions", {**body, "messages": turn})["choices"][0]["message"]["content"] == "It is sunny in Bern."


@test
def a_call_that_is_cut_stays_a_call(s):
    whole = s.post("/v1/chat/completions", scripted("@call", tools=[TOOL]))
    arguments = whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    begun = 0
    for most in range(1, whole["usage"]["completion_tokens"]):
        body = scripted("@call", tools=[TOOL], max_tokens=most)
        a = s.post("/v1/chat/completions", body)["choices"][0]
        assert a["finish_reason"] == "length" and "I look.".startswith(a["message"]["content"] or ""), (most, a)
        calls = a["message"].get("tool_calls", [])
        begun += len(calls)
        assert len(calls) <= 1 and all(arguments.startswith(c["function"]["arguments"]) for c in calls), (most, a)
        if most % 5 == 0:
            assert gather(s.events("/v1/chat/completions", body))[0] == flat(a)
            m = s.post("/v1/messages", {**body, "tools": [{"name": "get_weather", "input_schema": WEATHER}]})
            assert m["stop_reason"] == "max_tokens" and all("I look.".startswith(b["text"]) for b in m["content"] if b["type"] == "text"), m
            o = s.post("/api/chat", {**scripted("@call", tools=[TOOL]), "options": {"num_predict": most}, "stream": False})
            assert o["done_reason"] == "length" and "I look.".startswith(o["message"]["content"]), o
            assert len(o["message"].get("tool_calls", [])) == len(calls) == sum(b["type"] == "tool_use" for b in m["content"])
            lines = s.lines_of("/api/chat", {**scripted("@call", tools=[TOOL]), "options": {"num_predict": most}})
            assert "".join(line["message"]["content"] for line in lines) == o["message"]["content"]
            assert [c for line in lines for c in line["message"].get("tool_calls", [])][0:1] or not calls
    assert begun > 5


@test
def calls_that_come_back_are_the_tokens_they_were(s):
    def cached(change):
        body = scripted("@call %s" % time.time(), tools=[TOOL])
        first = s.post("/v1/chat/completions", body)
        message = first["choices"][0]["message"]
        call = message["tool_calls"][0]
        change(message, call)
        turn = body["messages"] + [message, {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
        second = s.post("/v1/chat/completions", {**body, "messages": turn})
        assert second["choices"][0]["message"]["content"] == "It is sunny in Bern."
        whole = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
        return second["usage"]["prompt_tokens_details"]["cached_tokens"] - whole

    def written_anew(message, call):
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=2)

    def without_thought(message, call):
        del message["reasoning_content"]

    # All but the token that ended the answer, which was never computed.
    assert cached(lambda message, call: None) >= -2
    assert cached(written_anew) >= -2
    assert cached(without_thought) >= -2
    # What was changed is rendered anew: the answer's thought is not in it.
    assert cached(lambda message, call: call["function"].update(arguments='{"city": "Basel", "days": 2}')) < -8
    assert cached(lambda message, call: message.update(content="I do not look.")) < -8
    assert cached(lambda message, call: call.update(id="call_unknown")) < -8

    # The next turn finds the tokens of the one before, in the other dialects too.
    tools = [{"name": "get_weather", "input_schema": WEATHER}]
    messages = [{"role": "user", "content": "say @call %s again" % time.time()}]
    total = 0
    for turn in range(3):
        a = s.post("/v1/messages", {"model": "scripted", "max_tokens": 200, "messages": messages, "tools": tools})
        u = a["usage"]
        assert u["cache_read_input_tokens"] >= total - 2, (turn, total, u)
        total = u["cache_read_input_tokens"] + u["input_tokens"] + u["output_tokens"]
        use = a["content"][-1]
        assert use["type"] == "tool_use", a
        messages += [{"role": "assistant", "content": [b for b in a["content"] if b["type"] != "thinking"]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "@call again"}]}]


@test
def several_calls_have_indices(s):
    body = scripted("@two", tools=[TOOL])
    a = s.post("/v1/chat/completions", body)["choices"][0]
    assert [json.loads(c["function"]["arguments"])["city"] for c in a["message"]["tool_calls"]] == ["Bern", "Z\u00fcrich"]
    assert a["message"]["content"] is None and len({c["id"] for c in a["message"]["tool_calls"]}) == 2
    assert gather(s.events("/v1/chat/completions", body))[0] == flat(a)
    one = s.post("/v1/chat/completions", {**body, "parallel_tool_calls": False})["choices"][0]["message"]
    assert len(one["tool_calls"]) == 1


@test
def required_tools_are_called(s):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        for model in ("pebble", "scripted"):
            body = {"model": model, "messages": HELLO, "tools": [TOOL, {"type": "function", "function": {"name": "other"}}], "tool_choice": choice,
                    "temperature": 0, "max_tokens": 300}
            a = s.post("/v1/chat/completions", body)["choices"][0]
            assert a["message"]["tool_calls"], a
            for call in a["message"]["tool_calls"]:
                if choice != "required":
                    assert call["function"]["name"] == "get_weather"
                if a["finish_reason"] == "tool_calls" and call["function"]["name"] == "get_weather":
                    arguments = json.loads(call["function"]["arguments"])
                    assert set(arguments) == {"city", "days"} and isinstance(arguments["days"], int)


@test
def no_tool_may_be_allowed(s):
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    allowed = lambda mode: {"input": "Hi", "max_output_tokens": 8, "tools": [tool], "tool_choice": {"type": "allowed_tools", "mode": mode, "tools": []}}
    assert s.post("/v1/responses", allowed("auto"))["output"]
    assert "requires tools" in s.post("/v1/responses", allowed("required"), 400)["error"]["message"]


@test
def no_call_is_looked_for_with_none(s):
    a = s.post("/v1/chat/completions", scripted("@call", tools=[TOOL], tool_choice="none"))["choices"][0]
    assert "tool_calls" not in a["message"] and "get_weather" in a["message"]["content"] and a["finish_reason"] == "stop"


@test
def thoughts_have_their_field(s):
    a = s.post("/v1/chat/completions", scripted("@call"))
    assert a["choices"][0]["message"]["reasoning_content"] == "look"
    assert a["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    text = s.post("/v1/chat/completions", scripted("@call", reasoning_format="none"))["choices"][0]["message"]
    assert "<think>" in text["content"] and "reasoning_content" not in text


@test
def run_says_what_the_server_says(s):
    """The same template, the same parsers and the same way of thinking, drawn or greedy."""
    environment = {**os.environ, "XDG_CACHE_HOME": path("cache")}
    for model, words, more in (("pebble", HELLO[0]["content"], {"temperature": 0}), ("pebble", HELLO[0]["content"], {"temperature": 0.8, "seed": 7}),
                               ("scripted", "say @call", {"temperature": 0, "max_tokens": 200}), ("bare", "sunny", {"temperature": 0})):
        options = ["--temp", str(more["temperature"]), "--seed", str(more.get("seed", 1))]
        ended = subprocess.run([PROGRAM, "run", path(model + ".gguf"), "-p", words, "-n", str(more.get("max_tokens", 24)), "--ctx", "2048", "--json", "--profile", "off", *options],
                               env=environment, capture_output=True, text=True, timeout=60 * SLOW)
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        told = s.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": words}], "max_tokens": 24, **more})["choices"][0]["message"]
        assert found["text"] == (told["content"] or "") and (found.get("reasoning") or "") == told.get("reasoning_content", ""), (model, found, told)


# ---- OpenAI: completions, responses, embeddings


@test
def completions_take_every_prompt(s):
    ids = s.post("/tokenize", {"content": "Once upon a time", "add_special": True})["tokens"]
    a = s.post("/v1/completions", {"prompt": "Once upon a time", **GREEDY})
    assert a["object"] == "text_completion" and a["id"].startswith("cmpl-") and a["choices"][0]["text"]
    assert s.post("/v1/completions", {"prompt": ids, **GREEDY})["choices"] == a["choices"]
    two = s.post("/v1/completions", {"prompt": ["Once upon a time", "The fox"], "n": 2, **GREEDY})
    assert [c["index"] for c in two["choices"]] == [0, 1, 2, 3] and two["choices"][0]["text"] == two["choices"][1]["text"] == a["choices"][0]["text"]
    assert s.post("/v1/completions", {"prompt": [ids, ids], **GREEDY})["choices"][1]["text"] == a["choices"][0]["text"]
    texts = {}
    chunks = s.events("/v1/completions", {"prompt": ["Once upon a time", "The fox"], **GREEDY})
    for _, chunk in chunks[:-1]:
        for c in chunk["choices"]:
            texts[c["index"]] = texts.get(c["index"], "") + c["text"]
    assert chunks[-1][1] == "[DONE]" and [texts[0], texts[1]] == [two["choices"][0]["text"], two["choices"][2]["text"]]
    for param, change in (("prompt", {"prompt": None}), ("prompt[0]", {"prompt": [99999999]}), ("suffix", {"suffix": "x"}), ("echo", {"echo": True})):
        assert s.post("/v1/completions", {"prompt": "x", **change}, 400)["error"]["param"] == param


@test
def completions_have_both_forms_of_log_probabilities(s):
    c = s.post("/v1/completions", {"prompt": "Once", "logprobs": 3, **GREEDY})["choices"][0]
    l = c["logprobs"]
    assert "".join(l["tokens"]) == c["text"] and len(l["token_logprobs"]) == len(l["tokens"]) == len(l["content"]) == len(l["text_offset"])
    assert len(l["top_logprobs"][0]) == 3 and l["text_offset"][0] == 0 and l["text_offset"][1] == len(l["tokens"][0])


@test
def a_response_is_answered(s):
    a = s.post("/v1/responses", {"model": "pebble", "input": "Tell me a story.", "instructions": "Be brief.", "max_output_tokens": 8, "temperature": 0})
    assert a["object"] == "response" and a["id"].startswith("resp_") and a["status"] == "incomplete"
    assert a["incomplete_details"] == {"reason": "max_output_tokens"} and a["usage"]["output_tokens"] == 8 and a["error"] is None
    item = a["output"][0]
    assert item["type"] == "message" and item["content"][0]["type"] == "output_text" and item["content"][0]["annotations"] == []
    assert s.post("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, 400)["error"]["param"] == "previous_response_id"


@test
def responses_stream_events_that_the_accumulator_reads(s):
    flat_tool = {"type": "function", **TOOL["function"]}
    body = {"model": "scripted", "input": "say @call", "tools": [flat_tool, {"type": "web_search"}]}
    whole = s.post("/v1/responses", body)
    assert [i["type"] for i in whole["output"]] == ["reasoning", "message", "function_call"] and whole["status"] == "completed"
    assert json.loads(whole["output"][2]["arguments"]) == {"city": "Bern", "days": 2} and len(whole["tools"]) == 1
    events = s.events("/v1/responses", body)
    assert all(name == d["type"] for name, d in events) and [d["sequence_number"] for _, d in events] == list(range(len(events)))
    assert [n for n, _ in events[:2]] == ["response.created", "response.in_progress"] and events[-1][0] == "response.completed"
    assert events[0][1]["response"]["output"] == [] and events[0][1]["response"]["status"] == "in_progress"
    items = []
    for name, d in events[2:-1]:
        if name == "response.output_item.added":
            assert d["output_index"] == len(items)
            items.append("")
        elif name.endswith(".delta"):
            items[d["output_index"]] += d["delta"]
            assert name.startswith("response.function_call") or d["content_index"] == 0
    final = events[-1][1]["response"]["output"]
    assert items == [final[0]["content"][0]["text"], final[1]["content"][0]["text"], final[2]["arguments"]]
    strip = lambda i: {k: v for k, v in i.items() if k not in ("id", "call_id")}
    assert [strip(i) for i in final] == [strip(i) for i in whole["output"]]
    history = [{"role": "user", "content": "x"}] + final + [{"type": "function_call_output", "call_id": final[2]["call_id"], "output": "sunny"}]
    assert s.post("/v1/responses", {**body, "input": history})["output"][0]["content"][0]["text"] == "It is sunny in Bern."


@test
def responses_are_kept_and_gone_on_from(s):
    flat_tool = {"type": "function", **TOOL["function"]}
    first = s.post("/v1/responses", {"model": "scripted", "input": "say @call", "tools": [flat_tool]})
    assert first["store"] is True and first["previous_response_id"] is None
    assert s.post("/v1/responses", {"input": "x", "store": False})["store"] is False
    assert json.loads(s.ask("/v1/responses/" + first["id"], None, "GET")[1]) == first
    result = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "sunny"}
    second = s.post("/v1/responses", {"model": "scripted", "previous_response_id": first["id"], "input": [result], "tools": [flat_tool]})
    assert second["output"][0]["content"][0]["text"] == "It is sunny in Bern." and second["previous_response_id"] == first["id"]
    history = {"model": "scripted", "tools": [flat_tool], "input": [{"role": "user", "content": "say @call"}] + first["output"] + [result]}
    assert s.post("/v1/responses", history)["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    counted = s.post("/v1/responses/input_tokens", {"model": "scripted", "previous_response_id": first["id"], "input": [result], "tools": [flat_tool]})
    assert counted == s.post("/v1/responses/input_tokens", history)
    items = json.loads(s.ask("/v1/responses/%s/input_items?order=asc" % second["id"], None, "GET")[1])
    assert [i["type"] for i in items["data"]] == ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert items["data"][0]["content"] == [{"type": "input_text", "text": "say @call"}] and items["has_more"] is False
    page = json.loads(s.ask("/v1/responses/%s/input_items?limit=2&after=%s" % (second["id"], items["last_id"]), None, "GET")[1])
    assert [i["id"] for i in page["data"]] == [items["data"][3]["id"], items["data"][2]["id"]] and page["has_more"] is True
    referring = s.post("/v1/responses", {"model": "scripted", "tools": [flat_tool],
                                         "input": [{"role": "user", "content": "say @call"}] + [{"type": "item_reference", "id": i["id"]} for i in first["output"]] + [result]})
    assert referring["usage"]["input_tokens"] == second["usage"]["input_tokens"] and "warnings" not in referring
    code, text, _ = s.ask("/v1/responses/" + first["id"], None, "DELETE")
    assert code == 200 and json.loads(text) == {"id": first["id"], "object": "response", "deleted": True}
    assert s.ask("/v1/responses/" + first["id"], None, "GET")[0] == 404 and s.ask("/v1/responses/" + first["id"], None, "DELETE")[0] == 404
    s.post("/v1/responses", {"model": "scripted", "previous_response_id": second["id"], "input": "hi"})
    for wrong in ({"previous_response_id": first["id"], "input": "x"}, {"previous_response_id": 7, "input": "x"},
                  {"previous_response_id": "../../etc/passwd", "input": "x"}):
        assert s.post("/v1/responses", wrong, 400)["error"]["param"] == "previous_response_id"
    assert s.post("/v1/responses", {"previous_response_id": second["id"], "input": []}, 400)["error"]["param"] == "input"
    assert s.ask("/v1/responses/%s/input_items?limit=0" % second["id"], None, "GET")[0] == 400


@test
def embeddings_are_refused_where_a_model_has_none(s):
    assert s.post("/v1/embeddings", {"input": "x"}, 501)["error"]["type"] == "not_supported_error"
    assert isinstance(s.post("/api/embed", {"input": "x"}, 501)["error"], str)


@test
def tokens_are_counted_without_the_engine(s):
    n = s.post("/v1/chat/completions", chat(max_tokens=1))["usage"]["prompt_tokens"]
    assert s.post("/v1/chat/completions/input_tokens", chat())["input_tokens"] == n
    assert s.post("/v1/responses/input_tokens", {"input": HELLO[0]["content"]})["input_tokens"] == n
    assert s.post("/v1/messages/count_tokens", {"messages": HELLO}) == {"input_tokens": n}


# ---- Anthropic


@test
def a_message_is_answered(s):
    body = {"model": "pebble", "max_tokens": 8, "messages": HELLO, "temperature": 0, "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}
    a = s.post("/v1/messages?beta=true", body)
    assert a["type"] == "message" and a["id"].startswith("msg_") and a["role"] == "assistant" and a["stop_reason"] == "max_tokens"
    assert a["content"][0]["type"] == "text" and a["usage"]["output_tokens"] == 8 and a["stop_sequence"] is None
    u = a["usage"]
    assert u["input_tokens"] + u["cache_read_input_tokens"] == s.post("/v1/messages/count_tokens", body)["input_tokens"]
    text = s.post("/v1/messages", {**body, "max_tokens": 24})["content"][0]["text"]
    word = text.split()[2]
    a = s.post("/v1/messages", {**body, "max_tokens": 24, "stop_sequences": ["@@", word]})
    assert a["stop_reason"] == "stop_sequence" and a["stop_sequence"] == word and a["content"][0]["text"] == text[:text.index(word)]
    refused = s.post("/v1/messages", {**body, "messages": []}, 400)  # as at Anthropic; llama-server answers
    assert refused["error"]["type"] == "invalid_request_error" and "at least one message" in refused["error"]["message"], refused


@test
def blocks_come_one_after_another(s):
    body = {"model": "scripted", "max_tokens": 300, "messages": [{"role": "user", "content": "say @call"}],
            "tools": [{"name": "get_weather", "input_schema": WEATHER}]}
    whole = s.post("/v1/messages", body)
    assert whole["stop_reason"] == "tool_use" and [b["type"] for b in whole["content"]] == ["thinking", "text", "tool_use"]
    assert whole["content"][2]["input"] == {"city": "Bern", "days": 2} and whole["content"][0]["thinking"] == "look"
    events = s.events("/v1/messages", body)
    assert all(name == d["type"] for name, d in events)
    assert events[0][0] == "message_start" and events[0][1]["message"]["content"] == [] and events[0][1]["message"]["stop_reason"] is None
    assert [n for n, _ in events[-2:]] == ["message_delta", "message_stop"]
    open_block, blocks = None, []
    for name, d in events[1:-2]:
        if name == "ping":
            continue
        if name == "content_block_start":
            assert open_block is None and d["index"] == len(blocks)
            open_block = d["index"]
            blocks.append({"type": d["content_block"]["type"], "text": "", "signature": None})
            assert d["content_block"]["type"] != "tool_use" or d["content_block"]["input"] == {}
        elif name == "content_block_delta":
            assert d["index"] == open_block
            delta = d["delta"]
            if delta["type"] == "signature_delta":
                blocks[-1]["signature"] = delta["signature"]
            else:
                blocks[-1]["text"] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        else:
            assert name == "content_block_stop" and d["index"] == open_block
            open_block = None
    assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[0]["text"] == "look" and blocks[0]["signature"] == whole["content"][0]["signature"]
    assert blocks[1]["text"] == whole["content"][1]["text"] and json.loads(blocks[2]["text"]) == whole["content"][2]["input"]
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    result = [{"role": "assistant", "content": whole["content"]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole["content"][2]["id"], "content": "sunny"}]}]
    assert s.post("/v1/messages", {**body, "messages": body["messages"] + result})["content"][0]["text"] == "It is sunny in Bern."


@test
def anthropic_threads_are_refused_as_the_sdk_expects(s):
    body = {"max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    for where in ("/v1/messages", "/v1/messages/count_tokens"):
        for thread in ({"type": "continue", "thread_id": "thread_1"}, {"type": "new"}):
            error = s.post(where, {**body, "thread": thread}, status=400)["error"]
            assert error["type"] == "invalid_request_error" and error["details"] == {"error_code": "thread_unsupported_request"}, error
        assert "error" not in s.post(where, {**body, "thread": None})


@test
def anthropic_tools_can_be_required(s):
    body = {"model": "pebble", "max_tokens": 300, "messages": HELLO, "temperature": 0, "tools": [{"name": "get_weather", "input_schema": WEATHER}]}
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        a = s.post("/v1/messages", {**body, "tool_choice": choice})
        assert a["content"][-1]["type"] == "tool_use" and a["content"][-1]["name"] == "get_weather", a
    error = s.post("/v1/messages", {**body, "tool_choice": {"type": "tool", "name": "x"}}, 400)
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error" and "tool_choice.name" in error["error"]["message"]
    for change in ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"tools": [{"type": "web_search_20250305", "name": "w"}]},
                   {"messages": []}, {"system": 5}, {"stop_sequences": "x", "top_k": "y"}, {"thinking": {"type": "deep"}}):
        assert s.post("/v1/messages", {**body, **change}, 400)["error"]["type"] == "invalid_request_error"


@test
def an_agents_stamp_does_not_spoil_the_prefix(s):
    def ask(stamp):
        system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=%s;" % stamp},
                  {"type": "text", "text": "You are a careful agent. " * 20}]
        return s.post("/v1/messages", {"model": "pebble", "max_tokens": 1, "system": system, "messages": HELLO})["usage"]

    first, second = ask("a1b2c"), ask("zzzz9")
    assert second["cache_read_input_tokens"] >= first["input_tokens"] + first["cache_read_input_tokens"] - 2, (first, second)


# ---- Ollama


@test
def ollama_chats_stream_by_default(s):
    lines = s.lines_of("/api/chat", {"model": "pebble", "messages": HELLO, "options": {"temperature": 0, "num_predict": 8}})
    last = lines[-1]
    assert all(not line["done"] for line in lines[:-1]) and last["done"] and last["done_reason"] == "length" and last["eval_count"] == 8
    assert last["prompt_eval_count"] > 0 and last["total_duration"] > 0 and last["eval_duration"] >= 0
    whole = s.post("/api/chat", {"model": "pebble", "messages": HELLO, "stream": False, "options": {"temperature": 0, "num_predict": 8}})
    assert whole["message"]["content"] == "".join(line["message"]["content"] for line in lines) and whole["done"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", whole["created_at"])


@test
def ollama_calls_have_objects(s):
    body = {"model": "scripted", "messages": [{"role": "user", "content": "say @call"}], "tools": [TOOL]}
    whole = s.post("/api/chat", {**body, "stream": False})["message"]
    assert whole["tool_calls"][0]["function"]["arguments"] == {"city": "Bern", "days": 2} and whole["thinking"] == "look" and whole["content"] == "I look."
    lines = s.lines_of("/api/chat", body)
    assert [c["function"]["name"] for l in lines for c in l["message"].get("tool_calls", [])] == ["get_weather"]
    assert "".join(l["message"].get("thinking", "") for l in lines) == "look" and "".join(l["message"]["content"] for l in lines) == "I look."
    turn = body["messages"] + [whole, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
    assert s.post("/api/chat", {**body, "messages": turn, "stream": False})["message"]["content"] == "It is sunny in Bern."


@test
def ollama_generates(s):
    body = {"model": "pebble", "prompt": HELLO[0]["content"], "options": {"temperature": 0, "num_predict": 8}}
    lines = s.lines_of("/api/generate", body)
    whole = s.post("/api/generate", {**body, "stream": False})
    assert whole["response"] == "".join(l["response"] for l in lines) and whole["context"] == lines[-1]["context"] and len(whole["context"]) > 8
    raw = s.post("/api/generate", {**body, "raw": True, "stream": False})
    assert raw["prompt_eval_count"] < whole["prompt_eval_count"]
    more = s.post("/api/generate", {**body, "context": whole["context"], "stream": False})
    assert more["prompt_eval_count"] > whole["prompt_eval_count"]
    loaded = s.post("/api/generate", {"model": "pebble"})
    assert loaded["done"] and loaded["done_reason"] == "load" and loaded["response"] == ""
    assert isinstance(json.loads(s.post("/api/generate", {**body, "format": "json", "stream": False, "options": {"temperature": 0, "num_predict": 600}})["response"] or "{}"), dict)
    for change in ({"images": ["x"]}, {"suffix": "x"}, {"options": {"temperature": "x"}}, {"keep_alive": "soon"}, {"format": "xml"}):
        assert isinstance(s.post("/api/generate", {**body, **change}, 400)["error"], str)


# ---- llama-server


@test
def a_completion_tells_everything(s):
    body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0, "return_tokens": True, "n_probs": 2}
    a = s.post("/completion", body)
    assert a["stop"] is True and a["stop_type"] == "limit" and a["tokens_predicted"] == 8 == len(a["tokens"]) and a["truncated"] is False
    assert a["prompt"].endswith("Once upon a time") and a["generation_settings"]["n_predict"] == 8 and a["timings"]["predicted_n"] == 8
    assert len(a["completion_probabilities"]) == 8 and len(a["completion_probabilities"][0]["top_logprobs"]) == 2
    assert abs(a["timings"]["predicted_per_second"] - 7e3 / a["timings"]["predicted_ms"]) < 1e-6, a["timings"]  # seven steps
    assert s.post("/detokenize", {"tokens": a["tokens"]})["content"] == a["content"]
    two = s.post("/completion", {**body, "prompt": ["Once upon a time", "The"]})
    assert [x["index"] for x in two] == [0, 1] and two[0]["content"] == a["content"]
    some = s.post("/completion", {**body, "response_fields": ["content", "generation_settings/n_predict"]})
    assert some == {"content": a["content"], "generation_settings/n_predict": 8}
    assert a["generation_settings"]["logit_bias"] == []
    settings = s.post("/completion", {**body, "typical_p": 0.5, "mirostat": 2, "dry_multiplier": 3, "xtc_probability": 0.25})["generation_settings"]
    assert (settings["typical_p"], settings["mirostat"], settings["dry_multiplier"], settings["xtc_probability"]) == (0.5, 2, 3, 0.25), settings
    biased = s.post("/completion", {**body, "ignore_eos": True, "logit_bias": {"7": 0.5}})["generation_settings"]["logit_bias"]
    assert biased[0] == {"token": 7, "bias": 0.5} and len(biased) > 1 and all(b["bias"] is None for b in biased[1:]), biased
    code, text, _ = s.ask("/completion", {**body, "prompt": {"prompt_string": "Once <__media__>", "multimodal_data": ["aGk="]}})
    assert code == 400 and "prompt.multimodal_data" in text, text
    assert s.post("/completion", {**body, "prompt": {"prompt_string": "Once upon a time"}})["content"] == a["content"]
    shown = s.post("/v1/chat/completions", chat(verbose=True))
    assert shown["__verbose"]["prompt"] == s.post("/apply-template", chat())["prompt"] and "__verbose" not in s.post("/v1/chat/completions", chat())
    assert s.events("/v1/chat/completions", chat(verbose=True))[-2][1]["__verbose"] == shown["__verbose"]
    word = s.post("/completion", {**body, "stop": [a["content"].split()[1]]})
    assert word["stop_type"] == "word" and word["stopping_word"] == a["content"].split()[1]
    events = s.events("/completion", {**body, "return_progress": True})
    assert events[-1][1]["stop"] is True and all(d["stop"] is False for _, d in events[:-1])
    assert "".join(d["content"] for _, d in events) == a["content"]
    for change in ({}, {"stop": [a["content"].split()[1]]}, {"prompt": "Tell me a story about a king number 2.", "n_predict": 50}):
        tokens = s.post("/completion", {**body, **change, "n_probs": 0})["tokens"]  # also those without a text of their own
        assert [t for _, d in s.events("/completion", {**body, **change, "n_probs": 0}) for t in d["tokens"]] == tokens
    assert s.post("/completions", body)["content"] == a["content"]
    for count, asked, told in ((2040, -1, True), (2040, 8, True), (2040, 7, False)):  # the window has 2048
        full = s.post("/completion", {"prompt": [5] * count, "n_predict": asked, "ignore_eos": True})
        assert full["truncated"] is told and full["tokens_predicted"] == (8 if told else 7) and full["stop_type"] == "limit", full


@test
def progress_is_told(s):
    long = "A fox and a crow. " * 60
    for where, body in (("/completion", {"prompt": long + str(time.time()), "n_predict": 1}),
                        ("/v1/chat/completions", {"messages": [{"role": "user", "content": str(time.time()) + long}], "max_tokens": 1})):
        told = [d["prompt_progress"] for _, d in s.events(where, {**body, "return_progress": True, "cache_prompt": False}) if d != "[DONE]" and "prompt_progress" in d]
        assert told and told[-1]["processed"] <= told[-1]["total"] and [t["processed"] for t in told] == sorted(t["processed"] for t in told), told
    body = {"prompt": long + str(time.time()), "n_predict": 1, "return_progress": True, "timings_per_token": True, "cache_prompt": False}
    timings = [d["timings"] for _, d in s.events("/completion", body) if "prompt_progress" in d]
    assert timings[0]["prompt_n"] == 0 and timings[0]["prompt_ms"] == 0 and timings[-1]["prompt_n"] > 0, timings
    events = s.events("/v1/responses", {"model": "pebble", "input": long + str(time.time()), "max_output_tokens": 2, "return_progress": True, "timings_per_token": True})
    told = [d for _, d in events if "prompt_progress" in d]
    assert told and all(d["type"] == "response.in_progress" and d["response"]["status"] == "in_progress" for d in told), events
    assert all("timings" in d for kind, d in events if kind == "response.output_text.delta") and "timings" in events[-1][1], events


@test
def texts_become_tokens_and_back(s):
    text = "Hello, w\u00f6rld \U0001f600 <|im_end|>"
    tokens = s.post("/tokenize", {"content": text, "parse_special": False})["tokens"]
    assert s.post("/detokenize", {"tokens": tokens})["content"] == text
    pieces = s.post("/tokenize", {"content": text, "parse_special": False, "with_pieces": True})["tokens"]
    assert [p["id"] for p in pieces] == tokens
    assert b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces).decode() == text
    assert s.post("/tokenize", {})["tokens"] == []
    assert s.post("/detokenize", {"tokens": ["x"]}, 400)["error"]["param"] == "tokens[0]"
    assert s.post("/tokenize", {"content": 5}, 400)["error"]["param"] == "content"


@test
def templates_can_be_looked_at(s):
    prompt = s.post("/apply-template", scripted("x"))["prompt"]
    assert prompt == "<|im_start|>user\nsay x<|im_end|>\n<|im_start|>assistant\n"
    prompt = s.post("/apply-template", scripted("x", chat_template_kwargs={"enable_thinking": False}))["prompt"]
    assert prompt.endswith("<think>\n\n</think>\n\n")
    assert s.post("/apply-template", scripted("x", reasoning_effort="none"))["prompt"] == prompt


@test
def calls_and_results_are_told_to_models_whose_template_knows_neither(s):
    call = {"id": "call_12345", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
    bad = {"id": "call_67890", "type": "function", "function": {"name": "get_weather", "arguments": "{bad"}}
    messages = HELLO + [{"role": "assistant", "content": None, "tool_calls": [call, bad]},
                        {"role": "tool", "tool_call_id": "call_12345", "content": "sunny"},
                        {"role": "tool", "tool_call_id": "call_67890", "content": "rain"}]
    prompt = s.post("/apply-template", {"model": "pebble", "messages": messages, "tools": [TOOL]})["prompt"]
    for part in ('"tool_call": {"name": "get_weather", "arguments": {"city": "Bern"}}', "{bad", "sunny", "rain"):
        assert part in prompt, prompt
    # Contents given as parts mean the same.
    messages[-3]["content"] = [{"type": "text", "text": "Let me"}, {"type": "text", "text": "see."}]
    messages[-2]["content"] = [{"type": "text", "text": "sunny"}]
    system = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]
    told = s.post("/apply-template", {"model": "pebble", "messages": system + messages, "tools": [TOOL]})["prompt"]
    assert "Let me\nsee." in told and "sunny" in told and "Be brief." in told and told.count("<|im_start|>system") == 1, told


@test
def a_word_in_a_template_shows_no_tools(s):
    call = {"id": "call_12345", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
    messages = HELLO + [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_12345", "content": "rain"}]
    prompt = s.post("/apply-template", {"model": "comment", "messages": messages, "tools": [TOOL]})["prompt"]
    assert "The weather" in prompt and '{"name": "get_weather", "arguments": {"city": "Bern"}}' in prompt and "rain" in prompt, prompt
    assert "tools" not in s.post("/api/show", {"model": "comment"})["capabilities"] and "tools" in s.post("/api/show", {"model": "scripted"})["capabilities"]


@test
def any_history_is_taken_where_a_template_cannot_be_read(s):
    call = {"id": "call_12345", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bern"}'}}
    messages = [{"role": "system", "content": "Be brief."}, *HELLO,
                {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call], "name": "me"},
                {"role": "tool", "tool_call_id": "call_12345", "content": [{"type": "text", "text": "rain"}, {"type": "text", "text": "later"}]},
                {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "And now?", "name": "you"}, {"role": "user", "content": "sunny?"}]
    for more in ({}, {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "none"}, {"reasoning_effort": "minimal"}, {"reasoning_effort": "none"}):
        prompt = s.post("/apply-template", {"model": "broken", "messages": messages, **more})["prompt"]
        for part in ("Be brief.", "fox", '"arguments": {"city": "Bern"}', "rain\nlater", "Be kind.", "And now?", "sunny?"):
            assert part in prompt, (part, prompt)
        assert prompt.count("<|im_start|>system") == 1 and "hm" not in prompt and ("The weather" in prompt) == ("tools" in more), prompt
    answer = s.post("/v1/chat/completions", {"model": "broken", "messages": messages, "temperature": 0, "max_tokens": 20})
    assert answer["choices"][0]["message"]["content"] == "It is sunny."


@test
def harmony_calls_without_a_template(s):
    body = {"model": "bare", "messages": HELLO, "tools": [TOOL], "temperature": 0, "max_tokens": 100}
    prompt = s.post("/apply-template", body)["prompt"]
    assert "// The weather\ntype get_weather = (_: {\ncity: string,\ndays: number,\n}) => any;" in prompt and "commentary channel" in prompt
    for choice in ("auto", "required"):
        a = s.post("/v1/chat/completions", {**body, "tool_choice": choice})["choices"][0]
        assert a["message"]["reasoning_content"] == "hm" and a["finish_reason"] == "tool_calls", a
        assert json.loads(a["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Bern", "days": 2}
    turn = HELLO + [a["message"], {"role": "tool", "tool_call_id": a["message"]["tool_calls"][0]["id"], "content": "sunny"}]
    assert s.post("/v1/chat/completions", {**body, "messages": turn})["choices"][0]["message"]["content"] == "It is sunny."


def cancel_any(s):
    """Stops the answers that run, whose ids not every dialect tells."""
    ids = json.loads(s.ask("/v1/moraine/sessions?model=pebble", None, "GET")[1])["answers"]
    return [s.post("/v1/moraine/cancel", {"id": one}) for one in ids]


@test
def an_answer_can_be_stopped_by_its_id(s):
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60 * SLOW)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=-1, stream=True, ignore_eos=True)))
    answer = connection.getresponse()
    first = json.loads(answer.readline()[6:])
    s.post("/v1/moraine/cancel", {"id": first["id"]})
    rest = answer.read().decode()
    assert '"finish_reason":"stop"' in rest and rest.endswith("data: [DONE]\n\n"), rest[-500:]
    # Where a dialect has words for it, it does not look complete.
    connection.request("POST", "/v1/responses", json.dumps({"model": "pebble", "input": "Hi", "stream": True, "ignore_eos": True}))
    answer = connection.getresponse()
    while not (line := answer.readline()).startswith(b"data: "):
        pass
    s.post("/v1/moraine/cancel", {"id": json.loads(line[6:])["response"]["id"]})
    last = json.loads(answer.read().decode().strip().split("\n")[-1][6:])
    assert last["type"] == "response.incomplete" and last["response"]["status"] == "incomplete", last
    assert last["response"]["incomplete_details"] == {"reason": "cancelled"} and last["response"]["completed_at"] is None, last
    connection.request("POST", "/v1/messages", json.dumps({"model": "pebble", "messages": HELLO, "max_tokens": 2000, "stream": True, "ignore_eos": True}))
    answer = connection.getresponse()
    while not (line := answer.readline()).startswith(b"data: "):
        pass
    s.post("/v1/moraine/cancel", {"id": json.loads(line[6:])["message"]["id"]})
    ended = [json.loads(line[6:]) for line in answer.read().decode().split("\n") if line.startswith("data: ")]
    assert ended[-2]["type"] == "message_delta" and ended[-2]["delta"]["stop_reason"] == "max_tokens" and ended[-2]["usage"]["output_tokens"] < 2000
    connection.request("POST", "/completion", json.dumps({"model": "pebble", "prompt": "Hi", "stream": True, "ignore_eos": True, "n_predict": -1}))
    answer = connection.getresponse()
    answer.readline()
    assert cancel_any(s)
    last = json.loads(answer.read().decode().strip().split("\n")[-1][6:])
    assert last["stop"] is True and last["stop_type"] == "none", last
    connection.close()


@test
def the_experts_of_an_answer_can_be_asked_for(s):
    answer = s.post("/v1/chat/completions", chat(trace=True))
    trace = json.loads(s.ask("/v1/moraine/trace/" + answer["id"], None, "GET")[1])
    assert trace["id"] == answer["id"] and trace["model"] == "pebble" and trace["ended"] and not trace["truncated"]
    assert trace["experts"] == 64 and trace["experts_used"] == 6 and trace["layers"] == list(range(7))
    # The last token is said, and not fed.
    assert len(trace["tokens"]) == len(trace["routes"]) == answer["usage"]["completion_tokens"] - 1
    assert answer["choices"][0]["message"]["content"].startswith("".join(t["text"] for t in trace["tokens"]).strip()[:40])
    assert all(len(token) == 7 and all(len(set(layer)) == 6 and max(layer) < 64 for layer in token) for token in trace["routes"])
    again = s.post("/v1/chat/completions", chat(trace=True))
    assert json.loads(s.ask("/v1/moraine/trace/" + again["id"], None, "GET")[1])["routes"] == trace["routes"]
    assert s.ask("/v1/moraine/trace/" + s.post("/v1/chat/completions", chat())["id"], None, "GET")[0] == 404
    assert "trace" in s.post("/api/generate", {"model": "pebble", "prompt": "x", "stream": False, "options": {"trace": True}}, 400)["error"]


@test
def company_changes_no_answer(s):
    alone = [s.post("/v1/chat/completions", chat(messages=[{"role": "user", "content": "Tale %d." % i}]))["choices"] for i in range(6)]
    together = [None] * 6

    def ask(i):
        together[i] = s.post("/v1/chat/completions", chat(messages=[{"role": "user", "content": "Tale %d." % i}], cache_prompt=False))["choices"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


@test
def what_agents_send_is_answered(server):
    """The requests of Claude Code 2.1 and Codex 0.169 for a task with one call, with their fields and structure and other texts."""
    with open("tests/data/server/agents.json") as f:
        agents = json.load(f)
    asked = agents["claude_code"]
    for name in ("", "?beta=true"):
        events = server.events("/v1/messages" + name, asked)
        blocks = [data["content_block"] for kind, data in events if kind == "content_block_start"]
        assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"] and blocks[2]["name"] == "get_weather", blocks
        part = "".join(data["delta"].get("partial_json", "") for kind, data in events if kind == "content_block_delta")
        assert json.loads(part) == {"city": "Bern", "days": 2}
        assert [data["delta"]["stop_reason"] for kind, data in events if kind == "message_delta"] == ["tool_use"]
    turn = [{"role": "assistant", "content": [{**blocks[2], "input": json.loads(part)}]},
            {"role": "user", "content": [{"tool_use_id": blocks[2]["id"], "type": "tool_result", "content": "sunny", "is_error": False, "cache_control": {"type": "ephemeral"}}]}]
    events = server.events("/v1/messages?beta=true", {**asked, "messages": asked["messages"] + turn})
    assert "".join(data["delta"].get("text", "") for kind, data in events if kind == "content_block_delta") == "It is sunny in Bern."
    hidden = server.events("/v1/messages", {**asked, "thinking": {"type": "adaptive", "display": "omitted"}})
    assert not any(data["delta"].get("thinking") for kind, data in hidden if kind == "content_block_delta")
    whole = server.post("/v1/messages", {**asked, "stream": False, "thinking": {"type": "adaptive", "display": "omitted"}})
    assert [b.get("thinking", b.get("text")) for b in whole["content"][:2]] == ["", "I look."], whole
    asked = agents["codex"]
    events = server.events("/v1/responses", asked)
    items = [data["item"] for kind, data in events if kind == "response.output_item.done"]
    assert [i["type"] for i in items] == ["reasoning", "message", "function_call"] and json.loads(items[2]["arguments"]) == {"city": "Bern", "days": 2}, items
    assert [t["name"] for t in events[-1][1]["response"]["tools"]] == ["get_weather"] and events[-1][0] == "response.completed"
    call = {key: items[2][key] for key in ("type", "status", "id", "name", "arguments", "call_id")}
    turn = [call, {"type": "function_call_output", "id": "out_0", "call_id": call["call_id"], "output": "Exit code: 0\nOutput:\nsunny\n"}]
    events = server.events("/v1/responses", {**asked, "input": asked["input"] + turn})
    assert [data["text"] for kind, data in events if kind == "response.output_text.done"] == ["It is sunny in Bern."]


def main():
    chosen = [t for t in TESTS if len(sys.argv) < 3 or t.__name__ in sys.argv[2:]]
    failures = 0
    make_models()
    server = Server()
    print("1..%d" % (len(chosen) + 1), flush=True)
    try:
        for number, function in enumerate(chosen, 1):
            try:
                function(server)
                print("ok %d - %s" % (number, function.__name__), flush=True)
            except Exception as problem:  # noqa: BLE001: the next test may still pass
                failures += 1
                print("not ok %d - %s" % (number, function.__name__))
                print("# %s: %s" % (type(problem).__name__, str(problem)[:1500].replace("\n", "\n# ")), flush=True)
                if not str(problem):
                    print("# " + traceback.format_exc().replace("\n", "\n# "), flush=True)
                if server.process.poll() is not None:
                    print("# the server has ended: %s" % "".join(server.lines)[-1000:].replace("\n", "\n# "))
                    break
        try:
            server.stop()
            print("ok %d - the_server_ends_well" % (len(chosen) + 1))
        except AssertionError as problem:
            failures += 1
            print("not ok %d - the_server_ends_well\n# %s" % (len(chosen) + 1, str(problem)[-1500:].replace("\n", "\n# ")))
    finally:
        if server.process.poll() is None:
            server.process.kill()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
