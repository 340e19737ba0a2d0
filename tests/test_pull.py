#!/usr/bin/env python3
"""test_pull.py BUILD [NAME ...]: moraine pull, list and rm against a server that plays the hub (support/fake_hub.py): what comes is what
the hub has, whatever is cut, late or wrong on the way, and nothing half-written is ever taken for a model.

Speaks TAP, as the other test programs do.
"""
import fcntl
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import tap
from fake_hub import Hub

try:
    import pexpect
except ImportError:  # another python before Debian's, which has it
    if os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3"] + sys.argv)
    raise

signal.signal(signal.SIGINT, signal.default_int_handler)
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PROGRAM = os.path.abspath(os.path.join(sys.argv[1], "moraine"))
FOLDER = tempfile.mkdtemp(prefix="moraine-pull-")
SLOW = 4 if os.environ.get("MO_SLOW") else 1  # builds with sanitizers

environment = {k: v for k, v in os.environ.items()
               if not k.startswith(("LLAMA_", "MORAINE_", "HF_", "LISTEN_", "NOTIFY_")) and not k.lower().endswith("_proxy")}
environment.update(XDG_CACHE_HOME=os.path.join(FOLDER, "cache"), HOME=FOLDER, XDG_DATA_HOME=os.path.join(FOLDER, "data"))
STORE = os.path.join(FOLDER, "data/moraine/models")
NAME = "owner/repo-GGUF"


def read(path):
    with open(path, "rb") as f:
        return f.read()


MODEL = read("tests/data/oracle/qwen3moe.gguf")  # 1.4 MB
SMALL = read("tests/data/oracle/llama31.gguf")
FILE = "Model-Q4_K_M.gguf"


def moraine(*arguments, env=None, **kw):
    return subprocess.run([PROGRAM, *arguments], env={**environment, **(env or {})}, capture_output=True, text=True, timeout=120 * SLOW,
                          stdin=subprocess.DEVNULL, **kw)


def pull(hub, what=NAME, *options, env=None, **kw):
    return moraine("pull", what, "--mirror", hub.url, "--range", "64K", *options, env=env, **kw)


def kept(where=STORE):
    """Every file in the store."""
    return sorted(os.path.relpath(f, where) for f in glob.glob(where + "/**/*", recursive=True, include_hidden=True) if os.path.isfile(f))


def fresh():
    shutil.rmtree(STORE, ignore_errors=True)


def good(ended, data=MODEL):
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    path = ended.stdout.strip()
    assert read(path) == data, "other bytes"
    return path


def bad(ended, *words, code=1):
    assert ended.returncode == code, (ended.returncode, ended.stderr)
    for word in words:
        assert word in ended.stderr, (word, ended.stderr)
    assert ended.stdout == "", ended.stdout


def test_a_model_comes_in_ranges_and_gets_its_name_at_the_end():
    fresh()
    with Hub({FILE: MODEL, "mmproj-F16.gguf": SMALL, "imatrix.gguf": SMALL}) as hub:
        ended = pull(hub)
        assert good(ended) == os.path.join(STORE, NAME, FILE), ended.stdout
        for word in ("%s:Q4_K_M: 1.30 MiB in 1 file" % NAME, "disk: 1.30 MiB needed", "free in " + STORE, "this machine: everything is in RAM",
                     "tokens/s expected"):
            assert word in ended.stderr, (word, ended.stderr)
        asked = hub.asked()
        assert len(asked) > 20 and all(asked), asked
        assert kept() == [os.path.join(NAME, FILE)], kept()
        hub.forget()
        good(pull(hub))  # is there
        assert hub.asked() == [], hub.asked()
        assert "is already downloaded" in pull(hub, NAME, "--dry").stderr


