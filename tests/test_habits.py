#!/usr/bin/env python3
"""test_habits.py BUILD [NAME ...]: what fingers know from other programs: `run MODEL "prompt"`, ls, show, ps, stop, version, models by short names, help
in groups, completion.

Speaks TAP, as the other test programs do.
"""
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import tap
from fake_hub import Hub

try:
    import pexpect
except ImportError:  # another python before Debian's, which has it
    if os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
    raise

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "moraine")
FOLDER = tempfile.mkdtemp(prefix="moraine-habits-")
STORE = os.path.join(FOLDER, "data/moraine/models")
PEBBLE = os.path.abspath("models/pebble.gguf")
SUM = "What is 27 + 15?"
environment = {k: v for k, v in os.environ.items()
               if not k.startswith(("LLAMA_", "MORAINE_", "HF_")) and not k.lower().endswith("_proxy")}
environment.update(XDG_CACHE_HOME=os.path.join(FOLDER, "cache"), HOME=FOLDER, XDG_DATA_HOME=os.path.join(FOLDER, "data"),
                   PATH=BUILD + ":" + os.environ["PATH"])
EXACT = ["--temp", "0", "--profile", "off"]


def moraine(*words, env=None, text=None):
    given = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    return subprocess.run([PROGRAM, *words], env={**environment, **(env or {})}, capture_output=True, text=True, timeout=120, **given)


def good(*words, **kw):
    ended = moraine(*words, **kw)
    assert ended.returncode == 0, (words, ended.stderr)
    return ended


def bad(code, *words, say=(), **kw):
    ended = moraine(*words, **kw)
    assert ended.returncode == code and not ended.stdout, (words, ended)
    for part in say:
        assert part in ended.stderr, (part, ended.stderr)
    return ended


def pulled(*names):
    """A store with these models, all of them pebble."""
    shutil.rmtree(STORE, ignore_errors=True)
    for name in names:
        os.makedirs(os.path.join(STORE, os.path.dirname(name)), exist_ok=True)
        shutil.copy(PEBBLE, os.path.join(STORE, name))


# ---- Commands

def test_a_prompt_behind_the_model():
    same = good("run", PEBBLE, "-p", SUM, *EXACT).stdout
    assert "42" in same
    assert good("run", PEBBLE, SUM, *EXACT).stdout == same
    assert good("run", *EXACT, PEBBLE, SUM).stdout == same
    assert good("run", "pebble", SUM, *EXACT).stdout == same
    assert good("run", "pebble", "Shorten this.", *EXACT, text="The fox ran home.\n").stdout == \
        good("run", "-p", "Shorten this.", *EXACT, text="The fox ran home.\n").stdout
    bad(2, "run", PEBBLE, SUM, "-p", SUM, say=["the prompt is given twice", SUM, "-p"])
    bad(2, "run", PEBBLE, "-p", "a", "-p", "b", say=["the prompt is given twice: with -p 'a' and -p 'b'"])
    bad(2, "run", PEBBLE, SUM, "-f", "README.md", say=["the prompt is given twice", "-f"])
    bad(2, "run", PEBBLE, "What", "is", "27?", say=["unexpected argument: is", "quotes around the prompt"])
    bad(1, "run", "Tell me a story.", say=["give the prompt with -p"])
    for command in ("run", "inspect"):
        bad(2, command, "", say=["moraine %s: the name of the model is empty" % command])


def test_words_of_ollama():
    pulled()
    assert good("version").stdout == good("--version").stdout
    assert good("ls", "--json").stdout == good("list", "--json").stdout == "[]\n"
    shown = good("show", "pebble").stdout
    for word in ("architecture", "parameters", "experts", "context", "GGUF version"):
        assert word in shown, shown
    assert len(shown) < len(good("inspect", "pebble").stdout)
    assert json.loads(good("show", PEBBLE, "--json").stdout)["summary"]["experts"] == 64
    bad(1, "show", "nowhere.gguf", say=["nowhere.gguf"])
    for command in ("show", "ps", "stop", "ls"):
        assert "usage: moraine" in good(command, "--help").stdout
    listed = good("--help").stdout
    for command in ("show", "ps", "stop"):
        assert re.search(r"^  %s " % command, listed, re.M), listed


class Server:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--profile", "off", *arguments], stderr=subprocess.PIPE, env=environment, text=True)
        for line in self.process.stderr:
            found = re.search(r"listening.*?http://[^ \"]*:(\d+)", line)
            if found:
                self.port = found.group(1)
            if " ready" in line:
                break
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait(30)


