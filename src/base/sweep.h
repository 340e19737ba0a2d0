/* Sweep: reads memory at the machine's full rate, to compare products with. */
#ifndef MO_BASE_SWEEP_H
#define MO_BASE_SWEEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Reads every byte once, in order, on this thread. Returns a checksum, so that the reads are not optimized
   away. memory is 64-byte aligned; a tail of less than 512 bytes is ignored. */
uint64_t mo_sweep_read(const void *memory, size_t bytes);

/* The same with all threads of the pool, in pieces of 1 MiB. Returns bytes per nanosecond (GB/s). */
double mo_sweep_rate(mo_pool *pool, const void *memory, size_t bytes);

#endif
