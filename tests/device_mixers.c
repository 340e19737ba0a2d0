/* Cases of the mixers' ops: attention, also of latent rows, the delta rule, the short convolution and Mamba. The references go other ways than the
 * engine: keys and values are laid out in order, a convolution runs over one long row of inputs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device_case.h"
#include "numeric/heads.h"
#include "numeric/index.h"
#include "numeric/math.h"
#include "numeric/rope.h"

#define K mo_kernels_scalar

enum { LAYERS = 3, LAYER = 1, SLICES_MAX = 3 };

/* Tokens of a step, in one to three slices of as many sessions. */
typedef struct step {
    int tokens, slices;
    int count[SLICES_MAX];
    int64_t position[SLICES_MAX];
    mo_dstate *state[SLICES_MAX]; /* LAYER's */
    mo_daddr layers[SLICES_MAX];
} step;

static step make_step(box *b, int variant)
{
    static const int counts[][SLICES_MAX] = {{1, 0, 0}, {2, 1, 0},   {5, 0, 0}, {1, 1, 1},
                                             {3, 4, 2}, {9, 0, 0},   {8, 0, 0}, {7, 1, 0},
                                             {4, 0, 0}, {20, 1, 12}, {33, 0, 0}};
    static const int64_t positions[] = {0, 254, 600, 255, 1, 256, 700, 511, 64, 1020, 300};
    step s = {0};
    for (int i = 0; i < SLICES_MAX; i++) {
        s.count[i] = counts[variant % (b->small ? 5 : 11)][i];
        s.slices += s.count[i] > 0;
        s.tokens += s.count[i];
        s.position[i] = positions[(variant / 2 + 3 * i) % 11];
        mo_dstate *layers = box_alloc(b, LAYERS * (int64_t)sizeof *layers);
        memset(layers, 0, LAYERS * sizeof *layers);
        s.layers[i] = box_address(b, layers);
        s.state[i] = &layers[LAYER];
    }
    return s;
}

static mo_daddr places_of(box *b, const step *s)
{
    mo_dplace *places = box_alloc(b, s->tokens * (int64_t)sizeof *places);
    int t = 0;
    for (int i = 0; i < s->slices; i++) {
        for (int j = 0; j < s->count[i]; j++, t++) {
            places[t] =
                (mo_dplace){.layers = s->layers[i], .position = s->position[i] + j, .slice = i, .into = j};
        }
    }
    return box_address(b, places);
}

static mo_daddr slices_of(box *b, const step *s)
{
    mo_dslice *slices = box_alloc(b, s->slices * (int64_t)sizeof *slices);
    int first = 0;
    for (int i = 0; i < s->slices; i++) {
        slices[i] = (mo_dslice){
            .layers = s->layers[i], .position = s->position[i], .first = first, .count = s->count[i]};
        first += s->count[i];
    }
    return box_address(b, slices);
}

/* ---- Attention: shapes ------------------------------------------------------------------------ */

typedef struct shape {
    int heads, kv_heads, k_len, v_len;
} shape;

