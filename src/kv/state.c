#include "kv/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* ---- Sizes ------------------------------------------------------------------------------------ */

static int64_t delta_channels(const mo_delta *d)
{
    return (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
}

static mo_state_layer recurrent(int64_t conv, int64_t delta)
{
    return (mo_state_layer){.length = 1,
                            .recurrent = true,
                            .conv_values = conv,
                            .delta_at = (conv * 4 + 63) / 64 * 64,
                            .delta_values = delta};
}

/* Describes a layer of a state, without its table. */
static mo_state_layer describe(const mo_layer *layer, mo_kv_type kv, int64_t context, int64_t batch)
{
    if (layer->mixer == MO_MIXER_DELTA) {
        const mo_delta *d = &layer->delta;
        return recurrent((d->taps - 1) * delta_channels(d), (int64_t)d->v_heads * d->head * d->head);
    }
    if (layer->mixer == MO_MIXER_SHORT_CONV) {
        return recurrent((layer->short_conv.taps - 1) * layer->short_conv.channels, 0);
    }
    if (layer->mixer == MO_MIXER_MAMBA) {
        const mo_mamba *m = &layer->mamba;
        return recurrent((m->taps - 1) * mo_mamba_channels(m), m->inner * m->states);
    }
    if (layer->mixer == MO_MIXER_NONE) {
        mo_state_layer none = recurrent(0, 0);
        none.delta_at = 64; /* every layer has a table, and blocks are not empty */
        return none;
    }
    const mo_attention *a = &layer->attention;
    const int64_t window = mo_attention_window(a), length = mo_kv_table_length(context, window, batch);
    return (mo_state_layer){.length = length,
                            .kv = mo_attention_cache(a, kv),
                            .window = window,
                            .circular = length * MO_KV_BLOCK < context};
}

/* True if the layer has a table of compressed keys. */
static bool compresses(const mo_layer *layer)
{
    return layer->mixer == MO_MIXER_ATTENTION && layer->attention.compressed.ratio > 0;
}

/* Describes that table. */
static mo_state_layer describe_compressed(const mo_layer *layer, mo_kv_type kv, int64_t context)
{
    const mo_attention *a = &layer->attention;
    mo_state_layer l = {.length = mo_kv_table_length(context, 0, 1),
                        .kv = mo_attention_cache(a, kv),
                        .ratio = a->compressed.ratio};
    l.kv.index = (int)a->compressed.index.length;
    return l;
}

/* Number of tables of a state. */
static int tables_of(const mo_model_spec *spec)
{
    int count = spec->layer_count;
    for (int i = 0; i < spec->layer_count; i++) {
        count += compresses(&spec->layers[i]);
    }
    return count;
}

/* Describes all tables; the list is [tables_of(spec)]. */
static void describe_all(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                         mo_state_layer *list)
{
    int count = spec->layer_count;
    for (int i = 0; i < spec->layer_count; i++) {
        list[i] = describe(&spec->layers[i], kv, context, batch);
        if (compresses(&spec->layers[i])) {
            list[i].compressed = count;
            list[count++] = describe_compressed(&spec->layers[i], kv, context);
        }
    }
}

/* True if some of the model's layers are remote. */
static bool has_remote_layers(const mo_model_spec *spec)
{
    return spec->all_count > spec->layer_count;
}

/* Bytes of a compressed key with the indexer's. */
static int64_t compressed_bytes(const mo_state_layer *l)
{
    return mo_kv_bytes(l->kv.type, l->kv.k_len) + mo_kv_index_bytes(l->kv);
}

static int64_t block_bytes(const mo_state_layer *l)
{
    if (l->ratio) {
        return MO_KV_BLOCK / l->ratio * compressed_bytes(l);
    }
    return l->recurrent ? l->delta_at + l->delta_values * (int64_t)sizeof(float) : mo_kv_block_bytes(l->kv);
}

/* A pool's share for states of this size. The caller frees the lists, also after a failure. */
typedef struct shares {
    mo_block_share share;
    mo_block_need *needs;
    int64_t *total;
} shares;

/* Blocks of a layer for the positions of all sessions, each with a partly used last block. */
static int64_t total_blocks(const mo_state_layer *l, const mo_state_size *size)
{
    const int64_t sessions = size->sessions > 1 ? size->sessions : 1;
    int64_t all;
    if (__builtin_mul_overflow(sessions, l->length, &all)) {
        return INT64_MAX;
    }
    const int64_t blocks = (size->positions + MO_KV_BLOCK - 1) / MO_KV_BLOCK + sessions - 1;
    return l->recurrent || !size->positions || blocks > all ? all : blocks;
}

static bool share_of(const mo_model_spec *spec, const mo_state_size *size, shares *out)
{
    const size_t count = (size_t)tables_of(spec);
    mo_state_layer *tables = calloc(count + 1, sizeof *tables);
    *out = (shares){0};
    out->needs = calloc(count + 1, sizeof *out->needs);
    out->total = calloc(count + 1, sizeof *out->total);
    if (!out->needs || !out->total || !tables) {
        free(tables);
        return false;
    }
    describe_all(spec, size->kv, size->context, size->batch, tables);
    for (size_t i = 0; i < count; i++) {
        out->needs[i] = (mo_block_need){.bytes = block_bytes(&tables[i]), .count = tables[i].length};
        out->total[i] = total_blocks(&tables[i], size);
    }
    free(tables);
    out->share = (mo_block_share){.needs = out->needs,
                                  .layers = (int)count,
                                  .states = size->sessions,
                                  .total = out->total,
                                  .kept_bytes = size->kept_bytes,
                                  .fixed = size->kept_bytes > 0 || size->positions > 0};
    return true;
}

static void free_shares(shares *s)
{
    free(s->needs);
    free(s->total);
}

/* Counts like mo_block_share_bytes(), but without lists, because a size must be computable without memory. */
int64_t mo_state_pool_bytes(const mo_model_spec *spec, const mo_state_size *size)
{
    int64_t bytes = 0, unit = 64; /* blocks of compressed keys have fewer bytes than those of their windows */
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_state_layer l = describe(&spec->layers[i], size->kv, size->context, size->batch);
        const int64_t block = mo_block_aligned(block_bytes(&l)), share = mo_state_layer_share(spec, size, i);
        bytes = share > INT64_MAX - bytes ? INT64_MAX : bytes + share;
        unit = block > unit ? block : unit;
    }
    const int64_t kept = size->kept_bytes / unit * unit;
    return kept > INT64_MAX - bytes ? INT64_MAX : bytes + kept;
}

