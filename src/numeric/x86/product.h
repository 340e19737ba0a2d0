/* Product: what the products of the two x86 sets share. Up to FOLDED tokens are folded as blocks are decoded; more
 * share decoded panels of LANES rows by 512 columns, whose accumulators rest in y in between.
 *
 * Included once per set, after its vocabulary, its tile header (avx2_tile.h, avx512_tile.h) and what avx2_spans.h wants to know. */
#ifndef MO_NUMERIC_X86_PRODUCT_H
#define MO_NUMERIC_X86_PRODUCT_H

#include "numeric/products.h"
#include "numeric/reference/reference.h"
#include "numeric/x86/avx2_spans.h"
#include "numeric/x86/tile.h"

enum { FOLDED = 4 };

/* Where decoded blocks go: into the panel, or straight into the fold of one token or of 2 or 4. */
typedef struct sink {
    mo_step *panel; /* NULL: fold */
    const mo_slot512 *slot;
    bool
        few; /* constant where code is made, so that one token, which is most often asked for, has code of its own */
    int width;
    vf acc[FOLDED];
} sink;

MO_INLINE void fold_block(mo_type type, int width, sink *k, int64_t block, const mo_step *s)
{
    vi sum[FOLDED][2];
    dots(type, width, s, k->slot, block, sum);
    MO_UNROLL
    for (int t = 0; t < width; t++) {
        k->acc[t] = fold_sums(mo_fold_of(type), s, k->slot + t, block, sum[t], k->acc[t]);
    }
}

MO_INLINE void emit(mo_type type, sink *k, int64_t block, const mo_step *s)
{
    if (k->few) {
        if (k->width == 2) {
            fold_block(type, 2, k, block, s);
        } else {
            fold_block(type, FOLDED, k, block, s);
        }
    } else if (k->panel) {
        mo_step *out = k->panel + block;
        for (int i = 0; i < 8; i++) {
            out->code[i] = s->code[i];
        }
        const int scales = mo_fold_of(type) == MO_FOLD_PLAIN       ? 2
                           : mo_fold_of(type) == MO_FOLD_TWO_STEPS ? 4
                                                                   : 3;
        for (int i = 0; i < scales; i++) {
            out->scale[i] = s->scale[i];
        }
        if (mo_fold_of(type) == MO_FOLD_HALF_MINIMA) {
            out->dmin = s->dmin;
            out->mcode = s->mcode;
        }
    } else {
        fold_block(type, 1, k, block, s);
    }
}

/* File block by file block; `block` is the first block of 32 in the slot. */
MO_INLINE void unpack(mo_type type, cursor c, sink *k, int64_t block)
{
    mo_step s;
    if (in_bits(type)) {
        mo_bits u;
        for (int n = 0; n < mo_format_values(type) / 32; n += bits_round(type)) {
            bits_open(type, c, n / bits_round(type), &u);
            MO_UNROLL
            for (int i = 0; i < bits_round(type); i++) {
                bits_step(type, &u, i, &s);
                emit(type, k, block + n + i, &s);
            }
        }
    } else if (mo_format_by_row(type)) {
        small_head u;
        small_open(type, c, &u);
        for (int n = 0; n < mo_format_values(type) / 32; n++) {
            small_step(type, c, &u, n, &s);
            emit(type, k, block + n, &s);
        }
    } else if (mo_format_values(type) == 32) {
        unpack32(type, c, &s);
        emit(type, k, block, &s);
    } else if (type == MO_NVFP4) {
        const vi scales = cursor_word(c, 0);
        MO_UNROLL
        for (int j = 0; j < 2; j++) {
            unpack_nvfp4(c, scales, j, &s);
            emit(type, k, block + j, &s);
        }
    } else {
        super u;
        open_super(type, c, &u);
        for (int n = 0; n < 8 / round_steps(type); n++) {
            MO_UNROLL
            for (int i = 0; i < round_steps(type); i++) {
                unpack_super(type, c, &u, n, i, &s);
                emit(type, k, block + n * round_steps(type) + i, &s);
            }
        }
    }
}

/* Bytes ahead of the reading place that are asked for: per row of a plain matrix, and of an interleaved
 * group, each line twice: far ahead into the second cache, and near into the first. With all cores at work that is faster than
 * either alone (docs/lab-notes.md). */
#ifndef AHEAD
#define AHEAD      2048
#define AHEAD_FAR  8192
#define AHEAD_NEAR 1024
#endif