static const shape shapes[] = {{4, 2, 64, 64},   {2, 1, 80, 80},  {6, 2, 96, 96},  {8, 1, 128, 128},
                               {2, 2, 256, 256}, {4, 1, 96, 64},  {3, 3, 64, 128}, {8, 2, 192, 128},
                               {5, 1, 20, 12},   {4, 1, 512, 512}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Rows of a cache that differ from each other: making them takes the time of this test. A prime number, so that no
 * two positions that code could mix up (by a chunk, by a block, by a turn of the table) are alike. */
enum { DISTINCT = 131, LONGEST = 576 };

/* A vector as it is saved: that of a cache of codes has places of its own in a block. */
static bool write_vector(mo_kv_type kv, const float *x, int64_t n, uint8_t *out)
{
    if (!mo_kv_coded(kv)) {
        memcpy(out, x, sizeof *x * (size_t)n);
        return K.finite(x, n);
    }
    const int planes = mo_kv_planes(kv);
    float scale;
    const bool finite = K.code(x, n, (int8_t *)out, planes == 2 ? (int8_t *)out + n : NULL, &scale);
    memcpy(out + planes * n, &scale, sizeof scale);
    return finite;
}

static void put_vector(const mo_kv_head *kv, int64_t u, bool value, const uint8_t *row)
{
    if (mo_kv_coded(kv->type)) {
        mo_kv_codes_in(kv, u, value, row);
    } else if (value) {
        memcpy(mo_kv_value(kv, u), row, (size_t)kv->v_bytes);
    } else {
        memcpy(mo_kv_key(kv, u), row, (size_t)kv->k_bytes);
    }
}

static void take_vector(const mo_kv_head *kv, int64_t u, bool value, uint8_t *row)
{
    if (mo_kv_coded(kv->type)) {
        mo_kv_codes_out(kv, u, value, row);
    } else if (value) {
        memcpy(row, mo_kv_value(kv, u), (size_t)kv->v_bytes);
    } else {
        memcpy(row, mo_kv_key(kv, u), (size_t)kv->k_bytes);
    }
}

static void write_random(box *b, mo_kv_type kv, int n, uint8_t *out, int flavour)
{
    float x[LONGEST];
    box_fill(b, x, n, flavour);
    for (int i = 0; i < n; i++) {
        x[i] = fminf(fmaxf(x[i], -30000.0f), 30000.0f);
    }
    assert_true(write_vector(kv, x, n, out));
}

/* The cache of each session: circular where there is a window, otherwise as long as the text. The blocks of every other one are
 * in memory in another order than in the table. */
static void make_caches(box *b, step *s, const shape *h, mo_kv_type kv, int64_t window, int flavour)
{
    const mo_kv_shape layout = {.type = kv, .heads = h->kv_heads, .k_len = h->k_len, .v_len = h->v_len};
    const int64_t k_bytes = mo_kv_bytes(kv, h->k_len), v_bytes = mo_kv_bytes(kv, h->v_len);
    const int64_t bytes = mo_kv_block_bytes(layout);
    uint8_t *k = malloc((size_t)(DISTINCT * k_bytes)), *v = malloc((size_t)(DISTINCT * v_bytes));
    for (int i = 0; i < DISTINCT; i++) {
        write_random(b, kv, h->k_len, k + i * k_bytes, flavour);
        write_random(b, kv, h->v_len, v + i * v_bytes, flavour);
    }
    for (int i = 0; i < s->slices; i++) {
        const int64_t length = mo_kv_table_length(s->position[i] + s->count[i] + 3, window, s->count[i]);
        uint8_t *memory = box_alloc(b, length * bytes);
        mo_daddr *table = box_alloc(b, length * (int64_t)sizeof *table);
        for (int64_t e = 0; e < length; e++) {
            uint8_t *block = memory + (i % 2 ? e : length - 1 - e) * bytes;
            table[e] = box_address(b, block);
            for (int head = 0; head < h->kv_heads; head++) {
                const mo_kv_head part = mo_kv_head_of(layout, head, &block, 1);
                for (int64_t u = 0; u < MO_KV_BLOCK; u++) {
                    const int64_t row = ((head * length + e) * MO_KV_BLOCK + u) % DISTINCT;
                    put_vector(&part, u, false, k + row * k_bytes);
                    put_vector(&part, u, true, v + row * v_bytes);
                }
            }
        }
        s->state[i]->blocks = box_address(b, table);
        s->state[i]->length = length;
        s->state[i]->first = i % 2 ? table[0] : 0;
        s->state[i]->stride = i % 2 ? bytes : 0;
    }
    free(k);
    free(v);
}

static const mo_dstate *state_at(const box *b, const mo_dplace *place)
{
    return (const mo_dstate *)box_at(b, place->layers) + LAYER;
}

/* The block of position u. */
static uint8_t *block_at(const box *b, const mo_dstate *state, int64_t u)
{
    const mo_daddr *table = box_at(b, state->blocks);
    return (uint8_t *)box_at(b, table[u / MO_KV_BLOCK % state->length]);
}

static int64_t query_len(int k_len, int gated)
{
    return gated ? 2 * (int64_t)k_len : k_len;
}

/* ---- Heads ------------------------------------------------------------------------------------ */

static mo_daddr norm_of(box *b, int64_t n, bool there)
{
    return there ? box_address(b, box_filled(b, n, 0)) : 0;
}

static void build_rope(box *b, mo_op_heads *o, const mo_dplace *places)
{
    mo_rope rope;
    o->n_rot = box_chance(b, 60) ? o->k_len : (int)(2 * box_pick(b, 1, o->k_len / 2));
    const mo_rope_setup setup = {.n_rot = o->n_rot, .base = 10000.0, .factor = 1.0};
    assert_int_equal(mo_rope_prepare(&setup, &rope, NULL), MO_OK);
    o->rope_rows = o->tokens + box_pick(b, 0, 3);
    o->rope_stride = o->n_rot / 2 + box_pick(b, 0, 5);
    float *c = box_floats(b, 2 * o->rope_rows * o->rope_stride);
    for (int64_t t = 0; t < o->tokens; t++) {
        mo_rope_fill(&rope, places[t].position, c + t * o->rope_stride,
                     c + (o->rope_rows + t) * o->rope_stride);
    }
    o->rope = box_address(b, c);
    o->neox = box_chance(b, 50);
}

static void build_heads(box *b, mo_op *op, int variant)
{
    mo_op_heads *o = &op->heads;
    shape h = shapes[variant % SHAPES];
    const int kind = variant / SHAPES % 5; /* plain; norms; norm_all; gated with norms; v from k, v_norm */
    step s = make_step(b, variant / 3);
    op->kind = MO_OP_HEADS;
    if (kind == 4) {
        h.v_len = h.k_len;
    }
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = h.heads;
    o->kv_heads = h.kv_heads;
    o->k_len = h.k_len;
    o->v_len = h.v_len;
    o->kv = (variant + variant / SHAPES) % MO_KV_TYPES;
    o->eps = 1e-6f;
    o->gated = kind == 3;
    o->norm_all = kind == 2;
    o->norm_last = kind == 1 && variant / 5 % 2;
    o->v_from_k = o->v_norm = kind == 4;
    make_caches(b, &s, &h, (mo_kv_type)o->kv, variant % 2 ? 100 : 0, 0);
    o->places = places_of(b, &s);
    const int64_t n = o->tokens;
    o->q = box_address(b, box_filled(b, n * h.heads * query_len(h.k_len, o->gated), variant));
    float *k = box_filled(b, n * h.kv_heads * h.k_len, variant),
          *v = box_filled(b, n * h.kv_heads * h.v_len, variant);
    o->k = box_address(b, k);
    o->v = box_address(b, v);
    box_ignore(b, k, 4 * n * h.kv_heads * h.k_len); /* they have served when they are in the cache */
    box_ignore(b, v, 4 * n * h.kv_heads * h.v_len);
    o->q_norm = norm_of(b, kind == 2 ? h.heads * h.k_len : h.k_len, kind >= 1);
    o->k_norm = norm_of(b, kind == 2 ? h.kv_heads * h.k_len : h.k_len, kind >= 1);
    if (variant % 7 != 3) {
        build_rope(b, o, box_at(b, o->places));
    }
    if (variant % 3 == 1) {
        o->q_factor = box_address(b, box_filled(b, n, 0));
    }
    uint32_t *bad = box_alloc(b, 4);
    *bad = variant % 4 == 0 ? 5 : 0;
    o->bad = box_address(b, bad);
}

static void turn(const box *b, const mo_op_heads *o, int64_t t, float *x, mo_daddr norm)
{
    if (norm && !o->norm_all && !o->norm_last) {
        K.rms_norm(x, x, box_at(b, norm), o->k_len, o->eps);
    }
    if (o->rope) {
        const float *rope = box_at(b, o->rope);
        K.rope(x, rope + t * o->rope_stride, rope + (o->rope_rows + t) * o->rope_stride, o->n_rot, o->neox);
    }
    if (norm && o->norm_last) {
        K.rms_norm(x, x, box_at(b, norm), o->k_len, o->eps);
    }
}

static void heads_token(const box *b, const mo_op_heads *o, int64_t t)
{
    const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
    const mo_dstate *state = state_at(b, place);
    const mo_kv_type kv = (mo_kv_type)o->kv;
    const mo_kv_shape layout = {.type = o->kv, .heads = o->kv_heads, .k_len = o->k_len, .v_len = o->v_len};
    float *q = (float *)box_at(b, o->q) + t * o->heads * query_len(o->k_len, o->gated);
    float *k = (float *)box_at(b, o->k) + t * o->kv_heads * o->k_len;
    float *v = (float *)box_at(b, o->v) + t * o->kv_heads * o->v_len;
    if (o->v_from_k) {
        memcpy(v, k, sizeof(float) * (size_t)(o->kv_heads * o->v_len));
    }
    if (o->norm_all) {
        K.rms_norm(q, q, box_at(b, o->q_norm), o->heads * o->k_len, o->eps);
        K.rms_norm(k, k, box_at(b, o->k_norm), o->kv_heads * o->k_len, o->eps);
    }
    for (int h = 0; h < o->heads; h++) {
        turn(b, o, t, q + h * query_len(o->k_len, o->gated), o->q_norm);
        if (o->q_factor) {
            K.scale(q + h * query_len(o->k_len, o->gated), ((const float *)box_at(b, o->q_factor))[t],
                    o->k_len);
        }
    }
    for (int h = 0; h < o->kv_heads; h++) {
        turn(b, o, t, k + (int64_t)h * o->k_len, o->k_norm);
        if (o->v_norm) {
            K.rms_norm(v + (int64_t)h * o->v_len, v + (int64_t)h * o->v_len, NULL, o->v_len, o->eps);
        }
        uint8_t *block = block_at(b, state, place->position), row[4 * LONGEST];
        const mo_kv_head part = mo_kv_head_of(layout, h, &block, 1);
        const int64_t u = place->position % MO_KV_BLOCK;
        assert_true(write_vector(kv, k + (int64_t)h * o->k_len, o->k_len, row));
        put_vector(&part, u, false, row);
        assert_true(write_vector(kv, v + (int64_t)h * o->v_len, o->v_len, row));
        put_vector(&part, u, true, row);
    }
}

static void reference_heads(box *b, const mo_op *op)
{
    for (int64_t t = 0; t < op->heads.tokens; t++) {
        heads_token(b, &op->heads, t);
    }
}

/* ---- Attend ----------------------------------------------------------------------------------- */

/* Some neighbours of each slice become rows of a picture. */
static void place_pictures(box *b, mo_daddr at, const step *s)
{
    mo_dplace *place = box_at(b, at);
    for (int i = 0; i < s->slices; place += s->count[i++]) {
        const int from = (int)box_pick(b, 0, s->count[i] - 1);
        const int to = (int)box_pick(b, from, s->count[i] - 1);
        for (int j = from; j <= to; j++) {
            place[j].ahead = to - j;
        }
    }
}

static int64_t last_seen(const mo_op_attend *o, const mo_dplace *place)
{
    return place->position + (o->window ? place->ahead : 0);
}

/* Chunks that a token sees, at most. */
static int most_chunks(const box *b, const mo_op_attend *o)
{
    const mo_dplace *places = box_at(b, o->places);
    const int chunk = mo_kv_chunk(o->kv);
    int most = 0;
    for (int t = 0; t < o->tokens; t++) {
        const int64_t p = places[t].position;
        const int64_t first = o->window && p >= o->window ? p - o->window + 1 : 0;
        const int chunks = (int)(last_seen(o, &places[t]) / chunk - first / chunk + 1);
        most = chunks > most ? chunks : most;
    }
    return most;
}

/* Space for what they leave. */
static mo_daddr partial_of(box *b, const mo_op_attend *o)
{
    const int64_t few = o->tokens < MO_OP_SMALL ? o->tokens : MO_OP_SMALL;
    const int64_t count = few * o->chunks * o->heads * mo_kv_partial(o->kv, o->v_len);
    float *partial = box_floats(b, count);
    box_ignore(b, partial, 4 * count);
    return box_address(b, partial);
}

static void build_attend(box *b, mo_op *op, int variant)
{
    static const int64_t windows[] = {0, 128, 1, 256, 300};
    mo_op_attend *o = &op->attend;
    const shape h = shapes[variant % SHAPES];
    step s = make_step(b, variant / 2);
    /* Heads of 64, 128 and 256 values after more chunks than a merge of few takes. */
    const bool far = variant == 0 || variant == 23 || variant == 44;
    s.position[0] = far ? 4700 : s.position[0];
    op->kind = MO_OP_ATTEND;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = h.heads;
    o->kv_heads = h.kv_heads;
    o->k_len = h.k_len;
    o->v_len = h.v_len;
    o->kv = far ? (int)MO_KV_I16 : (variant + variant / SHAPES) % MO_KV_TYPES;
    o->window = far ? 0 : windows[variant / 3 % 5];
    o->gated = variant % 4 == 1 && h.v_len <= h.k_len;
    o->scale = variant % 5 == 2 ? 1.0f : 1.0f / sqrtf((float)h.k_len);
    make_caches(b, &s, &h, (mo_kv_type)o->kv, o->window, variant);
    o->places = places_of(b, &s);
    o->q = box_address(
        b, box_filled(b, (int64_t)s.tokens * h.heads * query_len(h.k_len, o->gated), variant / 5));
    o->sinks = box_chance(b, 40) ? box_address(b, box_filled(b, h.heads, 0)) : 0;
    if (variant % 3 != 1) {
        place_pictures(b, o->places, &s);
    }
    o->chunks = most_chunks(b, o) + (variant % 7 == 0); /* more space than needed */
    o->partial = partial_of(b, o);
    o->mixed = box_acts(b, s.tokens, (int64_t)h.heads * h.v_len);
}

bool build_attention(box *b, mo_op ops[2], int variant)
{
    build_heads(b, &ops[0], variant);
    const mo_op_heads *h = &ops[0].heads;
    mo_op_attend *o = &ops[1].attend;
    ops[1].kind = MO_OP_ATTEND;
    if (h->gated && h->v_len > h->k_len) { /* a gate is as long as a key */
        return false;
    }
    *o = (mo_op_attend){.q = h->q,
                        .sinks = box_chance(b, 40) ? box_address(b, box_filled(b, h->heads, 0)) : 0,
                        .places = h->places,
                        .window = variant % 2 ? 100 : 0, /* as its cache was made */
                        .tokens = h->tokens,
                        .layer = h->layer,
                        .heads = h->heads,
                        .kv_heads = h->kv_heads,
                        .k_len = h->k_len,
                        .v_len = h->v_len,
                        .gated = h->gated,
                        .kv = h->kv,
                        .scale = 1.0f / sqrtf((float)h->k_len)};
    o->chunks = most_chunks(b, o) + variant % 3 / 2;
    o->partial = partial_of(b, o);
    o->mixed = box_acts(b, h->tokens, (int64_t)h->heads * h->v_len);
    /* Nobody reads them any more, and devices may leave them as they were. */
    box_ignore(b, box_at(b, h->q), 4 * h->tokens * h->heads * query_len(h->k_len, h->gated));
    return true;
}

/* The same of codes. */
static void attend_codes(const mo_op_attend *o, const mo_kv_head *kv, const float *q, const float *sink,
                         int64_t first, int64_t last, float *out)
{
    float O[LONGEST] = {0.0f}, M = -INFINITY, L = 0.0f, g[2], m, l, r, sums[LONGEST];
    int8_t codes[2 * (LONGEST + 16)];
    if (o->tail) {
        mo_latent_code(&K, q, o->v_len, o->tail, o->scale, codes, g);
    } else {
        mo_heads_code(&K, q, o->k_len, o->scale, codes, g);
    }
    for (int64_t u = first; u <= last;) {
        const int64_t edge = (u / MO_KV_BLOCK + 1) * MO_KV_BLOCK, end = edge <= last ? edge : last + 1;
        K.attend_codes(kv, &(mo_seen){u, end}, 1, codes, g, 1, &m, &l, &r, sums, NULL);
        K.merge_codes(&M, &L, O, m, l, r, sums, o->v_len);
        u = end;
    }
    mo_heads_finish(&K, kv->type, &M, &L, O, sink, o->gated ? q + o->k_len : NULL, o->v_len, out);
    assert_true(K.finite(out, o->v_len));
}

/* One query head over the positions [first, last], laid out in order. */
static void attend_query(const mo_op_attend *o, const mo_kv_head *kv, const float *q, const float *sink,
                         int64_t first, int64_t last, float *out)
{
    float M = 0.0f, L = 0.0f, m, l, part[LONGEST];
    bool any = false;
    for (int64_t u = first; u <= last;) {
        const int64_t edge = (u / MO_CHUNK + 1) * MO_CHUNK, end = edge <= last ? edge : last + 1;
        K.attend(kv, &(mo_seen){u, end}, 1, q, 1, o->scale, &m, &l, part, NULL);
        if (any) {
            K.attend_merge(&M, &L, out, m, l, part, o->v_len);
        } else {
            M = m;
            L = l;
            memcpy(out, part, sizeof(float) * (size_t)o->v_len);
        }
        any = true;
        u = end;
    }
    if (sink) {
        K.attend_merge(&M, &L, out, *sink, 1.0f, NULL, o->v_len);
    }
    K.attend_finish(out, L, o->v_len);
    if (o->gated) {
        K.sigmoid(part, q + o->k_len, o->v_len);
        K.multiply(out, part, o->v_len);
    }
    assert_true(K.finite(out, o->v_len));
}

static int64_t first_seen(const mo_op_attend *o, int64_t position)
{
    return o->window && position >= o->window ? position - o->window + 1 : 0;
}

/* Tokens `from` to `end`, all of one state: its keys and values are put in order once for each head. */
static void attend_tokens(const box *b, const mo_op_attend *o, int64_t from, int64_t end)
{
    const mo_dplace *place = box_at(b, o->places);
    const mo_dstate *state = state_at(b, &place[from]);
    const mo_kv_shape layout = {.type = o->kv, .heads = o->kv_heads, .k_len = o->k_len, .v_len = o->v_len};
    const mo_kv_shape alone = {.type = o->kv, .heads = 1, .k_len = o->k_len, .v_len = o->v_len};
    const mo_acts mixed = box_acts_at(b, &o->mixed);
    const float *sinks = box_at(b, o->sinks);
    int64_t first = INT64_MAX, last = 0;
    for (int64_t t = from; t < end; t++) {
        const int64_t p = place[t].position;
        first = first_seen(o, p) < first ? first_seen(o, p) : first;
        last = last_seen(o, &place[t]) > last ? last_seen(o, &place[t]) : last;
    }
    const int64_t length = last / MO_KV_BLOCK + 1, bytes = mo_kv_block_bytes(alone);
    uint8_t *memory = malloc((size_t)(length * bytes)), **blocks = calloc((size_t)length, sizeof *blocks);
    for (int64_t i = 0; i < length; i++) {
        blocks[i] = memory + i * bytes;
    }
    for (int h = 0; h < o->kv_heads; h++) {
        const mo_kv_head kv = mo_kv_head_of(alone, 0, blocks, length);
        for (int64_t u = first; u <= last; u++) {
            uint8_t *block = block_at(b, state, u), row[4 * LONGEST];
            const mo_kv_head part = mo_kv_head_of(layout, h, &block, 1);
            for (int value = 0; value < 2; value++) {
                take_vector(&part, u % MO_KV_BLOCK, value, row);
                put_vector(&kv, u, value, row);
            }
        }
        const int group = o->heads / o->kv_heads;
        for (int64_t i = 0; i < (end - from) * group; i++) {
            const int64_t t = from + i / group, p = place[t].position, head = h * group + i % group;
            const float *q =
                (const float *)box_at(b, o->q) + (t * o->heads + head) * query_len(o->k_len, o->gated);
            (mo_kv_coded(o->kv) ? attend_codes : attend_query)(o, &kv, q, sinks ? sinks + head : NULL,
                                                               first_seen(o, p), last_seen(o, &place[t]),
                                                               mixed.x + t * mixed.cols + head * o->v_len);
        }
    }
    free(memory);
    free(blocks);
    for (int64_t t = from; t < end; t++) {
        box_quantize(&mixed, t);
    }
}

static void reference_attend(box *b, const mo_op *op)
{
    const mo_op_attend *o = &op->attend;
    const mo_dplace *place = box_at(b, o->places);
    for (int64_t t = 0, end; t < o->tokens; t = end) {
        for (end = t + 1; end < o->tokens && state_at(b, &place[end]) == state_at(b, &place[t]); end++) {
        }
        attend_tokens(b, o, t, end);
    }
}

/* ---- Latent rows ------------------------------------------------------------------------------ */

typedef struct latent_shape {
    int heads, v_len, tail;
} latent_shape;

static const latent_shape latent_shapes[] = {{4, 64, 32}, {20, 512, 64}, {3, 24, 8}, {17, 32, 16}};

static mo_kv_shape latent_layout(mo_kv_type kv, const latent_shape *h)
{
    return (mo_kv_shape){
        .type = kv, .heads = 1, .k_len = h->v_len + h->tail, .v_len = h->v_len, .tail = h->tail};
}

static void make_latent_caches(box *b, step *s, mo_kv_shape layout)
{
    const int64_t bytes = mo_kv_block_bytes(layout);
    const bool codes = mo_kv_coded(layout.type);
    for (int i = 0; i < s->slices; i++) {
        const int64_t length = mo_kv_table_length(s->position[i] + s->count[i] + 3, 0, s->count[i]);
        uint8_t *memory = box_alloc(b, length * bytes), row[2 * LONGEST + 4 * LONGEST];
        mo_daddr *table = box_alloc(b, length * (int64_t)sizeof *table);
        for (int64_t e = 0; e < length; e++) {
            uint8_t *block = memory + (i % 2 ? e : length - 1 - e) * bytes;
            const mo_kv_head part = mo_kv_head_of(layout, 0, &block, 1);
            table[e] = box_address(b, block);
            for (int64_t u = 0; u < MO_KV_BLOCK; u++) {
                float x[LONGEST];
                box_fill(b, x, layout.k_len, 0);
                assert_true(write_vector((mo_kv_type)layout.type, codes ? x + layout.v_len : x,
                                         codes ? layout.tail : layout.k_len, row));
                put_vector(&part, u, false, row);
                if (codes) {
                    assert_true(write_vector((mo_kv_type)layout.type, x, layout.v_len, row));
                    put_vector(&part, u, true, row);
                }
            }
        }
        s->state[i]->blocks = box_address(b, table);
        s->state[i]->length = length;
    }
}

static void make_latent_attend(box *b, mo_op *op, latent_shape h, step s, int variant)
{
    mo_op_attend *o = &op->attend;
    op->kind = MO_OP_ATTEND;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = h.heads;
    o->kv_heads = 1;
    o->k_len = h.v_len + h.tail;
    o->v_len = h.v_len;
    o->tail = h.tail;
    o->between = s.tokens + variant % 3;
    o->kv = (variant + variant / 4) % MO_KV_TYPES;
    o->scale = 1.0f / sqrtf((float)o->k_len);
    make_latent_caches(b, &s, latent_layout((mo_kv_type)o->kv, &h));
    o->places = places_of(b, &s);
    const int64_t rows = (h.heads - 1) * o->between + s.tokens;
    o->q = box_address(b, box_filled(b, rows * o->k_len, 0));
    for (int i = 0; i < s.slices; i++) {
        const int chunks = (int)((s.position[i] + s.count[i] - 1) / mo_kv_chunk(o->kv) + 1);
        o->chunks = chunks > o->chunks ? chunks : o->chunks;
    }
    const int64_t few = s.tokens < MO_OP_SMALL ? s.tokens : MO_OP_SMALL;
    const int64_t floats = few * o->chunks * h.heads * mo_kv_partial(o->kv, h.v_len);
    float *partial = box_floats(b, floats);
    box_ignore(b, partial, 4 * floats);
    o->partial = box_address(b, partial);
    o->mixed = box_acts(b, rows, h.v_len);
}

static void build_latent_attend(box *b, mo_op *op, int variant)
{
    make_latent_attend(b, op, latent_shapes[variant % 4], make_step(b, variant / 2), variant);
}

/* Tiles of queries: more than a few tokens, of which one tile has several, or some heads of one. */
static void build_latent_tiles(box *b, mo_op *op, int variant)
{
    static const latent_shape tiled[] = {{20, 512, 64}, {2, 512, 64}, {16, 512, 64}, {70, 512, 64}};
    static const int steps[] = {9, 54, 4, 64, 59}; /* of 9 or more tokens, also in a small box */
    make_latent_attend(b, op, tiled[variant % 4], make_step(b, steps[variant % 5]), variant);
    assert_true(op->attend.tokens > MO_OP_SMALL);
}

static void reference_latent_attend(box *b, const mo_op *op)
{
    const mo_op_attend *o = &op->attend;
    const latent_shape h = {o->heads, o->v_len, o->tail};
    const mo_acts mixed = box_acts_at(b, &o->mixed);
    for (int64_t t = 0; t < o->tokens; t++) {
        const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
        const mo_dstate *state = state_at(b, place);
        const int64_t length = place->position / MO_KV_BLOCK + 1;
        uint8_t **blocks = calloc((size_t)length, sizeof *blocks);
        for (int64_t i = 0; i < length; i++) {
            blocks[i] = block_at(b, state, i * MO_KV_BLOCK);
        }
        const mo_kv_head kv = mo_kv_head_of(latent_layout((mo_kv_type)o->kv, &h), 0, blocks, length);
        for (int64_t head = 0; head < o->heads; head++) {
            const int64_t row = head * o->between + t;
            const float *q = (const float *)box_at(b, o->q) + row * o->k_len;
            (mo_kv_coded(o->kv) ? attend_codes : attend_query)(o, &kv, q, NULL, 0, place->position,
                                                               mixed.x + row * o->v_len);
            box_quantize(&mixed, row);
        }
        free(blocks);
    }
}

/* Queries, keys, and the groups of the products around the scores. */
static void build_latent(box *b, mo_op *op, int variant)
{
    mo_op_latent *o = &op->latent;
    const latent_shape h = latent_shapes[variant % 4];
    const int plain = variant % 3 ? 32 : 20;
    step s = make_step(b, variant / 2);
    op->kind = MO_OP_LATENT;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = h.heads;
    o->v_len = h.v_len;
    o->n_rot = h.tail;
    o->kv = (variant + variant / 4) % MO_KV_TYPES;
    o->eps = 1e-6f;
    make_latent_caches(b, &s, latent_layout((mo_kv_type)o->kv, &h));
    o->places = places_of(b, &s);
    o->q = box_address(b, box_filled(b, (int64_t)s.tokens * h.heads * (plain + h.tail), variant));
    float *k = box_filled(b, (int64_t)s.tokens * (h.v_len + h.tail), 0);
    o->k = box_address(b, k);
    box_ignore(b, k,
               4 * (int64_t)s.tokens * (h.v_len + h.tail)); /* they have served when they are in the cache */
    o->norm = box_address(b, box_filled(b, h.v_len, 0));
    o->rope_rows = s.tokens;
    o->rope_stride = h.tail / 2 + variant % 2;
    o->rope = variant % 5 == 4 ? 0 : box_address(b, box_filled(b, 2 * o->rope_rows * o->rope_stride, 0));
    if (variant % 3 == 1) {
        o->q_factor = box_address(b, box_filled(b, s.tokens, 0));
    }
    o->plain = box_acts(b, (int64_t)s.tokens * h.heads, plain);
    o->query = box_address(b, box_filled(b, (int64_t)s.tokens * h.heads * (h.v_len + h.tail), 0));
    o->groups = box_address(b, box_alloc(b, 2 * h.heads * (int64_t)sizeof(mo_dgroup)));
    o->data[0] = 4096;
    o->data[1] = 1 << 20;
    o->part_bytes[0] = 512;
    o->part_bytes[1] = 768;
}

static void reference_latent(box *b, const mo_op *op)
{
    const mo_op_latent *o = &op->latent;
    const latent_shape h = {o->heads, o->v_len, o->n_rot};
    const mo_kv_shape layout = latent_layout((mo_kv_type)o->kv, &h);
    const mo_acts plain = box_acts_at(b, &o->plain);
    mo_dgroup *groups = box_at(b, o->groups);
    for (int64_t t = 0; t < o->tokens; t++) {
        const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
        const float *c = o->rope ? (const float *)box_at(b, o->rope) + t * o->rope_stride : NULL;
        const float *s = c ? c + o->rope_rows * o->rope_stride : NULL;
        float key[LONGEST];
        for (int64_t i = 0; i < o->heads; i++) {
            const int64_t row = i * o->tokens + t;
            const float *q = (const float *)box_at(b, o->q) + (t * o->heads + i) * (plain.cols + o->n_rot);
            float *tail = (float *)box_at(b, o->query) + row * layout.k_len + o->v_len;
            memcpy(plain.x + row * plain.cols, q, sizeof *q * (size_t)plain.cols);
            memcpy(tail, q + plain.cols, sizeof *q * (size_t)o->n_rot);
            if (c) {
                K.rope(tail, c, s, o->n_rot, false);
            }
            if (o->q_factor) {
                const float factor = ((const float *)box_at(b, o->q_factor))[t];
                K.scale(plain.x + row * plain.cols, factor, plain.cols);
                K.scale(tail, factor, o->n_rot);
            }
            box_quantize(&plain, row);
        }
        memcpy(key, (const float *)box_at(b, o->k) + t * layout.k_len, sizeof *key * (size_t)layout.k_len);
        K.rms_norm(key, key, box_at(b, o->norm), o->v_len, o->eps);
        if (c) {
            K.rope(key + o->v_len, c, s, o->n_rot, false);
        }
        uint8_t *block = block_at(b, state_at(b, place), place->position), row[6 * LONGEST];
        const mo_kv_head kv = mo_kv_head_of(layout, 0, &block, 1);
        const bool codes = mo_kv_coded(o->kv);
        assert_true(write_vector((mo_kv_type)o->kv, codes ? key + o->v_len : key,
                                 codes ? o->n_rot : layout.k_len, row));
        put_vector(&kv, place->position % MO_KV_BLOCK, false, row);
        if (codes) {
            assert_true(write_vector((mo_kv_type)o->kv, key, o->v_len, row));
            put_vector(&kv, place->position % MO_KV_BLOCK, true, row);
        }
    }
    for (int i = 0; i < 2 * o->heads; i++) {
        const int m = i / o->heads, head = i % o->heads;
        groups[i] = (mo_dgroup){.data = o->data[m] + (mo_daddr)(head * o->part_bytes[m]),
                                .first = head * o->tokens,
                                .count = o->tokens};
    }
}

/* ---- Indexers --------------------------------------------------------------------------------- */

typedef struct index_shape {
    int heads, length, n_rot, top;
} index_shape;

static const index_shape index_shapes[] = {{3, 48, 16, 5}, {8, 64, 32, 40}, {2, 200, 64, 130}, {5, 33, 8, 7}};

static mo_kv_shape index_layout(mo_kv_type kv, const latent_shape *h, const index_shape *x)
{
    mo_kv_shape layout = latent_layout(kv, h);
    layout.index = x->length;
    return layout;
}

/* Keys of an indexer in all places of the caches: some of them alike, so that scores are equal. */
static void fill_index(box *b, const step *s, mo_kv_shape layout)
{
    for (int i = 0; i < s->slices; i++) {
        const mo_daddr *table = box_at(b, s->state[i]->blocks);
        for (int64_t e = 0; e < s->state[i]->length; e++) {
            uint8_t *block = box_at(b, table[e]);
            float *keys = (float *)(void *)(block + mo_kv_index_at(layout));
            box_fill(b, keys, (int64_t)MO_KV_BLOCK * layout.index, 0);
            for (int u = 3; u < MO_KV_BLOCK; u += 5) {
                memcpy(keys + (int64_t)u * layout.index, keys + (int64_t)(u - 3) * layout.index,
                       (size_t)mo_kv_index_bytes(layout));
            }
        }
    }
}

static void build_index(box *b, mo_op *op, int variant)
{
    mo_op_index *o = &op->index;
    const latent_shape h = latent_shapes[variant / 2 % 4];
    const index_shape x = index_shapes[variant % 4];
    step s = make_step(b, variant / 2);
    op->kind = MO_OP_INDEX;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = x.heads;
    o->length = x.length;
    o->n_rot = x.n_rot;
    o->neox = variant % 2;
    o->kv = (variant + variant / 4) % MO_KV_TYPES;
    o->k_len = h.v_len + h.tail;
    o->v_len = h.v_len;
    o->tail = h.tail;
    o->scale = 0.07f;
    make_latent_caches(b, &s, index_layout((mo_kv_type)o->kv, &h, &x));
    o->places = places_of(b, &s);
    o->q = box_address(b, box_filled(b, (int64_t)s.tokens * x.heads * x.length, 0));
    o->k = box_address(b, box_filled(b, (int64_t)s.tokens * x.length, 0));
    o->share = box_address(b, box_filled(b, (int64_t)s.tokens * x.heads, 0));
    o->norm = box_address(b, box_filled(b, x.length, 0));
    o->bias = box_address(b, box_filled(b, x.length, 0));
    o->rope_rows = s.tokens;
    o->rope_stride = x.n_rot / 2 + variant % 2;
    o->rope = box_address(b, box_filled(b, 2 * o->rope_rows * o->rope_stride, 0));
}

static void reference_index(box *b, const mo_op *op)
{
    const mo_op_index *o = &op->index;
    const latent_shape h = {0, o->v_len, o->tail};
    const index_shape x = {o->heads, o->length, o->n_rot, 0};
    const mo_kv_shape layout = index_layout((mo_kv_type)o->kv, &h, &x);
    const mo_index_rule rule = {.heads = o->heads,
                                .length = o->length,
                                .n_rot = o->n_rot,
                                .neox = o->neox,
                                .scale = o->scale,
                                .norm = box_at(b, o->norm),
                                .bias = box_at(b, o->bias)};
    for (int64_t t = 0; t < o->tokens; t++) {
        const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
        const float *c = (const float *)box_at(b, o->rope) + t * o->rope_stride;
        const float *s = c + o->rope_rows * o->rope_stride;
        float *key = (float *)box_at(b, o->k) + t * o->length;
        uint8_t *block = block_at(b, state_at(b, place), place->position);
        assert_true(mo_index_key(&K, &rule, key, c, s));
        memcpy(block + mo_kv_index_at(layout) + place->position % MO_KV_BLOCK * mo_kv_index_bytes(layout),
               key, (size_t)mo_kv_index_bytes(layout));
        mo_index_query(&K, &rule, (float *)box_at(b, o->q) + t * o->heads * o->length,
                       (float *)box_at(b, o->share) + t * o->heads, c, s);
    }
}

static void build_keep(box *b, mo_op *op, int variant)
{
    mo_op_keep *o = &op->keep;
    const latent_shape h = latent_shapes[variant / 2 % 4];
    const index_shape x = index_shapes[variant % 4];
    step s = make_step(b, variant / 2);
    op->kind = MO_OP_KEEP;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->heads = x.heads;
    o->length = x.length;
    o->top = x.top;
    o->kv = (variant + variant / 4) % MO_KV_TYPES;
    o->k_len = h.v_len + h.tail;
    o->v_len = h.v_len;
    o->tail = h.tail;
    const mo_kv_shape layout = index_layout((mo_kv_type)o->kv, &h, &x);
    make_latent_caches(b, &s, layout);
    fill_index(b, &s, layout);
    o->places = places_of(b, &s);
    for (int i = 0; i < s.slices; i++) {
        const int64_t end = s.position[i] + s.count[i];
        o->most = end > o->most ? end : o->most;
    }
    o->stride = o->most + variant % 3;
    o->q = box_address(b, box_filled(b, (int64_t)s.tokens * x.heads * x.length, 0));
    o->share = box_address(b, box_filled(b, (int64_t)s.tokens * x.heads, 0));
    float *scores = box_floats(b, s.tokens * o->stride);
    box_ignore(b, scores, 4 * s.tokens * o->stride);
    o->scores = box_address(b, scores);
    o->kept = box_address(b, box_alloc(b, (int64_t)s.tokens * o->top * 4));
}

static void reference_keep(box *b, const mo_op *op)
{
    const mo_op_keep *o = &op->keep;
    const latent_shape h = {0, o->v_len, o->tail};
    const index_shape x = {o->heads, o->length, 0, 0};
    const mo_kv_shape layout = index_layout((mo_kv_type)o->kv, &h, &x);
    const mo_index_rule rule = {.heads = o->heads, .length = o->length};
    float *products = calloc((size_t)o->heads * MO_KV_BLOCK, sizeof *products),
          *scores = calloc((size_t)o->stride + MO_KV_BLOCK, sizeof *scores);
    mo_scratch *scratch = aligned_alloc(64, sizeof *scratch);
    for (int64_t t = 0; t < o->tokens; t++) {
        const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
        for (int64_t u = 0; u <= place->position; u += MO_KV_BLOCK) {
            const uint8_t *block = block_at(b, state_at(b, place), u);
            const int64_t left = place->position + 1 - u;
            mo_index_scores(&K, &rule, (const float *)(const void *)(block + mo_kv_index_at(layout)),
                            left < MO_KV_BLOCK ? left : MO_KV_BLOCK,
                            (const float *)box_at(b, o->q) + t * o->heads * o->length,
                            (const float *)box_at(b, o->share) + t * o->heads, 1, products, scores + u,
                            MO_KV_BLOCK, scratch);
        }
        if (place->position >= o->top) {
            mo_index_choose(scores, place->position + 1, o->top, (int32_t *)box_at(b, o->kept) + t * o->top);
        }
    }
    free(scratch);
    free(scores);
    free(products);
}

/* Kept positions are any, ascending. */
static void build_gather(box *b, mo_op *op, int variant)
{
    mo_op_gather *o = &op->gather;
    const latent_shape h = latent_shapes[variant / 2 % 4];
    const index_shape x = index_shapes[variant % 4];
    step s = make_step(b, variant / 2);
    op->kind = MO_OP_GATHER;
    o->tokens = s.tokens;
    o->layer = LAYER;
    o->top = x.top;
    o->kv = (variant + variant / 4) % MO_KV_TYPES;
    o->k_len = h.v_len + h.tail;
    o->v_len = h.v_len;
    o->tail = h.tail;
    make_latent_caches(b, &s, index_layout((mo_kv_type)o->kv, &h, &x));
    o->places = places_of(b, &s);
    int32_t *kept = box_alloc(b, (int64_t)s.tokens * x.top * 4);
    for (int64_t t = 0; t < s.tokens; t++) {
        const int64_t position = ((const mo_dplace *)box_at(b, o->places))[t].position;
        for (int64_t i = 0; position >= x.top && i < x.top; i++) {
            kept[t * x.top + i] = (int32_t)(i * (position + 1) / x.top);
        }
    }
    o->kept = box_address(b, kept);
    const int64_t blocks = (x.top + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    const int64_t bytes = mo_kv_block_bytes(latent_layout((mo_kv_type)o->kv, &h));
    o->blocks = box_address(b, box_alloc(b, s.tokens * blocks * bytes));
    o->tables = box_address(b, box_alloc(b, s.tokens * blocks * (int64_t)sizeof(mo_daddr)));
    o->states = box_address(b, box_alloc(b, s.tokens * (int64_t)sizeof(mo_dstate)));
    o->out = box_address(b, box_alloc(b, s.tokens * (int64_t)sizeof(mo_dplace)));
}

static void reference_gather(box *b, const mo_op *op)
{
    const mo_op_gather *o = &op->gather;
    const latent_shape h = {0, o->v_len, o->tail};
    const mo_kv_shape layout = latent_layout((mo_kv_type)o->kv, &h);
    const int64_t count = (o->top + MO_KV_BLOCK - 1) / MO_KV_BLOCK, bytes = mo_kv_block_bytes(layout);
    for (int64_t t = 0; t < o->tokens; t++) {
        const mo_dplace *place = (const mo_dplace *)box_at(b, o->places) + t;
        mo_dstate *state = (mo_dstate *)box_at(b, o->states) + t;
        mo_dplace *out = (mo_dplace *)box_at(b, o->out) + t;
        const mo_daddr first = o->blocks + (mo_daddr)(t * count * bytes);
        *state = *state_at(b, place);
        *out = *place;
        out->layers = o->states + (mo_daddr)t * sizeof *state;
        if (place->position < o->top) {
            continue;
        }
        for (int64_t i = 0; i < o->top; i++) {
            const int32_t u = ((const int32_t *)box_at(b, o->kept))[t * o->top + i];
            uint8_t *from = block_at(b, state, u),
                    *to = (uint8_t *)box_at(b, first + (mo_daddr)(i / MO_KV_BLOCK * bytes));
            const mo_kv_head source = mo_kv_head_of(layout, 0, &from, 1),
                             target = mo_kv_head_of(layout, 0, &to, 1);
            mo_index_copy(&source, u % MO_KV_BLOCK, &target, i % MO_KV_BLOCK);
        }
        for (int64_t i = 0; i < count; i++) {
            ((mo_daddr *)box_at(b, o->tables))[t * count + i] = first + (mo_daddr)(i * bytes);
        }
        *state = (mo_dstate){.blocks = o->tables + (mo_daddr)(t * count) * sizeof(mo_daddr),
                             .length = count,
                             .first = first,
                             .stride = bytes};
        out->position = o->top - 1;
    }
}

static void build_collect(box *b, mo_op *op, int variant)
{
    mo_op_collect *o = &op->collect;
    op->kind = MO_OP_COLLECT;
    o->tokens = 1 + variant % 9;
    o->heads = 1 + 3 * (variant % 5);
    o->n = variant % 4 == 3 ? 24 : 32 << variant % 4;
    o->from = box_address(b, box_filled(b, (int64_t)o->heads * o->tokens * o->n, variant));
    o->out = box_acts(b, o->tokens, (int64_t)o->heads * o->n);
    o->by_token = variant / 3 % 2;
    o->each = variant % 2;
    o->kind = variant / 2 % 2 ? MO_GATE_SOFTPLUS : MO_GATE_SIGMOID;
    if (variant % 5 != 4) {
        const int64_t gates = o->each ? o->n : 1;
        o->gate = box_address(b, box_filled(b, (int64_t)o->heads * o->tokens * gates, variant / 3));
    }
}

static void reference_gate(box *b, const mo_op_collect *o, int64_t head, float *row)
{
    const float *gate = (const float *)box_at(b, o->gate) + head * (o->each ? o->n : 1);
    for (int64_t i = 0; i < o->n; i++) {
        const float g = o->each ? gate[i] : gate[0];
        row[i] *= o->kind == MO_GATE_SOFTPLUS ? mo_softplus(g) : mo_sigmoid(g);
    }
}

static void reference_collect(box *b, const mo_op *op)
{
    const mo_op_collect *o = &op->collect;
    const mo_acts out = box_acts_at(b, &o->out);
    for (int64_t t = 0; t < o->tokens; t++) {
        for (int64_t h = 0; h < o->heads; h++) {
            const int64_t to = t * o->heads + h, from = o->by_token ? to : h * o->tokens + t;
            memcpy(out.x + to * o->n, (const float *)box_at(b, o->from) + from * o->n,
                   sizeof(float) * (size_t)o->n);
            if (o->gate) {
                reference_gate(b, o, to, out.x + to * o->n);
            }
        }
        box_quantize(&out, t);
    }
}

/* ---- Delta rule ------------------------------------------------------------------------------- */

typedef struct delta_shape {
    int k_heads, v_heads, head, taps;
} delta_shape;

static const delta_shape delta_shapes[] = {{1, 2, 32, 4}, {2, 4, 64, 4}, {2, 2, 128, 4},
                                           {1, 3, 16, 3}, {4, 8, 32, 2}, {2, 6, 20, 8}};

static int64_t channels_of(int k_heads, int v_heads, int head)
{
    return (2 * (int64_t)k_heads + v_heads) * head;
}

/* What becomes of the states of a recurrent op, by variant; what it leaves in other places is of no use where states alone move on. */
static int32_t state_use(box *b, int variant, mo_dacts out, int64_t rows)
{
    const int32_t state = variant / 6 % 3;
    const int64_t blocks = rows * (out.cols / 32);
    if (state == MO_STATE_ONLY) {
        box_ignore(b, box_at(b, out.x), 4 * rows * out.cols);
    }
    if (state == MO_STATE_ONLY && out.q) {
        box_ignore(b, box_at(b, out.q), rows * out.cols);
        box_ignore(b, box_at(b, out.d), 4 * blocks);
        box_ignore(b, box_at(b, out.s), 4 * blocks);
        box_ignore(b, box_at(b, out.sum), 4 * blocks);
        box_ignore(b, box_at(b, out.half_sum), 4 * blocks);
    }
    return state;
}

/* Computes with states that move on; those that stay get back what they had, `values` floats each. */
static void reference_state(box *b, const mo_op *op, mo_daddr list, int count, int64_t values, int32_t state,
                            void (*moves)(box *, const mo_op *))
{
    const mo_dslice *slices = box_at(b, list);
    const size_t bytes = sizeof(float) * (size_t)values;
    float *at[SLICES_MAX], *had[SLICES_MAX];
    for (int i = 0; i < count; i++) {
        const mo_dstate *s = (const mo_dstate *)box_at(b, slices[i].layers) + LAYER;
        at[i] = box_at(b, s->delta ? s->delta : s->conv);
        had[i] = malloc(bytes);
        assert_non_null(had[i]);
        memcpy(had[i], at[i], bytes);
    }
    moves(b, op);
    for (int i = 0; i < count; i++) {
        if (state == MO_STATE_STAYS) {
            memcpy(at[i], had[i], bytes);
        }
        free(had[i]);
    }
}

/* Decays of heads; of channels; of channels with a bound. */
static mo_decay decay_of(int variant)
{
    return (mo_decay)(variant / 18 % 3);
}

static float *decay_steps(box *b, int v_heads, bool positive)
{
    float *a = box_filled(b, v_heads, 0);
    for (int h = 0; h < v_heads; h++) {
        a[h] = positive ? fabsf(a[h]) : -fabsf(a[h]); /* a decay */
    }
    return a;
}

static void add_decays(box *b, mo_op_convolve *o)
{
    const int64_t values = (int64_t)o->v_heads * o->head;
    const bool bounded = o->decay == MO_DECAY_BOUNDED;
    o->bound = bounded ? -5.0f : 0.0f;
    o->gates = box_address(
        b, box_filled(b, o->tokens * mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head), 0));
    o->a = box_address(b, decay_steps(b, o->v_heads, bounded));
    o->dt = box_address(b, box_filled(b, values, 0));
}

static void build_convolve(box *b, mo_op *op, int variant)
{
    const delta_shape d = delta_shapes[variant % 6];
    const int64_t channels = channels_of(d.k_heads, d.v_heads, d.head);
    mo_op_convolve *o = &op->convolve;
    step s = make_step(b, variant);
    op->kind = MO_OP_CONVOLVE;
    for (int i = 0; i < s.slices; i++) {
        s.state[i]->conv = box_address(b, box_filled(b, (d.taps - 1) * channels, variant));
    }
    o->tokens = s.tokens;
    o->slice_count = s.slices;
    o->layer = LAYER;
    o->k_heads = d.k_heads;
    o->v_heads = d.v_heads;
    o->head = d.head;
    o->taps = d.taps;
    o->eps = 1e-6f;
    o->before = box_address(b, box_filled(b, s.tokens * channels, variant));
    o->after = box_address(b, box_floats(b, s.tokens * channels));
    o->state = state_use(b, variant, (mo_dacts){.x = o->after, .cols = (int32_t)channels}, s.tokens);
    o->weight = box_address(b, box_filled(b, d.taps * channels, 0));
    o->places = places_of(b, &s);
    o->slices = slices_of(b, &s);
    o->decay = decay_of(variant);
    if (o->decay != MO_DECAY_HEADS) {
        add_decays(b, o);
    }
}

static void make_decays(const box *b, const mo_op_convolve *o, int64_t t)
{
    const int64_t values = (int64_t)o->v_heads * o->head;
    float *gates =
        (float *)box_at(b, o->gates) + t * mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head);
    const float *a = box_at(b, o->a), *dt = box_at(b, o->dt);
    for (int64_t i = 0; i < values; i++) {
        const float x = gates[i] + dt[i], slope = a[i / o->head];
        gates[i] =
            mo_exp(o->decay == MO_DECAY_BOUNDED ? o->bound * mo_sigmoid(slope * x) : slope * mo_softplus(x));
    }
}

