/* Route: which experts a token uses, and with what weights, of the router's scores (docs/numerics.md, Mixture of
 * experts). */
#ifndef MO_NUMERIC_ROUTE_H
#define MO_NUMERIC_ROUTE_H

#include "numeric/kernels.h"
#include "numeric/kinds.h"

enum {
    MO_ROUTE_EXPERTS = 1024, /* most experts of a layer */
    MO_ROUTE_GROUPS = 64,    /* most groups of experts */
};

typedef struct mo_routing {
    int experts, used;
    mo_gating gating;
    bool normalize;          /* weights are divided by their sum */
    float scale;             /* of the weights; 1: none */
    int groups, groups_used; /* only experts of the best groups can be chosen; groups 0 or 1: all */
} mo_routing;

/* One token: scores[experts] are the router's products and become probabilities; select_bias[experts] counts for the
 * choice alone, or NULL. ids and weights, [used] each, come largest first. */
void mo_route(const mo_kernels *k, const mo_routing *r, float *scores, const float *select_bias, int32_t *ids,
              float *weights);

/* The same where the experts are known: given[used], whose order the ids keep. */
void mo_route_given(const mo_kernels *k, const mo_routing *r, float *scores, const float *given, int32_t *ids,
                    float *weights);

#endif
