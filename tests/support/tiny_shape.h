/* Tiny models of the architectures that have a published shape. */
#ifndef MO_TESTS_TINY_SHAPE_H
#define MO_TESTS_TINY_SHAPE_H

#include <string.h>

#include "synth/shapes.h"

/* A model of the architecture that fits in a few hundred KiB. */
static inline mo_shape tiny_shape(const mo_shape *published)
{
    mo_shape s = *published;
    s.layers = 4;
    s.width = 256;
    s.heads = 4;
    s.kv_heads = 2;
    s.head = 64;
    s.rotated = published->rotated == published->head ? 64 : 32;
    s.vocabulary = 300;
    s.ffn = s.ffn ? 288 : 0;
    s.expert_ffn = s.expert_ffn ? 96 : 0;
    s.ffn = published->ffn == published->expert_ffn ? s.expert_ffn : s.ffn;
    s.shared_ffn = s.shared_ffn ? 64 : 0;
    s.experts = s.experts ? 6 : 0;
    s.experts_used = s.experts ? 2 : 0;
    s.full_interval = s.full_interval ? 2 : 0;
    s.attends = s.attends ? 0x4 : 0;
    if (s.state) {
        s.state = 32, s.key_groups = 2, s.value_heads = 4, s.inner = 128;
    }
    if (s.blocks) {
        s.layers = 5, s.blocks = s.experts ? "ME*EM" : "M-*-M", s.expert_io = s.experts ? 96 : 0;
    }
    if (s.window_head) {
        s.window_head = 32, s.window_kv_heads = 4;
    }
    s.value_head = s.value_head ? 48 : 0;
    s.window_heads = s.window_heads ? 6 : 0;
    if (s.window_kv_heads && !s.window_head) {
        s.kv_heads = 1, s.window_kv_heads = 2;
    }
    s.window_rotated = s.window_rotated ? 64 : 0;
    if (s.expert_limit > 0.0f) {
        s.expert_limit = 0.25f, s.shared_limit = 0.125f;
    }
    s.dense_layers = s.dense_layers ? 1 : 0;
    if (s.shared_count) {
        s.shared_ffn = 96, s.shared_count = 1;
    }
    if (s.latent) {
        s.latent = 64, s.rotated = 32, s.head = 96, s.plain = 32, s.head_out = 64, s.kv_heads = 1;
        s.query_rank = s.query_rank ? 64 : 0;
    }
    if (s.index_heads) {
        s.index_heads = 3, s.index_length = 48, s.index_top = 6;
    }
    if (s.window && !s.window_head) {
        s.window = 8;
    }
    if (s.streams) { /* the last layers have keys of 4, 128 and 4 tokens */
        s.layers = 5, s.kv_heads = 1, s.rotated = 32, s.query_rank = 64, s.out_groups = 2, s.out_rank = 32;
        s.hashed = 1, s.limit = 0.25f, s.index_top = 3;
    }
    if (s.temper != 0.0f) { /* several of its periods, also in a short text */
        s.temper = 0.25f, s.yarn_context = 8, s.temper_length = s.temper_length ? 6 : 0;
    }
    s.centered = strcmp(s.architecture, "cohere2moe") == 0; /* which has files of both kinds */
    if (s.groups) {
        s.groups = 3, s.groups_used = 2;
    }
    return s;
}

#endif
