/* Delta snapshots. Two sequences that diverge in the middle of a block each have their own block there, with
 * the same beginning. A delta snapshot stores only its own positions, as rows in RAM, and refers to the
 * other's block for those before them. Attention needs whole blocks (numeric/kv.h), so restoring assembles
 * one. */
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "engine/snapshot.h"

/* Maximum positions stored as rows; and the minimum number of positions saved compared to blocks. */
enum { ROWS_MAX = MO_KV_BLOCK, WORTHWHILE = 16 };

static int64_t blocks_of(int64_t positions)
{
    return (positions + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
}

static mo_status no_memory(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory for a part of a session's state");
}

/* ---- Tables ------------------------------------------------------------------------------------ */

/* Tables for the last `length` blocks of a sequence; in windows as many as before. pool NULL: unshared, in
 * RAM. */
static mo_status tables(const mo_snapshot *s, mo_block_pool *pool, int64_t length, bool windows,
                        mo_blocks *out, mo_error *err)
{
    const int layers = s->blocks.layers;
    mo_blocks_layer *shape = calloc((size_t)layers + 1, sizeof *shape);
    if (!shape) {
        return no_memory(err);
    }
    for (int i = 0; i < layers; i++) {
        shape[i] = s->blocks.layer[i];
        shape[i].length = windows && shape[i].circular ? shape[i].length : length;
    }
    const mo_blocks like = {.layer = shape, .layers = layers};
    const mo_status status = pool ? mo_blocks_init(out, pool, MO_KEEPS, shape, layers, err)
                                  : mo_blocks_init_alone(out, &like, err);
    free(shape);
    return status;
}

/* Moves the rows of all layers between blocks in RAM and `rows`. */
static mo_status move_rows(const mo_snapshot *s, const mo_blocks *blocks, int64_t begin, uint8_t *rows,
                           bool out, mo_error *err)
{
    uint8_t *at = rows;
    for (int i = 0; i < blocks->layers; i++) {
        const mo_blocks_layer *l = &blocks->layer[i];
        const mo_kv_shape kv = mo_attention_cache(&s->engine->spec->layers[i].attention, s->kv);
        uint8_t **table = calloc((size_t)l->length, sizeof *table);
        if (!table) {
            return no_memory(err);
        }
        for (int64_t n = begin / MO_KV_BLOCK; n < blocks_of(s->mark.length); n++) {
            table[n % l->length] = (uint8_t *)(uintptr_t)mo_blocks_address(blocks, i, n % l->length);
        }
        at += mo_state_move_rows(&kv, table, l->length, begin, s->mark.length, at, out);
        free(table);
    }
    return MO_OK;
}

/* ---- Assembling --------------------------------------------------------------------------------- */

/* Fills a block that rows go into with the positions before them. */
static mo_status begin_block(void *ctx, const mo_block_change *c, mo_error *err)
{
    const mo_snapshot *s = ctx;
    const mo_blocks_layer *l = &s->blocks.layer[c->layer];
    const int64_t n = s->rows_from / MO_KV_BLOCK,
                  /* length of the table */
        tail = blocks_of(s->mark.length) - n;
    (void)err;
    if (!s->on_device && s->rows_from % MO_KV_BLOCK && c->entry == n % tail) {
        const uint64_t from = mo_blocks_address(&s->blocks, c->layer, n % l->length);
        memcpy((uint8_t *)(uintptr_t)c->to_at, (const uint8_t *)(uintptr_t)from, (size_t)l->bytes);
    }
    return MO_OK;
}

/* Assembles the blocks that the rows go into, in tables in RAM. */
static mo_status put_together(const mo_snapshot *s, mo_blocks *tail, mo_error *err)
{
    mo_status status = MO_OK;
    if (s->on_device && s->rows_from % MO_KV_BLOCK) {
        status = mo_snapshot_copy(s->engine, tail, &s->blocks, s->rows_from, false, err);
    }
    if (status == MO_OK) {
        status = mo_blocks_own(tail, s->rows_from, s->mark.length, NULL, begin_block, (mo_snapshot *)s, err);
    }
    return status == MO_OK ? move_rows(s, tail, s->rows_from, s->rows, false, err) : status;
}

static int64_t tail_blocks(const mo_snapshot *s)
{
    return blocks_of(s->mark.length) - s->rows_from / MO_KV_BLOCK;
}

mo_status mo_snapshot_tail(const mo_snapshot *s, mo_blocks *out, mo_error *err)
{
    mo_status status = tables(s, NULL, tail_blocks(s), false, out, err);
    if (status == MO_OK) {
        status = put_together(s, out, err);
        if (status != MO_OK) {
            mo_blocks_drop(out);
        }
    }
    return status;
}

/* The same blocks, in the snapshot's pool. */
static mo_status tail_there(const mo_snapshot *s, mo_blocks *out, mo_error *err)
{
    mo_blocks ram = {0};
    mo_status status = tables(s, s->blocks.pool, tail_blocks(s), false, out, err);
    if (status != MO_OK) {
        return status;
    }
    if (!s->on_device) {
        status = put_together(s, out, err);
    } else {
        status = mo_snapshot_tail(s, &ram, err);
        if (status == MO_OK) {
            status = mo_snapshot_copy(s->engine, out, &ram, s->mark.length, true, err);
            mo_blocks_drop(&ram);
        }
    }
    if (status != MO_OK) {
        mo_blocks_drop(out);
    }
    return status;
}

mo_status mo_snapshot_whole(const mo_snapshot *s, mo_blocks *out, mo_error *err)
{
    mo_blocks tail;
    const int64_t end = blocks_of(s->mark.length);
    mo_status status = tail_there(s, &tail, err);
    if (status != MO_OK) {
        return status;
    }
    status = tables(s, s->blocks.pool, end, true, out, err);
    if (status == MO_OK) {
        mo_blocks_share(out, (mo_blocks *)&s->blocks, s->rows_from);
        mo_blocks_join(out, &tail, s->rows_from / MO_KV_BLOCK, end);
    }
    mo_blocks_drop(&tail);
    return status;
}

/* ---- Making deltas ---------------------------------------------------------------------------- */

void mo_snapshot_drop_rows(mo_snapshot *s)
{
    if (s->rows) {
        atomic_fetch_sub(&s->engine->row_bytes, (long long)s->rows_bytes);
    }
    free(s->rows);
    s->rows = NULL;
    s->rows_bytes = 0;
}

/* Number of positions that both have in common and that are in blocks of `on`. */
static int64_t common_positions(const mo_snapshot *s, const mo_snapshot *on)
{
    const int64_t held = mo_snapshot_in_blocks(on);
    const int64_t most = held < s->mark.length ? held : s->mark.length;
    int64_t common = 0;
    while (common < most && s->tokens[common] == on->tokens[common]) {
        common++;
    }
    return common;
}

/* True if `on` still has everything that a sequence sees if it diverges there. */
static bool sees_all(const mo_snapshot *s, const mo_snapshot *on, int64_t common)
{
    if (on->blocks.layers != s->engine->spec->layer_count) {
        return false; /* compressed keys, which rows do not have */
    }
    for (int i = 0; i < on->blocks.layers; i++) {
        const mo_blocks_layer *l = &on->blocks.layer[i];
        const int64_t window = s->engine->spec->layers[i].attention.window;
        const int64_t oldest = window && common > window ? (common - window) / MO_KV_BLOCK : 0;
        if (l->recurrent || (l->circular && oldest + l->length <= (on->mark.written - 1) / MO_KV_BLOCK)) {
            return false;
        }
    }
    return true;
}

/* The same text and arithmetic give the same bits, wherever they were computed. */
static bool may_be_delta(const mo_snapshot *s, const mo_snapshot *on)
{
    return s != on && s->engine && s->engine == on->engine && s->blocks.pool == on->blocks.pool && !s->rows &&
           !s->number && !on->number && s->precision == MO_PRECISION_EXACT &&
           on->precision == MO_PRECISION_EXACT && s->adapters == on->adapters && s->context == on->context;
}

static bool is_worthwhile(const mo_snapshot *s, const mo_snapshot *on, int64_t common)
{
    const int64_t rows = s->mark.length - common, first = common / MO_KV_BLOCK;
    const int64_t blocks = blocks_of(s->mark.length) - first;
    if (common == 0 || rows == 0 || rows > ROWS_MAX || blocks * MO_KV_BLOCK - rows < WORTHWHILE) {
        return false;
    }
    const mo_blocks_layer *mine = &s->blocks.layer[0], *other = &on->blocks.layer[0];
    /* otherwise it is shared already */
    return mine->numbers[first % mine->length] != other->numbers[first % other->length];
}

static int64_t row_bytes(const mo_snapshot *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->blocks.layers; i++) {
        const mo_kv_shape kv = mo_attention_cache(&s->engine->spec->layers[i].attention, s->kv);
        bytes += mo_state_row_bytes(&kv);
    }
    return bytes;
}

