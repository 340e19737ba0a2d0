/* The kernels that are part of this build: every kernel that a launch can name is there, and every one that is there
 * can be named. Ops are drawn at random from what models may have; nothing is run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/cuda/images.h"
#include "device/cuda/launch.h"
#include "numeric/format.h"
#include "numeric/kinds.h"
#include "random.h"

enum { KERNELS = 1024, DRAWS = 20000 };

static uint64_t seed;

/* ---- The kernels of the build ---- */

static struct {
    const char *name; /* in the image */
    bool named;
} kernels[KERNELS];
static int kernel_count;

/* Machine code is an ELF file, with a section for every kernel. */
static void list_kernels(void)
{
    static const char section[] = "\0.text.mo_";
    const size_t skipped = strlen(".text.") + 1;
    kernel_count = 0;
    for (const mo_cuda_image *image = mo_cuda_images; image->file; image++) {
        const unsigned char *at = image->data;
        while (image->ptx == 0 && (at = memmem(at, (size_t)(image->end - at), section, sizeof section - 1))) {
            const char *name = (const char *)at + skipped;
            int k = 0;
            while (k < kernel_count && strcmp(kernels[k].name, name) != 0) {
                k++;
            }
            assert_true(k < KERNELS);
            kernels[k].name = name;
            kernel_count += k == kernel_count;
            at += skipped;
        }
    }
}

static void check_named(const mo_op *op, const mo_cuda_launch *launch)
{
    for (int i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, launch->kernel) == 0) {
            kernels[i].named = true;
            return;
        }
    }
    fail_msg("op %d wants kernel %s, which no .cu file has", (int)op->kind, launch->kernel);
}

/* ---- Ops ---- */

#define ONE_OF(...)                                                                                          \
    ((const int[]){__VA_ARGS__}[random_below(&seed, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))])

static mo_daddr place(void)
{
    return 0x100000 +
           (mo_daddr)(random_below(&seed, 1000) * MO_OP_ALIGN + (random_below(&seed, 20) == 0 ? 4 : 0));
}

static mo_daddr place_or_none(void)
{
    return random_below(&seed, 2) ? place() : 0;
}

static mo_dacts acts(int cols)
{
    return (mo_dacts){place(), place(), place(), place(), place(), place(), cols, 0};
}

static int any_type(void)
{
    for (;;) {
        const int64_t type = random_below(&seed, 64);
        const mo_format *format = mo_format_of((uint32_t)type);
        if (format && format->kind != MO_KIND_INTEGER) {
            return (int)type;
        }
    }
}

static mo_dmatrix matrix(int cols)
{
    return (mo_dmatrix){.data = place(),
                        .scale = place_or_none(),
                        .bias = place_or_none(),
                        .type = any_type(),
                        .rows = ONE_OF(1, 32, 512, 768, 2048, 2880, 4096, 32000),
                        .cols = cols};
}

static int any_tokens(void)
{
    return random_below(&seed, 2) ? ONE_OF(1, 1, 2, 3, 4, 5, 6, 7, 8)
                                  : ONE_OF(9, 16, 17, 48, 64, 100, 512, 2048);
}

static void draw_stream(mo_op_stream *o)
{
    *o = (mo_op_stream){
        .x = place(), .tokens = any_tokens(), .n = ONE_OF(64, 100, 768, 2048, 2880, 4096, 5120, 8192)};
    o->feed = ONE_OF(0, 1, 2);
    o->y = place_or_none();
    o->used = ONE_OF(0, 4, 8, 10);
    o->weights = place();
    o->ids = place();
    o->down = place();
    o->shared = place_or_none();
    o->bad = place();
    for (int i = 0; i < MO_OP_NORMS; i++) {
        o->norm[i] = (mo_op_norm){.weight = place_or_none(), .scale = 1, .out = acts(o->n)};
    }
}

