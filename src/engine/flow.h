/* Flow: gate and up of a layer's experts, and their down, as one phase. A piece of down begins when all pieces of its own expert's gate
 * and up are done, so no thread waits for other experts or for the slowest thread. For steps of few tokens whose pieces of gate and
 * up go on to the activation (mo_jobs_add_gated()). */
#ifndef MO_ENGINE_FLOW_H
#define MO_ENGINE_FLOW_H

#include <stdalign.h>
#include <stdatomic.h>

#include "engine/jobs.h"

enum { MO_FLOW_LINE = 64 };

typedef struct mo_flow_unit {
    alignas(MO_FLOW_LINE) _Atomic int64_t left; /* pieces of gate and up that are not done */
} mo_flow_unit;

typedef struct mo_flow {
    mo_flow_unit *units; /* [limit] of each product of `in`; given by the owner, as is: */
    int32_t
        *after; /* [limit] of each of `out`, the one of `in` whose activations it reads; -1: they are there */
    int limit;
    mo_jobs *in, *out; /* of the phase at hand */
} mo_flow;

/* Can both lists be one phase? */
bool mo_flow_joins(const mo_flow *flow, const mo_jobs *in, const mo_jobs *out);

/* Cuts both lists as they are now; the phase that computes them. */
mo_phase mo_flow_phase(mo_flow *flow, mo_jobs *in, mo_jobs *out);

#endif