def test_an_encoder_of_pictures_comes_with_its_model():
    """The usual one of the repository, for models that read pictures; run finds it beside the model, and rm removes it with the last model."""
    sees, encoder = read("tests/data/pictures/qwen3vlmoe.gguf"), read("tests/data/pictures/qwen3vlmoe.mmproj.gguf")
    name, where = NAME + ":Q8_0", lambda *files: sorted(os.path.join(NAME, f) for f in files)
    one, two = "Q8_0/See-Q8_0.gguf", "See-Q4_K_M.gguf"
    files = {one: sees, two: sees, "mmproj-BF16.gguf": encoder + b"b", "mmproj-F16.gguf": encoder, "mmproj-F32.gguf": encoder + b"f", "odd/See-mmproj-F16.gguf": encoder + b"o"}
    photo = ["--image", "tests/data/pictures/photo-61x37.png", "-p", "What?", "-n", "4", "--temp", "0", "--device", "none", "--profile", "off", "-q"]
    with Hub(files) as hub:
        fresh()
        dry = pull(hub, name, "--dry")
        assert dry.returncode == 0 and "in 2 files" in dry.stderr and "mmproj-F16.gguf, with which it reads pictures: 419 KiB; --mmproj none leaves it out" in dry.stderr, dry.stderr
        assert kept() == [], kept()
        listed = pull(hub, NAME, "--list")
        assert listed.stdout.count("\n") == 2 and listed.stderr.count("an encoder of pictures") == 4, listed
        good(pull(hub, name), sees)
        assert kept() == where(one, "mmproj-F16.gguf") and read(os.path.join(STORE, NAME, "mmproj-F16.gguf")) == encoder, kept()
        hub.forget()
        good(pull(hub, name), sees)
        assert hub.asked() == [], hub.asked()
        assert moraine("list").stdout.count("\n") == 1, moraine("list").stdout
        said = moraine("run", name, *photo)
        want = moraine("run", "tests/data/pictures/qwen3vlmoe.gguf", *photo)
        assert said.returncode == 0 and said.stdout == want.stdout != "", (said, want)
        os.remove(os.path.join(STORE, NAME, "mmproj-F16.gguf"))  # as an earlier moraine left it
        assert "is already downloaded" not in pull(hub, name, "--dry").stderr
        good(pull(hub, name), sees)
        assert kept() == where(one, "mmproj-F16.gguf"), kept()
        good(pull(hub, NAME + ":Q4_K_M", "--mmproj", "mmproj-BF16.gguf"), sees)
        assert kept() == where(one, two, "mmproj-F16.gguf", "mmproj-BF16.gguf"), kept()
        assert moraine("rm", name).returncode == 0
        assert kept() == where(two, "mmproj-F16.gguf", "mmproj-BF16.gguf"), kept()
        with open(os.path.join(STORE, NAME, "mmproj-F32.gguf.part"), "w") as part:  # as a pull of another model has it
            fcntl.flock(part, fcntl.LOCK_EX)
            bad(pull(hub, name, "--mmproj", "mmproj-F32.gguf"), "mmproj-F32.gguf is being pulled by another process")
            assert read(os.path.join(STORE, NAME, one)) == sees and not os.path.exists(os.path.join(STORE, NAME, one + ".part")), kept()
        good(pull(hub, name, "--mmproj", "mmproj-F32.gguf"), sees)
        assert kept() == where(one, two, "mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf"), kept()
        assert moraine("rm", name).returncode == 0
        assert moraine("rm", NAME + ":Q4_K_M").returncode == 0 and kept() == [], kept()
        good(pull(hub, name, "--mmproj", "none"), sees)
        assert kept() == where(one), kept()
        bad(moraine("run", name, *photo), "mmproj", code=2)
        bad(pull(hub, name, "--mmproj", "mmproj-Q4_0.gguf"), "has no encoder mmproj-Q4_0.gguf", "mmproj-BF16.gguf, mmproj-F16.gguf")
        fresh()
        hub.files = {FILE: MODEL, "mmproj-F16.gguf": encoder}  # of a model of text alone
        dry = pull(hub, NAME, "--dry")
        assert "in 1 file" in dry.stderr and "mmproj" not in dry.stderr, dry.stderr
        good(pull(hub, NAME))
        assert kept() == where(FILE), kept()


def test_names_of_every_kind_mean_the_same():
    fresh()
    os.makedirs(os.path.join(STORE, ".plan-old"))  # of a run that was killed long ago
    os.utime(os.path.join(STORE, ".plan-old"), (0, 0))
    with Hub({FILE: MODEL}) as hub:
        host = hub.url[7:]
        for name in (NAME, NAME + ":Q4_K_M", NAME + ":q4_k_m", "hf.co/" + NAME, "huggingface.co/" + NAME, "https://huggingface.co/" + NAME,
                     "https://hf.co/%s/tree/main" % NAME, "%s/%s/resolve/main/%s" % (hub.url, NAME, FILE),
                     "%s/%s/blob/main/%s?download=true" % (host and hub.url, NAME, FILE)):
            assert good(pull(hub, name)).endswith(os.path.join(NAME, FILE)), name
        assert not os.path.exists(os.path.join(STORE, ".plan-old"))
        good(moraine("pull", NAME, env={"HF_ENDPOINT": hub.url}))
        for name in ("nothing", "a/b/c/d", "../x/y", "/owner/repo", "owner/..", "owner/repo:", "owner/repo:a/b", "ftp://x/y.gguf",
                     "http://u:p@127.0.0.1/x.gguf", hub.url + "/x.bin"):
            bad(pull(hub, name), code=2)
        bad(pull(hub, NAME, "--mirror", "nowhere"), "mirror", code=2)


def test_the_one_that_is_meant_is_chosen_or_asked_for():
    with Hub({"M-Q8_0.gguf": MODEL, "M-Q4_K_M.gguf": SMALL, "BF16/M-BF16.gguf": MODEL, "M-UD-Q2_K_XL.gguf": SMALL}) as hub:
        fresh()
        assert good(pull(hub), SMALL).endswith("M-Q4_K_M.gguf")
        assert good(pull(hub, NAME + ":bf16")).endswith("BF16/M-BF16.gguf")
        assert good(pull(hub, NAME + ":UD-Q2_K_XL"), SMALL).endswith("M-UD-Q2_K_XL.gguf")
        bad(pull(hub, NAME + ":Q5_K_M"), "has no Q5_K_M", "BF16, Q4_K_M, Q8_0, UD-Q2_K_XL")
        listed = pull(hub, NAME, "--list").stdout
        assert listed.count("\n") == 4 and NAME + ":Q8_0  1.30 MiB in 1 file" in listed, listed
        del hub.files["M-Q4_K_M.gguf"]
        bad(pull(hub), "several models", NAME + ":BF16")
        hub.files = {"README.md": b"x" * 10}
        bad(pull(hub), "no GGUF file")
        listed = pull(hub, NAME, "--list")
        assert listed.returncode == 0 and not listed.stdout and "has no complete GGUF model" in listed.stderr, listed


