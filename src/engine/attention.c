/* The attention mixer: products, rotation and cache, scores over chunks of positions, output. */
#include <math.h>
#include <string.h>

#include "engine/forward.h"
#include "numeric/heads.h"

int64_t mo_attention_part(const mo_attention *a)
{
    const int64_t group = a->heads / a->kv_heads;
    const bool alike = a->latent.plain || a->compressed.groups; /* all heads have the same keys */
    return alike && group > MO_LATENT_HEADS ? MO_LATENT_HEADS : group;
}

/* ---- From products to cache ------------------------------------------------------------------- */

static int64_t query_stride(const mo_attention *a)
{
    return a->heads * a->k_len * (a->gated ? 2 : 1);
}

static float *query_of(const mo_forward *forward, int64_t t, int head)
{
    const mo_attention *a = &forward->layer->attention;
    return forward->w->q + t * query_stride(a) + head * a->k_len * (a->gated ? 2 : 1);
}

/* Norms over all heads together, before the heads are separated (olmoe). */
static void norm_all_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    for (int64_t t = begin; t < end; t++) {
        float *q = query_of(forward, t, 0);
        float *k = forward->w->k + t * a->kv_heads * a->k_len;
        forward->k->rms_norm(q, q, a->q_norm, a->heads * a->k_len, forward->spec->eps);
        forward->k->rms_norm(k, k, a->k_norm, a->kv_heads * a->k_len, forward->spec->eps);
    }
}

static mo_heads_rule heads_of(const mo_forward *forward, int64_t t)
{
    const mo_attention *a = &forward->layer->attention;
    return (mo_heads_rule){.k_len = a->k_len,
                           .v_len = a->v_len,
                           .q_norm = a->norm_all ? NULL : a->q_norm,
                           .k_norm = a->norm_all ? NULL : a->k_norm,
                           .norm_last = a->norm_last,
                           .v_norm = a->v_norm,
                           .v_from_k = !mo_linear_present(&a->v),
                           .rotates = a->rope != NULL,
                           .neox = a->neox,
                           .n_rot = a->n_rot,
                           .eps = forward->spec->eps,
                           .q_factor = mo_forward_q_factor(forward, t)};
}

/* Angles of a token. */
static const float *rope_of(const mo_forward *forward, int64_t t)
{
    return forward->w->rope + forward->rope_row + t * forward->w->rope_stride;
}

/* Prepares some query heads of one token. */
static void prepare_queries(const mo_forward *forward, int64_t t, int first, int count)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_heads_rule heads = heads_of(forward, t);
    const float *c = rope_of(forward, t), *s = c + forward->engine->batch * forward->w->rope_stride;
    mo_heads_queries(forward->k, &heads, query_of(forward, t, first), count, query_stride(a) / a->heads, c,
                     s);
}

/* Writes the key and the value of one KV head of one token to the cache. */
static void prepare_pair(mo_forward *forward, int64_t t, int h)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_heads_rule heads = heads_of(forward, t);
    const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, h);
    const float *c = rope_of(forward, t), *s = c + forward->engine->batch * forward->w->rope_stride;
    float *key = forward->w->k + (t * a->kv_heads + h) * a->k_len;
    float *value = forward->w->v + (t * a->kv_heads + h) * a->v_len;
    if (!mo_heads_prepare(forward->k, &heads, NULL, 0, 0, key, value, c, s, &kv, forward->w->position[t])) {
        mo_forward_refuse_key(forward, kv.type);
    }
}

/* Prepares one KV head of one token and its queries. */
static void prepare_head(mo_forward *forward, int64_t t, int h)
{
    const mo_attention *a = &forward->layer->attention;
    const int group = a->heads / a->kv_heads;
    prepare_queries(forward, t, h * group, group);
    prepare_pair(forward, t, h);
}

/* Query heads that form one piece of work: they share a KV head. */
typedef struct heads_part {
    int kv_head, first, count;
} heads_part;

