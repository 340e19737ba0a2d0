/* Products with AVX-512 VNNI: sixteen rows at a time, one per lane, so that a block of 32 needs no sum
 * across lanes. And the same with AMX where it has something to win. */
#include "numeric/x86/amx_panel.h"

/* A grid of 2048 entries is too large for permutations. */
#define SPAN_DPBUSD       _mm256_dpbusd_epi32
#define SPAN_EACH(X)      X(IQ1_S) X(IQ1_M)
#define SPAN_TOKENS(type) 1
#define SPAN_GATHERS
#include "numeric/x86/avx512_float.h"
#include "numeric/x86/avx512_spans.h"
#include "numeric/x86/product.h"

MO_PRODUCT(mo_avx512_product)
{
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    if (count <= mo_avx512_spans_tokens(w)) {
        mo_avx512_spans(MO_PRODUCT_ARGUMENTS);
        return;
    }
    any_product((tiler){mo_avx512_tile, TILE_TOKENS}, mo_avx512_float_product, MO_PRODUCT_ARGUMENTS);
}

/* What an AMX product lays out: tokens in units, the decoded blocks of some groups of rows, and the sums of both. */
typedef struct amx_space {
    _Alignas(64) mo_amx_unit units[AMX_UNITS];
    _Alignas(64) mo_step steps[AMX_GROUPS][AMX_BLOCKS];
    _Alignas(64) mo_amx_sums acc[AMX_TILES][AMX_GROUPS];
    _Alignas(64) int32_t ring[AMX_RING][AMX_TOKENS][LANES];
} amx_space;

_Static_assert(sizeof(amx_space) <= sizeof(mo_scratch), "units, panel and sums fit the scratch");

/* Some tokens of a batch, cut into tiles of nearly equal size. */
typedef struct amx_batch {
    const mo_weights *w;
    const mo_acts *acts;
    const int32_t *pick; /* of the first token, or NULL: from `begin` on */
    int64_t begin;
    int tokens, width, tiles;
    float *y; /* of the first token */
    int64_t y_stride;
} amx_batch;

/* Lays out blocks first .. first + count - 1 of all tokens, one whole row after the other. */
static void amx_fill(mo_amx_unit *units, const amx_batch *j, int64_t first, int64_t count)
{
    const int64_t cols = j->acts->cols;
    for (int n = 0; n < j->tiles * j->width; n++) {
        const bool there = n < j->tokens; /* others are read by the last tile, never stored */
        const int64_t row = !there ? 0 : j->pick ? j->pick[n] : j->begin + n;
        const int8_t *q = j->acts->q + row * cols + 32 * first;
        const int64_t at = row * (cols / 32) + first;
        const int t = n % j->width;
        for (int64_t b = 0; b < count; b += AMX_BLOCKS) {
            mo_amx_unit *unit = units + b / AMX_BLOCKS * j->tiles + n / j->width;
            const int blocks = count - b < AMX_BLOCKS ? (int)(count - b) : AMX_BLOCKS;
            const __mmask8 some = there ? (__mmask8)((1u << blocks) - 1) : 0;
            for (int i = 0; i < blocks; i++) {
                const __m256i *from = (const __m256i *)(q + 32 * (b + i));
                _mm256_store_si256((__m256i *)unit->q[i][t],
                                   there ? _mm256_loadu_si256(from) : _mm256_setzero_si256());
            }
            _mm256_store_ps(unit->d[t], _mm256_maskz_loadu_ps(some, j->acts->d + at + b));
        }
    }
}

