#!/usr/bin/env python3
"""test_terminal.py BUILD [NAME ...]: run and chat as a person meets them, on a pseudo-terminal and in pipes.

Speaks TAP, as the other test programs do. The built-in model answers; nothing here depends on what it says, except that
the same prompt at --temp 0 gets the same answer.
"""
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unicodedata

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import tap

try:
    import pexpect
except ImportError:  # another python before Debian's, which has it
    if os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
    raise

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would what is started here
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PROGRAM = os.path.abspath(os.path.join(sys.argv[1], "moraine"))
FOLDER = tempfile.mkdtemp(prefix="moraine-terminal-")
SAME = ["--temp", "0", "--profile", "off"]
FOX = "Tell me a story about a fox."
ENDLESS = ["--ctx", "8192", "--logit-bias", ",".join("%d:-inf" % i for i in range(4088, 4096))]  # pebble's end tokens never come

environment = {k: v for k, v in os.environ.items() if k not in ("MORAINE_MODEL", "LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR")}
environment.update(XDG_CACHE_HOME=os.path.join(FOLDER, "cache"), HOME=FOLDER, TERM="xterm", LANG="C")


def path(name):
    return os.path.join(FOLDER, name)


def run(*arguments, text=None, command="run"):
    """The program in pipes; text None: /dev/null."""
    given = {"stdin": subprocess.DEVNULL} if text is None else {"input": text if isinstance(text, bytes) else text.encode()}
    ended = subprocess.run([PROGRAM, command, *SAME, *arguments], env=environment, capture_output=True, timeout=120, **given)
    ended.out, ended.err = ended.stdout.decode(), ended.stderr.decode()
    return ended


def answer(*arguments, text=None):
    ended = run("-q", *arguments, text=text)
    assert ended.returncode == 0, ended.err
    return ended.out


def messages(name):
    """What a session file says was said: [(role, content)]."""
    with open(path(name), "rb") as f:
        data = f.read()
    begin = data.index(b'{"')
    root, _ = json.JSONDecoder().raw_decode(data[begin:].decode("utf-8", "replace"))
    return [(m["role"], m["content"]) for m in root["messages"]]


class Screen:
    """What a terminal of this width shows of the bytes that it got: the rows, long lines continued in the next one."""

    def __init__(self, width):
        self.width, self.rows, self.row, self.column, self.wrapped = width, [[]], 0, 0, set()

    def put(self, text):
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|.", text, re.S):
            if part.startswith("\x1b["):
                self.escape(part[2:-1], part[-1])
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
            elif part >= " ":
                self.show(part)
            while len(self.rows) <= self.row:
                self.rows.append([])
        return self

    def escape(self, number, letter):
        n = int(number) if number.isdigit() else 1
        if letter == "D":
            self.column = max(0, self.column - n)
        elif letter == "K":
            del self.rows[self.row][self.column:]
        elif letter == "J":
            del self.rows[self.row][self.column:], self.rows[self.row + 1:]
        elif letter == "A":
            self.row = max(0, self.row - n)
        elif letter == "C":
            self.column += n

    def show(self, character):
        columns = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if self.column + columns > self.width:
            self.wrapped.add(self.row)
            self.row, self.column = self.row + 1, 0
            if len(self.rows) <= self.row:
                self.rows.append([])
        row = self.rows[self.row]
        row += [" "] * (self.column - len(row))
        row[self.column:self.column + columns] = [character] + [""] * (columns - 1)
        self.column += columns

    def lines(self):
        """As copying gives them: rows that the terminal itself broke are one."""
        lines, open_line = [], False
        for number, row in enumerate(self.rows):
            text = "".join(row)
            lines[-1:] = [lines[-1] + text] if open_line else lines[-1:] + [text]
            open_line = number in self.wrapped
        return [line.rstrip() for line in lines]


class Terminal:
    """The program on a terminal of 100 columns, if no others are wanted."""

    def __init__(self, *arguments, command="chat", lines=40, columns=100):
        self.child = pexpect.spawn(PROGRAM, [command, *SAME, *arguments], env=environment, encoding="utf-8", timeout=60,
                                   dimensions=(lines, columns))
        self.child.delaybeforesend = 0.02
        self.seen = ""

    def prompt(self, sign="> "):
        """Waits until the program reads: then it has told the terminal to mark what is pasted."""
        self.child.expect_exact("\x1b[?2004h" + sign)
        self.seen += self.child.before
        return self.child.before

    def type(self, text):
        self.child.send(text)

    def say(self, text):
        """Types a message; returns what came until the next prompt."""
        self.type(text + "\r")
        return self.prompt()

    def paste(self, text):
        self.type("\x1b[200~" + text + "\x1b[201~")

    def ask(self, text):
        """Types a message; returns when the answer's first words have come."""
        self.type(text + "\r")
        self.child.expect_exact("\x1b[?2004l")
        self.child.expect(r"\w+ \w+ \w+ \w+ ")

    def expect(self, words):
        self.child.expect_exact(words)
        return self.child.before

    def end(self, code=0):
        self.child.expect(pexpect.EOF)
        self.child.close()
        got = self.child.exitstatus if self.child.exitstatus is not None else -(self.child.signalstatus or 0)
        assert got == code, (got, self.child.before)
        return self.child.before


def chat(*arguments):
    t = Terminal(*arguments)
    t.prompt()
    return t


def leave(t, code=0):
    t.type("\x04")
    return t.end(code)


# ---- run ----

def test_run_without_a_prompt_on_a_terminal():
    """A word says what is waited for, and one Ctrl-D after a line ends it."""
    t = Terminal("-n", "4", "-q", command="run")
    t.expect("then press Ctrl-D")
    t.type(FOX + "\r")
    time.sleep(0.3)
    t.type("\x04")
    out = t.end()
    assert answer("-p", FOX, "-n", "4").strip() in out, out


def test_run_with_nothing_typed():
    t = Terminal("-n", "4", command="run")
    t.expect("then press Ctrl-D")
    time.sleep(0.3)
    t.type("\x04")
    assert "prompt is empty" in t.end(1)


def test_run_with_a_model_that_is_not_there():
    """Nobody types a prompt for it: what the model's header and the options settle is said before."""
    for arguments, code, words in ((["nowhere.gguf"], 1, "no such file"), (["README.md"], 1, "README.md"),
                                   (["--kv", "f17"], 2, "--kv"), (["--profile", path("none/x")], 1, "--profile")):
        said = Terminal("-n", "4", *arguments, command="run").end(code)
        assert words in said and "Ctrl-D" not in said, said


