"""Makes the corpus: documents of five domains as text, split into training and validation; then their tokens.

    make_corpus.py text DATA [--size small|full] [--seed N]    needs DATA/gathered (gather.sh)
    make_corpus.py tokens DATA                                 needs DATA/tokenizer.json (bpe.py)

`text` writes DATA/text/DOMAIN.{train,val}.txt (documents separated by a zero byte), DATA/text/sample.txt for the
tokenizer, DATA/heldout/DOMAIN.txt and DATA/SOURCES.md. `tokens` writes DATA/DOMAIN.{,val.}u16, documents separated by
<|endoftext|>. Promises: the same packages, tree and seed give the same bytes; a document is put on its side of the
split before anything is made from it, and equal documents are on the same side.
"""

import argparse
import importlib
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import manuals
import prose
import sources
from bpe import MARKER, SPECIALS, Encoder
from gathered import Document, number, table

DOMAINS = ["stories", "questions", "manuals", "prose", "code"]
GENERATED = {"stories": ["stories"], "questions": ["questions"], "code": ["programs"]}  # domain: its generators
# Megabytes of text of each generator, and the part that is kept of the gathered documents.
SIZES = {
    "small": {"stories": 3, "questions": 2, "programs": 2, "gathered": 0.1},
    "full": {"stories": 70, "questions": 20, "programs": 15, "gathered": 1.0},
}
VALIDATION = 280_000  # characters of validation of a domain
HELDOUT = 38_500  # bytes of a domain in the held-out text
QUOTE = 6_000  # longest piece of one document there
SAMPLE = 2_200_000  # characters of a domain in the tokenizer's sample
BATCH = 2_000  # documents made at a time
PROCESSES = 2


@dataclass
class Domain:
    name: str
    train: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    quotes: list[Document] = field(default_factory=list)  # plain validation documents that may be shown


# ---- Documents ----


def generate(name: str, seed: int, count: int) -> list[str]:
    return list(importlib.import_module(name).documents(seed, count))


