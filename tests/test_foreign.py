#!/usr/bin/env python3
"""test_foreign.py BUILD: words of llama.cpp's command lines, a test for each row of src/cli/foreign_words.def, and command lines as people type them."""
import importlib.util
import json
import pathlib
import shlex
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
FOLDER = pathlib.Path(cache.name)
(FOLDER / "model.gguf").symlink_to(PEBBLE)
(FOLDER / "prompt.txt").write_text("Tell me a story about a fox.\n")
(FOLDER / "yes.gbnf").write_text('root ::= "yes" | "no"\n')
(FOLDER / "word.json").write_text('{"enum": ["red", "green"]}\n')
VALUES = {"ctx": "512", "max-tokens": "3", "temp": "0", "seed": "7", "system": "Answer in one word.", "batch": "32", "stop": "4", "typical": "0.5", "top-nsigma": "1",
          "device": "none", "mmproj": "none", "grammar": str(FOLDER / "yes.gbnf"), "schema": str(FOLDER / "word.json"), "prefill": "8", "decode": "3", "depth": "4", "rounds": "2",
          "text": str(FOLDER / "prompt.txt")}
ASK = ["-p", "What is 27 + 15?", "-n", "4", "--temp", "0", "--profile", "off"]


def moraine(*words):
    return subprocess.run([PROGRAM, *words], env={"XDG_CACHE_HOME": cache.name, "PATH": "/usr/bin:/bin"}, capture_output=True,
                          text=True, timeout=120, stdin=subprocess.DEVNULL, cwd=FOLDER)


def begin(row):
    return {"chat": ["chat", "--profile", "off"], "serve": ["serve", "--port", "none"],
            "bench": ["bench", "--prefill", "16", "--decode", "2", "--rounds", "1", "--profile", "off", "--json"], "eval": ["eval", PEBBLE, "--profile", "off", "--json"]}.get(row["command"], ["run", *ASK])


def good(ended, like=None):
    assert ended.returncode == 0, (ended.args, ended.stderr)
    assert like is None or ended.stdout == like.stdout, (ended.args, ended.stdout, like.stdout)
    return ended


def said(ended):
    """What a run printed, but for the speeds and sizes of a benchmark."""
    printed = ended.stdout
    return {k: v for k, v in json.loads(printed).items() if k in ("prefill", "decode", "depth", "perplexity")} if printed.startswith("{") else printed


def try_same(row, word):
    own = "--" + row["to"]
    if row["command"] in ("bench", "eval"):
        value = VALUES[row["to"]]
        assert said(good(moraine(*begin(row), word, value))) == said(good(moraine(*begin(row), own, value)))
    elif row["to"] in VALUES:
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


def try_mapped(row, word):
    for value, option in coming_from.mapped(row):
        like = good(moraine(*begin(row), *(["--" + option] if option else [])))
        ended = good(moraine(*begin(row), word, value))
        assert said(ended) == said(like) and word not in ended.stderr.replace("--no-think", ""), (word, value, ended)
    if row["value"].startswith("="):  # the row is for that value alone
        return
    ended = moraine(*begin(row), word, "x")
    assert ended.returncode == 2 and row["says"] in ended.stderr and not ended.stdout, ended


def try_nothing(row, word):
    if row["command"] == "serve":
        ended = moraine("serve", word, "--port", "none")
        assert ended.returncode == 2 and "--port" in ended.stderr and "note:" not in ended.stderr, ended
        return
    like = good(moraine(*begin(row)))
    values = [[]] + [[v] for v in row["value"].strip("[]").split("|") if v]
    for value in values:
        ended = good(moraine(*begin(row), word, *value))
        assert said(ended) == said(like), (ended, like)
        assert "note:" not in ended.stderr, ended.stderr