def test_split_models_come_whole():
    def part(no, count):
        """A GGUF file of no tensors that says which part it is."""
        def key(name, kind, value):
            return len(name).to_bytes(8, "little") + name.encode() + kind.to_bytes(4, "little") + value
        body = b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (2).to_bytes(8, "little")
        return body + key("split.no", 2, no.to_bytes(2, "little")) + key("split.count", 2, count.to_bytes(2, "little")) + bytes(200000 + no)
    names = ["Q8_0/Big-Q8_0-%05d-of-00003.gguf" % (i + 1) for i in range(3)]
    fresh()
    with Hub({name: part(i, 3) for i, name in enumerate(names)}) as hub:
        hub.files["Q4_K_M/Big-Q4_K_M-00001-of-00002.gguf"] = part(0, 2)  # the other part is missing
        bad(pull(hub, NAME + ":Q8_0"), "nothing was downloaded; --force")  # no model that could run
        assert "Q4_K_M" not in pull(hub, NAME, "--list").stdout
        hub.sums[names[2]] = hub.linked[names[2]] = "0" * 64  # the last one fails: none gets its name
        bad(pull(hub, NAME + ":Q8_0", "--force"), "SHA-256")
        assert all(".part" in name for name in kept()), kept()
        assert "incomplete" in moraine("list").stdout
        hub.sums, hub.linked = {}, {}
        hub.forget()
        ended = pull(hub, NAME + ":Q8_0", "--force")
        assert ended.returncode == 0 and ended.stdout.strip().endswith(names[0]), ended.stderr
        assert len([path for who, path, *_ in hub.requests if who == "cdn" and names[0] in path]) == 1, hub.requests  # its header alone
        assert kept() == sorted(os.path.join(NAME, name) for name in names), kept()
        for i, name in enumerate(names):
            assert read(os.path.join(STORE, NAME, name)) == hub.files[name]
        assert json.loads(moraine("list", "--json").stdout)[0]["name"] == NAME + ":Q8_0"


def test_an_update_of_a_split_model_never_mixes_its_versions():
    def part(no, version):
        return (b"GGUF" + bytes([version]) * 100000)[:100000 + no]
    names = ["Big-Q8_0-%05d-of-00003.gguf" % (i + 1) for i in range(3)]
    for first in (1, 2):  # the version of the first part that the new one has: the same, or another
        fresh()
        with Hub({name: part(i, 1) for i, name in enumerate(names)}) as hub:
            assert pull(hub, NAME + ":Q8_0", "--force").returncode == 0
            hub.files = {name: part(i, 2 if i else first) for i, name in enumerate(names)}
            second = os.path.join(STORE, NAME, names[1])
            os.remove(second)
            os.makedirs(os.path.join(second, "in the way"))
            bad(pull(hub, NAME + ":Q8_0", "--force"), "cannot rename")
            for i in (0, 2):  # as it was
                assert read(os.path.join(STORE, NAME, names[i])) == part(i, 1), kept()
            bad(moraine("show", NAME + ":Q8_0"), "no model of that name has been pulled")
            shutil.rmtree(second)
            assert pull(hub, NAME + ":Q8_0", "--force").returncode == 0
            for name in names:
                assert read(os.path.join(STORE, NAME, name)) == hub.files[name], name
            assert kept() == sorted(os.path.join(NAME, name) for name in names), kept()


def test_a_pull_that_was_killed_while_names_were_given_is_gone_on_with():
    def part(no, version):
        return (b"GGUF" + bytes([version]) * 100000)[:100000 + no]
    names = ["Big-Q8_0-%05d-of-00003.gguf" % (i + 1) for i in range(3)]
    for done in (1, 2):  # files of the new version that have their names already
        fresh()
        with Hub({name: part(i, 2 if i else 1) for i, name in enumerate(names)}) as hub:
            assert pull(hub, NAME + ":Q8_0", "--force").returncode == 0
            first, second = (os.path.join(STORE, NAME, name) for name in names[:2])
            os.rename(first, first + ".prev")  # the same in both versions
            if done == 1:
                with open(second, "wb") as f:
                    f.write(part(1, 1))
            bad(moraine("show", NAME + ":Q8_0"), "no model of that name has been pulled")
            assert "incomplete" in moraine("list").stdout
            hub.forget()
            assert pull(hub, NAME + ":Q8_0", "--force").returncode == 0
            assert not [r for who, path, r, _ in hub.requests if who == "cdn" and names[0] in path and r == "bytes=0-65535"], hub.requests
            for name in names:
                assert read(os.path.join(STORE, NAME, name)) == hub.files[name], name
            assert kept() == sorted(os.path.join(NAME, name) for name in names), kept()
            os.rename(first, first + ".prev")
            assert moraine("rm", NAME + ":Q8_0").returncode == 0 and kept() == [], kept()


def test_cut_connections_are_gone_on_with():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.troubles = {"cut": 12, "short": 3, "shifted": 2}
        good(pull(hub, NAME, "--tries", "100"))
        assert hub.troubles == {"cut": 0, "short": 0, "shifted": 0}, hub.troubles
        begun = [r for r in hub.asked() if r and int(r[6:].split("-")[0]) % 65536]
        assert begun, hub.asked()  # in the middle of pieces


def test_hosts_and_repositories_that_do_not_exist_are_said_at_once():
    fresh()
    began = time.monotonic()
    env = {"HF_ENDPOINT": "http://no-such-host.invalid"}
    ended = moraine("pull", NAME, env=env)
    bad(ended, "the host's name cannot be resolved; check the address and the network")
    assert "retrying" not in ended.stderr and time.monotonic() - began < 30, (time.monotonic() - began, ended.stderr)
    with Hub({FILE: MODEL}) as hub:
        bad(pull(hub, "nobody/nothing", env={"HF_TOKEN": "hf_x"}), "there is no repository nobody/nothing at " + hub.url)
        bad(pull(hub, "nobody/nothing"), "there is no such repository, or it is private or gated")


