/* Cost of divisions, and the choice between them. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "plan/division.h"
#include "plan/prompt_cost.h"
#include "plan/rates.h"
#include "plan/request.h"
#include "plan/spread.h"

enum {
    STEP_MESSAGES = 4,   /* per step from a rank to the next: head, slices, tokens, stream */
    ANSWER_MESSAGES = 2, /* from the last rank: result, rows */
    STEP_BYTES = 128,    /* per step besides the stream, plus 4 per token */
    ANSWER_BYTES = 544,
    ASK_MESSAGES = 2, /* to experts and back: head, rows */
    ASK_BYTES = 48,   /* in those, besides rows */
    PICK_BYTES = 12,  /* to experts, per expert */
};

/* ---- By layers ---- */

/* What a rank holds, and how much of it a token reads. */
typedef struct part {
    mo_division_held held;
    double token_core, token_experts;
    double chosen; /* expert bytes that a prompt piece uses */
} part;

static part part_of(const mo_division_model *m, int begin, int end, double piece)
{
    part p = {0};
    for (int i = begin; i < end; i++) {
        const mo_division_layer *l = &m->layers[i];
        const bool experts = l->experts > 0 && l->used > 0;
        mo_division_hold_core(l, &p.held);
        mo_division_hold_experts(l, l->experts, &p.held);
        p.token_experts += (double)l->expert_token_bytes;
        p.token_core += (double)(l->token_bytes - l->expert_token_bytes);
        p.chosen += experts ? (double)l->expert_bytes * mo_plan_share_used(l->used, l->experts, piece) : 0;
    }
    return p;
}

/* Seconds of a prompt piece on a rank that holds this, uses `used` bytes of it and multiplies `token` bytes
 * per token. */
static double piece_seconds(const mo_division_rank *rank, const mo_division_held *held, double used,
                            double token, double piece)
{
    double products, disk, nothing;
    mo_division_seconds(rank, held, used + piece * token / MO_PLAN_CPU_REUSE, &products, &nothing);
    mo_division_seconds(rank, held, used, &nothing, &disk);
    return mo_rates_layer(products, disk);
}

static double stage_seconds(const mo_division_model *m, const mo_division_rank *rank, int r, const int *first,
                            double piece)
{
    const part p = part_of(m, first[r], first[r + 1], piece);
    return piece_seconds(rank, &p.held, p.token_core + p.chosen, p.token_core + p.token_experts, piece) +
           (r == 0 ? (double)m->end_bytes / rank->ram_bytes_s : 0);
}

static double hop_seconds(const mo_division_model *m, const mo_network_wire *wire, double tokens, bool back)
{
    /* For a prompt only the last token's stream goes back. */
    const double bytes =
        back ? ANSWER_BYTES + (double)m->stream_bytes : STEP_BYTES + tokens * ((double)m->stream_bytes + 4);
    return mo_network_seconds(wire, back ? ANSWER_MESSAGES : STEP_MESSAGES, bytes);
}

/* Ranks pipeline the pieces. The first piece takes the sum of all ranks and messages; each further one takes
 * the slowest stage, or longer if there are too few pieces in flight. */
static void prompt_by_layers(const mo_division_model *m, const mo_division_rank *ranks, int rank_count,
                             const int *first, mo_division_cost *c)
{
    /* the last piece may be shorter */
    const double piece = m->piece > 0 && m->piece < m->prompt ? (double)m->piece : (double)m->prompt;
    const double pieces = piece > 0 ? (double)m->prompt / piece : 0;
    double all = 0, slowest = 0, wire = 0;
    for (int r = 0; r < rank_count; r++) {
        const double stage = stage_seconds(m, &ranks[r], r, first, piece);
        const mo_network_wire next = mo_network_known(&ranks[r].next);
        const bool back = r == rank_count - 1;
        const double hop = rank_count > 1 ? hop_seconds(m, &next, piece, back) : 0;
        all += stage + hop;
        wire = fmax(wire, hop);
        if (stage > slowest) {
            slowest = stage;
            c->slowest = r;
        }
    }
    /* one piece per rank is in flight */
    const double period = fmax(fmax(slowest, wire), all / rank_count);
    c->prompt_seconds = pieces > 0 ? all + fmax(0, pieces - 1) * period : 0;
    c->prompt_bound = pieces <= 1 || rank_count == 1      ? "the ranks one after the other"
                      : period > slowest && period > wire ? "the number of pieces in flight"
                      : wire > slowest                    ? "the network"
                                                          : "the slowest rank";
}

