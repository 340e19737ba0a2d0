#!/usr/bin/env python3
"""test_server_keys.py BUILD [NAME ...]: every key is a client of its own: what clients learn of each other, and what administrators may do.

Speaks TAP.
"""
import http.client
import json
import os
import signal
import sys
import tempfile

import test_server
from test_server import FOLDER, Server, busy, generation, path, raw_post, tap, until

STORY = "Once upon a time there was a fox who went into the wood and met a hen, and all of them went home together after the rain."
ANNA, BERT, CARL, CHIEF = ({"Authorization": "Bearer " + key} for key in ("of-anna", "of-bert", "of-carl", "of-chief"))


def key_file(text="of-anna\nof-bert name=team\nof-carl name=team\nof-chief admin\n"):
    name = tempfile.mktemp(dir=FOLDER)
    with open(name, "w") as f:
        f.write(text)
    return name


def cached(server, key, prompt=STORY):
    return server.post("/completion", generation(4, stream=False, prompt=prompt), headers=key)["timings"]["cache_n"]


def prefixes_belong_to_a_client():
    folder = tempfile.mkdtemp(dir=FOLDER)
    keys = key_file()
    with Server("--api-key-file", keys, "--cache-dir", folder) as s:
        assert cached(s, ANNA) == 0 and cached(s, BERT) == 0 and cached(s, CHIEF) == 0
        assert cached(s, ANNA) > 20 and cached(s, BERT) > 20
        assert cached(s, CARL) > 20, "keys of one name are one client"
        s.process.send_signal(signal.SIGHUP)
        assert until(lambda: "reloaded keys=4" in s.log())
        assert cached(s, ANNA) > 20
        with open(keys, "a") as f:
            f.write("of-dora\n")
        s.process.send_signal(signal.SIGHUP)
        assert until(lambda: "reloaded keys=5" in s.log())
        assert cached(s, {"x-api-key": "of-dora"}) == 0
        s.stop()
    for directory, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(directory, name), "rb") as f:
                assert b"of-" not in f.read(), name
    with open(keys, "w") as f:  # other places, and another key of the same name
        f.write("of-eve\nof-fred name=team\nof-anna\n")
    with Server("--api-key-file", keys, "--cache-dir", folder) as s:
        assert cached(s, {"x-api-key": "of-eve"}) == 0
        assert cached(s, ANNA) > 20 and cached(s, {"x-api-key": "of-fred"}) > 20


def keys_share_prefixes_where_that_is_wanted():
    with Server("--api-key-file", key_file(), "--share-prefixes") as s:
        assert cached(s, ANNA) == 0 and cached(s, BERT) > 20
    with Server() as s:  # without keys all are one client
        assert cached(s, {}) == 0 and cached(s, ANNA) > 20


def what_was_computed_before_anybody_asked_is_for_all():
    talk = [{"role": "system", "content": "You tell short stories about animals. " * 20}, {"role": "user", "content": "Tell me about a fox."}]
    with open(path("warm-all.json"), "w") as f:
        json.dump({"messages": talk}, f)
    with Server("--api-key-file", key_file(), "--warm", path("warm-all.json"), "--parallel", "1") as s:
        talk[1]["content"] = "Tell me about a hen and the hat of hers."
        used = lambda key: s.post("/v1/chat/completions", {"messages": talk, "max_tokens": 4}, headers=key)["usage"]["prompt_tokens_details"]["cached_tokens"]
        first = used(ANNA)
        assert 50 < used(BERT) == first and used(ANNA) > first, first
        assert s.ask("DELETE", "/v1/moraine/sessions", headers=ANNA)[0] == 200
        assert used(CHIEF) == first > 50


JOB_LISTS = [("/v1/moraine/status", lambda r: r["models"][0]["engine"]["jobs"]), ("/v1/moraine/sessions", lambda r: r["jobs"])]


def first_event(server, key):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/v1/moraine/events", headers=key)
    line = connection.getresponse().readline().decode()
    connection.close()
    assert '"answer_tokens"' in line, line
    return line