static void draw_product(mo_op_product *o)
{
    const int cols = ONE_OF(256, 768, 2048, 4096, 14336);
    *o = (mo_op_product){.in = acts(cols), .tokens = any_tokens(), .count = ONE_OF(1, 2, 3, 4, 5)};
    for (int i = 0; i < o->count; i++) {
        o->matrix[i] = matrix(cols);
        o->y[i] = place();
        o->stride[i] = o->matrix[i].rows;
    }
}

static void draw_grouped(mo_op_grouped *o)
{
    const int cols = ONE_OF(256, 768, 2048, 4096);
    *o = (mo_op_grouped){
        .in = acts(cols), .pick = place_or_none(), .groups = place(), .count = ONE_OF(1, 4, 32, 128)};
    o->most = any_tokens();
    o->rows = o->most + (int)random_below(&seed, o->most * (int64_t)o->count);
    o->matrix = matrix(cols);
    o->y = place();
    o->stride = o->matrix.rows;
}

static void draw_experts(mo_op_experts *o)
{
    const int cols = ONE_OF(256, 2048, 4096);
    const int hidden = ONE_OF(256, 768, 2816);
    const int used = ONE_OF(1, 4, 8, 10);
    *o = (mo_op_experts){
        .work = place(),
        .most = any_tokens() * used,
        .activation = ONE_OF(MO_SWIGLU, MO_GEGLU, MO_SWIGLU_OSS, MO_SWIGLU_LIMIT, MO_RELU2, MO_SWIGLU_CLAMP)};
    o->in = acts(cols);
    o->hidden = acts(hidden);
    o->gate = matrix(cols);
    o->gate.rows = hidden;
    o->up = o->gate;
    o->up.type = random_below(&seed, 8) ? o->gate.type : any_type();
    o->down = matrix(hidden);
    o->down.rows = cols;
    o->y = place();
}

static void draw_attention(mo_op *op)
{
    const int heads = ONE_OF(4, 16, 32, 64);
    const int kv_heads = heads / ONE_OF(1, 2, 4);
    const int k_len = ONE_OF(32, 64, 80, 96, 128, 256, 512, 576);
    const int v_len = random_below(&seed, 4) ? k_len : ONE_OF(32, 64, 128, 256);
    const int kv = ONE_OF(MO_KV_I16, MO_KV_F32, MO_KV_Q8_0);
    if (op->kind == MO_OP_HEADS) {
        op->heads = (mo_op_heads){
            .q = place(), .k = place(), .v = place(), .q_norm = place_or_none(), .k_norm = place_or_none()};
        op->heads.rope = place_or_none();
        op->heads.places = place();
        op->heads.tokens = any_tokens();
        op->heads.heads = heads;
        op->heads.kv_heads = kv_heads;
        op->heads.k_len = k_len;
        op->heads.v_len = v_len;
        op->heads.n_rot = k_len / ONE_OF(1, 2);
        op->heads.neox = ONE_OF(0, 1);
        op->heads.norm_all = ONE_OF(0, 1);
        op->heads.gated = ONE_OF(0, 1);
        op->heads.kv = kv;
        return;
    }
    op->attend =
        (mo_op_attend){.q = place(), .sinks = place_or_none(), .places = place(), .partial = place()};
    op->attend.mixed = acts(heads * v_len);
    op->attend.window = ONE_OF(0, 128, 4096);
    op->attend.tokens = any_tokens();
    op->attend.heads = heads;
    op->attend.kv_heads = kv_heads;
    op->attend.k_len = k_len;
    op->attend.v_len = v_len;
    op->attend.gated = ONE_OF(0, 1);
    op->attend.kv = kv;
    op->attend.chunks = ONE_OF(1, 2, 17, 128);
    op->attend.made = ONE_OF(0, 1);
    if (random_below(&seed, 4) == 0) { /* latent rows */
        op->attend.kv_heads = 1;
        op->attend.v_len = ONE_OF(32, 512);
        op->attend.tail = ONE_OF(16, 64);
        op->attend.k_len = op->attend.v_len + op->attend.tail;
        op->attend.mixed = acts(op->attend.v_len);
        op->attend.gated = op->attend.window = 0;
        op->attend.between = op->attend.tokens;
    }
    op->attend.scale = 1;
}

