#!/usr/bin/env python3
"""test_server.py BUILD [NAME ...]: moraine serve as programs and operators meet it, with the built-in model.

Speaks TAP, as the other test programs do. Python's own library alone: what the official clients expect is tested elsewhere.
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import tap

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PROGRAM = os.path.abspath(os.path.join(sys.argv[1], "moraine"))
PEBBLE = os.path.abspath("models/pebble.gguf")
FOLDER = tempfile.mkdtemp(prefix="moraine-server-")
SLOW = 4 if os.environ.get("MO_SLOW") else 1  # builds with sanitizers

environment = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "MORAINE_", "LISTEN_", "NOTIFY_"))}
environment["XDG_CACHE_HOME"] = os.path.join(FOLDER, "cache")
environment["XDG_DATA_HOME"] = os.path.join(FOLDER, "data")  # no pulled models


def path(name):
    return os.path.join(FOLDER, name)


class Server:
    """A server that has said where it listens, and (wait) that it is ready."""

    def __init__(self, *arguments, wait=True, env=None, host=None, **kw):
        where = ["--host", host] if host else ["--port", "0"]
        self.process = subprocess.Popen([PROGRAM, "serve", *where, "--profile", "off", *arguments], stderr=subprocess.PIPE,
                                        env={**environment, **(env or {})}, text=True, **kw)
        self.lines, self.port, self.ended = [], None, False
        self.ready = threading.Event()
        self.listening = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        self.listening.wait(20 * SLOW)
        if wait:
            self.ready.wait(60 * SLOW)
            assert not self.ended, "".join(self.lines)

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening.*?https?://[^ \"]*:(\d+)", line)
            if found and self.port is None:
                self.port = int(found.group(1))
            if "listening" in line:
                self.listening.set()
            if re.search(r'(^\S+ info ready )|("event":"ready")', line):
                self.ready.set()
        self.ended = True
        self.listening.set()
        self.ready.set()

    def log(self):
        return "".join(self.lines)

    def ask(self, method, where, body=None, headers=None, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        try:
            connection.request(method, where, json.dumps(body) if isinstance(body, (dict, list)) else body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def get(self, where, status=200, **kw):
        code, text, _ = self.ask("GET", where, **kw)
        assert code == status, (where, code, text)
        return json.loads(text)

    def post(self, where, body, status=200, **kw):
        code, text, _ = self.ask("POST", where, body, **kw)
        assert code == status, (where, code, text)
        return json.loads(text)

    def stop(self, number=signal.SIGTERM, code=0):
        self.process.send_signal(number)
        ended = self.process.wait(30 * SLOW)
        self.thread.join(5)
        assert ended == code, (ended, self.log())
        return self.log()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def until(condition, seconds=60):
    end = time.monotonic() + seconds * SLOW
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def models_folder(*names):
    folder = tempfile.mkdtemp(dir=FOLDER)
    for name in names:
        os.symlink(PEBBLE, os.path.join(folder, name))
    return folder


# ---- Start and stop


def starts_and_ends_with_success():
    with Server() as s:
        assert s.get("/health") == {"status": "ok"}
        assert re.search(r"ready at=http://127.0.0.1:\d+ model=pebble parallel=4 ctx=2048 ctx_size=8192", s.log()), s.log()
        log = s.stop()
        assert "stopping signal=SIGTERM" in log and "stopped" in log
    with Server() as s:
        s.stop(signal.SIGINT)


def a_port_that_is_taken_is_told():
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    ended = subprocess.run([PROGRAM, "serve", "--port", str(taken.getsockname()[1])], env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1 and "cannot listen on" in ended.stderr, ended.stderr


def options_that_make_no_sense_are_told():
    for words, said in ((["--log-format", "xml"], "text or json"), (["--ssl-key-file", "k"], "must be given together"),
                        (["--api-prefix", "llm"], "slash"), (["--parallel", "0"], "from 1 to 256"),
                        (["nothing.gguf"], "nothing.gguf"), (["--api-key", ","], "empty"), (["--models-file", "/nothing"], "/nothing"),
                        (["--chat-template", "{% if %}"], "--chat-template: "), (["--chat-template", "chatlm"], "not the name of a chat format; the names are harmony, "), (["--models-dir", "/nothing"], "/nothing"),
                        (["--models-dir", PEBBLE], "--models-dir"), (["--cors-origins", "foo"], "not an origin"),
                        (["--cors-origins", "*,https://chat.example/path"], "not an origin"), (["--alias", ",,"], "empty name"), (["-a", "a,"], "empty name"),
                        ([PEBBLE, PEBBLE], "two models are named pebble"), (["--allow-hosts", "http://box"], "not a host name"), (["--allow-hosts", "box:80"], "not a host name"),
                        (["--warm", "tests/test_server.py"], "not a JSON object")):
        ended = subprocess.run([PROGRAM, "serve", "--port", "0", *words], env=environment, capture_output=True, text=True, timeout=30)
        assert ended.returncode in (1, 2) and said in ended.stderr, (words, ended.stderr)
        assert ended.returncode == 1 or words != ["nothing.gguf"], words  # what only the files show is a failure


def a_model_that_cannot_be_loaded_ends_it():
    with open(path("broken.gguf"), "wb") as f:
        f.write(b"GGUF" + bytes(100))
    ended = subprocess.run([PROGRAM, "serve", "--port", "0", path("broken.gguf")], env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode != 0 and "broken.gguf" in ended.stderr, ended.stderr


def notes_of_the_library_are_in_the_log():
    with Server("--device", "none", "--ram", "32M", "--ctx", "256", "--batch", "32", "--parallel", "1") as s:
        assert "info disk: " in s.log(), s.log()


def transfers_are_in_the_log_when_asked_for():
    """LLAMA_POSTFETCH_DEBUG prints every transfer."""
    options = ("--device", "sim", "--cpu-moe", "--ctx", "256", "--parallel", "1")
    for debug in "0", "1":
        with Server(*options, env={"LLAMA_POSTFETCH_DEBUG": debug, "LLAMA_POSTFETCH_MODE": "down"}) as s:
            s.post("/completion", generation(8, prompt="Once upon a time", stream=False))
            lines = re.findall(r"postfetch: layer \d+: (.*)", s.log())
        assert bool(lines) == (debug == "1"), s.log()
    for form in (r"transferring \d+ of \d+ missing experts, ", r"expert \d+: down, \d+ bytes at offset \d+", r"transfer [0-9.]+ ms, total [0-9.]+ ms, overlap "):
        assert any(re.match(form, line) for line in lines), (form, lines)


def options_come_from_the_environment():
    with Server(env={"LLAMA_ARG_N_PARALLEL": "2", "LLAMA_ARG_CTX_SIZE": "2048", "LLAMA_API_KEY": "k", "LLAMA_ARG_ALIAS": "stone,rock",
                     "LLAMA_ARG_NOTHING": "1"}) as s:
        assert "parallel=2 ctx=1024 ctx_size=2048" in s.log(), s.log()
        assert "LLAMA_ARG_NOTHING has no effect here" in s.log()
        s.get("/v1/models", status=401)
        assert s.get("/v1/models", headers={"Authorization": "Bearer k"})["data"][0]["aliases"] == ["rock", "pebble"]
    with Server(env={"LLAMA_ARG_ENDPOINT_SLOTS": "0", "LLAMA_ARG_ENDPOINT_METRICS": "false", "LLAMA_ARG_TIMEOUT": "600", "LLAMA_ARG_THINK": "none",
                     "LLAMA_ARG_THINK_BUDGET": "8", "LLAMA_CHAT_TEMPLATE_KWARGS": '{"mood": "glad"}', "LLAMA_ARG_CORS_ORIGINS": "https://a.example,*",
                     "LLAMA_ARG_ALLOW_HOSTS": "box.example,fe80::1"}) as s:
        assert "has no effect here" not in s.log(), s.log()
        s.get("/slots", status=501)
        s.get("/metrics", status=501)
    with Server("-np", "3", "-c", "3000", env={"LLAMA_ARG_N_PARALLEL": "2"}) as s:
        assert "parallel=3 ctx=1000 ctx_size=3000" in s.log(), s.log()
    with Server("-ngl", "99", "-fa", "on", "-np", "2", "--no-mmap") as s:
        assert "-ngl has no effect: layers and experts are placed on the GPU automatically" in s.log() and "parallel=2 " in s.log(), s.log()
    with Server("--ctx", "4096", "--parallel", "1") as s:
        assert "4096 tokens, more than the training context of 2048" in s.log(), s.log()
    with Server("--ctx", "512", "-m", PEBBLE, "--no-webui", "--jinja") as s:
        assert "training context" not in s.log(), s.log()
        assert "parallel=4 ctx=512 ctx_size=2048" in s.log(), s.log()
        status, body, _ = s.ask("GET", "/", headers={"Accept": "text/html"})
        assert status == 200 and "Ollama is running" in body, body
        s.get("/page/index.html", status=404)


# ---- Status


def llama_endpoints_are_there():
    with Server() as s:
        models = s.get("/v1/models")
        assert models["models"][0]["capabilities"] == ["completion"] and models["models"][0]["model"] == "pebble:latest", models["models"]
        assert models["object"] == "list" and models["data"][0]["id"] == "pebble"
        meta = models["data"][0]["meta"]
        assert meta["n_ctx"] == 2048 and meta["n_ctx_train"] == 2048 and meta["n_vocab"] == 4096
        assert models["data"][0]["max_model_len"] == 2048
        assert models["models"][0]["name"] == "pebble:latest"
        assert s.get("/models/pebble")["id"] == "pebble" and s.get("/v1/models/pebble%3Alatest")["id"] == "pebble"
        assert s.get("/v1/models/other", status=404)["error"]["code"] == "model_not_found"
        props = s.get("/props")
        assert props["default_generation_settings"]["n_ctx"] == 2048 and props["total_slots"] == 4
        assert "message" in props["chat_template"] and props["model_path"] == "pebble.gguf"
        assert s.post("/props", {}, status=501)["error"]["type"] == "not_supported_error"
        slots = s.get("/slots")
        assert len(slots) == 4 and slots[0]["n_ctx"] == 2048 and slots[0]["is_processing"] is False
        code, text, headers = s.ask("GET", "/metrics")
        assert code == 200 and headers["Content-Type"] == "text/plain; version=0.0.4"
        for name in ("llamacpp:prompt_tokens_total 0", "llamacpp:requests_deferred 0", 'moraine_time_to_first_token_seconds_bucket{le="+Inf"} 0',
                     'moraine_expert_uses_total{model="pebble",tier="ram"}', 'moraine_wire_bytes_total{model="pebble",wire="disk"}'):
            assert name in text, (name, text)
        for line in text.splitlines():  # every line can be read
            assert line.startswith("# ") or re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{.*\})? [-+0-9.eInf]+", line), line
        code, text, _ = s.ask("GET", "/")
        assert code == 200 and text == "Ollama is running"
        assert s.ask("HEAD", "/")[0] == 200
        assert "directory" in s.post("/slots/0?action=save", {"filename": "x"}, status=501)["error"]["message"]
    with Server("--no-slots", "--no-metrics", "--slot-save-path", FOLDER) as s:
        s.get("/slots", status=501)
        s.get("/metrics", status=501)
        s.post("/completion", generation(4, stream=False, prompt="The fox"))  # who may not see the list saves all the same
        assert s.post("/slots/0?action=save", {"filename": "unlisted"})["n_saved"] > 3
        assert s.post("/slots/0?action=erase", None)["n_erased"] > 3
    with Server("--no-slots") as s:
        s.post("/slots/0?action=save", {"filename": "x"}, status=501)


def slots_can_be_saved_and_restored():
    folder = tempfile.mkdtemp(dir=FOLDER)
    talk = "Once upon a time there was a fox who went into the wood and met a hen."
    with Server("--slot-save-path", folder, "--parallel", "1", "--isa", "scalar") as s:
        assert "is empty" in s.post("/slots/0?action=save", {"filename": "a"}, status=400)["error"]["message"]
        first = s.post("/completion", generation(20, stream=False, prompt=talk))
        saved = s.post("/slots/0?action=save", {"filename": "talk.bin"})
        assert saved["id_slot"] == 0 and saved["filename"] == "talk.bin" and saved["n_saved"] > 30 and saved["timings"]["save_ms"] > 0, saved
        assert saved["n_written"] == os.path.getsize(os.path.join(folder, "talk.bin"))
        assert s.post("/slots/0?action=erase", {}) == {"id_slot": 0, "n_erased": saved["n_saved"]}
        assert s.post("/slots/0?action=erase", {})["n_erased"] == 0
        for name in ("../x", "/etc/x", ".hidden", "", "a/b", "x" * 300, None):
            assert s.post("/slots/0?action=save", {"filename": name}, status=400)["error"]["param"] == "filename", name
        assert os.listdir(folder) == ["talk.bin"]
        s.post("/slots/7?action=restore", {"filename": "talk.bin"}, status=400)
        s.post("/slots/x?action=restore", {"filename": "talk.bin"}, status=400)
        assert s.post("/slots/0?action=dance", {"filename": "talk.bin"}, status=400)["error"]["param"] == "action"
        s.post("/slots/0?action=restore", {"filename": "nothing"}, status=400)
        connection = raw_post(s, "/completion", generation(2000, prompt="A hen"))
        assert until(lambda: s.get("/slots")[0]["is_processing"])
        assert "busy" in s.post("/slots/0?action=restore", {"filename": "talk.bin"}, status=503)["error"]["message"]
        connection.close()
        assert until(lambda: busy(s) == 0)
    with Server("--slot-save-path", folder, "--parallel", "1", "--isa", "scalar") as s:
        restored = s.post("/slots/0?action=restore", {"filename": "talk.bin"})
        assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] == saved["n_written"] and restored["timings"]["restore_ms"] > 0, restored
        again = s.post("/completion", generation(20, stream=False, prompt=talk))
        assert again["content"] == first["content"] and again["timings"]["cache_n"] > 10, again["timings"]
        with open(os.path.join(folder, "talk.bin"), "r+b") as f:
            f.seek(-100, 2)
            f.write(b"damage")
        assert "damaged" in s.post("/slots/0?action=restore", {"filename": "talk.bin"}, status=400)["error"]["message"]
        s.post("/completion", generation(4, stream=False))


def ollama_endpoints_are_there():
    with Server() as s:
        assert s.get("/api/version")["version"].count(".") == 2
        tag = s.get("/api/tags")["models"][0]
        assert tag["name"] == "pebble:latest" and tag["size"] == os.path.getsize(PEBBLE) and len(tag["digest"]) == 64
        assert tag["details"]["format"] == "gguf" and tag["details"]["parameter_size"].endswith("M")
        ps = s.get("/api/ps")["models"][0]
        assert ps["context_length"] == 2048 and "expires_at" in ps
        show = s.post("/api/show", {"model": "pebble"})
        architecture = show["model_info"]["general.architecture"]
        assert show["model_info"][architecture + ".context_length"] == 2048
        assert "completion" in show["capabilities"] and "message" in show["template"]
        assert show["model_info"]["tokenizer.ggml.tokens"] == []
        assert len(s.post("/api/show", {"model": "pebble:latest", "verbose": True})["model_info"]["tokenizer.ggml.tokens"]) == 4096
        assert s.post("/api/show", {"model": "x"}, status=404) == {"error": "model 'x' not found"}
        assert s.post("/api/pull", {"model": "pebble"}) == {"status": "success"}
        assert "error" in s.post("/api/pull", {"model": "x"}, status=501)
        assert "error" in s.post("/api/create", {}, status=501)


def our_endpoints_are_there():
    with Server() as s:
        status = s.get("/v1/moraine/status")
        model = status["models"][0]
        assert model["id"] == "pebble" and model["state"] == "loaded" and model["engine"]["parallel"] == 4
        assert model["tiers"]["mode"] == "resident" and model["tiers"]["planned_bytes"] > 0
        assert model["now"]["predicted_tokens_s"] == 0 and [w["name"] for w in model["wires"]] == ["disk", "ram"]
        refusal = s.get("/v1/moraine/plan?ram=1M", status=400)["error"]["message"]
        assert refusal.startswith("pebble.gguf: ") and "--ram" in refusal and "`" not in refusal, refusal
        assert s.get("/v1/moraine/plan?ram=much", status=400)["error"]["param"] == "ram"
        experts = s.get("/v1/moraine/experts")
        assert len(experts["layers"]) == 7 and experts["layers"][0]["places"] == "1" * 64 and len(experts["layers"][0]["picks"]) == 64
        assert experts["layers"][0]["expert_bytes"] * 7 * 64 == model["tiers"]["expert_bytes"] and len(experts["layers"][0]["hits"]) == 64
        assert "error" in s.post("/v1/moraine/cancel", {"id": "chatcmpl-none"}, status=404)
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
        connection.request("GET", "/v1/moraine/events")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream"
        line = answer.readline()
        assert line.startswith(b"data: ") and json.loads(line[6:])["models"][0]["id"] == "pebble"
        connection.close()


def plans_are_those_of_the_command():
    read = lambda text: json.loads(text, parse_float=lambda digits: "%.12g" % float(digits))
    with Server("--device", "none") as s:
        for query, arguments in (("ram=60M&ctx=1024&batch=256", ["--ram", "60M", "--ctx", "1024", "--batch", "256"]),
                                 ("ram=1G&ctx=2048&batch=512", ["--ram", "1G", "--ctx", "2048", "--batch", "512"])):
            told = read(s.ask("GET", "/v1/moraine/plan?parallel=1&" + query)[1])
            command = subprocess.run([PROGRAM, "plan", "models/pebble.gguf", "--json", "--device", "none", *arguments], env=environment,
                                     capture_output=True, check=True)
            planned = read(command.stdout)
            for name in ("model", "ceiling", "available_bytes", "kv"):
                planned.pop(name)
            assert {name: told[name] for name in planned} == planned, (told, planned)
        one, four = (s.get("/v1/moraine/plan?ram=1G&parallel=%d" % n) for n in (1, 4))
        assert four["ram_bytes"]["kv"] > 3 * one["ram_bytes"]["kv"] and four["parallel"] == 4, (one, four)
        mine, ceiling = s.get("/v1/moraine/plan"), s.get("/v1/moraine/status")["models"][0]["tiers"]["ceiling_bytes"]
        assert mine["context"] == 2048 and mine["ceiling_bytes"] == ceiling, (mine, ceiling)


def refused_plans_name_what_is_enough():
    with Server("--device", "sim", "--vram", "24M", "--ctx", "2048", "--cache-ram", "0") as s:
        mine, running = s.get("/v1/moraine/plan"), s.get("/v1/moraine/status")["models"][0]
        assert mine["used_bytes"] == running["tiers"]["planned_bytes"], (mine, running)
        assert mine["device"]["ceiling_bytes"] == running["device"]["limit_bytes"], (mine, running)
        for name in ("ram", "vram"):  # what the running model holds is no part of it
            message = s.get("/v1/moraine/plan?%s=1M" % name, status=400)["error"]["message"]
            enough = int(re.search(r"\((\d+) bytes\) are needed, but the ceiling is 1.00 MiB", message).group(1))
            s.get("/v1/moraine/plan?%s=%d" % (name, enough))
            s.get("/v1/moraine/plan?%s=%d" % (name, enough - 1), status=400)


def listen(server, where, until):
    """The events of a stream, {name or "": [data]}, until the condition holds."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", where)
    answer, heard, name = connection.getresponse(), {}, ""
    while not until(heard):
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            heard.setdefault(name, []).append(json.loads(line[6:]))
            name = ""
    connection.close()
    return heard


