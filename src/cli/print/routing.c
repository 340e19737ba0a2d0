#include "cli/print/routing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/print/terminal.h"
#include "moraine_server.h"

typedef struct layer {
    int number;     /* in the model */
    int experts;    /* at least 1 */
    int64_t *count; /* [experts] number of picks */
    int32_t *last;  /* [experts] ids chosen by the last token */
    int last_used;
    int64_t last_position;      /* -1: none */
    int64_t followed, repeated; /* picks with a next token; of these, picks that it repeats */
} layer;

struct cli_routing {
    layer *layers;
    int layer_count;
    int *index; /* [model layers] index of the layer in `layer`, or -1 */
    int model_layers;
};

static bool add_layer(cli_routing *r, int number, int experts)
{
    layer *l = &r->layers[r->layer_count];
    *l = (layer){.number = number, .experts = experts, .last_position = -1};
    l->count = calloc((size_t)experts, sizeof *l->count);
    l->last = calloc((size_t)experts, sizeof *l->last);
    r->index[number] = r->layer_count++;
    return l->count && l->last;
}

cli_routing *cli_routing_open(const char *command, const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    cli_routing *r = calloc(1, sizeof *r);
    bool fine = r != NULL;
    if (fine) {
        r->model_layers = info.layers;
        r->layers = calloc((size_t)info.layers, sizeof *r->layers);
        r->index = malloc(sizeof *r->index * (size_t)info.layers);
        fine = r->layers && r->index;
    }
    for (int i = 0; fine && i < info.layers; i++) {
        const int experts = mo_model_layer_experts(model, i);
        r->index[i] = -1;
        fine = experts == 0 || add_layer(r, i, experts);
    }
    if (!fine) {
        fprintf(stderr, "moraine %s: out of memory for routing statistics\n", command);
    } else if (r->layer_count == 0) {
        fprintf(stderr, "moraine %s: this model has no routed experts\n", command);
        fine = false;
    }
    if (!fine) {
        cli_routing_close(r);
        r = NULL;
    }
    return r;
}

void cli_routing_close(cli_routing *r)
{
    if (r) {
        for (int i = 0; i < r->layer_count; i++) {
            free(r->layers[i].count);
            free(r->layers[i].last);
        }
        free(r->layers);
        free(r->index);
        free(r);
    }
}

static bool holds(const int32_t *ids, int count, int32_t id)
{
    for (int i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

void cli_routing_observe(void *user, int number, int64_t position, const int32_t *ids, const float *weights,
                         int used)
{
    cli_routing *r = user;
    layer *l = &r->layers[r->index[number]];
    (void)weights;
    if (position > 0 && position == l->last_position + 1) {
        l->followed += l->last_used;
        for (int i = 0; i < l->last_used; i++) {
            l->repeated += holds(ids, used, l->last[i]);
        }
    }
    for (int i = 0; i < used; i++) {
        l->count[ids[i]]++;
    }
    memcpy(l->last, ids, sizeof *ids * (size_t)used);
    l->last_used = used;
    l->last_position = position;
}

/* ---- Sums --------------------------------------------------------------------------------------- */

static int64_t picks_of(const layer *l)
{
    int64_t sum = 0;
    for (int e = 0; e < l->experts; e++) {
        sum += l->count[e];
    }
    return sum;
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0.0;
}

/* The picks of the most used quarter of the experts. An expert is in it if fewer than a quarter have more
   picks, or as many and a smaller number. */
static int64_t top_quarter(const layer *l)
{
    const int quarter = (l->experts + 3) / 4;
    int64_t sum = 0;
    for (int e = 0; e < l->experts; e++) {
        int before = 0;
        for (int other = 0; other < l->experts; other++) {
            before += l->count[other] > l->count[e] || (l->count[other] == l->count[e] && other < e);
        }
        sum += before < quarter ? l->count[e] : 0;
    }
    return sum;
}

/* Statistics of a layer's picks. */
typedef struct layer_report {
    int layer, experts;
    int64_t picks;
    int used;           /* experts picked at least once */
    double entropy;     /* entropy of the picks over experts, in nats */
    double perplexity;  /* e to the entropy: this many equally used experts have the same entropy */
    double top_quarter; /* share of picks of the most used quarter of the experts (rounded up) */
    double repeat;      /* share of picks that the next token repeats */
} layer_report;

/* The routed layer with this index, from 0. False past the last. */
static bool layer_at(const cli_routing *r, int index, layer_report *out)
{
    if (index < 0 || index >= r->layer_count) {
        return false;
    }
    const layer *l = &r->layers[index];
    *out = (layer_report){.layer = l->number, .experts = l->experts, .picks = picks_of(l)};
    for (int e = 0; e < l->experts; e++) {
        const double p = share(l->count[e], out->picks);
        out->used += l->count[e] > 0;
        out->entropy -= p > 0.0 ? p * log(p) : 0.0;
    }
    out->perplexity = exp(out->entropy);
    out->top_quarter = share(top_quarter(l), out->picks);
    out->repeat = share(l->repeated, l->followed);
    return true;
}

double cli_routing_overlap(const cli_routing *a, const cli_routing *b, int index)
{
    if (index < 0 || index >= a->layer_count) {
        return -1.0;
    }
    const layer *x = &a->layers[index], *y = &b->layers[index];
    const int64_t x_picks = picks_of(x), y_picks = picks_of(y);
    double sum = 0.0;
    for (int e = 0; e < x->experts; e++) {
        sum += fmin(share(x->count[e], x_picks), share(y->count[e], y_picks));
    }
    return sum;
}

double cli_routing_overlap_mean(const cli_routing *a, const cli_routing *b)
{
    double sum = 0.0;
    for (int i = 0; i < a->layer_count; i++) {
        sum += cli_routing_overlap(a, b, i);
    }
    return sum / a->layer_count;
}

/* ---- Printing ----------------------------------------------------------------------------------- */

void cli_routing_print(const cli_routing *r)
{
    static const char bar[] = "####################";
    const int width = (int)sizeof bar - 1;
    layer_report l;
    printf("%s%5s  %9s  %12s  %7s  %10s  %6s  %s%s\n", cli_terminal_bold(), "layer", "picks", "experts used",
           "entropy", "perplexity", "repeat", "top quarter", cli_terminal_plain());
    for (int i = 0; layer_at(r, i, &l); i++) {
        char used[32];
        snprintf(used, sizeof used, "%d of %d", l.used, l.experts);
        printf("%5d  %9lld  %12s  %7.3f  %10.1f  %4.0f %%  %3.0f %% %.*s\n", l.layer, (long long)l.picks,
               used, l.entropy, l.perplexity, 100.0 * l.repeat, 100.0 * l.top_quarter,
               (int)lround(l.top_quarter * width), bar);
    }
}

json_t *cli_routing_json(const cli_routing *r)
{
    json_t *list = json_array();
    layer_report l;
    for (int i = 0; layer_at(r, i, &l); i++) {
        json_array_append_new(
            list, json_pack("{s:i,s:i,s:I,s:i,s:f,s:f,s:f,s:f}", "layer", l.layer, "experts", l.experts,
                            "picks", (json_int_t)l.picks, "experts_used", l.used, "entropy", l.entropy,
                            "perplexity", l.perplexity, "top_quarter", l.top_quarter, "repeat", l.repeat));
    }
    return list;
}
