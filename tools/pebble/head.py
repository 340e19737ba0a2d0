"""pebble's MTP head: from what pebble gives out at one token, and the next token, it says what pebble will say after that one. Its file is
described in docs/speculation.md: a layer as pebble's own, behind them, with norms and a matrix that join the two inputs.

What the head gave out itself takes the place of pebble's states for a second guess, and again for further ones. Numbers
are those of the engine: pebble's states are the normed ones, which the output matrix reads, and so are the head's.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from export import rounded
from gguf import Reader, Writer
from model import Layer, Matrix, Pebble, RmsNorm, Shape
from rounding import round_q4_0, round_q8_0

PREFIX = "qwen3moe."


class Head(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.token_norm = RmsNorm(shape.width, shape.epsilon)
        self.state_norm = RmsNorm(shape.width, shape.epsilon)
        self.join = Matrix(shape.width, 2 * shape.width, (2 * shape.width) ** -0.5)
        self.layer = Layer(shape)
        self.norm = RmsNorm(shape.width, shape.epsilon)

    def attend(self, x, cos, sin, earlier: list) -> torch.Tensor:
        """earlier: keys and values of the guesses before, to which it adds its own. Row t sees rows 0 .. t of the first guess, and row t
        alone of the others: these are guessed after it."""
        a = self.layer.attention
        q, k, v = a.project(x, cos, sin)
        earlier.append((a.repeat(k), a.repeat(v)))
        first_k, first_v = earlier[0]
        if len(earlier) == 1:
            return a.gather(F.scaled_dot_product_attention(q, first_k, first_v, is_causal=True))
        time, scale = x.shape[1], self.shape.head_width**-0.5
        later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        scores = [(q @ first_k.transpose(-2, -1)).float().masked_fill(later, float("-inf"))]
        scores += [(q * k).sum(-1, keepdim=True).float() for k, _ in earlier[1:]]
        weights = (torch.cat(scores, dim=-1) * scale).softmax(-1).to(v.dtype)
        y = weights[..., :time] @ first_v
        for n, (_, v) in enumerate(earlier[1:]):
            y = y + weights[..., time + n : time + n + 1] * v
        return a.gather(y)

    def forward(self, tokens, states, cos, sin, earlier: list) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens: their rows of the embedding; states: given out at the tokens before. Returns what it gives out, and the balance loss."""
        x = self.join(torch.cat((self.token_norm(tokens), self.state_norm(states)), dim=-1)).float()
        x = x + self.attend(self.layer.attention_norm(x), cos, sin, earlier)
        y, probability, picks = self.layer.mixture(self.layer.mixture_norm(x))
        return self.norm(x + y), self.shape.experts * (probability * picks.detach()).sum()

    def matrices(self) -> list[tuple[Matrix, int]]:
        """Every matrix with the number of equal blocks it is made of, as Pebble's."""
        a, m = self.layer.attention, self.layer.mixture
        return [(w, 1) for w in (self.join, a.q, a.k, a.v, a.output)] + [
            (w, self.shape.experts) for w in (m.gate, m.up, m.down)
        ]

    def set_rounding(self, on: bool) -> None:
        for matrix, blocks in self.matrices():
            matrix.rounding = (round_q4_0 if blocks > 1 else round_q8_0) if on else None


# ---- Files ----


def layer_parts(layer: Layer, n: int) -> list[tuple[str, torch.Tensor, tuple[int, ...]]]:
    """Names of the file, weights, and their shapes there; vectors and the router stay F32."""
    a, m, s, b = layer.attention, layer.mixture, layer.attention.shape, f"blk.{n}."
    wide = (s.experts, s.expert_width, s.width)
    parts = [
        ("attn_norm", layer.attention_norm.weight, None),
        ("attn_q_norm", a.q_norm.weight, None),
        ("attn_k_norm", a.k_norm.weight, None),
        ("ffn_norm", layer.mixture_norm.weight, None),
        ("ffn_gate_inp", m.router, None),
        ("attn_q", a.q.weight, None),
        ("attn_k", a.k.weight, None),
        ("attn_v", a.v.weight, None),
        ("attn_output", a.output.weight, None),
        ("ffn_gate_exps", m.gate.weight, wide),
        ("ffn_up_exps", m.up.weight, wide),
        ("ffn_down_exps", m.down.weight, (s.experts, s.width, s.expert_width)),
    ]
    return [(f"{b}{name}.weight", w, shape or tuple(w.shape)) for name, w, shape in parts]


