/* Adapting: the adapters of each token of a step, for the products that they change. */
#ifndef MO_ENGINE_ADAPTING_H
#define MO_ENGINE_ADAPTING_H

#include "model/lora.h"

/* Maximum open adapters of a model, and of one session. */
enum { MO_ADAPTERS_MAX = 16, MO_ADAPTERS_USED = 8 };

/* One adapter of a slice's tokens. */
typedef struct mo_adapting_use {
    int32_t which; /* index in the step; -1: end of the list */
    float scale;   /* set by the user */
} mo_adapting_use;

typedef struct mo_adapting {
    int count; /* adapters of the step; 0: none, and no other member is read */
    const mo_lora *lora[MO_ADAPTERS_MAX];
    const int32_t *slice_of; /* [tokens] */
    mo_adapting_use *uses;   /* [slices][MO_ADAPTERS_USED], in the order in which they are added */
    float *u;                /* A x for all products of a phase */
} mo_adapting;

/* One adapter's matrices for one product. */
typedef struct mo_low {
    const mo_lora_pair *pair; /* NULL: the adapter does not change the product */
    float *u;                 /* [rows of the product][rank] */
} mo_low;

/* The adapters of a token: up to MO_ADAPTERS_USED, in order, ended by -1. */
static inline const mo_adapting_use *mo_adapting_uses(const mo_adapting *a, int64_t token)
{
    return a->uses + (int64_t)a->slice_of[token] * MO_ADAPTERS_USED;
}

#endif