/* What most of a token's time goes to. */
static const char *bound_of(const mo_division_cost *c, const char *core, const char *experts)
{
    const double products = c->core_seconds + c->expert_seconds - c->disk_seconds;
    const double network = c->latency_seconds + c->wire_seconds;
    if (network >= products && network >= c->disk_seconds) {
        return c->latency_seconds >= c->wire_seconds ? "message latency" : "network bandwidth";
    }
    return c->disk_seconds > products ? "disk reads" : c->core_seconds >= c->expert_seconds ? core : experts;
}

mo_division_cost mo_division_cost_layers(const mo_division_model *m, const mo_division_rank *ranks,
                                         int rank_count, const int *first)
{
    mo_division_cost c = {.possible = true};
    for (int r = 0; r < rank_count; r++) {
        const part p = part_of(m, first[r], first[r + 1], 1);
        const mo_network_wire next = mo_network_known(&ranks[r].next);
        double core, experts, core_disk, expert_disk;
        mo_division_seconds(&ranks[r], &p.held, p.token_core, &core, &core_disk);
        mo_division_seconds(&ranks[r], &p.held, p.token_experts, &experts, &expert_disk);
        c.core_seconds += core + core_disk + (r == 0 ? (double)m->end_bytes / ranks[r].ram_bytes_s : 0);
        c.expert_seconds += experts + expert_disk;
        c.disk_seconds += core_disk + expert_disk;
        if (rank_count > 1) {
            const bool back = r == rank_count - 1;
            const double hop = hop_seconds(m, &next, 1, back);
            const double bytes = (double)m->stream_bytes + (back ? ANSWER_BYTES : STEP_BYTES + 4);
            c.wire_seconds += bytes / next.bytes_s;
            c.latency_seconds += hop - bytes / next.bytes_s;
            c.token_messages += back ? ANSWER_MESSAGES : STEP_MESSAGES;
            c.token_bytes += bytes;
        }
    }
    c.token_seconds = c.core_seconds + c.expert_seconds + c.latency_seconds + c.wire_seconds;
    c.bound = bound_of(&c, "memory bandwidth of the ranks, one after the other: core",
                       "memory bandwidth of the ranks, one after the other: experts");
    prompt_by_layers(m, ranks, rank_count, first, &c);
    return c;
}

/* ---- By experts ---- */

_Static_assert((int)MO_SPREAD_RANKS >= (int)MO_DIVISION_RANKS, "every division can be counted");

/* A layer whose experts are on several ranks. */
typedef struct fan {
    const mo_division_model *model;
    const mo_division_rank *ranks;
    const double *upto;
    int rank_count;
    mo_division_held cores, experts; /* of the whole model */
} fan;

static int experts_of(const fan *f, const mo_division_layer *l, int r)
{
    return mo_division_first_expert(f->upto, r + 1, l->experts) -
           mo_division_first_expert(f->upto, r, l->experts);
}

static mo_division_held part_of_experts(const fan *f, double share)
{
    return (mo_division_held){.bytes = f->experts.bytes * share, .slots = f->experts.slots * share};
}

/* Seconds of these expert bytes on a rank that holds its share of all experts. */
static double expert_seconds(const fan *f, int r, double bytes, double *disk)
{
    const double share = f->upto[r] - (r > 0 ? f->upto[r - 1] : 0);
    const mo_division_rank rest = mo_division_rest(&f->ranks[r], r, &f->cores);
    const mo_division_held held = part_of_experts(f, share);
    double products;
    mo_division_seconds(&rest, &held, bytes, &products, disk);
    return products + *disk;
}

/* Which message costs are counted. */
typedef enum weight { NOTHING, LATENCY, EVERYTHING } weight;