static int64_t table_share(const mo_state_layer *l, const mo_state_size *size)
{
    const int64_t bytes = mo_block_aligned(block_bytes(l)), total = total_blocks(l, size);
    return total > INT64_MAX / bytes ? INT64_MAX : total * bytes;
}

int64_t mo_state_layer_share(const mo_model_spec *spec, const mo_state_size *size, int layer)
{
    const mo_state_layer l = describe(&spec->layers[layer], size->kv, size->context, size->batch);
    const int64_t own = table_share(&l, size);
    if (!compresses(&spec->layers[layer])) {
        return own;
    }
    const mo_state_layer keys = describe_compressed(&spec->layers[layer], size->kv, size->context);
    const int64_t more = table_share(&keys, size);
    return more > INT64_MAX - own ? INT64_MAX : own + more;
}

/* Rows of the window and of blocks, and with an indexer its keys of all blocks. */
static int64_t compressed_read(const mo_attention *a, mo_kv_type kv, int64_t context)
{
    const int64_t blocks = a->compressed.ratio ? context / a->compressed.ratio : 0, top = a->index.top;
    const int64_t rows = (a->window < context ? a->window : context) + (top && top < blocks ? top : blocks);
    return rows * mo_kv_bytes(kv, (int)a->k_len) + blocks * 4 * a->compressed.index.length;
}

int64_t mo_state_read_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int layer)
{
    const mo_state_layer l = describe(&spec->layers[layer], kv, context, 1);
    if (!l.recurrent && spec->layers[layer].attention.compressed.groups) {
        return compressed_read(&spec->layers[layer].attention, kv, context);
    }
    const int64_t top = l.recurrent ? 0 : spec->layers[layer].attention.index.top;
    const int64_t some = top && (!l.window || top < l.window) ? top : l.window;
    const int64_t seen = some && some < context ? some : context;
    return l.recurrent ? 0 : mo_kv_index_at(l.kv) * seen / MO_KV_BLOCK + mo_kv_index_bytes(l.kv) * context;
}

int64_t mo_state_layer_bytes(const mo_model_spec *spec, const mo_state_size *size, int layer)
{
    const mo_state_layer l = describe(&spec->layers[layer], size->kv, size->context, size->batch);
    return layer == 0 || l.recurrent || l.window ? 0 : mo_state_layer_share(spec, size, layer);
}

