#!/usr/bin/env python3
"""server_keys.py BUILD [MODEL]: 64 clients with 64 keys and one system prompt, with and without --share-prefixes.

Each client asks twice, all of them at once. Prints for both ways: tokens of prompts that were computed and found, kept bytes, time to the first
token (median and the latest) of the first and the second question, and how long all took. KEYS=64, WORDS=400 (of the system prompt), TOKENS=16.
"""
import concurrent.futures
import http.client
import json
import os
import statistics
import subprocess
import re
import sys
import tempfile
import time

PROGRAM = os.path.join(os.path.abspath(sys.argv[1]), "moraine")
MODEL = sys.argv[2:3]
KEYS, WORDS, TOKENS = (int(os.environ.get(name, default)) for name, default in (("KEYS", 64), ("WORDS", 400), ("TOKENS", 16)))
SYSTEM = " ".join("Rule %d: tell of the fox, the hen and the wood." % i for i in range(WORDS // 10))


def ask(port, key, question):
    """Seconds until the first event with text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
    talk = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    began, first = time.monotonic(), None
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": talk, "max_tokens": TOKENS, "temperature": 0, "stream": True,
                                                                   "ignore_eos": True}), {"Authorization": "Bearer " + key})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    for line in answer:
        if first is None and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - began
    connection.close()
    return first


def measure(*words):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("".join("key-%d\n" % i for i in range(KEYS)))
        keys.flush()
        server = subprocess.Popen([PROGRAM, "serve", *MODEL, "--port", "0", "--profile", "off", "--api-key-file", keys.name, "--parallel", "8",
                                   *words], stderr=subprocess.PIPE, text=True)
        try:
            port = None
            for line in server.stderr:
                port = port or (re.search(r"listening at=\S*:(\d+)", line) or [None, None])[1]
                if " ready " in line:
                    break
            rounds, began = [], time.monotonic()
            for number in range(2):
                with concurrent.futures.ThreadPoolExecutor(KEYS) as pool:
                    rounds.append(list(pool.map(lambda i: ask(int(port), "key-%d" % i, "Question %d of client %d?" % (number, i)), range(KEYS))))
            seconds = time.monotonic() - began
            connection = http.client.HTTPConnection("127.0.0.1", int(port))
            connection.request("GET", "/v1/moraine/status", headers={"Authorization": "Bearer key-0"})
            engine = json.load(connection.getresponse())["models"][0]["engine"]
            return rounds, seconds, engine
        finally:
            server.terminate()
            server.wait()


print("%-22s %9s %9s %9s  %-21s %-21s %8s" % ("%d keys" % KEYS, "computed", "found", "kept MiB", "first token, asked 1st", "asked 2nd (s)", "all (s)"))
for name, words in (("each on its own", []), ("--share-prefixes", ["--share-prefixes"])):
    rounds, seconds, engine = measure(*words)
    times = ["%.2f, latest %.2f" % (statistics.median(r), max(r)) for r in ([t for t in one if t is not None] for one in rounds)]
    print("%-22s %9d %9d %9.1f  %-21s %-21s %8.1f" % (name, engine["prompt_tokens"], engine["cached_tokens"],
                                                     engine["kept_session_bytes"] / 2**20, times[0], times[1], seconds), flush=True)
