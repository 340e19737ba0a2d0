/* The kernels around the products (stream, choice, attention, delta rule), run thread by thread on the CPU, against
 * the same op on the host with the scalar kernels: every byte of everything that either of them can reach. Ops are
 * drawn at random; a failure names the draw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_emulation/emulated.h"
#include "device/cuda/launch.h"
#include "device/host/run.h"
#include "numeric/half.h"
#include "numeric/kinds.h"
#include "numeric/math.h"
#include "random.h"

/* ---- Memory that both runs see ---------------------------------------------------------------- */

enum { ROOM = 48 << 20 };

static struct {
    uint8_t *memory, *before, *after;
    size_t used;
    size_t ignored, ignored_bytes; /* an op's own room */
    const uint32_t *bad; /* heads: what is in the cache when something did not fit is nobody's business */
    uint64_t seed;
} b;

static void *take(int64_t bytes)
{
    uint8_t *p = b.memory + b.used;
    b.used += ((size_t)bytes + 2 * MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    assert_true(b.used <= ROOM);
    memset(p, 0xA5, (size_t)(b.memory + b.used - p));
    return p;
}

static mo_daddr at(const void *p)
{
    return (uintptr_t)p;
}

static int below(int limit)
{
    return (int)random_below(&b.seed, limit);
}

static bool chance(int percent)
{
    return below(100) < percent;
}

#define ONE_OF(...)                                                                                          \
    ((const int[]){__VA_ARGS__}[below((int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))])

/* Plain values mostly; now and then zeros of both signs, ties, tiny and large ones. */
static float value(int flavour)
{
    static const float special[] = {0.0f,       -0.0f,     1.0f,  -1.0f,  0x1p-149f,
                                    -0x1p-130f, 0x1p-101f, 30.0f, -95.0f, 7.0f};
    if (flavour == 1 && chance(30)) {
        return special[below((int)(sizeof special / sizeof *special))];
    }
    return flavour == 2 ? ldexpf(random_normal(&b.seed), below(60) - 50) : random_normal(&b.seed);
}

static float *filled(int64_t count)
{
    float *x = take(count * 4);
    const int flavour = below(3);
    for (int64_t i = 0; i < count; i++) {
        x[i] = value(flavour);
    }
    return x;
}

static mo_daddr floats(int64_t count)
{
    return at(filled(count));
}

static mo_daddr floats_or_none(int64_t count)
{
    return chance(50) ? floats(count) : 0;
}

static mo_daddr zero_word(void)
{
    return at(memset(take(4), 0, 4));
}

static mo_dacts acts(int64_t rows, int cols)
{
    const int64_t blocks = (cols + 31) / 32;
    return (mo_dacts){.x = at(take(rows * cols * 4)),
                      .q = at(take(rows * cols)),
                      .d = at(take(rows * blocks * 4)),
                      .s = at(take(rows * blocks * 4)),
                      .sum = at(take(rows * blocks * 4)),
                      .half_sum = at(take(rows * blocks * 4)),
                      .cols = cols};
}

static void begin(uint64_t draw)
{
    b.used = b.ignored_bytes = 0;
    b.bad = NULL;
    b.seed = draw * 0x9E3779B97F4A7C15u + 1;
}

static void *same(void *user, mo_daddr address, int64_t bytes)
{
    (void)user;
    (void)bytes;
    return (void *)(uintptr_t)address;
}

/* Runs the op in both ways from the same memory and compares what they leave. */
static void check_on(int compute, const mo_op *op, uint64_t draw, const char *what)
{
    static mo_scratch scratch;
    const mo_op_host host = {.kernels = &mo_kernels_scalar, .resolve = same};
    mo_error err = {0};
    memcpy(b.before, b.memory, b.used);
    mo_emulated_op(op, compute);
    memcpy(b.after, b.memory, b.used);
    memcpy(b.memory, b.before, b.used);
    if (mo_op_run(&host, op, &scratch, &err) != MO_OK) {
        fail_msg("%s, draw %llu: %s", what, (unsigned long long)draw, err.detail);
    }
    const size_t bad = b.bad && *b.bad ? (size_t)((const uint8_t *)b.bad - b.memory) : 0;
    for (size_t i = bad; i < (bad ? bad + 4 : b.used); i++) {
        const bool own = i >= b.ignored && i < b.ignored + b.ignored_bytes;
        if (b.memory[i] != b.after[i] && !own) {
            fail_msg("%s, draw %llu: byte %zu is %02x, should be %02x", what, (unsigned long long)draw, i,
                     b.after[i], b.memory[i]);
        }
    }
}

static void check(const mo_op *op, uint64_t draw, const char *what)
{
    check_on(ONE_OF(75, 80, 86, 90), op, draw, what);
}

/* How many draws of each op; MO_TEST_DRAWS multiplies, MO_TEST_DRAW runs one. */
static void draws(int count, void (*draw)(uint64_t))
{
    const char *one = getenv("MO_TEST_DRAW"), *more = getenv("MO_TEST_DRAWS");
    if (one) {
        draw(strtoull(one, NULL, 10));
        return;
    }
    for (int i = 0; i < count * (more ? atoi(more) : 1); i++) {
        draw((uint64_t)i);
    }
}

/* ---- Stream ----------------------------------------------------------------------------------- */

static void draw_feed(mo_op_stream *o)
{
    const int64_t tokens = o->tokens, n = o->n;
    o->used = ONE_OF(0, 1, 4, 8, 10, 17);
    if (o->used) {
        int32_t *ids = take(tokens * o->used * 4), *row_of = take(tokens * o->used * 4);
        for (int i = 0; i < (int)tokens * o->used; i++) {
            ids[i] = chance(10) ? -1 : below(100);
            row_of[i] = (int)tokens * o->used - 1 - i;
        }
        o->ids = at(ids);
        o->row_of = chance(50) ? at(row_of) : 0;
        o->weights = floats(tokens * o->used);
        o->down = floats(tokens * o->used * n);
    }
    o->dense = floats_or_none(tokens * n);
    o->shared = floats_or_none(tokens * n);
    o->shared_gate = floats_or_none(tokens);
    o->dense_norm = floats_or_none(n);
    o->moe_norm = floats_or_none(n);
    o->post_norm = floats_or_none(n);
}

static void draw_stream(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_STREAM};
    mo_op_stream *o = &op.stream;
    o->tokens = ONE_OF(1, 1, 2, 3);
    o->n = ONE_OF(1, 7, 30, 32, 64, 100, 96, 2048, 2880, 4096, 4100, 5120, 16384);
    o->eps = 1e-5f;
    o->x = floats((int64_t)o->tokens * o->n);
    o->feed = below(3);
    if (o->feed) {
        draw_feed(o);
    } else {
        o->y = floats_or_none((int64_t)o->tokens * o->n);
        o->y_norm = floats_or_none(o->n);
    }
    o->out_scale = floats_or_none(1);
    o->bad = chance(80) ? zero_word() : 0;
    o->centered = chance(30);
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (chance(60)) {
            o->norm[i] = (mo_op_norm){.weight = floats_or_none(o->n),
                                      .multiply = chance(30) ? floats(o->n) : 0,
                                      .scale = chance(50) ? 1.0f : 0.3f,
                                      .out = acts(o->tokens, o->n)};
        }
    }
    if (chance(40)) {
        mo_dplace *places = take(o->tokens * (int64_t)sizeof *places);
        o->features = floats((int64_t)o->tokens * o->n);
        o->places = at(places);
        for (int t = 0; t < o->tokens; t++) {
            places[t] = (mo_dplace){.added = below(2)};
        }
    }
    if (o->n % 4 == 0 && chance(20)) { /* one that does not begin where quads do */
        memmove((void *)(uintptr_t)(o->x + 4), (void *)(uintptr_t)o->x, (size_t)o->tokens * (size_t)o->n * 4);
        o->x += 4;
    }
    if (chance(10)) {
        ((float *)(uintptr_t)o->x)[below(o->n)] = chance(50) ? INFINITY : -INFINITY;
        memset(o->norm, 0, sizeof o->norm); /* codes of what is no number are not defined */
    }
    check(&op, draw, "stream");
}

