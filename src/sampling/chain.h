/* Chain: samplers in the order of the options. Each changes logits or removes candidates; at the end a token
   is drawn. sampler.c has its own code for the usual samplers in the usual order, which sorts less. */
#ifndef MO_SAMPLING_CHAIN_H
#define MO_SAMPLING_CHAIN_H

#include "sampling/selection.h"
#include "sampling/sequences.h"

typedef enum mo_sampler_kind {
    MO_SAMPLER_PENALTIES,
    MO_SAMPLER_DRY,
    MO_SAMPLER_TOP_N_SIGMA,
    MO_SAMPLER_TOP_K,
    MO_SAMPLER_TYPICAL,
    MO_SAMPLER_TOP_P,
    MO_SAMPLER_MIN_P,
    MO_SAMPLER_XTC,
    MO_SAMPLER_TEMPERATURE,
    MO_SAMPLER_KINDS
} mo_sampler_kind;

/* Parses an order, in which each sampler occurs at most once. NULL: all, in the order above. MO_EINVAL names
   what is unknown or repeated. */
mo_status mo_chain_order(const char *order, mo_sampler_kind *out, int *count, mo_error *err);

/* The data of a chain: a sampler's memory. */
typedef struct mo_chain {
    const mo_sampler_options *set;
    const mo_sampler_kind *order;
    int order_count;
    int64_t vocab;
    float *logits;     /* [vocab], with bias and mask applied */
    int32_t *tokens;   /* [vocab] */
    float *shares;     /* [vocab] */
    int32_t *counts;   /* [vocab], all zero */
    mo_ranked *ranked; /* [2 * vocab] */
    mo_sequences *sequences;
    const int32_t *recent;
    size_t recent_count;
    uint64_t *state;              /* state of the random generator */
    float *mu;                    /* state of mirostat */
    void (*penalize)(void *user); /* changes the logits of recent tokens */
    void *user;
} mo_chain;

/* Draws a token. -1: none is allowed. */
int32_t mo_chain_run(mo_chain *chain);

/* A number in [0, 1) from 53 random bits. */
double mo_sampler_draw(uint64_t *state);

#endif
