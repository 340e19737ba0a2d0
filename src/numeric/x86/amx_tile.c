#include "numeric/x86/amx_tile.h"

#include "numeric/x86/amx_config.h"

/* One register for each operand of a block, twice, so that a block's sums are made while the ones before
 * are folded. Numbers of registers are part of the instructions, hence macros. */
#define SUMS       0
#define SUMS_ODD   1
#define TOKENS     2
#define TOKENS_ODD 3
#define CODES      4
#define CODES_ODD  5

/* Sums have a token in each row and a matrix row in each column. Codes are taken just as they are decoded:
 * words of four, one matrix row per lane. */
static const mo_tile_config config = {
    .palette = 1,
    .rows = {[SUMS] = AMX_TOKENS,
             [SUMS_ODD] = AMX_TOKENS,
             [TOKENS] = AMX_TOKENS,
             [TOKENS_ODD] = AMX_TOKENS,
             [CODES] = 8,
             [CODES_ODD] = 8},
    .row_bytes =
        {[SUMS] = 64, [SUMS_ODD] = 64, [TOKENS] = 32, [TOKENS_ODD] = 32, [CODES] = 64, [CODES_ODD] = 64},
};

void mo_amx_begin(void)
{
    _tile_loadconfig(&config);
}

void mo_amx_end(void)
{
    _tile_release();
}

#define MULTIPLY(b, sums, tokens, codes)                                                                     \
    do {                                                                                                     \
        _tile_zero(sums);                                                                                    \
        _tile_loadd(tokens, slots->q + 32 * (b), sizeof *slots);                                             \
        _tile_loadd(codes, panel[b].code, 64);                                                               \
        _tile_dpbsud(sums, tokens, codes);                                                                   \
    } while (0)

typedef int32_t sums16[AMX_TOKENS][LANES];

/* One step of the fold for all tokens. */
MO_INLINE void fold_all(mo_fold fold, const mo_step *s, const mo_slot512 *slots, int64_t block,
                        const sums16 *sums, vf acc[AMX_TOKENS])
{
    MO_UNROLL
    for (int t = 0; t < AMX_TOKENS; t++) {
        const vi start = sum_start(fold, slots + t, block, 0);
        const vi sum[2] = {_mm512_add_epi32(_mm512_load_si512((*sums)[t]), start)};
        acc[t] = fold_sums(fold, s, slots + t, block, sum, acc[t]);
    }
}

MO_INLINE void run_amx(mo_fold fold, TILE_PARAMETERS)
{
    _Alignas(64) sums16 even, odd;
    vf acc[AMX_TOKENS];
    MO_UNROLL
    for (int t = 0; t < AMX_TOKENS; t++) {
        acc[t] = first || t >= tokens ? vf_set(0.0f) : rows_load(rows, y + t * y_stride);
    }
    __asm__ volatile("" ::: "memory"); /* compilers do not know that tile loads read memory */
    MULTIPLY(0, SUMS, TOKENS, CODES);
    for (int b = 0; b < blocks; b += 2) {
        if (b + 1 < blocks) {
            MULTIPLY(b + 1, SUMS_ODD, TOKENS_ODD, CODES_ODD);
        }
        _tile_stored(SUMS, even, sizeof even[0]);
        fold_all(fold, panel + b, slots, b, &even, acc);
        if (b + 1 == blocks) {
            break;
        }
        if (b + 2 < blocks) {
            MULTIPLY(b + 2, SUMS, TOKENS, CODES);
        }
        _tile_stored(SUMS_ODD, odd, sizeof odd[0]);
        fold_all(fold, panel + b + 1, slots, b + 1, &odd, acc);
    }
    MO_UNROLL
    for (int t = 0; t < AMX_TOKENS; t++) {
        if (t < tokens) {
            rows_store(rows, y + t * y_stride, acc[t]);
        }
    }
}

MO_TILE(mo_amx_tile)
{
    if (tokens <= AMX_TOKENS / 2) {
        mo_avx512_tile(type, TILE_ARGUMENTS);
    } else {
        run_amx(MO_FOLD_MINIMUM, TILE_ARGUMENTS);
    }
}