static void convolve_slice(const box *b, const mo_op_convolve *o, const mo_dslice *slice)
{
    const int64_t channels = channels_of(o->k_heads, o->v_heads, o->head), keep = o->taps - 1;
    const mo_dstate *state = (const mo_dstate *)box_at(b, slice->layers) + LAYER;
    const size_t row_bytes = sizeof(float) * (size_t)channels;
    float *conv = box_at(b, state->conv);
    float *inputs = malloc(row_bytes * (size_t)(keep + slice->count));
    memcpy(inputs, conv, row_bytes * (size_t)keep);
    memcpy(inputs + keep * channels, (const float *)box_at(b, o->before) + slice->first * channels,
           row_bytes * (size_t)slice->count);
    for (int64_t t = 0; t < slice->count; t++) {
        const float *rows[16];
        float *y = (float *)box_at(b, o->after) + (slice->first + t) * channels;
        for (int j = 0; j < o->taps; j++) {
            rows[j] = inputs + (t + j) * channels;
        }
        K.convolve(y, rows, box_at(b, o->weight), o->taps, channels, channels);
        K.silu(y, y, channels);
        for (int h = 0; h < 2 * o->k_heads; h++) {
            K.l2_norm(y + (int64_t)h * o->head, y + (int64_t)h * o->head, o->head, o->eps);
        }
        assert_true(K.finite(y, channels));
        if (o->decay != MO_DECAY_HEADS && o->state != MO_STATE_ONLY) {
            make_decays(b, o, slice->first + t);
        }
    }
    memcpy(conv, inputs + slice->count * channels, row_bytes * (size_t)keep);
    free(inputs);
}

