#include <string.h>

#include "device/cuda/launch.h"

enum {
    LOWER_WARPS = 4,
    LOWER_BLOCKS = 4,
    ADAPT_THREADS = 128,
    ROWS_MOST = 16384,
    LOWERED_MOST = 32,          /* thread blocks added to a product */
    LOWERED_SHARED = 48 * 1024, /* bytes of shared memory that a block of such a product has at most */
};

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

/* ---- With the product ---- */

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

/* What one writes of u no other one may: they run side by side. */
static bool overlap(const mo_op_adapt *a, const mo_op_adapt *b)
{
    const mo_daddr bytes = (mo_daddr)a->u_stride * sizeof(float);
    return a->u < b->u + bytes && b->u < a->u + bytes;
}

/* The LOWERs among ops[0 .. count) that can run with a product of `in` with one token; they follow each other. */
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

/* Part after part: where its values and its ranks are among those of all, and its rows of A. False: they cannot be copied 16 bytes at a time, or are of
 * another format than those before. */
static bool add_part(mo_cuda_lowered *lowered, const mo_op_adapt *o, const mo_cuda_place *place)
{
    mo_cuda_parts *parts = &lowered->parts;
    const int which = parts->count++;
    mo_cuda_part *part = &parts->part[which];
    *part = (mo_cuda_part){.u = o->u, .y = o->y, .n = o->n, .at = parts->values};
    part->t = place ? place->sums + (mo_daddr)MO_JOINED_LOWS * (mo_daddr)part->at * sizeof(float) : 0;
    memcpy(part->low, o->low, sizeof part->low);
    parts->values += o->n;
    for (int k = 0; k < MO_JOINED_LOWS; k++) {
        const mo_dlow *low = &o->low[k];
        part->word[k] = parts->words;
        lowered->rows.first[MO_JOINED_LOWS * which + k] = (int16_t)parts->words;
        lowered->rows.a[MO_JOINED_LOWS * which + k] = low->a;
        if (!low->a) {
            continue;
        }
        const int64_t row = low->rank > 0 ? low->a_bytes / low->rank : 0;
        if (row <= 0 || row > LOWERED_SHARED || row % 16 != 0 || low->a % 16 != 0 ||
            (parts->words > 0 && low->type != lowered->type)) {
            return false;
        }
        lowered->type = low->type;
        lowered->space = (int32_t)row;
        parts->words += low->rank;
    }
    return parts->words < INT16_MAX;
}

/* Space for x, rows of A and A x of all in a thread block of the product: as many rows as have it where it is, or one in a little more. */
static bool make_room(mo_cuda_lowered *lowered, mo_cuda_launch *launch)
{
    const int64_t warps = launch->block[0] / 32,
                  beside = 4 * ((int64_t)lowered->parts.cols + lowered->parts.words);
    const int64_t slots = ((int64_t)launch->shared - beside) / lowered->space;
    lowered->slots = (int32_t)(slots < 1 ? 1 : slots < warps ? slots : warps);
    if (slots < 1) {
        launch->shared = (uint32_t)(beside + lowered->space);
    }
    return launch->shared <= LOWERED_SHARED;
}

/* As many thread blocks as there are rows of A at a time, and values where B is joined: but they must be on the device together. */
static void count_blocks(mo_cuda_lowered *lowered, int sms, bool raised, mo_cuda_launch *launch)
{
    const uint32_t most = sms < LOWERED_MOST ? (uint32_t)sms : LOWERED_MOST,
                   rows = pieces(lowered->parts.words, lowered->slots),
                   values = raised ? pieces(lowered->parts.values, launch->block[0]) : 0,
                   blocks = rows > values ? rows : values;
    lowered->blocks = (int32_t)(blocks < most ? blocks : most);
    launch->grid[0] += (uint32_t)lowered->blocks;
}

/* How many ops are a product and what LOWER makes of its input; 0: none. place: for sums, or NULL. The blocks are not counted. */
static int lower(const mo_op *ops, int count, int compute, int sms, const mo_cuda_place *place,
                 mo_cuda_lowered *lowered, mo_cuda_launch *out)
{
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    if (ops->kind != MO_OP_PRODUCT || count < 2 || ops[1].kind != MO_OP_LOWER) {
        return 0;
    }
    const mo_op_product *p = &ops->product;
    const mo_op_adapt *first = &ops[1].adapt;
    const int taken = lowers(ops + 1, count - 1, p->in.x, p->in.cols);
    if (taken == 0 || p->in.x % 16 != 0 || p->in.cols % 4 != 0 ||
        mo_cuda_launch_op(ops, compute, sms, alone, &err) != 1) {
        return 0;
    }
    const bool all = strcmp(alone->kernel, "mo_slab_product_all") == 0;
    if (!all && strcmp(alone->kernel, "mo_slab_product") != 0) {
        return 0;
    }
    *lowered = (mo_cuda_lowered){
        .product = *p,
        .parts = {.in = first->in,
                  .uses = first->uses + (mo_daddr)first->first * MO_OP_USES * sizeof(mo_dadapter_use),
                  .mail = place ? place->mail : 0,
                  .cols = first->cols}};
    for (size_t i = 0; i < sizeof lowered->rows.first / sizeof *lowered->rows.first; i++) {
        lowered->rows.first[i] = INT16_MAX;
    }
    for (int i = 0; i < taken; i++) {
        if (!add_part(lowered, &ops[1 + i].adapt, place)) {
            return 0;
        }
    }
    *out = *alone;
    out->kernel = all ? "mo_slab_lowered_all" : "mo_slab_lowered";
    return lowered->parts.words > 0 && make_room(lowered, out) ? 1 + taken : 0;
}