static void draw_latent(mo_op *op)
{
    const int heads = ONE_OF(4, 20, 128), tokens = any_tokens();
    if (op->kind == MO_OP_COLLECT) {
        const int n = ONE_OF(24, 128, 256);
        op->collect = (mo_op_collect){
            .from = place(), .out = acts(heads * n), .tokens = tokens, .heads = heads, .n = n};
        op->collect.by_token = ONE_OF(0, 1);
        op->collect.gate = ONE_OF(0, 1) ? place() : 0;
        return;
    }
    op->latent = (mo_op_latent){.q = place(),
                                .k = place(),
                                .norm = place(),
                                .rope = place(),
                                .places = place(),
                                .plain = acts(ONE_OF(16, 128, 192)),
                                .query = place(),
                                .groups = place(),
                                .data = {place(), place()},
                                .tokens = tokens,
                                .heads = heads,
                                .v_len = ONE_OF(32, 512),
                                .n_rot = ONE_OF(16, 64),
                                .kv = ONE_OF(MO_KV_I16, MO_KV_F32, MO_KV_Q8_0)};
}

static void draw_index(mo_op *op)
{
    const int tokens = any_tokens(), heads = ONE_OF(4, 32, 64), length = ONE_OF(16, 64, 128);
    const int v_len = ONE_OF(32, 512), tail = ONE_OF(16, 64), top = ONE_OF(16, 1024, 2048);
    const int kv = ONE_OF(MO_KV_I16, MO_KV_F32, MO_KV_Q8_0);
    if (op->kind == MO_OP_INDEX) {
        op->index = (mo_op_index){.q = place(), .k = place(), .share = place(), .norm = place()};
        op->index.bias = place();
        op->index.rope = place();
        op->index.places = place();
        op->index.bad = place();
        op->index.tokens = tokens;
        op->index.heads = heads;
        op->index.length = length;
        op->index.n_rot = tail;
        op->index.neox = ONE_OF(0, 1);
        op->index.kv = kv;
        op->index.k_len = v_len + tail;
        op->index.v_len = v_len;
        op->index.tail = tail;
    } else if (op->kind == MO_OP_KEEP) {
        op->keep = (mo_op_keep){.q = place(), .share = place(), .places = place(), .scores = place()};
        op->keep.kept = place();
        op->keep.most = op->keep.stride = ONE_OF(64, 4096, 131072);
        op->keep.tokens = tokens;
        op->keep.heads = heads;
        op->keep.length = length;
        op->keep.top = top;
        op->keep.kv = kv;
        op->keep.k_len = v_len + tail;
        op->keep.v_len = v_len;
        op->keep.tail = tail;
    } else {
        op->gather = (mo_op_gather){.places = place(), .kept = place(), .blocks = place(), .tables = place()};
        op->gather.states = place();
        op->gather.out = place();
        op->gather.tokens = tokens;
        op->gather.top = top;
        op->gather.kv = kv;
        op->gather.k_len = v_len + tail;
        op->gather.v_len = v_len;
        op->gather.tail = tail;
    }
}

static void draw_delta(mo_op *op)
{
    const int k_heads = ONE_OF(2, 16);
    const int v_heads = k_heads * ONE_OF(1, 2, 4);
    const int head = ONE_OF(32, 48, 64, 128);
    const int tokens = any_tokens();
    if (op->kind == MO_OP_CONVOLVE) {
        op->convolve = (mo_op_convolve){
            .before = place(), .after = place(), .weight = place(), .places = place(), .slices = place()};
        op->convolve.tokens = tokens;
        op->convolve.slice_count = 1;
        op->convolve.k_heads = k_heads;
        op->convolve.v_heads = v_heads;
        op->convolve.head = head;
        op->convolve.taps = ONE_OF(2, 4);
        op->convolve.decay = ONE_OF(MO_DECAY_HEADS, MO_DECAY_CHANNELS, MO_DECAY_BOUNDED);
        return;
    }
    op->recur = (mo_op_recur){
        .after = place(), .z = place(), .gates = place(), .a = place(), .dt = place(), .norm = place()};
    op->recur.slices = place();
    op->recur.mixed = acts(v_heads * head);
    op->recur.tokens = tokens;
    op->recur.slice_count = 1;
    op->recur.k_heads = k_heads;
    op->recur.v_heads = v_heads;
    op->recur.head = head;
    op->recur.paired = ONE_OF(0, 1);
    op->recur.decay = ONE_OF(MO_DECAY_HEADS, MO_DECAY_CHANNELS, MO_DECAY_BOUNDED);
}