static int64_t parts_of(const mo_attention *a)
{
    const int64_t part = mo_attention_part(a);
    return (a->heads + part - 1) / part;
}

static heads_part part_of(const mo_attention *a, int64_t i)
{
    const int64_t part = mo_attention_part(a), first = i * part, left = a->heads - first;
    return (heads_part){.kv_head = (int)(first / (a->heads / a->kv_heads)),
                        .first = (int)first,
                        .count = (int)(left < part ? left : part)};
}

/* Bytes and number of factors of a quantized query. */
static int64_t codes_stride(const mo_attention *a)
{
    return 2 * (int64_t)mo_kv_plane((int)a->k_len, (int)mo_attention_tail(a));
}
static int64_t factors_stride(const mo_attention *a)
{
    return a->latent.plain ? 2 : 1;
}

/* Quantized queries, stored once for all chunks. */
static int8_t *codes_of(const mo_forward *forward, int64_t t, heads_part p)
{
    const mo_attention *a = &forward->layer->attention;
    return forward->w->codes + (t * a->heads + p.first) * codes_stride(a);
}
static float *factors_of(const mo_forward *forward, int64_t t, heads_part p)
{
    const mo_attention *a = &forward->layer->attention;
    return forward->w->g + (t * a->heads + p.first) * factors_stride(a);
}

static void code_queries(const mo_forward *forward, int64_t t, heads_part p, int8_t *codes, float *g)
{
    const mo_attention *a = &forward->layer->attention;
    for (int i = 0; i < p.count; i++, codes += codes_stride(a), g += factors_stride(a)) {
        const float *q = query_of(forward, t, p.first + i);
        if (a->latent.plain) {
            mo_latent_code(forward->k, q, a->v_len, a->n_rot, a->scale, codes, g);
        } else {
            mo_heads_code(forward->k, q, a->k_len, a->scale, codes, g);
        }
    }
}

/* For latent attention, whose queries are ready after another product. */
static void code_parts(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const int64_t parts = parts_of(a);
    for (int64_t i = begin; i < end; i++) {
        const heads_part p = part_of(a, i % parts);
        const int64_t t = i / parts;
        if (mo_kv_coded(forward->w->state_of[t]->kv)) {
            code_queries(forward, t, p, codes_of(forward, t, p), factors_of(forward, t, p));
        }
    }
}

static void prepare_heads(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const int heads = forward->layer->attention.kv_heads;
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / heads;
        const int h = (int)(i % heads);
        prepare_head(forward, t, h);
        if (forward->chunked && mo_kv_coded(forward->w->state_of[t]->kv)) {
            const heads_part p = part_of(&forward->layer->attention, h);
            code_queries(forward, t, p, codes_of(forward, t, p), factors_of(forward, t, p));
        }
    }
}

/* ---- Scores ----------------------------------------------------------------------------------- */

static int64_t first_seen(const mo_attention *a, int64_t position)
{
    return mo_first_seen(a->window, position);
}

/* The position after the last that token t sees. */
static int64_t end_seen(const mo_forward *forward, int64_t t)
{
    return forward->layer->attention.window ? mo_forward_end_seen(forward, t) : forward->w->position[t] + 1;
}

/* Rows of queries in the form that the cache's format needs: floats, or codes. */
typedef struct query_rows {
    float *x;
    int8_t *codes;
    float *g;
} query_rows;

static void copy_queries(const mo_forward *forward, int64_t t, heads_part p, float *out)
{
    const int64_t n = forward->layer->attention.k_len;
    for (int g = 0; g < p.count; g++) {
        memcpy(out + g * n, query_of(forward, t, p.first + g), sizeof(float) * (size_t)n);
    }
}

static query_rows queries_from(const mo_forward *forward, const query_rows *q, int64_t row)
{
    const mo_attention *a = &forward->layer->attention;
    return (query_rows){.x = q->x + row * a->k_len,
                        .codes = q->codes + row * codes_stride(a),
                        .g = q->g + row * factors_stride(a)};
}

