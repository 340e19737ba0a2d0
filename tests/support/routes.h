/* Routes: made-up routing, for tests of what the store keeps. A domain is a popularity of the experts in every
 * layer (Zipf over a shuffle); tokens pick from it, pick again what the token before picked, and follow topics
 * that raise a few experts for a while; popularity may drift. Nothing here was fitted to a real model. */
#ifndef MO_TESTS_ROUTES_H
#define MO_TESTS_ROUTES_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "profile/trace.h"
#include "random.h"

enum { ROUTES_LAYERS = 8, ROUTES_EXPERTS = 128, ROUTES_USED = 16 }; /* limits */

typedef struct routes_model {
    const char *name;
    int layers, experts, used;
    double zipf;   /* exponent of popularity; 0: all alike */
    double repeat; /* chance that a pick is one of the token before */
    double drift;  /* chance, per token and layer, that two experts exchange their popularity */
    int topic;     /* mean tokens of a topic; 0: none */
    double boost;  /* of the popularity of a topic's experts, a sixth of all */
} routes_model;

typedef struct routes {
    const routes_model *model;
    uint64_t random;
    double weight[2][ROUTES_LAYERS][ROUTES_EXPERTS]; /* of two domains */
    double raised[ROUTES_LAYERS][ROUTES_EXPERTS];    /* what the topic makes of it: 1 or boost */
    int32_t last[ROUTES_LAYERS][ROUTES_USED];
    bool any;
} routes;

static inline double routes_unit(routes *r)
{
    return (double)(random_next(&r->random) >> 11) * 0x1p-53;
}

static inline void routes_shuffle(routes *r, double *values, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int64_t k = random_below(&r->random, i + 1);
        const double v = values[i];
        values[i] = values[k];
        values[k] = v;
    }
}

static inline void routes_topic(routes *r)
{
    const routes_model *m = r->model;
    for (int l = 0; l < m->layers; l++) {
        for (int e = 0; e < m->experts; e++) {
            r->raised[l][e] = m->topic && e < m->experts / 6 ? m->boost : 1.0;
        }
        routes_shuffle(r, r->raised[l], m->experts);
    }
}

static inline void routes_begin(routes *r, const routes_model *m, uint64_t seed)
{
    *r = (routes){.model = m, .random = seed};
    for (int d = 0; d < 2; d++) {
        for (int l = 0; l < m->layers; l++) {
            for (int e = 0; e < m->experts; e++) {
                r->weight[d][l][e] = pow(e + 1, -m->zipf);
            }
            routes_shuffle(r, r->weight[d][l], m->experts);
        }
    }
    routes_topic(r);
}

static inline bool routes_has(const int32_t *ids, int count, int32_t id)
{
    for (int i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* One pick that is not among the first `count`. */
static inline int32_t routes_pick(routes *r, int domain, int layer, const int32_t *ids, int count)
{
    const routes_model *m = r->model;
    if (r->any && routes_unit(r) < m->repeat) {
        const int32_t id = r->last[layer][random_below(&r->random, m->used)];
        if (!routes_has(ids, count, id)) {
            return id;
        }
    }
    double sum = 0.0;
    for (int e = 0; e < m->experts; e++) {
        sum += routes_has(ids, count, e) ? 0.0 : r->weight[domain][layer][e] * r->raised[layer][e];
    }
    double at = routes_unit(r) * sum;
    int32_t last = -1;
    for (int e = 0; e < m->experts; e++) {
        if (!routes_has(ids, count, e)) {
            last = e;
            at -= r->weight[domain][layer][e] * r->raised[layer][e];
            if (at < 0.0) {
                break;
            }
        }
    }
    return last;
}

/* The choice of one token in all layers: ids[layers][used]. */
static inline void routes_token(routes *r, int domain, uint16_t *ids)
{
    const routes_model *m = r->model;
    if (m->topic && routes_unit(r) * m->topic < 1.0) {
        routes_topic(r);
    }
    for (int l = 0; l < m->layers; l++) {
        int32_t chosen[ROUTES_USED];
        for (int i = 0; i < m->used; i++) {
            chosen[i] = routes_pick(r, domain, l, chosen, i);
            ids[l * m->used + i] = (uint16_t)chosen[i];
        }
        memcpy(r->last[l], chosen, sizeof chosen);
        if (routes_unit(r) < m->drift) {
            double *w = r->weight[domain][l];
            const int64_t a = random_below(&r->random, m->experts), b = random_below(&r->random, m->experts);
            const double v = w[a];
            w[a] = w[b];
            w[b] = v;
        }
    }
    r->any = true;
}

/* A part of a run: so many tokens of a domain, in passes of `step`. */
typedef struct routes_part {
    int domain, tokens, step;
    mo_trace_phase phase;
} routes_part;

/* A trace of these parts; free with routes_free(). Every expert has `bytes` bytes. */
static inline mo_trace *routes_trace(const routes_model *m, uint64_t seed, const routes_part *parts,
                                     int count, int64_t bytes)
{
    routes *r = malloc(sizeof *r);
    mo_trace *t = calloc(1, sizeof *t);
    int64_t tokens = 0, steps = 0, at = 0;
    for (int i = 0; i < count; i++) {
        tokens += parts[i].tokens;
        steps += (parts[i].tokens + parts[i].step - 1) / parts[i].step;
    }
    t->shape = (mo_trace_shape){.layers = m->layers,
                                .experts = m->experts,
                                .used = m->used,
                                .layer = calloc((size_t)m->layers, sizeof *t->shape.layer),
                                .expert_bytes = calloc((size_t)m->layers, sizeof *t->shape.expert_bytes),
                                .core_bytes = bytes};
    for (int l = 0; l < m->layers; l++) {
        t->shape.layer[l] = l;
        t->shape.expert_bytes[l] = bytes;
    }
    t->token_count = tokens;
    t->steps = calloc((size_t)steps, sizeof *t->steps);
    t->ids = calloc((size_t)(tokens * m->layers * m->used), sizeof *t->ids);
    routes_begin(r, m, seed);
    for (int i = 0; i < count; i++) {
        for (int left = parts[i].tokens; left > 0; left -= parts[i].step) {
            const int n = left < parts[i].step ? left : parts[i].step;
            t->steps[t->step_count++] =
                (mo_trace_step){.tokens = n, .text = (uint16_t)i, .phase = (uint16_t)parts[i].phase};
            for (int k = 0; k < n; k++, at++) {
                routes_token(r, parts[i].domain, t->ids + at * m->layers * m->used);
            }
        }
    }
    free(r);
    return t;
}

static inline void routes_free(mo_trace *t)
{
    free(t->shape.layer);
    free(t->shape.expert_bytes);
    free(t->steps);
    free(t->ids);
    free(t);
}

#endif