static void move_convolve(box *b, const mo_op *op)
{
    const mo_dslice *slices = box_at(b, op->convolve.slices);
    for (int i = 0; i < op->convolve.slice_count; i++) {
        convolve_slice(b, &op->convolve, &slices[i]);
    }
}

static void reference_convolve(box *b, const mo_op *op)
{
    const mo_op_convolve *o = &op->convolve;
    reference_state(b, op, o->slices, o->slice_count,
                    (o->taps - 1) * channels_of(o->k_heads, o->v_heads, o->head), o->state, move_convolve);
}

static void add_gates(box *b, mo_op_recur *o, mo_decay decay)
{
    const int64_t each = mo_delta_gate_values(decay, o->v_heads, o->head), n = o->tokens * each;
    float *gates = box_filled(b, n, 0);
    o->decay = decay;
    o->gates = box_address(b, gates);
    if (decay == MO_DECAY_HEADS) {
        o->a = box_address(b, decay_steps(b, o->v_heads, false));
        o->dt = box_address(b, box_filled(b, o->v_heads, 0));
        return;
    }
    for (int64_t i = 0; i < n; i++) { /* those that are decays */
        gates[i] = i % each < o->v_heads * o->head ? mo_sigmoid(gates[i]) : gates[i];
    }
}

static void build_recur(box *b, mo_op *op, int variant)
{
    const delta_shape d = delta_shapes[variant % 6];
    const int64_t channels = channels_of(d.k_heads, d.v_heads, d.head);
    mo_op_recur *o = &op->recur;
    step s = make_step(b, variant);
    op->kind = MO_OP_RECUR;
    for (int i = 0; i < s.slices; i++) {
        s.state[i]->delta = box_address(b, box_filled(b, (int64_t)d.v_heads * d.head * d.head, variant % 4));
    }
    o->tokens = s.tokens;
    o->slice_count = s.slices;
    o->layer = LAYER;
    o->k_heads = d.k_heads;
    o->v_heads = d.v_heads;
    o->head = d.head;
    o->tiled = variant / 2 % 2;
    o->paired = variant / 3 % 2;
    o->eps = 1e-6f;
    o->scale = 1.0f / sqrtf((float)d.head);
    float *after = box_filled(b, s.tokens * channels, variant % 4);
    for (int64_t t = 0; t < s.tokens; t++) { /* q and k come normed: the state stays small */
        for (int h = 0; h < 2 * d.k_heads; h++) {
            float *x = after + t * channels + (int64_t)h * d.head;
            K.l2_norm(x, x, d.head, 1e-6f);
        }
    }
    o->after = box_address(b, after);
    const int64_t values = (int64_t)s.tokens * d.v_heads * d.head;
    float *z = box_filled(b, values, variant / 2);
    o->z = box_address(b, z);
    box_ignore(b, z, 4 * values);
    add_gates(b, o, decay_of(variant));
    o->norm = box_address(b, box_filled(b, d.head, 0));
    o->slices = slices_of(b, &s);
    o->mixed = box_acts(b, s.tokens, (int64_t)d.v_heads * d.head);
    o->state = state_use(b, variant, o->mixed, s.tokens);
}

