#include "numeric/x86/avx512_spans.h"

#include "numeric/grids.h"
#include "numeric/x86/levels.h"
#include "numeric/x86/loads.h"
#include "numeric/x86/pack.h"
#include "numeric/x86/spans.h"
#include "numeric/x86/vector512.h"

/* --- activations ------------------------------------------------------------------------------------- */

enum { SPAN_ROWS = 16, PAIRS = SPAN_ROWS / 2 }; /* of rows that are folded together */

/* The codes of a span as parts of four of each block: what one dot product takes. */
typedef struct span_x {
    int8_t part[8][32];
} span_x;

/* Sums and scales of sixteen rows: row 2 i is lane i, row 2 i + 1 lane 8 + i. */
typedef struct span_buffer {
    float sum[SPANS_AT_ONCE][PAIRS]
             [16];                    /* of a pair's rows, each of eight blocks, in the order of the span */
    uint16_t d[SPANS_AT_ONCE][4][16]; /* f16 */
} span_buffer;

/* In both halves: v[i] has words of row i; then v[k] has words k of rows 0 to 7. */
MO_INLINE void turn_words(__m512i v[8])
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i last = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i four[8];
    vi_turn(v, four);
    vi_turn(v + 4, four + 4);
    MO_UNROLL
    for (int k = 0; k < 4; k++) {
        v[k] = _mm512_permutex2var_epi64(four[k], first, four[4 + k]);
        v[4 + k] = _mm512_permutex2var_epi64(four[k], last, four[4 + k]);
    }
}

MO_INLINE bool in_thirds(mo_type type)
{
    return type == MO_IQ3_XXS || type == MO_IQ3_S;
}

/* The activations of a token. Part 2 g + p has of group g of each block the values 4 p to 4 p + 3; where entries of a grid have four values,
 * 2 p and 2 p + 1 of both. The ternary formats have a block for a part. */
static void span_lay_out(mo_type type, const mo_acts *acts, int64_t token, span_x *x)
{
    const __m128i thirds = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    for (int64_t s = 0; s < acts->cols / 256; s++, x++) {
        const int8_t *q = acts->q + token * acts->cols + 256 * s;
        if (type == MO_TQ1_0 || type == MO_TQ2_0) {
            memcpy(x->part, q, sizeof x->part);
            continue;
        }
        __m512i v[8];
        MO_UNROLL
        for (int b = 0; b < 8; b++) {
            __m256i block = _mm256_loadu_si256((const __m256i *)(q + 32 * b));
            if (in_thirds(type)) {
                block = _mm256_shuffle_epi8(block, _mm256_broadcastsi128_si256(thirds));
            }
            v[b] = _mm512_castsi256_si512(block);
        }
        turn_words(v);
        MO_UNROLL
        for (int i = 0; i < 8; i++) {
            _mm256_storeu_si256((__m256i *)x->part[i], _mm512_castsi512_si256(v[i]));
        }
    }
}

/* --- fields of two rows ------------------------------------------------------------------------------ */

/* The same span of two rows. */
typedef struct pair {
    const uint8_t *row[2];
} pair;

MO_INLINE __m512i join(__m256i first, __m256i second)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

/* 32 bytes of each. */
MO_INLINE __m512i pair_bytes(pair p, int at)
{
    return join(_mm256_loadu_si256((const __m256i *)(p.row[0] + at)),
                _mm256_loadu_si256((const __m256i *)(p.row[1] + at)));
}

/* Eight numbers of 16 bits of each, and of 8 bits, as words. */
MO_INLINE __m512i pair_shorts(pair p, int at)
{
    const __m128i first = _mm_loadu_si128((const __m128i *)(p.row[0] + at));
    const __m128i second = _mm_loadu_si128((const __m128i *)(p.row[1] + at));
    return _mm512_cvtepu16_epi32(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
}

MO_INLINE __m512i pair_octets(pair p, int at)
{
    const uint64_t first = load64(p.row[0] + at), second = load64(p.row[1] + at);
    return _mm512_cvtepu8_epi32(_mm_set_epi64x((long long)second, (long long)first));
}

/* A word of 64 bits of each, four times. */
MO_INLINE __m512i pair_repeated(pair p, int at)
{
    return join(_mm256_set1_epi64x((long long)load64(p.row[0] + at)),
                _mm256_set1_epi64x((long long)load64(p.row[1] + at)));
}

/* Words 0, 2, 4, ... of both, or 1, 3, 5, ... */
MO_INLINE __m512i every_second(__m512i first, __m512i second, int from)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_epi32(first, _mm512_or_si512(even, _mm512_set1_epi32(from)), second);
}