def test_a_large_file_is_written_after_a_question():
    """A synthetic model of tens of gigabytes is announced with its size, and a terminal is asked."""
    before = sorted(os.listdir("."))
    child = pexpect.spawn(PROGRAM, ["bench", "--synthetic", "gpt-oss-120b"], env=environment, encoding="utf-8", timeout=60)
    child.expect_exact("writing gpt-oss-120b.gguf, 59")
    child.expect_exact("--layers 4 makes a smaller one")
    child.expect_exact("Write it now? [y/N]")
    child.sendline("n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1 and sorted(os.listdir(".")) == before, child.exitstatus


def test_empty_prompts():
    """No answer is invented, and no model loaded for it."""
    for arguments, text in ((["-p", ""], None), (["-p", " \n"], None), ([], ""), ([], "\r\n"), ([], b"\xef\xbb\xbf\n"),
                            (["-f", "/dev/null"], None), (["-p", "", "--raw"], None)):
        ended = run(*arguments, "--ram", "1M", text=text)  # which would say that the model does not fit
        assert ended.returncode == 1 and ended.out == "" and "prompt is empty" in ended.err, (arguments, ended)


def test_a_device_picks_what_the_cpu_picks():
    """The likeliest token is found where the logits are; what is biased or under a grammar is not."""
    with open(path("any.schema"), "w") as f:
        f.write('{"enum": ["a fox", "a hen"]}')
    for words in (["-n", "12"], ["-n", "0"], ["-n", "8", "--logit-bias", "300:2"], ["-n", "20", "--schema", path("any.schema")]):
        assert answer("-p", FOX, *words) == answer("-p", FOX, "--device", "sim", *words), words


def test_line_ends_and_byte_order_mark():
    plain = answer("-p", "One\ntwo", "-n", "12")
    assert plain == answer("-n", "12", text="One\ntwo")
    for text in (b"One\ntwo\n", b"One\r\ntwo\r\n", b"\xef\xbb\xbfOne\ntwo", b"\xef\xbb\xbfOne\r\ntwo\r\n"):
        assert plain == answer("-n", "12", text=text), text
        with open(path("prompt"), "wb") as f:
            f.write(text)
        assert plain == answer("-n", "12", "-f", path("prompt")), text
    for text in ("One\ntwo\r\n", "One\r\ntwo\r", "\ufeffOne\r\ntwo\r\n"):  # as $(cat FILE) gives them
        assert plain == answer("-n", "12", "-p", text), text
    assert plain != answer("-p", "One two", "-n", "12") or plain != answer("-p", "One", "-n", "12")
    assert answer("-p", "One", "-n", "8", "--raw") == answer("-n", "8", "--raw", text="One\r\n")


def test_stdin_beside_a_prompt():
    both = answer("-p", "Shorten this.\n\nThe fox ran home.", "-n", "12")
    assert both == answer("-p", "Shorten this.", "-n", "12", text="The fox ran home.\n")
    with open(path("story"), "w") as f:
        f.write("The fox ran home.\n")
    with open(path("story")) as f:
        ended = subprocess.run([PROGRAM, "run", *SAME, "-q", "-n", "12", "-p", "Shorten this."], stdin=f, env=environment,
                               capture_output=True)
    assert ended.stdout.decode() == both
    assert answer("-p", FOX, "-n", "12") == answer("-p", FOX, "-n", "12", text="")  # an empty pipe adds nothing
    t = Terminal("-q", "-n", "12", "-p", FOX, command="run")  # nor does a terminal, and nobody waits for it
    assert answer("-p", FOX, "-n", "12").split()[0] in t.end()


def test_stop_strings():
    whole = answer("-p", FOX, "-n", "60").rstrip("\n")
    words = whole.split(" ")
    assert len(words) > 12, whole
    # Across the borders of words and so of tokens, at every place; the first that comes ends it.
    for i in range(2, 10):
        stop = words[i][-1:] + " " + words[i + 1][:2]
        expected = whole[:whole.index(stop)]
        assert answer("-p", FOX, "-n", "60", "--stop", stop).rstrip("\n") == expected, stop
        assert answer("-p", FOX, "-n", "60", "--stop", "never said", "--stop", stop, "--stop", words[-2]).rstrip("\n") == \
            whole[:min(whole.index(stop), whole.index(words[-2]))], stop
    assert answer("-p", FOX, "-n", "60", "--stop", "never said").rstrip("\n") == whole
    assert answer("-p", FOX, "-n", "60", "--stop", whole[-3:] + "never said").rstrip("\n") == whole  # it waited, and came
    ended = run("-p", FOX, "--stop", "")
    assert ended.returncode == 2 and "--stop" in ended.err


def test_json():
    root = json.loads(answer("-p", FOX, "-n", "20", "--json"))
    assert root["text"] == answer("-p", FOX, "-n", "20").rstrip("\n")
    assert root["finish"] == "length" and root["answer_tokens"] == 20 and len(root["tokens"]) == 20
    assert root["prompt_tokens"] == root["computed_tokens"] > 5 and root["stop"] is None and root["reasoning"] is None
    assert root["timings"]["answer_s"] > 0 and root["timings"]["answer_tps"] > 0 and root["timings"]["load_s"] > 0
    word = root["text"].split()[3]
    root = json.loads(answer("-p", FOX, "-n", "20", "--json", "--stop", word))
    assert root["finish"] == "stop" and root["stop"] == word and word not in root["text"]
    root = json.loads(answer("-p", FOX, "-n", "900", "--json", "--ignore-eos", "--ctx", "64"))
    assert root["finish"] == "context" and len(root["tokens"]) == root["answer_tokens"]
    ended = run("-p", FOX, "-n", "900", "--json")
    assert json.loads(ended.out)["finish"] in ("end", "length") and ended.err == "", ended.err
    assert json.loads(run("-p", FOX, "-n", "0", "--json").out)["text"] == ""
    root = json.loads(answer("-p", "Grüße, 世界 😀", "-n", "4", "--json", "--raw"))
    assert isinstance(root["text"], str)


def test_session_of_run():
    """Two commands with a session say what one conversation would, and compute only what is new."""
    s = path("fox.session")
    first = answer("-p", FOX, "-n", "24", "--session", s)
    assert first == answer("-p", FOX, "-n", "24")
    second = json.loads(answer("-p", "And then?", "-n", "24", "--session", s, "--json"))
    assert second["computed_tokens"] < second["prompt_tokens"] - 24, second
    assert [r for r, _ in messages("fox.session")] == ["user", "assistant"] * 2
    t = chat("-n", "24")  # the same in one go
    t.say(FOX)
    t.say("And then?")
    t.say("/save " + path("fox.chat"))
    leave(t)
    assert messages("fox.chat") == messages("fox.session"), (messages("fox.chat"), messages("fox.session"))
    assert os.stat(s).st_mode & 0o077 == 0  # a conversation is nobody else's


def test_what_killed_saves_left_is_swept():
    s = path("swept.session")
    left, held, others = s + ".part-aB3xyz", s + ".part-held00", [s + ".part-toolong1", s + ".party-abcdef", path("other.session.part-aB3xyz")]
    for name in [left, held] + others:
        open(name, "w").close()
    with open(held) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        answer("-p", FOX, "-n", "2", "--session", s)
        assert not os.path.exists(left) and all(os.path.exists(name) for name in [held] + others)
    answer("-p", FOX, "-n", "2", "--session", s)
    assert not os.path.exists(held) and os.path.exists(s)
    for name in others:
        os.unlink(name)


def test_session_of_a_text():
    whole = answer("-p", "Once upon a time", "--raw", "-n", "24", "--ignore-eos").rstrip("\n")
    s = path("text.session")
    first = answer("-p", "Once upon a time", "--raw", "-n", "12", "--ignore-eos", "--session", s).rstrip("\n")
    assert whole.startswith(first)
    root = json.loads(answer("-p", " and", "--raw", "-n", "6", "--session", s, "--json"))
    assert root["computed_tokens"] <= 4 and root["prompt_tokens"] > 12, root
    ended = run("-p", "x", "--session", s)
    assert ended.returncode == 2 and "--raw" in ended.err, ended.err
    ended = run("--session", s, command="chat")
    assert ended.returncode == 1 and "--raw" in ended.err, ended.err


def test_session_of_another_model():
    """Refused with a sentence, and the file stays as it is."""
    s = path("kept.session")
    answer("-p", FOX, "-n", "8", "--session", s)
    with open(s, "rb") as f:
        before = f.read()
    other = path("other.gguf")
    subprocess.run([PROGRAM, "quantize", "models/pebble.gguf", other, "--rest", "f16"], env=environment, check=True,
                   capture_output=True)
    for arguments, words in (([other], "another model"), (["--kv", "f32"], "--kv i16"), (["--ctx", "16"], "--ctx 16")):
        ended = run("-p", "x", "-n", "4", "--session", s, *arguments)
        assert ended.returncode == 1 and words in ended.err and ended.out == "", ended
        with open(s, "rb") as f:
            assert f.read() == before
    ended = run("-p", "x", "--session", s, "--system", "Be brief.", "-n", "4")
    assert ended.returncode == 2 and "--system" in ended.err, ended


def test_damaged_sessions():
    s = path("damaged.session")
    answer("-p", FOX, "-n", "8", "--session", s)
    with open(s, "rb") as f:
        good = f.read()
    for bad in (b"", b"hello", good[:40], good[:-1], good + b"x", good[:100] + bytes([good[100] ^ 1]) + good[101:],
                good[:-9] + bytes([good[-9] ^ 64]) + good[-8:], good[:16] + b"\xff" * 8 + good[24:]):
        with open(s, "wb") as f:
            f.write(bad)
        ended = run("-p", "x", "-n", "4", "--session", s, "nowhere.gguf")  # before a model is looked for
        assert ended.returncode == 1 and ended.out == "" and s in ended.err, ended
    with open(s, "wb") as f:
        f.write(good[:6] + b"01" + good[8:])
    ended = run("-p", "x", "-n", "4", "--session", s, "nowhere.gguf")
    assert ended.returncode == 1 and "incompatible version of moraine" in ended.err, ended
    ended = run("-p", "x", "--session", FOLDER, "nowhere.gguf")
    assert ended.returncode == 1 and FOLDER in ended.err, ended
    ended = run("-p", "x", "--session", path("none/x"), "nowhere.gguf")
    assert ended.returncode == 1 and "none/x" in ended.err and not os.path.exists(path("none")), ended


def test_session_on_a_full_disk():
    """The older file stays, and nothing else is left."""
    os.mkdir(path("full"))
    s = path("full/x.session")
    answer("-p", FOX, "-n", "8", "--session", s)
    with open(s, "rb") as f:
        before = f.read()
    limited = "ulimit -f 8; exec \"$@\""
    ended = subprocess.run(["bash", "-c", limited, "bash", PROGRAM, "run", *SAME, "-q", "-n", "8", "-p", "x", "--session", s],
                           env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    assert ended.returncode == 1 and s.encode() in ended.stderr, ended
    with open(s, "rb") as f:
        assert f.read() == before
    assert os.listdir(path("full")) == ["x.session"], os.listdir(path("full"))


def catches(process, number):
    """Waits until it does: a busy machine takes its time to begin."""
    def mask():
        with open("/proc/%d/status" % process.pid) as f:
            return int(next(line for line in f if line.startswith("SigCgt:")).split()[1], 16)
    for _ in range(6000):
        if mask() >> (number - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("it does not begin")


def test_signals_end_an_answer():
    endless = ["-p", FOX, "-n", "100000", "--ignore-eos", "-q"]
    for number in (signal.SIGINT, signal.SIGTERM):
        def end():
            child = subprocess.Popen([PROGRAM, "run", *SAME, *endless], env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            first = child.stdout.read(1)  # the answer has begun
            began = time.monotonic()
            child.send_signal(number)
            out, err = child.communicate(timeout=60)
            took = time.monotonic() - began
            assert child.returncode == 128 + number, (child.returncode, err)
            out = (first + out).decode("utf-8", "replace")
            assert out.endswith("\n") and len(out) > 1, out
            return took

        tap.soon(end, 0.5)


def test_signals_end_a_prompt():
    with open(path("long"), "w") as f:
        f.write("The fox ran home over the hill. " * 800)
    for number in (signal.SIGINT, signal.SIGTERM):
        def end():
            child = subprocess.Popen([PROGRAM, "run", *SAME, "-f", path("long"), "--ctx", "8192", "--batch", "32", "--isa",
                                      "scalar", "-q"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            catches(child, number)
            time.sleep(1)
            assert child.poll() is None, "the prompt is too short for this test"
            began = time.monotonic()
            child.send_signal(number)
            child.communicate(timeout=60)
            took = time.monotonic() - began
            assert child.returncode == 128 + number, child.returncode
            return took

        tap.soon(end, 0.5)


def test_json_of_an_interrupted_answer():
    out = ""
    for wait in (1, 2, 4, 8):  # what is interrupted while the model is loaded has nothing to say
        child = subprocess.Popen([PROGRAM, "run", *SAME, "-p", FOX, "-n", "100000", "--ctx", "16384", "--ignore-eos", "--json"], env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        catches(child, signal.SIGINT)
        time.sleep(wait)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 130
        if out:
            break
    assert json.loads(out)["finish"] == "interrupted"


def test_second_signal_while_a_session_is_written():
    """Whether it comes before, while or after: nothing half written stays."""
    os.mkdir(path("second"))
    for number in (signal.SIGINT, signal.SIGTERM):
        for wait in (0, 0.002, 0.005, 0.01, 0.02):
            child = subprocess.Popen([PROGRAM, "run", *SAME, "-p", FOX, "-n", "100000", "--ignore-eos", "-q", "--session",
                                      path("second/x.session")], env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            child.stdout.read(1)
            child.send_signal(number)
            time.sleep(wait)
            child.send_signal(number)
            child.communicate(timeout=60)
            assert child.returncode == 128 + number, (child.returncode, wait)
            left = os.listdir(path("second"))
            assert left in ([], ["x.session"]), (left, wait)


# ---- chat ----

def test_chat_reads_utf8():
    """Umlauts, Chinese and emoji reach the model in the C locale, typed, edited and recalled."""
    t = chat("-n", "4")
    t.say("Grüße an 世界 😀!")
    t.type("äöü世x")
    t.type("\x7f\x7f\x7f")  # x, 世, ü
    t.say("ß")
    t.type("\x1b[A\x1b[A")
    time.sleep(0.2)
    t.say("")
    t.say("/save " + path("utf8.session"))
    leave(t)
    said = [c for r, c in messages("utf8.session") if r == "user"]
    assert said == ["Grüße an 世界 😀!", "äöß", "Grüße an 世界 😀!"], said


def test_chat_on_a_terminal_and_in_a_pipe():
    t = chat("-n", "12")
    seen = t.say(FOX)
    leave(t)
    piped = run("-n", "12", command="chat", text=FOX + "\n").out
    assert piped.strip().split("\n")[0] in seen.replace("\r", ""), (piped, seen)
    assert piped == run("-n", "12", command="chat", text=b"\xef\xbb\xbf" + FOX.encode() + b"\r\n").out


def test_chat_ctrl_c_ends_the_answer():
    t = chat(*ENDLESS)

    def end():
        t.ask(FOX)
        began = time.monotonic()
        t.type("\x03")
        t.prompt()
        took = time.monotonic() - began
        t.say("/clear")
        return took

    tap.soon(end, 0.5)
    t.ask(FOX)  # and once more
    t.type("\x03")
    assert "Ctrl-D exits" not in t.prompt()  # it was the answer that ended, not a line
    t.say("/save " + path("cut.session"))
    leave(t)  # 0: the chat itself was not interrupted
    said = messages("cut.session")
    assert [r for r, _ in said] == ["user", "assistant"] and len(said[1][1]) > 10, said


def test_chat_ctrl_c_twice():
    """Impatient fingers end the answer alone."""
    t = chat(*ENDLESS)
    for wait in (0, 0.001, 0.003):
        t.ask(FOX)
        for _ in range(3):
            os.kill(t.child.pid, signal.SIGINT)
            time.sleep(wait)
        t.prompt()
        time.sleep(0.1)
        t.say("/clear")
    leave(t)


def test_chat_ctrl_c_while_the_prompt_is_written():
    """A write that a signal cuts short is no lost result: the chat ends with 0."""
    t = chat("-n", "4")
    for i in range(300):
        os.kill(t.child.pid, signal.SIGINT)
        time.sleep(0.0005 * (i % 5))
    time.sleep(0.3)
    t.type("/help\r")  # the prompts before it are those of the signals
    t.expect("or paste it.")
    t.prompt()
    leave(t)


def test_chat_ctrl_c_leaves_a_prompt():
    """Also one that comes while the prompt is written, or just before the program waits for keys."""
    t = chat("-n", "4")
    for i in range(100):
        for _ in range(2):
            os.kill(t.child.pid, signal.SIGINT)
            time.sleep(0.00002 * (i % 10))
        time.sleep(0.002)
        t.child.expect(r"\(Ctrl-D exits\)\r\n\x1b\[\?2004h> $")
    leave(t)


def test_chat_ctrl_c_gives_up_a_line():
    t = chat("-n", "4")
    t.type("this is not")
    time.sleep(0.2)
    t.type("\x03")
    assert "Ctrl-D exits" in t.prompt()
    t.type("neither \\\r")
    t.prompt(". ")
    t.type("this\x03")
    t.prompt()
    t.say("but this")
    t.say("/save " + path("given.session"))
    leave(t)
    assert [c for r, c in messages("given.session") if r == "user"] == ["but this"]


def test_chat_sigterm():
    """While an answer comes and while a line is read; the session is kept."""
    for busy in (True, False):
        def end():
            s = "term%d.session" % busy
            if os.path.exists(path(s)):
                os.unlink(path(s))
            t = chat("--session", path(s), "-n", "-1" if busy else "4", *(ENDLESS if busy else []))
            if busy:
                t.ask(FOX)
            else:
                t.say(FOX)
            began = time.monotonic()
            os.kill(t.child.pid, signal.SIGTERM)
            t.end(143)
            took = time.monotonic() - began
            assert [r for r, _ in messages(s)] == ["user", "assistant"]
            return took

        tap.soon(end, 0.7)


def test_chat_loses_its_terminal():
    """While an answer comes: it ends, and the session keeps what was said before."""
    s = path("lost.session")
    t = chat("--session", s, *ENDLESS)
    t.ask(FOX)
    t.type("\x03")
    t.prompt()
    t.ask("And then?")
    pid = t.child.pid
    os.close(t.child.fileno())  # what closing a window does
    for _ in range(1200):
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    assert messages("lost.session")[0] == ("user", FOX), messages("lost.session")
    assert not [n for n in os.listdir(FOLDER) if ".part" in n]


def test_chat_ctrl_d():
    t = chat("-n", "4")
    leave(t)
    t = chat("-n", "4")
    t.say(FOX)
    leave(t)


def test_chat_empty_lines():
    t = chat("-n", "4")
    for text in ("", "   ", '""""""', '"""  """'):
        t.say(text)
    t.say("/save " + path("empty.session"))
    leave(t)
    assert messages("empty.session") == []


def test_chat_pasted_text():
    """What is pasted is one message, with all its lines; nothing is sent before Enter."""
    t = chat("-n", "4")
    t.paste("first line\rsecond: äöü\r\n\r/exit\r")
    time.sleep(0.3)
    t.type(" and typed")
    t.say("")
    t.say("/save " + path("pasted.session"))
    many = "\r".join("line %d" % i for i in range(200))
    t.paste(many)
    time.sleep(0.5)
    t.say("")
    t.say("/save " + path("pasted.session"))
    leave(t)
    said = [c for r, c in messages("pasted.session") if r == "user"]
    assert said == ["first line\nsecond: äöü\n\n/exit\n and typed", many.replace("\r", "\n")], said


def test_chat_lines_that_go_on():
    t = chat("-n", "4")
    t.type("one \\\r")
    t.prompt(". ")
    t.type("two\\\r")
    t.prompt(". ")
    t.say("three")
    t.type('"""\r')
    t.prompt(". ")
    t.type("/exit\r")
    t.prompt(". ")
    t.type("\r")
    t.prompt(". ")
    t.say('end"""')
    t.say('"""/quoted"""')
    t.say("/save " + path("lines.session"))
    leave(t)
    expected = ["one \ntwo\nthree", "/exit\n\nend", "/quoted"]
    assert [c for r, c in messages("lines.session") if r == "user"] == expected, messages("lines.session")
    text = 'one \\\ntwo\\\nthree\n"""\n/exit\n\nend"""\n"""/quoted"""\n/save ' + path("piped.session") + "\n"
    ended = run("-n", "4", command="chat", text=text)
    assert ended.returncode == 0 and messages("piped.session") == messages("lines.session"), ended.err
    ended = run("-n", "4", "--session", path("open.session"), command="chat", text='"""\nnever closed\n')
    assert messages("open.session")[0] == ("user", "never closed"), messages("open.session")


def test_chat_of_lines_with_a_nul():
    ended = run("-n", "4", "--session", path("nul.session"), command="chat", text=b"one\0two\n")
    assert ended.returncode == 0 and "NUL byte" in ended.err, ended
    assert messages("nul.session")[0] == ("user", "one")


def test_chat_history():
    """Another chat finds what was typed in this one, messages of several lines too; nobody else reads it."""
    shutil.rmtree(os.path.join(FOLDER, "cache"), ignore_errors=True)
    t = chat("-n", "2")
    t.say("older")
    t.paste("two\rlines \\n")
    t.say("")
    leave(t)
    kept = os.path.join(FOLDER, "cache", "moraine", "history")
    assert os.stat(kept).st_mode & 0o077 == 0
    with open(kept) as f:
        assert f.read() == "older\ntwo\\nlines \\\\n\n"
    t = chat("-n", "2")
    t.type("\x1b[A")
    time.sleep(0.2)
    t.say("")
    t.type("\x1b[A\x1b[A")
    time.sleep(0.2)
    t.say("")
    t.say("/save " + path("history.session"))
    leave(t)
    said = [c for r, c in messages("history.session") if r == "user"]
    assert said == ["two\nlines \\n", "older"], said
    with open(kept) as f:
        before = f.read()
    t = chat("-n", "2", "--history", "off")
    t.say("not kept")
    leave(t)
    t = chat("-n", "2", "--history", path("own"))
    t.say("kept elsewhere")
    leave(t)
    with open(kept) as f, open(path("own")) as own:
        assert f.read() == before and own.read() == "kept elsewhere\n"
    t = chat("-n", "2", "--history", path("none/own"))
    assert "cannot write the history" in t.say("x") and "cannot write the history" not in t.say("y")  # said once
    leave(t)
    assert not os.path.exists(path("none"))
    with open(kept, "w") as f:
        f.write("".join("line %d\n" % i for i in range(2500)))
    leave(chat())
    with open(kept) as f:
        lines = f.read().split("\n")
    assert lines[0] == "line 1500" and len(lines) == 1001, (lines[0], len(lines))
    assert os.listdir(os.path.dirname(kept)).count("history.part") == 0


def test_chat_history_in_no_file():
    """What has no end, or nobody at the other end, is refused in one sentence, and the chat goes on."""
    os.mkfifo(path("history.fifo"))
    with open(path("huge"), "wb") as f:
        f.truncate(1 << 40)
    for name in ("/dev/zero", path("history.fifo"), FOLDER, path("huge")):
        t = Terminal("-n", "2", "--history", name)
        assert "history is off" in t.prompt(), name
        assert name not in t.say("hi") + t.say("hi"), name
        leave(t)
    assert os.stat(path("huge")).st_size == 1 << 40


def test_chat_save_and_load():
    t = chat("-n", "16")
    t.say(FOX)
    expected = t.say("And then?")
    t.say("/undo")
    t.say("/save " + path("saved.session"))
    leave(t)
    t = chat("-n", "16")
    t.say("Something else.")
    assert "2 messages" in t.say("/load " + path("saved.session"))
    assert t.say("And then?") == expected
    assert "no file" in t.say("/load " + path("missing.session"))
    assert "needs a file name" in t.say("/load") and "needs a file name" in t.say("/save")
    assert "not a session" in t.say("/load /etc/passwd")
    assert "cannot save the session" in t.say("/save " + path("none/x"))
    t.say("/save " + path("both.session"))
    leave(t)
    assert len(messages("both.session")) == 4
    t = Terminal("-n", "16", "--session", path("saved.session"))  # the same from the command line
    assert "2 messages" in t.prompt()
    assert t.say("And then?") == expected
    leave(t)
    assert messages("saved.session") == messages("both.session")
    ended = run("--session", path("saved.session"), "--system", "Be brief.", command="chat")
    assert ended.returncode == 2 and "--system" in ended.err


def test_chat_replaces_nothing_of_others():
    """/save and /profile write over files of their own kind alone."""
    with open(path("notes.txt"), "w") as f:
        f.write("Milk and bread, and something for the fox.\n")
    os.mkfifo(path("save.fifo"))
    t = chat("-n", "2")
    t.say("hi")
    for name in ("notes.txt", "save.fifo"):
        assert "cannot save the session" in t.say("/save " + path(name)), name
        assert "not a profile" in t.say("/profile " + path(name)), name
    for _ in range(2):
        assert "saved to" in t.say("/save " + path("twice.session"))
        assert "written to" in t.say("/profile " + path("twice.json"))
    leave(t)
    with open(path("notes.txt")) as f:
        assert f.read() == "Milk and bread, and something for the fox.\n"
    assert stat.S_ISFIFO(os.stat(path("save.fifo")).st_mode)
    assert not [n for n in os.listdir(FOLDER) if ".part" in n]


def fill(t):
    """Asks until the context is full; returns what was said then, and the message that waits."""
    for i in range(40):
        question = "Tell me a story about fox number %d." % i
        seen = t.say(question)
        if "/drop" in seen:
            return seen, question
    raise AssertionError("the context never filled")


def test_chat_full_context():
    """The choice is offered and nothing forgotten without it; after it the message that waited is answered."""
    for way in ("/drop", "/undo", "/clear"):
        t = chat("--ctx", "160", "-n", "24", "--system", "Tell stories.")
        seen, question = fill(t)
        assert "/undo" in seen and "/clear" in seen and "--ctx" in seen, seen
        t.say("/save " + path("full.session"))
        before = [c for r, c in messages("full.session") if r == "user"]
        waited = question not in before
        seen = t.say(way)
        t.say("/save " + path("after.session"))
        leave(t)
        after = messages("after.session")
        assert after[0] == ("system", "Tell stories.")
        asked = [c for r, c in after if r == "user"]
        rest = {"/drop": before[-(len(asked) - waited):] if len(asked) > waited else [], "/undo": before[:-1], "/clear": []}[way]
        assert asked == rest + [question] * waited, (way, before, asked)
        assert len(asked) < len(before) + waited
        if way == "/drop":
            assert "removed the" in seen, seen
        assert after[-1][0] == ("assistant" if len(after) > 1 else "system")


def test_chat_nothing_to_forget():
    t = chat("-n", "4")
    for command in ("/drop", "/undo"):
        assert "nothing to remove: no messages yet" in t.say(command), command
    assert "no answer yet" in t.say("/speed")
    t.say(FOX)
    assert "nothing to remove: half of the context is free" in t.say("/drop")
    t.say("/save " + path("undropped.session"))
    leave(t)
    assert len(messages("undropped.session")) == 2
    t = chat("-n", "4", "--ctx", "64")
    t.say("fox " * 30)
    assert "nothing to remove: only the last message" in t.say("/drop")
    leave(t)


def test_chat_files_at_home():
    """~ is the home directory in /save, /load, /profile and /apply, and a name like any other elsewhere."""
    t = chat("-n", "4")
    t.say("hi")
    assert "saved to " + path("home.session") in t.say("/save ~/home.session")
    assert "resumed " + path("home.session") in t.say("/load ~/home.session")
    assert "written to " + path("home.json") in t.say("/profile ~/home.json")
    assert FOLDER in t.say("/load ~")
    assert "there is no file ~nobody" in t.say("/load ~nobody")
    leave(t)


def test_chat_message_longer_than_the_context():
    t = chat("--ctx", "64", "-n", "4")
    assert "alone" in t.say("fox " * 90)
    t.say("Short.")
    t.say("/save " + path("short.session"))
    leave(t)
    assert [c for r, c in messages("short.session") if r == "user"] == ["Short."]


def test_chat_commands():
    t = chat("-n", "4")
    listed = t.say("/help")
    for word in ("/clear", "/undo", "/drop", "/regen", "/system [TEXT]", "/set [NAME VALUE]", "/model [NAME|FILE]", "/save FILE", "/load FILE", "/speed", "/profile", "/apply", "/exit", '"""'):
        assert word in listed, word
    assert "unknown command /nothing" in t.say("/nothing at all")
    assert "takes no argument" in t.say("/clear all")
    t.say(FOX)
    assert "tokens/s" in t.say("/speed")
    t.say("/undo")
    t.say("/save " + path("undone.session"))
    t.type("/exit\r")
    t.end()
    assert messages("undone.session") == []


def test_chat_stop():
    whole = run("-n", "40", command="chat", text=FOX + "\n").out
    word = whole.split()[5]
    cut = run("-n", "40", "--stop", word, command="chat", text=FOX + "\n").out
    assert cut.rstrip("\n") == whole[:whole.index(word)].rstrip("\n"), (cut, whole)


# ---- chat: what is shown ----

SAYS = ("Once upon a time there was a fox who lived in a hollow under an old oak, and every evening it went to the river to drink and "
        "to look at the moon.\n\n- a list: " + "word " * 30 + "\n\n```\nint main(void) { return printf(\"this line of code is longer than the "
        "terminal and stays in one piece, blanks   and all\"); }\n```\nhttps://example.org/" + "a-long-word-that-nobody-breaks/" * 4 + " end\n"
        "| a table | " + "cell | " * 20 + "\n世界" * 1 + "世界" * 40 + " äöü done.\n")


def scripted(name, *script):
    """A model that says this whatever it is asked."""
    model = path(name + ".gguf")
    program = os.path.join(sys.argv[1], "tests", "make_scripted_model")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    subprocess.run([program, model, template, *[s.replace("\n", "\\n") for s in script]], check=True, capture_output=True)
    return model


def answer_shown(t, text, width):
    t.type(text + "\r")
    t.child.expect_exact("\x1b[?2004l")
    return Screen(width).put(t.prompt())


def test_chat_wraps_between_words():
    """Rows end between words at every width; what is code, a table or one long word is copied as it is; the text that is kept is the model's."""
    model = scripted("wrapped", SAYS)
    for width in (40, 57, 100):
        t = Terminal(model, columns=width)
        t.prompt()
        screen = answer_shown(t, "Hi", width)
        lines = screen.lines()
        t.say("/save " + path("wrapped%d.session" % width))
        leave(t)
        said = messages("wrapped%d.session" % width)[1][1]
        assert said.strip() == SAYS.strip(), said
        assert max(len("".join(r)) for r in screen.rows) <= width
        assert " ".join("\n".join(lines).split()).replace(" ", "") == "".join(SAYS.split()), lines
        for line in SAYS.split("\n"):
            if line.startswith(("int main", "|")):
                assert line.rstrip() in lines, (width, line, lines)
        words = set(SAYS.split())
        for line in lines:
            assert all(w in words or "世" in w for w in line.split()), (width, line)
            assert "世" in line or "|" in line or "main" in line or "https" in line or len(line) < width, (width, line)
        assert any("a-long-word-that-nobody-breaks/" * 4 in line for line in lines), lines


def test_wrapping_follows_the_window():
    """An answer goes on in the width that the window has now."""
    t = Terminal(scripted("narrow", "word " * 400), columns=100)
    t.prompt()
    t.type("Hi\r")
    t.child.expect_exact("word word word")
    t.child.setwinsize(40, 44)
    rows = ["".join(r) for r in Screen(100).put(t.prompt()).rows]
    leave(t)
    assert len(rows) > 30 and all(36 < len(r) < 44 for r in rows[-20:-2]), rows


def test_wrapping_after_a_stop():
    """What comes after Ctrl-Z and fg is wrapped as a text that begins at the left edge."""
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=dict(environment, PS1="shell$ "), encoding="utf-8", timeout=60,
                          dimensions=(40, 60))
    shell.expect_exact("shell$ ")
    shell.sendline(" ".join([PROGRAM, "run", *SAME, "-q", "-p", "Hi", "-n", "1200", scripted("stopped", "word " * 400)]))
    shell.expect_exact("word word word")
    shell.send("\x1a")
    shell.expect_exact("Stopped")
    shell.expect_exact("shell$ ")
    shell.sendline("fg >/dev/null")
    shell.expect_exact("fg >/dev/null")
    shell.expect_exact("shell$ ")
    rows = [row for row in ("".join(r).rstrip() for r in Screen(60).put(shell.before).rows) if row]
    shell.close(force=True)
    assert len(rows) > 20 and all(50 < len(row) < 60 for row in rows[:-1]), rows


def test_no_wrapping_in_pipes():
    model = scripted("piped", SAYS)
    ended = run("-q", "-p", "Hi", model)
    assert ended.out.strip() == SAYS.strip(), ended.out
    ended = run(model, command="chat", text="Hi\n")
    assert ended.out.strip() == SAYS.strip() and "/help" not in ended.err, ended
    shown = Terminal("-q", "-p", "Hi", model, command="run", columns=60).end()
    assert all(len("".join(r)) <= 60 for r in Screen(60).put(shown).rows) and "\x1b[K" in shown, shown


def test_chat_says_who_answers():
    t = Terminal("--ctx", "512")
    first = [line for line in Screen(100).put(t.prompt()).lines() if line]
    assert "context 512 tokens" in first[0] and "/help" in first[0] and first[0].lower().startswith("pebble"), first
    assert all(len(line) < 100 for line in first), first
    leave(t)
    t = Terminal(columns=80)
    t.prompt()
    for command in ("/help", "/nothing", "/load", "/set", "/profile", "/show info", "/set samplers foo", "/set temp abc"):
        screen = Screen(80).put(t.say(command))
        assert not screen.wrapped and "--help" not in "".join(screen.lines()), (command, screen.lines())
    leave(t)


def test_chat_answers_again():
    t = chat("-n", "24", "--temp", "1.5", "--seed", "1")
    assert "no messages yet" in t.say("/regen")
    t.say(FOX)
    answers = []
    for _ in range(4):
        t.say("/save " + path("again.session"))
        said = messages("again.session")
        assert [r for r, _ in said] == ["user", "assistant"] and said[0][1] == FOX, said
        answers.append(said[1][1])
        t.say("/regen")
    assert len(set(answers)) > 1, answers
    t.say("/set temp 0")
    assert "stays the same" in t.say("/regen")
    leave(t)


def test_chat_keeps_an_answer_that_is_not_replaced():
    t = chat("-n", "8")
    t.say(FOX)
    t.say("/save " + path("held.session"))
    before = messages("held.session")
    t.type("/regen\r")
    t.child.expect_exact("\x1b[?2004l")
    os.kill(t.child.pid, signal.SIGINT)  # before its first word, if the machine lets it be
    seen = t.prompt() + t.say("")
    t.say("/save " + path("held.session"))
    leave(t)
    said = messages("held.session")
    assert [r for r, _ in said] == ["user", "assistant"] and said[0] == before[0], (said, seen)


def test_chat_system_message():
    t = chat("-n", "2")
    assert "no system message" in t.say("/system")
    assert "set the system message" in t.say("/system Be brief.")
    assert "Be brief." in t.say("/system")
    t.say("hi")
    assert "replaced" in t.say("/system Be long.")
    t.say("/save " + path("system.session"))
    assert messages("system.session")[0] == ("system", "Be long.") and len(messages("system.session")) == 3
    assert "removed all 2 messages; the system message stays" in t.say("/clear")
    assert "removed" in t.say('/system ""') and "no system message" in t.say("/system")
    assert "set" in t.say('/set system "Quoted"')
    leave(t)


def test_chat_settings():
    t = chat("-n", "4", "--seed", "3")
    shown = t.say("/set")
    for line in ("max-tokens +4", "temp +0", "seed +3", "top-k +default", "dry-multiplier +0", "samplers +default"):
        assert re.search(line, shown), (line, shown)
    assert "max-tokens is 2 now" in t.say("/set max-tokens 2")
    t.say(FOX)
    assert "answer 2 tokens" in t.say("/speed")
    for words in ("temp 0.5", "temperature 0.25", "parameter top_k 20", "num_predict 3", "seed 9", "samplers top_k;temperature"):
        assert "now" in t.say("/set " + words), words
    shown = t.say("/set")
    for line in ("max-tokens +3", "temp +0.25", "seed +9", "top-k +20", "samplers +top_k;temperature"):
        assert re.search(line, shown), (line, shown)
    for words, why in (("temp hot", "expected a number"), ("nothing 1", "no setting nothing"), ("temperatur 1", "did you mean temp"),
                       ("top-p", "needs a value"), ("top-p 2", "expected"), ("samplers nonsense", "nonsense"), ("mirostat 1", "mirostat")):
        seen = t.say("/set " + words)
        assert why in seen and " now" not in seen, (words, seen)
    assert t.say("/set") == shown  # errors leave everything as it was
    t.say(FOX)
    for name, value in (("temp", r"[0-9.]+ \(default\)"), ("top-k", "default"), ("samplers", "default"), ("max-tokens", "-1")):
        assert "back to its default" in t.say("/set %s default" % name)
        assert re.search(r"%s +%s\r" % (name, value), t.say("/set")), (name, t.say("/set"))
    assert "dry-sequence-breaker is a b now" in t.say("/set dry-sequence-breaker 'a b'")
    assert "is empty" in t.say("/set dry-sequence-breaker ''")
    for command, hint in (("/set num_ctx 512", "no setting num_ctx; moraine chat --ctx N"), ("/set nothink", "--no-think"), ("/set verbose", "/speed"),
                          ("/show info", "/model describes")):
        assert hint in t.say(command), command
    assert "no answer yet" not in t.say("  /speed") and "answer" in t.say(" \t /speed")
    leave(t)


def test_chat_changes_the_model():
    other = scripted("other", "I am another one.")
    t = chat("-n", "8")
    t.say(FOX)
    shown = t.say("/model")
    assert "pebble" in shown and "context" in shown, shown
    for wrong in (path("nowhere.gguf"), "README.md", "nobody"):
        assert "moraine chat" in t.say("/model " + wrong), wrong
    assert "pebble" in t.say("/model")
    assert "/help" in t.say("/model " + other)
    assert "I am another one." in t.say("And you?")
    t.say("/save " + path("changed.session"))
    leave(t)
    assert [r for r, _ in messages("changed.session")] == ["user", "assistant"] * 2


def test_chat_other_words_for_commands():
    t = chat("-n", "4")
    assert "/regen" in t.say("/?")
    t.say(FOX)
    assert "removed the last message and its answer; 0 messages are left" in t.say("/undo")
    assert "nothing to remove" in t.say("/clear")
    t.type("/bye\r")
    t.end()


def test_chat_tab_completes():
    t = chat("-n", "4")
    t.type("/sp\t")
    t.expect("eed ")
    assert "no answer yet" in t.say("")
    t.type("/s\t")
    seen = t.expect("/speed")
    assert "/system" in seen and "/set" in seen and "/save" in seen, seen
    t.type("e\t")
    t.expect("t ")
    assert "max-tokens" in t.say("")
    t.type("/load models/peb\t") # pebble.gguf, and pebble-mtp.gguf
    t.expect("ble")
    t.type(".\t")
    t.expect("gguf")
    assert "not a session" in t.say("")
    t.type("no\tcommand")
    t.say("")
    leave(t)


SEES = ["tests/data/pictures/qwen3vlmoe.gguf", "--ctx", "256", "-n", "4", "--device", "none"]
PHOTO, SMALL = "tests/data/pictures/photo-61x37.png", "tests/data/pictures/photo-20x9.png"


def test_chat_reads_pictures():
    """A picture is part of the next message, as with run --image; what cannot be read is refused and the conversation goes on."""
    want = answer(*SEES, "--image", PHOTO, "-p", "What is it?").strip()
    both = answer(*SEES, "--image", PHOTO, "--image", SMALL, "-p", "Is <__media__> like <__media__>?").strip()
    without = answer(*SEES, "-p", "a <__media__> b").strip()
    said = run(*SEES, command="chat", text="/image %s\nWhat is it?\n/clear\n/image %s\n/image %s\nIs <__media__> like <__media__>?\n/clear\na <__media__> b\n" % (PHOTO, PHOTO, SMALL))
    assert said.returncode == 0 and said.out.split("\n") == [want, both, without, ""], (said, want, both, without)
    assert said.err.count(PHOTO + ": 61 x 37 pixels, 8 rows in the place of tokens; part of your next message") == 2, said.err
    refused = run(*SEES, command="chat", text="/image nowhere.png\n/image README.md\n/image tests\n/image -\n/image\n/image %s\nIs <__media__> like <__media__>?\n"
                  "/save %s\n/model pebble\nWhat is it?\n/save %s\n/regen\n/undo\n/undo\n/save %s\n" % (PHOTO, path("a.pictures"), path("b.pictures"), path("c.pictures")))
    for words in ("/image nowhere.png: No such file", "README.md: ", "/image tests: is a directory", "/image needs the name of a file", "/image needs a file name",
                  "2 marks <__media__> for pictures, but there is 1", "prepared for this model", "pictures are not saved"):
        assert words in refused.err, (words, refused.err)
    assert refused.returncode == 0 and refused.out.split("\n") == [want, want, ""], refused
    assert not os.path.exists(path("b.pictures")) and messages("c.pictures") == [], os.listdir(FOLDER)
    waiting = run(*SEES, command="chat", text="/image %s\n/undo\n/image %s\n/image %s\n/clear\nWhat is it?\n" % (PHOTO, PHOTO, SMALL))
    assert "removed the picture of" in waiting.err and "removed the 2 pictures" in waiting.err and waiting.out.strip() == answer(*SEES, "-p", "What is it?").strip(), waiting
    blind = run(*SEES, "--mmproj", "none", command="chat", text="/image %s\n" % PHOTO)
    assert "mmproj" in blind.err and "reads no pictures" in blind.err, blind.err
    kept = run(*SEES, "--session", path("pictures.session"), command="chat", text="/image %s\n" % PHOTO)
    assert "--session does not keep pictures" in kept.err, kept.err


def test_chat_pictures_and_a_full_context():
    """A message that has no place is kept with its picture."""
    narrow = [*SEES[:1], "--ctx", "64", "-n", "4", "--device", "none"]
    want = answer(*narrow, "--image", PHOTO, "-p", "And this?").strip()
    said = run(*narrow, command="chat", text="one two three four five six\n/image %s\nAnd this?\n/clear\n" % PHOTO)
    assert "is full" in said.err and said.out.split("\n")[-2] == want, (said, want)


def test_chat_completes_names_of_pictures():
    t = Terminal(*SEES)
    t.prompt()
    t.type("/im\t")
    t.expect("age ")
    t.type("tests/data/pictures/photo-6\t")
    t.expect("1x37.png")
    assert "61 x 37 pixels" in t.say("")
    spaced = path("my photo.png")
    shutil.copy(PHOTO, spaced)
    t.type("/image " + path("my\t"))  # a space that is written with a backslash
    t.expect("photo.png")
    assert "61 x 37 pixels" in t.say("")
    for quote in "'", '"', "":  # as terminals write files that are dropped on them
        assert "61 x 37 pixels" in t.say("/image %s%s%s" % (quote, spaced, quote))
    leave(t)


def test_chat_profile_is_a_table():
    t = chat("-n", "8")
    t.say(FOX)
    lines = [line for line in t.say("/profile").split("\r\n") if re.match(r"\s+\d+ ", line)]
    assert len(lines) == 7 and all("100.0 %" in line and " of 64 " in line and line.count("(") == 5 for line in lines), lines
    leave(t)
    ended = run("-n", "8", command="chat", text=FOX + "\n/profile\n")
    assert json.loads(ended.out.strip().split("\n")[-1])["n_expert"] == 64


def test_chat_stops_and_continues():
    """Ctrl-Z gives the terminal back to the shell; fg finds the line again, and its keys."""
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=dict(environment, PS1="shell$ "), encoding="utf-8", timeout=60,
                          dimensions=(40, 100))
    shell.expect_exact("shell$ ")
    shell.sendline(" ".join([PROGRAM, "chat", *SAME, "-n", "4"]))
    shell.expect_exact("\x1b[?2004h> ")
    for _ in range(2):
        shell.send("half a lime")
        time.sleep(0.3)
        shell.send("\x1a")
        shell.expect_exact("Stopped")
        shell.expect_exact("shell$ ")
        shell.sendline("stty -a | grep -o '.icanon'")
        assert "-icanon" not in shell.before
        shell.expect_exact("shell$ ")
        shell.sendline("fg")
        shell.expect_exact("> ")
        shell.expect_exact("half a lime")
        time.sleep(0.2)
        shell.send("\x1b[D\x7fn")  # the arrows edit
        time.sleep(0.2)
        shell.send("\r")
        shell.expect_exact("\x1b[?2004h> ")
        assert "^[" not in shell.before, shell.before
    os_pid = subprocess.run(["pgrep", "-P", str(shell.pid), "moraine"], capture_output=True, text=True).stdout.split()[0]
    shell.send("still here")
    time.sleep(0.2)
    os.kill(int(os_pid), signal.SIGCONT)  # without a stop it only draws
    shell.expect_exact("still here")
    shell.send("\x15/save " + path("stopped.session") + "\r")
    shell.expect_exact("saved to")
    shell.expect_exact("> ")
    shell.send("\x04")
    shell.expect_exact("shell$ ")
    shell.close(force=True)
    assert [c for r, c in messages("stopped.session") if r == "user"] == ["half a line"] * 2, messages("stopped.session")


def test_chat_line_in_a_window_that_changes():
    """A line of several rows is drawn again at the width that the window has now, and nothing of it stays."""
    t = chat("-n", "2")
    text = "abcdefghij" * 15
    t.type(text)
    time.sleep(0.3)
    t.child.expect(r".+")
    for width in (60, 120):
        t.child.setwinsize(40, width)
        time.sleep(0.3)
        t.child.expect_exact("\x1b[J")
        t.child.expect_exact("> ")
        t.child.expect("abcdefghij")
    t.type("\x15short")
    t.say("")
    t.say("/save " + path("resized.session"))
    leave(t)
    assert messages("resized.session")[0] == ("user", "short")


def test_help_teaches_it():
    for command, words in (("run", ("--stop", "--json", "--session", "pipe")),
                           ("chat", ("--stop", "--session", "--history", "/save", "/load", "/drop", '"""', "pasted"))):
        shown = subprocess.run([PROGRAM, command, "--help"], env=environment, capture_output=True).stdout.decode()
        for word in words:
            assert word in shown, (command, word)


def main():
    status = tap.run(tap.named(globals()), sys.argv[2:])
    shutil.rmtree(FOLDER, ignore_errors=True)
    return status


sys.exit(main())