int64_t mo_state_bytes(const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch)
{
    return mo_state_pool_bytes(spec, &(mo_state_size){.kv = kv, .context = context, .batch = batch});
}

int64_t mo_state_entries(const mo_model_spec *spec, int64_t context, int64_t batch)
{
    int64_t entries = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        entries += describe(&spec->layers[i], MO_KV_I16, context, batch).length;
        if (compresses(&spec->layers[i])) {
            entries += describe_compressed(&spec->layers[i], MO_KV_I16, context).length;
        }
    }
    return entries;
}

/* ---- Opening and closing ---------------------------------------------------------------------- */

mo_status mo_state_pool(const mo_model_spec *spec, const mo_state_size *size, bool planned,
                        const mo_block_source *source, mo_block_pool **out, mo_error *err)
{
    shares s;
    const bool listed = share_of(spec, size, &s);
    *out = listed ? mo_block_pool_open(s.needs, tables_of(spec), source, planned ? &s.share : NULL) : NULL;
    free_shares(&s);
    return *out ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the lists of the sessions' state");
}

static mo_status no_tables(mo_error *err)
{
    return mo_fail(err, MO_ENOMEM, "out of memory for the tables of a session's state");
}

mo_status mo_state_blocks(const mo_state *s, mo_block_pool *pool, mo_block_holder who, int64_t length,
                          mo_blocks *out, mo_error *err)
{
    const int layers = s->count;
    mo_blocks_layer *shape = calloc((size_t)layers + 1, sizeof *shape);
    if (!shape) {
        return no_tables(err);
    }
    for (int i = 0; i < layers; i++) {
        const mo_state_layer *l = &s->layers[i];
        const int64_t filled = length > 0 ? (length + MO_KV_BLOCK - 1) / MO_KV_BLOCK : 1;
        const bool shorter = who == MO_KEEPS && !l->circular && !l->recurrent && filled < l->length;
        shape[i] = (mo_blocks_layer){.length = shorter ? filled : l->length,
                                     .bytes = block_bytes(l),
                                     .recurrent = l->recurrent,
                                     .circular = l->circular};
    }
    const mo_status status = mo_blocks_init(out, pool, who, shape, layers, err);
    free(shape);
    return status;
}

/* Sets the address of an entry's block in RAM. */
static void point(mo_state *s, int layer, int64_t entry, uint64_t address)
{
    mo_state_layer *l = &s->layers[layer];
    l->blocks[entry] = (uint8_t *)(uintptr_t)address;
    if (l->recurrent) {
        l->conv = (float *)(void *)l->blocks[0];
        l->delta = address ? (float *)(void *)(l->blocks[0] + l->delta_at) : NULL;
    }
}

static void point_all(mo_state *s)
{
    mo_block_pool_lock(s->here.pool);
    for (int i = 0; i < s->count; i++) {
        for (int64_t e = 0; e < s->layers[i].length; e++) {
            const int32_t number = s->here.layer[i].numbers[e];
            point(s, i, e, number >= 0 ? mo_block_address(s->here.pool, number) : 0);
        }
    }
    mo_block_pool_unlock(s->here.pool);
}

static bool lay_tables(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch)
{
    *s = (mo_state){
        .spec = spec, .kv = kv, .context = context, .batch = batch, .anew = true, .count = tables_of(spec)};
    s->layers = calloc((size_t)s->count + 1, sizeof *s->layers);
    s->tables = calloc((size_t)mo_state_entries(spec, context, batch) + 1, sizeof *s->tables);
    if (!s->layers || !s->tables) {
        mo_state_drop(s);
        return false;
    }
    uint8_t **table = s->tables;
    describe_all(spec, kv, context, batch, s->layers);
    for (int i = 0; i < s->count; i++) {
        mo_state_layer *l = &s->layers[i];
        l->blocks = table;
        table += l->length;
        s->recurrent |= l->recurrent;
    }
    for (int i = 0; has_remote_layers(spec) && i < spec->all_count; i++) {
        s->recurrent |= mo_layer_recurrent(&spec->all_layers[i]);
    }
    return true;
}

