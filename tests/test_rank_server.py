#!/usr/bin/env python3
"""test_rank_server.py BUILD [NAME ...]: a server whose model is divided among two ranks, several sequences of which run when a rank is killed or stopped.

Rank 0 ends within seconds and names it; every stream ends, and what it has told by then is the beginning of the right answer; started again, as a
unit does, the server goes on from the sessions it had kept. Ranks find each other by sockets (support/socket_module.c), without mpirun, which
would end the others itself. Speaks TAP.
"""
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import test_server
from test_server import FOLDER, PEBBLE, SLOW, Server, generation, until

BUILD = os.path.abspath(sys.argv[1])
TIMEOUT = 3  # seconds: --rank-timeout
KEPT = ["Once upon a time there was a fox who lived in a wood and had a friend. " * 6,
        "The hen and the cat went to the market on a cold morning in winter. " * 6]
STREAMS = [KEPT[0] + "One day", KEPT[1] + "One day", "A child asked the moon", "Far away in the north"]
LENGTH = 120


def with_sockets():
    """A folder with the program and the module that connects ranks by sockets."""
    folder = tempfile.mkdtemp(dir=FOLDER)
    shutil.copy(os.path.join(BUILD, "moraine"), folder)
    shutil.copy(os.path.join(BUILD, "tests", "socket_module.so"), os.path.join(folder, "moraine-mpi.so"))
    return os.path.join(folder, "moraine")


class Ranks:
    """Rank 0, a server, and rank 1."""

    def __init__(self, program, way, *more):
        meeting = tempfile.mkdtemp(dir=FOLDER)
        words = [PEBBLE, "--threads", "1", "--divide", way, "--parallel", "4", "--ctx", "2048", "--rank-timeout", str(TIMEOUT), *more]

        def env(rank):
            return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "SOCKET_RANKS": meeting}

        self.other = subprocess.Popen([program, "serve", "--port", "0", "--profile", "off", *words], stderr=subprocess.DEVNULL,
                                      env={**test_server.environment, **env(1)})
        before, test_server.PROGRAM = test_server.PROGRAM, program
        try:
            self.server = Server(*words, env=env(0))
        finally:
            test_server.PROGRAM = before

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.server.__exit__(kind, value, trace)
        if self.other.poll() is None:
            self.other.kill()
        self.other.wait()


class Stream(threading.Thread):
    """An answer on its way: its text so far, and whether it was told to the end."""

    def __init__(self, port, prompt):
        super().__init__(daemon=True)
        self.port, self.prompt, self.text, self.whole, self.failed = port, prompt, "", False, None
        self.start()

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
            connection.request("POST", "/completion", json.dumps(generation(LENGTH, prompt=self.prompt)))
            for line in connection.getresponse():
                if line.startswith(b"data: "):
                    told = json.loads(line[6:])
                    self.text += told.get("content", "")
                    self.whole |= bool(told.get("stop"))
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.failed = problem


def answer(server, prompt, length=8):
    told = server.post("/completion", generation(length, stream=False, prompt=prompt, cache_prompt=True), timeout=60)
    return told["content"], told["timings"]["cache_n"]


def interrupt(way, how, when):
    program, kept = with_sockets(), tempfile.mkdtemp(dir=FOLDER)
    with Server(PEBBLE, "--threads", "1", "--parallel", "4", "--ctx", "2048") as s:
        whole = [s.post("/completion", generation(LENGTH, stream=False, prompt=p), timeout=60)["content"] for p in STREAMS]
        short = [answer(s, p)[0] for p in KEPT]
    with Ranks(program, way, "--cache-dir", kept) as ranks:
        assert [answer(ranks.server, p)[0] for p in KEPT] == short
        assert until(lambda: len([n for n in os.listdir(kept) if n.endswith(".session")]) >= 2, 20), os.listdir(kept)
        streams = [Stream(ranks.server.port, p) for p in STREAMS]
        assert until(lambda: sum(len(s.text) >= when for s in streams) >= (3 if when else 0), 60), [s.text for s in streams]
        ranks.other.send_signal(how)
        began = time.monotonic()
        code = ranks.server.process.wait(60 * SLOW)
        took = time.monotonic() - began
        for s in streams:
            s.join(10 * SLOW)
            assert not s.is_alive(), "a stream hangs"
        ranks.server.thread.join(5)
        assert code == 1 and took < (4 * TIMEOUT + 5) * SLOW * test_server.tap.crowd(), (code, took, ranks.server.log())
        assert "rank 1" in ranks.server.log(), ranks.server.log()
        for s, right in zip(streams, whole):
            assert right.startswith(s.text), (s.text, right)
            assert not s.whole or s.text == right, (s.text, right)
        assert not all(s.whole for s in streams), "nothing was interrupted"
    with Ranks(program, way, "--cache-dir", kept) as ranks:
        again = [answer(ranks.server, p) for p in KEPT]
        assert [text for text, _ in again] == short, again
        assert all(found > 0 for _, found in again), again
        streams = [Stream(ranks.server.port, p) for p in STREAMS]
        for s, right in zip(streams, whole):
            s.join(60 * SLOW)
            assert s.whole and s.text == right, (s.text, right, s.failed)
        ranks.server.stop()
        assert ranks.other.wait(20 * SLOW) == 0


