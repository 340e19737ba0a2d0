#include <string.h>

#include "device/cuda/launch.h"

enum { LOWER_WARPS = 4, LOWER_BLOCKS = 4, ADAPT_THREADS = 128, ROWS_MOST = 16384, LOWER_MOST = 32 };

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

int mo_cuda_launch_adapt(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_adapt *o = &op->adapt;
    (void)compute;
    (void)sms;
    (void)err;
    if (o->rows == 0) {
        return 0;
    }
    const bool lower = op->kind == MO_OP_LOWER;
    const uint32_t rows = (uint32_t)(o->rows < ROWS_MOST ? o->rows : ROWS_MOST);
    const bool one = o->rows == 1 && !o->pick && !o->groups;
    *out = (mo_cuda_launch){.kernel = lower ? "mo_lower"
                                      : one ? "mo_adapt_one"
                                            : "mo_adapt",
                            .prelaunch = true,
                            .grid = {lower ? LOWER_BLOCKS : pieces(o->n, ADAPT_THREADS), rows, 1},
                            .block = {lower ? 32 * LOWER_WARPS : ADAPT_THREADS, 1, 1}};
    return 1;
}

/* ---- In the kernels around it ---- */

/* One token and one matrix that is not an expert's, with as many adapters as a part holds. */
static bool fits(const mo_op_adapt *o)
{
    for (int i = MO_JOINED_LOWS; i < MO_OP_ADAPTERS; i++) {
        if (o->low[i].a) {
            return false;
        }
    }
    return o->rows == 1 && !o->pick && !o->groups && o->n > 0;
}

static mo_cuda_part part_of(const mo_op_adapt *o)
{
    mo_cuda_part part = {.u = o->u, .y = o->y, .n = o->n};
    memcpy(part.low, o->low, sizeof part.low);
    return part;
}

/* What one writes of u no other one may: they run side by side. */
static bool overlap(const mo_op_adapt *a, const mo_op_adapt *b)
{
    const mo_daddr bytes = (mo_daddr)a->u_stride * sizeof(float);
    return a->u < b->u + bytes && b->u < a->u + bytes;
}

/* The LOWERs among ops[0 .. count) that can go beside a product of `in` with one token; they follow each other. */
static int lowers(const mo_op *ops, int count, mo_daddr in, int cols)
{
    int n = 0;
    for (; n < count && n < MO_JOINED_PARTS && ops[n].kind == MO_OP_LOWER; n++) {
        const mo_op_adapt *o = &ops[n].adapt;
        bool alone = fits(o) && o->in == in && o->cols == cols && o->uses == ops[0].adapt.uses &&
                     o->first == ops[0].adapt.first;
        for (int i = 0; i < n; i++) {
            alone &= !overlap(o, &ops[i].adapt);
        }
        if (!alone) {
            break;
        }
    }
    return n;
}

static mo_cuda_parts begin_parts(const mo_op_adapt *o)
{
    return (mo_cuda_parts){.in = o->in,
                           .uses = o->uses + (mo_daddr)o->first * MO_OP_USES * sizeof(mo_dadapter_use),
                           .cols = o->cols};
}

int mo_cuda_launch_lowered(const mo_op *ops, int count, int compute, int sms, mo_cuda_lowered *lowered,
                           mo_cuda_launch *out)
{
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    if (ops->kind != MO_OP_PRODUCT || count < 2 || ops[1].kind != MO_OP_LOWER) {
        return 0;
    }
    const mo_op_product *p = &ops->product;
    const int taken = lowers(ops + 1, count - 1, p->in.x, p->in.cols);
    if (taken == 0 || mo_cuda_launch_op(ops, compute, sms, alone, &err) != 1) {
        return 0;
    }
    const bool all = strcmp(alone->kernel, "mo_slab_product_all") == 0;
    if (!all && strcmp(alone->kernel, "mo_slab_product") != 0) {
        return 0;
    }
    int64_t rows = 0, longest = 16;
    *lowered = (mo_cuda_lowered){.product = *p, .parts = begin_parts(&ops[1].adapt)};
    lowered->parts.count = taken;
    for (int i = 0; i < taken; i++) {
        lowered->parts.part[i] = part_of(&ops[1 + i].adapt);
        for (int k = 0; k < MO_JOINED_LOWS; k++) {
            const mo_dlow *low = &ops[1 + i].adapt.low[k];
            if (low->a && low->rank > 0) {
                const int64_t row = (low->a_bytes / low->rank + 15) / 16 * 16;
                rows += low->rank;
                longest = row > longest ? row : longest;
            }
        }
    }
    /* As many warps of a block as have space for a row each. */
    const int64_t warps = alone->block[0] / 32, room = (int64_t)alone->shared / longest;
    lowered->warps = (int32_t)(room < 1 || room > warps ? warps : room);
    lowered->space = room < 1 ? 0 : (int32_t)longest;
    const uint32_t blocks = pieces(rows, lowered->warps);
    lowered->blocks = (int32_t)(blocks < LOWER_MOST ? blocks : LOWER_MOST);
    *out = *alone;
    out->kernel = all ? "mo_slab_lowered_all" : "mo_slab_lowered";
    out->grid[0] += (uint32_t)lowered->blocks;
    return 1 + taken;
}

/* Which part of the heads an op adds to; -1: to none, or not so that a warp has what it needs. */
static int part_in(const mo_op_heads *h, const mo_op_adapt *o)
{
    const int queries = h->heads * h->k_len * (h->gated ? 2 : 1);
    return !fits(o)                                         ? -1
           : o->y == h->q && o->n == queries                ? 0
           : o->y == h->k && o->n == h->kv_heads * h->k_len ? 1
           : o->y == h->v && o->n == h->kv_heads * h->v_len ? 2
                                                            : -1;
}

int mo_cuda_launch_raised(const mo_op *ops, int count, int compute, int sms, mo_cuda_raised *raised,
                          mo_cuda_launch *out)
{
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    int n = 0;
    while (n < count && n < MO_JOINED_PARTS && ops[n].kind == MO_OP_ADAPT) {
        n++;
    }
    if (n == 0 || n == count || ops[n].kind != MO_OP_HEADS) {
        return 0;
    }
    const mo_op_heads *h = &ops[n].heads;
    if (h->tokens != 1 || h->v_from_k || mo_cuda_launch_op(&ops[n], compute, sms, alone, &err) != 1) {
        return 0;
    }
    *raised = (mo_cuda_raised){.heads = *h, .parts = begin_parts(&ops->adapt)};
    raised->parts.count = MO_JOINED_PARTS;
    for (int i = 0; i < n; i++) {
        const int which = part_in(h, &ops[i].adapt);
        if (which < 0 || raised->parts.part[which].n || ops[i].adapt.uses != ops->adapt.uses ||
            ops[i].adapt.first != ops->adapt.first) {
            return 0;
        }
        raised->parts.part[which] = part_of(&ops[i].adapt);
    }
    *out = *alone;
    out->kernel = "mo_heads_adapted";
    const int longest = h->k_len > h->v_len ? h->k_len : h->v_len;
    if (longest <= 32 * MO_HELD_VALUES) { /* every warp has space for B */
        out->shared += out->block[0] / 32 * MO_HELD_RANK * (uint32_t)longest * (uint32_t)sizeof(float);
    }
    return n + 1;
}
