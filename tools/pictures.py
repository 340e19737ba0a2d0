#!/usr/bin/env python3
"""pictures.py BUILD: makes the pictures of the documentation anew, with the built-in model: docs/pictures/*.png of the page and
experts.svg, a recording of its map (needs Chromium and npm, as tests/test_page.py does), the charts docs/pictures/*.svg of plan and replay, and a
terminal (terminal_picture.py)."""
import os
import shutil
import subprocess
import sys
import tempfile

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = os.path.abspath(sys.argv[1])
sys.argv = [sys.argv[0], build]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(root, "tests"))
import test_page as page

where = os.path.join(root, "docs", "pictures")
program = os.path.join(build, "moraine")
tiers = ["--device", "sim", "--vram", "28M", "--ram", "50M"]
small = ["--device", "sim", "--vram", "20M", "--ram", "36M"]  # something in every tier


def of_the_page():
    reason = page.npm_packages.install(page.here, build, "page")
    assert not reason and page.browser(), reason or "there is no Chromium"
    profile = ["--profile", page.server.path("profile.json")]
    subprocess.run([program, "run", "-q", *tiers, *profile, "-p", "Tell me a story.", "-n", "400", "--ignore-eos"], check=True, stdout=subprocess.DEVNULL)
    with page.server.Server(*tiers, *profile) as s, page.server.Server(*small, *profile) as t:
        for word, title, comment in page.in_the_browser("pictures.js", {"sim": s, "small": t}):
            print(comment or "%s %s" % (word, title))
    shutil.copy(os.path.join(build, "page", "pictures", "experts.svg"), where)
    for name in ("page-chat", "page-experts", "page-machine"):
        picture = shutil.copy(os.path.join(build, "page", "pictures", name + ".png"), where)
        if shutil.which("pngquant"):  # 256 colours are enough for a page, and less than half of the bytes
            subprocess.run(["pngquant", "--quality", "85-100", "--speed", "1", "--strip", "--force", "--output", picture, picture], check=True)
        if shutil.which("optipng"):  # a quarter smaller, the same picture
            subprocess.run(["optipng", "-quiet", "-o5", "-strip", "all", picture], check=True)


def charts():
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "tale.trace")
        subprocess.run([program, "plan", *small, "--svg", os.path.join(where, "plan.svg")], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "trace", "-q", "--chat", "-p", "Tell me a long story about a fox.", "-n", "400", "--seed", "1", "-o", trace], check=True)
        subprocess.run([program, "replay", trace, "--budget", "5%,10%,20%,40%,60%,80%", "--svg", os.path.join(where, "replay.svg")], check=True,
                       stdout=subprocess.DEVNULL)


os.makedirs(where, exist_ok=True)
subprocess.run([sys.executable, os.path.join(root, "tools", "terminal_picture.py"), build], check=True)
charts()
of_the_page()
shutil.rmtree(page.server.FOLDER, ignore_errors=True)
