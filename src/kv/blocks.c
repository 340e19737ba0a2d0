#include "kv/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "numeric/kv.h"

/* ---- Opening and closing ----------------------------------------------------------------------- */

static mo_status enter(mo_blocks *b, mo_error *err)
{
    mo_block_need *needs = calloc((size_t)b->layers + 1, sizeof *needs);
    if (!needs) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tables of a session's state");
    }
    for (int i = 0; i < b->layers; i++) {
        needs[i] = (mo_block_need){.bytes = b->layer[i].bytes, .count = b->layer[i].length};
    }
    const mo_status status = mo_block_pool_enter(b->pool, needs, &b->home, err);
    free(needs);
    return status;
}

mo_status mo_blocks_init(mo_blocks *b, mo_block_pool *pool, mo_block_holder who, const mo_blocks_layer *shape,
                         int layers, mo_error *err)
{
    int64_t entries = 0;
    *b = (mo_blocks){.who = who, .home = -1, .layers = layers};
    for (int i = 0; i < layers; i++) {
        entries += shape[i].length;
    }
    b->layer = calloc((size_t)layers + 1, sizeof *b->layer);
    b->numbers = malloc(sizeof *b->numbers * ((size_t)entries + 1));
    if (!b->layer || !b->numbers) {
        mo_blocks_drop(b);
        return mo_fail(err, MO_ENOMEM, "out of memory for the tables of a session's state");
    }
    memset(b->numbers, 0xFF, sizeof *b->numbers * ((size_t)entries + 1)); /* -1 everywhere */
    int32_t *numbers = b->numbers;
    for (int i = 0; i < layers; i++) {
        b->layer[i] = shape[i];
        b->layer[i].numbers = numbers;
        numbers += shape[i].length;
    }
    b->pool = pool;
    mo_block_pool_join(pool);
    const mo_status status = who == MO_HOLDS ? enter(b, err) : MO_OK;
    if (status != MO_OK) {
        b->pool = NULL;
        mo_block_pool_part(pool);
        mo_blocks_drop(b);
    }
    return status;
}

mo_status mo_blocks_init_alone(mo_blocks *b, const mo_blocks *like, mo_error *err)
{
    mo_block_need *needs = calloc((size_t)like->layers + 1, sizeof *needs);
    for (int i = 0; needs && i < like->layers; i++) {
        needs[i] = (mo_block_need){.bytes = like->layer[i].bytes, .count = like->layer[i].length};
    }
    mo_block_pool *pool = needs ? mo_block_pool_open(needs, like->layers, &mo_block_source_ram, NULL) : NULL;
    free(needs);
    *b = (mo_blocks){0};
    if (!pool) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a copy of the session's state");
    }
    const mo_status status = mo_blocks_init(b, pool, MO_HOLDS, like->layer, like->layers, err);
    mo_block_pool_close(pool, true); /* the tables refer to it */
    return status;
}

void mo_blocks_drop(mo_blocks *b)
{
    if (b->pool) {
        mo_blocks_clear(b);
        if (b->who == MO_HOLDS) {
            mo_block_pool_leave(b->pool, b->home);
        }
        mo_block_pool_part(b->pool);
    }
    free(b->numbers);
    free(b->layer);
    *b = (mo_blocks){0};
}

/* ---- Releasing --------------------------------------------------------------------------------- */

/* Under the pool's lock. */
static void release_entry(mo_blocks *b, int32_t *number)
{
    if (*number >= 0) {
        mo_block_release(b->pool, *number, b->who);
        *number = -1;
    }
}

static void clear(mo_blocks *b)
{
    for (int i = 0; i < b->layers; i++) {
        for (int64_t e = 0; e < b->layer[i].length; e++) {
            release_entry(b, &b->layer[i].numbers[e]);
        }
    }
    b->mine_from = b->mine_to = 0;
    b->changes++;
}

void mo_blocks_clear(mo_blocks *b)
{
    mo_block_pool_lock(b->pool);
    clear(b);
    mo_block_pool_unlock(b->pool);
}