static double layer_seconds(const fan *f, const mo_division_layer *l, weight counted)
{
    mo_spread_rank ranks[MO_DIVISION_RANKS];
    double disk;
    for (int r = 0; r < f->rank_count; r++) {
        mo_spread_rank *s = &ranks[r];
        const mo_network_wire wire = mo_network_known(&f->ranks[r].lead);
        *s = (mo_spread_rank){.experts = experts_of(f, l, r)};
        s->each = expert_seconds(f, r, (double)l->expert_token_bytes / l->used, &disk);
        if (r > 0 && counted >= LATENCY) {
            s->fixed += 2 * (wire.latency_s + (ASK_MESSAGES - 1) * wire.message_s);
        }
        if (r > 0 && counted == EVERYTHING) {
            s->fixed += (double)(f->model->input_bytes + 2 * ASK_BYTES) / wire.bytes_s;
            s->each += (double)(PICK_BYTES + f->model->output_bytes) / wire.bytes_s;
        }
    }
    return mo_spread_longest(ranks, f->rank_count, l->used);
}

/* Messages of this many tokens in a layer. */
typedef struct traffic {
    double asked;     /* number of other ranks asked */
    double out, back; /* bytes */
} traffic;

static traffic count_traffic(const fan *f, const mo_division_layer *l, double tokens)
{
    traffic t = {0};
    for (int r = 1; r < f->rank_count; r++) {
        const int own = experts_of(f, l, r);
        const double asks = mo_spread_asked(own, l->experts, l->used),
                     asked = -expm1(tokens * log1p(-fmin(asks, 1 - 1e-12)));
        t.asked += asked;
        const double picks = tokens * l->used * own / l->experts;
        t.out += asked * ASK_BYTES + picks * PICK_BYTES + tokens * asks * (double)f->model->input_bytes;
        t.back += asked * ASK_BYTES + picks * (double)f->model->output_bytes;
    }
    return t;
}

/* All messages of rank 0 use its port, which is as fast as its fastest link. */
static mo_network_wire port_of(const fan *f)
{
    mo_network_wire port = mo_network_known(&f->ranks[f->rank_count > 1].lead);
    for (int r = 2; r < f->rank_count; r++) {
        const mo_network_wire wire = mo_network_known(&f->ranks[r].lead);
        port.latency_s = fmin(port.latency_s, wire.latency_s);
        port.bytes_s = fmax(port.bytes_s, wire.bytes_s);
        port.message_s = fmax(port.message_s, wire.message_s);
    }
    return port;
}

/* Seconds until the last answer has passed rank 0's port. The first arrives after one request and one
 * computed expert. */
static double queue_seconds(const fan *f, const mo_division_layer *l, const mo_network_wire *port,
                            const traffic *t)
{
    double soonest = INFINITY, disk;
    for (int r = 1; r < f->rank_count; r++) {
        if (experts_of(f, l, r) > 0) {
            soonest = fmin(soonest, expert_seconds(f, r, (double)l->expert_token_bytes / l->used, &disk));
        }
    }
    return t->asked > 0 ? fmin(t->asked, 1) * (2 * port->latency_s + soonest) +
                              (t->out / fmax(t->asked, 1) + t->back) / port->bytes_s
                        : 0;
}

static void add_layer(const fan *f, const mo_division_layer *l, mo_division_cost *c)
{
    const mo_network_wire port = port_of(f);
    const traffic t = count_traffic(f, l, 1);
    const double further = 2 * ASK_MESSAGES * port.message_s * fmax(0, t.asked - 1);
    const double products = layer_seconds(f, l, NOTHING), late = layer_seconds(f, l, LATENCY);
    const double all = fmax(layer_seconds(f, l, EVERYTHING), queue_seconds(f, l, &port, &t));
    double disk, most_disk = 0;
    for (int r = 0; r < f->rank_count; r++) { /* time added by the slowest disk */
        expert_seconds(f, r, (double)l->expert_token_bytes * experts_of(f, l, r) / l->experts, &disk);
        most_disk = fmax(most_disk, disk);
    }
    c->expert_seconds += products;
    c->disk_seconds += fmin(most_disk, products);
    c->latency_seconds += late - products + further;
    c->wire_seconds += fmax(0, all - late);
    c->token_messages += 2 * ASK_MESSAGES * t.asked;
    c->token_bytes += t.out + t.back;
}

