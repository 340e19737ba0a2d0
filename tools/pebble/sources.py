"""C sources: this repository's own and those of free libraries and programs, one document per file.

Promises: no generated tables, no files that mostly repeat another one, no licence headers (the table of sources
names the licences), no file that speaks of the GPL, nothing that holds a chat marker.
"""

import re
from pathlib import Path

from bpe import MARKER
from gathered import Document, Source, fresh, read_sources, share

SHORTEST, LONGEST = 300, 120_000  # characters of a file
SKIP = re.compile(r"/(?:deps|vendor|third_party|contrib|\.pc|unicode|tables?)/|/(?:config|parse)\.[ch]$|_(?:data|tables?)\.[ch]$")
TABLE_LINE = re.compile(r"^[\s0-9a-fA-FxXuUlL,{}()'\"+.-]*\d[\s0-9a-fA-FxXuUlL,{}()'\"+.-]*$")
OWN = ("src", "include", "tests", "bench", "examples")
HEADER = re.compile(r"\A\s*(?:/\*.*?\*/\s*|(?://[^\n]*\n)+\s*)", re.DOTALL)
COPYLEFT = re.compile(r"GNU\s+(?:Lesser\s+|Library\s+)?General\s+Public|\bL?GPL\b")
LEGAL = re.compile(r"copyright|licen[cs]e|warrant|all rights reserved|\$OpenBSD|\$NetBSD|SPDX", re.IGNORECASE)


def without_licence(text: str) -> str:
    """Cuts the comments at the top that speak of rights."""
    while (header := HEADER.match(text)) and LEGAL.search(header.group(0)):
        text = text[header.end() :]
    return text


def usable(text: str) -> bool:
    lines = text.splitlines()
    tables = sum(1 for line in lines if TABLE_LINE.match(line))
    return (
        SHORTEST <= len(text) <= LONGEST
        and tables <= 0.1 * len(lines)
        and max(map(len, lines)) <= 300
        and sum(1 for c in text if ord(c) > 126) <= 0.002 * len(text)
        and not MARKER.search(text)
        and not re.search(r"generated (?:by|from|automatically)|do not edit", text[:2000], re.IGNORECASE)
    )


def files(source: Source, gathered: Path) -> list[Path]:
    root = source.folder(gathered)
    roots = [root / part for part in OWN] if source.kind == "own" else [root]
    found = [p for r in roots for p in r.rglob("*.[ch]") if p.is_file() and not p.is_symlink()]
    return sorted(p for p in found if not SKIP.search("/" + str(p.relative_to(root))))


def read(source: Source, gathered: Path) -> list[Document]:
    root, found = source.folder(gathered), []
    for path in files(source, gathered):
        try:
            text = path.read_bytes().decode().replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        if COPYLEFT.search(text):  # single files of free libraries come from elsewhere
            continue
        text = without_licence(text).strip("\n") + "\n"
        if usable(text):
            found.append(Document(f"{source.name}/{path.relative_to(root)}", text, source.quotable))
    return share(fresh(found, 0.6), source.kilobytes)


def documents(gathered: Path) -> list[Document]:
    return list(fresh((d for s in read_sources() if s.domain == "code" for d in read(s, gathered)), 0.6))
