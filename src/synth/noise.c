#include "synth/noise.h"

#include <math.h>
#include <string.h>

#include "numeric/block.h"
#include "numeric/half.h"

/* ---- Generator ---- */

#define STRIDE      0x9E3779B97F4A7C15u /* odd, and without a short bit pattern */
#define SCALES_SALT 0x5CA1E5A17D00D5E1u /* a second sequence for scales */

/* Two rounds of folding and odd multiplication: every input bit affects every output bit. Two multiplications
   for eight bytes are much faster than any disk, without vector instructions. */
static inline uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 32) * 0xD1B54A32D192ED03u;
    z = (z ^ z >> 29) * 0xAEF17502108EF2D9u;
    return z ^ z >> 32;
}

uint64_t mo_noise_word(uint64_t key, uint64_t index)
{
    return mix(key + index * STRIDE);
}

uint64_t mo_noise_key(uint64_t seed, const char *name)
{
    uint64_t key = mix(seed + STRIDE);
    for (const char *c = name; *c; c++) {
        key = mix(key + (uint8_t)*c + STRIDE);
    }
    return key;
}

/* ---- Statistics of uniformly random codes ---- */

typedef struct spread {
    double codes;  /* root mean square of the codes, relative to the middle if the format has a minimum */
    double scales; /* root mean square of the integer sub-scales */
    double middle; /* mean of the codes, if the format has a minimum */
} spread;

static double table_rms(const int8_t table[16])
{
    double sum = 0.0;
    for (int i = 0; i < 16; i++) {
        sum += table[i] * table[i];
    }
    return sqrt(sum / 16.0);
}

/* Root mean square of the integers from low to high. */
static double range_rms(int low, int high)
{
    double sum = 0.0;
    for (int i = low; i <= high; i++) {
        sum += (double)i * i;
    }
    return sqrt(sum / (high - low + 1));
}

/* Root mean square of `count` equally likely codes around their mean. */
static double step_rms(int count)
{
    return sqrt(((double)count * count - 1.0) / 12.0);
}

/* Root mean square of the first `count` odd numbers. */
static double odd_rms(int count)
{
    return sqrt((4.0 * count * count - 1.0) / 3.0);
}

/* Root mean square of the codes in blocks of random bytes, by sampling. */
static double block_rms(mo_type type)
{
    enum { BLOCKS = 128 };
    const mo_format *f = mo_format_of(type);
    double sum = 0.0;
    for (int b = 0; b < BLOCKS; b++) {
        uint8_t bytes[MO_BLOCK_BYTES_MAX];
        for (int i = 0; i < f->block_bytes; i++) {
            bytes[i] = (uint8_t)(mo_noise_word((uint64_t)b, (uint64_t)i) & 255);
        }
        for (int j = 0; j < f->block_values / 32; j++) {
            mo_block block;
            mo_block_decode(type, bytes, j, &block);
            for (int i = 0; i < 32; i++) {
                sum += block.code[i] * block.code[i];
            }
        }
    }
    return sqrt(sum / (BLOCKS * f->block_values));
}

static spread spread_of(mo_type type)
{
    /* Six-bit sub-scales are generated with either sign, from 16 to 31 and from -32 to -17. */
    const double six =
        sqrt((range_rms(16, 31) * range_rms(16, 31) + range_rms(17, 32) * range_rms(17, 32)) / 2.0);
    switch (type) {
    case MO_Q4_0: return (spread){range_rms(-8, 7), 1.0, 0.0};
    case MO_Q4_1: return (spread){step_rms(16), 1.0, 7.5};
    case MO_Q5_0: return (spread){range_rms(-16, 15), 1.0, 0.0};
    case MO_Q5_1: return (spread){step_rms(32), 1.0, 15.5};
    case MO_Q8_0: return (spread){range_rms(-127, 127), 1.0, 0.0};
    case MO_IQ4_NL: return (spread){table_rms(mo_table_iq4), 1.0, 0.0};
    case MO_Q2_K: return (spread){step_rms(4), range_rms(8, 15), 1.5};
    case MO_Q3_K: return (spread){range_rms(-4, 3), six, 0.0};
    case MO_Q4_K: return (spread){step_rms(16), range_rms(32, 63), 7.5};
    case MO_Q5_K: return (spread){step_rms(32), range_rms(32, 63), 15.5};
    case MO_Q6_K: return (spread){range_rms(-32, 31), range_rms(32, 63), 0.0};
    case MO_IQ4_XS: return (spread){table_rms(mo_table_iq4), six, 0.0};
    case MO_IQ1_S:
    case MO_IQ1_M: return (spread){block_rms(type) / 8.0, odd_rms(8), 0.0};
    case MO_IQ2_XXS:
    case MO_IQ2_XS:
    case MO_IQ2_S: return (spread){block_rms(type) / 8.0, odd_rms(16), 0.0};
    case MO_IQ3_XXS: return (spread){block_rms(type) / 2.0, odd_rms(16), 0.0};
    case MO_IQ3_S: return (spread){block_rms(type), odd_rms(16), 0.0};
    case MO_TQ2_0: return (spread){sqrt(0.5), 1.0, 0.0};
    default: return (spread){mo_format_by_row(type) ? block_rms(type) : 1.0, 1.0, 0.0};
    }
}

