/* Attention on the host. */
#include <inttypes.h>
#include <math.h>

#include "device/host/cache.h"
#include "device/host/ops.h"
#include "numeric/heads.h"

/* Vectors of codes have a longest length. */
static void check_lengths(mo_op_job *job, int kv, int k_len, int v_len)
{
    if (mo_kv_coded(kv) && (k_len > MO_KV_LONGEST || v_len > MO_KV_LONGEST)) {
        mo_op_refuse(job, "has keys of %d and values of %d values; codes are of at most %d", k_len, v_len,
                     MO_KV_LONGEST);
    }
}

/* ---- Heads ------------------------------------------------------------------------------------ */

typedef struct heads_parts {
    const mo_op_heads *o;
    float *q, *k, *v;
    const float *q_norm, *k_norm, *rope, *q_factor;
    uint32_t *bad;
} heads_parts;

static int64_t query_len(int k_len, int gated)
{
    return (int64_t)k_len * (gated ? 2 : 1);
}

/* One KV head of one token: its queries, its key and its value into the cache. */
static void prepare_head(const mo_kernels *k, const heads_parts *p, int64_t t, int h, const mo_kv_head *kv,
                         int64_t position)
{
    const mo_op_heads *o = p->o;
    const int group = o->heads / o->kv_heads;
    const mo_heads_rule heads = {.k_len = o->k_len,
                                 .v_len = o->v_len,
                                 .q_norm = o->norm_all ? NULL : p->q_norm,
                                 .k_norm = o->norm_all ? NULL : p->k_norm,
                                 .norm_last = o->norm_last,
                                 .v_norm = o->v_norm,
                                 .v_from_k = o->v_from_k,
                                 .rotates = p->rope != NULL,
                                 .neox = o->neox,
                                 .n_rot = o->n_rot,
                                 .eps = o->eps,
                                 .q_factor = p->q_factor ? p->q_factor + t : NULL};
    const int64_t length = query_len(o->k_len, o->gated);
    const float *c = p->rope ? p->rope + t * o->rope_stride : NULL;
    if (!mo_heads_prepare(k, &heads, p->q + (t * o->heads + h * group) * length, group, length,
                          p->k + (t * o->kv_heads + h) * o->k_len, p->v + (t * o->kv_heads + h) * o->v_len, c,
                          c ? c + o->rope_rows * o->rope_stride : NULL, kv, position)) {
        mo_op_set_bad(p->bad, 1);
    }
}

mo_status mo_op_host_heads(mo_op_job *job, const mo_op_heads *o)
{
    const int64_t n = o->tokens, stride = o->heads * query_len(o->k_len, o->gated);
    const int64_t together = o->norm_all ? o->heads : 1, kv_together = o->norm_all ? o->kv_heads : 1;
    const mo_kv_shape shape = {.type = o->kv, .heads = o->kv_heads, .k_len = o->k_len, .v_len = o->v_len};
    heads_parts p = {.o = o};
    if (n == 0) {
        return MO_OK;
    }
    p.q = mo_op_floats(job, "q", o->q, n * stride);
    p.k = mo_op_floats(job, "k", o->k, n * o->kv_heads * o->k_len);
    p.v = mo_op_floats(job, "v", o->v, n * o->kv_heads * o->v_len);
    p.q_norm = mo_op_floats_or_none(job, "q_norm", o->q_norm, together * o->k_len);
    p.k_norm = mo_op_floats_or_none(job, "k_norm", o->k_norm, kv_together * o->k_len);
    p.rope = mo_op_floats_or_none(job, "rope", o->rope, 2 * o->rope_rows * o->rope_stride);
    p.q_factor = mo_op_floats_or_none(job, "q_factor", o->q_factor, n);
    p.bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    check_lengths(job, o->kv, o->k_len, o->v_len);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    if (o->rope && (o->rope_rows < n || 2 * o->rope_stride < o->n_rot || o->n_rot > o->k_len)) {
        mo_op_refuse(job, "rotates %d values of %" PRId64 " tokens by %" PRId64 " rows of %" PRId64, o->n_rot,
                     n, o->rope_rows, o->rope_stride);
    }
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        uint8_t *block = mo_op_block_of(job, &c, places[t].position);
        if (o->norm_all && job->status == MO_OK) {
            float *k = p.k + t * o->kv_heads * o->k_len;
            job->k->rms_norm(p.q + t * stride, p.q + t * stride, p.q_norm, o->heads * o->k_len, o->eps);
            job->k->rms_norm(k, k, p.k_norm, o->kv_heads * o->k_len, o->eps);
        }
        for (int h = 0; job->status == MO_OK && h < o->kv_heads; h++) {
            const mo_kv_head kv = mo_kv_head_of(shape, h, &block, 1);
            prepare_head(job->k, &p, t, h, &kv, places[t].position);
        }
    }
    return job->status;
}