def answers_belong_to_who_asked():
    with Server("--api-key-file", key_file()) as s:
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1500, "stream": True,
                                                                       "ignore_eos": True}), ANNA)
        ids = lambda key: s.get("/v1/moraine/sessions", headers=key)["answers"]
        assert until(lambda: ids(ANNA))
        identity = ids(ANNA)[0]
        assert ids(BERT) == [] and ids(CHIEF) == [identity]
        s.post("/v1/moraine/cancel", {"id": identity}, status=404, headers=BERT)
        slots = [slot for slot in s.get("/slots", headers=BERT) if slot["is_processing"]]
        assert slots and set(slots[0]) == {"id", "n_ctx", "is_processing", "speculative"}, slots
        assert any("n_prompt_tokens" in slot for slot in s.get("/slots", headers=ANNA))
        for where, jobs in JOB_LISTS:
            seen = lambda key: [set(job) for job in jobs(s.get(where, headers=key))]
            assert seen(BERT) == [{"state", "answer_tokens"}], (where, seen(BERT))
            assert "cached_tokens" in seen(ANNA)[0] and seen(ANNA) == seen(CHIEF), where
        assert "prompt_done" in first_event(s, CHIEF) and "prompt_done" not in first_event(s, BERT)
        assert s.post("/v1/moraine/cancel", {"id": identity}, headers=ANNA)["cancelled"]
        connection.close()
        assert until(lambda: not ids(CHIEF))


def sessions_belong_to_a_client():
    with Server("--api-key-file", key_file(), "--parallel", "2", "--slot-save-path", tempfile.mkdtemp(dir=FOLDER)) as s:
        kept = lambda key: s.get("/v1/moraine/sessions", headers=key)["sessions"]
        cached(s, ANNA)
        slot = int(kept(ANNA)[0]["id"].split("-")[1]) - 1
        assert kept(BERT) == [] and len(kept(CHIEF)) == 1
        s.get("/v1/moraine/sessions/" + kept(ANNA)[0]["id"], status=404, headers=BERT)
        s.post("/v1/moraine/sessions/" + kept(ANNA)[0]["id"], {"pin": True}, status=404, headers=BERT)
        assert s.ask("DELETE", "/v1/moraine/sessions", headers=BERT)[1] == '{"dropped":0}' and len(kept(ANNA)) == 1
        assert s.post("/slots/%d?action=save" % slot, {"filename": "a"}, status=403, headers=BERT)["error"]["type"] == "permission_error"
        s.post("/slots/%d?action=erase" % slot, {}, status=403, headers=BERT)
        s.post("/slots/%d?action=save" % slot, {"filename": "a"}, headers=ANNA)
        s.post("/slots/%d?action=restore" % (1 - slot), {"filename": "a"}, status=400, headers=BERT)  # another's file is not there
        s.post("/slots/%d?action=restore" % (1 - slot), {"filename": "a"}, headers=ANNA)
        s.post("/slots/%d?action=erase" % slot, {}, headers=CHIEF)
        assert s.ask("DELETE", "/v1/moraine/sessions", headers=CHIEF)[0] == 200 and kept(ANNA) == []


ADMINISTRATION = [("POST", "/models/load"), ("POST", "/v1/models/unload"), ("DELETE", "/api/delete"), ("POST", "/api/pull"), ("POST", "/api/create"),
                  ("POST", "/lora-adapters"), ("POST", "/moe-layer-perf"), ("POST", "/moe-hot-cache"), ("GET", "/moe-hot-cache?json={}"),
                  ("POST", "/props")]


def administration_needs_an_administrator():
    # A key that is given both ways has the rights of the file: Anna is no administrator.
    with Server("--api-key-file", key_file(), "--api-key", "of-the-option,of-anna", env={}) as s:
        for method, where in ADMINISTRATION:
            code, text, _ = s.ask(method, where, {"model": "pebble"}, headers=ANNA)
            assert code == 403 and "administrator" in text, (where, code, text)
        for key in (CHIEF, {"x-api-key": "of-the-option"}):
            for method, where in ADMINISTRATION:
                assert s.ask(method, where, {"model": "nothing"}, headers=key)[0] != 403, where
        s.post("/api/generate", {"model": "pebble", "keep_alive": 0}, status=403, headers=ANNA)
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
        connection.request("GET", "/v1/moraine/events?log=1", headers=ANNA)
        answer, heard = connection.getresponse(), b""
        while b"administrator" not in heard:
            heard += answer.read1()
        assert b"listening" not in heard
        connection.close()
        s.post("/api/generate", {"model": "pebble", "prompt": "x", "stream": False, "keep_alive": 0, "options": {"num_predict": 1}}, headers=ANNA)
        assert s.get("/api/ps", headers=ANNA)["models"], "another's keep_alive unloads nothing"
        s.post("/api/generate", {"model": "pebble", "keep_alive": 0}, headers=CHIEF)
        assert until(lambda: not s.get("/api/ps", headers=ANNA)["models"])
    with Server() as s:
        assert s.post("/models/unload", {"model": "pebble"})["success"]


TESTS = [prefixes_belong_to_a_client, keys_share_prefixes_where_that_is_wanted, what_was_computed_before_anybody_asked_is_for_all,
         answers_belong_to_who_asked, sessions_belong_to_a_client, administration_needs_an_administrator]

if __name__ == "__main__":
    sys.exit(test_server.run(TESTS))
