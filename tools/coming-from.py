#!/usr/bin/env python3
"""Makes docs/coming-from.md of the table of llama.cpp's words (src/cli/foreign_words.def); --check says whether it is up to date."""
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
    return [dict(zip(("words", "kind", "value", "to", "command", "says"), m.groups())) for m in found]


def words(row):
    value = " `%s`" % row["value"].replace("|", "\\|") if row["value"] else ""
    only = " (`%s`)" % row["command"] if row["command"] else ""
    return ", ".join("`%s`" % w for w in row["words"].split()) + value + only


def table(title, intro, kinds, tells):
    lines = ["## " + title, "", intro, "", "| there | here |", "|---|---|"]
    lines += ["| %s | %s |" % (words(r), tells(r)) for r in rows() if r["kind"] in kinds]
    return lines + [""]


def here(row):
    if row["kind"] == "SAME":
        return "`--%s`" % row["to"] + (" `%s`" % row["value"] if row["value"] else "")
    if row["kind"] == "KV":
        return "`--kv`: " + row["says"]
    return row["says"]


def page():
    lines = ["# Coming from llama.cpp", "",
             "`run`, `chat`, `bench` and `serve` understand these words of llama.cpp's programs. Most of what has to be tuned there is",
             "decided here by the plan: `moraine plan MODEL` shows it. This page is made by `tools/coming-from.py`.", ""]
    lines += table("The same, by another name", "They are translated.", ("SAME", "MODEL", "KV"), here)
    lines += table("Always so", "They are accepted and change nothing.", ("NOTHING",), here)
    lines += table("Decided by the plan", "A note says so, and the command continues.", ("NOTE",), here)
    lines += table("Refused", "Without them the answer would be another, so the command ends with exit code 2.", ("REFUSED",), here)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text() != page():
            sys.exit("docs/coming-from.md is not what tools/coming-from.py makes of src/cli/foreign_words.def")
    else:
        PAGE.write_text(page())