/* ---- Scores ----------------------------------------------------------------------------------- */

typedef struct attend_parts {
    const mo_op_attend *o;
    const float *q, *sinks;
    float *partial;
    mo_acts mixed;
} attend_parts;

static int64_t first_seen(const mo_op_attend *o, int64_t position)
{
    return mo_first_seen(o->window, position);
}

/* The position behind the last that the token sees. */
static int64_t end_seen(const mo_op_attend *o, const mo_dplace *place)
{
    return place->position + 1 + (o->window ? place->ahead : 0);
}

/* What the token sees of the chunk that begins at `at`. */
static mo_seen seen_of(const mo_op_attend *o, const mo_dplace *place, int64_t at)
{
    const int64_t first = first_seen(o, place->position), last = end_seen(o, place);
    const int64_t end = at + mo_kv_chunk(o->kv);
    return (mo_seen){first > at ? first : at, last < end ? last : end};
}

/* A token's query head, and where its result goes. */
static const float *query_at(const attend_parts *p, int64_t t, int head)
{
    const mo_op_attend *o = p->o;
    return p->q + (o->tail ? head * o->between + t : t * o->heads + head) * query_len(o->k_len, o->gated);
}
static float *result_at(const attend_parts *p, int64_t t, int head)
{
    const mo_op_attend *o = p->o;
    return p->mixed.x + (o->tail ? head * o->between + t : t * o->heads + head) * o->v_len;
}

static void finish_head(mo_op_job *job, const attend_parts *p, int64_t t, int head, float *M, float *L,
                        float *O)
{
    const mo_op_attend *o = p->o;
    mo_heads_finish(job->k, (mo_kv_type)o->kv, M, L, O, p->sinks ? &p->sinks[head] : NULL,
                    o->gated ? query_at(p, t, head) + o->k_len : NULL, o->v_len, result_at(p, t, head));
    if (o->tail) {
        mo_op_quantize(job->k, &p->mixed, head * o->between + t);
    }
}

/* One query head of one token by codes; `partial` has space for what a chunk leaves. */
static void attend_codes(mo_op_job *job, const attend_parts *p, int64_t t, int head, const mo_op_cache *c,
                         const mo_dplace *place)
{
    const mo_op_attend *o = p->o;
    int8_t codes[2 * MO_KV_LONGEST];
    float O[MO_KV_LONGEST] = {0.0f}, M = -INFINITY, L = 0.0f, g[2];
    float *part =
        p->partial + (t % MO_OP_SMALL * o->chunks * o->heads + head) * mo_kv_partial(o->kv, o->v_len);
    if (o->tail) {
        mo_latent_code(job->k, query_at(p, t, head), o->v_len, o->tail, o->scale, codes, g);
    } else {
        mo_heads_code(job->k, query_at(p, t, head), o->k_len, o->scale, codes, g);
    }
    const int64_t end = end_seen(o, place);
    for (int64_t at = first_seen(o, place->position) / MO_KV_BLOCK * MO_KV_BLOCK; at < end;
         at += MO_KV_BLOCK) {
        const mo_seen seen = seen_of(o, place, at);
        uint8_t *block = mo_op_block_of(job, c, at);
        if (job->status != MO_OK) {
            return;
        }
        const mo_kv_head kv = mo_kv_head_of(c->shape, head / (o->heads / o->kv_heads), &block, 1);
        job->k->attend_codes(&kv, &seen, 1, codes, g, 1, &part[0], &part[1], &part[2], part + 3,
                             job->scratch);
        job->k->merge_codes(&M, &L, O, part[0], part[1], part[2], part + 3, o->v_len);
    }
    finish_head(job, p, t, head, &M, &L, O);
}