int mo_cuda_launch_lowered(const mo_op *ops, int count, int compute, int sms, mo_cuda_lowered *lowered,
                           mo_cuda_launch *out)
{
    const int taken = lower(ops, count, compute, sms, NULL, lowered, out);
    if (taken) {
        count_blocks(lowered, sms, false, out);
    }
    return taken;
}

/* ---- And in the next kernel ---- */

/* Which part of the heads an op adds to; -1: to none. */
static int part_in(const mo_op_heads *h, const mo_cuda_part *part)
{
    const int queries = h->heads * h->k_len * (h->gated ? 2 : 1);
    return part->y == h->q && part->n == queries                  ? 0
           : part->y == h->k && part->n == h->kv_heads * h->k_len ? 1
           : part->y == h->v && part->n == h->kv_heads * h->v_len ? 2
                                                                  : -1;
}

static bool raise_heads(const mo_op *op, const mo_cuda_parts *parts, mo_cuda_raised *raised,
                        mo_cuda_launch *alone)
{
    const mo_op_heads *h = &op->heads;
    if (op->kind != MO_OP_HEADS || h->tokens != 1 || h->v_from_k) {
        return false;
    }
    *raised = (mo_cuda_raised){.heads = *h, .parts = *parts};
    memset(raised->parts.part, 0, sizeof raised->parts.part);
    for (int i = 0; i < parts->count; i++) {
        const int which = part_in(h, &parts->part[i]);
        if (which < 0 || raised->parts.part[which].n) {
            return false;
        }
        raised->parts.part[which] = parts->part[i];
    }
    raised->parts.count = MO_JOINED_PARTS;
    alone->kernel = "mo_heads_adapted";
    return true;
}

static bool raise_stream(const mo_op *op, const mo_cuda_parts *parts, mo_cuda_streamed *streamed,
                         mo_cuda_launch *alone)
{
    const mo_op_stream *s = &op->stream;
    const mo_cuda_part *part = &parts->part[0];
    if (op->kind != MO_OP_STREAM || s->tokens != 1 || s->feed || parts->count != 1 || part->y != s->y ||
        part->n != s->n || strcmp(alone->kernel, "mo_stream_short") != 0) {
        return false;
    }
    *streamed = (mo_cuda_streamed){.stream = *s, .parts = *parts};
    alone->kernel = "mo_stream_adapted";
    return true;
}

/* The ADAPTs of the same parts, in their order, whose sums are taken four at a time. */
static bool same_parts(const mo_op *ops, const mo_cuda_parts *parts)
{
    for (int i = 0; i < parts->count; i++) {
        const mo_op_adapt *o = &ops[i].adapt;
        const mo_cuda_part *part = &parts->part[i];
        if (ops[i].kind != MO_OP_ADAPT || !fits(o) || o->u != part->u || o->y != part->y || o->n != part->n ||
            memcmp(o->low, part->low, sizeof part->low) != 0 || part->n % 4 != 0) {
            return false;
        }
    }
    return parts->words <= MO_JOINED_WORDS && parts->values <= MO_JOINED_VALUES;
}

int mo_cuda_launch_adapted(const mo_op *ops, int count, int compute, int sms, const mo_cuda_place *place,
                           mo_cuda_adapted *adapted, mo_cuda_launch out[2])
{
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    mo_cuda_lowered *lowered = &adapted->lowered;
    const int taken = lower(ops, count, compute, sms, place, lowered, &out[0]), parts = taken - 1,
              last = taken + parts;
    if (taken == 0 || last >= count || !same_parts(ops + taken, &lowered->parts) ||
        mo_cuda_launch_op(&ops[last], compute, sms, alone, &err) != 1) {
        return 0;
    }
    out[1] = *alone;
    if (!raise_heads(&ops[last], &lowered->parts, &adapted->raised, &out[1]) &&
        !raise_stream(&ops[last], &lowered->parts, &adapted->streamed, &out[1])) {
        return 0;
    }
    count_blocks(lowered, sms, true, &out[0]);
    return last + 1;
}