/* One chunk for `count` tokens and `group` heads of each. The results are the first rows of s. */
static void attend_chunk(const mo_forward *forward, const mo_kv_head *kv, const mo_seen *spans, int64_t count,
                         int64_t group, query_rows q, const mo_attend_space *s)
{
    const mo_attention *a = &forward->layer->attention;
    if (mo_kv_coded(kv->type)) {
        forward->k->attend_codes(kv, spans, count, q.codes, q.g, group, s->m, s->l, s->r, s->o, s->scratch);
    } else {
        forward->k->attend(kv, spans, count, q.x, group, a->scale, s->m, s->l, s->o, s->scratch);
    }
}

/* True if finish_heads() also quantizes the input of the output product. */
static bool codes_heads(const mo_attention *a)
{
    return !a->latent.plain && !a->compressed.groups && a->v_len % 32 == 0;
}

/* Where to write the result of a head: the mixed row, or separate rows that another product reads. */
static float *result_at(const mo_forward *forward, int64_t t, int head)
{
    const mo_attention *a = &forward->layer->attention;
    if (a->compressed.groups) {
        return mo_forward_group_result(forward, t, head);
    }
    if (a->latent.plain) {
        const mo_acts latent = mo_acts_lay(forward->w->latent.mixed, a->heads * forward->tokens, a->v_len);
        return latent.x + (head * forward->tokens + t) * a->v_len;
    }
    return forward->mixed.x + t * forward->mixed.cols + head * a->v_len;
}

/* Finishes heads of one token: sinks, division, gate. */
static void finish_heads(const mo_forward *forward, mo_kv_type kv, int64_t t, heads_part p, float *M,
                         float *L, float *O)
{
    const mo_attention *a = &forward->layer->attention;
    for (int g = 0; g < p.count; g++) {
        const int head = p.first + g;
        float *out = result_at(forward, t, head);
        mo_heads_finish(forward->k, kv, &M[g], &L[g], O + g * a->v_len, a->sinks ? &a->sinks[head] : NULL,
                        a->gated ? query_of(forward, t, head) + a->k_len : NULL, a->v_len, out);
        if (mo_linear_present(&a->gate) && !a->latent.plain) {
            const int64_t gates = mo_attention_gates(a);
            mo_heads_gate(forward->k, a->gate_kind, forward->w->gates + (t * a->heads + head) * gates,
                          gates > 1, a->v_len, out);
        }
        if (a->latent.plain) {
            const mo_acts latent =
                mo_acts_lay(forward->w->latent.mixed, a->heads * forward->tokens, a->v_len);
            mo_forward_quantize(forward->k, &latent, head * forward->tokens + t);
        } else if (a->compressed.groups) {
            mo_forward_turn_back(forward, t, out);
        }
    }
    if (codes_heads(a)) {
        mo_forward_quantize_some(forward->k, &forward->mixed, t, p.first * a->v_len, p.count * a->v_len);
    }
}

/* The result of a chunk for a query head; r only with codes. */
typedef struct chunk_result {
    float m, l, r;
    const float *o; /* [v_len] */
} chunk_result;

static chunk_result result_of(const mo_forward *forward, const mo_attend_space *s, int64_t row)
{
    return (chunk_result){
        .m = s->m[row], .l = s->l[row], .r = s->r[row], .o = s->o + row * forward->layer->attention.v_len};
}

/* Merges a chunk into the running result of row `to`. The first chunk is copied, except with codes. */
static void merge_query(const mo_forward *forward, mo_kv_type kv, bool first, const chunk_result *c,
                        const mo_attend_space *s, int64_t to)
{
    const int64_t n = forward->layer->attention.v_len;
    float *O = s->O + to * n;
    if (mo_kv_coded(kv)) {
        if (first) {
            s->M[to] = -INFINITY;
            s->L[to] = 0.0f;
            memset(O, 0, sizeof(float) * (size_t)n);
        }
        forward->k->merge_codes(&s->M[to], &s->L[to], O, c->m, c->l, c->r, c->o, n);
    } else if (first) {
        s->M[to] = c->m;
        s->L[to] = c->l;
        memcpy(O, c->o, sizeof(float) * (size_t)n);
    } else {
        forward->k->attend_merge(&s->M[to], &s->L[to], O, c->m, c->l, c->o, n);
    }
}

