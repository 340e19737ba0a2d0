/* How the cost of a token grows with ranks: by the planner's arithmetic, and by a simulation of messages between ranks that uses the planner's
 * division and rates, but draws every token's picks and lets messages queue at rank 0's port. Prints a table; ranks.py draws it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/division.h"

enum { RANKS_MOST = 64, LAYERS_MOST = 64, EXPERTS_MOST = 512, TOKENS = 400, ASK_BYTES = 48, PICK_BYTES = 12 };

/* Sizes of published models, experts of about 4.25 bits a weight. */
static const struct shape {
    const char *name;
    int layers, experts, used;
    int64_t width, core, expert, output;
} shapes[] = {
    {"gpt-oss-120b", 36, 128, 4, 2880, 31000000, 13219200, 615000000},
    {"DeepSeek-V3", 61, 256, 8, 7168, 190000000, 23396352, 490000000},
};

static const struct net {
    const char *name;
    mo_network_wire wire;
} nets[] = {
    {"1 Gbit/s, 50 us", {50e-6, 0.115e9, 2e-6}},
    {"10 Gbit/s, 25 us", {25e-6, 1.15e9, 2e-6}},
    {"100 Gbit/s, 3 us", {3e-6, 11.5e9, 0.5e-6}},
};

static uint64_t state = 1;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* ---- The simulation ---- */

typedef struct world {
    const mo_division_model *model;
    const mo_division_rank *ranks;
    int count;
    const double *upto;
    double each[RANKS_MOST]; /* seconds of an expert in every rank */
    double core, end;        /* of a layer, and of the output, in rank 0 */
} world;

/* Picks of a token in a layer, counted for every rank. */
static void draw(const world *w, const mo_division_layer *l, int *picks)
{
    bool taken[EXPERTS_MOST] = {false};
    memset(picks, 0, sizeof *picks * (size_t)w->count);
    for (int n = 0; n < l->used;) {
        const int e = (int)(next_random() % (uint64_t)l->experts);
        if (!taken[e]) {
            int r = 0;
            while (e >= mo_division_first_expert(w->upto, r + 1, l->experts)) {
                r++;
            }
            taken[e] = true;
            picks[r]++;
            n++;
        }
    }
}

/* A layer's experts: questions leave rank 0 one after the other, answers arrive one after the other. */
static double layer_by_experts(const world *w, const mo_division_layer *l)
{
    int picks[RANKS_MOST];
    double out = 0, ready[RANKS_MOST] = {0}, end, port = 0;
    draw(w, l, picks);
    end = picks[0] * w->each[0];
    for (int r = 1; r < w->count; r++) {
        const mo_network_wire *wire = &w->ranks[r].lead;
        if (picks[r] > 0) {
            out += 2 * wire->message_s +
                   (double)(ASK_BYTES + w->model->input_bytes + picks[r] * PICK_BYTES) / wire->bytes_s;
            ready[r] = out + wire->latency_s + picks[r] * w->each[r] + wire->latency_s;
        }
    }
    for (;;) { /* in the order in which they are ready */
        int first = 0;
        for (int r = 1; r < w->count; r++) {
            first = ready[r] > 0 && (first == 0 || ready[r] < ready[first]) ? r : first;
        }
        if (first == 0) {
            return fmax(end, port);
        }
        const mo_network_wire *wire = &w->ranks[first].lead;
        port = fmax(port, ready[first]) + 2 * wire->message_s +
               (double)(ASK_BYTES + picks[first] * w->model->output_bytes) / wire->bytes_s;
        ready[first] = 0;
    }
}

