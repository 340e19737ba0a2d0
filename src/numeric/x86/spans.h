/* Spans: 256 columns of a row of the formats of one to three bits, as avx2_spans.h and avx512_spans.c take them. */
#ifndef MO_NUMERIC_X86_SPANS_H
#define MO_NUMERIC_X86_SPANS_H

#include "numeric/x86/loads.h"

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
