#!/usr/bin/env python3
"""page.py BUILD [ROUNDS] [SECONDS]: what the page costs a decoding server that it watches: the built-in model, and models with the layers and
experts of qwen3-30b-a3b (48 x 128) and deepseek-v3 (61 x 256) and tiny matrices (make_narrow), whose tokens are short, so that what is
measured is more than with the real ones.

In each round an answer is decoded alone, watched by a client that reads the map's events as the page does, and watched by the page with its
map in Debian's Chromium on this machine, in changing order. Printed are medians over the rounds: tokens/s, their ratio to those alone of the same
round, the processor time of the server per token, and that of the browser per second: all of its processes, which draw without a GPU. The server
has one thread, so that the browser has a core of its own.
"""
import http.client
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

build = os.path.abspath(sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 4
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
folder = tempfile.mkdtemp(prefix="moraine-page-")


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == 200, (path, answer.status, text[:300])
    return text


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([os.path.join(build, "moraine"), "serve", model, "--port", "0", "--threads", "1", "--ctx", "4096", "--parallel", "1",
                                         "--profile", "off"], stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CACHE_HOME": folder})
        for line in self.process.stderr:
            if " ready " in line:
                self.port = int(re.search(r"http://[^:]*:(\d+)", line)[1])
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def work(self):
        """Processor time of all its threads so far, in seconds."""
        tasks, total = "/proc/%d/task" % self.process.pid, 0
        for task in os.listdir(tasks):
            with open(os.path.join(tasks, task, "schedstat")) as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def decode(self, tokens):
        """tokens/s, and milliseconds of a core per token."""
        before = self.work()
        answer = json.loads(ask(self.port, "POST", "/completion", {"prompt": [5, 6, 7], "n_predict": tokens, "ignore_eos": True, "cache_prompt": False, "seed": 1}))
        assert answer["tokens_predicted"] == tokens, answer
        return answer["timings"]["predicted_per_second"], 1000 * (self.work() - before) / tokens


class Nobody:
    def __init__(self, server):
        pass

    def work(self):
        return 0

    def close(self):
        pass


class Stream:
    """Reads the events that the view of experts reads."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.request("GET", "/v1/moraine/events?experts=1&log=0")
        self.answer, self.bytes, self.done = self.connection.getresponse(), 0, False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.done:
            self.bytes += len(self.answer.read1(1 << 20))

    def work(self):
        return 0

    def close(self):
        self.done = True
        self.thread.join()  # the next event, which comes while the server says how it is
        self.connection.close()


class Browser:
    def __init__(self):
        program = shutil.which("chromium") or shutil.which("google-chrome")
        self.process = None
        if program:
            self.process = subprocess.Popen([program, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--remote-debugging-port=0", "--user-data-dir=" + os.path.join(folder, "browser"),
                                             "--window-size=1280,800", "about:blank"], stderr=subprocess.PIPE, text=True, start_new_session=True)
            for line in self.process.stderr:
                found = re.search(r"DevTools listening on ws://[^:]*:(\d+)", line)
                if found:
                    self.port = int(found[1])
                    break
            threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def work(self):
        """Processor time of all its processes so far, in seconds: they are a session of their own."""
        ticks = 0
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/stat" % name) as f:
                    fields = f.read().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue  # no process, or one that has just ended
            ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == self.process.pid else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def page(self, server):
        """Opens the page with the map; close() closes it."""
        browser, tab = self, json.loads(ask(self.port, "PUT", "/json/new?http://127.0.0.1:%d/#experts" % server.port))

        class Page:
            def work(self):
                return browser.work()

            def close(self):
                ask(browser.port, "GET", "/json/close/" + tab["id"])

        time.sleep(2)  # until it is drawn
        return Page()

    def close(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()


def measure(name, model, browser):
    server = Server(model)
    ways = {"alone": Nobody, "events": Stream}
    if browser.process:
        ways["page"] = browser.page
    try:
        tokens = max(64, min(3500, int(seconds * server.decode(64)[0])))
        speeds, works, shown = {way: [] for way in ways}, {way: [] for way in ways}, {way: [] for way in ways}
        for number in range(rounds):
            order = list(ways)
            for way in order[number % len(order):] + order[:number % len(order)]:
                watcher = ways[way](server)
                before, began = watcher.work(), time.monotonic()
                speed, work = server.decode(tokens)
                shown[way].append((watcher.work() - before) / (time.monotonic() - began))
                watcher.close()
                time.sleep(0.3)
                speeds[way].append(speed)
                works[way].append(work)
        for way in ways:
            ratio = statistics.median(s / a for s, a in zip(speeds[way], speeds["alone"]))
            print("%-24s %-7s %8.1f tokens/s  %.4f of alone (best of all rounds %.4f)  %.3f ms of a core per token; browser %.1f %% of a core" %
                  (name, way, statistics.median(speeds[way]), ratio, max(speeds[way]) / max(speeds["alone"]), statistics.median(works[way]),
                   100 * statistics.median(shown[way])), flush=True)
    finally:
        server.process.terminate()
        server.process.wait()


browser = Browser()
try:
    print("%d rounds of %.0f seconds; %d cores, the server has one" % (rounds, seconds, os.cpu_count()), flush=True)
    measure("pebble", "models/pebble.gguf", browser)
    for name in ("qwen3-30b-a3b", "deepseek-v3"):
        path = os.path.join(folder, name + ".gguf")
        subprocess.run([os.path.join(build, "bench", "make_narrow"), name, path], check=True)
        measure(name + ", narrow", path, browser)
        os.remove(path)
finally:
    browser.close()
    shutil.rmtree(folder, ignore_errors=True)