static double simulate_experts(const mo_division_model *m, const mo_division_rank *ranks, int count,
                               const double *upto)
{
    world w = {.model = m, .ranks = ranks, .count = count, .upto = upto};
    mo_division_held cores = {0};
    double expert_bytes = 0, disk, sum = 0, products;
    for (int i = 0; i < m->count; i++) {
        mo_division_hold_core(&m->layers[i], &cores);
        expert_bytes += (double)m->layers[i].expert_bytes;
    }
    for (int r = 0; r < count; r++) {
        const mo_division_rank rest = mo_division_rest(&ranks[r], r, &cores);
        const double share = upto[r] - (r ? upto[r - 1] : 0);
        const mo_division_held held = {.bytes = expert_bytes * share};
        mo_division_seconds(&rest, &held, (double)m->layers[0].expert_token_bytes / m->layers[0].used,
                            &products, &disk);
        w.each[r] = products + disk;
    }
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < m->count; i++) {
            const double bytes = (double)(m->layers[i].token_bytes - m->layers[i].expert_token_bytes);
            mo_division_seconds(&ranks[0], &cores, bytes, &products, &disk);
            sum += products + disk + layer_by_experts(&w, &m->layers[i]);
        }
        sum += (double)m->end_bytes / ranks[0].ram_bytes_s;
    }
    return sum / TOKENS;
}

/* ---- The table ---- */

static mo_division_model model_of(const struct shape *s, mo_division_layer *layers)
{
    for (int i = 0; i < s->layers; i++) {
        layers[i] = (mo_division_layer){.bytes = s->core + s->experts * s->expert,
                                        .token_bytes = s->core + s->used * s->expert,
                                        .expert_bytes = s->experts * s->expert,
                                        .expert_token_bytes = s->used * s->expert,
                                        .experts = s->experts,
                                        .used = s->used};
    }
    return (mo_division_model){.layers = layers,
                               .count = s->layers,
                               .end_bytes = s->output,
                               .stream_bytes = 4 * s->width,
                               .input_bytes = s->width + s->width / 8,
                               .output_bytes = 4 * s->width,
                               .piece = 256,
                               .prompt = 8192};
}

static double rate(double seconds)
{
    return seconds > 0 ? 1 / seconds : 0;
}

/* The largest difference between model and simulation, as a share. */
static double print_case(const struct shape *s, const struct net *n, double worst)
{
    static const int counts[] = {1, 2, 4, 8, 16, 32, 64};
    mo_division_layer layers[LAYERS_MOST];
    const mo_division_model m = model_of(s, layers);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        mo_division_rank ranks[RANKS_MOST];
        int first[RANKS_MOST + 1];
        double upto[RANKS_MOST];
        mo_division_choice c;
        mo_error err;
        for (int r = 0; r < counts[i]; r++) { /* desktops with 64 GB, of which 60 are used */
            ranks[r] = (mo_division_rank){.ram_bytes = 60000000000,
                                          .other_bytes = 1000000000 + (r ? 0 : s->output),
                                          .ram_bytes_s = 40e9,
                                          .disk_bytes_s = 3e9,
                                          .lead = n->wire,
                                          .next = n->wire};
        }
        if (mo_division_choose(&m, ranks, counts[i], MO_DIVIDE_AUTO, first, upto, &c, &err) != MO_OK) {
            fprintf(stderr, "bench_ranks: %s\n", err.detail);
            exit(1);
        }
        const double played = simulate_experts(&m, ranks, counts[i], upto);
        const double off = fabs(played / c.experts.token_seconds - 1);
        worst = fmax(worst, off);
        printf("%s\t%s\t%d\t%.4g\t%.4g\t%.4g\t%.4g\t%.4g\t%s\t%s\n", s->name, n->name, counts[i],
               rate(c.layers.token_seconds), rate(c.experts.token_seconds), 1 / played,
               rate(c.layers.prompt_seconds) * 8192, rate(c.experts.prompt_seconds) * 8192,
               c.way == MO_DIVIDE_EXPERTS ? "experts" : "layers",
               c.way == MO_DIVIDE_EXPERTS ? c.experts.bound : c.layers.bound);
    }
    return worst;
}

int main(void)
{
    double worst = 0;
    printf(
        "model\tnetwork\tranks\tlayers tokens/s\texperts tokens/s\texperts simulated\tlayers prompt\texperts "
        "prompt\ttaken\ta token waits for\n");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
            worst = print_case(&shapes[s], &nets[n], worst);
        }
    }
    fprintf(stderr, "model and simulation differ by at most %.1f %%\n", 100 * worst);
    return 0;
}
