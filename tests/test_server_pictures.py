#!/usr/bin/env python3
"""test_server_pictures.py BUILD [NAME ...]: pictures in requests of every dialect: the same tokens and text in all, what is kept of them, and what is
refused.

Speaks TAP, as the other test programs do. Python's own library alone.
"""
import base64
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join("tests", "support"))
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "moraine")
DATA = "tests/data/pictures/"
MODELS = ["qwen3vlmoe", "qwen35moe", "gemma4"]
ROWS = {"qwen3vlmoe": 8, "qwen35moe": 8, "gemma4": 45}  # of the photo


class Server:
    def __init__(self, *options):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "MORAINE_"))}
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--profile", "off", "--ctx", "1024", "--threads", "2", "--device", "none",
                                         "--no-ui", *options], stderr=subprocess.PIPE, env=environment, text=True)
        self.lines, self.port, ready = [], None, threading.Event()

        def read():
            for line in self.process.stderr:
                self.lines.append(line)
                if " ready " in line or "loading" in line and "failed" in line:
                    ready.set()
                if "listening" in line:
                    self.port = int(line.rsplit(":", 1)[1])
            ready.set()
        threading.Thread(target=read, daemon=True).start()
        assert ready.wait(120) and self.port, "".join(self.lines)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def post(self, path, body):
        return self.ask("POST", path, body)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "".join(self.lines)


servers = {}


def server(model):
    if model not in servers:
        servers[model] = Server(DATA + model + ".gguf")
    return servers[model]


def photo(name="photo-61x37.png"):
    with open(DATA + name, "rb") as f:
        return base64.b64encode(f.read()).decode()


def url(data, kind="image/png"):
    return "data:%s;base64,%s" % (kind, data)


def chat(s, parts, **more):
    body = {"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": parts}], **more}
    return s.post("/v1/chat/completions", body)


def image(data=None):
    return {"type": "image_url", "image_url": {"url": url(data or photo())}}


def text(words):
    return {"type": "text", "text": words}