/* Seconds of a layer's experts for a prompt piece: the mean of the slowest rank. */
static double piece_experts(const fan *f, const mo_division_layer *l, double piece, int *slowest,
                            double *wire)
{
    const mo_network_wire port = port_of(f);
    const traffic t = count_traffic(f, l, piece);
    double longest = 0;
    *wire = (t.out + t.back) / port.bytes_s + (t.asked > 0 ? 2 * port.latency_s : 0);
    for (int r = 0; r < f->rank_count; r++) {
        const double share = (double)experts_of(f, l, r) / l->experts;
        const mo_division_rank rest = mo_division_rest(&f->ranks[r], r, &f->cores);
        const mo_division_held held = part_of_experts(f, f->upto[r] - (r > 0 ? f->upto[r - 1] : 0));
        const double used = share * (double)l->expert_bytes * mo_plan_share_used(l->used, l->experts, piece);
        const double seconds =
            piece_seconds(&rest, &held, used, share * (double)l->expert_token_bytes, piece);
        if (seconds > longest) {
            longest = seconds;
            *slowest = r;
        }
    }
    return longest;
}

static void prompt_by_experts(const fan *f, mo_division_cost *c)
{
    const mo_division_model *m = f->model;
    const double piece = m->piece > 0 && m->piece < m->prompt ? (double)m->piece : (double)m->prompt;
    const double pieces = piece > 0 ? (double)m->prompt / piece : 0;
    double core = 0, experts = 0, wires = 0;
    for (int i = 0; i < m->count; i++) {
        const mo_division_layer *l = &m->layers[i];
        const double bytes = (double)(l->token_bytes - l->expert_token_bytes);
        core += piece_seconds(&f->ranks[0], &f->cores, bytes, bytes, piece);
        if (l->experts > 0 && l->used > 0) {
            double wire;
            experts += piece_experts(f, l, piece, &c->slowest, &wire);
            wires += wire;
        }
    }
    core += (double)m->end_bytes / f->ranks[0].ram_bytes_s;
    c->prompt_seconds = pieces * (core + experts + wires);
    c->prompt_bound = wires >= core && wires >= experts ? "the network"
                      : core >= experts                 ? "rank 0, which has the core"
                                                        : "expert computation";
}

mo_division_cost mo_division_cost_experts(const mo_division_model *m, const mo_division_rank *ranks,
                                          int rank_count, const double *upto)
{
    mo_division_cost c = {.possible = true};
    fan f = {.model = m, .ranks = ranks, .upto = upto, .rank_count = rank_count};
    double products, disk, token = 0;
    for (int i = 0; i < m->count; i++) {
        const mo_division_layer *l = &m->layers[i];
        mo_division_hold_core(l, &f.cores);
        mo_division_hold_experts(l, l->experts, &f.experts);
        token += (double)(l->token_bytes - l->expert_token_bytes);
    }
    mo_division_seconds(&ranks[0], &f.cores, token, &products, &disk);
    c.core_seconds = products + disk + (double)m->end_bytes / ranks[0].ram_bytes_s;
    c.disk_seconds = disk;
    for (int i = 0; i < m->count;) { /* equal layers are computed once */
        const mo_division_layer *l = &m->layers[i];
        mo_division_cost one = {0};
        int same = 1;
        while (i + same < m->count && l[same].experts == l->experts && l[same].used == l->used &&
               l[same].expert_token_bytes == l->expert_token_bytes) {
            same++;
        }
        if (l->experts > 0 && l->used > 0) {
            add_layer(&f, l, &one);
        }
        c.expert_seconds += same * one.expert_seconds;
        c.disk_seconds += same * one.disk_seconds;
        c.latency_seconds += same * one.latency_seconds;
        c.wire_seconds += same * one.wire_seconds;
        c.token_messages += same * one.token_messages;
        c.token_bytes += same * one.token_bytes;
        i += same;
    }
    c.token_seconds = c.core_seconds + c.expert_seconds + c.latency_seconds + c.wire_seconds;
    c.bound = bound_of(&c, "memory bandwidth of rank 0, which has the core",
                       "memory bandwidth of the rank with the most picks");
    prompt_by_experts(&f, &c);
    return c;
}

/* ---- The choice ---- */