/* ---- Initialization ---- */

/* Mixes two adjacent scales in the proportion that gives the exact deviation. unit(b): the deviation if all
   blocks have scale byte b. */
static void set_two(mo_noise *n, double (*unit)(uint8_t), int most)
{
    int b = 0;
    while (b + 1 < most && unit((uint8_t)(b + 1)) <= n->deviation) {
        b++;
    }
    const double low = unit((uint8_t)b);
    const double high = unit((uint8_t)(b + 1));
    const double share = (n->deviation * n->deviation - low * low) / (high * high - low * low);
    n->lower = (uint8_t)b;
    n->higher_share = share <= 0.0 ? 0 : share >= 1.0 ? 65536 : (uint32_t)(share * 65536.0);
}

static double mxfp4_unit(uint8_t b)
{
    return table_rms(mo_table_e2m1) * (double)mo_e8m0_half(b);
}

static double nvfp4_unit(uint8_t b)
{
    return table_rms(mo_table_e2m1) * 0.5 * (double)mo_ue4m3_to_f32(b);
}

static void set_halves(mo_noise *n, spread s)
{
    double sum = 0.0;
    for (int i = 0; i < 16; i++) {
        sum += (0.75 + i / 30.0) * (0.75 + i / 30.0);
    }
    const double base = n->deviation / (s.codes * s.scales * sqrt(sum / 16.0));
    for (int i = 0; i < 16; i++) {
        n->scale[i] = mo_f32_to_f16((float)(base * (0.75 + i / 30.0)));
        n->min[i] = mo_f32_to_f16((float)(s.middle * (double)mo_f16_to_f32(n->scale[i])));
    }
}

void mo_noise_matrix(mo_noise *n, uint64_t seed, const char *name, mo_type type, double deviation)
{
    *n = (mo_noise){.key = mo_noise_key(seed, name), .type = type, .deviation = deviation};
    if (mo_format_of(type)->kind == MO_KIND_FLOAT) {
        n->spread = (float)(deviation * sqrt(3.0));
        return;
    }
    switch (type) {
    case MO_MXFP4: set_two(n, mxfp4_unit, 200); break;
    case MO_NVFP4: set_two(n, nvfp4_unit, 0x7E); break;
    default: set_halves(n, spread_of(type)); break;
    }
}

void mo_noise_values(mo_noise *n, uint64_t seed, const char *name, float centre, float spread_)
{
    *n =
        (mo_noise){.key = mo_noise_key(seed, name), .type = MO_F32, .deviation = (double)spread_ / sqrt(3.0)};
    n->centre = centre;
    n->spread = spread_;
}

/* ---- Scales of one block: r is random, p has random bytes ---- */

static inline void put_u16(uint8_t *p, uint16_t h)
{
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
}

/* Selects one of the sixteen scales, and a sign so that codes with a mean do not add up. */
#define PICK(r) ((r) >> 60)
#define SIGN(r) ((uint16_t)((r) >> 44 & 0x8000))

static inline void scale_symmetric(const mo_noise *n, uint64_t r, uint8_t *p)
{
    put_u16(p, n->scale[PICK(r)] | SIGN(r));
}

static inline void scale_affine(const mo_noise *n, uint64_t r, uint8_t *p)
{
    put_u16(p, n->scale[PICK(r)]);
    put_u16(p + 2, n->min[PICK(r)] | 0x8000);
}

