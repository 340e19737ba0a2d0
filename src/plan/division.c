#include "plan/division.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

void mo_division_seconds(const mo_division_rank *r, double bytes, double read, double *products, double *disk)
{
    const double in_vram = r->vram_bytes > 0 && bytes > 0 ? fmin((double)r->vram_bytes / bytes, 1.0) : 0.0;
    const double here = bytes * (1 - in_vram), over = here + (double)r->other_bytes - (double)r->ram_bytes;
    const double on_disk = over > 0 && here > 0 ? (1 - in_vram) * fmin(over / here, 1.0) : 0.0;
    *products =
        read * (1 - in_vram) / r->ram_bytes_s + (in_vram > 0 ? read * in_vram / r->vram_bytes_s : 0.0);
    *disk = read * on_disk / r->disk_bytes_s;
}

/* Seconds of a token in a rank with so much of the model. */
static double time_of(const mo_division_rank *r, double bytes, double token_bytes)
{
    double products, disk;
    mo_division_seconds(r, bytes, token_bytes, &products, &disk);
    return products + disk;
}

mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err)
{
    const size_t row = (size_t)count + 1;
    if (rank_count < 1 || rank_count > count) {
        return mo_fail(err, MO_EINVAL,
                       "the model has %d layers, which cannot be divided among %d ranks; start fewer", count,
                       rank_count);
    }
    /* Of the first `end` layers in ranks 0 .. r: the smallest sum, and where rank r begins. */
    double *best = calloc(row * (size_t)rank_count, sizeof *best);
    int *begin = calloc(row * (size_t)rank_count, sizeof *begin);
    if (!best || !begin) {
        free(best);
        free(begin);
        return mo_fail(err, MO_ENOMEM, "no memory for dividing the layers");
    }
    for (int r = 0; r < rank_count; r++) {
        double *at = best + row * (size_t)r;
        for (int end = 0; end <= count; end++) {
            double bytes = 0, token_bytes = 0;
            at[end] = INFINITY;
            for (int from = end - 1; from >= r; from--) {
                bytes += (double)layers[from].bytes;
                token_bytes += (double)layers[from].token_bytes;
                const double before = r > 0  ? best[row * (size_t)(r - 1) + (size_t)from]
                                      : from ? INFINITY
                                             : 0.0;
                const double t = time_of(&ranks[r], bytes, token_bytes), sum = before + t * t;
                if (sum < at[end]) {
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

/* All layers' experts together. */
typedef struct expert_sums {
    double core_bytes, bytes, token_bytes; /* cores in rank 0; experts */
    double picks, layers;                  /* of a token; layers with experts */
    int experts;                           /* the fewest of a layer */
} expert_sums;

static expert_sums sum_experts(const mo_division_model *m)
{
    expert_sums s = {0};
    for (int i = 0; i < m->count; i++) {
        const mo_division_layer *l = &m->layers[i];
        s.core_bytes += (double)(l->bytes - l->expert_bytes);
        if (l->experts > 0 && l->used > 0) {
            s.bytes += (double)l->expert_bytes;
            s.token_bytes += (double)l->expert_token_bytes;
            s.picks += l->used;
            s.experts = s.experts == 0 || l->experts < s.experts ? l->experts : s.experts;
            s.layers++;
        }
    }
    return s;
}

mo_division_rank mo_division_rest(const mo_division_rank *rank, int r, double core_bytes)
{
    mo_division_rank rest = *rank;
    if (r == 0) {
        const double in_vram = fmin((double)rank->vram_bytes, core_bytes);
        rest.vram_bytes = rank->vram_bytes - (int64_t)in_vram;
        rest.other_bytes = rank->other_bytes + (int64_t)(core_bytes - in_vram);
    }
    return rest;
}

/* Seconds of a token's experts in a rank with such a share of them, messages included. It grows with the share. */
static double share_seconds(const mo_division_model *m, const expert_sums *s, const mo_division_rank *rest,
                            int r, double share)
{
    const double seconds = time_of(rest, s->bytes * share, s->token_bytes * share);
    if (r == 0) {
        return seconds;
    }
    const double mean = s->picks / s->layers, asked = s->layers * (1 - pow(1 - share, mean));
    const mo_network_wire wire = mo_network_known(&rest->lead);
    return seconds + asked * (2 * wire.latency_s + (double)m->input_bytes / wire.bytes_s) +
           s->picks * share * (double)m->output_bytes / wire.bytes_s;
}

/* What ranks can take: what is left of them, and the largest share that each may have. */
typedef struct taker {
    mo_division_rank rest;
    double most;
} taker;

/* The largest share that takes at most so long. */
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

/* As long as memory holds all experts nothing is read from disk, even where that would end together with the others: the share of a rank is
 * what fits, less an expert of every layer, by which shares are rounded, if that is enough too. */
static void limit_shares(const expert_sums *s, taker *takers, int rank_count)
{
    for (int spare = 1; spare >= -1; spare--) { /* -1: no limit is enough */
        double sum = 0;
        for (int r = 0; r < rank_count; r++) {
            const mo_division_rank *rest = &takers[r].rest;
            const double room =
                fmax(0, (double)rest->ram_bytes - (double)rest->other_bytes) + (double)rest->vram_bytes;
            const double fits = s->bytes > 0 ? room / s->bytes - (double)spare / s->experts : 1;
            takers[r].most = spare < 0 ? 1 : fmax(0, fmin(1, fits));
            sum += takers[r].most;
        }
        if (sum >= 1) {
            return;
        }
    }
}

mo_status mo_division_make_experts(const mo_division_model *m, const mo_division_rank *ranks, int rank_count,
                                   double *upto, mo_error *err)
{
    const expert_sums s = sum_experts(m);
    if (!(s.layers > 0)) {
        return mo_fail(err, MO_EINVAL, "the model has no experts that could be divided; divide its layers");
    }
    if (rank_count - 1 > s.experts) {
        return mo_fail(err, MO_EINVAL,
                       "the model's experts cannot be divided among %d ranks; divide its layers", rank_count);
    }
    taker *takers = calloc((size_t)rank_count, sizeof *takers);
    if (!takers) {
        return mo_fail(err, MO_ENOMEM, "no memory for dividing the experts");
    }
    double least = 0, most = 0, sum = 0;
    for (int r = 0; r < rank_count; r++) {
        takers[r].rest = mo_division_rest(&ranks[r], r, s.core_bytes);
    }
    limit_shares(&s, takers, rank_count);
    for (int r = 0; r < rank_count; r++) {
        most = fmax(most, share_seconds(m, &s, &takers[r].rest, r, takers[r].most));
    }
    for (int i = 0; i < 60; i++) { /* the time in which all ranks together can do all of it */
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
    free(takers);
    return MO_OK;
}

int mo_division_first_expert(const double *upto, int rank, int experts)
{
    return rank > 0 ? (int)lround(upto[rank - 1] * experts) : 0;
}
