#!/usr/bin/env python3
"""test_server_faults.py BUILD [NAME ...]: moraine serve when what it relies on fails: a device, the model's file, the disk, the process itself.

Requests that are concerned get errors, or go on where the engine can; the server stays and answers the next one. Speaks TAP, as the other
test programs do.
"""
import fcntl
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import test_server
from test_server import FOLDER, PEBBLE, SLOW, Server, generation, path, raw_post, until


def spoken(server, body, where="/completion"):
    """A stream's text, and its last line."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60 * SLOW)
    connection.request("POST", where, json.dumps(body))
    lines = [json.loads(line[6:]) for line in connection.getresponse().read().decode().split("\n") if line.startswith("data: ")]
    connection.close()
    return "".join(line.get("content", "") for line in lines), lines[-1]


def together(server, bodies):
    """Streams at once: their texts and last lines."""
    answers = [None] * len(bodies)

    def ask(i):
        answers[i] = spoken(server, bodies[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def a_lost_device_changes_no_answer():
    bodies = [generation(60, prompt="Once upon a time fox %d met" % i) for i in range(4)]
    with Server() as s:
        expected = [answer[0] for answer in together(s, bodies)]
        after = spoken(s, generation(40, prompt="The hen"))[0]
    lost = 0
    for work in (2000, 3000, 4500, 7000):  # while prompts are read, and while answers stream
        with Server("--device", "sim", "--cache-dir", tempfile.mkdtemp(dir=FOLDER), wait=False,
                    env={"MORAINE_SIM": "fault=lost:%d" % work}) as s:
            assert s.ready.wait(60 * SLOW), s.log()
            if s.ended:  # lost while the model was sent: an error, since the device was asked for
                assert "was lost" in s.log(), s.log()
                continue
            assert [answer[0] for answer in together(s, bodies)] == expected, (work, s.log())
            assert spoken(s, generation(40, prompt="The hen"))[0] == after
            assert [answer[0] for answer in together(s, bodies)] == expected  # from what was kept
            lost += s.get("/v1/moraine/status")["models"][0]["device"]["lost"]
            s.stop()
    assert lost > 0, lost


def a_model_file_that_is_cut_short_fails_requests_until_it_is_whole():
    for words in (["--ram", "45M", "--ctx", "512", "--batch", "512", "--parallel", "2", "--cache-ram", "0"], ["--mmap", "--ctx", "512", "--pin"]):
        shutil.copy(PEBBLE, path("cut.gguf"))
        with Server(path("cut.gguf"), "--isa", "scalar", *words) as s:  # so that the stream goes on when the file is cut
            tiers = s.get("/v1/moraine/status")["models"][0]["tiers"]
            assert tiers["mode"] == "mapped" or tiers["slot_bytes"] < tiers["expert_bytes"], tiers  # experts come from disk
            expected = spoken(s, generation(60))[0]
            answers = []
            stream = threading.Thread(target=lambda: answers.append(spoken(s, generation(450, prompt="The hen"))))
            stream.start()
            assert until(lambda: test_server.busy(s) == 1)
            os.truncate(path("cut.gguf"), 4000000)
            stream.join()
            error = answers[0][1].get("error")
            assert error and error["type"] == "server_error" and "cut.gguf: the file" in error["message"] and FOLDER not in error["message"], answers
            assert until(lambda: s.get("/v1/models")["data"][0]["status"]["value"] == "unloaded"), s.log()
            assert until(lambda: "why=\"its file changed\"" in s.log() and " changed " in s.log()), s.log()
            code, text, _ = s.ask("POST", "/completion", generation(20, stream=False))
            assert code == 400 and "cannot be loaded" in text and FOLDER not in text, (code, text)
            assert s.get("/health") == {"status": "ok"}
            shutil.copy(PEBBLE, path("cut.gguf"))
            assert spoken(s, generation(60))[0] == expected, s.log()
            s.stop()


def a_model_file_that_vanishes_is_read_on():
    shutil.copy(PEBBLE, path("gone.gguf"))
    with Server(path("gone.gguf"), "--ram", "45M", "--ctx", "512", "--parallel", "2", "--cache-ram", "0") as s:
        expected = spoken(s, generation(60))[0]
        os.unlink(path("gone.gguf"))
        assert spoken(s, generation(60))[0] == expected, s.log()
        assert s.post("/models/unload", {"model": "gone"})["success"]
        assert until(lambda: s.get("/v1/models")["data"][0]["status"]["value"] == "unloaded")
        assert "cannot be loaded" in s.post("/completion", generation(4, stream=False), status=404)["error"]["message"]
        s.get("/health")
        shutil.copy(PEBBLE, path("gone.gguf"))
        assert spoken(s, generation(60))[0] == expected, s.log()


def a_full_disk_costs_only_what_would_have_been_kept():
    folder = tempfile.mkdtemp(dir=FOLDER)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))  # a session has 240000 bytes
    long = "Once upon a time there was a fox who went into the wood and met a hen, and number %d of them went home together."
    with Server("--cache-dir", folder, "--parallel", "1", preexec_fn=limit) as s:
        for number in range(3):
            spoken(s, generation(30, prompt=long % number))
        assert until(lambda: s.get("/v1/moraine/sessions")["disk_failures"] >= 3), s.get("/v1/moraine/sessions")
        kept = s.get("/v1/moraine/sessions")
        assert not any("disk" in e["where"] for e in kept["sessions"]) and kept["disk_bytes"] == 0, kept
        assert until(lambda: "sessions are cached in memory only" in s.log()), s.log()
        assert s.log().count("sessions are cached in memory only") == 1, s.log()  # once
        again = s.post("/v1/completions", {"prompt": long % 0, "max_tokens": 1})
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 20, again  # in memory they are
        assert re.search(r"(?m)^moraine_disk_failures_total [3-9]", s.ask("GET", "/metrics")[1])
        s.stop()
    assert os.listdir(folder) == [], os.listdir(folder)


def killed_at_any_moment_it_finds_what_it_said_was_kept():
    chance = random.Random(int(os.environ.get("MO_SEED", "7")))
    found = 0
    for _ in range(8):
        folder = tempfile.mkdtemp(dir=FOLDER)
        prompt = [5 + i for i in range(40)]
        words = ("--cache-dir", folder, "--parallel", "2", "--ctx", "1024")
        with Server(*words) as s:
            kept, turns = 0, chance.randrange(2, 12)
            for turn in range(turns):  # a talk: each turn continues what was kept before, and takes its place
                sessions = s.get("/v1/moraine/sessions")["sessions"]
                kept = max([kept] + [e["tokens"] for e in sessions if "disk" in e["where"]])
                answer = s.post("/completion", generation(16, stream=False, prompt=prompt, return_tokens=True))
                prompt += answer["tokens"] + [chance.randrange(100, 4000) for _ in range(8)]
                if turn == turns - 2:
                    time.sleep(chance.uniform(0, 0.1))  # so that it is on disk, or not quite
            time.sleep(chance.uniform(0, 0.01))
            s.process.send_signal(signal.SIGKILL)
            s.process.wait()
        with Server(*words) as s:
            assert not [name for name in os.listdir(folder) if not name.endswith(".session")]  # nothing half written
            usage = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] >= kept, (kept, usage)
        found += kept > 0
    assert found > 0


def what_others_are_writing_is_left_alone():
    folder = tempfile.mkdtemp(dir=FOLDER)
    names = ["0123456789abcdef-%d-%d.unfinished" % (os.getpid(), i) for i in range(2)]
    files = [open(os.path.join(folder, name), "w") for name in names]
    fcntl.flock(files[0], fcntl.LOCK_EX)  # as whoever writes has one; the other was left behind
    with Server("--cache-dir", folder):
        assert os.listdir(folder) == names[:1], os.listdir(folder)
    files[0].close()
    with Server("--cache-dir", folder):
        assert os.listdir(folder) == [], os.listdir(folder)


def adapter(name, value):
    """A GGUF adapter of rank 1 for the first layer of the built-in model, all of whose numbers are this one."""

    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    words = {"general.type": "adapter", "general.architecture": "qwen3moe", "adapter.type": "lora"}
    tensors = {"blk.0.attn_output.weight.lora_a": (256, 1), "blk.0.attn_output.weight.lora_b": (1, 256)}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(words))
    for key, word in words.items():
        out += string(key) + struct.pack("<I", 8) + string(word)
    for i, (tensor, sizes) in enumerate(tensors.items()):
        out += string(tensor) + struct.pack("<IQQIQ", 2, *sizes, 0, i * 1024)  # type 0: F32
    out += bytes(-len(out) % 32) + struct.pack("<512f", *[value] * 512)
    with open(path(name), "wb") as file:
        file.write(out)
    return path(name)


def an_adapter_that_overflows_is_the_fault_of_who_asked_for_it():
    with Server("--lora", adapter("huge.gguf", 1e18) + ":0") as s:
        expected = spoken(s, generation(60))[0]
        lora = [{"id": 0, "scale": 1000}]
        code, text, _ = s.ask("POST", "/completion", generation(20, stream=False, lora=lora))
        error = json.loads(text)["error"]
        assert code == 400 and error["type"] == "invalid_request_error", (code, text)
        assert error["message"].startswith("lora: ") and "huge.gguf at a scale of 1000" in error["message"] and FOLDER not in text, text
        answers = together(s, [generation(60), generation(60, lora=lora), generation(60)])
        assert answers[0][0] == answers[2][0] == expected and answers[1][1]["error"]["param"] == "lora", answers  # alone or beside it


def a_query_with_many_parameters_does_not_keep_the_server():
    for count in (100, 600, 3000):
        with Server("--grace", "1") as s:
            code, _, _ = s.ask("GET", "/health?" + "&".join("a=%d" % i for i in range(count)))
            assert code == 400, code
            assert s.get("/health") == {"status": "ok"}
            began = time.monotonic()
            s.stop()
            assert time.monotonic() - began < 5 * SLOW * test_server.tap.crowd()


def memory(server, field):
    with open("/proc/%d/status" % server.process.pid) as file:
        return int(re.search(field + r":\s+(\d+) kB", file.read()).group(1)) << 10


def long_texts_are_tokenized_in_little_memory():
    size = 7 << 20
    with Server("--ram", "600M") as s:
        before = memory(s, "VmRSS")
        codes = []
        threads = [threading.Thread(target=lambda c=c: codes.append(s.ask("POST", "/tokenize", {"content": c * size}, timeout=120)[0]))
                   for c in (" ", "a")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [200, 200], codes
        taken = memory(s, "VmHWM") - before
        assert taken < 24 * 2 * size, taken  # bodies, their values, and what is made of them
        for where, body in (("/completion", {"prompt": " " * size}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a b " * (size // 4)}]})):
            code, text, _ = s.ask("POST", where, body, timeout=120)
            assert code == 400 and "exceeds the available context size" in text, (where, code, text[:300])
        for where, body in (("/tokenize", {"content": " " * (17 << 20)}), ("/tokenize", {"content": "a" * (5 << 20), "with_pieces": True}),
                            ("/apply-template", {"messages": [{"role": "user", "content": "a" * (17 << 20)}]})):
            code, text, _ = s.ask("POST", where, body, timeout=120)
            assert code == 413 and "too long to be tokenized at once" in text, (where, code, text[:300])
        readers = [raw_post(s, "/tokenize", {"content": "a" * size}) for _ in range(2)]
        assert [reader.recv(12) for reader in readers] == [b"HTTP/1.1 200"] * 2  # and they read no more of their answers
        assert s.ask("POST", "/tokenize", {"content": "a" * size}, timeout=120)[0] == 429
        for reader in readers:
            reader.close()
        assert until(lambda: s.ask("POST", "/tokenize", {"content": "a" * size}, timeout=120)[0] == 200), s.log()
        s.stop()


def what_nobody_waits_for_is_not_tokenized_or_rendered():
    words = "".join(random.Random(1).choice("abcdefghij klmn") for _ in range(1 << 20)) * 15
    loop = "{% for i in range(99999) %}{% for k in range(99999) %}{{ 'x' }}{% endfor %}{% endfor %}"
    for where, body, more in (("/tokenize", {"content": words}, ()),
                              ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, ("--chat-template", loop))):
        with Server("--grace", "1", *more) as s:
            clients = [raw_post(s, where, body) for _ in range(4)]
            assert until(lambda: s.get("/v1/moraine/status")["http"]["busy"] > 0), s.log()
            for client in clients:
                client.close()
            began = time.monotonic()
            s.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            s.stop()  # a second signal
            assert time.monotonic() - began < 5 * SLOW * test_server.tap.crowd(), (where, time.monotonic() - began)


TESTS = [a_query_with_many_parameters_does_not_keep_the_server, long_texts_are_tokenized_in_little_memory,
         what_nobody_waits_for_is_not_tokenized_or_rendered, a_lost_device_changes_no_answer, a_model_file_that_is_cut_short_fails_requests_until_it_is_whole, a_model_file_that_vanishes_is_read_on,
         a_full_disk_costs_only_what_would_have_been_kept, killed_at_any_moment_it_finds_what_it_said_was_kept,
         what_others_are_writing_is_left_alone, an_adapter_that_overflows_is_the_fault_of_who_asked_for_it]

if __name__ == "__main__":
    sys.exit(test_server.run(TESTS))