/* Finds what `count` tokens from token t on see of the `chunk` positions from c on. The tokens that see any
 * of them are consecutive: returns their number and *first. */
static int64_t seen_of_chunk(const mo_forward *forward, int64_t c, int64_t chunk, int64_t t, int64_t count,
                             mo_seen *spans, int64_t *first)
{
    const int64_t p0 = forward->w->position[t];
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = first_seen(&forward->layer->attention, p0 + i), end = end_seen(forward, t + i);
        const mo_seen seen = {begin > c ? begin : c, end < c + chunk ? end : c + chunk};
        if (seen.begin < seen.end) {
            *first = found ? *first : i;
            spans[found++] = seen;
        }
    }
    return found;
}

/* True if the token attends to gathered rows; and the number of these rows. */
static bool gathers(const mo_forward *forward, int64_t t)
{
    return forward->layer->attention.compressed.groups || mo_forward_keeps_some(forward, t);
}
static int64_t gathered_rows(const mo_forward *forward, int64_t t)
{
    const mo_attention *a = &forward->layer->attention;
    return a->compressed.groups ? mo_forward_compressed_rows(forward, t) : a->index.top;
}

/* A thread's gathered chunk of the positions that an indexer keeps: like the cache, with its own blocks. */
typedef struct gathered {
    mo_kv_head kv;
    uint8_t *blocks[MO_CHUNK / MO_KV_BLOCK];
} gathered;

/* Gathers chunk number `chunk` of the rows that token t attends to, as if they began a text. Returns the
 * visible range. */
static mo_seen gather(const mo_forward *forward, const mo_attend_space *s, int64_t t, const mo_kv_head *kv,
                      int64_t chunk, gathered *g)
{
    mo_kv_shape shape = mo_attention_cache(&forward->layer->attention, kv->type);
    shape.index = 0;
    const int64_t length = mo_kv_chunk(kv->type), rows = gathered_rows(forward, t);
    const int64_t first = chunk * length, count = rows - first < length ? rows - first : length;
    for (int64_t i = 0; i < length / MO_KV_BLOCK; i++) {
        g->blocks[i] = s->gathered + i * mo_kv_block_bytes(shape);
    }
    g->kv = mo_kv_head_of(shape, 0, g->blocks, length / MO_KV_BLOCK);
    if (forward->layer->attention.compressed.groups) {
        mo_forward_gather(forward, t, first, count, &g->kv);
    } else {
        mo_index_gather(kv, mo_forward_kept(forward, t) + first, count, &g->kv);
    }
    return (mo_seen){0, count};
}

/* Attends from one token to its gathered rows, chunk by chunk. */
static void attend_kept(const mo_forward *forward, mo_attend_space *s, int64_t t, heads_part p)
{
    const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, p.kv_head);
    const int64_t length = mo_kv_chunk(kv.type), rows = gathered_rows(forward, t);
    const query_rows q = {.x = s->q, .codes = s->codes, .g = s->g};
    if (mo_kv_coded(kv.type)) {
        code_queries(forward, t, p, q.codes, q.g);
    } else {
        copy_queries(forward, t, p, q.x);
    }
    for (int64_t chunk = 0; chunk * length < rows; chunk++) {
        gathered here;
        const mo_seen seen = gather(forward, s, t, &kv, chunk, &here);
        attend_chunk(forward, &here.kv, &seen, 1, p.count, q, s);
        for (int64_t i = 0; i < p.count; i++) {
            const chunk_result result = result_of(forward, s, i);
            merge_query(forward, kv.type, chunk == 0, &result, s, i);
        }
    }
    finish_heads(forward, kv.type, t, p, s->M, s->L, s->O);
}