static void draw_activate(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_ACTIVATE};
    mo_op_activate *o = &op.activate;
    o->rows = ONE_OF(1, 2, 5);
    o->n = ONE_OF(1, 30, 32, 36, 96, 768, 1024, 1056, 2880);
    o->activation = below(6);
    o->limit = below(2) ? 0.25f : 7.0f;
    o->gate = floats((int64_t)o->rows * o->n);
    o->up = floats((int64_t)o->rows * o->n);
    o->hidden = acts(o->rows, o->n);
    check(&op, draw, "activate");
}

static void draw_logits(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_LOGITS};
    op.logits = (mo_op_logits){
        .count = ONE_OF(1, 255, 257, 1000, 5001), .bad = zero_word(), .cap = chance(50) ? 30.0f : 0.0f};
    if (chance(60)) {
        const int rows = 1 + below(3);
        op.logits.cols = (int32_t)op.logits.count;
        op.logits.count *= rows;
        uint64_t *best = take(8 * rows);
        memset(best, 0, sizeof *best * (size_t)rows);
        op.logits.best = at(best);
    }
    op.logits.x = floats(op.logits.count);
    if (chance(30) && op.logits.cap == 0.0f) {
        ((float *)(uintptr_t)op.logits.x)[below((int)op.logits.count)] = INFINITY;
    }
    check(&op, draw, "logits");
}

static void draw_publish(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_PUBLISH};
    mo_op_publish *o = &op.publish;
    o->ranges = 1 + below(MO_OP_RANGES);
    for (int i = 0; i < o->ranges; i++) {
        const int64_t count = draw % 5 == 4 ? 4000 + below(9000) : below(2000);
        o->bytes[i] = 4 * count;
        o->from[i] = floats(count + 4) + (chance(30) ? 4 : 0);
        o->to[i] = at(take(o->bytes[i]));
    }
    o->sequence = floats(1);
    o->flag = zero_word();
    check(&op, draw, "publish");
}

static void draw_await(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_AWAIT};
    mo_op_await *o = &op.await;
    o->n = ONE_OF(1, 30, 32, 100, 2048);
    o->most = ONE_OF(1, 10, 300);
    mo_dreply *reply = take((int64_t)sizeof *reply + o->most * 4);
    uint32_t *sequence = take(4);
    *sequence = 77;
    *reply = (mo_dreply){.flag = chance(80) ? 77 : 76, .count = below(o->most + 1)};
    reply->abort = reply->flag != 77;
    for (int i = 0; i < reply->count; i++) {
        reply->row[i] = o->most - 1 - i;
    }
    o->reply = at(reply);
    o->sequence = at(sequence);
    o->from = floats((int64_t)o->most * o->n);
    o->to = floats((int64_t)o->most * o->n);
    o->bad = zero_word();
    check(&op, draw, "await");
}

/* ---- Choice ----------------------------------------------------------------------------------- */

static void draw_choose(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_CHOOSE};
    mo_op_choose *o = &op.choose;
    o->tokens = ONE_OF(1, 1, 2, 5, 130);
    o->experts = ONE_OF(1, 4, 8, 32, 40, 60, 128, 256, 512, 1024);
    o->experts = o->tokens > 100 ? 40 : o->experts;
    do {
        o->used = ONE_OF(1, 2, 4, 8, 10, 33, 64);
    } while (o->used > o->experts);
    o->gating = 1 + below(3);
    o->normalize = below(2);
    o->scale = chance(50) ? 1.0f : 2.5f;
    o->groups = o->experts % 4 == 0 ? ONE_OF(0, 1, 2, 4) : 1;
    o->groups_used = o->groups > 1 ? 1 + below(o->groups) : 1;
    float *scores = filled((int64_t)o->tokens * o->experts);
    for (int i = 0; draw % 3 == 0 && i < o->tokens * o->experts; i++) { /* many ties */
        scores[i] = (float)below(3) - 1.0f;
    }
    o->scores = at(scores);
    o->select_bias = floats_or_none(o->experts);
    o->ids = at(take((int64_t)o->tokens * o->used * 4));
    o->weights = at(take((int64_t)o->tokens * o->used * 4));
    if (chance(70)) {
        mo_daddr *table = take(o->experts * 8);
        const int share = ONE_OF(0, 50, 100);
        for (int i = 0; i < o->experts; i++) {
            table[i] = chance(share) ? (mo_daddr)(1 + i) << 20 : 0;
        }
        o->table = at(table);
        o->work = at(
            take((int64_t)sizeof(mo_dwork) + (int64_t)o->tokens * o->used * (int64_t)sizeof(mo_dwork_item)));
    }
    check(&op, draw, "choose");
}

/* Numbers that are none choose experts that exist. */
static void choice_of_no_numbers(void **state)
{
    (void)state;
    begin(1);
    mo_op op = {.kind = MO_OP_CHOOSE};
    mo_op_choose *o = &op.choose;
    *o = (mo_op_choose){.tokens = 1, .experts = 64, .used = 8, .gating = 1, .normalize = 1, .scale = 1.0f};
    float *scores = filled(64);
    scores[9] = NAN;
    int32_t *ids = take(8 * 4);
    o->scores = at(scores);
    o->ids = at(ids);
    o->weights = at(take(8 * 4));
    mo_emulated_op(&op, 90);
    for (int i = 0; i < 8; i++) {
        assert_in_range(ids[i], 0, 63);
    }
}

static void draw_arrange(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_ARRANGE};
    mo_op_arrange *o = &op.arrange;
    o->tokens = ONE_OF(1, 2, 9, 64, 600);
    o->experts = ONE_OF(1, 4, 32, 128, 512, 1024);
    o->used = o->experts < 8 ? 1 : ONE_OF(1, 4, 8);
    o->limit = o->experts + below(3);
    o->up_at = 1 << 12;
    o->down_at = 1 << 13;
    const int64_t rows = (int64_t)o->tokens * o->used;
    int32_t *ids = take(rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = below(draw % 3 ? o->experts : 1 + o->experts / 8);
    }
    mo_daddr *table = take(o->experts * INT64_C(8));
    for (int i = 0; i < o->experts; i++) {
        table[i] = (mo_daddr)(1 + i) << 20;
    }
    o->ids = at(ids);
    o->table = at(table);
    o->groups = at(take(3 * o->limit * (int64_t)sizeof(mo_dgroup)));
    o->picks = at(take(rows * 4));
    o->row_of = at(take(rows * 4));
    o->counts = at(take(o->experts * INT64_C(4)));
    check(&op, draw, "arrange");
}