mo_status mo_state_view(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        const mo_blocks *blocks, int64_t length, mo_error *err)
{
    if (!lay_tables(s, spec, kv, context, batch)) {
        return no_tables(err);
    }
    for (int i = 0; i < s->count; i++) {
        for (int64_t e = 0; e < s->layers[i].length && e < blocks->layer[i].length; e++) {
            point(s, i, e, mo_blocks_address(blocks, i, e));
        }
    }
    s->length = length;
    return MO_OK;
}

void mo_state_view_tail(mo_state *s, const mo_blocks *tail, int64_t first, int64_t end)
{
    for (int i = 0; i < s->count; i++) {
        for (int64_t n = first; n < end; n++) {
            point(s, i, n % s->layers[i].length, mo_blocks_address(tail, i, n % tail->layer[i].length));
        }
    }
}

mo_status mo_state_init_in(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec, mo_kv_type kv,
                           int64_t context, int64_t batch, mo_error *err)
{
    if (!lay_tables(s, spec, kv, context, batch)) {
        return no_tables(err);
    }
    const mo_status status = mo_state_blocks(s, pool, MO_HOLDS, 0, &s->here, err);
    if (status != MO_OK) {
        mo_state_drop(s);
    }
    return status;
}

mo_status mo_state_init(mo_state *s, const mo_model_spec *spec, mo_kv_type kv, int64_t context, int64_t batch,
                        mo_error *err)
{
    mo_block_pool *pool;
    const mo_state_size size = {.kv = kv, .context = context, .batch = batch};
    *s = (mo_state){0};
    mo_status status = mo_state_pool(spec, &size, false, &mo_block_source_ram, &pool, err);
    if (status == MO_OK) {
        status = mo_state_init_in(s, pool, spec, kv, context, batch, err);
        mo_block_pool_close(pool, true); /* the state refers to it */
    }
    return status;
}

void mo_state_drop(mo_state *s)
{
    mo_blocks_drop(&s->there);
    mo_blocks_drop(&s->here);
    free(s->tables);
    free(s->layers);
    *s = (mo_state){0};
}

/* ---- Trimming --------------------------------------------------------------------------------- */

void mo_state_reset(mo_state *s)
{
    mo_blocks_clear(&s->here);
    if (s->there.pool) {
        mo_blocks_clear(&s->there);
    }
    point_all(s);
    s->length = s->written = s->restored = 0;
    s->anew = true;
}

/* The first position that a token at `position` sees in a layer. */
static int64_t first_seen(const mo_state_layer *l, int64_t position)
{
    return l->window && position >= l->window ? position - l->window + 1 : 0;
}

/* True if a layer with this mark still has everything that a sequence of `length` sees. */
static bool layer_goes_back(const mo_state_layer *l, const mo_state_mark *mark, int64_t length)
{
    const int64_t oldest = first_seen(l, length);
    const bool overwritten = l->circular && oldest + l->length * MO_KV_BLOCK < mark->written;
    return !l->recurrent && !overwritten &&
           !(length < mark->restored && oldest < first_seen(l, mark->restored));
}

/* True if that holds for all layers of the model, also remote ones. */
static bool goes_back(const mo_state *s, const mo_state_mark *mark, int64_t length)
{
    if (length >= mark->length) {
        return length == mark->length;
    }
    for (int i = 0; i < s->count; i++) {
        if (!layer_goes_back(&s->layers[i], mark, length)) {
            return false;
        }
    }
    for (int i = 0; has_remote_layers(s->spec) && i < s->spec->all_count; i++) {
        const mo_state_layer l = describe(&s->spec->all_layers[i], s->kv, s->context, s->batch);
        if (!layer_goes_back(&l, mark, length)) {
            return false;
        }
    }
    return true;
}

mo_state_mark mo_state_mark_of(const mo_state *s)
{
    return (mo_state_mark){.length = s->length, .written = s->written, .restored = s->restored};
}

bool mo_state_trim(mo_state *s, int64_t length)
{
    const mo_state_mark mark = mo_state_mark_of(s);
    if (length == 0 && s->length > 0) {
        mo_state_reset(s);
        return true;
    }
    if (!goes_back(s, &mark, length)) {
        return false;
    }
    if (length < s->length) {
        mo_blocks_trim(&s->here, length);
        if (s->there.pool) {
            mo_blocks_trim(&s->there, length);
        }
        s->length = length;
    }
    return true;
}