/* The same of bytes. */
MO_INLINE __m512i every_second_byte(__m512i first, __m512i second, int from)
{
    const __m512i words = _mm512_setr_epi32(
        0x06040200, 0x0E0C0A08, 0x16141210, 0x1E1C1A18, 0x26242220, 0x2E2C2A28, 0x36343230, 0x3E3C3A38,
        0x46444240, 0x4E4C4A48, 0x56545250, 0x5E5C5A58, 0x66646260, 0x6E6C6A68, 0x76747270, 0x7E7C7A78);
    return _mm512_permutex2var_epi8(first, _mm512_or_si512(words, _mm512_set1_epi8((int8_t)from)), second);
}

/* Byte i of each word of 64 bits gets the eight bits from place `at` on, at byte i of `places`. */
MO_INLINE __m512i bits_at(uint64_t places, __m512i v)
{
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)places), v);
}

/* Places that are `step` bits apart in each of two words. */
MO_INLINE uint64_t four_places(int step)
{
    uint64_t places = 0;
    for (int i = 0; i < 8; i++) {
        places |= (uint64_t)(32 * (i / 4) + step * (i % 4)) << 8 * i;
    }
    return places;
}

/* --- lookups ----------------------------------------------------------------------------------------- */

/* The bytes of a table at 64 indices, whose bits from the eighth on are in `high`. */
MO_INLINE __m512i look_up(const uint8_t *table, int entries, __m512i index, const __mmask64 *high)
{
    __m512i waiting[5]; /* of a tree whose leaves are 128 entries each */
    __m512i v = _mm512_setzero_si512();
    MO_UNROLL
    for (int i = 0; i < entries / 128; i++) {
        int bit = 0;
        v = _mm512_permutex2var_epi8(_mm512_load_si512(table + 128 * i), index,
                                     _mm512_load_si512(table + 128 * i + 64));
        MO_UNROLL
        for (int b = 0; b < 4; b++) {
            if (bit == b && (i >> b & 1)) {
                v = _mm512_mask_mov_epi8(waiting[b], high[b], v);
                bit = b + 1;
            }
        }
        waiting[bit] = v;
    }
    return v;
}

/* A bit for each value of a group, from the seven of them that are kept. */
MO_INLINE __m512i whole_signs(__m512i seven)
{
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(mo_sign_bits_of_seven), seven,
                                    _mm512_loadu_si512(mo_sign_bits_of_seven + 64));
}

/* Of two rows: levels, in the order of blocks and groups, signs likewise, and integer scales of blocks or of their halves. */
typedef struct span_codes {
    __m512i levels
        [2]
        [2]; /* of the first groups of blocks and of the others, where those are apart; [2]: parts of entries */
    __m512i signs;
    __m512i scale[2];
} span_codes;

MO_INLINE mo_levels levels_of(mo_type type)
{
    switch (type) {
    case MO_IQ2_XXS: return (mo_levels){{mo_first_iq2xxs, mo_last_iq2xxs}, 256};
    case MO_IQ2_XS: return (mo_levels){{mo_first_iq2xs, mo_last_iq2xs}, 512};
    case MO_IQ2_S: return (mo_levels){{mo_first_iq2s, mo_last_iq2s}, 1024};
    case MO_IQ3_XXS: return (mo_levels){{mo_first_iq3xxs, mo_last_iq3xxs}, 256};
    case MO_IQ3_S: return (mo_levels){{mo_first_iq3s, mo_last_iq3s}, 512};
    default: return (mo_levels){{mo_first_ternary, mo_last_ternary}, 256}; /* TQ1_0 */
    }
}

/* 64 entries: of both rows. Bits of the index from the ninth on are the lowest of each byte of `more`. */
MO_INLINE void look_up_both(mo_type type, __m512i index, __m512i more, __m512i levels[2])
{
    const mo_levels table = levels_of(type);
    __mmask64 high[4];
    high[0] = _mm512_movepi8_mask(index);
    MO_UNROLL
    for (int b = 1; b < 4; b++) {
        high[b] = table.entries > 128 << b
                      ? _mm512_test_epi8_mask(more, _mm512_set1_epi8((int8_t)(1 << (b - 1))))
                      : 0;
    }
    levels[0] = look_up(table.part[0], table.entries, index, high);
    levels[1] = look_up(table.part[1], table.entries, index, high);
}

