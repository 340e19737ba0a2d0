/* Dividing: what a model is to a division among ranks, found from its needs. */
#ifndef MO_OPEN_DIVIDING_H
#define MO_OPEN_DIVIDING_H

#include "open/requirements.h"
#include "plan/division.h"

typedef struct mo_dividing {
    mo_division_model model;
    mo_division_layer *layers; /* [model.count], which model.layers shows */
    int64_t rank_bytes;        /* of every rank, apart from layers; */
    int64_t lead_bytes;        /* rank 0 in addition; */
    int64_t host_bytes;        /* and a rank with a device, for the device */
    int64_t buffer_bytes;      /* for reading cores, where RAM has none of them */
    int64_t device_bytes;      /* of a device, apart from layers: experts in transit, */
    int64_t stage_bytes;       /* of which one takes so many, */
    int64_t end_bytes;         /* and the output matrix */
} mo_dividing;

/* For a whole model with a known batch, and the number of ranks. On failure *out is empty. */
mo_status mo_dividing_of(const mo_requirements *requirements, int ranks, mo_dividing *out, mo_error *err);
void mo_dividing_drop(mo_dividing *dividing);

/* For a rank whose ceilings are known: its memory apart from layers. Its `vram_bytes`, before all of the device's, become what is left for
 * them. */
void mo_dividing_settle(const mo_dividing *dividing, int rank, mo_division_rank *machine);

#endif