static void draw_short_conv(mo_op_short_conv *o)
{
    *o = (mo_op_short_conv){.in = place(), .weight = place(), .places = place(), .slices = place()};
    o->channels = ONE_OF(48, 1024, 2048);
    o->taps = ONE_OF(3, 4);
    o->tokens = any_tokens();
    o->slice_count = 1;
    o->mixed = acts(o->channels);
}

static void draw_adapt(mo_op_adapt *o)
{
    *o = (mo_op_adapt){.in = place(), .uses = place(), .u = place(), .y = place()};
    o->cols = ONE_OF(48, 2048);
    o->n = o->stride = ONE_OF(1, 512, 4096);
    o->rows = o->in_rows = o->tokens = any_tokens();
    const int rank = ONE_OF(16, 48);
    o->u_stride = rank;
    o->low[0] = (mo_dlow){.a = place(), .b = place(), .a_bytes = 4 * rank * (int64_t)o->cols, .rank = rank};
}

static void draw_mamba(mo_op *op)
{
    const int heads = ONE_OF(0, 8, 48), groups = heads ? ONE_OF(1, 8) : 1;
    if (op->kind == MO_OP_SSM_CONVOLVE) {
        mo_op_ssm_convolve *o = &op->ssm_convolve;
        *o = (mo_op_ssm_convolve){.before = place(), .weight = place(), .bias = place(), .places = place()};
        o->slices = place();
        o->channels = ONE_OF(48, 3328, 8192);
        o->taps = 4;
        o->after = acts(o->channels);
        o->tokens = any_tokens();
        o->slice_count = 1;
    } else if (op->kind == MO_OP_SSM_PARTS) {
        mo_op_ssm_parts *o = &op->ssm_parts;
        *o = (mo_op_ssm_parts){.rows = place(), .dt_norm = place(), .b_norm = place(), .c_norm = place()};
        o->rank = ONE_OF(160, 256);
        o->states = 16;
        o->dt = acts(o->rank);
        o->tokens = any_tokens();
    } else {
        mo_op_ssm_scan *o = &op->ssm_scan;
        *o = (mo_op_ssm_scan){.x = place(), .bc = place(), .dt = place(), .z = place(), .a = place()};
        o->d = place();
        o->slices = place();
        o->inner = heads ? heads * ONE_OF(20, 64, 256) : ONE_OF(96, 8192);
        o->states = heads ? ONE_OF(64, 128) : ONE_OF(8, 16);
        o->heads = heads;
        o->groups = groups;
        o->mixed = acts(o->inner);
        o->tokens = any_tokens();
        o->slice_count = 1;
    }
}

static void draw_choose(mo_op_choose *o)
{
    *o =
        (mo_op_choose){.scores = place(), .select_bias = place_or_none(), .ids = place(), .weights = place()};
    o->table = place_or_none();
    o->work = place();
    o->tokens = any_tokens();
    o->experts = ONE_OF(4, 8, 32, 128, 512, MO_OP_EXPERTS);
    o->used = ONE_OF(1, 2, 4);
    o->gating = ONE_OF(MO_GATING_SOFTMAX, MO_GATING_SIGMOID, MO_GATING_SOFTMAX_SELECTED);
    o->normalize = ONE_OF(0, 1);
    o->groups = ONE_OF(0, 1, 4);
    o->groups_used = o->groups > 1 ? 2 : o->groups;
    o->scale = 1;
}