/* ---- Attention -------------------------------------------------------------------------------- */

/* Sessions with some tokens each, and the cache of layer 1. */
typedef struct sessions {
    int tokens, slice_count;
    mo_dplace *places;
    mo_dslice *slices;
    int64_t last; /* most positions */
} sessions;

static sessions draw_sessions(int slices, int most, int64_t limit)
{
    sessions s = {.slice_count = slices};
    s.slices = take(slices * (int64_t)sizeof *s.slices);
    s.places = take(slices * most * (int64_t)sizeof *s.places);
    for (int i = 0; i < slices; i++) {
        mo_dstate *layers = take(2 * (int64_t)sizeof *layers);
        mo_dslice *slice = &s.slices[i];
        memset(layers, 0, 2 * sizeof *layers);
        *slice = (mo_dslice){.layers = at(layers), .first = s.tokens, .count = 1 + below(most)};
        slice->position = random_below(&b.seed, limit - slice->count);
        for (int j = 0; j < slice->count; j++) {
            s.places[s.tokens++] =
                (mo_dplace){.layers = at(layers), .position = slice->position + j, .slice = i, .into = j};
        }
        s.last = slice->position + slice->count > s.last ? slice->position + slice->count : s.last;
    }
    return s;
}

typedef struct lengths {
    int heads, kv_heads, k_len, v_len;
    int tail; /* of latent rows; 0: they are none */
    mo_kv_type kv;
} lengths;

static void put_codes(const mo_kv_head *kv, int64_t u, bool value, const float *x, int n)
{
    uint8_t row[2 * 1024 + sizeof(float)];
    float scale;
    const int planes = mo_kv_planes(kv->type);
    mo_kernels_scalar.code(x, n, (int8_t *)row, planes == 2 ? (int8_t *)row + n : NULL, &scale);
    memcpy(row + planes * n, &scale, sizeof scale);
    mo_kv_codes_in(kv, u, value, row);
}

/* Blocks in another order than the table's, or in its own. */
static void make_cache(const sessions *s, const lengths *n, int64_t window, int batch)
{
    const mo_kv_shape shape = {
        .type = n->kv, .heads = n->kv_heads, .k_len = n->k_len, .v_len = n->v_len, .tail = n->tail};
    const int64_t bytes = mo_kv_block_bytes(shape);
    for (int i = 0; i < s->slice_count; i++) {
        mo_dstate *layer = (mo_dstate *)(uintptr_t)s->slices[i].layers + 1;
        layer->length = window ? mo_kv_table_length(1 << 20, window, batch)
                               : mo_kv_table_length(s->last + below(3), 0, batch);
        const bool even = below(2) == 1;
        uint8_t *memory = take(layer->length * bytes),
                **blocks = take(layer->length * (int64_t)sizeof *blocks);
        for (int64_t e = 0; e < layer->length; e++) {
            blocks[e] = memory + (even ? e : layer->length - 1 - e) * bytes;
        }
        layer->first = even ? at(memory) : 0;
        layer->stride = even ? bytes : 0;
        for (int h = 0; h < n->kv_heads; h++) {
            const mo_kv_head kv = mo_kv_head_of(shape, h, blocks, layer->length);
            float x[1024];
            for (int64_t u = 0; u < layer->length * MO_KV_BLOCK; u++) {
                for (int j = 0; j < n->k_len || j < n->v_len; j++) {
                    x[j] = random_normal(&b.seed);
                }
                if (mo_kv_coded(n->kv)) {
                    put_codes(&kv, u, false, x, n->tail ? n->tail : n->k_len);
                    put_codes(&kv, u, true, x, n->v_len);
                    continue;
                }
                memcpy(mo_kv_key(&kv, u), x, (size_t)kv.k_bytes);
                if (!n->tail) {
                    memcpy(mo_kv_value(&kv, u), x, (size_t)kv.v_bytes);
                }
            }
        }
        layer->blocks = at(blocks); /* addresses of the emulated device are the host's */
    }
}

static lengths draw_lengths(void)
{
    lengths n = {.kv_heads = ONE_OF(1, 2), .kv = (mo_kv_type)below(MO_KV_TYPES)};
    n.heads = n.kv_heads * ONE_OF(1, 2, 3, 8, 9, 16);
    n.k_len = ONE_OF(64, 64, 128, 256, 16, 40, 96);
    n.v_len = n.k_len == 96 ? 64 : n.k_len == 40 ? 24 : n.k_len;
    if (mo_kv_coded(n.kv) && chance(40)) { /* lengths that have kernels of their own there, and the longest */
        n.k_len = n.v_len = ONE_OF(80, 96, 512);
        n.k_len = chance(20) ? 576 : n.k_len;
    }
    return n;
}

static void draw_heads(uint64_t draw)
{
    begin(draw);
    const lengths n = draw_lengths();
    const sessions s = draw_sessions(ONE_OF(1, 2), 4, 600);
    const int64_t window = chance(30) ? 20 : 0;
    make_cache(&s, &n, window, 4);
    mo_op op = {.kind = MO_OP_HEADS};
    mo_op_heads *o = &op.heads;
    *o = (mo_op_heads){.places = at(s.places),
                       .tokens = s.tokens,
                       .layer = 1,
                       .heads = n.heads,
                       .kv_heads = n.kv_heads,
                       .k_len = n.k_len,
                       .v_len = n.v_len,
                       .kv = (int)n.kv,
                       .eps = 1e-6f};
    o->n_rot = chance(60) ? n.k_len : n.k_len / 4 * 2;
    o->neox = below(2);
    o->gated = below(2);
    o->norm_all = chance(20);
    o->v_norm = below(2);
    o->v_from_k = n.v_len <= n.k_len && chance(30);
    o->q = floats((int64_t)s.tokens * n.heads * n.k_len * (o->gated ? 2 : 1));
    o->k = floats((int64_t)s.tokens * n.kv_heads * n.k_len);
    o->v = floats((int64_t)s.tokens * n.kv_heads * n.v_len);
    o->q_norm = floats_or_none(n.k_len * (o->norm_all ? n.heads : 1));
    o->k_norm = floats_or_none(n.k_len * (o->norm_all ? n.kv_heads : 1));
    o->rope_rows = s.tokens + below(2);
    o->rope_stride = o->n_rot / 2 + below(2);
    o->rope = floats_or_none(2 * o->rope_rows * o->rope_stride);
    o->q_factor = floats_or_none(s.tokens);
    o->bad = zero_word();
    b.bad = (const uint32_t *)(uintptr_t)o->bad;
    check(&op, draw, "heads");
}

static lengths draw_latent_lengths(void)
{
    lengths n = {.kv_heads = 1, .kv = (mo_kv_type)below(MO_KV_TYPES), .heads = ONE_OF(1, 3, 16, 20)};
    n.v_len = ONE_OF(32, 64, 24, 512);
    n.tail = ONE_OF(16, 32, 8, 64);
    n.k_len = n.v_len + n.tail;
    return n;
}