def test_a_hub_that_only_fails_is_given_up_and_what_came_is_kept():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.troubles = {"busy": -1}
        bad(pull(hub, NAME, "--tries", "2"), "returned 503", "partial download is kept")
        hub.troubles = {}
        fresh()
        interrupted(hub)
        hub.troubles = {"busy": -1}
        bad(pull(hub, NAME, "--tries", "2"), "returned 503")
        assert kept() == [os.path.join(NAME, FILE + ".part"), os.path.join(NAME, FILE + ".part.json")], kept()


def interrupted(hub, number=signal.SIGINT):
    """A pull that is ended when some pieces have come."""
    hub.forget()
    hub.hold = 8
    process = subprocess.Popen([PROGRAM, "pull", NAME, "--mirror", hub.url, "--range", "64K", "--connections", "2"], env=environment,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(hub.asked()) > 8)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    hub.hold = None
    assert time.monotonic() - began < 5 * SLOW * tap.crowd()
    return process.returncode, out, err


def until(condition):
    for _ in range(600 * SLOW):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come")


def test_ctrl_c_keeps_what_has_come_and_the_next_one_goes_on():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        code, out, err = interrupted(hub)
        assert code == 130 and out == "" and "partial download is kept" in err, (code, err)
        assert kept() == [os.path.join(NAME, FILE + ".part"), os.path.join(NAME, FILE + ".part.json")], kept()
        assert "incomplete" in moraine("list").stdout
        bad(moraine("show", NAME), "no model of that name has been pulled; moraine pull " + NAME)
        hub.forget()
        good(pull(hub))
        pieces = {r for r in hub.asked() if r and r != "bytes=0-262143"}
        assert 0 < len(pieces) < 21, pieces  # of 21
        assert kept() == [os.path.join(NAME, FILE)], kept()


def test_a_killed_pull_is_gone_on_with():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        code, _, _ = interrupted(hub, signal.SIGKILL)
        assert code == -9 and not moraine("list").stdout.count("Model-Q4_K_M.gguf\n")
        good(pull(hub))
        assert kept() == [os.path.join(NAME, FILE)], kept()


def test_damaged_leftovers_are_not_trusted():
    with Hub({FILE: MODEL}) as hub:
        state = os.path.join(STORE, NAME, FILE + ".part.json")
        for damage in ("{}", "", "[1]", '{"bytes": %d, "identity": "x", "piece": 65536, "there": "ffffff"}' % len(MODEL)):
            fresh()
            interrupted(hub)
            with open(state, "w") as f:
                f.write(damage)
            ended = pull(hub)
            good(ended)
            assert "starting over" in ended.stderr, ended.stderr
        fresh()
        interrupted(hub)
        said = json.loads(read(state))
        with open(state, "w") as f:
            json.dump({**said, "there": "f" * len(said["there"])}, f)  # it lies: the checksum finds out
        bad(pull(hub), "is damaged")
        assert kept() == [], kept()
        good(pull(hub))


def test_a_file_that_changed_between_two_runs_is_begun_anew():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        interrupted(hub)
        hub.files[FILE] = MODEL[:-100] + bytes(100)
        ended = pull(hub)
        good(ended, hub.files[FILE])
        assert "starting over" in ended.stderr, ended.stderr


def test_a_file_that_changed_after_it_was_pulled_is_fetched_anew():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        path = good(pull(hub))
        hub.files[FILE] = MODEL[:-100] + bytes(100)  # as long as before
        ended = pull(hub)
        good(ended, hub.files[FILE])
        assert "differs from the hub's current file" in ended.stderr, ended.stderr
        with open(path, "r+b") as f:  # somebody writes to it
            f.seek(-50, 2)
            f.write(b"x")
        os.utime(path, (1, 1))  # later, or earlier: another time than before
        good(pull(hub), hub.files[FILE])
        with open(path, "wb") as f:  # and puts the right one there
            f.write(hub.files[FILE])
        os.utime(path, (2, 2))
        hub.forget()
        good(pull(hub), hub.files[FILE])
        assert hub.asked() == [], hub.asked()
        address = "%s/cdn/%s" % (hub.url.replace("127.0.0.1", "localhost"), FILE)  # where no hub gives a checksum
        good(moraine("pull", address), hub.files[FILE])
        hub.files[FILE], hub.etag = MODEL, "v2"
        path = moraine("pull", address).stdout.strip()
        attributes = os.listxattr(path)  # a file system that keeps none leaves the size alone
        assert read(path) == MODEL or not attributes, attributes


def test_without_a_checksum_only_a_strong_tag_is_gone_on_with():
    other = MODEL[:1000000] + bytes(200000) + MODEL[1200000:]
    with Hub({FILE: MODEL}) as hub:
        hub.lfs = False
        hub.linked[FILE] = "0" * 40  # of Git
        for tag, weak in (("v2", ""), ("v1", "W/")):
            fresh()
            hub.files[FILE], hub.etag, hub.weak = MODEL, "v1", weak
            interrupted(hub)
            hub.files[FILE], hub.etag = other, tag
            ended = pull(hub)
            good(ended, other)
            assert "starting over" in ended.stderr, ended.stderr
        fresh()
        hub.files[FILE], hub.etag, hub.weak = MODEL, "v1", ""
        interrupted(hub)
        ended = pull(hub)
        good(ended)
        assert "starting over" not in ended.stderr, ended.stderr


