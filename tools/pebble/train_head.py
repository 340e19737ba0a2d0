#!/usr/bin/env python3
"""Trains pebble's MTP head: train_head.py PEBBLE.gguf OUT [--minutes 2].

OUT receives pebble-mtp-bf16.gguf and head-log.txt. pebble stays as it is: it reads the texts, and the head learns to say what pebble
says after the next token, for guesses of one to three tokens. The texts need nothing gathered: stories, questions and programs are generated,
the files of this repository are read, and pebble continues all of them itself. First it is checked that pebble is what the file says, by the loss of
the held-out texts; at the end the share of guesses that come true in texts that pebble wrote after held-out beginnings is printed. A smoke test without a
GPU: --steps 3 --rows 2 --texts 0.01.
"""

import argparse
import importlib
import math
import random
import time
from array import array
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F

from bpe import SPECIALS, Encoder
from gguf import Reader
from head import Head, export_head, read_pebble
from model import Pebble, rope_tables
from train import Log, optimizers, set_rate

ROOT = Path(__file__).resolve().parent.parent.parent
TIME = 512  # tokens of a text
DEPTH = 3  # guesses that are trained
DEPTH_WEIGHTS = [1.0, 0.7, 0.5]
GIVEN = 64  # tokens of a text's beginning that pebble continues
PROCESSES = 8
GENERATORS = {"stories": 24_000, "questions": 24_000, "programs": 12_000}  # documents
STORIES_LOSS, LOSS_ERROR = 0.410, 0.03  # nats a token of heldout/stories.txt as the program evaluates it; models/README.md

_encoder: Encoder | None = None


# ---- Texts ----


def start_encoder(tokens: list[str], merges: list[str]) -> None:
    global _encoder
    _encoder = Encoder({"tokens": tokens, "merges": merges})


def generated(job: tuple[str, int, int]) -> list[bytes]:
    name, seed, count = job
    return [_encoder.encode_bytes(text) for text in importlib.import_module(name).documents(seed, count)]


def read(path: Path) -> list[bytes]:
    return [_encoder.encode_bytes(path.read_text(errors="replace"))]


def numbers(raw: bytes) -> array:
    out = array("H")
    out.frombytes(raw)
    return out