static void draw_latent(uint64_t draw)
{
    begin(draw);
    const lengths n = draw_latent_lengths();
    const sessions s = draw_sessions(ONE_OF(1, 2), 4, 600);
    const int plain = ONE_OF(16, 32, 64);
    make_cache(&s, &n, 0, 4);
    mo_op op = {.kind = MO_OP_LATENT};
    mo_op_latent *o = &op.latent;
    *o = (mo_op_latent){.places = at(s.places),
                        .tokens = s.tokens,
                        .layer = 1,
                        .heads = n.heads,
                        .v_len = n.v_len,
                        .n_rot = n.tail,
                        .kv = (int)n.kv,
                        .eps = 1e-6f,
                        .data = {4096, 8192},
                        .part_bytes = {512, 256}};
    o->q = floats((int64_t)s.tokens * n.heads * (plain + n.tail));
    o->k = floats((int64_t)s.tokens * n.k_len);
    o->norm = floats(n.v_len);
    o->rope_rows = s.tokens + below(2);
    o->rope_stride = n.tail / 2 + below(2);
    o->rope = floats_or_none(2 * o->rope_rows * o->rope_stride);
    o->q_factor = floats_or_none(s.tokens);
    o->plain = acts((int64_t)s.tokens * n.heads, plain);
    o->query = floats((int64_t)s.tokens * n.heads * n.k_len);
    o->groups = at(take(2 * n.heads * (int64_t)sizeof(mo_dgroup)));
    o->bad = zero_word();
    b.bad = (const uint32_t *)(uintptr_t)o->bad;
    check(&op, draw, "latent");
}

static void draw_collect(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_COLLECT};
    mo_op_collect *o = &op.collect;
    *o = (mo_op_collect){.tokens = ONE_OF(1, 4, 9), .heads = ONE_OF(1, 4, 20), .n = ONE_OF(8, 24, 32, 128)};
    o->out = acts(o->tokens, o->heads * o->n);
    o->from = floats((int64_t)o->tokens * o->heads * o->n);
    o->by_token = below(2);
    if (below(3)) {
        o->each = below(2);
        o->kind = below(2);
        o->gate = floats((int64_t)o->tokens * o->heads * (o->each ? o->n : 1));
    }
    check(&op, draw, "collect");
}

/* Over latent rows, of some or all tokens of a step. */
static void check_latent_attend(int compute, const sessions *drawn, lengths n, uint64_t draw)
{
    const sessions s = *drawn;
    make_cache(&s, &n, 0, 12);
    mo_op op = {.kind = MO_OP_ATTEND};
    mo_op_attend *o = &op.attend;
    *o = (mo_op_attend){.places = at(s.places),
                        .tokens = s.tokens,
                        .layer = 1,
                        .heads = n.heads,
                        .kv_heads = 1,
                        .k_len = n.k_len,
                        .v_len = n.v_len,
                        .kv = (int)n.kv,
                        .scale = 0.2f,
                        .tail = n.tail,
                        .between = s.tokens + below(3)};
    const int64_t rows = (n.heads - 1) * o->between + s.tokens;
    o->chunks = (int)(s.last / mo_kv_chunk(n.kv)) + 1 + below(3);
    o->q = floats(rows * n.k_len);
    const int64_t few = s.tokens < MO_OP_SMALL ? s.tokens : MO_OP_SMALL;
    const int64_t room = few * o->chunks * n.heads * mo_kv_partial(n.kv, n.v_len) * 4;
    o->partial = at(take(room));
    b.ignored = (size_t)(o->partial - at(b.memory));
    b.ignored_bytes = (size_t)room;
    o->mixed = acts(rows, n.v_len);
    check_on(compute, &op, draw, "attend latent rows");
}

static void draw_latent_attend(uint64_t draw)
{
    begin(draw);
    const lengths n = draw_latent_lengths();
    const bool many = chance(40);
    const sessions s = draw_sessions(ONE_OF(1, 1, 2), many ? 12 : 2, ONE_OF(20, 300, 600));
    check_latent_attend(ONE_OF(75, 80, 86, 90), &s, n, draw);
}

/* Tiles of queries: some tokens in one, or some of a token's heads. */
static void draw_latent_tiles(uint64_t draw)
{
    begin(draw);
    lengths n = {.kv_heads = 1,
                 .kv = chance(30) ? MO_KV_Q8_0 : MO_KV_I16,
                 .heads = ONE_OF(2, 16, 20, 70),
                 .v_len = 512,
                 .tail = 64,
                 .k_len = 576};
    const sessions s = draw_sessions(ONE_OF(1, 1, 3), 14, ONE_OF(20, 300, 600));
    if (s.tokens > MO_OP_SMALL) {
        check_latent_attend(ONE_OF(90, 90, 100), &s, n, draw);
    }
}

/* Some neighbours of each slice become rows of a picture, which see each other in layers with a window. */
static void place_pictures(const sessions *s)
{
    for (int i = 0; i < s->slice_count; i++) {
        const mo_dslice *slice = &s->slices[i];
        const int from = below(slice->count), to = from + below(slice->count - from);
        for (int j = from; j <= to; j++) {
            s->places[slice->first + j].ahead = to - j;
        }
    }
}

/* more: chunks that the op is told of and no token has, as programs for longer texts have them. */
static void draw_attend_of(uint64_t draw, const sessions *s, lengths n, int64_t window, int more)
{
    mo_op op = {.kind = MO_OP_ATTEND};
    mo_op_attend *o = &op.attend;
    if (chance(50)) {
        place_pictures(s);
    }
    *o = (mo_op_attend){.places = at(s->places),
                        .window = window,
                        .tokens = s->tokens,
                        .layer = 1,
                        .heads = n.heads,
                        .kv_heads = n.kv_heads,
                        .k_len = n.k_len,
                        .v_len = n.v_len,
                        .kv = (int)n.kv,
                        .scale = 0.2f};
    o->gated = below(2);
    o->chunks = (int)(s->last / mo_kv_chunk(n.kv)) + 1 + below(3) + more;
    o->q = floats((int64_t)s->tokens * n.heads * n.k_len * (o->gated ? 2 : 1));
    o->sinks = floats_or_none(n.heads);
    o->apart = s->tokens > MO_OP_SMALL && s->tokens == s->slice_count;
    const int64_t few = s->tokens < MO_OP_SMALL || o->apart ? s->tokens : MO_OP_SMALL;
    const int64_t room = few * o->chunks * n.heads * mo_kv_partial(n.kv, n.v_len) * 4;
    o->partial = at(take(room));
    b.ignored = (size_t)(o->partial - at(b.memory));
    b.ignored_bytes = (size_t)room;
    o->mixed = acts(s->tokens, n.heads * n.v_len);
    check(&op, draw, "attend");
}

static void draw_attend(uint64_t draw)
{
    begin(draw);
    const lengths n = draw_lengths();
    const sessions s = draw_sessions(ONE_OF(1, 1, 2), ONE_OF(1, 4), ONE_OF(20, 300, 1100));
    const int64_t window = chance(30) ? ONE_OF(1, 100, 300) : 0;
    make_cache(&s, &n, window, 4);
    draw_attend_of(draw, &s, n, window, 0);
}