static void draw_arrange(mo_op_arrange *o)
{
    *o = (mo_op_arrange){.ids = place(), .table = place(), .groups = place(), .picks = place()};
    o->row_of = place();
    o->counts = place();
    o->tokens = any_tokens();
    o->experts = ONE_OF(4, 8, 32, 128, 512, MO_OP_EXPERTS);
    o->used = ONE_OF(1, 2, 4);
    o->limit = o->experts;
}

static void draw_exchange(mo_op *op)
{
    if (op->kind == MO_OP_PUBLISH) {
        op->publish = (mo_op_publish){.ranges = ONE_OF(1, 2, 4), .sequence = place(), .flag = place()};
        for (int i = 0; i < op->publish.ranges; i++) {
            op->publish.from[i] = place();
            op->publish.to[i] = place();
            op->publish.bytes[i] = ONE_OF(32, 4096, 1 << 20);
        }
        return;
    }
    op->await =
        (mo_op_await){.reply = place(), .sequence = place(), .from = place(), .to = place(), .bad = place()};
    op->await.n = ONE_OF(2048, 2880);
    op->await.most = ONE_OF(1, 8, 4096);
}

static void draw_restore(mo_op_restore *o)
{
    *o = (mo_op_restore){.from = place() & ~(mo_daddr)(MO_OP_ALIGN - 1), .to = place()};
    o->count = ONE_OF(1, 4, 128);
    o->parts = ONE_OF(1, 2, 3);
    for (int i = 0; i < o->parts; i++) {
        const mo_dmatrix m = matrix(ONE_OF(256, 768, 2048, 4096));
        o->at[i] = i << 22;
        o->stride[i] = ONE_OF(1 << 20, 1 << 24);
        o->type[i] = m.type;
        o->rows[i] = m.rows;
        o->cols[i] = m.cols;
        o->group[i] = ONE_OF(0, 8, 16);
    }
}

static void draw_bf16(mo_op *op)
{
    const mo_dmatrix m = matrix(ONE_OF(256, 768, 2048, 4096));
    const bool grouped = ONE_OF(0, 1);
    const int rows = any_tokens(), count = grouped ? ONE_OF(1, 32, 256) : 1;
    if (op->kind == MO_OP_TO_BF16) {
        op->to_bf16 =
            (mo_op_to_bf16){.matrix = m, .groups = grouped ? place() : 0, .to = place(), .count = count};
        return;
    }
    op->bf16 = (mo_op_bf16){.in = place(),
                            .pick = grouped ? place() : 0,
                            .groups = grouped ? place() : 0,
                            .bf16 = place(),
                            .count = count,
                            .rows = rows,
                            .most = rows,
                            .matrix = m,
                            .y = place(),
                            .stride = m.rows};
}

static void draw(mo_op *op)
{
    switch (op->kind) {
    case MO_OP_STREAM: draw_stream(&op->stream); break;
    case MO_OP_PRODUCT: draw_product(&op->product); break;
    case MO_OP_GROUPED: draw_grouped(&op->grouped); break;
    case MO_OP_ROUND: op->round = (mo_op_round){place(), place(), (int64_t)any_tokens() * 2048}; break;
    case MO_OP_TO_BF16:
    case MO_OP_BF16: draw_bf16(op); break;
    case MO_OP_ACTIVATE: {
        const int n = ONE_OF(30, 768, 2880, 14336);
        op->activate =
            (mo_op_activate){.gate = place(), .up = place(), .hidden = acts(n), .rows = any_tokens(), .n = n};
        op->activate.activation =
            ONE_OF(MO_SWIGLU, MO_GEGLU, MO_SWIGLU_OSS, MO_SWIGLU_LIMIT, MO_RELU2, MO_SWIGLU_CLAMP);
        break;
    }
    case MO_OP_HEADS:
    case MO_OP_ATTEND: draw_attention(op); break;
    case MO_OP_LATENT:
    case MO_OP_COLLECT: draw_latent(op); break;
    case MO_OP_INDEX:
    case MO_OP_KEEP:
    case MO_OP_GATHER: draw_index(op); break;
    case MO_OP_CONVOLVE:
    case MO_OP_RECUR: draw_delta(op); break;
    case MO_OP_SHORT_CONV: draw_short_conv(&op->short_conv); break;
    case MO_OP_SSM_CONVOLVE:
    case MO_OP_SSM_PARTS:
    case MO_OP_SSM_SCAN: draw_mamba(op); break;
    case MO_OP_LOWER:
    case MO_OP_ADAPT: draw_adapt(&op->adapt); break;
    case MO_OP_CHOOSE: draw_choose(&op->choose); break;
    case MO_OP_ARRANGE: draw_arrange(&op->arrange); break;
    case MO_OP_EXPERTS_IN:
    case MO_OP_EXPERTS_DOWN: draw_experts(&op->experts); break;
    case MO_OP_LOGITS:
        op->logits = (mo_op_logits){.x = place(), .count = 151936, .bad = place(), .cap = 30};
        break;
    case MO_OP_PUBLISH:
    case MO_OP_AWAIT: draw_exchange(op); break;
    case MO_OP_RESTORE: draw_restore(&op->restore); break;
    case MO_OP_KINDS: break;
    }
}