/* Copies the rows from `begin` on, from blocks that may be on the device. */
static mo_status take_rows(const mo_snapshot *s, int64_t begin, uint8_t *rows, mo_error *err)
{
    mo_blocks ram;
    if (!s->on_device) {
        return move_rows(s, &s->blocks, begin, rows, true, err);
    }
    mo_status status = tables(s, NULL, blocks_of(s->mark.length) - begin / MO_KV_BLOCK, false, &ram, err);
    if (status == MO_OK) {
        status = mo_snapshot_copy(s->engine, &ram, &s->blocks, s->mark.length, false, err);
        status = status == MO_OK ? move_rows(s, &ram, begin, rows, true, err) : status;
        mo_blocks_drop(&ram);
    }
    return status;
}

/* Windows no longer have positions older than what they see at this length. */
static void forget_older(mo_snapshot *s)
{
    for (int i = 0; i < s->blocks.layers; i++) {
        const int64_t window = s->engine->spec->layers[i].attention.window;
        if (window && s->mark.length >= window) {
            s->least = s->mark.length;
        }
    }
    s->mark.written = s->mark.restored = s->mark.length;
}

mo_status mo_snapshot_lean(mo_snapshot *s, const mo_snapshot *on, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "snapshot, on", s, on)
    mo_blocks delta;
    const int64_t common = may_be_delta(s, on) ? common_positions(s, on) : 0;
    if (!common || !sees_all(s, on, common) || !is_worthwhile(s, on, common)) {
        return MO_OK;
    }
    mo_status status = mo_snapshot_check(s, err);
    status = status == MO_OK ? mo_snapshot_check(on, err) : status;
    const size_t bytes = (size_t)((s->mark.length - common) * row_bytes(s));
    uint8_t *rows = status == MO_OK ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (!rows) {
        return status == MO_OK ? no_memory(err) : status;
    }
    status = take_rows(s, common, rows, err);
    if (status == MO_OK) {
        status = tables(s, s->blocks.pool, blocks_of(common), true, &delta, err);
    }
    if (status != MO_OK) {
        free(rows);
        return status;
    }
    mo_blocks_share(&delta, (mo_blocks *)&on->blocks, common);
    mo_blocks_drop(&s->blocks);
    s->blocks = delta;
    s->rows = rows;
    s->rows_bytes = bytes;
    s->rows_from = common;
    atomic_fetch_add(&s->engine->row_bytes, (long long)bytes);
    forget_older(s);
    return MO_OK;
}