/* After so many chunks that what they leave is merged by way of shared memory. */
static void draw_attend_far(uint64_t draw)
{
    begin(draw);
    const bool farther = draw % 4 == 0; /* than a block has threads */
    lengths n = {.kv_heads = ONE_OF(1, 2), .kv = chance(30) ? MO_KV_Q8_0 : MO_KV_I16};
    n.heads = n.kv_heads * ONE_OF(1, 3);
    n.k_len = n.v_len = farther ? 32 : ONE_OF(64, 96, 128, 256);
    sessions s = draw_sessions(ONE_OF(1, 2), 1, ONE_OF(300, 4300, 6000));
    s.places[0].position = farther ? 16500 + below(300) : s.places[0].position;
    s.last = s.last > s.places[0].position + 1 ? s.last : s.places[0].position + 1;
    make_cache(&s, &n, 0, 1);
    draw_attend_of(draw, &s, n, 0, 33);
}

/* Many tokens: tiles of queries. */
static void draw_attend_many(uint64_t draw)
{
    begin(draw);
    lengths n = draw_lengths();
    const sessions s = draw_sessions(ONE_OF(1, 1, 3), 40, ONE_OF(60, 400, 900));
    const int64_t window = chance(30) ? ONE_OF(1, 100, 300) : 0;
    if (s.tokens <= 8) {
        return;
    }
    n.heads = n.heads > 9 ? n.kv_heads : n.heads;
    make_cache(&s, &n, window, 40);
    draw_attend_of(draw, &s, n, window, 0);
}

/* Many sessions with a token each. */
static void draw_attend_apart(uint64_t draw)
{
    begin(draw);
    lengths n = draw_lengths();
    const sessions s = draw_sessions(ONE_OF(9, 12, 17), 1, ONE_OF(60, 400, 600));
    const int64_t window = chance(30) ? ONE_OF(1, 100, 300) : 0;
    n.heads = n.heads > 9 ? n.kv_heads : n.heads;
    make_cache(&s, &n, window, 1);
    draw_attend_of(draw, &s, n, window, 0);
}

/* ---- Heads and attention as one kernel ---- */

/* What both ops have in common, and where each finds the others' results. */
static void draw_pair(const sessions *s, lengths n, int64_t window, int more, mo_op ops[2])
{
    const int64_t tokens = s->tokens, gates = 1 + below(2);
    mo_op_heads *h = &ops[0].heads;
    mo_op_attend *o = &ops[1].attend;
    ops[0].kind = MO_OP_HEADS;
    ops[1].kind = MO_OP_ATTEND;
    *h = (mo_op_heads){.places = at(s->places),
                       .tokens = s->tokens,
                       .layer = 1,
                       .heads = n.heads,
                       .kv_heads = n.kv_heads,
                       .k_len = n.k_len,
                       .v_len = n.v_len,
                       .kv = (int)n.kv,
                       .eps = 1e-6f,
                       .gated = gates == 2,
                       .neox = below(2),
                       .v_norm = below(2),
                       .v_from_k = chance(20),
                       .norm_last = chance(20)};
    h->n_rot = ONE_OF(n.k_len, n.k_len / 2, n.k_len / 4, 6);
    h->q = floats(tokens * n.heads * n.k_len * gates);
    h->k = floats(tokens * n.kv_heads * n.k_len);
    h->v = floats(tokens * n.kv_heads * n.v_len);
    h->q_norm = floats_or_none(n.k_len);
    h->k_norm = floats_or_none(n.k_len);
    h->rope_rows = s->tokens + below(2);
    h->rope_stride = h->n_rot / 2 + below(2);
    h->rope = chance(80) ? floats(2 * h->rope_rows * h->rope_stride) : 0;
    h->q_factor = floats_or_none(s->tokens);
    h->bad = zero_word();
    *o = (mo_op_attend){.q = h->q,
                        .sinks = floats_or_none(n.heads),
                        .places = h->places,
                        .window = window,
                        .tokens = s->tokens,
                        .layer = 1,
                        .heads = n.heads,
                        .kv_heads = n.kv_heads,
                        .k_len = n.k_len,
                        .v_len = n.v_len,
                        .gated = gates == 2,
                        .kv = (int)n.kv,
                        .chunks = (int)(s->last / mo_kv_chunk(n.kv)) + 1 + more,
                        .scale = 0.2f};
    o->apart = s->tokens == s->slice_count && chance(50);
    const int64_t room = tokens * o->chunks * n.heads * mo_kv_partial(n.kv, n.v_len) * 4;
    o->partial = at(take(room));
    b.ignored = (size_t)(o->partial - at(b.memory));
    b.ignored_bytes = (size_t)room;
    o->mixed = acts(tokens, n.heads * n.v_len);
}

/* Queries, keys and values stay as they were where the ops go together: on the host they become so again. */
static void forget(const mo_op_heads *h)
{
    const int64_t floats_in[] = {(int64_t)h->tokens * h->heads * h->k_len * (h->gated ? 2 : 1),
                                 (int64_t)h->tokens * h->kv_heads * h->k_len,
                                 (int64_t)h->tokens * h->kv_heads * h->v_len};
    const mo_daddr parts[] = {h->q, h->k, h->v};
    for (int i = 0; i < 3; i++) {
        const size_t from = (size_t)(parts[i] - at(b.memory));
        memcpy(b.memory + from, b.before + from, (size_t)floats_in[i] * sizeof(float));
    }
}

/* The name of the first kernel; NULL: the ops go alone, and that is all that is known then. */
static const char *check_pair(int compute, const mo_op ops[2], uint64_t draw)
{
    static mo_scratch scratch;
    const mo_op_host host = {.kernels = &mo_kernels_scalar, .resolve = same};
    mo_cuda_fresh joined;
    mo_cuda_launch launches[2];
    mo_error err = {0};
    const int count = mo_cuda_launch_fresh(&ops[0], &ops[1], compute, ONE_OF(4, 4, 132), &joined, launches);
    if (count == 0) {
        return NULL;
    }
    memcpy(b.before, b.memory, b.used);
    for (int i = 0; i < count; i++) {
        size_t bytes;
        const void *args = i == 0 ? (const void *)&joined : &joined.attend;
        mo_emulated_launch(launches[i].kernel, mo_emulated_find(launches[i].kernel, &bytes), args,
                           launches[i].grid, launches[i].block, launches[i].shared);
    }
    memcpy(b.after, b.memory, b.used);
    memcpy(b.memory, b.before, b.used);
    for (int i = 0; i < 2; i++) {
        if (mo_op_run(&host, &ops[i], &scratch, &err) != MO_OK) {
            fail_msg("heads and attention, draw %llu: %s", (unsigned long long)draw, err.detail);
        }
    }
    forget(&ops[0].heads);
    const uint32_t *bad = (const uint32_t *)(uintptr_t)ops[0].heads.bad;
    if (*bad) { /* then nobody reads the rest */
        assert_int_equal(*(b.after + (ops[0].heads.bad - at(b.memory))), 1);
        return launches[0].kernel;
    }
    for (size_t i = 0; i < b.used; i++) {
        const bool own = i >= b.ignored && i < b.ignored + b.ignored_bytes;
        if (b.memory[i] != b.after[i] && !own) {
            fail_msg("heads and attention (%s), draw %llu: byte %zu is %02x, should be %02x",
                     launches[0].kernel, (unsigned long long)draw, i, b.after[i], b.memory[i]);
        }
    }
    return launches[0].kernel;
}

static struct {
    int chunk, stream, alone;
} pairs;

