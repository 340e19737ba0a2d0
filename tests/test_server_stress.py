#!/usr/bin/env python3
"""test_server_stress.py BUILD [NAME ...]: eight clients use every part of a server at once, each at random.

Answers stream, are cancelled by clients that leave, come with an adapter, under a schema or from kept sessions; slots are saved and restored, models
unloaded and loaded, and all is reported meanwhile. Greedy answers that were read to the end are what they are alone. MORAINE_STRESS_SECONDS: how long
each place is used; by default two seconds. With a build under a sanitizer (MO_SLOW=1) the server's log may have no report of it.
"""
import http.client
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time

import test_server
from test_server import FOLDER, SLOW, Server, generation, tap
from test_server_faults import adapter

CLIENTS, SECONDS = 8, float(os.environ.get("MORAINE_STRESS_SECONDS", "2"))
PROMPTS = ["Once upon a time", "The river", "3 + 4 =", "In a green forest"]


class Client(threading.Thread):
    def __init__(self, server, number, expected, ends_at):
        super().__init__()
        self.server, self.expected, self.ends_at = server, expected, ends_at
        self.chance, self.compared, self.problem = random.Random(number), 0, None

    def plain(self):
        """A greedy answer, sometimes of a prompt that is computed anew."""
        i = self.chance.randrange(len(PROMPTS))
        body = generation(16, prompt=PROMPTS[i], stream=False, cache_prompt=self.chance.random() < 0.7)
        code, text, _ = self.server.ask("POST", "/completion", body, timeout=120)
        assert code == 200, (code, text)
        assert json.loads(text)["content"] == self.expected[i], (PROMPTS[i], text)
        self.compared += 1

    def leaves(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120 * SLOW)
        connection.request("POST", "/completion", json.dumps(generation(200, prompt=self.chance.choice(PROMPTS))))
        connection.getresponse().read(self.chance.randrange(1, 400))
        connection.close()

    def constrained(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
        body = {"messages": [{"role": "user", "content": "Name a bird."}], "max_tokens": 24, "temperature": 1, "logprobs": True,
                "response_format": {"type": "json_schema", "json_schema": {"name": "bird", "schema": schema}}}
        code, text, _ = self.server.ask("POST", "/v1/chat/completions", body, timeout=120)
        assert code == 200, (code, text)

    def adapted(self):
        body = generation(8, prompt=self.chance.choice(PROMPTS), stream=False, lora=[{"id": 0, "scale": 0.5}])
        code, text, _ = self.server.ask("POST", "/completion", body, timeout=120)
        assert code == 200, (code, text)

    def slots(self):
        slot, action = self.chance.randrange(4), self.chance.choice(["save", "restore", "erase"])
        code, text, _ = self.server.ask("POST", "/slots/%d?action=%s" % (slot, action), {"filename": "slot%d.bin" % slot}, timeout=120)
        assert code < 500 or code == 503, (code, text)

    def reports(self):
        where = self.chance.choice(["/metrics", "/slots", "/v1/moraine/status", "/v1/moraine/sessions", "/v1/models", "/health", "/props"])
        code, text, _ = self.server.ask("GET", where, timeout=120)
        assert code == 200 or (code == 503 and ("not loaded" in text or where == "/health")), (where, code, text)

    def unloads(self):
        if self.chance.random() < 0.1:  # loading takes longer than most answers
            code, text, _ = self.server.ask("POST", "/models/unload", {"model": "pebble"}, timeout=120)
            assert code in (200, 400), (code, text)

    def run(self):
        acts = [self.plain, self.plain, self.leaves, self.constrained, self.adapted, self.slots, self.reports, self.unloads]
        try:
            while time.monotonic() < self.ends_at:
                self.chance.choice(acts)()
        except Exception as problem:  # told by the test
            self.problem = problem


def stressed(*words):
    folder = tempfile.mkdtemp(dir=FOLDER)
    words = ["--lora", adapter("small.gguf", 0.01) + ":0", "--slot-save-path", folder, "--cache-dir", tempfile.mkdtemp(dir=FOLDER), "--ctx-size", "1024",
             *words]
    with Server(*words) as s:
        expected = [s.post("/completion", generation(16, prompt=text, stream=False))["content"] for text in PROMPTS]
        clients = [Client(s, i, expected, time.monotonic() + SECONDS) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        problems = [client.problem for client in clients if client.problem]
        assert not problems, (problems, s.log()[-4000:])
        assert sum(client.compared for client in clients) > 0
        log = s.stop()
        assert "Sanitizer" not in log, log[log.index("Sanitizer") - 200:][:4000]
        print("# %d answers compared" % sum(client.compared for client in clients))


def clients_on_the_cpu():
    stressed("--device", "none")


def clients_of_experts_on_disk():
    stressed("--device", "none", "--ram", "60M")


def clients_on_a_device():
    stressed("--device", "sim")


if __name__ == "__main__":
    try:
        sys.exit(tap.run([clients_on_the_cpu, clients_of_experts_on_disk, clients_on_a_device], sys.argv[2:]))
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