void mo_state_extend(mo_state *s, int64_t kept, int64_t written)
{
    const int64_t end = s->length + written;
    s->length += kept;
    if ((s->length + MO_KV_BLOCK - 1) / MO_KV_BLOCK < (end + MO_KV_BLOCK - 1) / MO_KV_BLOCK) {
        mo_blocks_trim(mo_state_place(s), s->length);
    }
}

int64_t mo_state_least(const mo_state *s, mo_state_mark mark)
{
    int64_t low = 1, high = mark.length; /* what holds for a length holds for longer ones */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (goes_back(s, &mark, middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return high;
}

/* ---- Sharing ---------------------------------------------------------------------------------- */

void mo_state_take_mark(mo_state *s, mo_state_mark mark, bool same)
{
    s->length = mark.length;
    s->written = same ? mark.written : mark.length;
    s->restored = same ? mark.restored : mark.length;
    s->anew = true;
}

/* True if circular tables have the same length. */
static bool same_tables(const mo_blocks *a, const mo_blocks *b)
{
    for (int i = 0; i < a->layers; i++) {
        const mo_blocks_layer *x = &a->layer[i], *y = &b->layer[i];
        if (x->circular != y->circular || (x->circular && x->length != y->length)) {
            return false;
        }
    }
    return true;
}

void mo_state_adopt(mo_state *s, mo_blocks *from, mo_state_mark mark)
{
    mo_blocks *to = mo_state_place(s);
    mo_blocks_share(to, from, mark.length);
    mo_state_take_mark(s, mark, same_tables(to, from));
    if (to == &s->here) {
        point_all(s);
    }
}

/* ---- Before writing --------------------------------------------------------------------------- */

static mo_status change_block(void *ctx, const mo_block_change *c, mo_error *err)
{
    mo_state *s = ctx;
    const mo_blocks_layer *l = &s->here.layer[c->layer];
    uint8_t *to = (uint8_t *)(uintptr_t)c->to_at;
    (void)err;
    if (c->from >= 0) {
        memcpy(to, (const uint8_t *)(uintptr_t)c->from_at, (size_t)l->bytes);
    } else if (l->recurrent) {
        memset(to, 0, (size_t)l->bytes);
    }
    point(s, c->layer, c->entry, c->to_at);
    return MO_OK;
}

mo_status mo_state_own(mo_state *s, int64_t begin, int64_t end, const bool *only, mo_error *err)
{
    return mo_blocks_own(&s->here, begin, end, only, change_block, s, err);
}

void mo_state_see_there(mo_state *s, int layer)
{
    const mo_blocks_layer *from = &s->there.layer[layer];
    mo_block_pool_lock(s->there.pool);
    for (int64_t e = 0; e < s->layers[layer].length; e++) {
        const int32_t number = e < from->length ? from->numbers[e] : -1;
        point(s, layer, e, number >= 0 ? mo_block_address(s->there.pool, number) : 0);
    }
    mo_block_pool_unlock(s->there.pool);
}

mo_kv_head mo_state_head(const mo_state *s, int layer, int kv_head)
{
    const mo_state_layer *l = &s->layers[layer];
    return mo_kv_head_of(l->kv, kv_head, l->blocks, l->length);
}

float *mo_state_index(const mo_state *s, int layer, int64_t u)
{
    const mo_state_layer *l = &s->layers[layer];
    uint8_t *block = l->blocks[mo_kv_entry(u, l->length)];
    return (float *)(void *)(block + mo_kv_index_at(l->kv)) + u % MO_KV_BLOCK * l->kv.index;
}

static uint8_t *compressed_block(const mo_state *s, int layer, int64_t n, int64_t *place)
{
    const mo_state_layer *l = &s->layers[s->layers[layer].compressed];
    const int64_t run = MO_KV_BLOCK / l->ratio;
    *place = n % run;
    return l->blocks[n / run];
}

uint8_t *mo_state_compressed(const mo_state *s, int layer, int64_t n)
{
    const mo_state_layer *l = &s->layers[s->layers[layer].compressed];
    int64_t place;
    uint8_t *block = compressed_block(s, layer, n, &place);
    return block + MO_KV_BLOCK / l->ratio * mo_kv_index_bytes(l->kv) +
           place * mo_kv_bytes(l->kv.type, l->kv.k_len);
}

float *mo_state_compressed_index(const mo_state *s, int layer, int64_t n)
{
    int64_t place;
    uint8_t *block = compressed_block(s, layer, n, &place);
    return (float *)(void *)block + place * s->layers[s->layers[layer].compressed].kv.index;
}

int64_t mo_state_compressed_run(const mo_attention *a)
{
    return MO_KV_BLOCK / a->compressed.ratio;
}

/* ---- Saving -----------------------------------------------------------------------------------
 * A windowed layer saves the positions that its window still sees at the saved length; older ones in a longer
 * table are omitted. */

/* Saved bytes of a position's key and value. A shared row is both, and so is a latent one, unless it has
 * codes: then its value and its tail are saved. */
static int64_t saved_vectors(const mo_kv_shape *s)
{
    const mo_kv_head kv = mo_kv_head_of(*s, 0, NULL, 0);
    return s->shared || (s->tail && !mo_kv_coded(s->type)) ? kv.k_bytes : kv.k_bytes + kv.v_bytes;
}

int64_t mo_state_row_bytes(const mo_kv_shape *kv)
{
    return kv->heads * saved_vectors(kv) + mo_kv_index_bytes(*kv);
}

static int64_t saved_layer(const mo_state_layer *l, int64_t length)
{
    if (l->ratio) {
        return length / l->ratio * compressed_bytes(l);
    }
    return l->recurrent ? (l->conv_values + l->delta_values) * (int64_t)sizeof(float)
                        : (length - first_seen(l, length)) * mo_state_row_bytes(&l->kv);
}

static int64_t saved_bytes(const mo_state *s, int64_t length)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        bytes += saved_layer(&s->layers[i], length);
    }
    return bytes;
}

