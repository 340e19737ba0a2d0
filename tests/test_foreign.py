#!/usr/bin/env python3
"""test_foreign.py BUILD: words of llama.cpp's command lines, a test for each row of src/cli/foreign_words.def, and command lines as people type them."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "support"))
import tap  # noqa: E402

ROOT = HERE.parent
PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve() / "moraine"
PEBBLE = str(ROOT / "models/pebble.gguf")
spec = importlib.util.spec_from_file_location("coming_from", ROOT / "tools/coming-from.py")
coming_from = importlib.util.module_from_spec(spec)
spec.loader.exec_module(coming_from)
cache = tempfile.TemporaryDirectory()
VALUES = {"ctx": "512", "max-tokens": "3", "temp": "0", "seed": "7", "system": "Answer in one word.", "batch": "32"}
ASK = ["-p", "What is 27 + 15?", "-n", "4", "--temp", "0", "--profile", "off"]


def moraine(*words):
    return subprocess.run([PROGRAM, *words], env={"XDG_CACHE_HOME": cache.name, "PATH": "/usr/bin:/bin"}, capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL)


def begin(row):
    return {"chat": ["chat", "--profile", "off"], "serve": ["serve", "--port", "none"],
            "bench": ["bench", "--prefill", "16", "--decode", "2", "--rounds", "1", "--profile", "off"]}.get(row["command"], ["run", *ASK])


def good(ended, like=None):
    assert ended.returncode == 0, (ended.args, ended.stderr)
    assert like is None or ended.stdout == like.stdout, (ended.args, ended.stdout, like.stdout)
    return ended


def try_same(row, word):
    own = "--" + row["to"]
    if row["to"] in VALUES:
        value = VALUES[row["to"]]
        like = good(moraine("run", *ASK, own, value))
        good(moraine("run", *ASK, word, value), like)
        if word.startswith("--"):
            good(moraine("run", *ASK, "%s=%s" % (word, value)), like)
    else:  # of the server, which says that its port makes no sense when it has read the rest
        ended = moraine("serve", word, *(["2"] if row["value"] else []), "--port", "none")
        assert ended.returncode == 2 and "--port" in ended.stderr, ended.stderr


def try_model(row, word):
    if "FILE" in row["value"]:
        good(moraine("run", word, PEBBLE, *ASK), good(moraine("run", PEBBLE, *ASK)))
        if word.startswith("--"):
            good(moraine("run", *ASK, word + "=" + PEBBLE))
    else:
        ended = moraine("run", word, "nobody/nothing-GGUF", *ASK)
        assert ended.returncode != 0 and "nobody/nothing-GGUF" in ended.stderr and not ended.stdout, ended


def try_kv(row, word):
    good(moraine("run", *ASK, word, "q8_0"), good(moraine("run", *ASK, "--kv", "q8_0")))
    good(moraine("run", *ASK, word, "bf16"), good(moraine("run", *ASK)))
    ended = moraine("run", *ASK, word, "q4_0")
    assert ended.returncode == 2 and row["says"] in ended.stderr, ended.stderr


def try_nothing(row, word):
    like = good(moraine(*begin(row)))
    values = [[]] + [[v] for v in row["value"].strip("[]").split("|") if v]
    for value in values:
        ended = good(moraine(*begin(row), word, *value), like)
        assert "note:" not in ended.stderr, ended.stderr


def try_note(row, word):
    ended = good(moraine(*begin(row), word, *(["1"] if row["value"] else [])))
    assert row["command"] == "bench" or ended.stdout == good(moraine(*begin(row))).stdout, ended.stdout
    assert ended.stderr.count("%s has no effect: %s\n" % (word, row["says"])) == 1, ended.stderr


def try_refused(row, word):
    ended = moraine(*begin(row), word, "1")
    assert ended.returncode == 2 and "%s: %s" % (word, row["says"]) in ended.stderr and not ended.stdout, ended


def of_row(row):
    def test():
        for word in row["words"].split():
            globals()["try_" + row["kind"].lower()](row, word)
    test.__name__ = "%s_%s" % (row["kind"].lower(), row["words"].replace(" ", "_") + row["command"])
    return test


def test_values_of_own_options_are_left_alone():
    ended = good(moraine("run", "-p", "-ngl", "-n", "2", "--temp", "0", "--profile", "off"))
    assert "note:" not in ended.stderr, ended.stderr
    ended = moraine("run", "--", "-ngl")
    assert "has no effect" not in ended.stderr, ended.stderr


def test_own_options_come_first():
    ended = moraine("serve", "-m", PEBBLE, "--jinja", "--ctx-size", "512", "-s", "1", "--port", "none")
    assert ended.returncode == 2 and "--port" in ended.stderr, ended.stderr


def test_a_missing_value_is_said():
    ended = moraine("run", *ASK, "--ctx-size")
    assert ended.returncode == 2 and "--ctx-size: its value is missing" in ended.stderr, ended.stderr


def test_a_note_is_said_once():
    ended = good(moraine("run", *ASK, "-ngl", "99", "--n-gpu-layers", "99", "-ngl=1"))
    assert ended.stderr.count("layers and experts go to the GPU by themselves") == 1, ended.stderr


def test_command_lines_from_memory():
    same = good(moraine("run", PEBBLE, *ASK)).stdout
    for line in ("-m %s -ngl 99 -fa on -c 2048", "-m %s -ngl 99 --n-cpu-moe 20 -ub 512 -b 512", "-m %s --no-mmap --mlock -t 2", "-m %s -ot exps=CPU -ngl 99 -ctk f16 -ctv f16",
                 "--model %s --jinja -st", "-m %s --temperature 0 --n-predict 4 -s 42", "-m %s -ts 1,1 -mg 0 -sm layer", "-m %s --flash-attn --no-warmup -no-cnv", "-m %s -fa --numa distribute"):
        ended = good(moraine("run", *ASK, *(line % PEBBLE).split()))
        assert ended.stdout == same, (line, ended.stdout)
    bench = good(moraine("bench", "-m", PEBBLE, "-ngl", "99", "-fa", "on", "--prefill", "16", "--decode", "4", "--rounds", "1", "--profile", "off"))
    assert "decode" in bench.stdout, bench.stdout


def test_the_page_is_made_of_the_table():
    subprocess.run([sys.executable, ROOT / "tools/coming-from.py", "--check"], check=True)


if __name__ == "__main__":
    tests = [of_row(row) for row in coming_from.rows()] + tap.named(globals())
    sys.exit(tap.run(tests, sys.argv[2:]))