/* 128 entries of four values: the indices of a row are a vector, and so are the upper bits of IQ3_S a mask. */
MO_INLINE void look_up_thirds(mo_type type, pair p, span_codes *c)
{
    const mo_levels table = levels_of(type);
    __m512i rows[2][2];
    MO_UNROLL
    for (int r = 0; r < 2; r++) {
        const __m512i index = _mm512_loadu_si512(p.row[r] + 2);
        const __mmask64 high[4] = {_mm512_movepi8_mask(index), type == MO_IQ3_S ? load64(p.row[r] + 66) : 0};
        rows[r][0] = look_up(table.part[0], table.entries, index, high);
        rows[r][1] = look_up(table.part[1], table.entries, index, high);
    }
    MO_UNROLL
    for (int i = 0; i < 2; i++) {
        c->levels[0][i] = every_second(rows[0][i], rows[1][i], 0);
        c->levels[1][i] = every_second(rows[0][i], rows[1][i], 1);
    }
}

/* --- formats ----------------------------------------------------------------------------------------- */

/* Four times seven bits of signs, four of scales. */
MO_INLINE void open_words(__m512i words, span_codes *c)
{
    c->signs = whole_signs(bits_at(four_places(7), words));
    c->scale[0] = _mm512_or_si512(_mm512_srli_epi32(words, 27), _mm512_set1_epi32(1));
}

/* Two nibbles of each word. */
MO_INLINE void open_nibbles(__m512i words, span_codes *c)
{
    const __m512i one = _mm512_set1_epi32(1);
    c->scale[0] =
        _mm512_or_si512(_mm512_and_si512(_mm512_add_epi32(words, words), _mm512_set1_epi32(30)), one);
    c->scale[1] = _mm512_or_si512(_mm512_srli_epi32(words, 3), one);
}

MO_INLINE void open_iq2_xxs(pair p, span_codes *c)
{
    const __m512i first = _mm512_loadu_si512(p.row[0] + 2), second = _mm512_loadu_si512(p.row[1] + 2);
    look_up_both(MO_IQ2_XXS, every_second(first, second, 0), first, c->levels[0]);
    open_words(every_second(first, second, 1), c);
}

MO_INLINE void open_iq2_xs(pair p, span_codes *c)
{
    const __m512i first = _mm512_loadu_si512(p.row[0] + 2), second = _mm512_loadu_si512(p.row[1] + 2);
    const __m512i more = every_second_byte(first, second, 1);
    look_up_both(MO_IQ2_XS, every_second_byte(first, second, 0), more, c->levels[0]);
    c->signs = whole_signs(_mm512_srli_epi16(more, 1));
    open_nibbles(pair_octets(p, 66), c);
}

MO_INLINE void open_iq2_s(pair p, span_codes *c)
{
    look_up_both(MO_IQ2_S, pair_bytes(p, 2), bits_at(four_places(2), pair_octets(p, 66)), c->levels[0]);
    c->signs = pair_bytes(p, 34);
    open_nibbles(pair_octets(p, 74), c);
}

MO_INLINE void open_iq3_s(pair p, span_codes *c)
{
    const __m512i left = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    look_up_thirds(MO_IQ3_S, p, c);
    c->signs = pair_bytes(p, 74);
    const __m512i nibbles =
        join(_mm256_set1_epi32((int)load32(p.row[0] + 106)), _mm256_set1_epi32((int)load32(p.row[1] + 106)));
    const __m512i code = _mm512_and_si512(_mm512_srlv_epi32(nibbles, left), _mm512_set1_epi32(15));
    c->scale[0] = _mm512_or_si512(_mm512_add_epi32(code, code), _mm512_set1_epi32(1));
}

/* Two blocks of the file, of a bit for each value. */
MO_INLINE void open_q1_0(pair p, span_codes *c)
{
    __m256i rows[2];
    MO_UNROLL
    for (int r = 0; r < 2; r++) {
        rows[r] = _mm256_loadu2_m128i((const __m128i *)(p.row[r] + 20), (const __m128i *)(p.row[r] + 2));
    }
    c->levels[0][0] = c->levels[0][1] = join(rows[0], rows[1]);
}

