"""The network of pebble: the qwen3moe architecture, written for training.

Every expert is computed for every token and the ones that were not chosen are multiplied by zero: a
mixture of 64 experts of width 64 is one dense layer of width 4096 with a mask, which a large GPU computes
faster than it can sort tokens. What counts is that the numbers are those of the sparse layer.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from rounding import round_q4_0, round_q8_0


@dataclass
class Shape:
    vocabulary: int = 4096
    context: int = 2048
    width: int = 256
    layers: int = 7
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    experts: int = 64
    experts_used: int = 6
    expert_width: int = 64
    rope_base: float = 10000.0
    epsilon: float = 1e-6

    def as_dict(self) -> dict:
        return asdict(self)


class RmsNorm(nn.Module):
    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stream between the layers is F32; what a matrix is multiplied with is BF16."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale * self.weight).to(torch.bfloat16)


class Matrix(nn.Module):
    """A weight of [rows, columns]. `rounding` is the format's rounding during the last steps: the value
    used is the rounded one, the gradient goes to the unrounded one."""

    def __init__(self, rows: int, columns: int, deviation: float):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) * deviation)
        self.rounding = None

    def value(self) -> torch.Tensor:
        w = self.weight
        if self.rounding is None:
            return w
        return w + (self.rounding(w.detach()) - w.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.value().to(x.dtype))


def rope_tables(shape: Shape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    half = shape.head_width // 2
    frequency = shape.rope_base ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
    angle = torch.arange(shape.context, device=device, dtype=torch.float32)[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [batch, heads, time, head_width]; the pair of dimension i is i + half (the NeoX layout)."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        deviation = shape.width**-0.5
        self.q = Matrix(shape.heads * shape.head_width, shape.width, deviation)
        self.k = Matrix(shape.kv_heads * shape.head_width, shape.width, deviation)
        self.v = Matrix(shape.kv_heads * shape.head_width, shape.width, deviation)
        self.output = Matrix(shape.width, shape.heads * shape.head_width, deviation / (2 * shape.layers) ** 0.5)
        self.q_norm = RmsNorm(shape.head_width, shape.epsilon)
        self.k_norm = RmsNorm(shape.head_width, shape.epsilon)

    def project(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values: [batch, heads or kv_heads, time, head_width]."""
        s = self.shape
        batch, time, _ = x.shape

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.view(batch, time, heads, s.head_width).transpose(1, 2)

        q = rotate(self.q_norm(split(self.q(x), s.heads)), cos, sin)
        k = rotate(self.k_norm(split(self.k(x), s.kv_heads)), cos, sin)
        return q, k, split(self.v(x), s.kv_heads)

    def repeat(self, x: torch.Tensor) -> torch.Tensor:
        """Keys or values for every head."""
        return x.repeat_interleave(self.shape.heads // self.shape.kv_heads, dim=1)

    def gather(self, y: torch.Tensor) -> torch.Tensor:
        """What the heads found, [batch, heads, time, head_width], as the layer's output."""
        return self.output(y.transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x, cos, sin)
        return self.gather(F.scaled_dot_product_attention(q, self.repeat(k), self.repeat(v), is_causal=True))


class Mixture(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        all_rows = shape.experts * shape.expert_width
        deviation = shape.width**-0.5
        self.router = nn.Parameter(torch.randn(shape.experts, shape.width) * 0.02)
        self.gate = Matrix(all_rows, shape.width, deviation)
        self.up = Matrix(all_rows, shape.width, deviation)
        # Down matrices lie expert after expert, each [width, expert_width], as the file wants them.
        self.down = Matrix(
            shape.experts * shape.width, shape.expert_width, shape.expert_width**-0.5 / (2 * shape.layers) ** 0.5
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the output, the mean probability and the share of picks of every expert."""
        s = self.shape
        logits = F.linear(x.float(), self.router)
        probability = logits.softmax(-1)
        weight, index = probability.topk(s.experts_used, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        chosen = torch.zeros_like(probability).scatter(-1, index, weight)
        hidden = F.silu(self.gate(x)) * self.up(x)
        hidden = hidden.view(*x.shape[:-1], s.experts, s.expert_width) * chosen.to(x.dtype).unsqueeze(-1)
        down = self.down.value().to(x.dtype).view(s.experts, s.width, s.expert_width)
        down = down.transpose(0, 1).reshape(s.width, s.experts * s.expert_width)
        y = F.linear(hidden.flatten(-2), down)
        picks = (chosen > 0).float().mean(dim=(0, 1)) / s.experts_used
        return y, probability.mean(dim=(0, 1)), picks


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.attention_norm = RmsNorm(shape.width, shape.epsilon)
        self.attention = Attention(shape)
        self.mixture_norm = RmsNorm(shape.width, shape.epsilon)
        self.mixture = Mixture(shape)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y, probability, picks = self.mixture(self.mixture_norm(x))
        return x + y, probability, picks


class Pebble(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embedding = Matrix(shape.vocabulary, shape.width, 0.02)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.output_norm = RmsNorm(shape.width, shape.epsilon)

    def states(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns what the output matrix reads, [batch, time, width]; the balance loss, which is 1 when the
        load is even over the whole batch; and the picks [layers, experts]."""
        x = F.embedding(tokens, self.embedding.value())
        cos, sin = rope_tables(self.shape, tokens.device)
        cos, sin = cos[: tokens.shape[1]], sin[: tokens.shape[1]]
        balance = 0.0
        all_picks = []
        for layer in self.layers:
            x, probability, picks = layer(x, cos, sin)
            balance = balance + self.shape.experts * (probability * picks.detach()).sum()
            all_picks.append(picks.detach())
        return self.output_norm(x), balance / self.shape.layers, torch.stack(all_picks)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The embedding is the output matrix too."""
        return F.linear(states, self.embedding.value().to(states.dtype))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns logits, the balance loss and the picks."""
        states, balance, picks = self.states(tokens)
        return self.logits(states), balance, picks

    def matrices(self) -> list[tuple[Matrix, int]]:
        """Every inner matrix with the number of equal blocks it is made of (experts, or 1)."""
        found = []
        for layer in self.layers:
            a, m = layer.attention, layer.mixture
            found += [(w, 1) for w in (a.q, a.k, a.v, a.output)]
            found += [(w, self.shape.experts) for w in (m.gate, m.up, m.down)]
        return found

    def set_rounding(self, on: bool) -> None:
        """Puts the file's formats in place: Q4_0 for experts, Q8_0 for the other matrices."""
        for matrix, blocks in self.matrices():
            matrix.rounding = (round_q4_0 if blocks > 1 else round_q8_0) if on else None
        self.embedding.rounding = round_q8_0 if on else None