def a_rank_with_layers_is_killed_while_answers_stream():
    interrupt("layers", signal.SIGKILL, 40)


def a_rank_with_layers_is_killed_while_prompts_are_read():
    interrupt("layers", signal.SIGKILL, 0)


def a_rank_with_experts_is_killed_while_answers_stream():
    interrupt("experts", signal.SIGKILL, 40)


def a_rank_with_experts_is_stopped_while_answers_stream():
    interrupt("experts", signal.SIGSTOP, 40)


def plan_of_part(way, words):
    """What a divided server says of other budgets is about rank 0's part, whatever the ranks do meanwhile."""
    with Server(PEBBLE, "--threads", "1", "--parallel", "4", "--ctx", "2048", *words) as s:
        whole = s.get("/v1/moraine/plan")
    with Ranks(with_sockets(), way, *words) as ranks:
        s = ranks.server
        tiers = s.get("/v1/moraine/status")["models"][0]["tiers"]
        streams = [Stream(s.port, p) for p in STREAMS]
        plans = [s.get("/v1/moraine/plan") for _ in range(4)]
        roomy, tight = s.get("/v1/moraine/plan?ram=4G"), s.get("/v1/moraine/plan?ram=%d" % (tiers["planned_bytes"] * 9 // 10))
        for stream in streams:
            stream.join(60 * SLOW)
            assert stream.whole, (stream.text, stream.failed)
        mine = plans[0]
        for p in plans: # what is free on the machine changes meanwhile
            assert {**p, "available_bytes": 0} == {**mine, "available_bytes": 0}, (p, mine)
        assert mine["used_bytes"] == tiers["planned_bytes"] and mine["ceiling_bytes"] == tiers["ceiling_bytes"], (mine, tiers)
        assert (mine["layers"] < whole["layers"]) == (way == "layers"), (mine, whole)
        assert mine["classes"][0]["experts"] < whole["classes"][0]["experts"], (mine, whole)
        assert roomy["layers"] >= mine["layers"] and tight["used_bytes"] < mine["used_bytes"], (roomy, mine, tight)
        assert "ram" in s.get("/v1/moraine/plan?ram=1M", status=400)["error"]["message"]
        ranks.server.stop()
        assert ranks.other.wait(20 * SLOW) == 0


def plans_are_of_rank_0s_layers():
    plan_of_part("layers", ["--ram", "1G", "--cache-ram", "0"])


def plans_are_of_rank_0s_experts():
    plan_of_part("experts", ["--ram", "1G", "--cache-ram", "0"])


def plans_are_of_rank_0s_device():
    plan_of_part("layers", ["--ram", "1G", "--cache-ram", "0", "--device", "sim", "--vram", "24M"])


TESTS = [plans_are_of_rank_0s_layers, plans_are_of_rank_0s_experts, plans_are_of_rank_0s_device, a_rank_with_layers_is_killed_while_answers_stream, a_rank_with_layers_is_killed_while_prompts_are_read,
         a_rank_with_experts_is_killed_while_answers_stream, a_rank_with_experts_is_stopped_while_answers_stream]

if __name__ == "__main__":
    sys.exit(test_server.run(TESTS))
