#!/usr/bin/env python3
"""terminal_picture.py BUILD: draws docs/pictures/terminal.svg, a plan for a PC and an answer, as a terminal shows them. --check: compares
the picture with what the program prints; numbers may differ by a tenth, words may not."""
import html
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/pictures/terminal.svg"
COMMANDS = (["plan", "gpt-oss-120b", "--gpu", "rtx-4070", "--ram", "64G"], ["run", "-p", "What is 27 + 15?", "--temp", "0", "--ram", "28M", "--ctx", "512", "--batch", "32"])
LINE, COLUMN, MARGIN, TOP = 19, 8.4, 18, 44


def shown(words):
    return "$ moraine " + " ".join('"%s"' % w if " " in w else w for w in words)


def lines(build):
    """What the terminal shows. The plan's last parts, other batch sizes and the reasons, are left out."""
    found = []
    with tempfile.TemporaryDirectory() as cache:
        for words in COMMANDS:
            said = subprocess.run([pathlib.Path(build).resolve() / "moraine", *words], cwd=cache, env={"XDG_CACHE_HOME": cache, "HOME": cache}, capture_output=True,
                                  text=True, check=True, stdin=subprocess.DEVNULL).stdout
            kept = said.partition("\nBatch ")
            found += [shown(words), *kept[0].rstrip("\n").split("\n"), *(["  ..."] if kept[1] else []), ""]
    return found[:-1]


def draw(text):
    width, height = MARGIN * 2 + COLUMN * max(map(len, text)), TOP + LINE * len(text) + MARGIN
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">' % (width, height),
             '<rect width="100%" height="100%" rx="10" fill="#16191d"/>']
    parts += ['<circle cx="%d" cy="20" r="6" fill="%s"/>' % (20 + 20 * i, colour) for i, colour in enumerate(("#e0645a", "#dfb34a", "#5fb865"))]
    for number, line in enumerate(text):
        title = not line.startswith(" ") and re.match(r"(In|Only|Per|Why) ?", line)
        colour = "#8fd18f" if line.startswith("$") else "#f1f1ee" if "expected" in line or title else "#c3c8cc"
        if line:
            parts.append('<text x="%d" y="%d" fill="%s"%s xml:space="preserve">%s</text>' % (MARGIN, TOP + LINE * number + 10, colour, ' font-weight="bold"' if title or "expected" in line else "",
                                                                                          html.escape(line)))
    return "\n".join(parts + ["</svg>"]) + "\n"


def check(text):
    drawn = [html.unescape(t) for t in re.findall(r"<text[^>]*>(.*?)</text>", PICTURE.read_text())]
    number = re.compile(r"\d+(?:\.\d+)?")
    now = [line for line in text if line]
    same = [re.sub(r" +", " ", number.sub("0", line)) for line in drawn] == [re.sub(r" +", " ", number.sub("0", line)) for line in now]
    near = same and all(abs(float(a) - float(b)) <= 0.1 * max(float(a), float(b)) for a, b in zip(number.findall("\n".join(drawn)), number.findall("\n".join(now))))
    if not near:
        sys.exit("docs/pictures/terminal.svg is out of date: run tools/terminal_picture.py BUILD\n" + "\n".join(sorted(set(now) - set(drawn))))


if __name__ == "__main__":
    text = lines(sys.argv[1])
    if "--check" in sys.argv:
        check(text)
    else:
        PICTURE.write_text(draw(text))
