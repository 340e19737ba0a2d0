#include "plan/division.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

void mo_division_hold_core(const mo_division_layer *l, mo_division_held *held)
{
    const double core = (double)(l->bytes - l->expert_bytes);
    held->bytes += core;
    held->core += core;
    held->stay += (double)l->stay_bytes;
}

void mo_division_hold_experts(const mo_division_layer *l, int experts, mo_division_held *held)
{
    const double share = l->experts > 0 ? (double)experts / l->experts : 0;
    held->bytes += share * (double)l->expert_bytes;
    held->slots += share * (double)(l->slot_bytes > l->expert_bytes ? l->slot_bytes : l->expert_bytes);
}

/* Bytes of cores in RAM. */
static double cores_in_ram(const mo_division_rank *r, const mo_division_held *h)
{
    const bool all_there = r->vram_bytes > 0 && (double)r->vram_bytes >= h->core;
    return all_there ? fmin(h->core, h->stay + (double)r->buffer_bytes) : h->core;
}

/* Factor by which experts grow in slots. */
static double slotted(const mo_division_held *h)
{
    const double experts = h->bytes - h->core;
    return h->slots > experts && experts > 0 ? h->slots / experts : 1.0;
}

double mo_division_beyond(const mo_division_rank *r, const mo_division_held *h)
{
    const double ram = (double)r->ram_bytes - (double)r->other_bytes, left = ram - cores_in_ram(r, h);
    if (h->bytes + (double)r->spared_bytes <= ram) {
        return 0;
    }
    const double experts = fmax(0, h->bytes - h->core - fmax(0, (double)r->vram_bytes - h->core));
    const double over = experts - (left > 0 ? left / slotted(h) : left);
    return fmax(0, fmin(over, h->bytes - (double)r->vram_bytes));
}

void mo_division_seconds(const mo_division_rank *r, const mo_division_held *h, double read, double *products,
                         double *disk)
{
    const double in_vram =
        r->vram_bytes > 0 && h->bytes > 0 ? fmin((double)r->vram_bytes / h->bytes, 1.0) : 0.0;
    const double on_disk = h->bytes > 0 ? mo_division_beyond(r, h) / h->bytes : 0.0;
    *products =
        read * (1 - in_vram) / r->ram_bytes_s + (in_vram > 0 ? read * in_vram / r->vram_bytes_s : 0.0);
    *disk = read * on_disk / r->disk_bytes_s;
}

/* Seconds of a token on a rank with this part of the model. */
static double time_of(const mo_division_rank *r, const mo_division_held *held, double token_bytes)
{
    double products, disk;
    mo_division_seconds(r, held, token_bytes, &products, &disk);
    return products + disk;
}

/* The same plus a penalty for bytes that must be in RAM but do not fit: such a rank would refuse its part.
 * The penalty exceeds all other costs and grows with the missing bytes. */
static double time_of_run(const mo_division_rank *r, const mo_division_held *held, double token_bytes)
{
    const double lacking_bytes_s = 1e3;
    const double lacking = held->stay + (double)r->other_bytes - (double)r->ram_bytes;
    return time_of(r, held, token_bytes) + fmax(0, lacking) / lacking_bytes_s;
}

static bool has_experts(const mo_division_layer *layers, int count)
{
    bool some = false;
    for (int i = 0; i < count; i++) {
        some = some || layers[i].experts > 0;
    }
    return some;
}

/* Number of groups of layers that can be on different ranks. */
static int runs_of(const mo_division_layer *layers, int count)
{
    int runs = 0;
    for (int i = 0; i < count; i++) {
        runs += i == 0 || !layers[i].joined;
    }
    return runs;
}

mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err)
{
    const size_t row = (size_t)count + 1;
    const int runs = runs_of(layers, count);
    if (rank_count < 1 || rank_count > runs) {
        return mo_fail(
            err, MO_EINVAL,
            "the model has %d layers%s, which cannot be divided among %d ranks; start fewer ranks%s", count,
            runs < count ? ", of which some must be in one rank" : "", rank_count,
            has_experts(layers, count) ? ", or set `divide` to experts" : "");
    }
    /* For the first `end` layers on ranks 0 .. r: the smallest sum, and the first layer of rank r. */
    double *best = calloc(row * (size_t)rank_count, sizeof *best);
    int *begin = calloc(row * (size_t)rank_count, sizeof *begin);
    if (!best || !begin) {
        free(best);
        free(begin);
        return mo_fail(err, MO_ENOMEM, "out of memory while dividing the layers");
    }
    for (int r = 0; r < rank_count; r++) {
        double *at = best + row * (size_t)r;
        for (int end = 0; end <= count; end++) {
            mo_division_held held = {0};
            double token_bytes = 0;
            at[end] = INFINITY;
            for (int from = end - 1; from >= r; from--) {
                mo_division_hold_core(&layers[from], &held);
                mo_division_hold_experts(&layers[from], layers[from].experts, &held);
                token_bytes += (double)layers[from].token_bytes;
                const double before = r > 0  ? best[row * (size_t)(r - 1) + (size_t)from]
                                      : from ? INFINITY
                                             : 0.0;
                const double t = time_of_run(&ranks[r], &held, token_bytes), sum = before + t * t;
                if (sum < at[end] && !(from > 0 && layers[from].joined)) {
                    at[end] = sum;
                    begin[row * (size_t)r + (size_t)end] = from;
                }
            }
        }
    }
    first[rank_count] = count;
    for (int r = rank_count - 1; r >= 0; r--) {
        first[r] = begin[row * (size_t)r + (size_t)first[r + 1]];
    }
    free(best);
    free(begin);
    return MO_OK;
}

/* ---- By experts ---- */

/* Sums over the experts of all layers. */
typedef struct expert_sums {
    mo_division_held cores, all; /* on rank 0; experts */
    double token_bytes;          /* expert bytes that a token reads */
    double picks, layers;        /* per token; layers with experts */
    int experts;                 /* fewest in a layer */
} expert_sums;

static expert_sums sum_experts(const mo_division_model *m)
{
    expert_sums s = {0};
    for (int i = 0; i < m->count; i++) {
        const mo_division_layer *l = &m->layers[i];
        mo_division_hold_core(l, &s.cores);
        if (l->experts > 0 && l->used > 0) {
            mo_division_hold_experts(l, l->experts, &s.all);
            s.token_bytes += (double)l->expert_token_bytes;
            s.picks += l->used;
            s.experts = s.experts == 0 || l->experts < s.experts ? l->experts : s.experts;
            s.layers++;
        }
    }
    return s;
}

mo_division_rank mo_division_rest(const mo_division_rank *rank, int r, const mo_division_held *cores)
{
    mo_division_rank rest = *rank;
    if (r == 0) {
        rest.vram_bytes =
            rank->vram_bytes > rank->vram_end_bytes ? rank->vram_bytes - rank->vram_end_bytes : 0;
        rest.other_bytes += (int64_t)cores_in_ram(&rest, cores);
        rest.spared_bytes = (int64_t)(cores->core - cores_in_ram(&rest, cores));
        rest.vram_bytes -= (int64_t)fmin((double)rest.vram_bytes, cores->core);
    }
    return rest;
}

/* Seconds of a token's experts on a rank with this share, including messages. Increases with the share. */
static double share_seconds(const mo_division_model *m, const expert_sums *s, const mo_division_rank *rest,
                            int r, double share)
{
    const mo_division_held held = {.bytes = s->all.bytes * share, .slots = s->all.slots * share};
    const double seconds = time_of(rest, &held, s->token_bytes * share);
    if (r == 0) {
        return seconds;
    }
    const double mean = s->picks / s->layers, asked = s->layers * (1 - pow(1 - share, mean));
    const mo_network_wire wire = mo_network_known(&rest->lead);
    return seconds + asked * (2 * wire.latency_s + (double)m->input_bytes / wire.bytes_s) +
           s->picks * share * (double)m->output_bytes / wire.bytes_s;
}

/* The free memory of a rank and its largest share. */
typedef struct taker {
    mo_division_rank rest;
    double most;
} taker;

