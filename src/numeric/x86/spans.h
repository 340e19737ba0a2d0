/* Spans: 256 columns of a row of the formats of one to three bits, as avx2_spans.h and avx512_spans.c take them. */
#ifndef MO_NUMERIC_X86_SPANS_H
#define MO_NUMERIC_X86_SPANS_H

#include <immintrin.h>

#include "numeric/weights.h"
#include "numeric/x86/loads.h"

enum {
    SPAN_BLOCKS = 8, /* blocks of 32 */
    SPANS_MAX = 448, /* of a row: 114688 columns */
    SPANS_AT_ONCE =
        8, /* whose sums wait for their fold: what waits for what would otherwise hold up the following lookups */
};

/* A product with one token. */
typedef struct span_job {
    const mo_weights *w;
    const struct span_x *x; /* its activations, as a set lays them out */
    const int32_t *sums;
    const float *d;
    struct span_buffer *buffer;
} span_job;

/* Prefetches what is read soon after a span of this many bytes. */
MO_INLINE void mo_span_ask(const uint8_t *span, int bytes)
{
    enum { AHEAD_OF_SPAN = 2048 }; /* bytes */
    _mm_prefetch((const char *)span + AHEAD_OF_SPAN, _MM_HINT_T0);
    if (bytes > 66) {
        _mm_prefetch((const char *)span + AHEAD_OF_SPAN + bytes / 2, _MM_HINT_T0);
    }
}

MO_INLINE bool mo_span_is_iq1(mo_type type)
{
    return type == MO_IQ1_S || type == MO_IQ1_M;
}

/* Scale n of a span, f16. */
MO_INLINE uint16_t mo_span_scale(mo_type type, const uint8_t *span, int n)
{
    switch (type) {
    case MO_IQ1_M: { /* in the upper nibbles of four words */
        const uint64_t w = load64(span + 48);
        return (uint16_t)((w >> 12 & 0xF) | (w >> 24 & 0xF0) | (w >> 36 & 0xF00) | (w >> 48 & 0xF000));
    }
    case MO_TQ1_0: return load16(span + 52);
    case MO_TQ2_0: return load16(span + 64);
    default: return load16(span + n * mo_format_bytes(type));
    }
}

/* A power of two that the integer scales leave to d. */
MO_INLINE float mo_span_rest(mo_type type)
{
    return mo_format_fold(type) == MO_FOLD_PLAIN || type == MO_IQ3_S ? 1.0f
           : type == MO_IQ3_XXS                                      ? 0.5f
                                                                     : 0.125f;
}

#endif
