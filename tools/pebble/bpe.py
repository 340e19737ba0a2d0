"""Byte-level BPE with the splitting of qwen2: training, and encoding with a memory of words.

Promises: the same sample gives the same vocabulary; the encoder gives the ids that the engine gives. Only the
standard library is used for encoding, so that it also runs where training runs.

    bpe.py train TEXT... --out tokenizer.json    texts are files of documents, separated by a zero byte
    bpe.py vocabulary tokenizer.json OUT.gguf    a GGUF with the vocabulary and no tensors
    bpe.py encode tokenizer.json TEXT            prints the ids of a text, markers as control tokens
"""

import argparse
import heapq
import json
import re
import sys
import unicodedata
from array import array
from collections import Counter, defaultdict
from pathlib import Path

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKER = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")
NORMAL, CONTROL = 1, 3
LONGEST = 24  # bytes of a token: rules of dashes and deep indentation should not fill the vocabulary


def _class(letter: str) -> str:
    """The code points of a general category, as the inside of a bracket expression."""
    ranges: list[list[int]] = []
    for c in range(sys.maxunicode + 1):
        if unicodedata.category(chr(c))[0] == letter:
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)


def splitter() -> re.Pattern[str]:
    """qwen2's pattern; the classes are written out because the standard module has no \\p."""
    letters, numbers = _class("L"), _class("N")
    space = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
    return re.compile(
        "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
        f"|[^\\r\\n{letters}{numbers}]?[{letters}]+|[{numbers}]"
        f"| ?[^{space}{letters}{numbers}]+[\\r\\n]*"
        f"|[{space}]*[\\r\\n]+|[{space}]+(?![^{space}])|[{space}]+"
    )


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


# ---- Training ----


class Trainer:
    """Words as lists of symbols, with the count of every adjacent pair and the words that hold it."""

    def __init__(self, counts: Counter[str]):
        letters = byte_letters()
        self.words = [[letters[b] for b in word.encode()] for word in counts]
        self.weights = list(counts.values())
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.holders: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for n, word in enumerate(self.words):
            for pair in zip(word, word[1:]):
                self.pairs[pair] += self.weights[n]
                self.holders[pair].add(n)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapq.heapify(self.heap)

    def best(self) -> tuple[str, str]:
        """The most frequent pair; of equal ones the first in code point order."""
        while self.heap:
            count, pair = heapq.heappop(self.heap)
            if self.pairs[pair] == -count and count and len(pair[0]) + len(pair[1]) <= LONGEST:
                return pair
        raise ValueError("the sample is too small for this vocabulary")

    def merge(self, pair: tuple[str, str]) -> None:
        changed = set()
        for n in self.holders.pop(pair):
            word, weight, i, out = self.words[n], self.weights[n], 0, []
            while i < len(word):
                if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            for old in zip(word, word[1:]):
                self.pairs[old] -= weight
                changed.add(old)
            for new in zip(out, out[1:]):
                self.pairs[new] += weight
                self.holders[new].add(n)
                changed.add(new)
            self.words[n] = out
        for touched in changed:
            if self.pairs[touched] > 0:
                heapq.heappush(self.heap, (-self.pairs[touched], touched))
        del self.pairs[pair]


def count_words(texts: list[str]) -> Counter[str]:
    split, counts = splitter().findall, Counter()
    for text in texts:
        for document in text.split("\0"):
            for part in MARKER.split(document):
                if part not in SPECIALS:
                    counts.update(split(part))
    return counts


def train(texts: list[str], size: int) -> dict:
    trainer = Trainer(count_words(texts))
    tokens = dict.fromkeys(sorted(byte_letters(), key=lambda c: (ord(c) > 0xFF, c)))
    merges = []
    while len(tokens) < size - len(SPECIALS):
        pair = trainer.best()
        trainer.merge(pair)
        merges.append(f"{pair[0]} {pair[1]}")
        tokens[pair[0] + pair[1]] = None  # two merges may make the same token
    types = [NORMAL] * len(tokens) + [CONTROL] * len(SPECIALS)
    return {"tokens": [*tokens, *SPECIALS], "types": types, "merges": merges}


# ---- Encoding ----


class Encoder:
    def __init__(self, tokenizer: dict):
        self.ids = {token: n for n, token in enumerate(tokenizer["tokens"])}
        self.ranks = {tuple(merge.split(" ")): n for n, merge in enumerate(tokenizer["merges"])}
        self.letters = byte_letters()
        self.split = splitter().findall
        self.known: dict[str, bytes] = {}

    @classmethod
    def load(cls, path: Path | str) -> "Encoder":
        return cls(json.loads(Path(path).read_text()))

    def _word(self, word: str) -> bytes:
        symbols = [self.letters[b] for b in word.encode()]
        while len(symbols) > 1:
            rank, at = min((self.ranks.get(pair, len(self.ranks)), i) for i, pair in enumerate(zip(symbols, symbols[1:])))
            if rank == len(self.ranks):
                break
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        raw = array("H", [self.ids[s] for s in symbols]).tobytes()
        if len(self.known) < 1_000_000:
            self.known[word] = raw
        return raw

    def encode_bytes(self, text: str) -> bytes:
        """Ids as 16-bit numbers in the machine's order."""
        out, known = [], self.known
        for part in MARKER.split(text):
            if part in SPECIALS:
                out.append(array("H", [self.ids[part]]).tobytes())
                continue
            for word in self.split(part):
                out.append(known.get(word) or self._word(word))
        return b"".join(out)

    def encode(self, text: str) -> array:
        """The ids of a text; the markers of SPECIALS become control tokens."""
        return array("H", self.encode_bytes(text))


# ---- Commands ----


def write_vocabulary(tokenizer: dict, path: Path) -> None:
    from gguf import Writer

    writer = Writer(path)
    writer.string("general.architecture", "qwen3moe")
    writer.string("tokenizer.ggml.model", "gpt2")
    writer.string("tokenizer.ggml.pre", "qwen2")
    writer.strings("tokenizer.ggml.tokens", tokenizer["tokens"])
    writer.i32s("tokenizer.ggml.token_type", tokenizer["types"])
    writer.strings("tokenizer.ggml.merges", tokenizer["merges"])
    writer.u32("tokenizer.ggml.eos_token_id", tokenizer["tokens"].index("<|im_end|>"))
    writer.boolean("tokenizer.ggml.add_bos_token", False)
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("texts", nargs="+", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--size", type=int, default=4096)
    one = commands.add_parser("vocabulary")
    one.add_argument("tokenizer", type=Path)
    one.add_argument("out", type=Path)
    one = commands.add_parser("encode")
    one.add_argument("tokenizer", type=Path)
    one.add_argument("text", type=Path)
    options = parser.parse_args()
    if options.command == "train":
        tokenizer = train([p.read_bytes().decode() for p in options.texts], options.size)
        options.out.write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    elif options.command == "vocabulary":
        write_vocabulary(json.loads(options.tokenizer.read_text()), options.out)
    else:
        print(*Encoder.load(options.tokenizer).encode(options.text.read_bytes().decode()))


if __name__ == "__main__":
    main()
