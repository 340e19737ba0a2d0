/* Dividing: what a model is to a division among ranks, found from its needs. */
#ifndef MO_OPEN_DIVIDING_H
#define MO_OPEN_DIVIDING_H

#include "open/requirements.h"
#include "plan/division.h"

typedef struct mo_dividing {
    mo_division_model model;
    mo_division_layer *layers; /* [model.count], which model.layers shows */
    int64_t rank_bytes;        /* that every rank holds besides layers; */
    int64_t lead_bytes;        /* rank 0 so much more; */
    int64_t host_bytes;        /* and a rank with a device, for its sake */
    int64_t buffer_bytes;      /* for reading cores, where RAM has none of them */
    int64_t device_bytes;      /* that a device holds besides layers, experts on their way, */
    int64_t stage_bytes;       /* of which one takes so many, */
    int64_t end_bytes;         /* and the output matrix */
} mo_dividing;

/* Of a whole model, with a batch that is decided, for so many ranks. On failure *out holds nothing. */
mo_status mo_dividing_of(const mo_requirements *requirements, int ranks, mo_dividing *out, mo_error *err);
void mo_dividing_drop(mo_dividing *dividing);

/* Of a rank whose ceilings are known: what it holds besides layers. Its `vram_bytes`, all of the device's before, are what is left of it for
 * them. */
void mo_dividing_settle(const mo_dividing *dividing, int rank, mo_division_rank *machine);

#endif