def documents(file: Reader, share: float) -> tuple[list[array], dict[str, array]]:
    """Documents to train with, and the held-out texts by domain."""
    each = 500
    jobs = [
        (name, 900_000 + i, max(1, int(share * each)))
        for name, count in GENERATORS.items()
        for i in range(count // each)
    ]
    sources = [p for folder, kind in (("docs", "*.md"), ("src", "*.[ch]")) for p in sorted((ROOT / folder).rglob(kind))]
    sources = sources[: max(1, int(share * len(sources)))]
    heldout = sorted((ROOT / "models" / "heldout").glob("*.txt"))
    words = (file.keys["tokenizer.ggml.tokens"], file.keys["tokenizer.ggml.merges"])
    with ProcessPoolExecutor(PROCESSES, initializer=start_encoder, initargs=words) as pool:
        made = [numbers(raw) for batch in pool.map(generated, jobs) for raw in batch]
        made += [numbers(raw) for batch in pool.map(read, sources, chunksize=16) for raw in batch]
        kept = {p.stem: numbers(batch[0]) for p, batch in zip(heldout, pool.map(read, heldout))}
    random.Random(5).shuffle(made)
    return made, kept


def joined(parts: list[array], end: int) -> torch.Tensor:
    """All documents in one run, each with the token `end` behind it."""
    out = array("H")
    for part in parts:
        out.extend(part)
        out.append(end)
    return torch.tensor(out.tolist(), dtype=torch.int64)


@torch.no_grad()
def continued(model: Pebble, tokens: torch.Tensor, known: torch.Tensor, heat: torch.Tensor) -> torch.Tensor:
    """tokens: [rows, time], of which the first known[rows] are given: pebble says the others, at the temperature heat[rows]; 0: the likeliest."""
    s, (rows, length) = model.shape, tokens.shape
    table = model.embedding.value()
    cos, sin = rope_tables(s, tokens.device)
    space = (s.layers, rows, s.kv_heads, length, s.head_width)
    keys = torch.zeros(space, dtype=torch.bfloat16, device=tokens.device)
    values = torch.zeros_like(keys)
    tokens = tokens.clone()
    for at in range(length - 1):
        x = F.embedding(tokens[:, at : at + 1], table)
        for n, layer in enumerate(model.layers):
            a = layer.attention
            q, k, v = a.project(layer.attention_norm(x), cos[at : at + 1], sin[at : at + 1])
            keys[n, :, :, at], values[n, :, :, at] = k[:, :, 0], v[:, :, 0]
            q = q.reshape(rows, s.kv_heads, s.heads // s.kv_heads, s.head_width)  # heads with the same keys as if they were rows
            y = F.scaled_dot_product_attention(q, keys[n, :, :, : at + 1], values[n, :, :, : at + 1])
            x = x + a.output(y.reshape(rows, 1, s.heads * s.head_width))
            x = x + layer.mixture(layer.mixture_norm(x))[0]
        logits = model.logits(model.output_norm(x))[:, 0].float()
        drawn = torch.multinomial((logits / heat.clamp(min=0.05)[:, None]).softmax(-1), 1)[:, 0]
        said = torch.where(heat > 0, drawn, logits.argmax(-1))
        tokens[:, at + 1] = torch.where(known > at + 1, tokens[:, at + 1], said)
    return tokens


def beginnings(parts: list[array], rows: int, length: int, device: torch.device) -> torch.Tensor:
    """The first tokens of documents that are long enough: [rows, length], of which GIVEN are theirs."""
    long = [part for part in parts if len(part) >= GIVEN]
    out = torch.zeros(rows, length, dtype=torch.int64)
    for row in range(rows):
        out[row, :GIVEN] = torch.tensor(long[row % len(long)][:GIVEN].tolist())
    return out.to(device)


def own_texts(model: Pebble, parts: list[array], rows: int, end: int, device: torch.device) -> torch.Tensor:
    """Texts that pebble said: of the rows a third at temperature 0, a third at 0.8, and a third from nothing at 1."""
    tokens = beginnings(parts, rows, TIME + DEPTH, device)
    kind = torch.arange(rows, device=device) % 3
    tokens[kind == 2, 0] = end
    known = torch.randint(8, GIVEN + 1, (rows,), device=device).masked_fill(kind == 2, 1)
    return continued(model, tokens, known, torch.tensor([0.0, 0.8, 1.0], device=device)[kind])


# ---- Guesses ----


def guesses(head: Head, model: Pebble, tokens: torch.Tensor, states: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What the head gives out for each depth, [batch, rows, width]: row t of depth d, from 0, is for what follows token t + d. Before the first
    token the state is zero, as in the engine."""
    rows = tokens.shape[1] - DEPTH + 1
    table = model.embedding.value()
    cos, sin = rope_tables(model.shape, tokens.device)
    state = torch.cat((torch.zeros_like(states[:, :1]), states[:, : rows - 1]), dim=1)
    out, balance, earlier = [], 0.0, []
    for depth in range(DEPTH):
        embedded = F.embedding(tokens[:, depth : depth + rows], table)
        state, load = head(embedded, state, cos[depth : depth + rows], sin[depth : depth + rows], earlier)
        balance = balance + load / DEPTH
        out.append(state)
    return out, balance


def loss_of(head: Head, model: Pebble, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """The distance from what pebble says, whose distribution is the goal; and by depth."""
    with torch.no_grad():
        states = model.states(tokens)[0]
        wanted = model.logits(states).float().softmax(-1)
    out, balance = guesses(head, model, tokens, states)
    loss, shown = 0.0, []
    for depth, state in enumerate(out):
        said = model.logits(state).float().log_softmax(-1)
        own = -(wanted[:, depth : depth + state.shape[1]] * said).sum(-1).mean()
        loss = loss + DEPTH_WEIGHTS[depth] * own
        shown.append(own.detach())
    return loss, balance, shown


@torch.no_grad()
def accepted(head: Head, model: Pebble, tokens: torch.Tensor, known: int) -> list[float]:
    """Of guesses at each depth behind the given tokens, those that came true if the ones before did."""
    out, _ = guesses(head, model, tokens, model.states(tokens)[0])
    still, shares = None, []
    for depth, state in enumerate(out):
        count = tokens.shape[1] - DEPTH - known + 1
        said = model.logits(state[:, known - 1 : known - 1 + count]).argmax(-1)
        true = said == tokens[:, known + depth : known + depth + count]
        reached = true.numel() if still is None else int(still.sum())
        still = true if still is None else still & true
        shares.append(int(still.sum()) / max(1, reached))
    return shares


@torch.no_grad()
def report(head: Head, model: Pebble, texts: dict[str, torch.Tensor], log: Log) -> None:
    for name, tokens in texts.items():
        shares = accepted(head, model, tokens, GIVEN)
        told, all_true = 1.0, 1.0
        for share in shares:
            all_true *= share
            told += all_true
        log(f"{name:24} " + " ".join(f"{share:.3f}" for share in shares) + f"  tokens a step {told:.2f}")


# ---- Training ----


@torch.no_grad()
def check_pebble(model: Pebble, stories: array, device: torch.device, log: Log) -> None:
    """Windows of 512, as `moraine eval` has them: a wrong pebble would train a wrong head."""
    window = 512
    tokens = torch.tensor(stories.tolist()[: len(stories) // window * window]).view(-1, window).to(device)
    losses = [F.cross_entropy(model(row[None, :-1])[0][0].float(), row[1:]) for row in tokens]
    loss = float(torch.stack(losses).mean())
    log(f"pebble, held-out stories: {loss:.4f} nats a token, {STORIES_LOSS} by the program")
    if abs(loss - STORIES_LOSS) > LOSS_ERROR:
        raise SystemExit("this is not the loss of pebble: its file is read wrongly")


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("pebble", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--minutes", type=float, default=2.0, help="of training; the texts come on top, about 70 seconds")
    p.add_argument("--steps", type=int, default=0, help="instead of minutes")
    p.add_argument("--rows", type=int, default=32, help="texts of a step")
    p.add_argument("--texts", type=float, default=1.0, help="share of the texts that are made")
    p.add_argument("--rate", type=float, default=0.01, help="of the matrices")
    p.add_argument("--vector-rate", type=float, default=0.002)
    p.add_argument("--balance", type=float, default=0.01)
    p.add_argument("--rounded", type=float, default=0.2, help="share of the time with the file's rounding")
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def progress_of(options: argparse.Namespace, step: int, began: float) -> float:
    return step / options.steps if options.steps else (time.time() - began) / (60 * options.minutes)


def factor_of(progress: float, step: int) -> float:
    """Up in 60 steps, level until 40 %, then down in a straight line to 2 %."""
    if step < 60:
        return (step + 1) / 60
    return 1.0 if progress < 0.4 else max(0.02, 1.0 - 0.98 * (progress - 0.4) / 0.6)


def train(head: Head, model: Pebble, run: torch.Tensor, own: torch.Tensor, options: argparse.Namespace, log: Log) -> None:
    """Half of a step's texts are pebble's own, half are what it learned from."""
    found = optimizers(head, options.rate, options.vector_rate)
    began, step, rounds = time.time(), 0, False
    length, half = TIME + DEPTH, max(1, options.rows // 2)
    while (progress := progress_of(options, step, began)) < 1.0:
        if not rounds and progress >= 1.0 - options.rounded:
            rounds = True
            head.set_rounding(True)
            log(f"step {step}: from here on with rounding")
        set_rate(found, factor_of(progress, step))
        start = torch.randint(0, len(run) - length, (half,), device=run.device)
        texts = run[start[:, None] + torch.arange(length, device=run.device)]
        said = own[torch.randint(0, len(own), (half,), device=own.device)]
        loss, balance, shown = loss_of(head, model, torch.cat((texts, said)))
        (loss + options.balance * balance).backward()
        for optimizer in found:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0:
            if not math.isfinite(float(loss)):
                raise SystemExit("the loss is no number: lower --rate")
            log(f"step {step} {time.time() - began:.0f}s loss " + " ".join(f"{float(v):.3f}" for v in shown) + f" balance {float(balance):.3f}")
        step += 1
    log(f"{step} steps, {step * 2 * half * TIME / 1e6:.0f}M tokens")
    head.set_rounding(True)


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "head-log.txt")
    began = time.time()
    file = Reader(options.pebble)
    end = file.keys["tokenizer.ggml.tokens"].index(SPECIALS[0])
    made, kept = documents(file, options.texts)  # its processes begin before the GPU is used
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    model = read_pebble(options.pebble).to(device)
    log(f"{len(made)} documents, {sum(map(len, made)) / 1e6:.1f}M tokens, {time.time() - began:.0f}s")
    check_pebble(model, kept["stories"], device, log)

    rows = max(3, int(1024 * options.texts))
    own = torch.cat([own_texts(model, made[i * rows :], rows, end, device) for i in range(3)])
    tests = {}
    for name, text in kept.items():
        cuts = [text[i : i + GIVEN] for i in range(0, len(text) - GIVEN, max(GIVEN, len(text) // max(3, rows // 16)))]
        start = beginnings(cuts, len(cuts), GIVEN + 128 + DEPTH, device)
        given = torch.full((len(cuts),), GIVEN, device=device)
        for heat in (0.0, 0.8):
            tests[f"{name}, temperature {heat}"] = continued(model, start, given, torch.full((len(cuts),), heat, device=device))
    log(f"texts of pebble: {own.numel() / 1e6:.1f}M tokens, {time.time() - began:.0f}s")

    head = Head(model.shape)
    head.layer.load_state_dict(model.layers[-1].state_dict())  # a better beginning than random numbers
    head = head.requires_grad_(True).to(device)
    log(f"parameters: {sum(p.numel() for p in head.parameters()) / 1e6:.2f}M")
    train(head, model, joined(made, end).to(device), own, options, log)
    log(f"share of guesses that come true, by depth ({DEPTH} of them), with the file's rounding:")
    report(head, model, tests, log)
    export_head(head, options.out / "pebble-mtp-bf16.gguf")
    log(f"done after {time.time() - began:.0f}s")


if __name__ == "__main__":
    main()