def read_pebble(path: Path) -> Pebble:
    """pebble as a file has it, its weights as they are there."""
    file = Reader(path)

    def key(name: str):
        return file.keys[PREFIX + name]

    shape = Shape(
        vocabulary=len(file.keys["tokenizer.ggml.tokens"]),
        context=key("context_length"),
        width=key("embedding_length"),
        layers=key("block_count"),
        heads=key("attention.head_count"),
        kv_heads=key("attention.head_count_kv"),
        head_width=key("attention.key_length"),
        experts=key("expert_count"),
        experts_used=key("expert_used_count"),
        expert_width=key("expert_feed_forward_length"),
        rope_base=key("rope.freq_base"),
        epsilon=key("attention.layer_norm_rms_epsilon"),
    )
    model = Pebble(shape)
    parts = [("token_embd.weight", model.embedding.weight), ("output_norm.weight", model.output_norm.weight)]
    for n, layer in enumerate(model.layers):
        parts += [(name, w) for name, w, _ in layer_parts(layer, n)]
    with torch.no_grad():
        for name, w in parts:
            w.copy_(torch.from_numpy(file.tensor(name)).view(w.shape))
    return model.requires_grad_(False)


def export_head(head: Head, out: Path) -> None:
    """In BF16, like pebble's reference; every weight is rounded to BF16."""
    s, n = head.shape, head.shape.layers
    writer = Writer(out)
    writer.string("general.architecture", "qwen3moe")
    writer.string("general.name", "pebble-mtp")
    writer.string("general.description", "The MTP head of pebble: guesses tokens for speculative decoding")
    writer.string("general.license", "mit")
    writer.u32("general.file_type", 32)  # mostly BF16
    writer.u32(PREFIX + "block_count", n + 1)
    writer.u32(PREFIX + "nextn_predict_layers", 1)
    writer.u32(PREFIX + "vocab_size", s.vocabulary)
    writer.u32(PREFIX + "context_length", s.context)
    writer.u32(PREFIX + "embedding_length", s.width)
    writer.u32(PREFIX + "feed_forward_length", s.expert_width * s.experts_used)
    writer.u32(PREFIX + "attention.head_count", s.heads)
    writer.u32(PREFIX + "attention.head_count_kv", s.kv_heads)
    writer.u32(PREFIX + "attention.key_length", s.head_width)
    writer.u32(PREFIX + "attention.value_length", s.head_width)
    writer.f32(PREFIX + "attention.layer_norm_rms_epsilon", s.epsilon)
    writer.f32(PREFIX + "rope.freq_base", s.rope_base)
    writer.u32(PREFIX + "expert_count", s.experts)
    writer.u32(PREFIX + "expert_used_count", s.experts_used)
    writer.u32(PREFIX + "expert_feed_forward_length", s.expert_width)
    parts = [
        (f"blk.{n}.nextn.enorm.weight", head.token_norm.weight, (s.width,)),
        (f"blk.{n}.nextn.hnorm.weight", head.state_norm.weight, (s.width,)),
        (f"blk.{n}.nextn.shared_head_norm.weight", head.norm.weight, (s.width,)),
        (f"blk.{n}.nextn.eh_proj.weight", head.join.weight, (s.width, 2 * s.width)),
        *layer_parts(head.layer, n),
    ]
    for name, w, shape in parts:
        values = rounded(w).view(*shape).numpy()
        if len(shape) == 1 or "ffn_gate_inp" in name:
            writer.f32_tensor(name, values)
        else:
            writer.bf16(name, values)
    writer.close()