static void count_pair(const char *kernel)
{
    *(!kernel                                       ? &pairs.alone
      : strncmp(kernel, "mo_heads_stream", 15) == 0 ? &pairs.stream
                                                    : &pairs.chunk) += 1;
}

static void draw_heads_attend_some(uint64_t draw)
{
    begin(draw);
    lengths n = {.kv_heads = ONE_OF(1, 2), .kv = ONE_OF(MO_KV_I16, MO_KV_I16, MO_KV_Q8_0)};
    n.heads = n.kv_heads * ONE_OF(1, 2, 3, 8, 9, 16);
    n.k_len = n.v_len = ONE_OF(64, 64, 128, 128, 256);
    const sessions s = draw_sessions(ONE_OF(1, 1, 2), ONE_OF(1, 4), ONE_OF(20, 140, 300, 1100));
    const int64_t window = chance(30) ? ONE_OF(1, 100, 300) : 0;
    make_cache(&s, &n, window, 4);
    if (chance(40)) {
        place_pictures(&s);
    }
    mo_op ops[2];
    draw_pair(&s, n, window, below(3), ops);
    count_pair(check_pair(ONE_OF(75, 80, 86, 90, 90), ops, draw));
}

/* Eight rows to verify, about the beginning of a chunk. */
static void draw_heads_attend_drafts(uint64_t draw)
{
    begin(draw);
    lengths n = {.kv_heads = 1, .kv = ONE_OF(MO_KV_I16, MO_KV_Q8_0), .heads = ONE_OF(1, 4)};
    n.k_len = n.v_len = ONE_OF(64, 128);
    sessions s = draw_sessions(1, 8, 300);
    const int64_t first = (int64_t)MO_KV_BLOCK * ONE_OF(1, 2, 3) - below(9);
    for (int i = 0; i < s.tokens; i++) {
        s.places[i].position = first + i;
    }
    s.slices[0].position = first;
    s.last = first + s.tokens;
    make_cache(&s, &n, 0, 8);
    mo_op ops[2];
    draw_pair(&s, n, 0, below(2), ops);
    count_pair(check_pair(ONE_OF(80, 90, 90), ops, draw));
}

static void draw_heads_attend_far(uint64_t draw)
{
    begin(draw);
    lengths n = {.kv_heads = ONE_OF(1, 2), .kv = chance(30) ? MO_KV_Q8_0 : MO_KV_I16};
    n.heads = n.kv_heads * ONE_OF(1, 3, 8);
    n.k_len = n.v_len = ONE_OF(64, 128, 256);
    const sessions s = draw_sessions(1, ONE_OF(1, 1, 3), ONE_OF(600, 1700));
    make_cache(&s, &n, 0, 1);
    mo_op ops[2];
    draw_pair(&s, n, 0, chance(50) ? 33 : 0, ops);
    count_pair(check_pair(90, ops, draw));
}

/* ---- Delta rule ------------------------------------------------------------------------------- */

static void draw_convolve(uint64_t draw)
{
    begin(draw);
    const sessions s = draw_sessions(ONE_OF(1, 2, 3), ONE_OF(1, 1, 5), 100);
    mo_op op = {.kind = MO_OP_CONVOLVE};
    mo_op_convolve *o = &op.convolve;
    *o = (mo_op_convolve){.places = at(s.places),
                          .slices = at(s.slices),
                          .tokens = s.tokens,
                          .slice_count = s.slice_count,
                          .layer = 1,
                          .k_heads = ONE_OF(1, 2),
                          .v_heads = ONE_OF(2, 4),
                          .head = ONE_OF(8, 32, 40, 128),
                          .taps = ONE_OF(2, 3, 4, 7),
                          .eps = 1e-6f};
    const int64_t channels = (2 * (int64_t)o->k_heads + o->v_heads) * o->head;
    o->before = floats(s.tokens * channels);
    o->after = floats(s.tokens * channels);
    o->weight = floats(o->taps * channels);
    for (int i = 0; i < s.slice_count; i++) {
        ((mo_dstate *)(uintptr_t)s.slices[i].layers)[1].conv = floats((o->taps - 1) * channels);
    }
    o->state = ONE_OF(MO_STATE_MOVES, MO_STATE_STAYS);
    o->decay = ONE_OF(MO_DECAY_HEADS, MO_DECAY_CHANNELS, MO_DECAY_BOUNDED);
    if (o->decay != MO_DECAY_HEADS) {
        o->bound = o->decay == MO_DECAY_BOUNDED ? -5.0f : 0.0f;
        o->gates = floats(s.tokens * mo_delta_gate_values((mo_decay)o->decay, o->v_heads, o->head));
        o->a = floats(o->v_heads);
        o->dt = floats((int64_t)o->v_heads * o->head);
    }
    check(&op, draw, "convolve");
}

static void check_recur(const sessions *drawn, int k_heads, int v_heads, int head, uint64_t draw)
{
    const sessions s = *drawn;
    mo_op op = {.kind = MO_OP_RECUR};
    mo_op_recur *o = &op.recur;
    *o = (mo_op_recur){.slices = at(s.slices),
                       .tokens = s.tokens,
                       .slice_count = s.slice_count,
                       .layer = 1,
                       .k_heads = k_heads,
                       .v_heads = v_heads,
                       .head = head,
                       .tiled = below(2),
                       .paired = below(2),
                       .eps = 1e-6f,
                       .scale = 0.1f};
    const int64_t n = s.tokens, values = (int64_t)o->v_heads * o->head;
    o->after = floats(n * (2 * (int64_t)o->k_heads + o->v_heads) * o->head);
    o->z = floats(n * values);
    o->decay = ONE_OF(MO_DECAY_HEADS, MO_DECAY_CHANNELS);
    const int64_t gates = mo_delta_gate_values((mo_decay)o->decay, v_heads, head);
    o->gates = floats(n * gates);
    for (int64_t i = 0; o->decay == MO_DECAY_CHANNELS && i < n * gates; i++) { /* decays and betas */
        ((float *)(uintptr_t)o->gates)[i] = mo_sigmoid(((float *)(uintptr_t)o->gates)[i]);
    }
    o->a = floats(o->v_heads);
    o->dt = floats(o->v_heads);
    o->norm = floats(o->head);
    o->mixed = acts(n, (int)values);
    for (int h = 0; h < o->v_heads; h++) { /* a state that does not grow without bounds */
        ((float *)(uintptr_t)o->a)[h] = -fabsf(random_normal(&b.seed));
    }
    for (int64_t i = 0; i < n * (2 * (int64_t)o->k_heads + o->v_heads) * o->head; i++) {
        ((float *)(uintptr_t)o->after)[i] = 0.2f * random_normal(&b.seed);
    }
    for (int i = 0; i < s.slice_count; i++) {
        ((mo_dstate *)(uintptr_t)s.slices[i].layers)[1].delta = floats(values * o->head);
    }
    o->state = ONE_OF(MO_STATE_MOVES, MO_STATE_STAYS);
    check(&op, draw, "recur");
}

static void draw_recur(uint64_t draw)
{
    begin(draw);
    const sessions s = draw_sessions(ONE_OF(1, 1, 2), ONE_OF(1, 1, 5, 40), 100);
    check_recur(&s, ONE_OF(1, 2), ONE_OF(2, 4), ONE_OF(128, 128, 8, 32, 40), draw);
}

