/* Seed: of random numbers, where nobody gave one. */
#ifndef MO_BASE_SEED_H
#define MO_BASE_SEED_H

#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>

#include "base/clock.h"

/* Below 2^32 - 1: people can type it, JSON libraries that have doubles only can send it back, and llama-server's clients take
 * 2^32 - 1 for "random". */
static inline uint32_t mo_seed_draw(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint32_t)mo_clock_ns();
    }
    return seed % UINT32_MAX;
}

#endif