static void recur_token(const box *b, const mo_op_recur *o, const mo_dslice *slice, int64_t t)
{
    const mo_dstate *state = (const mo_dstate *)box_at(b, slice->layers) + LAYER;
    const mo_acts mixed = box_acts_at(b, &o->mixed);
    const int64_t n = o->head, channels = channels_of(o->k_heads, o->v_heads, o->head);
    const int each = o->v_heads / o->k_heads;
    const float *c = (const float *)box_at(b, o->after) + t * channels;
    const bool rows = o->decay != MO_DECAY_HEADS;
    const float *gates = (const float *)box_at(b, o->gates) +
                         t * mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head);
    const float *a = rows ? NULL : box_at(b, o->a), *dt = rows ? NULL : box_at(b, o->dt),
                *z = box_at(b, o->z);
    for (int h = 0; h < o->v_heads; h++) {
        const int key = o->tiled ? h % o->k_heads : h / each;
        const float *q = c + key * n, *k = c + (o->k_heads + key) * n, *v = c + (2 * o->k_heads + h) * n;
        float *y = mixed.x + t * mixed.cols + h * n, *s = (float *)box_at(b, state->delta) + h * n * n;
        float out[256];
        if (rows) {
            K.delta_rows(s, n, n, q, k, v, gates + h * n, mo_sigmoid(gates[o->v_heads * n + h]), o->scale,
                         out);
            K.rms_norm(out, out, box_at(b, o->norm), n, o->eps);
            K.sigmoid(y, z + (t * o->v_heads + h) * n, n);
            K.multiply(y, out, n);
            continue;
        }
        const int beta_at = o->paired ? h / each * 2 * each + h % each : h;
        const int alpha_at = beta_at + (o->paired ? each : o->v_heads);
        const float decay = mo_exp(a[h] * mo_softplus(gates[alpha_at] + dt[h]));
        K.delta(s, n, n, q, k, v, decay, mo_sigmoid(gates[beta_at]), o->scale, out);
        K.rms_norm(out, out, box_at(b, o->norm), n, o->eps);
        K.swiglu(y, z + (t * o->v_heads + h) * n, out, n);
        assert_true(K.finite(y, n));
    }
    box_quantize(&mixed, t);
}