/* Prompts that leave multiprocessors without work: the kernel that is made for its latency. */
static void draw_recur_few(uint64_t draw)
{
    begin(draw);
    const int heads = ONE_OF(1, 2);
    const sessions s = draw_sessions(3 - heads, ONE_OF(2, 9, 35, 80), 100);
    check_recur(&s, heads == 2 ? ONE_OF(1, 2) : 1, heads, 128, draw);
}

static void draw_short_conv(uint64_t draw)
{
    begin(draw);
    const sessions s = draw_sessions(ONE_OF(1, 2, 3), ONE_OF(1, 1, 5), 100);
    mo_op op = {.kind = MO_OP_SHORT_CONV};
    mo_op_short_conv *o = &op.short_conv;
    *o = (mo_op_short_conv){.places = at(s.places),
                            .slices = at(s.slices),
                            .tokens = s.tokens,
                            .slice_count = s.slice_count,
                            .layer = 1,
                            .channels = ONE_OF(32, 64, 100, 160, 288),
                            .taps = ONE_OF(2, 3, 4, 7)};
    o->in = floats((int64_t)s.tokens * 3 * o->channels);
    o->weight = floats((int64_t)o->taps * o->channels);
    o->mixed = acts(s.tokens, o->channels);
    for (int i = 0; i < s.slice_count; i++) {
        ((mo_dstate *)(uintptr_t)s.slices[i].layers)[1].conv = floats((int64_t)(o->taps - 1) * o->channels);
    }
    o->state = ONE_OF(MO_STATE_MOVES, MO_STATE_STAYS);
    check(&op, draw, "short conv");
}

/* Groups of rows whose numbers are those of experts; the last rows may be nobody's. */
static int draw_groups(mo_op_adapt *o, int experts)
{
    mo_dgroup *groups = take(experts * (int64_t)sizeof *groups);
    int next = 0;
    for (int e = 0; e < experts; e++) {
        const int count = below(4) < 3 ? below(o->rows - next + 1) : 0;
        groups[e] = (mo_dgroup){.expert = experts - 1 - e, .first = next, .count = count};
        next += count;
    }
    o->groups = at(groups);
    o->group_count = experts;
    return experts;
}

static void draw_low(mo_op_adapt *o, int which, int experts)
{
    mo_dlow *l = &o->low[which];
    if (chance(20)) {
        return; /* it has nothing for the matrix */
    }
    *l = (mo_dlow){.rank = ONE_OF(1, 3, 4, 16, 33),
                   .type = ONE_OF(MO_F32, MO_F16, MO_BF16),
                   .alpha = chance(50) ? 0.0f : value(0),
                   .factor = chance(70) ? 0.0f : value(0),
                   .u_at = (int32_t)o->u_stride};
    l->a_bytes = (int64_t)l->rank * o->cols * (l->type == MO_F32 ? 4 : 2);
    l->a_stride = (l->a_bytes + 63) / 64 * 64;
    l->b_stride = (int64_t)l->rank * o->n * 4;
    uint8_t *a = take(experts * l->a_stride);
    for (int64_t i = 0; i < experts * l->a_stride; i += l->type == MO_F32 ? 4 : 2) {
        const float x = random_normal(&b.seed);
        const uint16_t half = l->type == MO_F16 ? mo_f32_to_f16(x) : mo_f32_to_bf16(x);
        memcpy(a + i, l->type == MO_F32 ? (const void *)&x : (const void *)&half, l->type == MO_F32 ? 4 : 2);
    }
    l->a = at(a);
    l->b = floats(experts * (int64_t)l->rank * o->n);
    o->u_stride += l->rank;
}

static void draw_adapt(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = chance(50) ? MO_OP_LOWER : MO_OP_ADAPT};
    mo_op_adapt *o = &op.adapt;
    *o = (mo_op_adapt){
        .tokens = ONE_OF(1, 2, 5, 9), .cols = ONE_OF(1, 31, 32, 64, 100), .n = ONE_OF(1, 16, 100, 130, 288)};
    const bool grouped = chance(50);
    o->rows = grouped ? 2 * o->tokens : o->tokens;
    o->stride = o->n + below(3);
    const int experts = grouped ? draw_groups(o, ONE_OF(1, 3, 40)) : 1, adapters = ONE_OF(1, 2, 5);
    if (grouped) {
        int32_t *pick = take(o->rows * 4);
        for (int i = 0; i < o->rows; i++) {
            pick[i] = below(o->tokens);
        }
        o->pick = at(pick);
        o->gathers = chance(50);
    }
    o->in_rows = o->gathers ? o->tokens : o->rows;
    for (int i = 0; i < adapters; i++) {
        draw_low(o, i, experts);
    }
    mo_dadapter_use *uses = take(o->tokens * MO_OP_USES * (int64_t)sizeof *uses);
    for (int t = 0; t < o->tokens; t++) {
        const int count = below(adapters + 1);
        for (int k = 0; k < MO_OP_USES; k++) {
            uses[t * MO_OP_USES + k] = (mo_dadapter_use){k < count ? (t + k) % adapters : -1, value(0)};
        }
    }
    o->uses = at(uses);
    o->in = floats((int64_t)o->in_rows * o->cols);
    o->u = floats(o->rows * (o->u_stride + 1));
    o->y = floats(o->rows * o->stride);
    check(&op, draw, "adapt");
}

static void draw_ssm_convolve(uint64_t draw)
{
    begin(draw);
    const sessions s = draw_sessions(ONE_OF(1, 2, 3), ONE_OF(1, 1, 5), 100);
    mo_op op = {.kind = MO_OP_SSM_CONVOLVE};
    mo_op_ssm_convolve *o = &op.ssm_convolve;
    *o = (mo_op_ssm_convolve){.places = at(s.places),
                              .slices = at(s.slices),
                              .tokens = s.tokens,
                              .slice_count = s.slice_count,
                              .layer = 1,
                              .channels = ONE_OF(32, 64, 100, 160, 288),
                              .taps = ONE_OF(2, 3, 4, 7)};
    o->before = floats((int64_t)s.tokens * o->channels);
    o->weight = floats((int64_t)o->taps * o->channels);
    o->bias = floats(o->channels);
    o->after = acts(s.tokens, o->channels);
    if (chance(40)) {
        o->after = (mo_dacts){.x = o->after.x, .cols = o->channels};
    }
    for (int i = 0; i < s.slice_count; i++) {
        ((mo_dstate *)(uintptr_t)s.slices[i].layers)[1].conv = floats((int64_t)(o->taps - 1) * o->channels);
    }
    o->state = ONE_OF(MO_STATE_MOVES, MO_STATE_STAYS);
    check(&op, draw, "ssm convolve");
}

static void draw_ssm_parts(uint64_t draw)
{
    begin(draw);
    mo_op op = {.kind = MO_OP_SSM_PARTS};
    mo_op_ssm_parts *o = &op.ssm_parts;
    *o = (mo_op_ssm_parts){
        .tokens = ONE_OF(1, 2, 9), .rank = ONE_OF(12, 32, 96), .states = ONE_OF(8, 16, 40), .eps = 1e-5f};
    o->rows = floats(o->tokens * (o->rank + 2 * (int64_t)o->states));
    o->dt_norm = floats(o->rank);
    o->b_norm = floats(o->states);
    o->c_norm = floats(o->states);
    o->dt = acts(o->tokens, o->rank);
    check(&op, draw, "ssm parts");
}

