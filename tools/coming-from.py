#!/usr/bin/env python3
"""Writes docs/coming-from.md from the table of llama.cpp's words (src/cli/foreign_words.def); --check reports whether it is up to date."""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
PAGE = HERE / "docs/coming-from.md"
ROW = re.compile(r'^WORD\("(.*?)", (\w+), "(.*?)", "(.*?)", "(.*?)", "(.*?)"\)$')


def rows():
    lines = (HERE / "src/cli/foreign_words.def").read_text().splitlines()
    found = [ROW.match(line) for line in lines if line.startswith("WORD(")]
    assert all(found), "a row of foreign_words.def is not on one line"
    return [dict(zip(("words", "kind", "value", "to", "command", "says"), (g.replace("\\\"", '"').replace("\\\\", "\\") for g in m.groups()))) for m in found]


def words(row):
    value = " `%s`" % row["value"].lstrip("=").replace("|", "\\|") if row["value"] else ""
    only = " (`%s`)" % row["command"] if row["command"] else ""
    return ", ".join("`%s`" % w for w in row["words"].split()) + value + only


def table(title, intro, kinds, tells):
    lines = ["## " + title, "", intro, "", "| there | here |", "|---|---|"]
    lines += ["| %s | %s |" % (words(r), tells(r)) for r in rows() if r["kind"] in kinds]
    return lines + [""]


def mapped(row):
    """[(value, option)]: "" where no option is needed."""
    return [part.split("=") for part in row["to"].split()]


def here(row):
    if row["kind"] == "MAPPED":
        return ", ".join("`%s`: %s" % (value, "`--%s`" % option if option else "nothing to do") for value, option in mapped(row)) + "; " + row["says"]
    if row["kind"] == "SAME":
        return "`--%s`" % row["to"] + (" `%s`" % row["value"] if row["value"] else "")
    if row["kind"] == "KV":
        return "`--kv`: " + row["says"]
    return row["says"]


def page():
    lines = ["# Coming from llama.cpp", "",
             "`run`, `chat`, `plan`, `pull`, `bench`, `eval` and `serve` understand these options of llama.cpp's programs. Most of what has to be tuned there is",
             "decided here by the plan: `moraine plan MODEL` shows it. `tools/coming-from.py` generates this page.", ""]
    lines += table("The same under another name", "These are translated.", ("SAME", "MODEL", "KV", "MAPPED"), here)
    lines += table("Always on", "These are accepted and change nothing.", ("NOTHING",), here)
    lines += table("Decided by the plan", "A note says so, and the command continues.", ("NOTE",), here)
    lines += table("Refused", "Ignoring these would change the result, so the command ends with exit code 2.", ("REFUSED",), here)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text() != page():
            sys.exit("docs/coming-from.md is out of date: run tools/coming-from.py")
    else:
        PAGE.write_text(page())
