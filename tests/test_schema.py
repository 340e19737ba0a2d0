#!/usr/bin/env python3
"""test_schema.py BUILD: what the built-in model answers under every schema of data/schemas validates, by an independent validator
(python3-jsonschema). Speaks TAP; skipped with a reason where the validator is missing.

A model that has never seen JSON may write long texts: an answer that reaches its limit of tokens is cut short and counts as
unfinished. So all but the first answer have a bias for what closes strings, lists and objects; few may be unfinished, and every
schema has at least one answer that is whole."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("1..0 # SKIP python3-jsonschema is not installed")
    sys.exit(0)

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve() / "moraine"
MODEL = HERE.parent / "models/pebble.gguf"
SEEDS = (1, 2, 3)
FORMATS = getattr(jsonschema.Draft202012Validator, "FORMAT_CHECKER", None) or jsonschema.draft202012_format_checker


def closing_bias():
    """For the tokens that close something, one by one."""
    biases = {}
    for text in ('"', "}", "]", "n"):
        ids = subprocess.run([PROGRAM, "tokenize", MODEL, "-"], input=text, capture_output=True, text=True, check=True).stdout
        biases[ids.split()[-1]] = "6"
    return ",".join(f"{token}:{bias}" for token, bias in biases.items())


def answer(schema_file, seed, bias):
    command = [PROGRAM, "run", MODEL, "-p", "Tell me.", "--schema", schema_file, "--json", "--seed", str(seed), "-n", "400",
               "--temp", "1", "--top-k", "0", "--min-p", "0.02", "--device", "none", "--profile", "off", "--ctx", "1024"]
    if seed != SEEDS[0]:
        command += ["--logit-bias", bias]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    if done.stderr.strip():
        raise RuntimeError("not enforced: " + done.stderr.strip())
    return json.loads(done.stdout)


def check(case, folder, bias):
    """How many answers were whole, and the first that is not valid."""
    schema_file = pathlib.Path(folder) / "schema.json"
    schema_file.write_text(json.dumps(case["schema"], ensure_ascii=False))
    validator = jsonschema.Draft202012Validator(case["schema"], format_checker=FORMATS)
    whole = 0
    for seed in SEEDS:
        made = answer(schema_file, seed, bias)
        if made["finish"] != "end":
            continue
        whole += 1
        try:
            value = json.loads(made["text"])
        except ValueError as wrong:
            return whole, f"seed {seed}: {wrong}: {made['text']}"
        for error in validator.iter_errors(value):
            return whole, f"seed {seed}: {error.message}: {made['text']}"
    return whole, None


def main():
    cases = json.loads((HERE / "data/schemas/schemas.json").read_text())
    failed = whole = 0
    bias = closing_bias()
    print(f"1..{len(cases) + 1}")
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases, 1):
            try:
                count, wrong = check(case, folder, bias)
            except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                count, wrong = 0, str(error)
            if not wrong and count == 0:
                wrong = "no answer came to its end"
            whole += count
            failed += wrong is not None
            print(("not ok" if wrong else "ok"), number, case["name"] + (f"\n# {wrong}" if wrong else ""), flush=True)
    enough = whole >= 0.9 * len(SEEDS) * len(cases)
    print("ok" if enough else "not ok", len(cases) + 1, f"{whole} of {len(SEEDS) * len(cases)} answers are whole")
    return 1 if failed or not enough else 0


sys.exit(main())