static void draw_ssm_scan(uint64_t draw)
{
    begin(draw);
    const sessions s = draw_sessions(ONE_OF(1, 1, 2), ONE_OF(1, 1, 5, 20), 100);
    mo_op op = {.kind = MO_OP_SSM_SCAN};
    mo_op_ssm_scan *o = &op.ssm_scan;
    const int heads = chance(60) ? ONE_OF(2, 4) : 0, length = ONE_OF(8, 32, 40, 64, 160);
    *o = (mo_op_ssm_scan){.slices = at(s.slices),
                          .tokens = s.tokens,
                          .slice_count = s.slice_count,
                          .layer = 1,
                          .inner = heads ? heads * length : length,
                          .states = heads ? ONE_OF(128, 128, 20) : ONE_OF(16, 16, 7),
                          .heads = heads,
                          .groups = heads ? ONE_OF(1, 2) : 1,
                          .eps = 1e-5f};
    const int64_t n = s.tokens, inner = o->inner;
    o->mixed = acts(n, o->inner);
    o->x_stride = inner;
    o->x = heads || chance(50) ? floats(n * inner) : o->mixed.x;
    for (int64_t i = 0; i < n * inner; i++) {
        ((float *)(uintptr_t)o->x)[i] = random_normal(&b.seed);
    }
    o->bc_stride = 2 * (int64_t)o->groups * o->states + ONE_OF(0, 3);
    o->bc = floats(n * o->bc_stride);
    o->dt = floats(n * (heads ? heads : inner));
    o->z = floats(n * inner);
    const int64_t decays = heads ? heads : o->states * inner;
    o->a = floats(decays);
    for (int64_t i = 0; i < decays; i++) { /* a state that does not grow without bounds */
        ((float *)(uintptr_t)o->a)[i] = -fabsf(random_normal(&b.seed));
    }
    o->d = floats(heads ? heads : inner);
    o->dt_bias = heads ? floats(heads) : 0;
    o->norm = heads ? floats(inner) : 0;
    for (int i = 0; i < s.slice_count; i++) {
        ((mo_dstate *)(uintptr_t)s.slices[i].layers)[1].delta = floats(inner * o->states);
    }
    o->state = ONE_OF(MO_STATE_MOVES, MO_STATE_STAYS);
    check(&op, draw, "ssm scan");
}

/* ---- The tests -------------------------------------------------------------------------------- */

#define DRAWN(name, count)                                                                                   \
    static void name(void **state)                                                                           \
    {                                                                                                        \
        (void)state;                                                                                         \
        draws(count, draw_##name);                                                                           \
    }

DRAWN(stream, 60)
DRAWN(activate, 20)
DRAWN(logits, 10)
DRAWN(publish, 20)
DRAWN(await, 15)
DRAWN(choose, 60)
DRAWN(arrange, 60)
DRAWN(heads, 50)
DRAWN(attend, 60)
DRAWN(attend_far, 6)
DRAWN(attend_many, 40)
DRAWN(attend_apart, 24)
DRAWN(heads_attend_some, 50)
DRAWN(heads_attend_drafts, 16)
DRAWN(heads_attend_far, 10)
DRAWN(latent, 30)
DRAWN(collect, 24)
DRAWN(latent_attend, 40)
DRAWN(latent_tiles, 24)
DRAWN(convolve, 30)
DRAWN(recur, 24)
DRAWN(recur_few, 16)
DRAWN(short_conv, 30)
DRAWN(adapt, 60)
DRAWN(ssm_convolve, 30)
DRAWN(ssm_parts, 15)
DRAWN(ssm_scan, 30)

/* The largest step has one row more than a grid's second dimension. */
static void grids_of_the_largest_step(void **state)
{
    enum { MOST = 65536 };
    (void)state;
    mo_op ops[] = {{.kind = MO_OP_COLLECT},
                   {.kind = MO_OP_SHORT_CONV},
                   {.kind = MO_OP_SSM_CONVOLVE},
                   {.kind = MO_OP_SSM_SCAN},
                   {.kind = MO_OP_SSM_SCAN}};
    for (int tokens = MOST - 1; tokens <= MOST + 1; tokens++) {
        ops[0].collect = (mo_op_collect){.out = {.cols = 64}, .tokens = tokens, .heads = 2, .n = 32};
        ops[1].short_conv =
            (mo_op_short_conv){.tokens = tokens, .slice_count = tokens, .channels = 64, .taps = 3};
        ops[2].ssm_convolve =
            (mo_op_ssm_convolve){.tokens = tokens, .slice_count = 1, .channels = 64, .taps = 4};
        ops[3].ssm_scan =
            (mo_op_ssm_scan){.tokens = tokens, .slice_count = tokens, .inner = 64, .states = 16, .groups = 1};
        ops[4].ssm_scan = ops[3].ssm_scan;
        ops[4].ssm_scan.heads = 2;
        for (int i = 0; i < 5; i++) {
            mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
            mo_error err = {0};
            const int count = mo_cuda_launch_op(&ops[i], 90, 132, launches, &err);
            assert_int_equal(count > 0, tokens <= MOST);
            for (int j = 0; j < count; j++) {
                const uint32_t *grid = launches[j].grid, rows = grid[1] * grid[2];
                assert_true(grid[1] <= 65535 && (rows == (uint32_t)tokens || rows == 1));
            }
        }
    }
}

/* Both kinds of kernels, and ops that stay apart. */
static void heads_attend(void **state)
{
    heads_attend_some(state);
    heads_attend_drafts(state);
    heads_attend_far(state);
    assert_true(getenv("MO_TEST_DRAW") || (pairs.chunk > 20 && pairs.stream > 4));
    assert_true(pairs.alone * 4 < pairs.chunk + pairs.stream);
}

int main(void)
{
    b.memory = aligned_alloc(4096, ROOM);
    b.before = malloc(ROOM);
    b.after = malloc(ROOM);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream),
        cmocka_unit_test(activate),
        cmocka_unit_test(logits),
        cmocka_unit_test(publish),
        cmocka_unit_test(await),
        cmocka_unit_test(choose),
        cmocka_unit_test(arrange),
        cmocka_unit_test(heads),
        cmocka_unit_test(choice_of_no_numbers),
        cmocka_unit_test(attend),
        cmocka_unit_test(attend_far),
        cmocka_unit_test(attend_many),
        cmocka_unit_test(attend_apart),
        cmocka_unit_test(heads_attend),
        cmocka_unit_test(convolve),
        cmocka_unit_test(recur),
        cmocka_unit_test(recur_few),
        cmocka_unit_test(short_conv),
        cmocka_unit_test(adapt),
        cmocka_unit_test(latent),
        cmocka_unit_test(collect),
        cmocka_unit_test(latent_attend),
        cmocka_unit_test(latent_tiles),
        cmocka_unit_test(ssm_convolve),
        cmocka_unit_test(ssm_parts),
        cmocka_unit_test(ssm_scan),
        cmocka_unit_test(grids_of_the_largest_step),
    };
    const char *only = getenv("MO_TEST_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(b.memory);
    free(b.before);
    free(b.after);
    return failed;
}
