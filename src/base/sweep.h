/* Sweep: reads memory at the rate the machine gives, the yardstick every product is measured with. */
#ifndef MO_BASE_SWEEP_H
#define MO_BASE_SWEEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Reads every byte once, in order, on this thread, and returns a checksum that keeps the reads alive.
 * memory is 64-byte aligned; a tail of less than 512 bytes is left out. */
uint64_t mo_sweep_read(const void *memory, size_t bytes);

/* The same over all threads of the pool, in pieces of 1 MiB; returns bytes per nanosecond (GB/s). */
double mo_sweep_rate(mo_pool *pool, const void *memory, size_t bytes);

#endif
