#!/usr/bin/env python3
"""Trains pebble: train.py DATA OUT [--minutes 8.2].

DATA is what prepare.sh made. OUT receives pebble-bf16.gguf (every weight rounded to BF16) and log.txt. The first
steps measure the speed of the machine; the number of steps is set from it, so that
the learning rate has come down to nothing when the minutes are over. A GPU of the H200 class sees about
half a billion tokens in that time.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from corpus import SHARES, Corpus
from export import export
from model import Pebble, Shape
from muon import Muon


class Log:
    def __init__(self, path: Path):
        self.file = path.open("w")

    def __call__(self, text: str) -> None:
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()


def optimizers(model: Pebble, rate: float, embedding_rate: float) -> list[torch.optim.Optimizer]:
    inner = [{"params": [m.weight], "blocks": blocks} for m, blocks in model.matrices()]
    owned = {id(p) for group in inner for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in owned]
    vectors = [p for p in rest if p.ndim < 2]
    tables = [p for p in rest if p.ndim >= 2]  # the embedding and the routers
    groups = [
        {"params": tables, "weight_decay": 0.0, "lr": embedding_rate},
        {"params": vectors, "weight_decay": 0.0, "lr": embedding_rate},
    ]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10)
    found = [Muon(inner, lr=rate), adam]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["full"] = group["lr"]
    return found


def set_rate(found: list[torch.optim.Optimizer], factor: float) -> None:
    for optimizer in found:
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * factor


def schedule(step: int, steps: int) -> float:
    """Up in 60 steps, level until 40 %, then down in a straight line to 2 %."""
    if step < 60:
        return (step + 1) / 60
    progress = step / steps
    return 1.0 if progress < 0.4 else max(0.02, 1.0 - 0.98 * (progress - 0.4) / 0.6)


def loss_of(model, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits, balance, picks = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
    return loss, balance, picks


@torch.no_grad()
def validate(model, corpus: Corpus, sequences: int, context: int) -> dict[str, float]:
    return {d: float(loss_of(model, corpus.validation_batch(d, sequences, context))[0]) for d in SHARES}


@torch.no_grad()
def routing(model, corpus: Corpus, sequences: int, context: int) -> str:
    """Share of the picks that the busiest quarter of the experts gets, mean over layers, for each domain and
    for all; and the number of experts that nobody uses."""
    per_domain = {d: loss_of(model, corpus.validation_batch(d, sequences, context))[2] for d in SHARES}
    per_domain["all"] = torch.stack(list(per_domain.values())).mean(0)
    quarter = per_domain["all"].shape[1] // 4
    parts = []
    for name, picks in per_domain.items():
        top = picks.sort(dim=1, descending=True).values[:, :quarter].sum(1).mean()
        parts.append(f"{name} {float(top):.2f}")
    idle = int((per_domain["all"] < 0.0005).sum())
    return "top quarter: " + ", ".join(parts) + f"; idle experts {idle}"


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("data", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--minutes", type=float, default=8.2, help="of training; compilation before the first step comes on top")
    p.add_argument("--steps", type=int, default=0, help="instead of minutes")
    p.add_argument("--sequences", type=int, default=32, help="per step")
    p.add_argument("--context", type=int, default=2048)
    p.add_argument("--rate", type=float, default=0.02, help="of the matrices")
    p.add_argument("--embedding-rate", type=float, default=0.004)
    p.add_argument("--balance", type=float, default=0.01, help="weight of the load-balancing loss")
    p.add_argument("--rounded", type=float, default=0.15, help="share of the steps with the file's rounding")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--no-export", action="store_true")
    return p.parse_args()


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / "log.txt")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    corpus = Corpus(options.data, device, options.seed)
    log("tokens: " + ", ".join(f"{n} {len(t) / 1e6:.1f}M" for n, t in corpus.train.items()))
    shape = Shape(context=options.context)
    model = Pebble(shape).to(device)
    log(f"parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M; {json.dumps(shape.as_dict())}")
    run = model if options.no_compile else torch.compile(model)
    found = optimizers(model, options.rate, options.embedding_rate)

    steps, rounded_from = options.steps or 10**9, 10**9
    began = steady = time.time()
    warm = 20
    step = 0
    while step < steps:
        if step == warm:
            torch.cuda.synchronize() if device.type == "cuda" else None
            steady = time.time()
        if step == warm + 40 and not options.steps:
            torch.cuda.synchronize() if device.type == "cuda" else None
            each = (time.time() - steady) / 40
            # Rounded steps are a little slower, and compiling them takes up to a minute: leave them room.
            steps = int((options.minutes * 60 - (time.time() - steady) - 60) / (each * 1.02)) + step
            log(f"{each * 1e3:.1f} ms a step, {steps} steps")
        if step == warm + 40 or (options.steps and step == 0):
            rounded_from = int(steps * (1 - options.rounded))
        if step == rounded_from:
            model.set_rounding(True)
            log("from here on with rounding")
        known = steps if steps < 10**9 else 10**5
        set_rate(found, schedule(step, known))
        batch = corpus.batch(options.sequences, options.context)
        loss, balance, _ = loss_of(run, batch)
        (loss + options.balance * balance).backward()
        for optimizer in found:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 200 == 0 or step == steps - 1:
            value = loss.item()
            if not math.isfinite(value):
                raise SystemExit("the loss is no number: lower --rate")
            losses = validate(model, corpus, 4, options.context) if step % 1000 == 0 else {}
            shown = " ".join(f"{d} {v:.3f}" for d, v in losses.items())
            log(f"step {step} {time.time() - began:.0f}s loss {value:.3f} balance {float(balance):.3f} {shown}")
        step += 1

    model.set_rounding(True)
    losses = validate(model, corpus, 32, options.context)
    log("validation loss, rounded: " + json.dumps({d: round(v, 4) for d, v in losses.items()}))
    model.set_rounding(False)
    losses = validate(model, corpus, 32, options.context)
    log("validation loss, unrounded: " + json.dumps({d: round(v, 4) for d, v in losses.items()}))
    log(routing(model, corpus, 32, options.context))
    model.set_rounding(True)
    if not options.no_export:
        export(model, options.data / "tokenizer.json", options.out / "pebble-bf16.gguf")
    log(f"done after {time.time() - began:.0f}s")


if __name__ == "__main__":
    main()
