/* Round: products of some experts by all threads of a pool, as in one layer of a token: gate and up, then
 * down. */
#ifndef MO_PLAN_PROBE_ROUND_H
#define MO_PLAN_PROBE_ROUND_H

#include "base/pool.h"

typedef struct mo_probe_round mo_probe_round;

/* most: maximum bytes of a round's experts. The pool is not owned. */
mo_status mo_probe_round_open(mo_pool *pool, int64_t most, mo_probe_round **out, mo_error *err);
void mo_probe_round_close(mo_probe_round *round); /* accepts NULL */

/* Computes experts of this many bytes in total, read from `memory`, whose bytes are all 0x5A. */
void mo_probe_round_run(mo_probe_round *round, const uint8_t *memory, int64_t bytes);

#endif