/* Seconds of the request used to compare divisions. */
static double request_seconds(const mo_division_model *m, const mo_division_cost *c)
{
    return c->prompt_seconds + (double)m->prompt / MO_PLAN_PROMPT_PER_ANSWER * c->token_seconds;
}

static void explain(const mo_division_model *m, mo_division_choice *c, mo_divide asked)
{
    const mo_division_cost *best = c->way == MO_DIVIDE_LAYERS ? &c->layers : &c->experts;
    const mo_division_cost *other = c->way == MO_DIVIDE_LAYERS ? &c->experts : &c->layers;
    if (asked != MO_DIVIDE_AUTO) {
        snprintf(c->why, sizeof c->why, "as requested");
    } else if (!other->possible) {
        snprintf(c->why, sizeof c->why, "%s",
                 c->way == MO_DIVIDE_LAYERS ? "the model has no experts to divide"
                                            : "layers cannot be divided among so many ranks");
    } else {
        snprintf(c->why, sizeof c->why,
                 "a prompt of %lld tokens and an answer of %lld take %.3g s by %s and %.3g s by %s",
                 (long long)m->prompt, (long long)(m->prompt / MO_PLAN_PROMPT_PER_ANSWER),
                 request_seconds(m, best), c->way == MO_DIVIDE_LAYERS ? "layers" : "experts",
                 request_seconds(m, other), c->way == MO_DIVIDE_LAYERS ? "experts" : "layers");
    }
}

mo_status mo_division_choose(const mo_division_model *m, const mo_division_rank *ranks, int rank_count,
                             mo_divide asked, int *first, double *upto, mo_division_choice *out,
                             mo_error *err)
{
    mo_error no_layers = {0}, no_experts = {0};
    *out = (mo_division_choice){.way = asked};
    if (rank_count < 1 || rank_count > MO_DIVISION_RANKS) {
        return mo_fail(err, MO_EINVAL, "a model can be divided among 1 to %d ranks, not %d",
                       MO_DIVISION_RANKS, rank_count);
    }
    const mo_status by_layers = mo_division_make(m->layers, m->count, ranks, rank_count, first, &no_layers);
    if (by_layers == MO_OK) {
        out->layers = mo_division_cost_layers(m, ranks, rank_count, first);
    }
    const mo_status by_experts = mo_division_make_experts(m, ranks, rank_count, upto, &no_experts);
    if (by_experts == MO_OK) {
        out->experts = mo_division_cost_experts(m, ranks, rank_count, upto);
    }
    if (asked == MO_DIVIDE_AUTO) {
        const bool experts =
            by_experts == MO_OK &&
            (by_layers != MO_OK || request_seconds(m, &out->experts) < request_seconds(m, &out->layers));
        out->way = experts ? MO_DIVIDE_EXPERTS : MO_DIVIDE_LAYERS;
    }
    const mo_status status = out->way == MO_DIVIDE_LAYERS ? by_layers : by_experts;
    if (status != MO_OK) {
        if (err) {
            *err = out->way == MO_DIVIDE_LAYERS ? no_layers : no_experts;
        }
        return status;
    }
    explain(m, out, asked);
    return MO_OK;
}

/* ---- Several sequences by layers ---- */

/* Bytes read by a step of this many tokens, with evenly spread routing. */
static double step_bytes(const mo_division_model *m, int64_t tokens)
{
    double bytes = 0;
    for (int i = 0; i < m->count; i++) {
        const mo_division_layer *l = &m->layers[i];
        const double others = (double)(l->token_bytes - l->expert_token_bytes);
        const double share = l->experts > 0 ? (double)l->used / l->experts : 0;
        bytes += others + (double)l->expert_bytes * (1 - pow(1 - share, (double)tokens));
    }
    return bytes;
}

int mo_division_groups(const mo_division_model *m, int rank_count, int64_t tokens)
{
    const double worth = 0.95; /* messages cost time as well */
    double best = worth * rank_count * step_bytes(m, tokens);
    int groups = 1;
    for (int g = 2; g <= rank_count && g <= tokens; g++) {
        const double took = (rank_count + g - 1) * step_bytes(m, (tokens + g - 1) / g);
        if (took < best) {
            best = took;
            groups = g;
        }
    }
    return groups;
}