def events_tell_of_experts_and_of_the_log():
    with Server("--ram", "52M", "--log-requests") as s:
        def heard_enough(heard):
            if len(heard.get("experts", [])) == 1 and not asked:
                asked.append(s.post("/completion", {"prompt": "Once upon a time", "n_predict": 40, "ignore_eos": True}))
            lines = [line["text"] for event in heard.get("log", []) for line in event["lines"]]
            used = sum(int(c, 36) for event in heard.get("experts", []) for layer in event["models"][0]["layers"] for c in layer["used"])
            return asked and used > 0 and any(" request " in line for line in lines)
        asked = []
        heard = listen(s, "/v1/moraine/events?experts=1&log=1", heard_enough)
        first, last = heard["experts"][0]["models"][0]["layers"], heard["experts"][-1]["models"][0]["layers"]
        assert len(first) == 7 and all(len(layer[name]) == 64 for layer in first for name in ("places", "used", "missed"))
        assert set(first[0]["used"]) == {"0"}
        assert {c for event in heard["experts"] for layer in event["models"][0]["layers"] for c in layer["places"]} == {"0", "1"}
        assert any(set(layer["missed"]) != {"0"} for event in heard["experts"] for layer in event["models"][0]["layers"])
        numbers = [line["number"] for event in heard["log"] for line in event["lines"]]
        assert numbers == list(range(1, len(numbers) + 1)) and "listening" in heard["log"][0]["lines"][0]["text"]
        assert last is not first and "models" in heard[""][0]
        wires = {w["name"]: w for w in s.get("/v1/moraine/status")["models"][0]["wires"]}
        assert until(lambda: {w["name"]: w["bytes"] for w in s.get("/v1/moraine/status")["models"][0]["wires"]}["disk"] > 0), wires
        assert set(listen(s, "/v1/moraine/events", lambda heard: heard)) == {""}


