/* Layers of one token as programs: the ops that a device may join into fewer kernels stand next to each other, in all
 * the variants that models have, and some that may not be joined. A program runs several times; every byte is then that
 * of the same ops on the host, one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "device/host/run.h"
#include "device_case.h"
#include "numeric/kinds.h"
#include "sanitized.h"

enum { ROUNDS = 2, OPS = 16, VARIANTS = 20, EXPERTS = 12 };

typedef struct layer {
    mo_op ops[OPS];
    int count;
    int n, hidden, tokens, used;
    mo_type type;
    mo_daddr x, y, down, ids, weights, work, bad;
    mo_dacts in;
} layer;

static mo_op *add(layer *l, mo_op_kind kind)
{
    assert_true(l->count < OPS);
    mo_op *op = &l->ops[l->count++];
    *op = (mo_op){.kind = kind};
    return op;
}

static mo_daddr some(box *b, int64_t count)
{
    return box_address(b, box_filled(b, count, 0));
}

static mo_daddr maybe(box *b, int64_t count, int percent)
{
    return box_chance(b, percent) ? some(b, count) : 0;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

static void multiply(box *b, layer *l, mo_dacts in, mo_type type, int rows, mo_daddr y)
{
    mo_op_product *o = &add(l, MO_OP_PRODUCT)->product;
    *o = (mo_op_product){.in = in, .tokens = l->tokens, .count = 1};
    o->matrix[0] = box_matrix(b, type, rows, in.cols, 0, BLOCK_ORDINARY);
    o->y[0] = y;
    o->stride[0] = rows;
}

static mo_op_stream *stream(box *b, layer *l)
{
    mo_op_stream *o = &add(l, MO_OP_STREAM)->stream;
    *o = (mo_op_stream){.x = l->x, .tokens = l->tokens, .n = l->n, .eps = 1e-5f, .bad = l->bad};
    o->out_scale = maybe(b, 1, 20);
    return o;
}

static void norm_into(box *b, layer *l, mo_op_norm *norm, mo_dacts out)
{
    *norm = (mo_op_norm){.weight = maybe(b, l->n, 80), .scale = box_chance(b, 70) ? 1.0f : 0.4f, .out = out};
    norm->multiply = maybe(b, l->n, 20);
}

/* x += the mixer's output; three norms at most, of which the router reads one. */
static void mix(box *b, layer *l, int variant)
{
    const mo_dacts mixed = box_acts_filled(b, l->tokens, 256 * box_pick(b, 1, 2), 0);
    multiply(b, l, mixed, l->type, l->n, l->y);
    mo_op_stream *o = stream(b, l);
    o->y = variant % 11 == 10 ? 0 : l->y;
    o->y_norm = maybe(b, l->n, 25);
    o->centered = box_chance(b, 25);
    norm_into(b, l, &o->norm[variant % 3], l->in);
    o->norm[variant % 3].add = maybe(b, l->n, 25);
    if (box_chance(b, 30)) {
        norm_into(b, l, &o->norm[(variant + 1) % 3], box_acts(b, l->tokens, l->n));
    }
}

static void route(box *b, layer *l, int variant, const mo_daddr *expert_data)
{
    static const mo_type types[] = {MO_F32, MO_F16, MO_BF16, MO_F32, MO_Q8_0};
    const mo_daddr scores = box_address(b, box_floats(b, (int64_t)l->tokens * EXPERTS));
    mo_daddr *table = box_alloc(b, 8 * EXPERTS);
    for (int e = 0; e < EXPERTS; e++) {
        table[e] = box_chance(b, 85) ? expert_data[e] : 0;
    }
    multiply(b, l, l->in, types[variant % 5], EXPERTS, scores);
    if (variant % 7 == 6) { /* something between them */
        const int count = l->tokens * EXPERTS;
        add(l, MO_OP_LOGITS)->logits = (mo_op_logits){.x = scores, .count = count, .bad = l->bad};
    }
    add(l, MO_OP_CHOOSE)->choose = (mo_op_choose){.scores = scores,
                                                  .select_bias = maybe(b, EXPERTS, 40),
                                                  .ids = l->ids,
                                                  .weights = l->weights,
                                                  .table = box_address(b, table),
                                                  .work = l->work,
                                                  .tokens = l->tokens,
                                                  .experts = EXPERTS,
                                                  .used = l->used,
                                                  .gating = variant % 3,
                                                  .normalize = box_chance(b, 50),
                                                  .groups = variant % 4 == 3 ? 4 : 1,
                                                  .groups_used = variant % 4 == 3 ? 3 : 1,
                                                  .scale = box_chance(b, 50) ? 1.0f : 2.5f};
}