def generated(name: str, seed: int, characters: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    """Documents of one generator, in batches of their own seeds, until there is enough."""
    made, batch = 0, 0
    while made < characters:
        seeds = [seed * 100_003 + number(name) % 1_000_000_007 + batch + i for i in range(2 * PROCESSES)]
        for documents in pool.map(generate, [name] * len(seeds), seeds, [BATCH] * len(seeds)):
            for document in documents:
                if made < characters:
                    made += len(document)
                    yield document.rstrip("\n") + "\n"
        batch += len(seeds)


def add_generated(domain: Domain, name: str, seed: int, characters: int, validation: float, pool) -> None:
    seen: set[int] = set()
    for document in generated(name, seed, characters, pool):
        place = number(document)
        if place in seen:
            continue
        seen.add(place)
        if place / 2**64 < validation / characters:
            domain.validation.append(document)
            if not MARKER.search(document):
                domain.quotes.append(Document(name, document))
        else:
            domain.train.append(document)


def add_gathered(domain: Domain, documents: list[Document], part: float, validation: float, seed: int, chats) -> None:
    """Puts whole files and chapters into validation, the first by number until there is enough."""
    documents = sorted(documents, key=lambda d: number(f"{seed} {d.key}"))
    total = sum(len(d.text) for d in documents)
    documents = [d for d in documents if number(d.key) / 2**64 < part]
    left = min(validation, total * part * 0.1)
    for document in documents:
        made = [c.rstrip("\n") + "\n" for c in chats(document, seed)] if chats else []
        if left > 0 and len(document.text) < 40_000:
            left -= len(document.text)
            domain.validation += [document.text, *made]
            if document.quotable:
                domain.quotes.append(document)
        else:
            domain.train += [document.text, *made]


def make(name: str, data: Path, size: dict, seed: int, pool: ProcessPoolExecutor) -> Domain:
    domain = Domain(name)
    makers = {"manuals": (manuals, manuals.chats), "prose": (prose, prose.chats), "code": (sources, None)}
    generators = GENERATED.get(name, [])
    validation = VALIDATION / (len(generators) + (name in makers))
    if name in makers:
        module, chats = makers[name]
        add_gathered(domain, module.documents(data / "gathered"), size["gathered"], validation, seed, chats)
    for generator in generators:
        add_generated(domain, generator, seed, int(size[generator] * 1e6), validation, pool)
    rng = random.Random(seed)
    rng.shuffle(domain.train)
    rng.shuffle(domain.validation)
    return domain


# ---- Text files ----


def cut(text: str, most: int) -> str:
    """The text up to the last empty line, or line, before `most`."""
    if len(text) <= most:
        return text
    end = text.rfind("\n\n", 0, most)
    return text[: end if end > most // 2 else text.rfind("\n", 0, most)].rstrip("\n") + "\n"


def heldout(domain: Domain) -> tuple[str, list[str]]:
    """Pieces of validation documents, taken in turn from the sources, and the names of those."""
    out, keys, left = [], [], HELDOUT
    turns: dict[str, int] = {}
    order = []
    for document in domain.quotes:
        source = document.key.partition("/")[0]
        turns[source] = turns.get(source, 0) + 1
        order.append((turns[source], len(order), document))
    for _, _, document in sorted(order):
        text = cut(document.text, min(QUOTE, left))
        size = len(text.encode()) + 1
        if 200 < size <= left:
            out.append(text)
            left -= size
            keys.append(document.key)
    return "\n".join(out), sorted(set(keys))


def sample(domain: Domain, seed: int) -> list[str]:
    documents, out, made = list(domain.train), [], 0
    random.Random(seed + 1).shuffle(documents)
    for document in documents:
        if made >= SAMPLE:
            break
        out.append(document[:20_000])
        made += len(out[-1])
    return out


def write_text(data: Path, size: str, seed: int) -> None:
    folder = data / "text"
    folder.mkdir(parents=True, exist_ok=True)
    samples, names = [], []
    (data / "heldout").mkdir(exist_ok=True)
    with ProcessPoolExecutor(PROCESSES) as pool:
        for name in DOMAINS:
            domain = make(name, data, SIZES[size], seed, pool)
            (folder / f"{name}.train.txt").write_text("\0".join(domain.train), newline="")
            (folder / f"{name}.val.txt").write_text("\0".join(domain.validation), newline="")
            samples += sample(domain, seed)
            text, keys = heldout(domain)
            if text:  # manuals are not quoted: their held-out text is Moraine's own manual
                (data / "heldout" / f"{name}.txt").write_text(text + "\n", newline="")
                names.append(f"- {name}: {', '.join(keys)}")
            print(f"{name}: {len(domain.train)} training and {len(domain.validation)} validation documents", flush=True)
    (folder / "sample.txt").write_text("\0".join(samples), newline="")
    (data / "SOURCES.md").write_text(
        table(data / "gathered") + "\nThe held-out text has pieces of these documents, none of which is in the training"
        " corpus (stories, questions and programs are our own generators):\n\n" + "\n".join(names) + "\n"
    )


# ---- Tokens ----

_encoder: Encoder | None = None


def start_encoder(path: Path) -> None:
    global _encoder
    _encoder = Encoder.load(path)


def encode(documents: list[str]) -> bytes:
    end = _encoder.encode_bytes(SPECIALS[0])
    return b"".join(_encoder.encode_bytes(document) + end for document in documents)


def batches(documents: list[str], characters: int = 1_000_000) -> Iterator[list[str]]:
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def write_tokens(data: Path) -> None:
    row = "{:10} {:10} {:>12} {:>10} {:>12} {:>12}"
    print(row.format("domain", "part", "bytes", "documents", "tokens", "bytes/token"))
    with ProcessPoolExecutor(PROCESSES, initializer=start_encoder, initargs=(data / "tokenizer.json",)) as pool:
        for name in DOMAINS:
            for part, suffix in (("train", ""), ("val", ".val")):
                path = data / "text" / f"{name}.{part}.txt"
                documents = path.read_bytes().decode().split("\0")
                tokens = 0
                with (data / f"{name}{suffix}.u16").open("wb") as file:
                    for raw in pool.map(encode, batches(documents)):
                        file.write(raw)
                        tokens += len(raw) // 2
                size = path.stat().st_size
                print(row.format(name, part, size, len(documents), tokens, f"{size / tokens:.2f}"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["text", "tokens"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.step == "text":
        write_text(options.data, options.size, options.seed)
    else:
        write_tokens(options.data)


if __name__ == "__main__":
    main()