def test_a_file_that_changes_meanwhile_is_refused():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.linked[FILE] = "1" * 64  # the hub's redirect speaks of another one than its list
        bad(pull(hub), "changed during the download")


def test_wrong_bytes_never_get_a_name():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.flip = 777777
        bad(pull(hub), "SHA-256", "removed, pull it again")
        assert kept() == [], kept()
        hub.flip = None
        good(pull(hub))


def test_repositories_that_were_renamed_are_followed():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.moved, hub.page = "owner/older", 1
        path = good(pull(hub, "owner/older"))
        assert path == os.path.join(STORE, "owner/older", FILE), path


def test_only_the_redirects_word_counts_as_a_checksum():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.lfs = False  # the list has none
        good(pull(hub))  # and the tag of what comes, which looks like one, is another
        fresh()
        hub.flip = 700000
        bad(pull(hub), "SHA-256")
        hub.flip, hub.linked_sizes[FILE] = None, len(MODEL) + 1
        bad(pull(hub), "another size")
        assert not [name for name in kept() if name.endswith(".gguf")], kept()


def test_wrong_sizes_and_pages_are_refused():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.sizes[FILE] = len(MODEL) + 5
        bad(pull(hub), "has another size than announced")
        fresh()
        hub.sizes = {}
        hub.total = len(MODEL) - 1
        bad(pull(hub), "has another size than announced")
        fresh()
        hub.total = None
        hub.html = True
        bad(pull(hub), "HTML page")
        hub.html = False
        hub.files[FILE] = b"not a model at all" * 1000
        bad(pull(hub), "GGUF", "nothing was downloaded")
        hub.files[FILE] = b"PK" * 100
        bad(pull(hub), "GGUF")
        assert kept() == [], kept()
        for listing in (b"<html>", b"{}", b"null", b"[", b"[1, null, {}]", b'[{"type": "file", "path": 3}]'):
            hub.listing = listing
            bad(pull(hub))


def test_a_server_that_knows_no_ranges_will_do():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.no_ranges = True
        good(pull(hub))
        fresh()
        hub.troubles = {"cut": 2}
        good(pull(hub))
        fresh()
        good(moraine("pull", "%s/cdn/%s" % (hub.url, FILE), "--connections", "1"))


def test_without_ranges_no_byte_of_a_pass_that_was_cut_counts_as_checked():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.no_ranges = True
        hub.troubles = {"cut whole": 1}
        hub.flip_then = 600000  # the second pass has another byte where the first one had the right one
        bad(pull(hub), "is damaged")
        assert kept() == [], kept()
        hub.flip = None
        good(pull(hub))


def test_without_ranges_a_server_that_always_cuts_is_given_up():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.no_ranges = True
        hub.troubles = {"cut whole": -1}
        bad(pull(hub, NAME, "--tries", "2"), "partial download is kept")
        hub.troubles = {}
        good(pull(hub))


def test_a_silent_connection_is_made_anew():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.troubles = {"stall": 2}
        good(pull(hub, NAME, "--timeout", "1"))


def test_busy_hubs_are_waited_for_as_they_say():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.troubles = {"list": 1, "busy": 2}
        hub.code = 429
        began = time.monotonic()
        ended = pull(hub)
        good(ended)
        assert time.monotonic() - began >= 2 and "returned 429; retrying in 1 s" in ended.stderr, ended.stderr
        fresh()
        hub.troubles = {"busy": -1}
        hub.retry_after = "86400"
        bad(pull(hub), "retry in 86400 seconds")


def test_gated_repositories_want_a_token_and_nobody_else_gets_it():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.token = "hf_secret"
        bad(pull(hub), "gated", "HF_TOKEN")
        bad(pull(hub, env={"HF_TOKEN": "hf_wrong"}), "has no access")
        ended = pull(hub, env={"HF_TOKEN": "hf_secret"})
        good(ended)
        assert "hf_secret" not in ended.stderr
        assert {who for who, _, _, token in hub.requests if token == "Bearer hf_secret"} == {"hub"}, hub.requests
        fresh()
        os.makedirs(os.path.join(FOLDER, ".cache/huggingface"), exist_ok=True)
        with open(os.path.join(FOLDER, ".cache/huggingface/token"), "w") as f:
            f.write("hf_secret\n")
        good(pull(hub))
        hub.forget()
        fresh()
        hub.signs = False
        good(moraine("pull", "http://localhost:%d/cdn/%s" % (hub.cdn.server_port, FILE)))  # not of the hub
        assert not [token for *_, token in hub.requests if token], hub.requests
        os.remove(os.path.join(FOLDER, ".cache/huggingface/token"))
        bad(pull(hub, "other/one"), "401")


def test_names_from_the_hub_stay_inside():
    fresh()
    hostile = ["../x-Q8_0.gguf", "/tmp/x-Q8_0.gguf", "a/../../x-Q8_0.gguf", ".hidden-Q8_0.gguf", "a//b-Q8_0.gguf", "a\\b-Q8_0.gguf", "a\n-Q8_0.gguf",
               "a/./b-Q8_0.gguf", "-rf-Q8_0.gguf", "x" * 300 + "-Q8_0.gguf", "d/" * 600 + "x-Q8_0.gguf"]
    with Hub({**{name: SMALL for name in hostile}, "ok & fine-Q2_K.gguf": SMALL}) as hub:
        assert pull(hub, NAME, "--list").stdout.count("\n") == 1
        bad(pull(hub, NAME + ":Q8_0"), "has no Q8_0")
        good(pull(hub), SMALL)
        assert kept() == [os.path.join(NAME, "ok & fine-Q2_K.gguf")], kept()
        for place in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x"):
            fresh()
            hub.redirect = place
            bad(pull(hub, NAME, "--tries", "1"))
            assert kept() == [], kept()


