/* Seed: a random seed, if none was given. */
#ifndef MO_BASE_SEED_H
#define MO_BASE_SEED_H

#include <stdint.h>
#include <sys/random.h>
#include <sys/types.h>

#include "base/clock.h"

/* Below 2^32 - 1: short enough to type, exact in JSON libraries that only have doubles, and not 2^32 - 1,
   which llama-server's clients use for "random". */
static inline uint32_t mo_seed_draw(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint32_t)mo_clock_ns();
    }
    return seed % UINT32_MAX;
}

#endif