/* Attends from `count` consecutive tokens of one session, from token t on, to all their positions, chunk by
 * chunk. Each chunk is read once for all of them. */
static void attend_tile(const mo_forward *forward, mo_attend_space *s, int64_t t, int64_t count, heads_part p)
{
    const mo_attention *a = &forward->layer->attention;
    const int64_t group = p.count;
    const int64_t p0 = forward->w->position[t];
    /* rows of a picture see no further than later rows */
    const int64_t last = end_seen(forward, t + count - 1);
    const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, p.kv_head);
    const int64_t chunk = mo_kv_chunk(kv.type);
    const query_rows all = {.x = s->q, .codes = s->codes, .g = s->g};
    for (int64_t i = 0; i < count; i++) {
        const query_rows q = queries_from(forward, &all, i * group);
        if (mo_kv_coded(kv.type)) {
            code_queries(forward, t + i, p, q.codes, q.g);
        } else {
            copy_queries(forward, t + i, p, q.x);
        }
    }
    for (int64_t c = first_seen(a, p0) / chunk * chunk; c < last; c += chunk) {
        mo_seen spans[MO_QUERY_TILE];
        int64_t first = 0;
        const int64_t found = seen_of_chunk(forward, c, chunk, t, count, spans, &first);
        attend_chunk(forward, &kv, spans, found, group, queries_from(forward, &all, first * group), s);
        for (int64_t i = 0; i < found * group; i++) {
            const bool begins = first_seen(a, p0 + first + i / group) / chunk * chunk == c;
            const chunk_result result = result_of(forward, s, i);
            merge_query(forward, kv.type, begins, &result, s, first * group + i);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        finish_heads(forward, kv.type, t + i, p, s->M + i * group, s->L + i * group,
                     s->O + i * group * a->v_len);
    }
}

/* Items are (tile of tokens, part of the heads). A tile does not cross sessions. */
static void attend_tiles(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const int64_t parts = parts_of(&forward->layer->attention);
    mo_attend_space *s = &forward->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        const heads_part p = part_of(&forward->layer->attention, i % parts);
        int64_t t = i / parts * forward->tile;
        const int64_t stop = t + forward->tile < forward->tokens ? t + forward->tile : forward->tokens;
        while (t < stop) {
            int64_t count = 1;
            if (gathers(forward, t)) {
                attend_kept(forward, s, t++, p);
                continue;
            }
            while (t + count < stop && forward->w->slice_of[t + count] == forward->w->slice_of[t] &&
                   !gathers(forward, t + count)) {
                count++;
            }
            attend_tile(forward, s, t, count, p);
            t += count;
        }
    }
}

/* A single token with few positions: each head runs from its products to its result without a barrier. If
 * there are more threads than KV heads, each takes a part of one head's queries. The first of them computes
 * key and value; the others wait for its mark when their own queries are ready. Pieces are taken in order and
 * a step of one token is never aborted, so some thread has started that part. */
static void attend_alone(void *ctx, int64_t begin, int64_t end, int thread)
{
    mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    for (int64_t i = begin; i < end; i++) {
        const int h = (int)(i % a->kv_heads), part = (int)(i / a->kv_heads);
        const int group = a->heads / a->kv_heads, some = group / forward->head_parts;
        const heads_part p = {.kv_head = h, .first = h * group + part * some, .count = some};
        _Atomic int64_t *made = &forward->w->made[h].at;
        const int64_t mark = forward->w->alone;
        if (part == 0) {
            prepare_pair(forward, 0, h);
            atomic_store_explicit(made, mark, memory_order_release);
        }
        prepare_queries(forward, 0, p.first, p.count);
        for (unsigned n = 0; atomic_load_explicit(made, memory_order_acquire) != mark; n++) {
            mo_pool_wait(forward->engine->pool, thread, n);
        }
        attend_tile(forward, &forward->w->attend[thread], 0, 1, p);
    }
}