/* Experts of a layer; the ops that compute them. */
static mo_op_experts experts(box *b, layer *l, mo_daddr *expert_data)
{
    mo_op_experts o = {.work = l->work, .most = l->tokens * l->used, .activation = MO_SWIGLU_OSS};
    o.in = l->in;
    o.hidden = box_acts(b, (int64_t)l->tokens * l->used, l->hidden);
    o.gate = box_matrix(b, l->type, l->hidden, l->n, EXPERTS, BLOCK_ORDINARY);
    o.up = box_matrix(b, l->type, l->hidden, l->n, EXPERTS, BLOCK_ORDINARY);
    o.down = box_matrix(b, l->type, l->n, l->hidden, EXPERTS, BLOCK_ORDINARY);
    o.up_at = aligned(box_matrix_bytes(&o.gate));
    o.down_at = o.up_at + aligned(box_matrix_bytes(&o.up));
    o.y = l->down;
    for (int e = 0; e < EXPERTS; e++) {
        uint8_t *data = box_alloc(b, o.down_at + box_matrix_bytes(&o.down));
        blocks_fill(l->type, data, box_matrix_bytes(&o.gate), &b->random, BLOCK_ORDINARY);
        blocks_fill(l->type, data + o.up_at, box_matrix_bytes(&o.up), &b->random, BLOCK_ORDINARY);
        blocks_fill(l->type, data + o.down_at, box_matrix_bytes(&o.down), &b->random, BLOCK_ORDINARY);
        expert_data[e] = box_address(b, data);
    }
    return o;
}

/* The feed-forward part, and what the next layer reads. */
static void merge(box *b, layer *l, int variant)
{
    mo_op_stream *o = stream(b, l);
    o->feed = 1;
    o->used = l->used;
    o->weights = l->weights;
    o->ids = l->ids;
    o->down = l->down;
    if (variant % 5 == 1) { /* other rows than those in router order, with the same content */
        int32_t *row_of = box_alloc(b, 4 * (int64_t)l->tokens * l->used);
        for (int i = 0; i < l->tokens * l->used; i++) {
            row_of[i] = l->tokens * l->used - 1 - i;
        }
        o->row_of = box_address(b, row_of);
    }
    o->shared = variant % 4 == 1 ? some(b, (int64_t)l->tokens * l->n) : 0;
    o->shared_gate = o->shared ? maybe(b, l->tokens, 50) : 0;
    o->dense = variant % 6 == 5 ? some(b, (int64_t)l->tokens * l->n) : 0;
    o->moe_norm = maybe(b, l->n, 10);
    o->post_norm = maybe(b, l->n, 10);
    norm_into(b, l, &o->norm[0], l->in);
}

static void build(box *b, layer *l, int variant)
{
    static const int widths[] = {256, 512, 1280, 768, 2304};
    static const int used[] = {2, 4, 8, 10, 3};
    mo_daddr expert_data[EXPERTS];
    *l = (layer){.type = block_types[variant % BLOCK_TYPES], .hidden = 256, .used = used[variant % 5]};
    l->tokens = variant % 13 == 12 ? 2 : 1;
    l->n = widths[variant % 8 == 4 ? variant % 5 : variant % 2];
    const int64_t rows = (int64_t)l->tokens * l->used;
    l->x = some(b, (int64_t)l->tokens * l->n);
    l->y = some(b, (int64_t)l->tokens * l->n);
    l->down = some(b, rows * l->n);
    l->in = box_acts(b, l->tokens, l->n);
    l->ids = box_address(b, box_alloc(b, 4 * rows));
    l->weights = box_address(b, box_floats(b, rows));
    const int64_t bytes = (int64_t)sizeof(mo_dwork) + rows * (int64_t)sizeof(mo_dwork_item);
    l->work = box_address(b, memset(box_alloc(b, bytes), 0, (size_t)bytes));
    l->bad = box_address(b, memset(box_alloc(b, 4), 0, 4));
    const mo_op_experts o = experts(b, l, expert_data);
    mix(b, l, variant);
    route(b, l, variant, expert_data);
    add(l, MO_OP_EXPERTS_IN)->experts = o;
    add(l, MO_OP_EXPERTS_DOWN)->experts = o;
    merge(b, l, variant);
}