def test_a_disk_that_is_too_small_is_said_before():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.sizes[FILE] = 1 << 43  # 8 TiB
        bad(pull(hub), "not enough disk space", "MORAINE_MODELS")
        hub.sizes = {}
        ended = pull(hub, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600000, 600000)))  # files of this size are full
        bad(ended, "free some space")
        assert kept() == [], kept()
        good(pull(hub))


def test_long_lists_come_in_pages():
    with Hub({"M-Q%d_K.gguf" % i: SMALL for i in range(2, 9)}) as hub:
        hub.page = 2
        assert pull(hub, NAME, "--list").stdout.count("\n") == 7
        hub.page = 1
        hub.files = {"M%d-Q2_K.gguf" % i: SMALL for i in range(45)}
        ended = pull(hub, NAME, "--list")
        assert ended.stdout.count("\n") == 38 and "the rest was ignored" in ended.stderr, ended  # and two that are no models


def test_files_at_any_address():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        address = "%s/cdn/%s?x=1" % (hub.url.replace("127.0.0.1", "localhost"), FILE)
        path = good(moraine("pull", address, "--range", "64K"))
        assert path == os.path.join(STORE, "localhost/Model-Q4_K_M", FILE), path
        assert "localhost/Model-Q4_K_M:Q4_K_M" in moraine("list").stdout
        fresh()
        hub.pace = 0.005
        child = pexpect.spawn(PROGRAM, ["pull", address, "--range", "64K"], env={**environment, "TERM": "xterm"}, encoding="utf-8", timeout=60 * SLOW)
        child.expect(r"pulling[^\r\n]* of %.2f MiB" % (len(MODEL) / (1 << 20)))  # of a size that no list told
        child.expect(pexpect.EOF)
        fresh()
        hub.pace = 0
        hub.flip = 30  # no checksum says so, but the header does
        bad(moraine("pull", address, "--range", "64K"), "damaged")
        hub.flip, hub.files[FILE] = None, MODEL[:-5000]
        bad(moraine("pull", address, "--force"), "cut short")  # it is not whole by its own words
        assert kept() == [], kept()