void mo_blocks_trim(mo_blocks *b, int64_t length)
{
    mo_block_pool_lock(b->pool);
    for (int i = 0; i < b->layers; i++) {
        const mo_blocks_layer *l = &b->layer[i];
        for (int64_t e = (length + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
             !l->recurrent && !l->circular && e < l->length && l->numbers[e] >= 0; e++) {
            release_entry(b, &l->numbers[e]);
        }
    }
    b->mine_from = b->mine_to = 0;
    b->changes++;
    mo_block_pool_unlock(b->pool);
}

/* ---- Sharing ----------------------------------------------------------------------------------- */

/* A circular table has the last blocks of the sequence, up to its length. */
mo_blocks_span mo_blocks_span_of(const mo_blocks_layer *to, const mo_blocks_layer *from, int64_t length)
{
    if (to->recurrent) {
        return (mo_blocks_span){.first = 0, .end = 1};
    }
    const int64_t end = (length + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    const int64_t most = to->length < from->length ? to->length : from->length;
    return (mo_blocks_span){.first = end > most ? end - most : 0, .end = end};
}

void mo_blocks_share(mo_blocks *to, mo_blocks *from, int64_t length)
{
    mo_block_pool_lock(to->pool);
    clear(to);
    for (int i = 0; i < to->layers && length > 0; i++) {
        const mo_blocks_layer *t = &to->layer[i], *f = &from->layer[i];
        const mo_blocks_span span = mo_blocks_span_of(t, f, length);
        for (int64_t n = span.first; n < span.end; n++) {
            const int32_t number = f->numbers[n % f->length];
            if (number >= 0) {
                mo_block_hold(to->pool, number, to->who);
                t->numbers[n % t->length] = number;
            }
        }
    }
    if (from->mine_to != 0) { /* never for a snapshot, which several threads may read at once */
        from->mine_from = from->mine_to = 0;
    }
    mo_block_pool_unlock(to->pool);
}

static mo_status none_free(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM,
                   "out of memory for more tokens: other sessions and cached snapshots use "
                   "all of it; close snapshots, or increase `kept_bytes` or `positions`");
}

mo_status mo_blocks_match(mo_blocks *to, const mo_blocks *from, int64_t length, mo_error *err)
{
    bool enough = true;
    mo_block_pool_lock(to->pool);
    clear(to);
    for (int i = 0; i < to->layers && length > 0; i++) {
        const mo_blocks_layer *t = &to->layer[i], *f = &from->layer[i];
        const mo_blocks_span span = mo_blocks_span_of(t, f, length);
        for (int64_t n = span.first; n < span.end && enough; n++) {
            int32_t *number = &t->numbers[n % t->length];
            if (f->numbers[n % f->length] >= 0) {
                *number = mo_block_acquire(to->pool, i, to->home, n % t->length, to->who);
                enough = *number >= 0;
            }
        }
    }
    if (!enough) {
        clear(to);
    }
    mo_block_pool_unlock(to->pool);
    return enough ? MO_OK : none_free(err);
}

void mo_blocks_join(mo_blocks *to, const mo_blocks *tail, int64_t first, int64_t end)
{
    mo_block_pool_lock(to->pool);
    for (int i = 0; i < to->layers; i++) {
        const mo_blocks_layer *t = &to->layer[i], *f = &tail->layer[i];
        for (int64_t n = first; n < end; n++) {
            const int32_t number = f->numbers[n % f->length];
            release_entry(to, &t->numbers[n % t->length]);
            mo_block_hold(to->pool, number, to->who);
            t->numbers[n % t->length] = number;
        }
    }
    to->mine_from = to->mine_to = 0;
    to->changes++;
    mo_block_pool_unlock(to->pool);
}

/* ---- Before writing ---------------------------------------------------------------------------- */

/* The next block to acquire or copy from position *u on; the lock is held. False: none. A layer's recurrent
 * block counts as its first. */
static bool next_change(const mo_blocks *b, int layer, int64_t *u, int64_t end, mo_block_change *out)
{
    const mo_blocks_layer *l = &b->layer[layer];
    while (*u < end) {
        const int64_t at = *u, entry = l->recurrent ? 0 : mo_kv_entry(at, l->length);
        const int32_t number = l->numbers[entry];
        *u = l->recurrent ? end : at - at % MO_KV_BLOCK + MO_KV_BLOCK;
        if (number < 0 || mo_block_is_shared(b->pool, number)) {
            /* The contents of a block that begins here are not needed, except older positions in a circular
             * table. */
            const bool empty = !l->recurrent && !l->circular && at % MO_KV_BLOCK == 0;
            *out = (mo_block_change){.layer = layer, .entry = entry, .from = empty ? -1 : number};
            return true;
        }
    }
    return false;
}

/* Replaces the block of an entry, with the data that `change` copies from the old one. Copies are made
 * without the lock: the old block is held until then, and the new one is not visible. */
static mo_status exchange(mo_blocks *b, mo_block_change *c, mo_block_change_fn change, void *ctx,
                          mo_error *err)
{
    int32_t *number = &b->layer[c->layer].numbers[c->entry];
    c->to = mo_block_acquire(b->pool, c->layer, b->home, c->entry, b->who);
    if (c->to < 0) {
        return none_free(err);
    }
    c->to_at = mo_block_address(b->pool, c->to);
    c->from_at = c->from >= 0 ? mo_block_address(b->pool, c->from) : 0;
    mo_block_pool_unlock(b->pool);
    const mo_status status = change(ctx, c, err);
    mo_block_pool_lock(b->pool);
    if (status != MO_OK) {
        mo_block_release(b->pool, c->to, b->who);
        return status;
    }
    release_entry(b, number);
    *number = c->to;
    b->changes++;
    return MO_OK;
}

mo_status mo_blocks_own(mo_blocks *b, int64_t begin, int64_t end, const bool *only, mo_block_change_fn change,
                        void *ctx, mo_error *err)
{
    mo_status status = MO_OK;
    if (begin >= b->mine_from && end <= b->mine_to) {
        return MO_OK;
    }
    mo_block_pool_lock(b->pool);
    for (int i = 0; i < b->layers && status == MO_OK; i++) {
        int64_t u = begin;
        mo_block_change c;
        while ((!only || only[i]) && status == MO_OK && next_change(b, i, &u, end, &c)) {
            status = exchange(b, &c, change, ctx, err);
        }
    }
    if (status == MO_OK && !only) {
        b->mine_from = begin;
        b->mine_to = (end + MO_KV_BLOCK - 1) / MO_KV_BLOCK * MO_KV_BLOCK;
    }
    mo_block_pool_unlock(b->pool);
    return status;
}

int64_t mo_blocks_need(const mo_blocks *b, int64_t begin, int64_t end)
{
    int64_t bytes = 0;
    mo_block_pool_lock(b->pool);
    for (int i = 0; i < b->layers; i++) {
        const mo_blocks_layer *l = &b->layer[i];
        int64_t u = begin, blocks = 0;
        mo_block_change c;
        while (next_change(b, i, &u, end, &c)) {
            blocks++;
        }
        bytes += (blocks < l->length ? blocks : l->length) * mo_block_aligned(l->bytes);
    }
    mo_block_pool_unlock(b->pool);
    return bytes;
}

/* ---- Queries ----------------------------------------------------------------------------------- */

void mo_blocks_count(const mo_blocks *b, int64_t *all, int64_t *alone)
{
    *all = *alone = 0;
    mo_block_pool_lock(b->pool);
    for (int i = 0; i < b->layers; i++) {
        for (int64_t e = 0; e < b->layer[i].length; e++) {
            const int32_t number = b->layer[i].numbers[e];
            if (number >= 0) {
                *all += mo_block_bytes(b->pool, number);
                *alone += mo_block_is_shared(b->pool, number) ? 0 : mo_block_bytes(b->pool, number);
            }
        }
    }
    mo_block_pool_unlock(b->pool);
}

void mo_blocks_addresses(const mo_blocks *b, int layer, uint64_t *out)
{
    const mo_blocks_layer *l = &b->layer[layer];
    mo_block_pool_lock(b->pool);
    for (int64_t e = 0; e < l->length; e++) {
        out[e] = l->numbers[e] >= 0 ? mo_block_address(b->pool, l->numbers[e]) : 0;
    }
    mo_block_pool_unlock(b->pool);
}

uint64_t mo_blocks_address(const mo_blocks *b, int layer, int64_t entry)
{
    const int32_t number = b->layer[layer].numbers[entry];
    uint64_t address = 0;
    if (number >= 0) {
        mo_block_pool_lock(b->pool);
        address = mo_block_address(b->pool, number);
        mo_block_pool_unlock(b->pool);
    }
    return address;
}