static void move_recur(box *b, const mo_op *op)
{
    const mo_dslice *slices = box_at(b, op->recur.slices);
    for (int i = 0; i < op->recur.slice_count; i++) {
        for (int64_t t = slices[i].first; t < slices[i].first + slices[i].count; t++) {
            recur_token(b, &op->recur, &slices[i], t);
        }
    }
}

static void reference_recur(box *b, const mo_op *op)
{
    const mo_op_recur *o = &op->recur;
    reference_state(b, op, o->slices, o->slice_count, (int64_t)o->v_heads * o->head * o->head, o->state,
                    move_recur);
}

/* ---- Short convolution ------------------------------------------------------------------------ */

static void build_short_conv(box *b, mo_op *op, int variant)
{
    static const int shapes_of[][2] = {{64, 3}, {32, 2}, {160, 4},
                                       {96, 3}, {20, 3}, {257, 8}}; /* channels, taps */
    const int channels = shapes_of[variant % 6][0], taps = shapes_of[variant % 6][1];
    mo_op_short_conv *o = &op->short_conv;
    step s = make_step(b, variant);
    op->kind = MO_OP_SHORT_CONV;
    for (int i = 0; i < s.slices; i++) {
        s.state[i]->conv = box_address(b, box_filled(b, (int64_t)(taps - 1) * channels, variant));
    }
    o->tokens = s.tokens;
    o->slice_count = s.slices;
    o->layer = LAYER;
    o->channels = channels;
    o->taps = taps;
    o->in = box_address(b, box_filled(b, (int64_t)s.tokens * 3 * channels, variant));
    o->weight = box_address(b, box_filled(b, (int64_t)taps * channels, 0));
    o->places = places_of(b, &s);
    o->slices = slices_of(b, &s);
    o->mixed = box_acts(b, s.tokens, channels);
    o->state = state_use(b, variant, o->mixed, s.tokens);
}

