"""Manual pages as plain text of 78 columns, and questions and answers made from them.

Promises: no overstrikes, no running heads, ASCII only; pages that mostly repeat another page are left out.
"""

import gzip
import random
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chat import conversation, exchange
from gathered import Document, Source, fresh, number, read_sources, share

OVERSTRIKE = re.compile(r".\x08")
SHORTEST, LONGEST = 400, 150_000  # characters of a page


def render(path: Path) -> str:
    """The text of a page; empty for links to other pages and for pages that cannot be rendered."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if raw.lstrip().startswith(b".so "):
        return ""
    command = ["mandoc", "-T", "ascii", "-O", "width=78", "-K", "utf-8"]
    done = subprocess.run(command, input=raw, capture_output=True, check=False)
    text = OVERSTRIKE.sub("", done.stdout.decode("ascii", "replace"))
    lines = text.splitlines()[1:-1]  # without the running head and foot
    lines = ["" if line.startswith("____") else line.rstrip() for line in lines]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"
    return text if text.startswith("NAME\n") else ""


def pages(source: Source, gathered: Path) -> list[Path]:
    root = source.folder(gathered) / "usr/share/man"
    return sorted(p for p in root.glob("man*/*") if p.is_file() and not p.is_symlink())


def read(source: Source, gathered: Path) -> list[Document]:
    found = pages(source, gathered)
    with ThreadPoolExecutor(2) as threads:
        texts = list(threads.map(render, found))
    documents = (
        Document(f"{source.name}/{path.name.removesuffix('.gz')}", text, source.quotable)
        for path, text in zip(found, texts)
        if SHORTEST <= len(text) <= LONGEST
    )
    return share(fresh(documents, 0.6), source.kilobytes)


def documents(gathered: Path) -> list[Document]:
    found = [d for s in read_sources() if s.domain == "manuals" for d in read(s, gathered)]
    return list(fresh(found, 0.6))


# ---- Conversations ----

WHAT = {"1": ["What does the command `{}` do?", "What is {} for?", "What does the command {} do?", "Explain {} briefly.",
              "What can I do with the `{}` command?"],
        "2": ["What does the system call {} do?", "What is {}() for?", "What does {}() do?"],
        "3": ["What does the function {} do?", "What is {}() for?", "What does {}() do in C?"],
        "5": ["What is {}?", "What is the file {} for?"],
        "": ["What is {}?", "What is {} about?"]}  # fmt: skip
SYNOPSIS = ["Show me the synopsis of {}.", "How is {} called?", "What is the syntax of {}?", "How do I use {}?"]


def section(text: str, name: str) -> str:
    """The body of a section, its indentation taken away."""
    found = re.search(rf"^{name}\n((?:[ \t].*\n|\n)+)", text, re.MULTILINE)
    if not found:
        return ""
    lines = found.group(1).strip("\n").splitlines()
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[depth:] for line in lines)


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    found = re.match(r"[A-Z].{20,300}?[.](?= |$)", paragraph)
    return found.group(0) if found else ""


def chats(document: Document, seed: int) -> Iterator[str]:
    """What the page is about, and how its subject is called."""
    rng = random.Random(number(document.key) ^ seed)
    match = re.match(r"NAME\n\s+(\S+?),?(?:, [^\n]*?)? -+ (.+?)\n(?:\n|\S)", document.text, re.DOTALL)
    if not match:
        return
    name = match.group(1)
    summary = " ".join(match.group(2).split()).rstrip(".")
    number_of_section = document.key.rpartition(".")[2][:1]
    questions = WHAT.get({"8": "1"}.get(number_of_section, number_of_section), WHAT[""])
    about = f"{name}: {summary}."
    more = first_sentence(section(document.text, "DESCRIPTION"))
    pairs = [(rng.choice(questions).format(name), f"{about} {more}".strip())]
    synopsis = section(document.text, "SYNOPSIS")
    if 0 < len(synopsis) <= 800:
        pairs.append((rng.choice(SYNOPSIS).format(name), synopsis))
    if len(pairs) == 2 and rng.random() < 0.3:
        yield conversation(pairs)
    else:
        yield from (exchange(*pair) for pair in pairs)
