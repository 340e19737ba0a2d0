/* Chain: samplers in the order that the options name, each of which changes logits or leaves candidates out, and the draw at the end. The
 * usual samplers in the usual order are sampler.c's own, which sorts less. */
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

/* The samplers of an order, each once, as many as it names. NULL: all, in the order above. MO_EINVAL names what is unknown or stands
 * there twice. */
mo_status mo_chain_order(const char *order, mo_sampler_kind *out, int *count, mo_error *err);

/* What a chain works on: the memory of a sampler. */
typedef struct mo_chain {
    const mo_sampler_options *set;
    const mo_sampler_kind *order;
    int order_count;
    int64_t vocab;
    float *logits;     /* [vocab] with bias and mask */
    int32_t *tokens;   /* [vocab] */
    float *shares;     /* [vocab] */
    int32_t *counts;   /* [vocab] zero */
    mo_ranked *ranked; /* [2 * vocab] */
    mo_sequences *sequences;
    const int32_t *recent;
    size_t recent_count;
    uint64_t *state;              /* of the random numbers */
    float *mu;                    /* of mirostat */
    void (*penalize)(void *user); /* changes the logits of recent tokens */
    void *user;
} mo_chain;

/* Draws a token; -1: none may be picked. */
int32_t mo_chain_run(mo_chain *chain);

/* A number in [0, 1) from 53 random bits. */
double mo_sampler_draw(uint64_t *state);

#endif