/* Four blocks of the file, of two bits. */
MO_INLINE void open_q2_0(pair p, span_codes *c)
{
    __m512i rows[2];
    MO_UNROLL
    for (int r = 0; r < 2; r++) {
        const uint8_t *from = p.row[r] + 2;
        rows[r] = join(_mm256_loadu2_m128i((const __m128i *)(from + 18), (const __m128i *)from),
                       _mm256_loadu2_m128i((const __m128i *)(from + 54), (const __m128i *)(from + 36)));
    }
    c->levels[0][0] = every_second(rows[0], rows[1], 0);
    c->levels[1][0] = every_second(rows[0], rows[1], 1);
}

MO_INLINE void open_codes(mo_type type, pair p, span_codes *c)
{
    switch (type) {
    case MO_IQ2_XXS: open_iq2_xxs(p, c); break;
    case MO_IQ2_XS: open_iq2_xs(p, c); break;
    case MO_IQ2_S: open_iq2_s(p, c); break;
    case MO_IQ3_XXS:
        look_up_thirds(MO_IQ3_XXS, p, c);
        open_words(pair_bytes(p, 66), c);
        break;
    case MO_IQ3_S: open_iq3_s(p, c); break;
    case MO_Q1_0: open_q1_0(p, c); break;
    default: open_q2_0(p, c); break;
    }
}

/* --- sums -------------------------------------------------------------------------------------------- */

/* Where part i of both blocks of a word of 64 bits is in the levels, and where the signs of its values are, which become upper bits. */
MO_INLINE uint64_t level_places(mo_type type, int i)
{
    uint64_t places = 0;
    for (int n = 0; n < 8; n++) {
        const int block = 32 * (n / 4), k = n % 4, g = i / 2;
        const int at = in_thirds(type)   ? 8 * (2 * (g % 2) + k / 2) + 3 * (k % 2)
                       : type == MO_Q1_0 ? 8 * g + 4 * (i % 2) + k
                       : type == MO_Q2_0 ? 8 * (i % 4) + 2 * k
                                         : 8 * g + 2 * k;
        places |= (uint64_t)(block + at) << 8 * n;
    }
    return places;
}

MO_INLINE uint64_t sign_places(mo_type type, int i)
{
    uint64_t places = 0;
    for (int n = 0; n < 8; n++) {
        const int k = n % 4, value = in_thirds(type) ? 2 * (i % 2) + k % 2 + 4 * (k / 2) : 4 * (i % 2) + k;
        places |= (uint64_t)((32 * (n / 4) + 8 * (i / 2) + value - 7) & 63) << 8 * n;
    }
    return places;
}

/* What levels stand for; the bits above a level do not matter. */
MO_INLINE __m512i values_of(mo_type type)
{
    switch (type) {
    case MO_IQ3_XXS: return _mm512_set1_epi64(0x1F1A16120E0A0602);
    case MO_IQ3_S: return _mm512_set1_epi64(0x0F0D0B0907050301);
    default: return _mm512_set1_epi32(0x002B1908);
    }
}

MO_INLINE bool with_signs(mo_type type)
{
    return mo_format_fold(type) != MO_FOLD_PLAIN;
}

MO_INLINE __m512i twice(const void *from)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)from));
}

/* Products of part i, which no lane shares with another block. */
MO_INLINE __m512i add_part(mo_type type, const span_codes *c, const span_x *x, int i, __m512i sum)
{
    const int place = type == MO_Q2_0 || in_thirds(type) ? i / 4 : 0;
    const int table = type == MO_Q2_0 ? 0 : i % 2;
    const __m512i level = bits_at(level_places(type, i), c->levels[place][table]);
    __m512i q = twice(x->part[i]);
    if (!with_signs(type)) {
        const __m512i mask = _mm512_set1_epi8(type == MO_Q1_0 ? 1 : 3);
        return _mm512_dpbusd_epi32(sum, _mm512_and_si512(level, mask), q);
    }
    const __mmask64 negative = _mm512_movepi8_mask(bits_at(sign_places(type, i), c->signs));
    q = _mm512_mask_sub_epi8(q, negative, _mm512_setzero_si512(), q);
    return _mm512_dpbusd_epi32(sum, _mm512_permutexvar_epi8(level, values_of(type)), q);
}

