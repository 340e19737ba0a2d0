"""What the gathered domains share: the table of sources, documents, near-duplicates, and a fair share per source.

Promises: everything is chosen by hashes of names, so the same packages give the same documents.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Source:
    domain: str
    kind: str
    name: str
    kilobytes: int
    quotable: bool
    licence: str
    what: str

    def folder(self, gathered: Path) -> Path:
        return HERE.parent.parent if self.kind == "own" else gathered / self.kind / self.name


class Document(NamedTuple):
    key: str  # source and place in it; decides on training or validation
    text: str
    quotable: bool = True


def read_sources() -> list[Source]:
    out = []
    for line in (HERE / "sources.tsv").read_text().splitlines():
        if not line.startswith("#"):
            domain, kind, name, kilobytes, quotable, licence, what = line.split("\t")
            if kind == "npm":
                name = name.rpartition("@")[0]
            out.append(Source(domain, kind, name, int(kilobytes), quotable == "yes", licence, what))
    return out


def number(key: str) -> int:
    """An even spread over 64 bits that depends on the key only."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def share(documents: Iterable[Document], kilobytes: int) -> list[Document]:
    """At most so much of one source, chosen by key."""
    out, left = [], kilobytes * 1000
    for document in sorted(documents, key=lambda d: number(d.key)):
        if len(document.text) <= left:
            out.append(document)
            left -= len(document.text)
    return out


class Seen:
    """Refuses texts whose longer lines were mostly seen before."""

    def __init__(self, most: float):
        self.most = most
        self.lines: set[int] = set()

    def __call__(self, text: str) -> bool:
        lines = {number(line.strip()) for line in text.splitlines() if len(line.strip()) >= 24}
        repeated = len(lines & self.lines)
        self.lines |= lines
        return bool(lines) and repeated > self.most * len(lines)


def fresh(documents: Iterable[Document], most: float) -> Iterator[Document]:
    seen = Seen(most)
    return (d for d in documents if not seen(d.text))


def table(gathered: Path) -> str:
    """The sources with versions and licences, as Markdown."""
    versions = {}
    for line in (gathered / "versions.tsv").read_text().splitlines():
        kind, name, version = line.split("\t")
        versions[kind, name] = version
    kinds = {"deb": "Debian package", "src": "Debian source", "npm": "npm package", "own": "this repository"}
    rows = ["| domain | source | version | licence of the text | what |", "|---|---|---|---|---|"]
    for s in read_sources():
        rows.append(
            f"| {s.domain} | {kinds[s.kind]} {s.name} | {versions.get((s.kind, s.name), '')} | {s.licence} | {s.what} |"
        )
    return "\n".join(rows) + "\n"
