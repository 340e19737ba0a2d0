#!/usr/bin/env python3
"""test_page.py BUILD [SCRIPT.js] ["NAME OF A TEST"]: the page that browsers see, over HTTP and in Debian's Chromium.

The tests in the browser are page/*.js, with playwright-core and axe-core from npm (page/package.json pins them) in BUILD/page.
Where there is no browser or npm cannot be reached they are skipped, and say so. Pictures are left in BUILD/page/pictures.
Speaks TAP.
"""
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(here, "support"))
import npm_packages
import test_server as server

BUILD = os.path.abspath(sys.argv[1])
HTML = {"Accept": "text/html,application/xhtml+xml"}
PACKED = {"Accept-Encoding": "gzip, deflate"}
# What the scripted model says, by a word of the prompt.
MARKDOWN = ("## A heading\\n\\nProse with *stress*, `code` and $\\frac{a}{b}$.\\n\\n$$x^2 + y^2 = z^2$$\\n\\n```python\\ndef f(x):\\n    return x + 1\\n```\\n\\n"
            "| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n- one\\n- two\\n")
HOSTILE = ("<img src=x onerror=\"window.hacked=1\"> <script>window.hacked=2</script> <iframe src='javascript:alert(1)'></iframe>\\n\\n"
           "[a](javascript:alert(2)) [b](data:text/html,x) ![c](https://elsewhere.example/x.png) [d](https://elsewhere.example/)\\n\\n"
           "<svg onload=alert(3)><style>*{display:none}</style></svg> <a href=\"&#106;avascript:alert(4)\">x</a> <form action=//elsewhere.example><button>\\n\\n"
           "<div style=\"position:fixed;inset:0\" onclick=alert(5)>$\\href{javascript:alert(6)}{x}$\\n")
LONG = "Many words" + " and more" * 500
CALL = '<think>\\nlook\\n</think>\\n\\n<tool_call>\\n{"name": "get_weather", "arguments": {"city": "Bern"}}\\n</tool_call>'


def page_is_part_of_the_program():
    with server.Server() as s:
        code, text, headers = s.ask("GET", "/", headers=HTML)
        assert code == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and "<title>Moraine</title>" in text
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy, policy
        assert headers["X-Content-Type-Options"] == "nosniff" and "Accept" in headers["Vary"]
        assert s.ask("GET", "/", headers={**HTML, "If-None-Match": headers["ETag"]})[0] == 304
        assert s.ask("GET", "/")[1] == "Ollama is running"
        if "built without the web page" in text:
            return "this build has none"
        assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|https?://", text), "inline scripts or styles"
        total = len(text)
        for name in re.findall(r'(?:src|href)="(page/[^"]+)"', text) + ["page/code.js", "page/math.js"]:
            code, _, headers = ask_bytes(s, "/" + name, PACKED)
            assert code == 200 and headers["Content-Encoding"] == "gzip", name
            total += int(headers["Content-Length"])
            assert ask_bytes(s, "/" + name, {**PACKED, "If-None-Match": headers["ETag"]})[0] == 304
        assert total < 400 << 10, "%d bytes compressed" % total
        assert "Accept-Encoding" in s.ask("GET", "/page/page.js", headers={"Accept-Encoding": "gzip;q=0"})[1]
        for name in ("/page/x.js", "/page/..%2fpage.js", "/page/"):
            assert s.ask("GET", name, headers=PACKED)[0] == 404, name
        code, script, _ = ask_bytes(s, "/page/page.js", PACKED)
        assert b"moraine" in gzip.decompress(script)
        notices = gzip.decompress(ask_bytes(s, "/page/notices.txt", PACKED)[1]).decode()
        for word in ("Christopher Jeffrey", "Khan Academy", "Ivan Sagalaev", "Permission is hereby granted", "Redistributions in binary form"):
            assert word in notices, word


def page_needs_no_key_and_follows_a_prefix():
    with server.Server("--api-key", "secret", "--api-prefix", "/llm") as s:
        code, text, _ = s.ask("GET", "/llm/", headers=HTML)
        assert code == 200 and "<title>Moraine</title>" in text
        assert s.ask("GET", "/llm/v1/moraine/status")[0] == 401


