/* Loads of integers from bytes that are aligned to nothing. */
#ifndef MO_NUMERIC_X86_LOADS_H
#define MO_NUMERIC_X86_LOADS_H

#include <stdint.h>
#include <string.h>

#include "numeric/x86/pack.h"

MO_INLINE uint16_t load16(const uint8_t *p)
{
    uint16_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

MO_INLINE uint32_t load32(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

MO_INLINE uint64_t load64(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

#endif
