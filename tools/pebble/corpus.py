"""The encoded corpus as the trainer sees it: one long run of tokens per domain, on the GPU."""

import lzma
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

# What share of the sequences of a batch each domain gets.
SHARES = {"stories": 0.34, "questions": 0.16, "code": 0.18, "prose": 0.16, "manuals": 0.16}


def read_tokens(path: Path) -> torch.Tensor:
    packed = path.with_suffix(path.suffix + ".xz")
    raw = lzma.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return torch.from_numpy(np.frombuffer(raw, dtype="<u2").astype(np.int16))


class Corpus:
    def __init__(self, folder: Path, device: torch.device, seed: int):
        names = list(SHARES)
        with ThreadPoolExecutor(len(names)) as threads:
            train = list(threads.map(lambda n: read_tokens(folder / f"{n}.u16"), names))
        self.train = {n: t.to(device) for n, t in zip(names, train)}
        self.validation = {n: read_tokens(folder / f"{n}.val.u16").to(device) for n in names}
        self.device = device
        self.generator = torch.Generator(device="cpu").manual_seed(seed)

    def batch(self, sequences: int, time: int) -> torch.Tensor:
        """Windows of time + 1 tokens, each of one domain, the domains in their shares: [sequences, time + 1]."""
        share = torch.tensor(list(SHARES.values()))
        domain = torch.multinomial(share, sequences, replacement=True, generator=self.generator)
        rows = []
        for number, tokens in enumerate(self.train.values()):
            count = int((domain == number).sum())
            if count == 0:
                continue
            start = torch.randint(0, len(tokens) - time - 1, (count,), generator=self.generator)
            rows.append(windows(tokens, start.to(self.device), time))
        return torch.cat(rows)

    def validation_batch(self, domain: str, sequences: int, time: int) -> torch.Tensor:
        tokens = self.validation[domain]
        count = max(1, min(sequences, (len(tokens) - 1) // time))
        start = torch.arange(count, device=self.device) * time
        return windows(tokens, start, min(time, len(tokens) - 1))


def windows(tokens: torch.Tensor, start: torch.Tensor, time: int) -> torch.Tensor:
    index = start[:, None] + torch.arange(time + 1, device=tokens.device)
    return tokens[index].long()