def types_hold():
    """esbuild drops types unread; TypeScript's own compiler reads them."""
    reason = npm_packages.install(here, BUILD, "page")
    if reason:
        return reason
    done = subprocess.run([os.path.join(BUILD, "page", "node_modules", ".bin", "tsc"), "-p", "web"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def ask_bytes(s, where, headers):
    connection = server.http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
    connection.request("GET", where, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def in_the_browser(script, servers, *names):
    """Runs page/SCRIPT against these servers; its lines of TAP, with one more where it did not run to its end."""
    environment = {**os.environ, "MO_SERVERS": json.dumps({k: "http://127.0.0.1:%d/" % s.port for k, s in servers.items()}), "NO_PROXY": "127.0.0.1",
                   "MO_CHROMIUM": browser(), "MO_PIDS": json.dumps({k: s.process.pid for k, s in servers.items()}), "MO_PICTURES": os.path.join(BUILD, "page", "pictures"), "MO_PROGRAM": server.PROGRAM, "MO_DATA": os.path.join(here, "data"),
                   "XDG_CACHE_HOME": server.environment["XDG_CACHE_HOME"]}  # rates that were probed are the same for all
    done = subprocess.run(["node", script, *names], cwd=os.path.join(BUILD, "page"), env=environment, capture_output=True, text=True, timeout=600 + 90 * int(os.environ.get("MO_SOAK", 0)))
    found = re.findall(r"^(not ok|ok) \d+ - (.*)$|^(#.*)$", done.stdout, re.M)
    results, plan = [word for word, _, _ in found if word], re.search(r"^1\.\.(\d+)$", done.stdout, re.M)
    if not plan or int(plan[1]) != len(results) or (done.returncode != 0) != ("not ok" in results):
        planned = plan[1] if plan else "an unknown number of"
        found.append(("not ok", "runs to its end", ""))
        found.append(("", "", "# %d of %s tests ran, exit status %d: %s" % (len(results), planned, done.returncode, done.stderr[-800:].replace("\n", " "))))
    return found


def scripted_models():
    """Two models that say what their scripts say, by a word of the prompt."""
    program = os.path.join(BUILD, "tests", "make_scripted_model")
    for name, scripts in (("scripted", {"": "Hello there, friend.", "@markdown": MARKDOWN, "@hostile": HOSTILE}), ("calls", {"": LONG, "@call": CALL, "sunny": "It is sunny in Bern."})):
        arguments = [program, server.path(name + ".gguf"), "@tests/data/server/hermes.jinja"]
        for number, (word, text) in enumerate(scripts.items()):
            with open(server.path("%s-%d" % (name, number)), "w") as f:
                f.write(text)
            arguments += [word, "@" + f.name] if word else ["@" + f.name]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)


def main():
    wanted, names = [w for w in sys.argv[2:] if " " not in w], [w for w in sys.argv[2:] if " " in w]
    own = [page_is_part_of_the_program, page_needs_no_key_and_follows_a_prefix, types_hold]
    lines, failed = [], 0
    for test in own:
        if wanted and test.__name__ not in wanted:
            continue
        try:
            skip = test()
            lines.append(("ok", test.__name__ + (" # SKIP " + skip if skip else ""), ""))
        except Exception as error:
            lines.append(("not ok", test.__name__, ""))
            lines.append(("", "", "# %s: %s" % (type(error).__name__, error)))
    reason = "there is no Chromium" if not browser() else npm_packages.install(here, BUILD, "page")
    scripts = {"chat.js": ["pebble", "scripted", "calls", "locked", "sees"], "views.js": ["pebble", "sim", "sees"]}
    chosen = [s for s in scripts if not wanted or s in wanted]
    if reason and chosen:
        lines.append(("ok", "the page in a browser # SKIP " + reason, ""))
    elif chosen:
        scripted_models()
        ways = {"pebble": ["--ram", "52M", "--device", "none"], "scripted": [server.path("scripted.gguf"), server.path("calls.gguf"), "--temp", "0"], "calls": [server.path("calls.gguf"), "--temp", "0"], "locked": ["--api-key", "secret"], "sees": ["tests/data/pictures/qwen3vlmoe.gguf", "--ctx", "512", "--device", "none", "--temp", "0", "--n-predict", "12"],
                "sim": ["--device", "sim", "--vram", "28M", "--ram", "50M", "--speculate", "off", "--threads", "2", "--profile", server.path("sim.json")]}
        for script in chosen:
            running = {name: server.Server(*ways[name]) for name in scripts[script]}
            try:
                lines += [(word, "%s: %s" % (script[:-3], title), comment) for word, title, comment in in_the_browser(script, running, *names)]
            finally:
                for s in running.values():
                    s.process.kill()
                    s.process.wait()
    number = 0
    for word, title, comment in lines:
        number += bool(word)
        failed += word == "not ok"
        print("%s %d - %s" % (word, number, title) if word else comment)
    print("1..%d" % number)
    shutil.rmtree(server.FOLDER, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