def thin(width):
    """A PNG of one line of grey pixels."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)) +
                            chunk(b"IDAT", zlib.compress(bytes(1 + width))) + chunk(b"IEND", b"")).decode()


def said(answer):
    m = answer["choices"][0]["message"]
    return (m.get("reasoning_content") or "") + (m["content"] or "")


def test_all_dialects_say_the_same():
    for model in MODELS:
        s = server(model)
        status, first = chat(s, [text("The quick"), image(), text("reads.")])
        assert status == 200, first
        count, words = first["usage"]["prompt_tokens"], said(first)
        status, plain = chat(s, [text("The quick"), text("reads.")])
        assert count >= plain["usage"]["prompt_tokens"] + ROWS[model] + 1, (count, plain)
        status, r = s.post("/v1/responses", {"max_output_tokens": 8, "temperature": 0, "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "The quick"}, {"type": "input_image", "image_url": url(photo())}, {"type": "input_text", "text": "reads."}]}]})
        assert status == 200 and r["usage"]["input_tokens"] == count, r
        got = "".join(c["text"] for o in r["output"] for c in o.get("content") or [])
        assert got == words, (got, words)
        status, r = s.post("/v1/messages", {"model": "m", "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": [
            text("The quick"), {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": photo()}}, text("reads.")]}]})
        assert status == 200 and r["usage"]["input_tokens"] + r["usage"]["cache_read_input_tokens"] == count, r
        assert "".join(c.get("text", "") + c.get("thinking", "") for c in r["content"]) == words, (r, words)
        # Ollama's pictures come before the text.
        status, before = chat(s, [image(), text("What?")])
        for path, body in (("/api/chat", {"messages": [{"role": "user", "content": "What?", "images": [photo()]}]}),
                           ("/api/generate", {"prompt": "What?", "images": [photo()]})):
            status, r = s.post(path, {"model": model, "stream": False, "options": {"num_predict": 8, "temperature": 0}, **body})
            assert status == 200 and r["prompt_eval_count"] == before["usage"]["prompt_tokens"], r
            m = r.get("message") or {"content": r["response"], "thinking": r.get("thinking")}
            assert (m.get("thinking") or "") + m["content"] == said(before), (r, before)


def test_pictures_come_after_the_tokens_of_an_earlier_answer():
    s = server("gemma4")
    body = {"model": "m", "stream": False, "options": {"num_predict": 4, "temperature": 0}}
    status, first = s.post("/api/generate", {"prompt": "The quick", **body})
    assert status == 200 and first["context"], first
    status, alone = s.post("/api/generate", {"prompt": "What?", "images": [photo()], **body})
    status, r = s.post("/api/generate", {"prompt": "What?", "images": [photo()], "context": first["context"], **body})
    assert status == 200 and r["prompt_eval_count"] == alone["prompt_eval_count"] + len(first["context"]), (r, alone)


def test_completions_have_pictures_at_their_marks():
    for model in MODELS:
        s = server(model)
        settings = {"n_predict": 8, "temperature": 0}
        one = {"prompt_string": "The quick <__media__> reads.", "multimodal_data": [photo()]}
        status, r = s.post("/completion", {"prompt": one, **settings})
        status2, without = s.post("/completion", {"prompt": "The quick  reads.", **settings})
        assert (status, status2) == (200, 200) and r["tokens_evaluated"] >= ROWS[model] + 4, (r, without)
        assert r["prompt"].count("<__media__>") == 1 and "The quick" in r["prompt"], r["prompt"]
        # Prompts of one request have their own pictures, and give what each gives alone.
        other = {"prompt_string": "Two: <__media__> and <__media__>", "multimodal_data": [photo("photo-20x9.png"), photo()]}
        status, alone = s.post("/completion", {"prompt": other, **settings})
        status, both = s.post("/completion", {"prompt": [one, "plain", other], **settings})
        assert status == 200 and [x["content"] for x in both][::2] == [r["content"], alone["content"]], (both, r, alone)
        assert both[2]["tokens_evaluated"] == alone["tokens_evaluated"]
        status, c = s.post("/v1/completions", {"prompt": one, "max_tokens": 8, "temperature": 0})
        assert status == 200 and c["choices"][0]["text"] == r["content"] and c["usage"]["prompt_tokens"] == r["tokens_evaluated"], (c, r)
        status, again = s.post("/completion", {"prompt": one, **settings})
        assert again["content"] == r["content"] and (again["timings"]["cache_n"] >= r["tokens_evaluated"] - 1 or model == "qwen35moe"), again  # whose state is kept here and there
        # A mark without pictures is text, and so is a prompt without marks.
        status, mark = s.post("/completion", {"prompt": {"prompt_string": "a <__media__> b"}, **settings})
        status, same = s.post("/completion", {"prompt": "a <__media__> b", **settings})
        assert mark["content"] == same["content"] and mark["tokens_evaluated"] == same["tokens_evaluated"]
    s = server("gemma4")
    for prompt, param, words in (({"prompt_string": "none", "multimodal_data": [photo()]}, "prompt.prompt_string", "0 for 1"), ({"prompt_string": "<__media__><__media__>", "multimodal_data": [photo()]}, "prompt.prompt_string", "2 for 1"),
                                 ({"prompt_string": "<__media__>", "multimodal_data": ["@"]}, "prompt.multimodal_data[0]", "base64"), ({"prompt_string": "<__media__>", "multimodal_data": [5]}, "prompt.multimodal_data[0]", "string"),
                                 ({"prompt_string": "<__media__>", "multimodal_data": photo()}, "prompt.multimodal_data", "list"), ({"multimodal_data": [photo()]}, "prompt.prompt_string", ""),
                                 ({"prompt_string": "<__media__>", "multimodal_data": ["file:///etc/passwd"]}, "prompt.multimodal_data[0]", "data URL"), (["a", {"prompt_string": "<__media__>", "multimodal_data": ["AAAA"]}], "prompt[1].multimodal_data[0]", "not a picture")):
        status, r = s.post("/completion", {"prompt": prompt, "n_predict": 2})
        assert status == 400 and r["error"]["param"] == param and words in r["error"]["message"], (prompt, r)
    status, r = s.post("/completion", {"prompt": {"prompt_string": "<__media__>" * 40, "multimodal_data": [photo()] * 40}, "n_predict": 2})
    assert status == 400 and "context" in r["error"]["message"], r


def test_the_same_picture_is_kept_and_another_is_not():
    for model in MODELS:
        s = server(model)
        other = url(photo("photo-20x9.png"))
        parts = [text("keep this %s" % model), image(), text("what")]
        status, first = chat(s, parts)
        status, second = chat(s, parts)
        assert said(first) == said(second)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= second["usage"]["prompt_tokens"] - 1, second
        status, third = chat(s, [parts[0], {"type": "image_url", "image_url": {"url": other}}, parts[2]])
        assert status == 200 and third["usage"]["prompt_tokens_details"]["cached_tokens"] < cached - ROWS[model], third
        status, fresh = chat(s, [parts[0], {"type": "image_url", "image_url": {"url": other}}, parts[2]], cache_prompt=False)
        assert said(fresh) == said(third)


def test_several_pictures_choices_and_requests():
    for model in MODELS:
        s = server(model)
        status, one = chat(s, [image(), text("and"), image(photo("photo-20x9.png")), text("differ?")])
        assert status == 200, one
        results = {}

        def ask(i):
            results[i] = chat(s, [image(), text("and"), image(photo("photo-20x9.png")), text("differ?")], n=2, cache_prompt=i % 2 == 0)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for status, r in results.values():
            assert status == 200, r
            assert all((c["message"].get("reasoning_content") or "") + (c["message"]["content"] or "") == said(one) for c in r["choices"]), (r, one)


def test_results_of_tools_have_pictures():
    call = [{"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "shot", "input": {}}, {"type": "tool_use", "id": "b", "name": "shot", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": photo()}}]},
                {"type": "tool_result", "tool_use_id": "b", "content": "a text"}, text("And now?")]}]
    for model in MODELS:
        for order in (1, -1):
            call[2]["content"][:2] = call[2]["content"][:2][::order]
            status, r = server(model).post("/v1/messages", {"model": "m", "max_tokens": 4, "temperature": 0, "messages": call,
                                                           "tools": [{"name": "shot", "input_schema": {"type": "object"}}]})
            assert status == 200 and r["usage"]["input_tokens"] + r["usage"]["cache_read_input_tokens"] > ROWS[model], r


def test_what_is_no_picture_is_refused_by_its_part():
    s = server("gemma4")

    def file(name):
        return url(photo("formats/" + name))
    bad = [("http://example.com/a.png", 400, "not fetched"), ("https://127.0.0.1/a.png", 400, "not fetched"), ("file:///etc/passwd", 400, "data URL"),
           ("/etc/passwd", 400, "not a picture"), ("ftp://a", 400, "data URL"), ("data:image/png;base64,", 400, "no data"), ("", 400, "no data"),
           ("data:image/png;base64,@@@@", 400, "base64"), ("data:image/png;base64,AAAAA", 400, "base64"), ("data:text/plain;base64,AAAA", 400, "picture"),
           ("data:image/png,abc", 400, "base64"), ("AAAA", 400, "not a picture"), (file("bad-bomb.png"), 413, "60000"), (file("bad-cut.png"), 400, "ends early"),
           (file("bad-magic.png"), 400, ""), (file("bad-zero.png"), 400, "")]
    for address, code, words in bad:
        status, r = chat(s, [text("a"), {"type": "image_url", "image_url": {"url": address}}])
        assert status == code and r["error"]["param"] == "messages[0].content[1]" and words in r["error"]["message"], (address[:60], status, r)
    for part in ({"type": "image_url"}, {"type": "image_url", "image_url": {}}, {"type": "image_url", "image_url": 7}, {"type": "image", "source": {"type": "url", "url": "http://a"}},
                 {"type": "image"}, {"type": "input_image", "image_url": ["a"]}, {"type": "input_audio", "input_audio": {"data": "a"}}):
        status, r = chat(s, [part])
        assert status == 400 and r["error"]["param"].startswith("messages[0].content[0]"), (part, r)
    for part, field in (({**image(), "image_url": {**image()["image_url"], "detail": "ultra"}}, ".image_url.detail"), ({"type": "input_image", "image_url": url(photo()), "detail": 7}, ".detail"),
                        ({"type": "image", "source": {"type": "base64", "data": photo()}, "transformations": {"oversized_image": "error"}}, ".transformations.oversized_image")):
        status, r = chat(s, [part])
        assert status == 400 and r["error"]["param"] == "messages[0].content[0]" + field, r
    status, r = chat(s, [{**image(), "image_url": {**image()["image_url"], "detail": "high"}}])
    assert status == 200, r
    status, r = chat(s, [image()] * 65)
    assert status == 400 and "64" in r["error"]["message"], r
    status, r = chat(s, [image()] * 40)
    assert status == 400 and "context" in r["error"]["message"], r
    for images in ([photo()], photo()):
        status, r = s.post("/api/generate", {"model": "m", "prompt": "a", "raw": True, "images": images})
        assert status == 400, r
    status, r = s.post("/api/chat", {"model": "m", "images": [photo()], "messages": [{"role": "user", "content": "a"}]})
    assert status == 400 and "images" in r["error"], r
    status, r = chat(s, [image(thin(16384))])
    assert status == 400 and "long and thin" in r["error"]["message"], r
    status, r = s.post("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "a", "images": ["@"]}]})
    assert status == 400 and "messages[0].images[0]" in r["error"], r
    # It goes on, and what a user writes is text.
    status, r = chat(s, "a <__media__> b")
    assert status == 200, r


def test_remote_pictures_are_fetched_from_public_addresses_alone():
    """What is fetched is in test_fetch.c; here no address that could be reached is one that may be."""
    asked, listening = [], socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def listen():
        while True:
            try:
                asked.append(listening.accept())
            except OSError:
                return
    threading.Thread(target=listen, daemon=True).start()
    s = Server(DATA + "gemma4.gguf", "--image-urls")
    try:
        addresses = ["http://%s:%d/a.png" % (host, port) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1", "2130706433", "[::ffff:127.0.0.1]")]
        for address in addresses + ["http://10.0.0.1/", "https://192.168.1.1/a.png", "http://169.254.169.254/latest/meta-data/", "HTTP://172.16.0.1/"]:
            for path, part in (("/v1/chat/completions", {"type": "image_url", "image_url": {"url": address}}), ("/v1/messages", {"type": "image", "source": {"type": "url", "url": address}})):
                status, r = s.post(path, {"max_tokens": 2, "messages": [{"role": "user", "content": [text("a"), part]}]})
                assert status == 400 and "messages[0].content[1]" in r["error"]["message"] and "private network" in r["error"]["message"], (address, status, r)
        for address in ("file:///etc/passwd", "ftp://example.com/a.png", "gopher://127.0.0.1/", "http://", "http://user:word@example.com/a.png", "http://nowhere.invalid/a.png"):
            status, r = chat(s, [text("a"), {"type": "image_url", "image_url": {"url": address}}])
            assert status == 400 and r["error"]["param"] == "messages[0].content[1]", (address, status, r)
        status, r = s.post("/v1/messages", {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}]}]})
        assert status == 400 and "http" in r["error"]["message"], r
        status, r = s.post("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [addresses[0]]}, "n_predict": 2})
        assert status == 400 and r["error"]["param"] == "prompt.multimodal_data[0]" and "not fetched here" in r["error"]["message"], r
        status, r = s.post("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "a", "images": [addresses[0]]}]})
        assert status == 400 and "private network" in r["error"], r
        status, r = chat(s, [text("a"), image()])
        assert status == 200, r
    finally:
        s.stop()
        listening.close()
    assert asked == [], asked


def test_padding_and_both_alphabets_are_read():
    s = server("qwen35moe")
    data = photo()
    status, want = chat(s, [image(data)])
    for form in (data.rstrip("="), data.replace("+", "-").replace("/", "_"), data.replace("+", "-").replace("/", "_").rstrip("=")):
        status, r = chat(s, [image(form)])
        assert status == 200 and said(r) == said(want), r


def test_the_server_says_whether_it_reads_pictures():
    s = server("qwen3vlmoe")
    assert s.ask("GET", "/props")[1]["modalities"]["vision"] is True
    assert "multimodal" in s.ask("GET", "/v1/models")[1]["data"][0]["capabilities"]
    assert "vision" in s.post("/api/show", {"model": "qwen3vlmoe"})[1]["capabilities"]
    blind = Server(DATA + "qwen3vlmoe.gguf", "--mmproj", "none")
    try:
        assert blind.ask("GET", "/props")[1]["modalities"]["vision"] is False
        assert "multimodal" not in blind.ask("GET", "/v1/models")[1]["data"][0]["capabilities"]
        status, r = chat(blind, [text("a"), image()])
        assert status == 400 and r["error"]["param"] == "messages[0].content[1]" and "image input is not supported" in r["error"]["message"], r
        status, r = blind.post("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "a", "images": [photo()]}]})
        assert status == 400 and "not supported" in r["error"], r
        # A text gives the same answer with an encoder and without.
        assert said(chat(blind, "Tell me")[1]) == said(chat(s, "Tell me")[1])
    finally:
        blind.stop()


def test_models_of_a_directory_have_the_encoders_beside_them():
    s = Server("--models-dir", DATA, "--models-max", "2")
    try:
        listed = {m["id"]: "multimodal" in m["capabilities"] for m in s.ask("GET", "/v1/models")[1]["data"]}
        assert listed == {model: True for model in MODELS}, listed
        status, r = chat(s, [image(), text("What?")], model="gemma4")
        assert status == 200 and said(r) == said(chat(server("gemma4"), [image(), text("What?")])[1]), r
    finally:
        s.stop()


def test_a_model_that_cannot_be_opened_has_no_encoder():
    import shutil
    import tempfile
    with tempfile.TemporaryDirectory(prefix="moraine-pictures-") as folder:
        shutil.copy(DATA + "qwen3vlmoe.mmproj.gguf", os.path.join(folder, "mmproj-F16.gguf"))
        shutil.copy(DATA + "qwen3vlmoe.gguf", os.path.join(folder, "whole.gguf"))
        with open(DATA + "qwen3vlmoe.gguf", "rb") as whole, open(os.path.join(folder, "cut.gguf"), "wb") as cut:
            cut.write(whole.read(3000))
        s = Server("--models-dir", folder)
        try:
            listed = {m["id"]: "multimodal" in m["capabilities"] for m in s.ask("GET", "/v1/models")[1]["data"]}
            assert listed == {"whole": True, "cut": False}, listed
        finally:
            s.stop()
        for options in ([], ["--image", DATA + "photo-61x37.png"]):
            ended = subprocess.run([PROGRAM, "run", os.path.join(folder, "cut.gguf"), "-p", "a", "--device", "none", *options], capture_output=True, text=True)
            assert ended.returncode == 1 and "ends inside its header" in ended.stderr and ended.stderr.count("\n") == 1, ended


def test_tokens_of_pictures_are_counted():
    s = server("gemma4")
    status, r = s.post("/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": photo()}}, text("a")]}]})
    status, said_so = chat(s, [image(), text("a")])
    assert r["input_tokens"] == said_so["usage"]["prompt_tokens"], (r, said_so)


def test_prefixes_with_pictures_survive_a_restart():
    import shutil
    import tempfile
    folder = tempfile.mkdtemp(prefix="moraine-pictures-")
    try:
        for model in MODELS:
            answers = []
            for _ in range(2):
                s = Server(DATA + model + ".gguf", "--cache-dir", folder)
                status, r = chat(s, [text("a" * 40), image(), text("what is it" * 3)])
                answers.append(r)
                time.sleep(0.3)
                s.stop()
            assert said(answers[0]) == said(answers[1])
            assert answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, answers[1]
    finally:
        shutil.rmtree(folder)


def test_a_slot_with_pictures_needs_the_encoder():
    import shutil
    import tempfile
    folder = tempfile.mkdtemp(prefix="moraine-slots-")
    options = ("--slot-save-path", folder, "--parallel", "1")
    try:
        s = Server(DATA + "gemma4.gguf", *options)
        chat(s, [text("a"), image()])
        assert s.post("/slots/0?action=save", {"filename": "p"})[1]["n_saved"] > 3
        s.stop()
        s = Server(DATA + "gemma4.gguf", *options, "--mmproj", "none")
        status, r = s.post("/slots/0?action=restore", {"filename": "p"})
        assert status == 400 and "mmproj" in r["error"]["message"], r
        assert chat(s, "Tell me")[0] == 200
        s.stop()
    finally:
        shutil.rmtree(folder)


try:
    code = tap.run(tap.named(globals()), sys.argv[2:])
finally:
    for one in servers.values():
        one.stop()
sys.exit(code)
