/* Random: seeded data for the tests, the same on every machine (integers and exact float steps only),
 * and the fingerprint that fixed expectations are written in. */
#ifndef MO_TESTS_RANDOM_H
#define MO_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline int64_t random_below(uint64_t *state, int64_t limit)
{
    return (int64_t)(random_next(state) % (uint64_t)limit);
}

/* Roughly normal, mean 0, deviation 1: the sum of eight 16-bit integers, exact in a float. */
static inline float random_normal(uint64_t *state)
{
    int64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        const uint64_t r = random_next(state);
        sum += (int64_t)(r & 0xFFFF) + (int64_t)(r >> 16 & 0xFFFF) + (int64_t)(r >> 32 & 0xFFFF) +
               (int64_t)(r >> 48);
    }
    return (float)(sum - 4 * 65535) * 0x1.3988p-16f; /* 1 / (65536 * sqrt(8 / 12)) */
}

/* FNV-1a over bytes. */
static inline uint64_t fingerprint(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * 0x100000001B3u;
    }
    return hash;
}

#endif