/* Asks for what each row reads AHEAD bytes later; past the end of a row that is the row LANES further. */
MO_INLINE void fetch_ahead(cursor c, int bytes)
{
    if (c.interleaved) {
        const char *p = (const char *)c.rows->base[0] + LANES * c.at;
        for (int i = 0; i < LANES * bytes; i += 64) {
            _mm_prefetch(p + AHEAD_FAR + i, _MM_HINT_T1);
            _mm_prefetch(p + AHEAD_NEAR + i, _MM_HINT_T0);
        }
        return;
    }
    if (c.at / 64 == (c.at + bytes) / 64) {
        return; /* one request per line is enough */
    }
    int64_t to = c.at + AHEAD;
    to += to >= c.rows->stride ? (LANES - 1) * c.rows->stride : 0;
    MO_UNROLL
    for (int g = 0; g < LANES / 4; g++) {
        MO_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint8_t *p = c.rows->base[g] + i * c.rows->stride + to;
            for (int n = 0; n < bytes; n += 64) {
                _mm_prefetch((const char *)p + n, _MM_HINT_T1);
            }
        }
    }
}

/* Unpacks `blocks` blocks of 32 that begin with block `first` of the rows. */
MO_INLINE void unpack_run(mo_type type, bool interleaved, const mo_rows *rows, int64_t first, int blocks,
                          sink *k)
{
    const int steps = mo_format_values(type) / 32;
    cursor c = {rows, first / steps * mo_format_bytes(type), interleaved};
    for (int b = 0; b < blocks; b += steps) {
        fetch_ahead(c, mo_format_bytes(type));
        unpack(type, c, k, b);
        c.at += mo_format_bytes(type);
    }
}

/* How panels meet tokens: up to `tokens` of them at a time. */
typedef struct tiler {
    mo_tile_function *run; /* NULL: the panel is only decoded */
    int tokens;
} tiler;

/* The slots of one stretch of columns: [chunk][token], `tokens` of them in each chunk. */
typedef struct batch {
    tiler tile;
    const mo_slot512 *slots;
    int64_t first, blocks; /* in blocks of 32 */
    int tokens, padded;
    float *y;
    int64_t y_stride;
    mo_step *panel; /* [MO_PACK_BLOCKS] */
} batch;

/* What a product lays out: the slots of its tokens, and the decoded blocks of LANES rows. */
typedef struct product_space {
    _Alignas(64) mo_slot512 slots[MO_PACK_SLOTS];
    _Alignas(64) mo_step panel[MO_PACK_BLOCKS];
} product_space;

_Static_assert(sizeof(product_space) <= sizeof(mo_scratch), "slots and panel fit the scratch");

/* Sixteen or eight rows with the whole batch. Whether blocks are folded at once or kept is asked for every
 * block, which costs nothing next to its work and halves the code. */
MO_INLINE void run_rows(mo_type type, bool interleaved, const mo_rows *rows, const batch *j)
{
    mo_step *panel = j->panel;
    sink k = {.panel = j->tokens == 1 ? NULL : panel, .slot = j->slots};
    k.acc[0] = j->tokens == 1 && j->first ? rows_load(rows, j->y) : vf_set(0.0f);
    for (int64_t b = 0; b < j->blocks; b += MO_PACK_BLOCKS, k.slot += j->padded) {
        const int blocks = j->blocks - b < MO_PACK_BLOCKS ? (int)(j->blocks - b) : MO_PACK_BLOCKS;
        unpack_run(type, interleaved, rows, j->first + b, blocks, &k);
        for (int t = 0; k.panel && j->tile.run && t < j->tokens; t += j->tile.tokens) {
            const int left = j->tokens - t;
            j->tile.run(type, panel, blocks, k.slot + t, left < j->tile.tokens ? left : j->tile.tokens,
                        j->first + b == 0, rows, j->y + t * j->y_stride, j->y_stride);
        }
    }
    if (j->tokens == 1) {
        rows_store(rows, j->y, k.acc[0]);
    }
}

/* The same with 2 to FOLDED tokens: their slots are padded to 2 or 4. */
MO_INLINE void run_few(mo_type type, bool interleaved, const mo_rows *rows, const batch *j)
{
    sink k = {.slot = j->slots, .few = true, .width = j->padded};
    for (int t = 0; t < FOLDED; t++) {
        k.acc[t] = j->first && t < j->tokens ? rows_load(rows, j->y + t * j->y_stride) : vf_set(0.0f);
    }
    for (int64_t b = 0; b < j->blocks; b += MO_PACK_BLOCKS, k.slot += j->padded) {
        const int blocks = j->blocks - b < MO_PACK_BLOCKS ? (int)(j->blocks - b) : MO_PACK_BLOCKS;
        unpack_run(type, interleaved, rows, j->first + b, blocks, &k);
    }
    for (int t = 0; t < j->tokens; t++) {
        rows_store(rows, j->y + t * j->y_stride, k.acc[t]);
    }
}

typedef void rows_function(const mo_rows *rows, const batch *j);

#define INSTANCE(run, type, interleaved, name)                                                               \
    static void name(const mo_rows *rows, const batch *j)                                                    \
    {                                                                                                        \
        if (!(interleaved) || mo_format_has_units(type)) {                                                   \
            run(type, interleaved, rows, j);                                                                 \
        }                                                                                                    \
    }
