"""Muon: momentum whose update is brought near an orthogonal matrix by five Newton-Schulz steps (Jordan et
al., 2024), for matrices that may be stacks of equal blocks, such as the experts of a layer."""

import torch


def orthogonal(g: torch.Tensor) -> torch.Tensor:
    """g: [..., rows, columns]. The quintic's coefficients trade accuracy for a steep slope at zero."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-2, -1)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(-2, -1)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(-2, -1) if tall else x


class Muon(torch.optim.Optimizer):
    """params: groups {"params": [...], "blocks": number of stacked blocks of each parameter}."""

    def __init__(self, groups: list[dict], lr: float, momentum: float = 0.95, decay: float = 0.01):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "decay": decay, "blocks": 1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "mean" not in state:
                    state["mean"] = torch.zeros_like(p)
                mean = state["mean"]
                mean.lerp_(p.grad, 1 - group["momentum"])
                wanted = p.grad.lerp(mean, group["momentum"])
                blocks = wanted.view(group["blocks"], -1, wanted.shape[-1])
                update = orthogonal(blocks).view(p.shape).to(p.dtype)
                rows, columns = blocks.shape[-2:]
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
