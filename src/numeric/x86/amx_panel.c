#include "numeric/x86/amx_panel.h"

#include "numeric/x86/amx_config.h"

/* Four registers for sums, so that three multiplications are under way before the first sum is stored: stored sooner, a store waits for
 * its own product and all behind it wait too. Numbers of registers are part of the instructions, hence macros. */
#define TOKENS     4
#define CODES      5
#define TOKENS_ODD 6
#define CODES_ODD  7

/* Sums have a token in each row and a matrix row in each column. Codes are taken just as they are decoded:
 * words of four, one matrix row per lane. */
void mo_amx_panel_begin(int width)
{
    mo_tile_config config = {.palette = 1};
    for (int i = 0; i < 4; i++) {
        config.rows[i] = (uint8_t)width;
        config.row_bytes[i] = 64;
        config.rows[4 + i] = (uint8_t)(i % 2 ? 8 : width);
        config.row_bytes[4 + i] = i % 2 ? 64 : 32;
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); /* compilers do not know that all of it is read */
    _tile_loadconfig(&config);
}

/* ---- Codes ------------------------------------------------------------------------------------- */

void mo_amx_codes(mo_type type, mo_step *steps, int blocks)
{
    const int32_t offset = code_offset(type);
    for (int b = 0; b < blocks && offset; b++) {
        MO_UNROLL
        for (int w = 0; w < 8; w++) {
            steps[b].code[w] = sub_bytes(steps[b].code[w], bytes(offset));
        }
    }
}

/* ---- Sums and their fold ----------------------------------------------------------------------- */

/* The tiles of a panel in the order in which they are computed: all blocks of a group, all groups of a unit. Blocks are
 * counted up to a multiple of 4; what is beyond is multiplied and not folded. */
typedef struct place {
    int block, group, tile;
} place;

MO_INLINE void advance(place *at, int blocks, int groups)
{
    if (++at->block == blocks) {
        at->block = 0;
        if (++at->group == groups) {
            at->group = 0;
            at->tile++;
        }
    }
}

/* One step of the fold for all tokens. While tiles are multiplied only one of two ports multiplies floats; additions have both. */
MO_INLINE void fold_all(bool powers, int width, const mo_step *s, const mo_amx_unit *unit, int block,
                        const int32_t (*sums)[LANES], vf *acc)
{
    const vf dw = s->scale[0], magic_dw = s->scale[1];
    /* 1.5 * 2^23 times a power of two: an integer is added to its bits that many times, and the difference is exact. */
    const vi start = powers ? _mm512_castps_si512(negate(magic_dw)) : vi_set(MO_MAGIC_BITS);
    MO_UNROLL
    for (int t = 0; t < width; t++) {
        const vf dx = vf_set(unit->d[t][block]);
        const vi sum = _mm512_add_epi32(start, _mm512_load_si512(sums[t]));
        if (powers) {
            acc[t] = vf_fma(dx, _mm512_add_ps(vf_of_bits(sum), magic_dw), acc[t]);
        } else {
            acc[t] = fold_magic(dx, sum, dw, magic_dw, acc[t]);
        }
    }
}

#define MULTIPLY(sums, tokens, codes)                                                                        \
    do {                                                                                                     \
        if (next.tile < p->tiles) {                                                                          \
            _tile_loadd(tokens, p->units[next.tile].q[next.block], 32);                                      \
            _tile_loadd(codes, p->steps[next.group * AMX_BLOCKS + next.block].code, 64);                     \
            _tile_zero(sums);                                                                                \
            _tile_dpbssd(sums, tokens, codes);                                                               \
            advance(&next, blocks, p->groups);                                                               \
        }                                                                                                    \
    } while (0)

#define STEP(n, sums, stored, tokens, codes)                                                                 \
    do {                                                                                                     \
        MULTIPLY(sums, tokens, codes);                                                                       \
        _tile_stored(stored, p->ring[((n) + 1) % AMX_RING], 64);                                             \
        __asm__ volatile("" ::: "memory"); /* compilers do not know what tiles read and write */             \
        if (b + (n) < p->blocks) {                                                                           \
            fold_all(powers, width, step + b + (n), unit, b + (n), p->ring[n], acc);                         \
        }                                                                                                    \
        __asm__ volatile("" ::: "memory");                                                                   \
    } while (0)

MO_INLINE void run(bool powers, int width, const mo_amx_panel *p)
{
    place next = {0, 0, 0};
    const int blocks = (p->blocks + 3) / 4 * 4;
    __asm__ volatile("" ::: "memory");
    MULTIPLY(0, TOKENS, CODES);
    MULTIPLY(1, TOKENS_ODD, CODES_ODD);
    MULTIPLY(2, TOKENS, CODES);
    MULTIPLY(3, TOKENS_ODD, CODES_ODD);
    _tile_stored(0, p->ring[0], 64);
    for (int n = 0; n < p->tiles * p->groups; n++) {
        const mo_amx_unit *unit = p->units + n / p->groups;
        const mo_step *step = p->steps + n % p->groups * AMX_BLOCKS;
        float(*kept)[LANES] = p->acc[n / p->groups][n % p->groups];
        vf acc[AMX_TOKENS];
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            acc[t] = _mm512_load_ps(kept[t]);
        }
        for (int b = 0; b < blocks; b += 4) {
            STEP(0, 0, 1, TOKENS, CODES);
            STEP(1, 1, 2, TOKENS_ODD, CODES_ODD);
            STEP(2, 2, 3, TOKENS, CODES);
            STEP(3, 3, 0, TOKENS_ODD, CODES_ODD);
        }
        MO_UNROLL
        for (int t = 0; t < width; t++) {
            _mm512_store_ps(kept[t], acc[t]);
        }
    }
}

MO_INLINE void run_width(bool powers, const mo_amx_panel *p)
{
    switch (p->width) {
    case 10: run(powers, 10, p); break;
    case 12: run(powers, 12, p); break;
    case 14: run(powers, 14, p); break;
    default: run(powers, 16, p); break;
    }
}

void mo_amx_run(const mo_amx_panel *p)
{
    if (p->powers) {
        run_width(true, p);
    } else {
        run_width(false, p);
    }
}