int64_t mo_state_saved_part(const mo_state *s, int first, int end, int64_t length)
{
    int64_t bytes = 0;
    for (int i = first; i < end; i++) {
        const mo_state_layer l = describe(&s->spec->all_layers[i], s->kv, s->context, s->batch);
        bytes += saved_layer(&l, length);
    }
    return bytes;
}

size_t mo_state_saved_bytes(const mo_state *s)
{
    return (size_t)saved_bytes(s, s->length);
}

/* Moves the key or value of position u between the cache and `at`. Returns its bytes. */
static int64_t transfer_vector(const mo_kv_head *kv, int64_t u, bool value, uint8_t *at, bool out)
{
    const int64_t bytes = value ? kv->v_bytes : kv->k_bytes;
    if (value && (kv->shared || (kv->tail && !mo_kv_coded(kv->type)))) {
        return 0; /* the key includes it */
    }
    if (mo_kv_coded(kv->type) && out) {
        mo_kv_codes_out(kv, u, value, at);
    } else if (mo_kv_coded(kv->type)) {
        mo_kv_codes_in(kv, u, value, at);
    } else {
        uint8_t *vector = value ? mo_kv_value(kv, u) : mo_kv_key(kv, u);
        memcpy(out ? at : vector, out ? vector : at, (size_t)bytes);
    }
    return bytes;
}

/* Moves positions begin .. end - 1 of a head between the cache and `at`. Returns their bytes. */
static int64_t move_head(const mo_kv_head *kv, int64_t begin, int64_t end, uint8_t *at, bool out)
{
    uint8_t *next = at;
    for (int64_t u = begin; u < end; u++) {
        next += transfer_vector(kv, u, false, next, out);
        next += transfer_vector(kv, u, true, next, out);
    }
    return next - at;
}

/* The same for the indexer's keys. */
static int64_t move_index(const mo_kv_shape *kv, uint8_t *const *blocks, int64_t length, int64_t begin,
                          int64_t end, uint8_t *at, bool out)
{
    const int64_t bytes = mo_kv_index_bytes(*kv);
    for (int64_t u = begin; bytes && u < end; u++, at += bytes) {
        uint8_t *key = blocks[mo_kv_entry(u, length)] + mo_kv_index_at(*kv) + u % MO_KV_BLOCK * bytes;
        memcpy(out ? at : key, out ? key : at, (size_t)bytes);
    }
    return bytes * (end - begin);
}

int64_t mo_state_move_rows(const mo_kv_shape *kv, uint8_t *const *blocks, int64_t length, int64_t begin,
                           int64_t end, uint8_t *rows, bool out)
{
    uint8_t *at = rows;
    for (int h = 0; h < kv->heads; h++) {
        const mo_kv_head head = mo_kv_head_of(*kv, h, blocks, length);
        at += move_head(&head, begin, end, at, out);
    }
    at += move_index(kv, blocks, length, begin, end, at, out);
    return at - rows;
}