/* One query head of one token, chunk by chunk; partial results are in the token's part of `partial`: m, l, then o of each
 * chunk and head. */
static void attend_head(mo_op_job *job, const attend_parts *p, int64_t t, int head, const mo_op_cache *c,
                        const mo_dplace *place)
{
    const mo_op_attend *o = p->o;
    const mo_kernels *k = job->k;
    const int h = head / (o->heads / o->kv_heads);
    const float *q = query_at(p, t, head);
    const int64_t first = first_seen(o, place->position), last = end_seen(o, place), step = o->v_len + 2;
    float *sum = p->partial + (t % MO_OP_SMALL * o->chunks * o->heads + head) * step;
    float *chunk = sum;
    for (int64_t at = first / MO_CHUNK * MO_CHUNK; at < last; at += MO_CHUNK, chunk += o->heads * step) {
        const mo_seen seen = seen_of(o, place, at);
        uint8_t *blocks[2] = {mo_op_block_of(job, c, seen.begin), mo_op_block_of(job, c, seen.end - 1)};
        if (job->status != MO_OK) {
            return;
        }
        const mo_kv_head kv = mo_kv_head_of(c->shape, h, blocks, 2);
        k->attend(&kv, &seen, 1, q, 1, o->scale, &chunk[0], &chunk[1], chunk + 2, job->scratch);
        if (chunk != sum) {
            k->attend_merge(&sum[0], &sum[1], sum + 2, chunk[0], chunk[1], chunk + 2, o->v_len);
        }
    }
    finish_head(job, p, t, head, &sum[0], &sum[1], sum + 2);
}

/* Does the token's span fit the chunks that are expected, and the cache? */
static void check_span(mo_op_job *job, const mo_op_attend *o, const mo_dplace *place, int64_t length)
{
    const int64_t capacity = length * MO_KV_BLOCK;
    const int64_t first = first_seen(o, place->position), last = end_seen(o, place) - 1;
    const int64_t chunk = mo_kv_chunk(o->kv), chunks = last / chunk - first / chunk + 1;
    const bool wraps = last >= capacity;
    if (chunks > o->chunks) {
        mo_op_refuse(job, "has a token that sees %" PRId64 " chunks; expected %d", chunks, o->chunks);
    }
    if (wraps && (capacity % MO_CHUNK != 0 || last - first >= capacity)) {
        mo_op_refuse(job, "sees positions %" PRId64 " to %" PRId64 " in a circular cache of %" PRId64, first,
                     last, capacity);
    }
}

mo_status mo_op_host_attend(mo_op_job *job, const mo_op_attend *o)
{
    const int64_t n = o->tokens;
    const mo_kv_shape shape = {
        .type = o->kv, .heads = o->kv_heads, .k_len = o->k_len, .v_len = o->v_len, .tail = o->tail};
    const int64_t rows = o->tail ? (o->heads - 1) * o->between + n : n; /* of mixed, */
    const int64_t queries = o->tail ? rows : n * o->heads;
    attend_parts p = {.o = o};
    if (n == 0) {
        return MO_OK;
    }
    p.q = mo_op_floats(job, "q", o->q, queries * query_len(o->k_len, o->gated));
    p.sinks = mo_op_floats_or_none(job, "sinks", o->sinks, o->heads);
    const int64_t few = n < MO_OP_SMALL ? n : MO_OP_SMALL;
    p.partial =
        mo_op_floats(job, "partial", o->partial, few * o->chunks * o->heads * mo_kv_partial(o->kv, o->v_len));
    p.mixed = mo_op_acts(job, "mixed", &o->mixed, rows, true, true);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    check_lengths(job, o->kv, o->k_len, o->v_len);
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        if (job->status == MO_OK) {
            check_span(job, o, &places[t], c.length);
        }
        for (int head = 0; job->status == MO_OK && head < o->heads; head++) {
            if (mo_kv_coded(o->kv)) {
                attend_codes(job, &p, t, head, &c, &places[t]);
            } else {
                attend_head(job, &p, t, head, &c, &places[t]);
            }
        }
        if (job->status == MO_OK && !o->tail) {
            mo_op_quantize(job->k, &p.mixed, t);
        }
    }
    return job->status;
}