/* Over one long row of inputs. */
static void short_conv_slice(const box *b, const mo_op_short_conv *o, const mo_dslice *slice)
{
    const int64_t n = o->channels, keep = o->taps - 1;
    const mo_dstate *state = (const mo_dstate *)box_at(b, slice->layers) + LAYER;
    const mo_acts mixed = box_acts_at(b, &o->mixed);
    const size_t row_bytes = sizeof(float) * (size_t)n;
    float *conv = box_at(b, state->conv);
    float *inputs = malloc(row_bytes * (size_t)(keep + slice->count));
    memcpy(inputs, conv, row_bytes * (size_t)keep);
    for (int64_t t = 0; t < slice->count; t++) {
        const float *in = (const float *)box_at(b, o->in) + (slice->first + t) * 3 * n;
        const float *rows[16];
        float *y = mixed.x + (slice->first + t) * n;
        for (int64_t i = 0; i < n; i++) {
            inputs[(keep + t) * n + i] = in[i] * in[2 * n + i];
        }
        for (int j = 0; j < o->taps; j++) {
            rows[j] = inputs + (t + j) * n;
        }
        K.convolve(y, rows, box_at(b, o->weight), o->taps, n, n);
        K.multiply(y, in + n, n);
        assert_true(K.finite(y, n));
        box_quantize(&mixed, slice->first + t);
    }
    memcpy(conv, inputs + slice->count * n, row_bytes * (size_t)keep);
    free(inputs);
}

static void move_short_conv(box *b, const mo_op *op)
{
    const mo_dslice *slices = box_at(b, op->short_conv.slices);
    for (int i = 0; i < op->short_conv.slice_count; i++) {
        short_conv_slice(b, &op->short_conv, &slices[i]);
    }
}

static void reference_short_conv(box *b, const mo_op *op)
{
    const mo_op_short_conv *o = &op->short_conv;
    reference_state(b, op, o->slices, o->slice_count, (int64_t)(o->taps - 1) * o->channels, o->state,
                    move_short_conv);
}

/* ---- Mamba ------------------------------------------------------------------------------------ */

static void build_ssm_convolve(box *b, mo_op *op, int variant)
{
    static const int sizes[][2] = {{64, 4}, {32, 2}, {160, 3},
                                   {96, 4}, {20, 4}, {257, 8}}; /* channels, taps */
    const int channels = sizes[variant % 6][0], taps = sizes[variant % 6][1];
    mo_op_ssm_convolve *o = &op->ssm_convolve;
    step s = make_step(b, variant);
    op->kind = MO_OP_SSM_CONVOLVE;
    for (int i = 0; i < s.slices; i++) {
        s.state[i]->conv = box_address(b, box_filled(b, (int64_t)(taps - 1) * channels, variant));
    }
    o->tokens = s.tokens;
    o->slice_count = s.slices;
    o->layer = LAYER;
    o->channels = channels;
    o->taps = taps;
    o->before = box_address(b, box_filled(b, (int64_t)s.tokens * channels, variant));
    o->weight = box_address(b, box_filled(b, (int64_t)taps * channels, 0));
    o->bias = box_address(b, box_filled(b, channels, 0));
    o->places = places_of(b, &s);
    o->slices = slices_of(b, &s);
    o->after = box_acts(b, s.tokens, channels);
    if (variant % 2) { /* values alone */
        o->after = (mo_dacts){.x = o->after.x, .cols = channels};
    }
    o->state = state_use(b, variant, o->after, s.tokens);
}

static void ssm_convolve_slice(const box *b, const mo_op_ssm_convolve *o, const mo_dslice *slice)
{
    const int64_t n = o->channels, keep = o->taps - 1;
    const mo_dstate *state = (const mo_dstate *)box_at(b, slice->layers) + LAYER;
    const size_t row_bytes = sizeof(float) * (size_t)n;
    float *conv = box_at(b, state->conv), *after = box_at(b, o->after.x);
    float *inputs = malloc(row_bytes * (size_t)(keep + slice->count));
    memcpy(inputs, conv, row_bytes * (size_t)keep);
    memcpy(inputs + keep * n, (const float *)box_at(b, o->before) + slice->first * n,
           row_bytes * (size_t)slice->count);
    for (int64_t t = 0; t < slice->count; t++) {
        const float *rows[16];
        float *y = after + (slice->first + t) * n;
        for (int j = 0; j < o->taps; j++) {
            rows[j] = inputs + (t + j) * n;
        }
        K.convolve(y, rows, box_at(b, o->weight), o->taps, n, n);
        K.add(y, box_at(b, o->bias), n);
        K.silu(y, y, n);
        assert_true(K.finite(y, n));
        if (o->after.q) {
            const mo_acts acts = box_acts_at(b, &o->after);
            box_quantize(&acts, slice->first + t);
        }
    }
    memcpy(conv, inputs + slice->count * n, row_bytes * (size_t)keep);
    free(inputs);
}