/* The sums of the blocks of both rows times their integer scales, which are less than 2^23. */
MO_INLINE __m512 grid_sums(mo_type type, pair p, const span_x *x, const int32_t *sums)
{
    span_codes c;
    open_codes(type, p, &c);
    const bool halves = mo_format_fold(type) == MO_FOLD_HALVES;
    __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    MO_UNROLL
    for (int i = 0; i < 8; i++) {
        const int h = halves && i >= 4;
        sum[h] = add_part(type, &c, x, i, sum[h]);
    }
    switch (type) {
    case MO_Q1_0: return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_add_epi32(sum[0], sum[0]), twice(sums)));
    case MO_Q2_0: return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[0], twice(sums)));
    default: break;
    }
    const __m512 first = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[0]), _mm512_cvtepi32_ps(c.scale[0]));
    return halves ? _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[1]), _mm512_cvtepi32_ps(c.scale[1]), first)
                  : first;
}

/* --- ternary formats --------------------------------------------------------------------------------- */

/* Bytes of 32 of each row, all of a block: sums are over eight lanes. part[n] has them of block n. */
MO_INLINE __m512i add_lanes(const __m512i part[8])
{
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i last = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i two[4], four[2];
    MO_UNROLL
    for (int i = 0; i < 4; i++) {
        two[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(part[2 * i], part[2 * i + 1]),
                                  _mm512_unpackhi_epi32(part[2 * i], part[2 * i + 1]));
    }
    MO_UNROLL
    for (int i = 0; i < 2; i++) {
        four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(two[2 * i], two[2 * i + 1]),
                                   _mm512_unpackhi_epi64(two[2 * i], two[2 * i + 1]));
    }
    return _mm512_add_epi32(_mm512_permutex2var_epi64(four[0], first, four[1]),
                            _mm512_permutex2var_epi64(four[0], last, four[1]));
}

MO_INLINE __m512i ternary_dot(__m512i levels, int mask, const span_x *x, int n)
{
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(),
                               _mm512_and_si512(levels, _mm512_set1_epi8((int8_t)mask)), twice(x->part[n]));
}

/* Blocks 0 to 4 are digits of 32 bytes, the others of 16 more, but for the last 16 values, which are of four. */
MO_INLINE void tq1_0_parts(pair p, const span_x *x, __m512i part[8])
{
    __m512i levels[2], rest[2];
    __m256i bytes[2];
    MO_UNROLL
    for (int r = 0; r < 2; r++) {
        const __m128i four = _mm_set1_epi32((int)load32(p.row[r] + 48));
        bytes[r] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p.row[r] + 32))), four, 1);
    }
    const __m512i first = pair_bytes(p, 0);
    look_up_both(MO_TQ1_0, first, first, levels);
    look_up_both(MO_TQ1_0, join(bytes[0], bytes[1]), first, rest);
    MO_UNROLL
    for (int n = 0; n < 4; n++) {
        part[n] = ternary_dot(levels[0], 3 << 2 * n, x, n);
    }
    part[4] = ternary_dot(levels[1], 3, x, 4);
    const __m512i both = _mm512_shuffle_i32x4(rest[0], rest[0], 0xA0); /* bytes 0 to 15, twice */
    const __m512i second = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2);
    const __m512i each = _mm512_setr_epi32(0, 0, 0, 0, 0, 2, 4, 6, 0, 0, 0, 0, 0, 2, 4, 6);
    const __m512i shifted = _mm512_srlv_epi32(both, second);
    part[5] = ternary_dot(shifted, 3, x, 5);
    part[6] = ternary_dot(_mm512_srli_epi32(shifted, 4), 3, x, 6);
    part[7] = ternary_dot(_mm512_mask_srlv_epi32(rest[1], 0xF0F0, rest[0], each), 3, x, 7);
}

/* Blocks of which two bits are where the lower ones were have sums that many times as large. */
MO_INLINE __m512 ternary_sums(mo_type type, pair p, const span_x *x, const int32_t *sums)
{
    __m512i part[8];
    if (type == MO_TQ1_0) {
        tq1_0_parts(p, x, part);
    } else {
        MO_UNROLL
        for (int n = 0; n < 8; n++) {
            part[n] = ternary_dot(pair_bytes(p, 32 * (n / 4)), 3 << 2 * (n % 4), x, n);
        }
    }
    const int last = type == MO_TQ1_0 ? 0 : 1;
    const __m512i left = _mm512_setr_epi32(0, 2, 4, 6, 0, 2 * last, 4 * last, 6 * last, 0, 2, 4, 6, 0,
                                           2 * last, 4 * last, 6 * last);
    const __m512i sum = _mm512_srav_epi32(add_lanes(part), left);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, twice(sums)));
}