/* ---- Few tokens: chunks in parallel ----------------------------------------------------------- */

/* Floats of a partial result. */
static int64_t partial_stride(const mo_forward *forward)
{
    return mo_kv_partial(MO_KV_I16, (int)forward->layer->attention.v_len);
}

/* The partial result of a chunk for a head: m, l, r, then o. */
static float *partial_at(const mo_forward *forward, int64_t chunk, int head)
{
    return forward->w->partial + (chunk * forward->layer->attention.heads + head) * partial_stride(forward);
}

static void keep_partial(const mo_forward *forward, const chunk_result *c, float *out)
{
    out[0] = c->m;
    out[1] = c->l;
    out[2] = c->r;
    memcpy(out + 3, c->o, sizeof(float) * (size_t)forward->layer->attention.v_len);
}

/* The visible range of chunk `number` for a token that keeps all positions. */
static mo_seen seen_by(const mo_forward *forward, const mo_kv_head *kv, int64_t t, int64_t number)
{
    const int64_t length = mo_kv_chunk(kv->type), last = end_seen(forward, t);
    const int64_t first = first_seen(&forward->layer->attention, forward->w->position[t]);
    const int64_t c = (first / length + number) * length;
    return (mo_seen){first > c ? first : c, last < c + length ? last : c + length};
}

static void attend_chunks(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const int64_t parts = parts_of(a);
    mo_attend_space *s = &forward->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        const int64_t chunk = i / parts;
        const heads_part p = part_of(a, i % parts);
        int64_t t = 0;
        while (forward->w->chunk_first[t + 1] <= chunk) {
            t++;
        }
        const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, p.kv_head);
        const int64_t number = chunk - forward->w->chunk_first[t];
        const bool some = gathers(forward, t);
        gathered here;
        const mo_seen seen =
            some ? gather(forward, s, t, &kv, number, &here) : seen_by(forward, &kv, t, number);
        const query_rows q = {.x = s->q, .codes = codes_of(forward, t, p), .g = factors_of(forward, t, p)};
        if (!mo_kv_coded(kv.type)) {
            copy_queries(forward, t, p, s->q);
        }
        attend_chunk(forward, some ? &here.kv : &kv, &seen, 1, p.count, q, s);
        for (int g = 0; g < p.count; g++) {
            const chunk_result result = result_of(forward, s, g);
            keep_partial(forward, &result, partial_at(forward, chunk, p.first + g));
        }
    }
}

static void merge_chunks(void *ctx, int64_t begin, int64_t end, int thread)
{
    const mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const int64_t parts = parts_of(a);
    mo_attend_space *s = &forward->w->attend[thread];
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / parts;
        const heads_part part = part_of(a, i % parts);
        const mo_kv_type kv = forward->w->state_of[t]->kv;
        for (int64_t chunk = forward->w->chunk_first[t]; chunk < forward->w->chunk_first[t + 1]; chunk++) {
            for (int g = 0; g < part.count; g++) {
                const float *p = partial_at(forward, chunk, part.first + g);
                const chunk_result result = {.m = p[0], .l = p[1], .r = p[2], .o = p + 3};
                merge_query(forward, kv, chunk == forward->w->chunk_first[t], &result, s, g);
            }
        }
        finish_heads(forward, kv, t, part, s->M, s->L, s->O);
    }
}

/* Counts the chunks of every token. True if their partial results fit, and parallel chunks pay. */
static bool count_chunks(mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    int64_t *first = forward->w->chunk_first;
    if (forward->tokens > MO_CHUNKED_TOKENS) {
        return false;
    }
    first[0] = 0;
    for (int64_t t = 0; t < forward->tokens; t++) {
        const int64_t chunk = mo_kv_chunk(forward->w->state_of[t]->kv);
        const bool some = gathers(forward, t);
        const int64_t last = some ? gathered_rows(forward, t) : end_seen(forward, t);
        const int64_t begin = some ? 0 : first_seen(a, forward->w->position[t]);
        first[t + 1] = first[t] + (last - 1) / chunk - begin / chunk + 1;
    }
    return first[forward->tokens] * a->heads * partial_stride(forward) <= forward->w->partial_floats;
}