def test_one_pull_at_a_time():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        hub.hold = 8
        first = subprocess.Popen([PROGRAM, "pull", NAME, "--mirror", hub.url, "--range", "64K"], env=environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
        until(lambda: os.path.exists(os.path.join(STORE, NAME, FILE + ".part.json")))
        bad(pull(hub), "pulled by another process")
        hub.hold = None
        assert first.communicate(timeout=60)[0].strip().endswith(FILE) and first.returncode == 0
        good(pull(hub))


def test_commands_know_models_by_their_names():
    fresh()
    with Hub({FILE: MODEL, "M-Q8_0.gguf": SMALL}) as hub:
        bad(moraine("show", NAME), "no model of that name has been pulled; moraine pull " + NAME)
        good(pull(hub, NAME + ":Q8_0"), SMALL)
        assert moraine("inspect", NAME).returncode == 0  # the only one
        good(pull(hub))
        assert moraine("inspect", NAME + ":q8_0", "--json").returncode == 0
        assert json.loads(moraine("plan", "hf.co/" + NAME, "--json").stdout)["model"].endswith(FILE)  # Q4_K_M, as when pulling
        assert moraine("inspect", env={"MORAINE_MODEL": NAME}).returncode == 0
        os.rename(os.path.join(STORE, NAME, FILE), os.path.join(STORE, NAME, "Model-Q6_K.gguf"))
        bad(moraine("inspect", NAME), "several models", NAME + ":Q6_K", code=2)
        bad(moraine("inspect", "owner/absent.gguf"))  # a file's name


def tree():
    """Every file and folder that is kept."""
    return sorted(glob.glob(STORE + "/**/*", recursive=True, include_hidden=True))


def test_plans_take_the_header_of_a_model_that_is_not_here():
    fresh()
    pc = ("--gpu", "rtx-4070", "--ram", "64G")
    with Hub({FILE: MODEL, "Model-Q8_0.gguf": MODEL}) as hub:
        there = {"HF_ENDPOINT": hub.url}
        plan = json.loads(moraine("plan", NAME, "--json", *pc, env=there).stdout)
        assert plan["model"] == NAME + ":Q4_K_M" and plan["device"]["name"] == "RTX 4070" and plan["described"].startswith("RTX 4070 (12 GiB"), plan
        assert len(hub.asked()) < 8, hub.asked()  # of the file
        assert tree() == [], tree()
        table = moraine("inspect", NAME + ":Q8_0", env=there)
        assert table.returncode == 0 and table.stdout.startswith(NAME + ":Q8_0\n") and "128 experts" not in table.stderr, (table.stdout, table.stderr)
        lines = moraine("plan", NAME, "--for", "rtx-3060, 32G", env=there)
        assert lines.returncode == 0 and lines.stdout.count("\n") == 2 and "everything is in VRAM" in lines.stdout, lines
        dry = pull(hub, NAME, "--dry", *pc)
        assert dry.returncode == 0 and "described machine: RTX 4070" in dry.stderr and "everything is in VRAM" in dry.stderr, dry.stderr
        bad(pull(hub, NAME, "--dry", "--gpu", "rtx-40"), "unknown GPU", code=2)
        bad(moraine("plan", NAME, "--ram", "64K", env=there), NAME + ":Q4_K_M: ")  # not the folder that it was in
        bad(moraine("plan", NAME + ":Q6_K", env=there), "Q4_K_M")
        assert tree() == [], tree()
        hub.forget()
        good(pull(hub))
        assert json.loads(moraine("plan", NAME, "--json", env=there).stdout)["model"].endswith(FILE)  # the file that is here


def test_bench_makes_models_like_those_that_are_not_here():
    """Of a file, a pulled model and one of the hub: the same shape, and other weights; only headers are fetched."""
    fresh()
    folder = os.path.join(FOLDER, "made")
    os.makedirs(folder, exist_ok=True)

    def said(path):
        all_of_it = json.loads(moraine("inspect", path, "--json").stdout)
        return {k: v for k, v in all_of_it["summary"].items() if k not in ("name", "file_bytes")}, all_of_it["formats"], all_of_it["token_bytes"]

    def bench(name, *more, **kw):
        return moraine("bench", "--synthetic", name, "--prefill", "8", "--decode", "2", "--rounds", "1", "--json", *more, cwd=folder, **kw)

    with Hub({FILE: MODEL}) as hub:
        there = {"HF_ENDPOINT": hub.url}
        made = bench(NAME, env=there)
        path = os.path.join(folder, "owner-repo-GGUF-Q4_K_M-synthetic.gguf")
        assert made.returncode == 0 and json.loads(made.stdout)["decode_tps"] > 0, made.stderr
        assert "writing owner-repo-GGUF-Q4_K_M-synthetic.gguf, 1.30 MiB of random weights, which is kept\n" in made.stderr, made.stderr
        assert len(hub.asked()) < 8 and tree() == [], (hub.asked(), tree())
        assert abs(os.path.getsize(path) - len(MODEL)) < 256 and read(path) != MODEL
        assert "using existing" in bench(NAME, env=there).stderr
        hub.forget()
        good(pull(hub))
        assert "writing Model-Q4_K_M-synthetic.gguf, " in bench(NAME).stderr  # of the model that has been pulled by now
    local = os.path.join(folder, "here.gguf")
    with open(local, "wb") as out:
        out.write(MODEL)
    made = bench(local)
    assert made.returncode == 0, made.stderr
    assert said(os.path.join(folder, "here-synthetic.gguf")) == said(local)
    assert read(os.path.join(folder, "here-synthetic.gguf"))[-4096:] == read(path)[-4096:]  # the same seed and shape
    less = bench(local, "--layers", "1")
    assert less.returncode == 0 and "here-synthetic-1-layers.gguf, " in less.stderr, less.stderr
    assert said(os.path.join(folder, "here-synthetic-1-layers.gguf"))[0]["layers"] == 1
    bad(bench(local, "--layers", "8"), "must be 1 to", code=2)
    text = os.path.join(folder, "words.txt")
    with open(text, "w") as out:
        out.write("no model")
    bad(bench(text), "words.txt")


def test_an_architecture_that_does_not_run_is_said_first():
    fresh()
    with Hub({FILE: MODEL.replace(b"qwen3moe", b"qwen9moe")}) as hub:
        ended = moraine("bench", "--synthetic", NAME, env={"HF_ENDPOINT": hub.url}, cwd=FOLDER)
        bad(ended, "qwen9moe", "nothing was written")
        assert "qwen9moe" in ended.stderr.splitlines()[0] and not glob.glob(FOLDER + "/*synthetic*"), ended.stderr
        ended = pull(hub, NAME, "--dry")
        bad(ended, "qwen9moe")
        assert "qwen9moe" in ended.stderr.splitlines()[0] and "disk:" not in ended.stderr, ended.stderr
        ended = moraine("plan", NAME, env={"HF_ENDPOINT": hub.url})
        bad(ended, "qwen9moe")
        assert "qwen9moe" in ended.stderr.splitlines()[0], ended.stderr


def test_models_of_one_label_are_told_apart_by_their_files():
    fresh()
    with Hub({"a-Q4_K_M.gguf": MODEL, "b-Q4_K_M.gguf": SMALL}) as hub:
        here = {"HF_ENDPOINT": hub.url}
        a, b = ("%s/%s/resolve/main/%s-Q4_K_M.gguf" % (hub.url, NAME, which) for which in "ab")
        good(pull(hub, a))
        assert json.loads(moraine("plan", a, "--json", env=here).stdout)["model"].endswith("a-Q4_K_M.gguf")
        bad(moraine("show", b, env=here), "no model of that name has been pulled")
        bad(moraine("rm", b, env=here), "has not been pulled")
        bad(pull(hub, NAME + ":Q4_K_M"), "several models", "a-Q4_K_M, b-Q4_K_M")
        bad(pull(hub), "several models")
        good(pull(hub, NAME + ":b-Q4_K_M"), SMALL)
        bad(moraine("inspect", NAME.upper() + ":Q4_K_M"), "several models", NAME + ":a-Q4_K_M " + NAME + ":b-Q4_K_M", code=2)
        assert json.loads(moraine("plan", NAME + ":A-q4_k_m", "--json").stdout)["model"].endswith("a-Q4_K_M.gguf")
        bad(moraine("rm", NAME + ":Q4_K_M"), "several models")
        assert moraine("rm", b, env=here).returncode == 0
        assert kept() == [os.path.join(NAME, "a-Q4_K_M.gguf")], kept()
        assert moraine("rm", NAME + ":a-Q4_K_M").returncode == 0 and kept() == []


def test_rm_removes_what_was_pulled():
    fresh()
    with Hub({FILE: MODEL, "M-Q8_0.gguf": SMALL}) as hub:
        good(pull(hub))
        good(pull(hub, NAME + ":Q8_0"), SMALL)
        bad(moraine("rm", NAME + ":Q2_K"), "has not been pulled")
        bad(moraine("rm", NAME), "several models")
        assert moraine("rm", NAME + ":Q8_0").returncode == 0
        assert kept() == [os.path.join(NAME, FILE)]
        assert moraine("rm", NAME).returncode == 0 and not os.path.exists(os.path.join(STORE, "owner"))
        interrupted(hub)
        assert moraine("rm", NAME).returncode == 0 and kept() == [], kept()
        assert moraine("list").stdout == "" and json.loads(moraine("list", "--json").stdout) == []


def test_a_terminal_is_asked_before_anything_is_fetched():
    pebble = read("models/pebble.gguf")
    fresh()
    with Hub({"pebble-Q4_K_M.gguf": pebble}) as hub:
        words = ["run", NAME, "-p", "What is 27 + 15?", "--temp", "0", "--profile", "off"]
        for answer, code in (("n", 1), ("y", 0)):
            child = pexpect.spawn(PROGRAM, words, env={**environment, "HF_ENDPOINT": hub.url, "TERM": "xterm"}, encoding="utf-8", timeout=60 * SLOW)
            child.expect_exact("tokens/s expected")
            child.expect_exact("Pull it now? [y/N] ")
            assert not [f for f in kept() if f.endswith((".part", ".gguf"))], kept()
            child.sendline(answer)
            if answer == "y":
                child.expect_exact("27 + 15 = 42")
            child.expect(pexpect.EOF)
            child.close()
            assert child.exitstatus == code, (answer, child.exitstatus, child.before)
        assert kept() == [os.path.join(NAME, "pebble-Q4_K_M.gguf")], kept()
        process = subprocess.Popen([PROGRAM, "serve", "--host", os.path.join(FOLDER, "x.sock"), "--port", "0"], env=environment,
                                   stderr=subprocess.PIPE, text=True)  # offers what was pulled
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=30)
        assert line == "model: %s:Q4_K_M (pulled)\n" % NAME, line


