#!/usr/bin/env python3
"""soak_server.py BUILD: SOAK_MINUTES (60) of everything that clients do to a server, with faults beneath it (make soak-server).

Twelve clients ask in four dialects: answers that are read, whole and streamed, vanishing clients, slow readers, idle connections, malformed requests,
long prompts, schemas. The model is the built-in one in F32 (SOAK_MODEL names another), --ram one and a half times its file, or as little as is accepted
(SOAK_RAM); there is a cache directory, reads fail at random (one in SOAK_FAULT_EVERY, 5000), and the server is started again every five minutes
(SOAK_RESTART seconds) with a simulated device that is lost after a random number of copies. Every greedy answer must be what it is without all that; an
answer may end with an error only where a read has failed; at the end of each start open files and resident memory are compared with those of the
first; in half an hour or more each of these has to have happened. SOAK_SEED chooses another order.
"""
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from test_server import FOLDER, PEBBLE, PROGRAM, Server, environment, generation, open_files, resident, until

MINUTES, RESTART, SEED = (float(os.environ.get(name, default)) for name, default in (("SOAK_MINUTES", 60), ("SOAK_RESTART", 300), ("SOAK_SEED", 1)))
MODEL = os.environ.get("SOAK_MODEL") or os.path.join(FOLDER, "pebble-f32.gguf")
PROMPTS = ["Once upon a time", "The river", "3 + 4 =", "In a green forest", "The old fox said " * 60]
FAULTS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
static _Atomic uint64_t calls, failed;
/* At random, so that a read that is made again can fail too; not while the model is opened. */
static bool fails(void)
{
    const char *every = getenv("SOAK_FAULT_EVERY");
    const uint64_t n = every ? (uint64_t)atoi(every) : 0, number = ++calls;
    uint64_t x = number * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return n && number > 2000 && (x >> 32) % n == 0;
}
ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    real = real ? real : (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (size >= 4096 && fails()) {
        failed++;
        errno = EIO;
        return -1;
    }
    return real(fd, to, size, at);
}
ssize_t pread64(int fd, void *to, size_t size, off_t at) { return pread(fd, to, size, at); }
struct io_uring;
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) /* all is read by pread() */
{
    (void)entries, (void)ring, (void)flags;
    return -ENOSYS;
}
__attribute__((destructor)) static void tell(void) { fprintf(stderr, "%llu reads have failed\\n", (unsigned long long)failed); }
"""
MALFORMED = [b"GET /health HTTP/1.1\nHost: localhost\n\n", b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: +16\r\n\r\n{}",
             b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{\"prompt\":", b"\0" * 100,
             b"POST /completion HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"GET / HTTP/9.9\r\n\r\n"]


class Tally:
    def __init__(self):
        self.lock, self.counts, self.problems = threading.Lock(), {}, []

    def add(self, name, count=1):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + count

    def wrong(self, what):
        with self.lock:
            self.problems.append(what)


def dialects(i, chance):
    """Path, body and how to read the text of a whole answer, for a greedy one of prompt i."""
    talk = [{"role": "user", "content": PROMPTS[i]}]
    return chance.choice([
        ("/completion", generation(24, stream=False, prompt=PROMPTS[i]), lambda a: a["content"]),
        ("/v1/chat/completions", {"messages": talk, "max_tokens": 24, "temperature": 0}, lambda a: a["choices"][0]["message"]["content"]),
        ("/v1/messages", {"messages": talk, "max_tokens": 24, "temperature": 0}, lambda a: a["content"][0]["text"]),
        ("/api/chat", {"model": "x", "messages": talk, "stream": False, "options": {"num_predict": 24, "temperature": 0}}, lambda a: a["message"]["content"])])


def streamed(answer):
    """The text of a stream in any of the four dialects, and whether its end came; an error's message is in the text."""
    text, ended = "", False
    for line in answer.split("\n"):
        line = line.removeprefix("data: ").strip()
        ended = ended or line == "[DONE]"
        if not line.startswith("{"):
            continue
        d = json.loads(line)
        if "error" in d:
            return json.dumps(d), False
        delta = d["delta"] if "delta" in d else d["choices"][0]["delta"] if d.get("choices") else d.get("message", d)
        piece = delta.get("content") or delta.get("text") if isinstance(delta, dict) else ""
        text += piece if isinstance(piece, str) else ""
        ended = ended or d.get("stop") is True or d.get("done") is True or d.get("type") == "message_stop"
    return text, ended