def sessions_can_be_seen_and_forgotten():
    folder = tempfile.mkdtemp(dir=FOLDER)
    long = "Once upon a time there was a fox who went into the wood and met a hen, and number %d of them went home together."
    with Server("--cache-dir", folder, "--parallel", "1") as s:
        assert s.get("/v1/moraine/sessions")["sessions"] == []
        for number in range(3):
            s.post("/completion", generation(30, stream=False, prompt=long % number))
        on_disk = lambda: [e for e in s.get("/v1/moraine/sessions")["sessions"] if "disk" in e["where"]]
        assert until(lambda: len(on_disk()) == 3), s.get("/v1/moraine/sessions")
        kept = s.get("/v1/moraine/sessions")
        assert [e["where"] for e in kept["sessions"]] == [["sequence"]] + [["ram", "disk"]] * 3, kept
        assert all(e["tokens"] > 30 for e in kept["sessions"]) and kept["bytes"] > 0 and kept["disk_bytes"] > 0
        oldest = kept["sessions"][1]
        assert 0 < oldest["bytes"] <= oldest["all_bytes"] and oldest["disk_bytes"] > 0 and oldest["idle_s"] >= kept["sessions"][3]["idle_s"]
        assert s.get("/v1/moraine/sessions/" + oldest["id"])["tokens"] == oldest["tokens"]
        assert "fox" not in json.dumps(kept)
        usage = lambda number: s.post("/v1/completions", {"prompt": long % number, "max_tokens": 1})["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert usage(0) > 20
        assert s.ask("DELETE", "/v1/moraine/sessions/" + oldest["id"])[1] == '{"dropped":1}'
        s.get("/v1/moraine/sessions/" + oldest["id"], status=404)
        assert s.ask("DELETE", "/v1/moraine/sessions/prefix-0")[0] == 404 and s.ask("DELETE", "/v1/moraine/sessions/x")[0] == 404
        assert s.ask("DELETE", "/v1/moraine/sessions")[0] == 200
        assert s.get("/v1/moraine/sessions")["sessions"] == [] and os.listdir(folder) == []
        assert usage(1) == 0
        connection = raw_post(s, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1000, "stream": True,
                                                          "ignore_eos": True})
        assert until(lambda: s.get("/v1/moraine/sessions")["answers"])
        running = s.get("/v1/moraine/sessions")
        assert running["answers"][0].startswith("chatcmpl-") and running["jobs"][0]["state"] in ("queued", "prompt", "generating"), running
        assert s.post("/v1/moraine/cancel", {"id": running["answers"][0]})["cancelled"]
        connection.close()