/* Quantizers do not write the code -128. */
static inline void scale_q8_0(const mo_noise *n, uint64_t r, uint8_t *p)
{
    put_u16(p, n->scale[PICK(r)]);
    for (int i = 2; i < 34; i++) {
        p[i] = (uint8_t)(p[i] + (p[i] == 0x80));
    }
}

static inline void scale_mxfp4(const mo_noise *n, uint64_t r, uint8_t *p)
{
    p[0] = (uint8_t)(n->lower + ((r & 0xFFFF) < n->higher_share));
}

static inline void scale_nvfp4(const mo_noise *n, uint64_t r, uint8_t *p)
{
    for (int g = 0; g < 4; g++) {
        p[g] = (uint8_t)(n->lower + ((r >> 16 * g & 0xFFFF) < n->higher_share));
    }
}

/* The minimum uses its scale's integer, so each part has mean 0. */
static inline void scale_q2_k(const mo_noise *n, uint64_t r, uint8_t *p)
{
    for (int i = 0; i < 16; i++) {
        p[i] = (uint8_t)((8 | (r >> 3 * i & 7)) * 17);
    }
    put_u16(p + 80, n->scale[PICK(r)]);
    put_u16(p + 82, n->min[PICK(r)]);
}

/* The two upper bits of a six-bit scale: 0 or 3. */
static inline uint8_t doubled(uint8_t b)
{
    return (uint8_t)((b & 0x55) * 3);
}

static inline void scale_q3_k(const mo_noise *n, uint64_t r, uint8_t *p)
{
    for (int i = 104; i < 108; i++) {
        p[i] = doubled(p[i]);
    }
    put_u16(p + 108, n->scale[PICK(r)]);
}

static inline void scale_q45_k(const mo_noise *n, uint64_t r, uint8_t *p)
{
    put_u16(p, n->scale[PICK(r)]);
    put_u16(p + 2, n->min[PICK(r)]);
    for (int j = 0; j < 4; j++) {
        const uint8_t one = (uint8_t)(32 | (r >> 5 * j & 31));
        const uint8_t two = (uint8_t)(32 | (r >> (20 + 5 * j) & 31));
        p[4 + j] = p[8 + j] = (uint8_t)(one | two >> 4 << 6);
        p[12 + j] = (uint8_t)((two & 15) * 17);
    }
}

static inline void scale_q6_k(const mo_noise *n, uint64_t r, uint8_t *p)
{
    for (int i = 192; i < 208; i++) {
        const uint8_t sign = (uint8_t)(0 - (p[i] >> 7));
        p[i] = (uint8_t)(((32 | (p[i] & 31)) ^ sign) - sign);
    }
    put_u16(p + 208, n->scale[PICK(r)]);
}

static inline void scale_iq4_xs(const mo_noise *n, uint64_t r, uint8_t *p)
{
    put_u16(p, n->scale[PICK(r)]);
    p[2] = doubled(p[2]);
    p[3] = doubled(p[3]);
}

/* IQ1_M stores its scale in the upper nibbles of the last four words. */
static inline void scale_iq1_m(const mo_noise *n, uint64_t r, uint8_t *p)
{
    const uint16_t half = n->scale[PICK(r)] | SIGN(r);
    for (int i = 0; i < 4; i++) {
        p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
    }
}

static inline void scale_tq1_0(const mo_noise *n, uint64_t r, uint8_t *p)
{
    scale_symmetric(n, r, p + 52);
}

/* Quantizers do not write code 3. It becomes 1, which is the value 0; the mean is 0. */
static inline void scale_tq2_0(const mo_noise *n, uint64_t r, uint8_t *p)
{
    for (int i = 0; i < 64; i++) {
        p[i] = (uint8_t)(p[i] & ~(p[i] << 1 & 0xAA));
    }
    scale_symmetric(n, r, p + 64);
}

/* ---- Filling ---- */

static void fill_bytes(uint64_t key, uint64_t first_word, int64_t bytes, uint8_t *out)
{
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        const uint64_t word = mo_noise_word(key, first_word++);
        memcpy(out + i, &word, 8);
    }
    if (i < bytes) {
        const uint64_t word = mo_noise_word(key, first_word);
        memcpy(out + i, &word, (size_t)(bytes - i));
    }
}

/* One loop for each format, so that the compiler can inline `set`. */
#define EACH_BLOCK(set, type)                                                                                \
    for (int64_t b = 0; b < blocks; b++) {                                                                   \
        set(n, mo_noise_word(n->key ^ SCALES_SALT, (uint64_t)(first + b)), out + b * mo_format_bytes(type)); \
    }                                                                                                        \
    break

