#!/usr/bin/env python3
"""test_docs.py BUILD [NAME ...]: the commands of README.md, docs/ and --help run as they stand, in a directory that has the files they name.

A test for each block of code, in whose directory its lines run one after the other, and one for the examples of each command's help. Every
model is the built-in one, a GPU is the simulated one, a benchmark measures fewer tokens, and a server only reads its options. Not run: what
needs a network, other machines, adapters, root or a compiler, and probes, which take ten seconds each. Speaks TAP.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "support"))
import tap  # noqa: E402

ROOT = HERE.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="moraine-docs-"))
PEBBLE = ROOT / "models/pebble.gguf"
PAGES = ["README.md", "models/README.md", *sorted("docs/" + p.name for p in (ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.M | re.S)
ELSEWHERE = re.compile(r"moraine run gpt-oss-20b |moraine probe|^(sudo|podman|make|mpirun|srun|cc|export|curl|git|cmake|\./|ssh|wget|tar|apt|docker|systemctl|ulimit|nvidia-smi|echo always|python3)|moraine (pull|rm) |[a-z]/[A-Za-z0-9.-]+(-GGUF|:Q\d)|owner/repo|--hosts|MODEL\b|--server |--lora ")
FIRST = re.compile(r"^(\$ )?((?:[A-Z_]+=\S+ )*(?:build/)?moraine |(?:git diff|echo|printf|seq) .*(?:moraine|\\$|'$))")
STORY = "Once upon a time there was a fox who lived in a den near the river. " * 30
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "MORAINE_", "HF_")) and not k.lower().endswith("_proxy")}
ENV.update(HOME=str(FOLDER), XDG_CACHE_HOME=str(FOLDER / "cache"), XDG_DATA_HOME=str(FOLDER / "data"), PATH="%s:%s" % (BUILD, os.environ["PATH"]),
           MORAINE_SIM="memory=2G", MORAINE_SIM_COUNT="2")


def commands(block):
    """Its command lines, without prompts and comments, and with continued ones joined."""
    lines, found = block.split("\n"), []
    while lines:
        line = lines.pop(0)
        if not FIRST.match(line) and not ELSEWHERE.match(line.removeprefix("$ ")):
            continue
        while line.count("'") % 2 and lines:
            line += "\n" + lines.pop(0)
        found.append(re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ").replace("build/moraine", "moraine").strip()))
    return found


def prepare(folder, text):
    """The files that these commands read."""
    folder.mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "models/pebble.gguf").symlink_to(PEBBLE)
    if "qwen3-vl.gguf" in text:
        data = ROOT / "tests/data/pictures"
        (folder / "qwen3-vl.gguf").symlink_to(data / "qwen3vlmoe.gguf")
        (folder / "mmproj-qwen3-vl.gguf").symlink_to(data / "qwen3vlmoe.mmproj.gguf")
        for name in set(re.findall(r"[\w-]+\.(?:png|jpg)\b", text)):
            (folder / name).symlink_to(data / "photo-61x37.png")
    for name in re.findall(r"[\w.-]+\.gguf", text):
        if not re.search(r"quantize \S+ %s|-o %s" % (re.escape(name), re.escape(name)), text) and "lora" not in text:
            (folder / name).exists() or (folder / name).symlink_to(PEBBLE)
    for name in re.findall(r"[\w-]+\.(?:txt|c)\b", text):
        if name != "ids.txt":
            (folder / name).write_text(STORY)
    (folder / "ids.txt").write_text(" ".join(map(str, range(100, 140))))
    (folder / "animal.json").write_text('{"type": "object", "properties": {"name": {"enum": ["fox"]}}, "required": ["name"]}')
    if "profile.json" in text:
        run("moraine run -p 'Tell me a story.' -n 20 --profile off --moe-layer-perf-out profile.json", folder)
    if "--compare exact.f32" in text and "--save-logits exact.f32" not in text:
        run("moraine eval --tokens ids.txt --save-logits exact.f32", folder)
    if ".trace" in text and "moraine trace" not in text:
        for name in set(re.findall(r"[\w-]+\.trace", text)):
            (folder / "short.txt").write_text(STORY[:400])
            run("moraine trace --text short.txt -o " + name, folder)


def here(line):
    """The command as it can run on this machine."""
    line = re.sub(r"--device cuda:0,cuda:1", "--device sim:0,sim:1", line)
    line = re.sub(r"--device cuda", "--device sim", line)
    line = line.replace("git diff |", "echo 'int main;' |")
    line = re.sub(r"--synthetic \S+( --layers \d+)?|(?<=moraine synth )(?!--)\S+( --layers \d+)?", lambda m: ("--synthetic " if m.group(0).startswith("--") else "") + "smollm2-135m --layers 1", line)
    if "--vram" in line and "--device" not in line:
        line += " --device sim"
    if "moraine bench" in line:
        line = re.sub(r"--(prefill|depth) \d+", r"--\1 64", line) + ("" if "--rounds" in line else " --rounds 1")
    if "moraine synth" in line:
        line = re.sub(r" --experts \S+", "", line) + ("" if "--list" in line else " --force")  # that small shape has none
    if "moraine quantize" in line:
        line = line.replace(" --output q8_0", "") + " --force"  # pebble has no output matrix of its own
    line = line.replace("moraine show gpt-oss-20b", "moraine show pebble")
    if "moraine serve" in line:
        line += " --port none"
    return line


def run(line, folder):
    return subprocess.run(["bash", "-c", line], cwd=folder, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)


def check(line, folder):
    if ELSEWHERE.search(line):
        return
    ended = run(here(line), folder)
    if "moraine serve" in line:
        assert ended.returncode == 2 and "--port none" in ended.stderr, (line, ended.stderr)
    elif "moraine doctor" in line:  # 1: it found something on this machine
        assert ended.returncode in (0, 1), (line, ended.stderr)
    elif re.search(r"moraine (ps|stop|pull|rm)\b", line):
        assert ended.returncode == 1 and "server" in ended.stderr, (line, ended)
    else:
        assert ended.returncode == 0, (line, here(line), ended.stderr[-600:])


def of_lines(name, lines):
    def test():
        folder = FOLDER / name
        prepare(folder, "\n".join(lines))
        for line in lines:
            check(line, folder)
    test.__name__ = name
    return test


def test_the_terminal_picture_shows_what_the_program_prints():
    subprocess.run([sys.executable, ROOT / "tools/terminal_picture.py", BUILD, "--check"], check=True)


def of_pages():
    tests = []
    for page in PAGES:
        for number, found in enumerate(FENCE.finditer((ROOT / page).read_text())):
            lines = commands(found.group(2)) if found.group(1) in ("", "sh", "bash", "console") else []
            if any("moraine" in line for line in lines):
                tests.append(of_lines("%s_%d" % (page.removesuffix(".md").replace("/", "_"), number), lines))
    return tests


def of_helps():
    tests = []
    help_of = {}
    listed = subprocess.run([BUILD / "moraine", "--help"], env=ENV, capture_output=True, text=True).stdout
    for command in re.findall(r"^  ([a-z]+)  ", listed.split("Options")[0], re.M):
        help_of[command] = subprocess.run([BUILD / "moraine", command, "--help"], env=ENV, capture_output=True, text=True).stdout
    for command, text in help_of.items():
        lines = [line.strip() for line in text.partition("\nExamples\n")[2].split("\n") if line.strip()]
        if lines:
            tests.append(of_lines("help_%s" % command, lines))
    assert len(tests) > 12, list(help_of)
    return tests


if __name__ == "__main__":
    status = tap.run(tap.named(globals()) + of_pages() + of_helps(), sys.argv[2:])
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(status)