#define EACH(name, ...)                                                                                      \
    INSTANCE(run_rows, MO_##name, false, plain_##name)                                                       \
    INSTANCE(run_rows, MO_##name, true, interleaved_##name)                                                  \
    INSTANCE(run_few, MO_##name, false, few_plain_##name)                                                    \
    INSTANCE(run_few, MO_##name, true, few_interleaved_##name)
MO_QUANTIZED_FORMATS(EACH)

#define ENTRY(name, ...) [MO_##name] = {plain_##name, interleaved_##name},
static rows_function *const functions[MO_TYPE_LIMIT][2] = {MO_QUANTIZED_FORMATS(ENTRY)};
#define ENTRY_FEW(name, ...) [MO_##name] = {few_plain_##name, few_interleaved_##name},
static rows_function *const few_functions[MO_TYPE_LIMIT][2] = {MO_QUANTIZED_FORMATS(ENTRY_FEW)};

static void all_rows(const mo_weights *w, int64_t row_begin, int64_t row_end, const batch *j)
{
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    /* Q5_K's words do not fit the registers with sums of several tokens: it is decoded first. */
    const bool few = j->tokens > 1 && j->tokens <= FOLDED && w->type != MO_Q5_K;
    rows_function *const *run = few ? few_functions[w->type] : functions[w->type];
    batch here = *j;
    for (int64_t r = row_begin; r < row_end; r += rows_count(w)) {
        const bool interleaved = w->interleave && mo_format_has_units(w->type) && r + LANES <= w->rows;
        mo_rows rows;
        if (interleaved) {
            rows_interleaved(w, row_bytes, r, row_end, &rows);
        } else {
            rows_plain(w, row_bytes, r, row_end, &rows);
        }
        here.y = j->y + r;
        run[interleaved](&rows, &here);
    }
}

/* Tokens begin .. begin + tokens - 1: as many columns at a time as the slots hold. */
static void all_columns(tiler tile, const mo_weights *w, int64_t row_begin, int64_t row_end,
                        const mo_acts *acts, const int32_t *pick, int64_t begin, int tokens, float *y,
                        int64_t y_stride, mo_scratch *scratch)
{
    product_space *space = (void *)scratch;
    const mo_fold fold = mo_fold_of(w->type);
    const int32_t offset = code_offset(w->type);
    const int width = tokens == 1 ? 1 : tokens <= 2 ? 2 : tokens <= 4 ? 4 : tile.tokens;
    const int padded = (tokens + width - 1) / width * width;
    const int64_t most = MO_PACK_SLOTS / padded * MO_PACK_BLOCKS;
    const int64_t blocks = w->cols / 32;
    for (int64_t first = 0; first < blocks; first += most) {
        const int64_t here = blocks - first < most ? blocks - first : most;
        mo_slot512 *slot = space->slots;
        for (int64_t b = 0; b < here; b += MO_PACK_BLOCKS) {
            const int n = here - b < MO_PACK_BLOCKS ? (int)(here - b) : MO_PACK_BLOCKS;
            for (int t = 0; t < padded; t++, slot++) {
                if (t < tokens) {
                    const int64_t row = pick ? pick[begin + t] : begin + t;
                    mo_slot_fill(slot, fold, offset, MO_MAGIC_BITS, acts, row, first + b, n);
                } else { /* read by the last tile, never stored */
                    memset(slot, 0, sizeof *slot);
                }
            }
        }
        const batch j = {tile,   space->slots,         first,    here,        tokens,
                         padded, y + begin * y_stride, y_stride, space->panel};
        all_rows(w, row_begin, row_end, &j);
    }
}

/* Products of quantized matrices in the file's layout or interleaved by LANES rows. */
static void quantized_product(tiler tile, MO_PRODUCT_PARAMETERS)
{
    /* Batches of nearly equal size, so that the last one is not left with a few tokens. */
    const int64_t batches = (count + MO_PACK_SLOTS - 1) / MO_PACK_SLOTS;
    for (int64_t n = 0; n < batches; n++) {
        const int64_t begin = count * n / batches, end = count * (n + 1) / batches;
        all_columns(tile, w, row_begin, row_end, acts, pick, begin, (int)(end - begin), y, y_stride, scratch);
    }
}

/* Every matrix: few tokens by spans, floats by the set's function for them, and what another set interleaved by the definition. */
static void any_product(tiler tile, mo_product_function *float_product, MO_PRODUCT_PARAMETERS)
{
    if (count <= spans_tokens(w)) {
        spans_product(MO_PRODUCT_ARGUMENTS);
    } else if (mo_format_of(w->type)->kind == MO_KIND_FLOAT) {
        float_product(MO_PRODUCT_ARGUMENTS);
    } else if (w->interleave && w->interleave != LANES && mo_format_has_units(w->type)) {
        mo_reference_product(MO_PRODUCT_ARGUMENTS);
    } else {
        quantized_product(tile, MO_PRODUCT_ARGUMENTS);
    }
}

#endif