/* --- rows -------------------------------------------------------------------------------------------- */

/* Sums of `spans` spans of a pair of rows. */
MO_INLINE void sum_pair(mo_type type, pair p, const span_x *x, const int32_t *sums, int spans, int lane,
                        span_buffer *to)
{
    const int files = 256 / mo_format_values(type), bytes = files * mo_format_bytes(type);
    for (int s = 0; s < spans; s++, x++, sums += SPAN_BLOCKS) {
        MO_UNROLL
        for (int r = 0; r < 2; r++) {
            mo_span_ask(p.row[r], bytes);
            MO_UNROLL
            for (int n = 0; n < files; n++) {
                to->d[s][n][8 * r + lane] = mo_span_scale(type, p.row[r], n);
            }
        }
        const bool ternary = type == MO_TQ1_0 || type == MO_TQ2_0;
        _mm512_store_ps(to->sum[s][lane],
                        ternary ? ternary_sums(type, p, x, sums) : grid_sums(type, p, x, sums));
        p.row[0] += bytes;
        p.row[1] += bytes;
    }
}

/* The fold of a span of sixteen rows. */
MO_INLINE __m512 span_fold(mo_type type, const span_buffer *from, int s, const float *dx, __m512 acc)
{
    const int blocks = mo_format_values(type) / 32;
    __m512i v[8];
    __m512 d = _mm512_setzero_ps();
    MO_UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_load_si512(from->sum[s][i]);
    }
    turn_words(v);
    MO_UNROLL
    for (int n = 0; n < 8; n++) {
        if (n % blocks == 0) {
            d = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)from->d[s][n / blocks]));
            d = _mm512_mul_ps(d, _mm512_set1_ps(mo_span_rest(type)));
        }
        acc = _mm512_fmadd_ps(_mm512_set1_ps(dx[n]), _mm512_mul_ps(d, _mm512_castsi512_ps(v[n])), acc);
    }
    return acc;
}

/* Rows first to end - 1, at most sixteen. */
MO_INLINE void span_rows(mo_type type, const span_job *j, int64_t first, int64_t end, float *y)
{
    const __m512i in_order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const int64_t spans = j->w->cols / 256, bytes = 256 / mo_format_values(type) * mo_format_bytes(type);
    const int64_t row_bytes = spans * bytes;
    __m512 acc = _mm512_setzero_ps();
    for (int64_t s = 0; s < spans; s += SPANS_AT_ONCE) {
        const int count = spans - s < SPANS_AT_ONCE ? (int)(spans - s) : SPANS_AT_ONCE;
        for (int lane = 0; first + 2 * lane < end; lane++) {
            const int64_t row = first + 2 * lane;
            const uint8_t *at = j->w->data + row * row_bytes + s * bytes;
            const pair p = {{at, row + 1 < end ? at + row_bytes : at}};
            sum_pair(type, p, j->x + s, j->sums + SPAN_BLOCKS * s, count, lane, j->buffer);
        }
        for (int n = 0; n < count; n++) {
            acc = span_fold(type, j->buffer, n, j->d + SPAN_BLOCKS * (s + n), acc);
        }
    }
    const __mmask16 stored = (__mmask16)((1u << (end - first)) - 1);
    _mm512_mask_storeu_ps(y, stored, _mm512_permutexvar_ps(in_order, acc));
}

#define SPAN_EACH(X) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(TQ1_0) X(TQ2_0) X(Q1_0) X(Q2_0)

/* As measured on Sapphire Rapids: panels are decoded once for all tokens, as slowly for every grid; lookups take longer the larger it is. */
static int64_t span_tokens(mo_type type)
{
    switch (type) {
    case MO_IQ2_XS:
    case MO_IQ2_S: return 2;
    case MO_IQ2_XXS:
    case MO_IQ3_XXS:
    case MO_IQ3_S: return 3;
    default: return 4;
    }
}

#define SPAN_TOKENS span_tokens
#include "numeric/x86/spans_body.h"

int64_t mo_avx512_spans_tokens(const mo_weights *w)
{
    return spans_tokens(w);
}

MO_PRODUCT(mo_avx512_spans)
{
    spans_product(MO_PRODUCT_ARGUMENTS);
}
