"""Writes a trained pebble as a GGUF of the architecture qwen3moe: matrices in BF16, vectors and routers in
F32, every weight rounded to BF16 first, so that this file is the reference of all others made from it."""

import json
from pathlib import Path

import torch

from gguf import Writer

# ChatML, as the engine and llama.cpp recognize it.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def rounded(w: torch.Tensor) -> torch.Tensor:
    return w.detach().to(torch.bfloat16).float().cpu()


def add_metadata(writer: Writer, shape, tokenizer: dict) -> None:
    tokens = tokenizer["tokens"]
    writer.string("general.architecture", "qwen3moe")
    writer.string("general.name", "pebble")
    writer.string("general.description", "The small mixture of experts that comes with Moraine")
    writer.string("general.license", "mit")
    writer.u32("general.file_type", 32)  # mostly BF16
    p = "qwen3moe."
    writer.u32(p + "block_count", shape.layers)
    writer.u32(p + "context_length", shape.context)
    writer.u32(p + "embedding_length", shape.width)
    writer.u32(p + "feed_forward_length", shape.expert_width * shape.experts_used)
    writer.u32(p + "attention.head_count", shape.heads)
    writer.u32(p + "attention.head_count_kv", shape.kv_heads)
    writer.u32(p + "attention.key_length", shape.head_width)
    writer.u32(p + "attention.value_length", shape.head_width)
    writer.f32(p + "attention.layer_norm_rms_epsilon", shape.epsilon)
    writer.f32(p + "rope.freq_base", shape.rope_base)
    writer.u32(p + "expert_count", shape.experts)
    writer.u32(p + "expert_used_count", shape.experts_used)
    writer.u32(p + "expert_feed_forward_length", shape.expert_width)
    writer.string("tokenizer.ggml.model", "gpt2")
    writer.string("tokenizer.ggml.pre", "qwen2")
    writer.strings("tokenizer.ggml.tokens", tokens)
    writer.i32s("tokenizer.ggml.token_type", tokenizer["types"])
    writer.strings("tokenizer.ggml.merges", tokenizer["merges"])
    writer.u32("tokenizer.ggml.eos_token_id", tokens.index("<|im_end|>"))
    writer.u32("tokenizer.ggml.padding_token_id", tokens.index("<|endoftext|>"))
    writer.u32("tokenizer.ggml.bos_token_id", tokens.index("<|endoftext|>"))
    writer.boolean("tokenizer.ggml.add_bos_token", False)
    writer.string("tokenizer.chat_template", TEMPLATE)


def export(model, tokenizer_path: Path, out: Path) -> None:
    shape = model.shape
    writer = Writer(out)
    add_metadata(writer, shape, json.loads(tokenizer_path.read_text()))

    def matrix(name: str, w: torch.Tensor, *dimensions: int) -> None:
        writer.bf16(name, rounded(w).view(*dimensions).numpy())

    def vector(name: str, w: torch.Tensor) -> None:
        writer.f32_tensor(name, rounded(w).numpy())

    matrix("token_embd.weight", model.embedding.weight, shape.vocabulary, shape.width)
    vector("output_norm.weight", model.output_norm.weight)
    for n, layer in enumerate(model.layers):
        a, m, b = layer.attention, layer.mixture, f"blk.{n}."
        vector(b + "attn_norm.weight", layer.attention_norm.weight)
        vector(b + "attn_q_norm.weight", a.q_norm.weight)
        vector(b + "attn_k_norm.weight", a.k_norm.weight)
        vector(b + "ffn_norm.weight", layer.mixture_norm.weight)
        vector(b + "ffn_gate_inp.weight", m.router)
        for name, part in (("attn_q", a.q), ("attn_k", a.k), ("attn_v", a.v), ("attn_output", a.output)):
            matrix(f"{b}{name}.weight", part.weight, *part.weight.shape)
        wide = (shape.experts, shape.expert_width, shape.width)
        matrix(b + "ffn_gate_exps.weight", m.gate.weight, *wide)
        matrix(b + "ffn_up_exps.weight", m.up.weight, *wide)
        matrix(b + "ffn_down_exps.weight", m.down.weight, shape.experts, shape.width, shape.expert_width)
    writer.close()
