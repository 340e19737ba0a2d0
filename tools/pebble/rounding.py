"""Rounding of weights to the values that a GGUF format can hold, for training with that rounding in place.

The file is made by `moraine quantize`, which searches a finer grid of scales; these functions take the best
of a few, so training meets errors of the same kind and a little larger.
"""

import torch

BLOCK = 32


def round_q8_0(w: torch.Tensor) -> torch.Tensor:
    x = w.to(torch.bfloat16).float().view(-1, BLOCK)
    scale = (x.abs().amax(dim=1, keepdim=True) / 127).half().float()
    code = torch.where(scale > 0, x / scale, torch.zeros_like(x)).round().clamp(-127, 127)
    return (code * scale).view(w.shape)


def round_q4_0(w: torch.Tensor) -> torch.Tensor:
    """Levels -8 .. 7 times a half-precision scale; the value of largest magnitude is put on -8, or up to
    15 % beyond or inside it, whichever leaves the least squared error."""
    x = w.to(torch.bfloat16).float().view(-1, BLOCK)
    extreme = x.gather(1, x.abs().argmax(dim=1, keepdim=True))
    best = torch.zeros_like(x)
    least = (x * x).sum(dim=1, keepdim=True)
    for target in (-8.0, -8.6, -9.2, -7.4, 7.2, 6.6):
        scale = (extreme / target).half().float()
        code = torch.where(scale != 0, x / scale, torch.zeros_like(x)).round().clamp(-8, 7)
        value = code * scale
        error = (x - value).pow(2).sum(dim=1, keepdim=True)
        best = torch.where(error < least, value, best)
        least = torch.minimum(error, least)
    return best.view(w.shape)