static void *resolve(void *user, mo_daddr address, int64_t bytes)
{
    const box *b = user;
    return address >= b->base && address + (mo_daddr)bytes <= b->base + b->used ? box_at(b, address) : NULL;
}

static void good(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fail_msg("%s", err->detail);
    }
}

static void run(box *b, const layer *l)
{
    static mo_scratch scratch;
    const mo_op_host host = {.kernels = &mo_kernels_scalar, .resolve = resolve, .user = b};
    mo_error err = {0};
    mo_program *program;
    good(mo_program_create(b->device, l->ops, l->count, &program, &err), &err);
    good(mo_copy_in(b->stream, b->base, b->want, b->used, &err), &err);
    for (int i = 0; i < ROUNDS; i++) {
        good(mo_program_run(program, b->stream, &err), &err);
    }
    good(mo_copy_out(b->stream, b->got, b->base, b->used, &err), &err);
    good(mo_dstream_wait(b->stream, &err), &err);
    mo_program_destroy(program);
    for (int i = 0; i < ROUNDS * l->count; i++) {
        good(mo_op_run(&host, &l->ops[i % l->count], &scratch, &err), &err);
    }
    assert_int_equal(*(const uint32_t *)box_at(b, l->bad), 0); /* the bits of a NaN differ between machines */
}

/* A router whose sums are all -0, because every product is too small and negative: not a single +0 may be added. */
static void build_minus_zero(box *b, layer *l)
{
    enum { COLS = 264 }; /* not a whole number of anybody's steps */
    *l = (layer){.tokens = 1, .used = 2};
    const mo_dacts in = box_acts_filled(b, 1, COLS, 0);
    const mo_daddr scores = box_address(b, box_floats(b, EXPERTS));
    multiply(b, l, in, MO_F32, EXPERTS, scores);
    l->ops[0].product.matrix[0].scale = l->ops[0].product.matrix[0].bias = 0;
    float *x = box_at(b, in.x);
    float *w = box_at(b, l->ops[0].product.matrix[0].data);
    for (int i = 0; i < EXPERTS * COLS; i++) {
        x[i % COLS] = x[i % COLS] < 0 ? -0.25f : 0.25f;
        w[i] = x[i % COLS] < 0 ? 0x1p-149f : -0x1p-149f;
    }
    l->bad = box_address(b, memset(box_alloc(b, 4), 0, 4));
    add(l, MO_OP_CHOOSE)->choose = (mo_op_choose){.scores = scores,
                                                  .ids = box_address(b, box_alloc(b, 8)),
                                                  .weights = box_address(b, box_floats(b, 2)),
                                                  .tokens = 1,
                                                  .experts = EXPERTS,
                                                  .used = l->used,
                                                  .gating = MO_GATING_SOFTMAX_SELECTED,
                                                  .scale = 1.0f};
}

/* ---- Attention ---- */

/* The products of a step's attention, its heads, and what they see. */
static bool build_attention_layer(box *b, layer *l, int variant)
{
    enum { COLS = 256 };
    mo_op ops[2] = {0};
    if (!build_attention(b, ops, variant)) {
        return false;
    }
    const mo_op_heads *h = &ops[0].heads;
    const int rows[] = {h->heads * h->k_len * (h->gated ? 2 : 1), h->kv_heads * h->k_len,
                        h->kv_heads * h->v_len};
    const mo_daddr y[] = {h->q, h->k, h->v};
    *l = (layer){.tokens = h->tokens};
    l->bad = box_address(b, memset(box_alloc(b, 4), 0, 4));
    const mo_dacts in = box_acts_filled(b, l->tokens, COLS, 0);
    for (int i = 0; i < 3; i++) {
        multiply(b, l, in, MO_Q8_0, rows[i], y[i]);
    }
    *add(l, MO_OP_HEADS) = ops[0];
    *add(l, MO_OP_ATTEND) = ops[1];
    return true;
}

