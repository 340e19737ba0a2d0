/* Indexers on the host: keys, queries, which positions are kept, and a cache of these. */
#include "numeric/index.h"

#include <inttypes.h>
#include <string.h>

#include "device/host/cache.h"
#include "device/host/ops.h"

/* What a block holds. index: values of an indexer's key; 0: it is not looked at. */
static mo_kv_shape shape_of(int kv, int k_len, int v_len, int tail, int index)
{
    return (mo_kv_shape){
        .type = kv, .heads = 1, .k_len = k_len, .v_len = v_len, .tail = tail, .index = index};
}

/* ---- Keys and queries ------------------------------------------------------------------------- */

mo_status mo_op_host_index(mo_op_job *job, const mo_op_index *o)
{
    const int64_t n = o->tokens, width = (int64_t)o->heads * o->length;
    const mo_kv_shape shape = shape_of(o->kv, o->k_len, o->v_len, o->tail, o->length);
    if (n == 0) {
        return MO_OK;
    }
    float *q = mo_op_floats(job, "q", o->q, n * width), *k = mo_op_floats(job, "k", o->k, n * o->length),
          *share = mo_op_floats(job, "share", o->share, n * o->heads);
    const float *rope = mo_op_floats(job, "rope", o->rope, 2 * o->rope_rows * o->rope_stride);
    const mo_index_rule rule = {.heads = o->heads,
                                .length = o->length,
                                .n_rot = o->n_rot,
                                .neox = o->neox,
                                .scale = o->scale,
                                .norm = mo_op_floats(job, "norm", o->norm, o->length),
                                .bias = mo_op_floats(job, "bias", o->bias, o->length)};
    uint32_t *bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    if (o->rope_rows < n || 2 * o->rope_stride < o->n_rot) {
        mo_op_refuse(job, "rotates %d values of %" PRId64 " tokens by %" PRId64 " rows of %" PRId64, o->n_rot,
                     n, o->rope_rows, o->rope_stride);
    }
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        uint8_t *block = mo_op_block_of(job, &c, places[t].position);
        if (job->status == MO_OK) {
            const float *cosines = rope + t * o->rope_stride,
                        *sines = cosines + o->rope_rows * o->rope_stride;
            if (!mo_index_key(job->k, &rule, k + t * o->length, cosines, sines)) {
                mo_op_set_bad(bad, 1);
            }
            memcpy(block + mo_kv_index_at(shape) +
                       places[t].position % MO_KV_BLOCK * mo_kv_index_bytes(shape),
                   k + t * o->length, (size_t)mo_kv_index_bytes(shape));
            mo_index_query(job->k, &rule, q + t * width, share + t * o->heads, cosines, sines);
        }
    }
    return job->status;
}

/* ---- Which positions are kept ----------------------------------------------------------------- */

enum { HEADS_MOST = 1024 };

/* One position: the heads' products one by one, as those of a matrix would be. */
static float score_of(const mo_op_job *job, const mo_op_keep *o, const float *q, const float *share,
                      const float *key)
{
    float products[HEADS_MOST], score;
    for (int h = 0; h < o->heads; h++) {
        products[h] = job->k->dot(key, q + (int64_t)h * o->length, o->length);
    }
    job->k->rectified_sum(&score, products, 1, share, o->heads, 1);
    return score;
}