/* ---- Phases ----------------------------------------------------------------------------------- */

/* Up to this many positions one thread per KV head is as fast as parallel chunks and a merge. */
enum { POSITIONS_ALONE = 512 };

/* Number of equal parts of a KV head's queries, as far as there are threads for them. */
static int head_parts(const mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    const int group = a->heads / a->kv_heads, threads = mo_pool_threads(forward->engine->pool);
    int parts = 1;
    for (int n = 2; n <= group && n * a->kv_heads <= threads; n++) {
        parts = group % n == 0 ? n : parts;
    }
    return parts;
}

static int add_attention(mo_forward *forward, mo_phase *phases, int count)
{
    const int64_t n = forward->tokens, parts = parts_of(&forward->layer->attention);
    if (forward->chunked) {
        phases[count++] = (mo_phase){.fn = attend_chunks,
                                     .ctx = forward,
                                     .count = forward->w->chunk_first[n] * parts,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
        phases[count++] = (mo_phase){
            .fn = merge_chunks, .ctx = forward, .count = n * parts, .grain = 1, .part = MO_PART_ATTENTION};
    } else {
        forward->tile = MO_QUERY_TILE;
        phases[count++] = (mo_phase){.fn = attend_tiles,
                                     .ctx = forward,
                                     .count = (n + forward->tile - 1) / forward->tile * parts,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
    }
    return count;
}

/* Latent or compressed attention. */
static int add_apart(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    count = a->latent.plain ? mo_forward_latent_in(forward, phases, count)
                            : mo_forward_compressed_in(forward, phases, count);
    forward->chunked = count_chunks(forward);
    if (forward->chunked) {
        phases[count++] = (mo_phase){.fn = code_parts,
                                     .ctx = forward,
                                     .count = forward->tokens * parts_of(a),
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
    }
    count = add_attention(forward, phases, count);
    return a->latent.plain ? mo_forward_latent_out(forward, phases, count)
                           : mo_forward_compressed_out(forward, phases, count);
}

static int add_plain(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &a->q, &forward->in, NULL, n, w->q, query_stride(a));
    mo_jobs_add(&w->phases.mixer_in, &a->k, &forward->in, NULL, n, w->k, a->kv_heads * a->k_len);
    mo_jobs_add(&w->phases.mixer_in, &a->v, &forward->in, NULL, n, w->v, a->kv_heads * a->v_len);
    mo_jobs_add(&w->phases.mixer_in, &a->gate, &forward->in, NULL, n, w->gates, a->gate.w.rows);
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    if (a->norm_all) {
        phases[count++] = (mo_phase){
            .fn = norm_all_heads, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
    }
    forward->chunked = count_chunks(forward);
    if (n == 1 && forward->chunked &&
        w->chunk_first[1] * mo_kv_chunk(w->state_of[0]->kv) <= POSITIONS_ALONE) {
        w->alone++;
        forward->head_parts = head_parts(forward);
        phases[count++] = (mo_phase){.fn = attend_alone,
                                     .ctx = forward,
                                     .count = (int64_t)a->kv_heads * forward->head_parts,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
    } else {
        phases[count++] = (mo_phase){.fn = prepare_heads,
                                     .ctx = forward,
                                     .count = n * a->kv_heads,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
        count = add_attention(forward, phases, count);
    }
    return count;
}

int mo_forward_attention(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    count = a->latent.plain || a->compressed.groups ? add_apart(forward, phases, count)
                                                    : add_plain(forward, phases, count);
    if (!codes_heads(a)) {
        phases[count++] = mo_forward_mixed(forward);
    }
    return count;
}