/* ---- Adapters around products ---- */

enum {
    RANKS = 64,   /* of all adapters of a matrix */
    ADAPTERS = 3, /* of a step */
    DRAWINGS = 5, /* with every variant of heads */
};

static mo_dlow low(box *b, mo_type type, int rank, int cols, int n, int at)
{
    const int64_t bytes = rank * mo_format_row_bytes(mo_format_of(type), cols);
    float *values = box_filled(b, (int64_t)rank * cols, 0);
    uint16_t *half = (uint16_t *)values;
    for (int64_t i = 0; type != MO_F32 && i < (int64_t)rank * cols;
         i++) { /* in place: a half ends before its float */
        half[i] = type == MO_F16 ? mo_f32_to_f16(values[i]) : mo_f32_to_bf16(values[i]);
    }
    return (mo_dlow){.a = box_address(b, values),
                     .b = some(b, (int64_t)rank * n),
                     .a_bytes = bytes,
                     .u_at = at,
                     .rank = rank,
                     .type = (int32_t)type,
                     .alpha = box_chance(b, 50) ? 16.0f : 0.0f,
                     .factor = box_chance(b, 50) ? 0.5f : 0.0f};
}

/* What adapters have for matrix `which` of a product, the first of rank `first`; u: where it is made, which is the first's where they do not
 * share a kernel; format: of A, or 3: any. */
static mo_op_adapt adapted(box *b, const mo_op_product *o, int which, mo_daddr uses, mo_daddr u, int adapters,
                           int first, int format)
{
    const int n = o->matrix[which].rows;
    mo_op_adapt op = {.in = o->in.x,
                      .uses = uses,
                      .u = u + (mo_daddr)which * RANKS * sizeof(float),
                      .y = o->y[which],
                      .stride = o->stride[which],
                      .u_stride = RANKS,
                      .in_rows = 1,
                      .rows = 1,
                      .tokens = 1,
                      .cols = o->in.cols,
                      .n = n};
    for (int i = 0, at = 0; i < adapters && i < ADAPTERS; i++) {
        const int rank = i == 0 ? first : i == 1 ? 3 : 8;
        if ((i == adapters - 1 && at == 0) || box_chance(b, 70)) {
            const mo_type type =
                (mo_type[]){MO_F32, MO_F16, MO_BF16}[format < 3 ? format : box_pick(b, 0, 2)];
            op.low[i] = low(b, type, rank, o->in.cols, n, at);
            at += rank;
        }
    }
    return op;
}

/* The products of an attention layer of one token with what adapters add, and the stream; false: the variant has more tokens. Where u is shared, or
 * there are too many adapters, devices cannot join them. */