/* ---- Tests ---- */

static void need_kernels(void)
{
    if (!mo_cuda_built() || mo_cuda_images[0].ptx != 0) {
        print_message("skipped: this build has no machine code for a GPU\n");
        skip();
    }
}

static void check_launch(const mo_op *op, const mo_cuda_launch *l)
{
    check_named(op, l);
    assert_true(l->grid[0] >= 1 && l->grid[1] >= 1 && l->grid[2] >= 1);
    assert_true(l->grid[1] <= 65535 && l->grid[2] <= 65535);
    const uint32_t threads = l->block[0] * l->block[1] * l->block[2];
    assert_true(threads >= 1 && threads <= 1024);
}

/* A kernel that reads places before it waits does not start before the op that makes them ends. */
static void check_made(const mo_op *op, const mo_cuda_launch *first)
{
    assert_false(op->kind == MO_OP_ATTEND && op->attend.made && first->prelaunch);
}

/* Two ops that may go together, and a third before them. */
static void draw_routers(void)
{
    int routed = 0;
    for (int i = 0; i < DRAWS; i++) {
        seed = (uint64_t)i;
        mo_op first = {.kind = MO_OP_PRODUCT};
        mo_op second = {.kind = MO_OP_CHOOSE};
        draw(&first);
        draw(&second);
        mo_cuda_launch launch;
        if (mo_cuda_launch_router(&first, &second, ONE_OF(75, 80, 86, 90, 120), ONE_OF(20, 80, 132),
                                  &launch)) {
            check_launch(&second, &launch);
        }
        mo_op ops[3] = {{.kind = MO_OP_STREAM}, first, second};
        draw(&ops[0]);
        ops[0].stream.tokens = 1;
        ops[0].stream.feed = 0;
        ops[0].stream.n = first.product.in.cols;
        ops[0].stream.norm[0].out.x = first.product.in.x;
        mo_cuda_routed op;
        if (mo_cuda_launch_routed(ops, 3, ONE_OF(80, 90), ONE_OF(20, 80, 132), &op, &launch)) {
            check_launch(&second, &launch);
            routed++;
        }
    }
    assert_true(routed > 0);
}

/* Heads and attention of one step. */
static void draw_attentions(void)
{
    int joined = 0;
    for (int i = 0; i < DRAWS; i++) {
        seed = (uint64_t)i;
        mo_op first = {.kind = MO_OP_HEADS}, second = {.kind = MO_OP_ATTEND};
        draw(&first);
        draw(&second);
        mo_op_heads *h = &first.heads;
        const mo_op_attend *a = &second.attend;
        h->q = a->q;
        h->places = a->places;
        h->tokens = a->tokens;
        h->heads = a->heads;
        h->kv_heads = a->kv_heads;
        h->k_len = a->k_len;
        h->v_len = a->v_len;
        h->n_rot = a->k_len / ONE_OF(1, 2);
        h->gated = a->gated;
        h->kv = a->kv;
        mo_cuda_launch launches[2];
        mo_cuda_fresh fresh;
        const int count = mo_cuda_launch_fresh(&first, &second, ONE_OF(75, 80, 86, 90, 120),
                                               ONE_OF(20, 80, 132), &fresh, launches);
        for (int k = 0; k < count; k++) {
            check_launch(&second, &launches[k]);
        }
        if (count > 0) {
            check_made(&second, &launches[0]);
        }
        joined += count > 0;
    }
    assert_true(joined > 0);
}