/* The largest share that takes at most `seconds`. */
static double share_within(const mo_division_model *m, const expert_sums *s, const taker *t, int r,
                           double seconds)
{
    double least = 0, most = t->most;
    if (share_seconds(m, s, &t->rest, r, most) <= seconds) {
        return most;
    }
    for (int i = 0; i < 40; i++) {
        const double middle = (least + most) / 2;
        if (share_seconds(m, s, &t->rest, r, middle) <= seconds) {
            least = middle;
        } else {
            most = middle;
        }
    }
    return least;
}

static double shares_within(const mo_division_model *m, const expert_sums *s, const taker *takers,
                            int rank_count, double seconds)
{
    double sum = 0;
    for (int r = 0; r < rank_count; r++) {
        sum += share_within(m, s, &takers[r], r, seconds);
    }
    return sum;
}

/* If memory can hold all experts, no rank reads from disk, even if that would balance the times. A rank's
 * share is then what fits, less one expert per layer for rounding if the shares still suffice. */
static void limit_shares(const expert_sums *s, taker *takers, int rank_count)
{
    const double larger = slotted(&s->all);
    for (int spare = 1; spare >= -1; spare--) { /* -1: even together they do not fit */
        double sum = 0;
        for (int r = 0; r < rank_count; r++) {
            const mo_division_rank *rest = &takers[r].rest;
            const double ram = fmax(0, (double)rest->ram_bytes - (double)rest->other_bytes);
            const double room =
                fmax(ram - (double)rest->spared_bytes, ram / larger + (double)rest->vram_bytes);
            const double fits = s->all.bytes > 0 ? room / s->all.bytes - (double)spare / s->experts : 1;
            takers[r].most = spare < 0 ? 1 : fmax(0, fmin(1, fits));
            sum += takers[r].most;
        }
        if (sum >= 1) {
            return;
        }
    }
}

/* Done here rather than where shares are rounded to experts, so that plans match runs. */
static void leave_one_each(double *upto, int rank_count, int experts)
{
    for (int r = rank_count - 1; r > 0; r--) {
        const int last = mo_division_first_expert(upto, r + 1, experts) - 1;
        if (mo_division_first_expert(upto, r, experts) > last) {
            upto[r - 1] = (double)last / experts;
        }
    }
}

mo_status mo_division_make_experts(const mo_division_model *m, const mo_division_rank *ranks, int rank_count,
                                   double *upto, mo_error *err)
{
    const expert_sums s = sum_experts(m);
    if (!(s.layers > 0)) {
        return mo_fail(err, MO_EINVAL, "the model has no experts to divide; divide its layers");
    }
    if (rank_count - 1 > s.experts) {
        return mo_fail(err, MO_EINVAL,
                       "the model's layers have %d experts, which cannot be divided "
                       "among %d ranks; start fewer ranks, or set `divide` to layers",
                       s.experts, rank_count);
    }
    taker *takers = calloc((size_t)rank_count, sizeof *takers);
    if (!takers) {
        return mo_fail(err, MO_ENOMEM, "out of memory while dividing the experts");
    }
    double least = 0, most = 0, sum = 0;
    for (int r = 0; r < rank_count; r++) {
        takers[r].rest = mo_division_rest(&ranks[r], r, &s.cores);
    }
    limit_shares(&s, takers, rank_count);
    for (int r = 0; r < rank_count; r++) {
        most = fmax(most, share_seconds(m, &s, &takers[r].rest, r, takers[r].most));
    }
    for (int i = 0; i < 60; i++) { /* finds the time in which all ranks together can compute all experts */
        const double middle = (least + most) / 2;
        if (shares_within(m, &s, takers, rank_count, middle) >= 1) {
            most = middle;
        } else {
            least = middle;
        }
    }
    for (int r = 0; r < rank_count; r++) {
        sum += share_within(m, &s, &takers[r], r, most);
        upto[r] = fmin(sum, 1);
    }
    upto[rank_count - 1] = 1;
    leave_one_each(upto, rank_count, s.experts);
    free(takers);
    return MO_OK;
}

int mo_division_first_expert(const double *upto, int rank, int experts)
{
    return rank > 0 ? (int)lround(upto[rank - 1] * experts) : 0;
}