static void set_scales(const mo_noise *n, int64_t first, int64_t blocks, uint8_t *out)
{
    switch (n->type) {
    case MO_Q4_0: EACH_BLOCK(scale_symmetric, MO_Q4_0);
    case MO_IQ4_NL: EACH_BLOCK(scale_symmetric, MO_IQ4_NL);
    case MO_Q5_0: EACH_BLOCK(scale_symmetric, MO_Q5_0);
    case MO_Q4_1: EACH_BLOCK(scale_affine, MO_Q4_1);
    case MO_Q5_1: EACH_BLOCK(scale_affine, MO_Q5_1);
    case MO_Q8_0: EACH_BLOCK(scale_q8_0, MO_Q8_0);
    case MO_MXFP4: EACH_BLOCK(scale_mxfp4, MO_MXFP4);
    case MO_NVFP4: EACH_BLOCK(scale_nvfp4, MO_NVFP4);
    case MO_Q2_K: EACH_BLOCK(scale_q2_k, MO_Q2_K);
    case MO_Q3_K: EACH_BLOCK(scale_q3_k, MO_Q3_K);
    case MO_Q4_K: EACH_BLOCK(scale_q45_k, MO_Q4_K);
    case MO_Q5_K: EACH_BLOCK(scale_q45_k, MO_Q5_K);
    case MO_Q6_K: EACH_BLOCK(scale_q6_k, MO_Q6_K);
    case MO_IQ4_XS: EACH_BLOCK(scale_iq4_xs, MO_IQ4_XS);
    case MO_IQ1_M: EACH_BLOCK(scale_iq1_m, MO_IQ1_M);
    case MO_TQ1_0: EACH_BLOCK(scale_tq1_0, MO_TQ1_0);
    case MO_TQ2_0: EACH_BLOCK(scale_tq2_0, MO_TQ2_0);
    case MO_IQ1_S: EACH_BLOCK(scale_symmetric, MO_IQ1_S);
    case MO_IQ2_XXS: EACH_BLOCK(scale_symmetric, MO_IQ2_XXS);
    case MO_IQ2_XS: EACH_BLOCK(scale_symmetric, MO_IQ2_XS);
    case MO_IQ2_S: EACH_BLOCK(scale_symmetric, MO_IQ2_S);
    case MO_IQ3_XXS: EACH_BLOCK(scale_symmetric, MO_IQ3_XXS);
    case MO_IQ3_S: EACH_BLOCK(scale_symmetric, MO_IQ3_S);
    case MO_Q1_0: EACH_BLOCK(scale_symmetric, MO_Q1_0);
    case MO_Q2_0: EACH_BLOCK(scale_symmetric, MO_Q2_0);
    default: break;
    }
}

static void fill_f32(const mo_noise *n, int64_t first, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, out + 4 * i, 4);
        const float uniform = (float)bits * 0x1p-31f;
        const float scale = n->row_scale ? n->row_scale[(first + i) / n->row_values] : 1.0f;
        const float value = n->centre + n->spread * scale * uniform;
        memcpy(out + 4 * i, &value, 4);
    }
}

/* 4096 different values suffice, and a table is five times as fast as rounding each value. */
static void fill_halves(const mo_noise *n, int64_t count, uint8_t *out)
{
    uint16_t table[4096];
    for (int i = 0; i < 4096; i++) {
        const float value = n->spread * (((float)i - 2047.5f) * 0x1p-11f);
        table[i] = n->type == MO_F16 ? mo_f32_to_f16(value) : mo_f32_to_bf16(value);
    }
    for (int64_t i = 0; i < count; i++) {
        put_u16(out + 2 * i, table[mo_read_u16(out + 2 * i) >> 4]);
    }
}

void mo_noise_fill(const mo_noise *n, int64_t first_block, int64_t blocks, uint8_t *out)
{
    const int64_t size = mo_format_of(n->type)->block_bytes;
    fill_bytes(n->key, (uint64_t)(first_block / 8 * size), blocks * size, out);
    switch (n->type) {
    case MO_F32: fill_f32(n, first_block, blocks, out); break;
    case MO_F16:
    case MO_BF16: fill_halves(n, blocks, out); break;
    default: set_scales(n, first_block, blocks, out); break;
    }
}