def kind_of(where):
    return "raw" if where == "/completion" else "chat"


class Client(threading.Thread):
    def __init__(self, server, seed, expected, tally, over):
        super().__init__(daemon=True)
        self.server, self.chance, self.expected, self.tally, self.over = server, random.Random(seed), expected, tally, over
        self.idle = []

    def greedy(self):
        i = self.chance.randrange(len(PROMPTS))
        where, body, text = dialects(i, self.chance)
        stream = self.chance.random() < 0.5
        code, answer, _ = self.server.ask("POST", where, {**body, "stream": stream}, timeout=300)
        if code == 200 and stream:
            said, ended = streamed(answer)
            if not ended:
                self.check_error(where, code, said)
                return
        elif code == 200:
            said = text(json.loads(answer))
        else:
            self.check_error(where, code, answer)
            return
        self.tally.add("streams compared" if stream else "answers compared")
        if said != self.expected[kind_of(where), i]:
            self.tally.wrong(("wrong text", where, stream, PROMPTS[i][:30], answer[:400]))

    def check_error(self, where, code, answer):
        """Only a read that failed, or a full queue, may cost an answer."""
        if code in (429, 503):
            self.tally.add("answers that were refused")
        elif "read" in answer:
            self.tally.add("answers that ended with a read's error")
        else:
            self.tally.wrong(("lost", where, code, answer[:400]))

    def open(self, body, where="/completion"):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        connection.request("POST", where, json.dumps(body))
        return connection

    def vanish(self):
        where, body, _ = dialects(self.chance.randrange(len(PROMPTS)), self.chance)
        connection = self.open({**body, "stream": True, "max_tokens": 400, "n_predict": 400}, where)
        if self.chance.random() < 0.7:
            connection.getresponse().read(self.chance.randrange(1, 300))
        connection.close()
        self.tally.add("clients that vanished")

    def slow(self):
        connection = self.open(generation(120, prompt=self.chance.choice(PROMPTS)))
        answer = connection.getresponse()
        for _ in range(self.chance.randrange(1, 8)):
            answer.read(40)
            self.over.wait(0.3)
        connection.close()
        self.tally.add("slow readers")

    def idles(self):
        self.idle.append(socket.create_connection(("127.0.0.1", self.server.port)))
        while len(self.idle) > 8:
            self.idle.pop(0).close()
        self.tally.add("idle connections")

    def malformed(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as s:
            s.sendall(self.chance.choice(MALFORMED))
            if self.chance.random() < 0.5:
                s.shutdown(socket.SHUT_WR)
            s.settimeout(1)
            try:
                s.recv(1000)
            except (socket.timeout, ConnectionError):
                pass
        self.tally.add("malformed requests")

    def long(self):
        prompt = [5 + self.chance.randrange(4000) for _ in range(self.chance.randrange(300, 1500))]
        code, text, _ = self.server.ask("POST", "/completion", generation(4, stream=False, prompt=prompt), timeout=300)
        self.tally.add("long prompts")
        if code != 200:
            self.check_error("long", code, text)

    def schema(self):
        form = {"type": "object", "properties": {"n": {"enum": [self.chance.randrange(100)]}}, "required": ["n"], "additionalProperties": False}
        body = {"messages": [{"role": "user", "content": "A number"}], "max_tokens": 40,
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": form}}}
        code, text, _ = self.server.ask("POST", "/v1/chat/completions", body, timeout=300)
        if code == 200:
            choice = json.loads(text)["choices"][0]
            if choice["finish_reason"] == "stop" and json.loads(choice["message"]["content"])["n"] not in form["properties"]["n"]["enum"]:
                self.tally.wrong(("schema", text))
        else:
            self.check_error("schema", code, text)
        self.tally.add("schemas")

    def run(self):
        deeds = [self.greedy] * 6 + [self.vanish] * 2 + [self.slow, self.idles, self.malformed, self.long, self.schema]
        while not self.over.is_set():
            deed = self.chance.choice(deeds)
            try:
                deed()
            except Exception as error:
                if not self.over.is_set():
                    self.tally.wrong((deed.__name__, repr(error)))
        for s in self.idle:
            s.close()


def expectations():
    """What greedy answers are without any of it."""
    out, chance = {}, random.Random(0)
    with Server(MODEL, "--parallel", "4") as s:
        for i in range(len(PROMPTS)):
            while len([k for k in out if k[1] == i]) < 2:
                where, body, text = dialects(i, chance)
                out.setdefault((kind_of(where), i), text(s.post(where, body, timeout=120)))
    return out


def ceiling():
    """The least of --ram that is accepted, from one and a half times the file on."""
    mib = int(os.path.getsize(MODEL) * 1.5 / 2**20)
    while True:
        with Server(MODEL, "--parallel", "4", "--device", "sim", "--ram", "%dM" % mib, wait=False) as s:
            if s.ready.wait(60) and not s.ended:
                return "%dM" % mib
        mib += 4
        assert mib < 4096, s.log()


def faults_library():
    source, library = os.path.join(FOLDER, "faults.c"), os.path.join(FOLDER, "faults.so")
    with open(source, "w") as f:
        f.write(FAULTS)
    compiled = subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], capture_output=True)
    return library if compiled.returncode == 0 else None