mo_status mo_op_host_keep(mo_op_job *job, const mo_op_keep *o)
{
    const int64_t n = o->tokens, width = (int64_t)o->heads * o->length;
    const mo_kv_shape shape = shape_of(o->kv, o->k_len, o->v_len, o->tail, o->length);
    if (n == 0) {
        return MO_OK;
    }
    const float *q = mo_op_floats(job, "q", o->q, n * width),
                *share = mo_op_floats(job, "share", o->share, n * o->heads);
    float *scores = mo_op_floats(job, "scores", o->scores, n * o->stride);
    int32_t *kept = mo_op_part(job, "kept", o->kept, n * o->top * (int64_t)sizeof *kept);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    if (o->heads > HEADS_MOST) {
        mo_op_refuse(job, "has %d heads, more than %d", o->heads, HEADS_MOST);
    }
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const int64_t position = places[t].position;
        if (position < o->top) {
            continue;
        }
        if (position >= o->most) {
            mo_op_refuse(job, "has a token at position %" PRId64 " and space for %" PRId64, position,
                         o->most);
        }
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        for (int64_t u = 0; job->status == MO_OK && u <= position; u++) {
            const uint8_t *block = mo_op_block_of(job, &c, u);
            if (job->status == MO_OK) {
                const uint8_t *key =
                    block + mo_kv_index_at(shape) + u % MO_KV_BLOCK * mo_kv_index_bytes(shape);
                scores[t * o->stride + u] =
                    score_of(job, o, q + t * width, share + t * o->heads, (const float *)(const void *)key);
            }
        }
        if (job->status == MO_OK) {
            mo_index_choose(scores + t * o->stride, position + 1, o->top, kept + t * o->top);
        }
    }
    return job->status;
}

/* ---- A cache of these ------------------------------------------------------------------------- */

/* A block after the other; false when the job was refused. */
static bool gather(mo_op_job *job, const mo_op_gather *o, const mo_op_cache *c, const int32_t *kept,
                   uint8_t *blocks)
{
    const int64_t bytes = mo_kv_block_bytes(c->shape);
    for (int64_t i = 0; i < o->top; i++) {
        uint8_t *from = mo_op_block_of(job, c, kept[i]), *to = blocks + i / MO_KV_BLOCK * bytes;
        if (job->status != MO_OK) {
            return false;
        }
        const mo_kv_head source = mo_kv_head_of(c->shape, 0, &from, 1);
        const mo_kv_head target = mo_kv_head_of(c->shape, 0, &to, 1);
        mo_index_copy(&source, kept[i] % MO_KV_BLOCK, &target, i % MO_KV_BLOCK);
    }
    return true;
}

mo_status mo_op_host_gather(mo_op_job *job, const mo_op_gather *o)
{
    const int64_t n = o->tokens, count = (o->top + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    const mo_kv_shape shape = shape_of(o->kv, o->k_len, o->v_len, o->tail, 0);
    const int64_t bytes = mo_kv_block_bytes(shape);
    if (n == 0) {
        return MO_OK;
    }
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    const int32_t *kept = mo_op_part(job, "kept", o->kept, n * o->top * (int64_t)sizeof *kept);
    uint8_t *blocks = mo_op_part(job, "blocks", o->blocks, n * count * bytes);
    mo_daddr *tables = mo_op_part(job, "tables", o->tables, n * count * (int64_t)sizeof *tables);
    mo_dstate *states = mo_op_part(job, "states", o->states, n * (int64_t)sizeof *states);
    mo_dplace *out = mo_op_part(job, "out", o->out, n * (int64_t)sizeof *out);
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const bool some = places[t].position >= o->top;
        const mo_daddr first = o->blocks + (mo_daddr)(t * count * bytes);
        states[t] = mo_op_layer(job, places[t].layers, o->layer);
        out[t] = places[t];
        out[t].layers = o->states + (mo_daddr)t * sizeof *states;
        if (job->status != MO_OK || !some) {
            continue;
        }
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        if (!gather(job, o, &c, kept + t * o->top, blocks + t * count * bytes)) {
            break;
        }
        for (int64_t i = 0; i < count; i++) {
            tables[t * count + i] = first + (mo_daddr)(i * bytes);
        }
        states[t] = (mo_dstate){.blocks = o->tables + (mo_daddr)(t * count) * sizeof *tables,
                                .length = count,
                                .first = first,
                                .stride = bytes};
        out[t].position = o->top - 1;
    }
    return job->status;
}