def sessions_can_be_pinned_and_named():
    long = "Once upon a time there was a fox number %d who went into the wood and met a hen, and all of them went home together after the rain."
    with Server("--parallel", "1", "--cache-ram", "1") as s:
        sessions = lambda: s.get("/v1/moraine/sessions")["sessions"]
        s.post("/completion", generation(60, stream=False, prompt=long % 0))
        pinned = s.post("/v1/moraine/sessions/sequence-1", {"pin": True, "name": "the first fox"})
        assert pinned["id"].startswith("prefix-") and pinned["pinned"] is True and pinned["name"] == "the first fox"
        for number in range(1, 8):  # more than a MiB holds
            s.post("/completion", generation(60, stream=False, prompt=long % number))
        kept = {e["id"]: e for e in sessions() if "ram" in e["where"]}
        assert pinned["id"] in kept and len(kept) < 7, kept
        cached = s.post("/v1/completions", {"prompt": long % 0, "max_tokens": 1})["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 20
        assert s.post("/v1/moraine/sessions/" + pinned["id"], {"pin": False, "name": ""})["pinned"] is False
        s.post("/v1/moraine/sessions/prefix-999", {"pin": True}, status=404)
        for wrong in ({}, [], {"pin": 1}, {"name": "x" * 64}, {"name": 7}):
            s.post("/v1/moraine/sessions/" + pinned["id"], wrong, status=400)


def responses_are_found_after_a_restart_by_their_owner():
    folder = tempfile.mkdtemp(dir=FOLDER)
    keys = path("two-keys")
    with open(keys, "w") as f:
        f.write("one\ntwo\n")
    arguments = ("--cache-dir", folder, "--api-key-file", keys)
    mine, other = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
    file = lambda response: os.path.join(folder, "responses", response["id"] + ".json")
    with Server(*arguments) as s:
        first = s.post("/v1/responses", {"input": "Tell me of a\0 fox.", "metadata": {"a": "b\0c"}, "max_output_tokens": 8, "temperature": 0}, headers=mine)
        last = s.post("/v1/responses", {"input": "And of a hen.", "previous_response_id": first["id"], "max_output_tokens": 8}, headers=mine)
        assert s.post("/v1/responses", {"input": "x", "previous_response_id": first["id"]}, status=400, headers=other)
        assert until(lambda: os.path.exists(file(last)))
    with Server(*arguments) as s:
        assert s.get("/v1/responses/" + first["id"], headers=mine) == first
        s.get("/v1/responses/" + first["id"], status=404, headers=other)
        assert s.ask("DELETE", "/v1/responses/" + first["id"], headers=other)[0] == 404
        assert s.ask("DELETE", "/v1/responses/" + first["id"], headers=mine)[0] == 200
        s.get("/v1/responses/" + first["id"], status=404, headers=mine)
        s.post("/v1/responses", {"input": "On.", "previous_response_id": last["id"], "max_output_tokens": 4}, headers=mine)
        assert len(s.get("/v1/responses/%s/input_items" % last["id"], headers=mine)["data"]) == 3
        with open(file(last), "w") as f:
            f.write('{"owner": "first", "respon')
        kept = s.post("/v1/responses", {"input": "Of a cat.", "max_output_tokens": 4}, headers=mine)
        assert until(lambda: os.path.exists(file(kept)))
    with open(keys, "w") as f:
        f.write("two\nthree\none\n")
    with Server(*arguments) as s:  # the keys have other places now
        s.get("/v1/responses/" + last["id"], status=404, headers=mine)
        s.get("/v1/responses/" + kept["id"], status=404, headers=other)
        assert s.get("/v1/responses/" + kept["id"], headers=mine) == kept


def make_profile():
    """Which experts eight tokens chose."""
    if not os.path.exists(path("hot.json")):
        subprocess.run([PROGRAM, "run", PEBBLE, "-q", "-p", "Once", "-n", "8", "--device", "none", "--profile", "off", "--moe-layer-perf-out", path("hot.json")],
                       env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path("hot.json")


def profiles_can_be_read_and_applied():
    with Server() as s:
        profile = s.get("/moe-layer-perf")
        assert profile["enabled"] is True and profile["schema"].startswith("llama.cpp.moe_layer")
        assert s.post("/moe-layer-perf", {"mode": "off"})["enabled"] is False
        assert s.post("/moe-layer-perf", {"mode": "update"})["mode"] == "update"
        assert "mode" in s.post("/moe-layer-perf", {"mode": "most"}, status=400)["error"]["message"]
        assert "error" in s.post("/moe-hot-cache", {"layers": 1}, status=400)
        s.post("/moe-hot-cache", "no json", status=400)
    with Server(PEBBLE, "--device", "sim", "--cpu-moe", "--moe-hot-cache", make_profile(), "--moe-hot-cache-max-mib", "2") as s:
        s.post("/completion", generation(24, stream=False, prompt="The old house by the sea"))
        first, second = s.get("/moe-hot-cache"), s.get("/moe-hot-cache")  # to look changes nothing
        assert first == second and first["active"] and first["exchanged"] == 0 and first["hot_experts"] > 0, (first, second)
        counts = json.dumps(s.get("/moe-layer-perf"), separators=(",", ":"))
        applied = json.loads(s.ask("GET", "/moe-hot-cache", counts)[1])  # with a body it applies, as the fork's
        assert applied["exchanged"] > 0 and s.get("/moe-hot-cache")["exchanged"] == applied["exchanged"], applied


# ---- Who may ask


def keys_are_read_again():
    with open(path("keys"), "w") as f:
        f.write("# of the house\nsecret-one name=ada\n")
    with Server("--api-key-file", path("keys"), "--log-requests") as s:
        s.get("/v1/models", status=401)
        s.get("/v1/models", headers={"x-api-key": "secret-one"})
        s.get("/health")
        with open(path("keys"), "w") as f:
            f.write("secret-two\n")
        s.process.send_signal(signal.SIGHUP)
        assert until(lambda: "reloaded" in s.log()), s.log()
        s.get("/v1/models", status=401, headers={"x-api-key": "secret-one"})
        s.get("/v1/models", headers={"Authorization": "Bearer secret-two"})
        os.unlink(path("keys"))
        s.process.send_signal(signal.SIGHUP)
        assert until(lambda: "reload_failed" in s.log()), s.log()
        s.get("/v1/models", headers={"Authorization": "Bearer secret-two"})
        log = s.stop()
        assert "secret" not in log and "key=ada" in log, log


def an_open_server_warns():
    with Server(host="0.0.0.0", wait=False) as s:
        assert until(lambda: "requires no API key" in s.log()), s.log()
        assert until(lambda: "listening" in s.log()), s.log()


def a_prefix_is_before_every_path():
    with Server("--api-prefix", "/llm") as s:
        s.get("/llm/health")
        s.get("/health", status=404)
        s.get("/llmhealth", status=404)


def logs_are_lines_of_json():
    with Server("--log-format", "json", "--log-requests") as s:
        s.get("/v1/models?x=%0A%22")
        for line in s.stop().splitlines():
            if line.startswith("{"):
                entry = json.loads(line)
                assert entry["time"].endswith("Z") and "level" in entry
        assert '"event":"request"' in s.log() and '"path":"/v1/models"' in s.log()


# ---- Sockets


def a_unix_socket_serves():
    where = path("s.sock")
    with Server(host=where, wait=False) as s:
        assert until(lambda: os.path.exists(where)) and s.ready.wait(20)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(where)
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := connection.recv(65536):
            text += piece
        assert text.startswith(b"HTTP/1.1 200") and b"pebble" in text, text
        assert os.stat(where).st_mode & 0o077 == 0
        s.stop()
        assert not os.path.exists(where)


def tls_serves():
    if not shutil.which("openssl"):
        return "there is no openssl to make a certificate"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path("key.pem"), "-out", path("cert.pem"), "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    with Server("--ssl-key-file", path("key.pem"), "--ssl-cert-file", path("cert.pem")) as s:
        context = ssl.create_default_context(cafile=path("cert.pem"))
        connection = http.client.HTTPSConnection("localhost", s.port, context=context, timeout=20)
        for _ in range(2):
            connection.request("GET", "/v1/models")
            answer = connection.getresponse()
            assert answer.status == 200 and json.loads(answer.read())["data"][0]["id"] == "pebble"
        connection.close()
        assert "https://127.0.0.1" in s.log()


def systemd_is_told_and_its_sockets_taken():
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(path("notify"))
    notify.settimeout(20 * SLOW)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    port = listener.getsockname()[1]
    script = 'exec 3<&%d; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --profile off' % listener.fileno()
    process = subprocess.Popen(["bash", "-c", script, PROGRAM], env={**environment, "NOTIFY_SOCKET": path("notify")}, stderr=subprocess.PIPE,
                               pass_fds=[listener.fileno()])
    try:
        assert notify.recv(4096).startswith(b"READY=1\n")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        process.terminate()
        assert notify.recv(4096) == b"STOPPING=1\n"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


# ---- Several models


def models_of_a_directory_are_loaded_when_asked_for():
    folder = models_folder("a.gguf", "b.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf")
    with Server("--models-dir", folder) as s:
        assert [m["id"] for m in s.get("/v1/models")["data"]] == ["a", "b", "c"]
        state = lambda: {m["id"]: m["status"]["value"] for m in s.get("/v1/models")["data"]}
        assert set(state().values()) == {"unloaded"}
        assert s.post("/models/load", {"model": "a"})["success"]
        assert state()["a"] == "loaded"
        assert s.post("/models/load", {"model": "B:latest"})["success"]  # a leaves first
        assert state() == {"a": "unloaded", "b": "loaded", "c": "unloaded"}
        os.symlink(PEBBLE, os.path.join(folder, "new.gguf"))
        assert s.post("/models/load", {"model": "new"})["success"]
        s.post("/models/load", {"model": "none"}, status=404)
        assert s.post("/models/unload", {"model": "new"})["success"]
        assert until(lambda: state()["new"] == "unloaded")
        os.unlink(os.path.join(folder, "new.gguf"))
        with open(os.path.join(folder, "new.gguf"), "wb") as f:  # another one in its place
            f.write(b"no model")
        assert s.get("/v1/models/new")["meta"]["size"] == 8
        os.unlink(os.path.join(folder, "a.gguf"))
        assert "a" in s.post("/models/load", {"model": "a"}, status=404)["error"]["message"]
        s.get("/health")


def small_promises_of_llama_server_are_kept():
    talk = {"messages": [{"role": "user", "content": "Tell me about a fox who went into the wood. " * 8}]}
    with Server("--parallel", "2") as s:
        for where, field in (("/completion", "n_predict"), ("/v1/completions", "max_tokens"), ("/v1/chat/completions", "max_completion_tokens"),
                             ("/v1/messages", "max_tokens"), ("/v1/responses", "max_output_tokens")):
            body = {"input": "x", field: -5} if "responses" in where else {"prompt": "x", **talk, field: -5}
            assert field in json.dumps(s.post(where, body, status=400)), where
        begun = int(s.ask("GET", "/metrics")[2]["Process-Start-Time-Unix"])
        assert abs(begun - time.time()) < 60 * SLOW
        body = {**talk, "max_tokens": 6, "stream": True, "return_progress": True, "timings_per_token": True, "ignore_eos": True}
        text = s.ask("POST", "/v1/chat/completions", body)[1]
        events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        progress = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert progress[0]["processed"] == progress[0]["cache"] == 0 and progress[-1]["processed"] == progress[-1]["total"], progress
        counts = [e["timings"]["predicted_n"] for e in events if e.get("choices") and "content" in e["choices"][0]["delta"] and "timings" in e]
        assert counts and counts[0] >= 1 and counts == sorted(counts), counts
        timings = s.post("/completion", generation(8, stream=False))["timings"]
        assert timings["predicted_n"] == 8
        assert abs(timings["predicted_per_second"] * timings["predicted_ms"] / 1e3 - 7) < 0.1, timings
        assert all("n_prompt_tokens" not in slot and "params" not in slot for slot in s.get("/slots"))
    for words in ([PEBBLE, "--strict-model"], ["--models-dir", models_folder("a.gguf", "b.gguf")]):
        with Server(*words, wait=False) as s:
            until(lambda: s.ask("GET", "/health")[0] == 200)
            for where in ("/api/chat", "/api/generate", "/api/show"):
                assert "not found" in s.post(where, {"model": "nothing", "messages": [], "prompt": ""}, status=404)["error"], where


def an_alias_is_the_models_id():
    with Server("--alias", "gpt-5,other") as s:
        assert "model=gpt-5" in s.log(), s.log()
        model = s.get("/v1/models")["data"][0]
        assert model["id"] == "gpt-5" and model["aliases"] == ["other", "pebble"], model
        talk = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
        for name in ("gpt-5", "other", "pebble", "pebble:latest"):
            assert s.post("/v1/chat/completions", {"model": name, **talk})["model"] == "gpt-5", name
        assert s.post("/v1/messages", {"model": "x", **talk})["model"] == "gpt-5"
        assert s.get("/api/tags")["models"][0]["name"] == "gpt-5:latest" and s.get("/props")["model_alias"] == "gpt-5"
    with open(path("aliased.ini"), "w") as f:
        f.write("[coder]\nmodel = %s\nalias = gpt-5\n" % PEBBLE)
    with Server("--models-file", path("aliased.ini"), wait=False) as s:  # a section names its model
        assert s.get("/v1/models")["data"][0]["id"] == "coder"


def anthropics_clients_get_their_list_of_models():
    version = {"anthropic-version": "2023-06-01"}
    with Server("--models-dir", models_folder("a.gguf", "b.gguf", "c.gguf")) as s:
        page = s.get("/v1/models", headers=version)
        assert set(page) == {"data", "has_more", "first_id", "last_id"} and page["has_more"] is False, page
        assert (page["first_id"], page["last_id"], len(page["data"])) == ("a", "c", 3)
        assert set(page["data"][0]) == {"type", "id", "display_name", "created_at"} and page["data"][0]["type"] == "model"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", page["data"][0]["created_at"]), page
        page = s.get("/v1/models?limit=2", headers=version)
        assert [m["id"] for m in page["data"]] == ["a", "b"] and page["has_more"] is True
        page = s.get("/v1/models?limit=2&after_id=b", headers=version)
        assert [m["id"] for m in page["data"]] == ["c"] and page["has_more"] is False
        assert [m["id"] for m in s.get("/v1/models?limit=1&before_id=c", headers=version)["data"]] == ["b"]
        assert s.get("/v1/models/b", headers=version)["type"] == "model"
        assert s.get("/v1/models/b")["object"] == "model" and s.get("/v1/models")["object"] == "list"


def names_that_are_no_text_are_served():
    """Files may have names of any bytes; JSON has text alone."""
    folder = models_folder("plain.gguf")
    os.symlink(PEBBLE, os.path.join(os.fsencode(folder), b"caf\xe9.gguf"))
    with Server("--models-dir", folder, "--alias", os.fsdecode(b"b\xe9te")) as s:
        name = "caf\ufffd"
        assert {m["id"] for m in s.get("/v1/models")["data"]} == {name, "plain"}, s.get("/v1/models")
        assert {m["name"] for m in s.get("/api/tags")["models"]} == {name + ":latest", "plain:latest"}
        answer = s.post("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})
        assert answer["model"] == name, answer
        assert name in [m["id"] for m in s.get("/v1/moraine/status")["models"]]
        assert s.get("/props?model=caf%EF%BF%BD")["model_path"] == name + ".gguf"
        assert s.post("/api/show", {"model": name})["details"]["family"] == "qwen3moe"
        s.stop()


def idle_models_are_unloaded():
    with Server("--sleep-idle-seconds", "0.3", "--seed", "42", "-n", "64", "--temp", "0.3") as s:
        state = lambda: s.get("/v1/models")["data"][0]["status"]["value"]
        awake = s.get("/props")
        assert until(lambda: state() == "unloaded"), s.log()
        asleep = s.get("/props")
        assert asleep["is_sleeping"] and asleep["default_generation_settings"]["params"]["seed"] == 42
        assert {**asleep, "is_sleeping": None} == {**awake, "is_sleeping": None}
        assert s.post("/models/load", {"model": "pebble"})["success"]
        assert until(lambda: state() == "unloaded")
        assert until(lambda: "why=idle" in s.log()), s.log()


def models_have_their_own_settings():
    with open(path("models.ini"), "w") as f:
        f.write("# two\n[small]\nmodel = %s\nctx = 256\nparallel=2\n\n[large]\nmodel = %s\nalias = big\npin\n" % (PEBBLE, PEBBLE))
    with Server("--models-file", path("models.ini"), "--models-max", "2", "--strict-model") as s:
        data = {m["id"]: m for m in s.get("/v1/models")["data"]}
        assert data["small"]["meta"]["n_ctx"] == 256 and data["large"]["meta"]["n_ctx"] == 2048
        assert data["small"]["status"]["value"] == "loaded" and data["large"]["status"]["value"] == "loaded"
        assert len(s.get("/slots?model=small")) == 2 and len(s.get("/slots?model=big")) == 4
        s.post("/models/unload", {"model": "large"}, status=400)
        s.get("/slots?model=other", status=404)
    with Server("--models-file", path("models.ini")) as s:  # one more than those that are pinned
        assert s.post("/models/load", {"model": "small"})["success"]
        assert {m["status"]["value"] for m in s.get("/v1/models")["data"]} == {"loaded"}
    with Server("--models-file", path("models.ini"), "--models-max", "1") as s:
        assert "pinned" in s.post("/models/load", {"model": "small"}, status=400)["error"]["message"]
        s.post("/completion", {"model": "large", **generation(2, stream=False)})
    with open(path("models.ini"), "a") as f:
        f.write("[third]\nmodel = %s\npin\n" % PEBBLE)
    ended = subprocess.run([PROGRAM, "serve", "--port", "0", "--models-file", path("models.ini"), "--models-max", "1"], env=environment,
                           capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2 and "2 models are pinned" in ended.stderr, ended.stderr
    with open(path("models.ini"), "w") as f:
        f.write("[x]\nmodel = a\n\0[y]\nmodel = b\n")
    ended = subprocess.run([PROGRAM, "serve", "--models-file", path("models.ini")], env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2 and "NUL byte" in ended.stderr, ended.stderr
    with open(path("models.ini"), "w") as f:
        f.write("[x]\nmodel = a\ncolour = red\n")
    ended = subprocess.run([PROGRAM, "serve", "--models-file", path("models.ini")], env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2 and "colour" in ended.stderr and "section [x] of" in ended.stderr, ended.stderr


def no_model_goes_over_the_ceiling():
    folder = models_folder("a.gguf", "b.gguf")
    with Server("--models-dir", folder, "--ram", "150M", "--models-max", "2") as s:
        for name in "abab":
            assert s.post("/models/load", {"model": name})["success"]
        loaded = [m for m in s.get("/v1/moraine/status")["models"] if m["state"] == "loaded"]
        assert sum(m["tiers"]["planned_bytes"] for m in loaded) <= 150 << 20, loaded
    with Server("--models-dir", folder, "--ram", "20M") as s:
        error = s.post("/models/load", {"model": "a"}, status=400)["error"]
        assert "cannot be loaded" in error["message"], error
        s.get("/health")


# ---- Answers: what an operator sees of them


def generation(tokens, stream=True, prompt=None, **more):
    """A body that makes the model speak for so many tokens."""
    return {"prompt": prompt or "Once upon a time", "n_predict": tokens, "ignore_eos": True, "stream": stream, "temperature": 0, **more}


def raw_post(server, where, body):
    """A request whose answer is not waited for: its socket."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30 * SLOW)
    data = json.dumps(body).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (where.encode(), len(data)) + data)
    return connection


def busy(server):
    engine = server.get("/v1/moraine/status")["models"][0]["engine"]
    return engine["running"] + engine["queued"]


def a_client_that_leaves_frees_its_place_in_every_state():
    long = [5 + i % 4000 for i in range(1900)]  # a prompt that takes a while
    states = {"speaking, streamed": generation(2000), "speaking, at once": generation(2000, stream=False),
              "reading its prompt": generation(100, stream=False, prompt=long, cache_prompt=False)}
    with Server("--parallel", "1", "--batch", "32", "--isa", "scalar") as s:
        for name, body in states.items():
            for queued in (False, True):
                def leave():
                    first = raw_post(s, "/completion", generation(2000)) if queued else None
                    if queued:
                        assert until(lambda: busy(s) == 1), name
                    connection = raw_post(s, "/completion", body)
                    assert until(lambda: busy(s) == 1 + queued), name
                    time.sleep(0.05)
                    began = time.monotonic()
                    connection.close()
                    assert until(lambda: busy(s) == int(queued)), (name, queued, s.get("/v1/moraine/status"))
                    took = time.monotonic() - began
                    if first:
                        first.close()
                        assert until(lambda: busy(s) == 0)
                    return took

                tap.soon(leave, 1 * SLOW)
        assert s.get("/v1/moraine/status")["models"][0]["engine"]["cancelled"] >= 6
        text = s.ask("GET", "/metrics")[1]
        assert 'moraine_jobs_total{end="cancelled"}' in text


def status_is_told_while_the_engine_works():
    long = [5 + i % 4000 for i in range(1900)]
    with Server("--parallel", "2", "--isa", "scalar") as s:
        connections = [raw_post(s, "/completion", generation(500, prompt=long, cache_prompt=False)) for _ in range(4)]
        assert until(lambda: busy(s) >= 2)
        for where in ("/health", "/slots", "/metrics", "/v1/models", "/props", "/api/ps", "/v1/moraine/status", "/v1/moraine/experts", "/moe-layer-perf"):
            def ask():
                began = time.monotonic()
                assert s.ask("GET", where)[0] == 200, where
                return time.monotonic() - began

            tap.soon(ask, 1 * SLOW)
        slots = s.get("/slots")
        taken = [slot for slot in slots if slot["is_processing"] and slot["n_prompt_tokens"] == 1900]
        assert taken and taken[0]["params"]["n_predict"] == 500 and taken[0]["params"]["temperature"] == 0, slots
        assert s.ask("GET", "/slots?fail_on_no_slot=1")[0] in (200, 503)
        for connection in connections:
            connection.close()


def answers_end_before_the_server_does():
    with Server("--grace", "20") as s:
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30 * SLOW)
        connection.request("POST", "/completion", json.dumps(generation(300)))
        answer = connection.getresponse()
        assert answer.readline().startswith(b"data: ")
        s.process.send_signal(signal.SIGTERM)
        rest = answer.read().decode()
        assert '"tokens_predicted":300' in rest.replace(" ", ""), rest[-500:]
        assert s.process.wait(20 * SLOW) == 0
    with Server("--grace", "60", "--isa", "scalar", "--ctx", "8192") as s:  # a second signal does not wait
        connection = raw_post(s, "/completion", generation(8000))
        assert until(lambda: busy(s) == 1)
        began = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(20 * SLOW) == 0 and time.monotonic() - began < 10 * SLOW * tap.crowd()
        connection.close()


def answers_that_cannot_end_in_time_say_so():
    talk = {"messages": [{"role": "user", "content": "Tell me about a fox."}], "ignore_eos": True, "n_predict": 8000, "stream": True}
    chat = {**talk, "max_tokens": 8000}
    streams = {"/completion": generation(8000), "/v1/completions": {**generation(8000), "max_tokens": 8000}, "/v1/chat/completions": chat,
               "/v1/messages": chat, "/v1/responses": {"input": "Hi", "max_output_tokens": 8000, "ignore_eos": True, "stream": True},
               "/api/chat": {"messages": talk["messages"], "options": {"num_predict": 8000}, "ignore_eos": True},
               "/api/generate": {"prompt": "A fox", "raw": True, "options": {"num_predict": 8000}, "ignore_eos": True}}
    with Server("--grace", "0.2", "--isa", "scalar", "--ctx", "8192", "--parallel", str(len(streams))) as s:
        ends, threads = {}, []

        def ask(where, body):
            code, text, headers = s.ask("POST", where, body, timeout=60)
            ends[where, body["stream"] if "stream" in body else True] = (code, text, headers)

        for where, body in streams.items():
            threads.append(threading.Thread(target=ask, args=(where, body)))
        for thread in threads:
            thread.start()
        assert until(lambda: busy(s) == len(streams), 30), (busy(s), ends)
        for where in ("/completion", "/v1/messages"):  # those wait for a place, and have said nothing
            threads.append(threading.Thread(target=ask, args=(where, {**streams[where], "stream": False})))
            threads[-1].start()
        assert until(lambda: busy(s) == len(streams) + 2, 30), ends
        s.stop()
        for thread in threads:
            thread.join(30 * SLOW)
        for where in streams:
            code, text, _ = ends[where, True]
            last = text.strip().split("\n")[-1]
            assert code == 200 and "shutting down" in last and "[DONE]" not in text, (where, text[-400:])
        assert '{"error":' in ends["/api/chat", True][1].strip().split("\n")[-1][:10]
        assert "event: error" in ends["/v1/messages", True][1] and "response.failed" in ends["/v1/responses", True][1]
        code, text, headers = ends["/completion", False]
        assert code == 503 and headers["Retry-After"] and "unavailable_error" in text, (code, text)
        assert ends["/v1/messages", False][0] == 529 and "overloaded_error" in ends["/v1/messages", False][1]


def more_prompts_than_can_wait_are_refused_for_good():
    with Server("--queue", "3", "--parallel", "1") as s:
        error = s.post("/v1/completions", {"prompt": ["a", "b", "c", "d"], "max_tokens": 2}, status=400)["error"]
        assert error["param"] == "prompt" and "at most 3" in error["message"], error
        assert len(s.post("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 2})["choices"]) == 3


def greedy_answers_are_equal_alone_and_among_sixteen():
    with Server("--parallel", "16", "--ctx", "512", "--cache-ram", "0") as s:
        def answer(i):
            return s.post("/v1/completions", {"prompt": "The fox number %d" % (i % 12), "max_tokens": 24, "temperature": 0})["choices"][0]["text"]
        alone = [answer(i) for i in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            among = list(pool.map(answer, range(16)))
        assert among == alone, (alone, among)


def requests_are_logged_without_their_words():
    with Server("--log-requests") as s:
        s.post("/completion", generation(4, stream=False, prompt="the secret of the house"))
        log = s.stop()
        assert "secret" not in log and re.search(r"path=/completion status=200 .*answer_tokens=4", log), log


def the_hot_cache_is_told():
    """What it holds, how often it is hit, and each update: in the log, the status and the metrics."""
    with Server(PEBBLE, "--device", "sim", "--cpu-moe", "--moe-hot-cache", make_profile(), "--moe-hot-cache-max-mib", "2",
                "--moe-hot-cache-update-rate", "0.5") as s:
        for prompt in ("A fox and a hen", "The old house by the sea", "Red and blue"):
            s.post("/completion", generation(24, stream=False, prompt=prompt))
        hot = s.get("/v1/moraine/status")["models"][0]["device"]["hot_cache"]
        assert hot["updates"] >= 1 and hot["exchanged"] >= 1 and 0 < hot["hot_ratio"] < 1 and hot["bytes"] > 1 << 20, hot
        text = s.ask("GET", "/metrics")[1]
        value = lambda name: float(re.search(r"(?m)^%s\{[^}]*\} (\S+)" % re.escape(name), text).group(1))
        assert value("moraine_hot_cache_updates_total") >= hot["updates"] and value("moraine_hot_cache_bytes") == hot["bytes"]
        assert value("moraine_hot_cache_exchanges_total") >= 1 and 0 < value("moraine_hot_cache_ratio") < 1
        device = s.get("/v1/moraine/status")["models"][0]["device"]
        ram = float(re.search(r'tier="ram"\} (\S+)', text).group(1))
        assert ram == device["by_cpu"] + device["fetched"] > 0, (ram, device)
        log = "".join(s.lines)
    assert re.search(r"the hot cache has \d+ of 448 experts in 7 of 7 layers \(\d+ to \d+, on average [\d.]+\)", log), log
    assert re.search(r"[\d.]+ % of the picks hit the hot cache; exchanging \d+ of \d+ experts", log), log


def metrics_count():
    with Server() as s:
        s.post("/completion", generation(8, stream=False, prompt="A fox and a hen went out"))
        text = s.ask("GET", "/metrics")[1]
        assert "llamacpp:tokens_predicted_total 8" in text and "moraine_time_to_first_token_seconds_count 1" in text, text
        for name in ("draft_tokens", "accepted_tokens", "drafts"):
            assert "\nllamacpp:spec_decode_num_%s_total 0\n" % name in text and "# TYPE llamacpp:spec_decode_num_%s_total counter" % name in text, text
        assert re.search(r'moraine_expert_uses_total\{model="pebble",tier="ram"\} [1-9]', text)
        picks = s.get("/v1/moraine/experts")["layers"][0]["picks"]
        assert sum(picks) > 0
        rate = lambda: float(re.search(r"(?m)^llamacpp:predicted_tokens_seconds (\S+)", s.ask("GET", "/metrics")[1]).group(1))
        assert rate() == 0  # since the last scrape
        s.post("/completion", generation(8, stream=False))
        assert rate() > 0
        now = lambda: s.get("/v1/moraine/status")["models"][0]["now"]["predicted_tokens_s"]
        connection = raw_post(s, "/completion", generation(1900))
        assert until(lambda: now() > 0), s.get("/v1/moraine/status")
        connection.close()
        assert until(lambda: now() == 0)


def two_models_take_turns():
    folder = models_folder("a.gguf", "b.gguf")
    with Server("--models-dir", folder) as s:
        answers, threads = {}, []

        def ask(number):
            name = "ab"[number % 2]
            answers[number] = s.post("/v1/completions", {"model": name, "prompt": "The fox", "max_tokens": 8, "temperature": 0}, timeout=60)

        for number in range(6):
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
        for thread in threads:
            thread.join(120)
        assert len(answers) == 6 and {a["model"] for a in answers.values()} == {"a", "b"}, answers
        assert len({a["choices"][0]["text"] for a in answers.values()}) == 1


def clients_that_read_nothing_hold_up_neither_models_nor_the_end():
    folder = models_folder("a.gguf", "b.gguf")
    with Server("--models-dir", folder, "--stalled-s", "1", "--grace", "1", "--parallel", "1", "--ctx", "8192") as s:
        def stall(model):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", s.port))
            body = json.dumps({"model": model, **generation(8000, n_probs=20)}).encode()
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert until(lambda: '"paused"' in s.ask("GET", "/v1/moraine/status")[1], 60), s.ask("GET", "/v1/moraine/status")[1]
            return connection

        first = stall("a")
        s.post("/completion", {"model": "b", **generation(3, stream=False)})
        assert until(lambda: " stalled " in s.log()), s.log()
        second = stall("b")
        began = time.monotonic()
        s.stop()
        assert time.monotonic() - began < 8 * SLOW * tap.crowd()
        first.close()
        second.close()


def a_prompt_can_be_computed_before_anybody_asks():
    talk = [{"role": "system", "content": "You tell short stories about animals. " * 20}, {"role": "user", "content": "Tell me about a fox."}]
    with open(path("warm.json"), "w") as f:
        json.dump({"messages": talk, "max_tokens": 50, "stream": True, "ignore_eos": True}, f)
    with Server("--warm", path("warm.json")) as s:
        assert "info warm seconds=" in s.log(), s.log()
        talk[1]["content"] = "Tell me about a hen."
        usage = s.post("/v1/chat/completions", {"messages": talk, "max_tokens": 4, "ignore_eos": True})["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 50, usage
        text = s.ask("GET", "/metrics")[1]
        assert "llamacpp:tokens_predicted_total 54" in text, text  # what it says of tokens is computed as well
    with open(path("warm.json"), "w") as f:
        json.dump({"messages": talk}, f)
    with Server("--warm", path("warm.json")) as s:
        assert "llamacpp:tokens_predicted_total 0" in s.ask("GET", "/metrics")[1]
    with open(path("warm.json"), "w") as f:
        f.write('{"messages": 3}')
    with Server("--warm", path("warm.json")) as s:
        assert "error warm" in s.log() and "messages" in s.log(), s.log()
        s.get("/health")


def a_device_is_rehearsed_before_anybody_asks():
    """A short prompt, then steps of 1, 2 and 4 sequences, before the server says that it is ready. Answers are those of the CPU, and nothing is kept of it."""
    with Server("--parallel", "2") as s:
        told = s.post("/completion", generation(8, stream=False, temperature=0))["content"]
        assert "rehearsed" not in s.log(), s.log()
    with Server("--device", "sim", "--parallel", "5") as s:
        assert until(lambda: " ready " in s.log())
        log = s.log()
        assert "steps=4" in log and log.index(" rehearsed ") < log.index(" ready "), log
        answer = s.post("/completion", generation(8, stream=False, temperature=0))
        assert answer["content"] == told and answer["timings"]["cache_n"] == 0, answer
        assert s.get("/v1/moraine/status")["models"][0]["engine"]["kept_sessions"] == 0
    with Server("--device", "sim", "--parallel", "8", "--profile", path("rehearsed.json")) as s:
        assert "rehearsed" in s.log(), s.log()
        s.stop()
    assert not os.path.exists(path("rehearsed.json"))


def experts_are_discovered_before_a_new_text():
    hits, texts = [], []
    for more in ([], ["--discover", "6"]):
        with Server("--parallel", "1", "--ctx", "256", "--batch", "32", "--ram", "27M", "--predict", "off", *more) as s:
            texts.append(s.post("/completion", generation(4, stream=False, temperature=0))["content"])
            hits.append(s.get("/v1/moraine/status")["models"][0]["tiers"]["prompt"]["hits"])
    assert texts[0] == texts[1] and hits[0] < hits[1], (texts, hits)
    with Server("--discover", "6") as s:
        assert "warning discover" in s.log() and "the whole model is in RAM" in s.log(), s.log()


def sessions_are_shared_by_the_same_settings_alone():
    """Of another format of keys and values, or prompts of another precision, nothing is found on disk; where experts may be left out nothing is
    shared at all. A device's are the CPU's."""
    talk = {"messages": [{"role": "user", "content": "Tell me a story about a fox and a hen who meet in the wood. " * 4}], "max_tokens": 2, "temperature": 0}
    folder = tempfile.mkdtemp(dir=FOLDER)

    def cached(*words, times=1):
        with Server("--cache-dir", folder, *words) as s:
            for _ in range(times):
                usage = s.post("/v1/chat/completions", talk)["usage"]
            s.stop()
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0
    assert cached("--kv", "q8_0") == 0
    assert cached("--skip-missing", times=2) == 0
    assert cached() > 20
    assert cached("--kv", "q8_0") > 20
    assert cached("--device", "sim") > 20
    for found in (False, True):
        assert (cached("--device", "sim", "--prompt-precision", "bf16") > 20) == found


def resident(server):
    with open("/proc/%d/status" % server.process.pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) / 1024


def forgotten_prefixes_leave_the_process():
    """What kept prefixes and sequences held is no longer resident once they are deleted, and the next prompt is answered as before."""
    count = 8 if SLOW == 1 else 5
    prompt = lambda number: [5 + (number * 977 + i * 31) % 4000 for i in range(1900)]
    with Server("--kv", "f32", "--ctx", "2048", "--parallel", "2", "--cache-ram", "400") as s:
        ask = lambda number: s.post("/completion", generation(6, stream=False, prompt=prompt(number), temperature=0))["content"]
        s.post("/completion", generation(2, stream=False, prompt=[5]))
        first, before = ask(0), resident(s)
        for number in range(1, count):
            ask(number)
        kept = s.get("/v1/moraine/sessions")
        grown = resident(s)
        mib = kept["bytes"] / 2**20
        assert len([one for one in kept["sessions"] if "ram" in one["where"]]) >= count - 3 and mib > 20, kept
        assert grown - before > 0.8 * mib * (count - 3) / count, (before, grown, mib)
        assert s.ask("DELETE", "/v1/moraine/sessions")[0] == 200
        after = resident(s)
        assert grown - after > 0.8 * mib, (before, grown, after, mib)
        assert ask(0) == first and s.get("/v1/moraine/sessions")["bytes"] >= 0
        s.stop()


def open_files(server):
    return len(os.listdir("/proc/%d/fd" % server.process.pid))


def requests_of_every_kind():
    """Functions of a number: method, path and body. None: the client leaves."""
    talk = {"messages": [{"role": "user", "content": "Tell me about a fox."}], "max_tokens": 4, "temperature": 0}
    chat = lambda **more: ("POST", "/v1/chat/completions", {**talk, **more})
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    schema = lambda number: {"type": "object", "properties": {"n": {"enum": [number, number + 1]}}, "required": ["n"]}
    always = [("POST", "/completion", generation(4, stream=False)), chat(), chat(stream=True), chat(n=2, logprobs=True, top_logprobs=2),
              chat(tools=[tool], tool_choice="required"), ("POST", "/v1/messages", talk),
              ("POST", "/api/chat", {"model": "pebble", "messages": talk["messages"], "options": {"num_predict": 4}}),
              ("POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 4}), ("POST", "/tokenize", {"content": "a fox"}),
              ("POST", "/v1/chat/completions", "no json"), chat(messages=1), ("GET", "/nothing", None), ("GET", "/v1/models", None),
              ("GET", "/metrics", None), ("GET", "/v1/moraine/status", None), ("GET", "/v1/moraine/sessions", None), ("GET", "/props", None), None]
    return [lambda number, one=one: one for one in always] + [
        lambda number: ("POST", "/completion", generation(4, stream=False, prompt=[5 + number * i % 4000 for i in range(40)])),
        lambda number: chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema(number)}})]


class Stops:
    """How long this process stood still, with all that run beside it (SIGSTOP, a machine that sleeps): a client's clock goes on meanwhile."""

    def __init__(self):
        self.seconds, self.over = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        last = time.monotonic()
        while not self.over.wait(0.5):
            now = time.monotonic()
            self.seconds += now - last if now - last > 10 else 0
            last = now


def generates(kind):
    """Does the engine get it?"""
    return kind is None or (kind[0] == "POST" and kind[1] != "/tokenize" and isinstance(kind[2], dict) and kind[2].get("messages") != 1)


def soak(server, first, count, failures, stops):
    """So many requests by a client, from a number on; returns how many were for the engine. Each is waited for until it is answered, so that one
    that comes late is told from one that is lost."""
    kinds = requests_of_every_kind()
    connection = None
    sent = 0
    for number in range(first, first + count):
        kind = kinds[number % len(kinds)](number)
        sent += generates(kind)
        try:
            if kind is None:
                leaving = raw_post(server, "/completion", generation(500))
                leaving.recv(100)
                leaving.close()
                continue
            connection = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=900 * SLOW)
            began, stood = time.monotonic(), stops.seconds
            connection.request(kind[0], kind[1], json.dumps(kind[2]) if isinstance(kind[2], dict) else kind[2])
            answer = connection.getresponse()
            answer.read()
            took = time.monotonic() - began
            if answer.status >= 500:
                failures.append((kind, answer.status))
            if took > 60 * SLOW:
                time.sleep(2)  # by then it has been noticed
                if took - (stops.seconds - stood) > 60 * SLOW:
                    failures.append((kind, "answered after %.1f s" % took))
            if answer.will_close:
                connection.close()
                connection = None
        except Exception as error:
            failures.append((kind, error))
            connection = None
    if connection:
        connection.close()
    return sent


def nothing_grows_with_requests():
    """MO_SOAK requests of every kind by eight clients at once, some of whom leave: half of them with nothing kept, half with a cache
    that is always full."""
    total = int(os.environ.get("MO_SOAK", "600")) // 2
    for words in (["--cache-ram", "0"], ["--cache-ram", "4", "--cache-dir", tempfile.mkdtemp(dir=FOLDER), "--cache-dir-mib", "4"]):
        with Server("--parallel", "4", *words) as s:
            failures, sent, stops = [], [], Stops()

            def clients(begin, count):
                threads = [threading.Thread(target=lambda i=i: sent.append(soak(s, begin + 100003 * i, count // 8, failures, stops)))
                           for i in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert not failures, failures[:5]
                assert until(lambda: busy(s) == 0 and s.get("/v1/moraine/status")["http"]["connections"] == 1), s.get("/v1/moraine/status")
                engine = s.get("/v1/moraine/status")["models"][0]["engine"]  # nothing that came to it was lost
                assert engine["done"] + engine["cancelled"] == sum(sent) and engine["failed"] == engine["refused"] == 0, (sum(sent), engine)
                return resident(s), open_files(s)

            parts = 3 if total < 1000 else 10
            seen = [clients(2000003 * i, total // parts) for i in range(parts)]
            (before, files), (after, files_after) = seen[parts // 3 - 1], seen[-1]
            print("# %s MiB of cache: after every %d requests of %d so many MiB: %s; %d and %d open files" %
                  (words[1], total // parts, total, " ".join("%.1f" % memory for memory, _ in seen), files, files_after), flush=True)
            assert after - before < 24 * SLOW, seen
            assert files_after <= files + 2, (files, files_after)
            stops.over.set()
            s.stop()


def bench_measures_a_server():
    with Server("--api-key", "k", "--parallel", "2") as s:
        url = "http://127.0.0.1:%d" % s.port
        bench = lambda *words: subprocess.run([PROGRAM, "bench", "--server", url, "--prefill", "20", "--decode", "8", "--rounds", "2", *words],
                                              env=environment, capture_output=True, text=True, timeout=60)
        ended = bench("--parallel", "3", "--api-key", "k", "--json")
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found["tokens"] == 2 * 3 * 8 and found["together_tps"] > 0 and found["model"] == "pebble", found
        assert 0 < found["first_token_p50_s"] <= found["first_token_p99_s"]
        url += "/v1"  # as OpenAI's clients are told
        assert "tokens/s generated" in bench("--api-key", "k").stdout
        ended = bench()
        assert ended.returncode == 1 and "401" in ended.stderr, ended.stderr
    ended = subprocess.run([PROGRAM, "bench", "--server", url], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "cannot connect to" in ended.stderr


def bench_measures_a_model_without_a_vocabulary():
    subprocess.run([PROGRAM, "synth", "smollm2-135m", "--layers", "1", "-o", path("blank.gguf"), "--force"], env=environment, check=True, capture_output=True)
    with Server("-m", path("blank.gguf"), "--ctx", "512") as s:
        ended = subprocess.run([PROGRAM, "bench", "--server", "http://127.0.0.1:%d" % s.port, "--prefill", "16", "--decode", "8", "--rounds", "1", "--json"],
                               env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found["tokens"] == 8 and found["first_token_p50_s"] > 0 and found["between_tokens_p99_s"] > 0, found


def templates_can_be_given():
    with open(path("t.jinja"), "w") as f:
        f.write("<{{ messages[0].content }}|{{ mood }}>")
    with Server("--chat-template-file", path("t.jinja"), "--chat-template-kwargs", '{"mood": "glad"}') as s:
        assert s.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})["prompt"] == "<Hi|glad>"
        assert s.get("/props")["chat_template"].endswith("{{ mood }}>")
    for name, wanted in (("chatml", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),  # names of llama-server too
                         ("gpt-oss", "<|start|>user<|message|>Hi<|end|><|start|>assistant"), ("mistral-v1", "<s> [INST] Hi [/INST]")):
        with Server("--chat-template", name) as s:
            prompt = s.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})["prompt"]
            assert prompt.endswith(wanted), (name, prompt)
            begun = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]
                     for text in ("Well, then", [{"type": "text", "text": "Well, "}, {"type": "text", "text": "then"}])]
            prompts = [s.post("/apply-template", {"messages": messages})["prompt"] for messages in begun]
            assert prompts[0].endswith("Well, then") and prompts[1].endswith("Well, \n\nthen"), prompts  # parts as llama-server joins them
    ended = subprocess.run([PROGRAM, "serve", "--port", "0", "--chat-template-kwargs", "[1]"], env=environment, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2, ended.stderr


def defaults_of_answers_can_be_set():
    with Server("--temp", "0", "-n", "3", "--reasoning", "off", "--reasoning-format", "none") as s:
        answer = s.post("/v1/completions", {"prompt": "The fox", "ignore_eos": True})
        assert answer["usage"]["completion_tokens"] == 3
        assert s.get("/props")["default_generation_settings"]["params"]["n_predict"] == 3
    for words in (["--reasoning", "perhaps"], ["--reasoning-format", "x"]):
        ended = subprocess.run([PROGRAM, "serve", "--port", "0", *words], env=environment, capture_output=True, text=True, timeout=30)
        assert ended.returncode == 2, (words, ended.stderr)


TESTS = [f for n, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == "__main__" and not n.startswith("_")
         and not isinstance(f, type) and n not in ("path", "until", "models_folder", "generation", "raw_post", "listen", "busy", "resident", "open_files", "requests_of_every_kind", "generates", "make_profile", "soak")]


def run(all_tests):
    """Runs those that are named, or all; how many failed, as an exit code."""
    status = tap.run(all_tests, sys.argv[2:])
    shutil.rmtree(FOLDER, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(run(TESTS))
