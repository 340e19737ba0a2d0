/* Tiny models of the architectures that have a published shape. */
#ifndef MO_TESTS_TINY_SHAPE_H
#define MO_TESTS_TINY_SHAPE_H

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
    if (s.window_head) {
        s.window_head = 32, s.window_kv_heads = 4;
    }
    s.dense_layers = s.dense_layers ? 1 : 0;
    if (s.shared_count) {
        s.shared_ffn = 96, s.shared_count = 1;
    }
    if (s.latent) {
        s.latent = 64, s.rotated = 32, s.head = 96, s.plain = 32, s.head_out = 64, s.kv_heads = 1;
        s.query_rank = s.query_rank ? 64 : 0;
    }
    if (s.window && !s.window_head) {
        s.window = 8;
    }
    if (s.groups) {
        s.groups = 3, s.groups_used = 2;
    }
    return s;
}

#endif