def try_note(row, word):
    value = [row["value"].lstrip("=") if row["value"].startswith("=") else "1"] if row["value"] else []
    if row["command"] == "serve":
        ended = moraine("serve", word, *value, "--port", "none")
        assert ended.returncode == 2 and "--port" in ended.stderr, ended
    else:
        ended = good(moraine(*begin(row), word, *value))
    assert row["command"] in ("bench", "serve") or ended.stdout == good(moraine(*begin(row))).stdout, ended.stdout
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
    assert ended.stderr.count("layers and experts are placed on the GPU automatically") == 1, ended.stderr


# Command lines of llama.cpp as people have them in their fingers, with its program's name replaced. Each runs, or gets a sentence that says what to type instead.
LINES = (
    ("run -m model.gguf -p 'What is 27 + 15?' -n 16 --temp 0 -ngl 99", 0, "42", "-ngl has no effect"),
    ("chat -m model.gguf -cnv --color -c 4096 -ngl 99 -sys 'Answer in one word.' --multiline-input", 0, "", "-ngl has no effect"),
    ("chat -m model.gguf -cnv -p 'You are a helpful assistant'", 2, "", "--system TEXT sets the system message"),
    ("run -m model.gguf -f prompt.txt -n 8 --temp 0.7 --top-k 40 --top-p 0.95 --min-p 0.05 --repeat-penalty 1.1 --repeat-last-n 64 -s 42", 0, "", ""),
    ("run -m model.gguf -no-cnv -p 'Count from 1 to 10.' -n 32 --temp 0 -r 6 --no-perf", 0, "1", ""),
    ("run -m model.gguf --grammar-file yes.gbnf -p 'Is the sky blue?' -n 8 --temp 0", 0, "no", ""),
    ("run -m model.gguf -t 2 -tb 2 -c 0 -b 2048 -ub 512 -ngl 35 --n-cpu-moe 24 -ctk q8_0 -ctv q8_0 -fa on -p 'What is 27 + 15?' -n 16 --temp 0", 0, "42", "--ctx N sets another"),
    ("run -m model.gguf -p 'one\\ntwo' -n 4 -e", 2, "", "backslashes in a prompt are kept"),
    ("run -m model.gguf -p 'What is 27 + 15?' -n 16 --temp 0 --keep -1 --no-context-shift -v --log-disable --fit on --no-repack --device none", 0, "42", "-v has no effect"),
    ("run -m model.gguf -p hi -n 4 --prompt-cache cache.bin --reasoning-budget 0 --check-tensors -lv 1", 0, "", "--session FILE keeps a conversation"),
    ("run -m model.gguf -p hi --chat-template chatml", 2, "", "moraine serve has these options"),
    ("run -m model.gguf -p hi --rope-scaling yarn --rope-scale 4", 2, "", "positions are those of the model file"),
    ("run -mu https://example.com/model.gguf -p hi", 2, "", "moraine pull OWNER/REPO:QUANT"),
    ("run -m model.gguf -p hi -dev CUDA0 --list-devices", 2, "", "moraine doctor shows the GPU"),
    ("serve -m model.gguf --host 127.0.0.1 --port none -ngl 99 -c 0 --jinja -fa on -np 4 -cb -a small --api-key key", 2, "", "--port none: expected an integer"),
    ("serve -m model.gguf -ot '.ffn_.*_exps.=CPU' --no-mmap --mlock --metrics --slots --no-context-shift --temp 0.6 --top-k 20 --cache-reuse 256 -sps 0.5 --port none", 2, "", "--port none"),
    ("serve -m model.gguf -md draft.gguf -ngld 99 --draft-max 16 --threads-http 4 -to 600 --reasoning-format deepseek --reasoning-budget 0 --port none", 2, "", "--port none"),
    ("serve -m model.gguf --embedding --pooling mean -ub 8192", 2, "", "embeddings and reranking are not supported"),
    ("serve -m model.gguf --mmproj mmproj.gguf", 2, "", "--mmproj mmproj.gguf: No such file"),
    ("bench -m model.gguf -p 16 -n 2 -r 1 -ngl 99 -fa 1 -mmp 0 -ctk f16 -nkvo 0 -o json --progress", 0, '"prefill": 16', "-nkvo has no effect"),
    ("bench -m model.gguf -p 512,2048 -n 0", 2, "", "--prefill 512,2048: expected one integer from 0 to"),
    ("bench -m model.gguf -pg 512,128", 2, "", "--prefill N and --decode N"),
    ("eval -m model.gguf -f prompt.txt -c 512", 0, "perplexity", ""),
    ("eval -m model.gguf -f prompt.txt --chunks 10", 2, "", "the whole text is measured"),
    ("plan -m model.gguf -c 1024 -ngl 99 --n-cpu-moe 20 -fa on --device none", 0, "tokens/s", "--n-cpu-moe has no effect"),
    ("-m model.gguf -p hi", 2, "", "a command comes first, such as moraine run -m"),
    ("perplexity -m model.gguf -f prompt.txt", 2, "", "did you mean eval?"),
    ("server -m model.gguf", 2, "", "did you mean serve?"),
    ("cli -m model.gguf -p hi", 2, "", "did you mean run?"),
    ("quantize model.gguf out.gguf Q4_K_M", 2, "", "formats are named by options, such as --experts q4_k --rest q6_k"),
    ("pull -hf 'not a name'", 2, "", "not a name is not a model name"),
    ("run --n_predict 16 --ctx_size 1024 --n_gpu_layers 99 -s -1 -p 'What is 27 + 15?' --temp 0 --model model.gguf", 0, "42", "--n-gpu-layers has no effect"),
    ("run 'What is 27 + 15?' -n 16 --temp 0 -m model.gguf", 0, "42", ""),
    ("run -m model.gguf -hf a/b -p hi", 2, "", "-hf: the model is given twice"),
    ("run model.gguf -m prompt.txt -n 4", 1, "", "prompt.txt"),
    ("run -m model.gguf -ngl99 -cmoe -n 16 --temp 0 -p 'What is 27 + 15?' --keep -1", 0, "42", "-ngl has no effect"),
    ("run -m model.gguf -ctk q8_0 -ctv f16 -p hi", 2, "", "-ctv: the KV cache can be"),
    ("run -m model.gguf -ctk f16 -ctv bf16 -n 4 -p hi", 0, "", ""),
    ("run -m model.gguf -ngl -n 16 --temp 0 -p 'What is 27 + 15?'", 0, "42", "-ngl has no effect"),
    ("run -m model.gguf --grammar 'root ::= \"yes\" | \"no\"' -n 8 --temp 0 -p 'Is the sky blue?'", 0, "", ""),
    ("run -m model.gguf --grammar 'root ::= (' -p hi", 1, "", "run: --grammar: line 1"),
    ("run -m model.gguf --samplers 'top_k;foo' -p hi", 2, "", "\"foo\" is not a sampler"),
    ("run -m model.gguf --think=false -n 4 -p hi", 0, "", "--no-think has no effect"),
    ("serve -m model.gguf -xyz", 2, "", "unknown option -x"),
    ("serve -m model.gguf -sxy 1", 2, "", "unknown option -sxy"),
)


def test_command_lines_from_memory():
    for line, code, prints, says in LINES:
        ended = moraine(*shlex.split(line), *(["--profile", "off"] if code == 0 and not line.startswith("plan") else []))
        assert ended.returncode == code and prints in ended.stdout and says in ended.stderr, (line, ended)
        assert code == 0 or not ended.stdout, (line, ended)


def test_devices_by_their_names_there():
    for words in (["--device", "CUDA0"], ["-dev", "CUDA0"], ["--device=CUDA0"], ["--device", "CUDA0,CUDA1"]):
        ended = moraine("run", *ASK, *words)  # no GPU, or one: the name itself is understood
        assert "must be" not in ended.stderr and "unknown" not in ended.stderr, ended.stderr


def test_the_page_is_made_of_the_table():
    subprocess.run([sys.executable, ROOT / "tools/coming-from.py", "--check"], check=True)


if __name__ == "__main__":
    tests = [of_row(row) for row in coming_from.rows()] + tap.named(globals())
    sys.exit(tap.run(tests, sys.argv[2:]))