def test_a_pull_that_fills_the_disk_asks_first():
    fresh()
    with Hub({FILE: MODEL}) as hub:
        for left, options, answer in ((1 << 30, [], "n"), (1 << 30, [], ""), (1 << 30, ["--force"], None), (8 << 30, [], None)):
            disk = os.statvfs(FOLDER)
            hub.sizes[FILE] = max(disk.f_bavail * disk.f_frsize - left, len(MODEL))
            if hub.sizes[FILE] == len(MODEL):
                return  # this disk is full already
            words = ["pull", NAME, "--mirror", hub.url, "--tries", "1", *options]
            child = pexpect.spawn(PROGRAM, words, env={**environment, "TERM": "xterm"}, encoding="utf-8", timeout=60 * SLOW)
            asked = child.expect_exact(["Pull it anyway? [y/N] ", pexpect.EOF])
            said = child.before
            assert ("of that disk will be left free" in said) == (left < 2 << 30), said
            assert (asked == 0) == (answer is not None), said
            if asked == 0:
                assert not [f for f in kept() if f.endswith(".gguf")], kept()
                child.sendline(answer)
                child.expect(pexpect.EOF)
            child.close()
            assert child.exitstatus == 1, (answer, child.exitstatus, said)  # the file is not as long as was said
            fresh()
        hub.sizes = {}
        good(pull(hub))


def test_the_server_offers_what_was_pulled_by_name():
    fresh()
    with Hub({"pebble-Q4_K_M.gguf": read("models/pebble.gguf"), "M-Q8_0.gguf": SMALL}) as hub:
        assert moraine("pull", NAME, NAME + ":Q8_0", "--mirror", hub.url).returncode == 0
    for words, ids in (([], [NAME + ":Q4_K_M", NAME + ":Q8_0"]), ([NAME + ":Q4_K_M"], [NAME + ":Q4_K_M"])):
        process = subprocess.Popen([PROGRAM, "serve", *words, "--port", "0", "--profile", "off"], env=environment, stderr=subprocess.PIPE, text=True)
        lines = []
        threading.Thread(target=lambda p=process, l=lines: l.extend(p.stderr), daemon=True).start()
        until(lambda: any("http://" in line for line in lines) or process.poll() is not None)
        url = [word for line in lines for word in line.split() if "http://" in word][0].split("=")[-1].strip('"')
        with urllib.request.urlopen(url.rstrip("/") + "/v1/models") as answer:
            got = [m["id"] for m in json.load(answer)["data"]]
        assert got == ids, (got, lines)
        process.terminate()
        process.wait(30)


def main():
    skip = "built without libcurl" if "built without libcurl" in moraine("pull", "--help").stdout else ""
    status = tap.run(tap.named(globals()), sys.argv[2:], skip)
    shutil.rmtree(FOLDER, ignore_errors=True)
    return status


sys.exit(main())