static void move_ssm_convolve(box *b, const mo_op *op)
{
    const mo_dslice *slices = box_at(b, op->ssm_convolve.slices);
    for (int i = 0; i < op->ssm_convolve.slice_count; i++) {
        ssm_convolve_slice(b, &op->ssm_convolve, &slices[i]);
    }
}

static void reference_ssm_convolve(box *b, const mo_op *op)
{
    const mo_op_ssm_convolve *o = &op->ssm_convolve;
    reference_state(b, op, o->slices, o->slice_count, (int64_t)(o->taps - 1) * o->channels, o->state,
                    move_ssm_convolve);
}

static void build_ssm_parts(box *b, mo_op *op, int variant)
{
    static const int sizes[][2] = {{32, 16}, {64, 8}, {12, 16}, {96, 40}, {20, 3}}; /* rank, states */
    mo_op_ssm_parts *o = &op->ssm_parts;
    op->kind = MO_OP_SSM_PARTS;
    o->rank = sizes[variant % 5][0];
    o->states = sizes[variant % 5][1];
    o->tokens = 1 + variant % 7;
    o->eps = 1e-5f;
    o->rows = box_address(b, box_filled(b, o->tokens * (o->rank + 2 * (int64_t)o->states), variant));
    o->dt_norm = box_address(b, box_filled(b, o->rank, 0));
    o->b_norm = box_address(b, box_filled(b, o->states, 0));
    o->c_norm = box_address(b, box_filled(b, o->states, 0));
    o->dt = box_acts(b, o->tokens, o->rank);
}

static void reference_ssm_parts(box *b, const mo_op *op)
{
    const mo_op_ssm_parts *o = &op->ssm_parts;
    const mo_acts dt = box_acts_at(b, &o->dt);
    for (int64_t t = 0; t < o->tokens; t++) {
        float *row = (float *)box_at(b, o->rows) + t * (o->rank + 2 * (int64_t)o->states);
        float *in = row + o->rank, *out = in + o->states;
        K.rms_norm(dt.x + t * o->rank, row, box_at(b, o->dt_norm), o->rank, o->eps);
        K.rms_norm(in, in, box_at(b, o->b_norm), o->states, o->eps);
        K.rms_norm(out, out, box_at(b, o->c_norm), o->states, o->eps);
        box_quantize(&dt, t);
    }
}

/* Channels, states, heads, groups; without heads the first kind. */
static const int scan_sizes[][4] = {{64, 16, 0, 1}, {96, 8, 6, 2},  {160, 16, 0, 1}, {128, 128, 2, 1},
                                    {100, 5, 0, 1}, {60, 12, 6, 3}, {256, 32, 4, 4}, {384, 20, 1, 1}};

static void build_ssm_scan(box *b, mo_op *op, int variant)
{
    const int *size = scan_sizes[variant % 8];
    const int64_t inner = size[0], states = size[1], heads = size[2], groups = size[3];
    mo_op_ssm_scan *o = &op->ssm_scan;
    step s = make_step(b, variant);
    op->kind = MO_OP_SSM_SCAN;
    for (int i = 0; i < s.slices; i++) {
        s.state[i]->delta = box_address(b, box_filled(b, inner * states, 0));
    }
    o->tokens = s.tokens;
    o->slice_count = s.slices;
    o->layer = LAYER;
    o->inner = (int32_t)inner;
    o->states = (int32_t)states;
    o->heads = (int32_t)heads;
    o->groups = (int32_t)groups;
    o->eps = 1e-5f;
    o->mixed = box_acts(b, s.tokens, inner);
    o->state = state_use(b, variant, o->mixed, s.tokens);
    o->bc_stride = 2 * groups * states + variant % 3;
    o->bc = box_address(b, box_filled(b, s.tokens * o->bc_stride, 0));
    o->x_stride = heads ? inner + variant % 5 : inner;
    float *x = box_filled(b, s.tokens * o->x_stride, variant % 4);
    o->x = box_address(b, x);
    if (!heads && variant % 2 == 0) { /* the result takes the place of the input */
        memcpy(box_at(b, o->mixed.x), x, sizeof *x * (size_t)(s.tokens * inner));
        o->x = o->mixed.x;
    }
    o->dt = box_address(b, box_filled(b, s.tokens * (heads ? heads : inner), 0));
    o->z = box_address(b, box_filled(b, s.tokens * inner, variant / 2));
    const int64_t decays = heads ? heads : states * inner;
    float *a = box_filled(b, decays, 0);
    for (int64_t i = 0; i < decays; i++) {
        a[i] = -fabsf(a[i]); /* a decay */
    }
    o->a = box_address(b, a);
    o->d = box_address(b, box_filled(b, heads ? heads : inner, 0));
    if (heads) {
        o->dt_bias = box_address(b, box_filled(b, heads, 0));
        o->norm = box_address(b, box_filled(b, inner, 0));
    }
    o->slices = slices_of(b, &s);
}

/* One channel at a time, in the words of docs/numerics.md. */
static void scan_channel(const box *b, const mo_op_ssm_scan *o, const mo_dslice *slice, int64_t i)
{
    const int64_t states = o->states, length = o->heads ? o->inner / o->heads : o->inner;
    const int64_t h = o->heads ? i / length : 0;
    const int64_t group = o->heads ? h / (o->heads / o->groups) : 0;
    const mo_dstate *layer = (const mo_dstate *)box_at(b, slice->layers) + LAYER;
    float *state = (float *)box_at(b, layer->delta) + h * length * states + i % length;
    const float *a = box_at(b, o->a), *d = box_at(b, o->d);
    for (int64_t t = slice->first; t < slice->first + slice->count; t++) {
        const float *in = (const float *)box_at(b, o->bc) + t * o->bc_stride + group * states;
        const float *out = in + o->groups * states;
        const float raw = ((const float *)box_at(b, o->dt))[o->heads ? t * o->heads + h : t * o->inner + i];
        const float dt = mo_softplus(o->heads ? raw + ((const float *)box_at(b, o->dt_bias))[h] : raw);
        const float x = ((const float *)box_at(b, o->x))[t * o->x_stride + i];
        const float change = dt * x;
        float sum = 0.0f;
        for (int64_t j = 0; j < states; j++) {
            const float decay = mo_exp(dt * (o->heads ? a[h] : a[j * o->inner + i]));
            state[j * length] = fmaf(change, in[j], decay * state[j * length]);
            sum = fmaf(state[j * length], out[j], sum);
        }
        const float y = fmaf(d[o->heads ? h : i], x, sum);
        const float z = ((const float *)box_at(b, o->z))[t * o->inner + i];
        ((float *)box_at(b, o->mixed.x))[t * o->inner + i] = mo_silu(z) * y;
    }
}

static void move_ssm_scan(box *b, const mo_op *op)
{
    const mo_op_ssm_scan *o = &op->ssm_scan;
    const mo_dslice *slices = box_at(b, o->slices);
    const mo_acts mixed = box_acts_at(b, &o->mixed);
    const int64_t group = o->inner / o->groups;
    for (int64_t i = 0; i < o->slice_count * (int64_t)o->inner; i++) {
        scan_channel(b, o, &slices[i / o->inner], i % o->inner);
    }
    for (int64_t t = 0; t < o->tokens; t++) {
        float *row = mixed.x + t * o->inner;
        for (int64_t g = 0; o->heads && g < o->groups; g++) {
            K.rms_norm(row + g * group, row + g * group, (const float *)box_at(b, o->norm) + g * group, group,
                       o->eps);
        }
        assert_true(K.finite(row, o->inner));
        box_quantize(&mixed, t);
    }
}

static void reference_ssm_scan(box *b, const mo_op *op)
{
    const mo_op_ssm_scan *o = &op->ssm_scan;
    reference_state(b, op, o->slices, o->slice_count, (int64_t)o->inner * o->states, o->state, move_ssm_scan);
}

const device_case mixer_cases[] = {
    {"heads", 90, build_heads, reference_heads},
    {"attend", 99, build_attend, reference_attend},
    {"latent", 24, build_latent, reference_latent},
    {"index", 24, build_index, reference_index},
    {"keep", 24, build_keep, reference_keep},
    {"gather", 24, build_gather, reference_gather},
    {"attend", 24, build_latent_attend, reference_latent_attend},
    {"attend", 6, build_latent_tiles, reference_latent_attend},
    {"collect", 20, build_collect, reference_collect},
    {"convolve", 99, build_convolve, reference_convolve},
    {"recur", 99, build_recur, reference_recur},
    {"short conv", 99, build_short_conv, reference_short_conv},
    {"ssm convolve", 99, build_ssm_convolve, reference_ssm_convolve},
    {"ssm parts", 35, build_ssm_parts, reference_ssm_parts},
    {"ssm scan", 132, build_ssm_scan, reference_ssm_scan},
    {NULL, 0, NULL, NULL},
};