/* Moves the first `count` compressed keys of a table between the state and `at`. Returns their bytes. */
static int64_t move_compressed(const mo_state_layer *l, int64_t count, uint8_t *at, bool out)
{
    const int64_t run = MO_KV_BLOCK / l->ratio, row = mo_kv_bytes(l->kv.type, l->kv.k_len),
                  index = mo_kv_index_bytes(l->kv);
    uint8_t *next = at;
    for (int64_t n = 0; n < count; n++) {
        uint8_t *block = l->blocks[n / run], *key = block + n % run * index,
                *values = block + run * index + n % run * row;
        memcpy(out ? next : key, out ? key : next, (size_t)index);
        memcpy(out ? next + index : values, out ? values : next + index, (size_t)row);
        next += index + row;
    }
    return next - at;
}

/* Moves all saved parts between the state and `saved`, in a fixed order. */
static void transfer(const mo_state *s, uint8_t *saved, bool out)
{
    uint8_t *at = saved;
    for (int i = 0; i < s->count; i++) {
        const mo_state_layer *l = &s->layers[i];
        uint8_t *pieces[2] = {(uint8_t *)l->conv, (uint8_t *)l->delta};
        const int64_t sizes[2] = {l->conv_values * 4, l->delta_values * 4};
        for (int p = 0; l->recurrent && p < 2; p++) {
            if (pieces[p]) {
                memcpy(out ? at : pieces[p], out ? pieces[p] : at, (size_t)sizes[p]);
            } else { /* nothing was fed so far */
                memset(at, 0, (size_t)sizes[p]);
            }
            at += sizes[p];
        }
        if (l->ratio) {
            at += move_compressed(l, s->length / l->ratio, at, out);
        } else if (!l->recurrent) {
            at += mo_state_move_rows(&l->kv, l->blocks, l->length, first_seen(l, s->length), s->length, at,
                                     out);
        }
    }
}

void mo_state_save(const mo_state *s, uint8_t *out)
{
    transfer(s, out, true);
}

/* True if every layer has saved all positions. */
static bool saves_all(const mo_state *s, int64_t length)
{
    bool all = true;
    for (int i = 0; i < s->count; i++) {
        all = all && !s->layers[i].recurrent && first_seen(&s->layers[i], length) == 0;
    }
    return all;
}

/* Loads the state's current positions, of `all` saved ones. */
static void take_first(const mo_state *s, const uint8_t *saved, int64_t all)
{
    uint8_t *at = (uint8_t *)saved;
    for (int i = 0; i < s->count; i++) {
        const mo_state_layer *l = &s->layers[i];
        if (l->ratio) {
            move_compressed(l, s->length / l->ratio, at, false);
            at += saved_layer(l, all);
            continue;
        }
        for (int h = 0; h < l->kv.heads; h++) {
            const mo_kv_head head = mo_kv_head_of(l->kv, h, l->blocks, l->length);
            at += move_head(&head, 0, s->length, at, false);
            at += (all - s->length) * saved_vectors(&l->kv);
        }
        at += move_index(&l->kv, l->blocks, l->length, 0, s->length, at, false);
        at += (all - s->length) * mo_kv_index_bytes(l->kv);
    }
}

mo_status mo_state_restore(mo_state *s, const uint8_t *saved, size_t bytes, int64_t all, int64_t length,
                           mo_error *err)
{
    const bool part = length < all && saves_all(s, all);
    const int64_t taken = part ? length : all;
    if (taken < 0 || taken > s->context) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %lld tokens, but this session holds %lld; increase `context`",
                       (long long)taken, (long long)s->context);
    }
    if (saved_bytes(s, all) != (int64_t)bytes) {
        return mo_fail(err, MO_EINVAL,
                       "the saved state has %zu bytes, which does not "
                       "match this model and `kv` format; it belongs to "
                       "another model or format, so start a new session",
                       bytes);
    }
    mo_state_reset(s);
    const mo_status status = taken > 0 ? mo_state_own(s, 0, taken, NULL, err) : MO_OK;
    if (status != MO_OK) {
        mo_state_reset(s);
        return status;
    }
    mo_state_take_mark(s, (mo_state_mark){taken, taken, taken}, true);
    if (part) {
        take_first(s, saved, all);
    } else if (taken > 0) {
        transfer(s, (uint8_t *)saved, false);
    }
    return MO_OK;
}