def test_a_server_is_asked():
    with Server(PEBBLE) as server:
        where = ["--port", server.port]
        shown = good("ps", *where).stdout.split("\n")
        assert shown[0].split() == ["name", "size", "in", "VRAM", "context"] and shown[1].startswith("pebble") and " MiB" in shown[1], shown
        assert json.loads(good("ps", "--json", *where).stdout)["models"][0]["name"].startswith("pebble")
        assert good("ps", "--host", "localhost", *where).stdout.split("\n")[1].startswith("pebble")
        bad(1, "stop", "nothing", *where, say=["nothing is not loaded"])
        assert "stopped pebble" in good("stop", "pebble", *where).stderr
        end = time.monotonic() + 60
        while not any(" unloaded " in line for line in server.log) and time.monotonic() < end:
            time.sleep(0.05)
        assert "why=requested" in "".join(server.log), server.log
        assert "no model is loaded" in good("stop", *where).stderr
    ended = bad(1, "ps", *where, say=["no server runs at http://127.0.0.1:" + server.port, "moraine serve"])
    bad(1, "stop", *where, say=["no server runs at", "--port"])
    bad(2, "ps", "--port", "0", say=["--port"])
    with Server(PEBBLE, "--api-key", "secret") as server:
        bad(1, "ps", "--port", server.port, say=["moraine ps: http://127.0.0.1"])
        assert "pebble" in good("ps", "--port", server.port, "--api-key", "secret").stdout
        assert "pebble" in good("ps", "--port", server.port, env={"LLAMA_API_KEY": "secret"}).stdout


# ---- Short names

def test_pulled_models_by_short_names():
    pulled("ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf", "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF/Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf")
    for name in ("gpt-oss-20b", "GPT-OSS-20B", "gpt-oss:20b", "gpt-oss", "gpt-oss-20b:mxfp4", "gpt-oss-20b-GGUF"):
        assert "gpt-oss-20b-mxfp4.gguf" in good("show", name).stdout, name
    for name in ("qwen3-30b-a3b", "qwen3:30b", "qwen3-30b-a3b-instruct-2507"):
        assert "Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf" in good("show", name).stdout, name
    assert "42" in good("run", "gpt-oss-20b", SUM, *EXACT).stdout
    bad(1, "show", "gpt-oss-2", say=["there is no file gpt-oss-2"])
    pulled("a/model-GGUF/model-Q4_K_M.gguf", "b/model-GGUF/model-Q8_0.gguf", "b/model-large-GGUF/model-large-Q8_0.gguf")
    bad(2, "show", "model", say=["matches several models", "a/model-GGUF:Q4_K_M", "b/model-GGUF:Q8_0"])
    assert "large" in good("show", "model-large").stdout
    assert "model-Q8_0.gguf" in good("show", "model:q8_0").stdout
    good("rm", "model-large")
    bad(1, "rm", "model-large", say=["has not been pulled"])


def test_usual_repositories():
    pulled()
    bad(1, "run", "gpt-oss-20b", "-p", "Hi", say=["gpt-oss-20b has not been pulled; moraine pull ggml-org/gpt-oss-20b-GGUF downloads it"])
    bad(1, "chat", "qwen3:30b", say=["moraine pull unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M"])
    bad(1, "run", "some-model", "-p", "Hi", say=["there is no file some-model", "owner/repo"])
    with open(PEBBLE, "rb") as f:
        hub = Hub({"gpt-oss-20b-mxfp4.gguf": f.read()}, "ggml-org/gpt-oss-20b-GGUF")
    with hub:
        for reply, code in (("n", 1), ("y", 0)):
            child = pexpect.spawn(PROGRAM, ["run", "gpt-oss:20b", SUM, *EXACT], env={**environment, "HF_ENDPOINT": hub.url, "TERM": "xterm"},
                                  encoding="utf-8", timeout=60)
            child.expect_exact("gpt-oss:20b has not been pulled; its usual repository is ggml-org/gpt-oss-20b-GGUF")
            child.expect_exact("Pull it now? [y/N] ")
            child.sendline(reply)
            if reply == "y":
                child.expect_exact("27 + 15 = 42")
            child.expect(pexpect.EOF)
            child.close()
            assert child.exitstatus == code, (reply, child.before)
        shutil.rmtree(STORE)
        ended = good("pull", "gpt-oss-20b", "--mirror", hub.url)
        assert "gpt-oss-20b: ggml-org/gpt-oss-20b-GGUF" in ended.stderr and "ggml-org/gpt-oss-20b-GGUF" in ended.stdout, ended


# ---- Help and output

def options(text):
    """{heading: [options]} of what --help prints."""
    groups, title = {}, None
    for line in text.split("\n"):
        if re.match(r"^[A-Z][a-z A-Z]*$", line):
            title = line
        found = re.match(r"  (?:-., |    )--([a-z0-9-]+)", line)
        if found:
            groups.setdefault(title, []).append(found.group(1))
    return groups


def test_help_is_in_groups():
    for command, wanted in (("run", ("Options", "Answer", "Sampling", "Model and memory", "Experts and disk", "GPU", "Several machines")),
                            ("chat", ("Options", "Answer", "Sampling", "Model and memory", "GPU")), ("bench", ("Options", "Model and memory", "GPU")),
                            ("serve", ("Options", "Server", "Models and requests", "Sampling", "Model and memory", "GPU"))):
        groups = options(good(command, "--help").stdout)
        assert list(groups)[0] == "Options" and set(wanted) <= set(groups), (command, list(groups))
        every = [name for names in groups.values() for name in names]
        assert len(every) == len(set(every)) and max(len(names) for names in groups.values()) < 26, (command, groups)
        assert len(groups["Options"]) <= 14, (command, groups["Options"])
        for name, title in (("temp", "Sampling"), ("ram", "Model and memory"), ("vram", "GPU"), ("postfetch-enable", "GPU"), ("help", "Options")):
            assert name in groups.get(title, []) or name not in every, (command, name)
    assert list(options(good("synth", "--help").stdout)) == ["Options"]