static bool build_adapted(box *b, layer *l, int variant)
{
    mo_op heads = {.kind = MO_OP_HEADS};
    mixer_cases[0].build(b, &heads, variant);
    const mo_op_heads *h = &heads.heads;
    if (h->tokens != 1) {
        return false;
    }
    const bool shared = variant % 5 == 4;
    const int format = box_pick(b, 0, 3); /* 3: each its own, which devices do not join */
    const int rank = (int[]){16, 37, 5, 32}[box_pick(b, 0, 3)];
    const int adapters = box_chance(b, 50) ? 1 : box_pick(b, 1, ADAPTERS),
              rows[] = {h->heads * h->k_len * (h->gated ? 2 : 1), h->kv_heads * h->k_len,
                        h->kv_heads * h->v_len};
    *l = (layer){.tokens = 1, .type = block_types[variant % BLOCK_TYPES]};
    l->bad = box_address(b, memset(box_alloc(b, 4), 0, 4));
    mo_dadapter_use *uses = box_alloc(b, MO_OP_USES * sizeof *uses);
    for (int i = 0; i < MO_OP_USES; i++) { /* in the other order: whose comes first is the token's */
        uses[i] = (mo_dadapter_use){i < adapters ? adapters - 1 - i : -1, 0.75f};
    }
    uses[0].which = box_chance(b, 10) ? -1 : uses[0].which; /* this token uses none of them */
    const mo_daddr u = some(b, 3 * RANKS), at = box_address(b, uses);
    mo_op_product *o = &add(l, MO_OP_PRODUCT)->product;
    *o = (mo_op_product){.in = box_acts_filled(b, 1, 512, 0),
                         .tokens = 1,
                         .count = 3,
                         .y = {h->q, h->k, h->v},
                         .stride = {rows[0], rows[1], rows[2]}};
    mo_op_adapt ops[3];
    for (int i = 0; i < 3; i++) {
        o->matrix[i] = box_matrix(b, l->type, rows[i], o->in.cols, 0, BLOCK_ORDINARY);
        ops[i] = adapted(b, o, i, at, u, adapters, rank, format);
    }
    for (int i = 0; i < 3 && !shared; i++) {
        add(l, MO_OP_LOWER)->adapt = ops[i];
    }
    for (int i = 0; i < 3; i++) {
        ops[i].u = shared ? u : ops[i].u;
        if (shared) {
            add(l, MO_OP_LOWER)->adapt = ops[i];
        }
        add(l, MO_OP_ADAPT)->adapt = ops[i];
    }
    *add(l, MO_OP_HEADS) = heads;
    l->n = 96;
    l->x = some(b, l->n);
    l->y = some(b, l->n);
    multiply(b, l, box_acts_filled(b, 1, 256, 0), l->type, l->n, l->y);
    const mo_op_adapt out = adapted(b, &l->ops[l->count - 1].product, 0, at, u, adapters, rank, format);
    add(l, MO_OP_LOWER)->adapt = out;
    add(l, MO_OP_ADAPT)->adapt = out;
    mo_op_stream *s = stream(b, l);
    s->y = variant % 6 == 5 ? some(b, l->n) : l->y; /* another's output: nothing is added to that */
    s->y_norm = maybe(b, l->n, 30);
    norm_into(b, l, &s->norm[variant % 3], box_acts(b, 1, l->n));
    return true;
}

/* Under ThreadSanitizer, which takes its time, every sixth; of those with adapters a seventh under the address sanitizer, which has every
 * remainder of a variant with it. */
enum { STEP = SANITIZED_THREADS ? 6 : 1, ADAPTED_STEP = SANITIZED_THREADS ? 6 : SANITIZED ? 7 : 1 };

void test_layers(void **state)
{
    (void)state;
    for (const char **name = device_names; *name; name++) {
        box b;
        layer l;
        box_open(&b, *name);
        for (int variant = 0; variant < VARIANTS; variant += STEP) {
            box_clear(&b, 77 + (uint64_t)variant);
            build(&b, &l, variant);
            run(&b, &l);
            box_check(&b, "a layer", variant);
        }
        box_clear(&b, 1);
        build_minus_zero(&b, &l);
        run(&b, &l);
        box_check(&b, "sums of -0", 0);
        box_close(&b);
    }
}

void test_attention_layers(void **state)
{
    static const int shapes[] = {0, 3, 4, 0, 3, 4, 1}; /* heads of 64, 128 and 256 values mostly */
    enum { SHAPES = 10, ATTENTIONS = 28 };
    (void)state;
    for (const char **name = device_names; *name; name++) {
        box b;
        layer l;
        box_open(&b, *name);
        for (int i = 0; i < ATTENTIONS; i += STEP) {
            const int variant = i * SHAPES + shapes[i % 7];
            box_clear(&b, 377 + (uint64_t)i);
            if (build_attention_layer(&b, &l, variant)) {
                run(&b, &l);
                box_check(&b, "the attention of a layer", variant);
            }
        }
        box_close(&b);
    }
}

void test_adapted_layers(void **state)
{
    (void)state;
    for (const char **name = device_names; *name; name++) {
        box b;
        layer l;
        box_open(&b, *name);
        for (int i = 0; i < DRAWINGS * mixer_cases[0].variants; i += ADAPTED_STEP) {
            const int variant = i % mixer_cases[0].variants;
            box_clear(&b, 177 + (uint64_t)i);
            if (build_adapted(&b, &l, variant)) {
                run(&b, &l);
                box_check(&b, "a layer with adapters", variant);
            }
        }
        box_close(&b);
    }
}