/* What adapters add to one token, with the ops around it: heads or a stream. */
static void draw_adapted(void)
{
    int lowered = 0, raised = 0, streamed = 0;
    for (int i = 0; i < DRAWS; i++) {
        seed = (uint64_t)i;
        const mo_op_kind taker = i % 2 ? MO_OP_STREAM : MO_OP_HEADS;
        mo_op ops[] = {
            {.kind = MO_OP_PRODUCT}, {.kind = MO_OP_LOWER}, {.kind = MO_OP_ADAPT}, {.kind = taker}};
        for (int k = 0; k < 4; k++) {
            draw(&ops[k]);
        }
        const int compute = ONE_OF(75, 80, 86, 90, 120), sms = ONE_OF(20, 80, 132);
        mo_op_heads *h = &ops[3].heads;
        mo_op_adapt *o = &ops[1].adapt;
        o->rows = 1;
        o->in = ops[0].product.in.x;
        o->cols = ops[0].product.in.cols;
        o->y = ops[0].product.y[0];
        if (taker == MO_OP_HEADS) {
            h->tokens = 1;
            h->q = o->y;
            o->n = h->heads * h->k_len * (h->gated ? 2 : 1);
        } else {
            ops[3].stream.tokens = 1;
            ops[3].stream.feed = 0;
            ops[3].stream.y = o->y;
            o->n = ops[3].stream.n;
        }
        ops[2].adapt = *o;
        mo_cuda_launch launch[2];
        mo_cuda_lowered with_product;
        mo_cuda_adapted both;
        const mo_cuda_place where = {.mail = place(), .sums = place()};
        if (mo_cuda_launch_lowered(ops, 2, compute, sms, &with_product, launch)) {
            check_launch(&ops[1], launch);
            lowered++;
        }
        if (mo_cuda_launch_adapted(ops, 4, compute, sms, &where, &both, launch)) {
            check_launch(&ops[1], &launch[0]);
            check_launch(&ops[2], &launch[1]);
            assert_true(both.lowered.blocks > 0 && both.lowered.blocks <= sms); /* they wait for each other */
            *(taker == MO_OP_HEADS ? &raised : &streamed) += 1;
        }
    }
    assert_true(lowered > 0 && raised > 0 && streamed > 0);
}

static void every_name(void **state)
{
    (void)state;
    need_kernels();
    list_kernels();
    for (int kind = 0; kind < MO_OP_KINDS; kind++) {
        int can = 0;
        for (int i = 0; i < DRAWS; i++) {
            seed = (uint64_t)kind * DRAWS + (uint64_t)i;
            mo_op op = {.kind = (mo_op_kind)kind};
            draw(&op);
            mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
            mo_error err = {0};
            const int count =
                mo_cuda_launch_op(&op, ONE_OF(75, 80, 86, 90, 120), ONE_OF(20, 80, 132), launches, &err);
            assert_true(count <= MO_CUDA_KERNELS_PER_OP && (count >= 0 || err.detail[0]));
            for (int k = 0; k < count; k++) {
                check_launch(&op, &launches[k]);
            }
            if (count > 0) {
                check_made(&op, &launches[0]);
            }
            can += count > 0;
        }
        assert_true(can > DRAWS / 2);
    }
    draw_routers();
    draw_attentions();
    draw_adapted();
    for (int i = 0; i < kernel_count; i++) {
        if (!kernels[i].named) {
            fail_msg("no launch ever names kernel %s", kernels[i].name);
        }
    }
    assert_true(kernel_count > MO_OP_KINDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