/* The rows of some groups with blocks first .. first + count - 1 of all tokens, which lie in units. */
static void amx_rows(const amx_batch *j, amx_space *space, const mo_rows *rows, const bool *interleaved,
                     int groups, int64_t row, int64_t first, int64_t count)
{
    const mo_type type = j->w->type;
    for (int n = 0; n < j->tiles * j->width; n++) {
        const float *y = j->y + n * j->y_stride + row;
        for (int g = 0; g < groups; g++) {
            _mm512_store_ps(space->acc[n / j->width][g][n % j->width],
                            first == 0 || n >= j->tokens ? vf_set(0.0f) : rows_load(&rows[g], y + g * LANES));
        }
    }
    for (int64_t b = 0; b < count; b += AMX_BLOCKS) {
        const int blocks = count - b < AMX_BLOCKS ? (int)(count - b) : AMX_BLOCKS;
        for (int g = 0; g < groups; g++) {
            const batch one = {.first = first + b, .blocks = blocks, .tokens = 2, .panel = space->steps[g]};
            functions[type][interleaved[g]](&rows[g], &one);
            mo_amx_codes(type, space->steps[g], blocks);
        }
        const mo_amx_panel panel = {.powers = type == MO_MXFP4,
                                    .blocks = blocks,
                                    .groups = groups,
                                    .steps = space->steps[0],
                                    .units = space->units + b / AMX_BLOCKS * j->tiles,
                                    .tiles = j->tiles,
                                    .width = j->width,
                                    .acc = space->acc,
                                    .ring = space->ring};
        mo_amx_run(&panel);
    }
    for (int n = 0; n < j->tokens; n++) {
        float *y = j->y + n * j->y_stride + row;
        for (int g = 0; g < groups; g++) {
            rows_store(&rows[g], y + g * LANES, _mm512_load_ps(space->acc[n / j->width][g][n % j->width]));
        }
    }
}

/* All rows with the tokens of a batch: as many columns at a time as the units hold. */
static void amx_tokens(const amx_batch *j, int64_t row_begin, int64_t row_end, amx_space *space)
{
    const mo_weights *w = j->w;
    const int64_t row_bytes = mo_format_row_bytes(mo_format_of(w->type), w->cols);
    const int64_t blocks = w->cols / 32, most = AMX_UNITS / j->tiles * AMX_BLOCKS;
    for (int64_t first = 0; first < blocks; first += most) {
        const int64_t here = blocks - first < most ? blocks - first : most;
        amx_fill(space->units, j, first, here);
        for (int64_t r = row_begin; r < row_end;) {
            mo_rows rows[AMX_GROUPS];
            bool interleaved[AMX_GROUPS];
            const int64_t row = r;
            int groups = 0;
            for (; groups < AMX_GROUPS && r < row_end; groups++, r += LANES) {
                interleaved[groups] = w->interleave && mo_format_has_units(w->type) && r + LANES <= w->rows;
                if (interleaved[groups]) {
                    rows_interleaved(w, row_bytes, r, row_end, &rows[groups]);
                } else {
                    rows_plain(w, row_bytes, r, row_end, &rows[groups]);
                }
            }
            amx_rows(j, space, rows, interleaved, groups, row, first, here);
        }
    }
}

/* Where tiles have nothing to win: few tokens, floats, and folds with two sums per block, each of which costs as much as one of all 32 values. */
static bool without_tiles(const mo_weights *w, int64_t count)
{
    return count <= AMX_TOKENS / 2 || mo_format_of(w->type)->kind == MO_KIND_FLOAT ||
           halves_apart(mo_fold_of(w->type)) ||
           (w->interleave && w->interleave != LANES && mo_format_has_units(w->type));
}

MO_PRODUCT(mo_amx_product)
{
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    if (without_tiles(w, count)) {
        mo_avx512_product(MO_PRODUCT_ARGUMENTS);
        return;
    }
    if (mo_fold_of(w->type) == MO_FOLD_MINIMUM) {
        mo_amx_begin();
        any_product((tiler){mo_amx_tile, AMX_TOKENS}, mo_avx512_float_product, MO_PRODUCT_ARGUMENTS);
        mo_amx_end();
        return;
    }
    /* As many tokens as have place with all their columns, so that sums need not go to y in between, but several tiles. Batches of
     * nearly equal size, so that the last one is not left with a few tokens. */
    const int64_t panels = (w->cols / 32 + AMX_BLOCKS - 1) / AMX_BLOCKS;
    const int64_t fit = AMX_UNITS / panels < 4 ? 4 : AMX_UNITS / panels;
    const int64_t most = (fit < AMX_TILES ? fit : AMX_TILES) * AMX_TOKENS;
    const int64_t batches = (count + most - 1) / most;
    for (int64_t n = 0; n < batches; n++) {
        const int64_t begin = count * n / batches, end = count * (n + 1) / batches;
        const int tokens = (int)(end - begin), width = mo_amx_width(tokens);
        const amx_batch j = {w,       acts,  pick ? pick + begin : NULL,   begin,
                             tokens,  width, (tokens + width - 1) / width, y + begin * y_stride,
                             y_stride};
        mo_amx_panel_begin(width);
        amx_tokens(&j, row_begin, row_end, (void *)scratch);
        mo_amx_end();
    }
}
