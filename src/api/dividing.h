/* Dividing: what a model is to a division among ranks, found from its needs. */
#ifndef MO_API_DIVIDING_H
#define MO_API_DIVIDING_H

#include "api/needs.h"
#include "plan/division.h"

typedef struct mo_dividing {
    mo_division_model model;
    mo_division_layer *layers; /* [model.count], which model.layers shows */
    int64_t rank_bytes;        /* that every rank holds besides layers; */
    int64_t lead_bytes;        /* rank 0 so much more */
} mo_dividing;

/* Of a whole model, with a batch that is decided. On failure *out holds nothing. */
mo_status mo_dividing_of(const mo_needs *needs, mo_dividing *out, mo_error *err);
void mo_dividing_drop(mo_dividing *dividing);

#endif