def one_start(number, ends_at, words, env, expected, tally, chance):
    with Server("--parallel", "4", "--device", "sim", *words, wait=False, env={**env, "MORAINE_SIM": "fault=lost:%d" % chance.randrange(500, 60000)}) as s:
        assert s.ready.wait(120) and not s.ended, s.log()
        over = threading.Event()
        clients = [Client(s, chance.random(), expected, tally, over) for _ in range(12)]
        for client in clients:
            client.start()
        over.wait(max(1, ends_at - time.monotonic()))
        over.set()
        for client in clients:
            client.join(320)
        if not until(lambda: s.get("/v1/moraine/status")["http"]["busy"] == 1, 30):
            tally.wrong(("still busy after all have left", s.get("/v1/moraine/status")["http"]))
        seen = resident(s), open_files(s), "lost" in s.log()
        tally.add("reads that failed", int((re.findall(r"(\d+) reads have failed", s.stop()) or ["0"])[0]))
        return seen


def main():
    tally, chance, seen = Tally(), random.Random(SEED), []
    if "SOAK_MODEL" not in os.environ:
        subprocess.run([PROGRAM, "quantize", PEBBLE, MODEL, "--experts", "f32", "--rest", "f32"], env=environment, check=True, capture_output=True)
    expected, library = expectations(), faults_library()
    ram = os.environ.get("SOAK_RAM") or ceiling()
    words = [MODEL, "--ram", ram, "--cache-dir", tempfile.mkdtemp(dir=FOLDER), "--cache-dir-mib", "64", "--cache-ram", "8"]
    env = {"LD_PRELOAD": library, "SOAK_FAULT_EVERY": os.environ.get("SOAK_FAULT_EVERY", "5000")} if library else {}
    print("%g minutes, --ram %s, a start every %g s, reads %s" % (MINUTES, ram, RESTART, "fail now and then" if library else "do not fail: there is no compiler"), flush=True)
    end = time.monotonic() + MINUTES * 60
    while time.monotonic() < end and not tally.problems:
        seen.append(one_start(len(seen), min(end, time.monotonic() + RESTART), words, env, expected, tally, chance))
        print("start %d: %.1f MiB, %d open files, device %s; %s" % (len(seen), *seen[-1][:2], "lost" if seen[-1][2] else "kept",
                                                                   ", ".join("%d %s" % (n, k) for k, n in sorted(tally.counts.items()))), flush=True)
    grown = max(s[0] for s in seen) - seen[0][0]
    if len(seen) > 1 and grown > 48:
        tally.wrong(("resident memory grew from start to start", seen))
    wanted = ["answers compared", "streams compared", "clients that vanished", "slow readers", "idle connections", "malformed requests", "long prompts", "schemas"]
    if MINUTES >= 30:
        wanted += ["reads that failed", "answers that ended with a read's error"] if library else []
        if not any(s[2] for s in seen):
            tally.wrong("no device was lost")
    for name in wanted:
        if not tally.counts.get(name):
            tally.wrong("there were no " + name)
    for problem in tally.problems[:10]:
        print("not ok:", problem)
    shutil.rmtree(FOLDER, ignore_errors=True)
    print("ok" if not tally.problems else "FAILED: %d problems" % len(tally.problems))
    return bool(tally.problems)


if __name__ == "__main__":
    sys.exit(main())