def test_options_that_are_unknown_or_ambiguous():
    bad(2, "run", "--nothing", say=["unknown option --nothing"])
    ended = bad(2, "run", "--to", "5", say=["--to is ambiguous: --top-k, --top-p, --top-nsigma"])
    assert "unknown" not in ended.stderr
    assert "ambiguous" not in bad(2, "run", "--tempp", "1", say=["unknown option --tempp; did you mean --temp?"]).stderr


def test_wrong_options_come_before_the_model():
    for command in ("run", "chat", "bench"):
        for words in (["--kv", "q4_0"], ["--device", "rocm"]):
            ended = bad(2, command, *words, *(["-p", "Hi"] if command == "run" else []), say=[words[0]])
            assert "model:" not in ended.stderr, ended.stderr


def test_bench_shows_its_rounds():
    words = ["bench", "--prefill", "16", "--decode", "2", "--rounds", "2", "--profile", "off"]
    shown = pexpect.run(PROGRAM + " " + " ".join(words), env={**environment, "TERM": "xterm"}, encoding="utf-8", timeout=60)
    for part in ("round 1 of 2: prompt", "round 2 of 2: answer"):
        assert part in shown, shown
    shown = pexpect.run(PROGRAM + " " + " ".join(words + ["--parallel", "2"]), env={**environment, "TERM": "xterm"}, encoding="utf-8", timeout=60)
    assert "round 2 of 2: answers" in shown, shown
    assert "round" not in good(*words).stderr


class InBursts(http.server.BaseHTTPRequestHandler):
    """Four tokens of an answer at once, every 20 ms."""
    def log_message(self, *words):
        pass

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "bursts", "meta": {"n_vocab": 100}}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for i in range(6):
            time.sleep(0.02)
            self.wfile.write(b'data: {"content": "x","stop":false}\n\n'.replace(b'": "', b'":"') * 4)
            self.wfile.flush()
        self.wfile.write(b'data: {"content":"","stop":true,"tokens_predicted":24}\n\n')


def test_tokens_that_arrive_together_share_their_time():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), InBursts)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = json.loads(good("bench", "--server", "http://127.0.0.1:%d" % server.server_port, "--prefill", "4", "--decode", "24", "--rounds", "1", "--json").stdout)
    server.shutdown()
    assert found["tokens"] == 24 and found["between_tokens_p50_s"] >= 0.004, found


def test_replay_says_why_nothing_is_found():
    text, trace = os.path.join(FOLDER, "text"), os.path.join(FOLDER, "one.trace")
    with open(text, "w") as f:
        f.write("The fox ran home over the hill. " * 4)
    good("trace", "--text", text, "-o", trace)
    assert "a trace of one pass needs each expert once" in good("replay", trace).stdout
    assert "Nothing is found" not in good("replay", trace, "--step", "1").stdout


def test_sizes_have_units():
    cut = os.path.join(FOLDER, "cut.gguf")
    with open(PEBBLE, "rb") as f, open(cut, "wb") as to:
        to.write(f.read()[:8 << 20])
    said = bad(1, "run", cut, "-p", "Hi").stderr
    assert re.search(r"cut short: [0-9.]+ MiB are missing", said), said


def complete(*words):
    """What bash offers for the last of these words."""
    script = "source cmake/moraine.bash-completion; compopt() { :; }; COMP_WORDS=(%s); COMP_CWORD=%d; _moraine moraine '%s' '%s'; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
        " ".join("'%s'" % w for w in words), len(words) - 1, words[-1], words[-2])
    ended = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert not ended.stderr, ended.stderr
    return ended.stdout.split()


def test_completion():
    pulled("ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf", "a/model-GGUF/model-Q4_K_M.gguf", "a/model-GGUF/model-Q8_0.gguf")
    for command in ("run", "chat", "serve", "plan", "show", "rm"):
        assert complete("moraine", command, "gg") == ["ggml-org/gpt-oss-20b-GGUF:mxfp4"], complete("moraine", command, "gg")
    assert complete("moraine", "run", "a/model-GGUF", ":", "Q8") == ["Q8_0"]
    assert sorted(complete("moraine", "run", "a/model-GGUF", ":")) == ["Q4_K_M", "Q8_0"]
    assert complete("moraine", "help", "ins") == ["inspect"] == complete("moraine", "ins")
    assert "--temp" in complete("moraine", "run", "--te")
    assert complete("moraine", "run", "--policy", "l") == ["lru", "lfu"]


if __name__ == "__main__":
    status = tap.run(tap.named(globals()), sys.argv[2:])
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(status)
