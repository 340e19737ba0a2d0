#include "numeric/index.h"

#include <string.h>

#include "numeric/center.h"

/* Of the norm of keys; files do not say it. */
#define INDEX_EPS 1e-6f

/* ---- Queries, keys, scores -------------------------------------------------------------------- */

bool mo_index_key(const mo_kernels *k, const mo_index_rule *r, float *key, const float *c, const float *s)
{
    mo_norm_row(k, true, key, key, r->norm, r->length, INDEX_EPS);
    k->add(key, r->bias, r->length);
    k->rope(key, c, s, r->n_rot, r->neox);
    return k->finite(key, r->length);
}

void mo_index_query(const mo_kernels *k, const mo_index_rule *r, float *q, float *share, const float *c,
                    const float *s)
{
    for (int h = 0; h < r->heads; h++) {
        k->rope(q + h * r->length + r->still, c, s, r->n_rot, r->neox);
    }
    k->scale(share, r->scale, r->heads);
}

void mo_index_scores(const mo_kernels *k, const mo_index_rule *r, const float *keys, int64_t n,
                     const float *q, const float *share, int64_t count, float *products, float *scores,
                     int64_t stride, mo_scratch *scratch)
{
    const mo_weights w = {
        .data = (const uint8_t *)keys, .type = MO_F32, .rows = n, .cols = r->length}; /* like any matrix */
    const mo_acts acts = {.rows = count * r->heads, .cols = r->length, .x = (float *)q};
    k->product(&w, 0, n, &acts, NULL, acts.rows, products, n, scratch);
    for (int64_t t = 0; t < count; t++) {
        k->rectified_sum(scores + t * stride, products + t * r->heads * n, n, share + t * r->heads, r->heads,
                         n);
    }
}

/* ---- The best --------------------------------------------------------------------------------- */

/* Integers in the order of the numbers; zeros are equal, and NaN is below -infinity. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    const float x = score + 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0 : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The rank of which, or above which, there are at least `most` of n candidates, and *above how many are above it: byte by byte, the highest
 * first. They are given by their ranks (uint32_t), or by their scores (float). */
static uint32_t nth_rank(const void *values, bool ranked, int64_t n, int64_t most, int64_t *above)
{
    uint32_t prefix = 0, known = 0; /* bits of it that are known */
    int64_t left = most;
    const uint32_t *rank = values;
    const float *score = values;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t counts[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            const uint32_t one = ranked ? rank[i] : rank_of(score[i]);
            counts[one >> shift & 255] += (one & known) == prefix;
        }
        uint32_t digit = 255;
        for (; digit > 0 && counts[digit] < left; digit--) {
            left -= counts[digit];
        }
        prefix |= digit << shift;
        known |= 255u << shift;
    }
    *above = most - left;
    return prefix;
}

int64_t mo_index_choose(const float *scores, int64_t n, int64_t most, int32_t *kept)
{
    int64_t above = 0, count = 0;
    const uint32_t floor = n > most ? nth_rank(scores, false, n, most, &above) : 0;
    int64_t equal = n > most ? most - above : n;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t rank = rank_of(scores[i]);
        const bool on_floor = rank == floor && equal > 0;
        equal -= on_floor;
        if (rank > floor || on_floor) {
            kept[count++] = (int32_t)i;
        }
    }
    return count;
}

/* Leaves the best `most` of more, in their order. */
static void leave_best(mo_index_best *b)
{
    int64_t above, count = 0;
    b->floor = nth_rank(b->rank, true, b->count, b->most, &above);
    int64_t equal = b->most - above;
    for (int64_t i = 0; i < b->count; i++) {
        const bool on_floor = b->rank[i] == b->floor && equal > 0;
        equal -= on_floor;
        if (b->rank[i] > b->floor || on_floor) {
            b->rank[count] = b->rank[i];
            b->position[count++] = b->position[i];
        }
    }
    b->count = count;
}

/* A later candidate that ranks no higher than `most` others is not kept. */
void mo_index_offer(mo_index_best *b, const float *scores, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t rank = rank_of(scores[i]);
        if (b->count < b->most || rank > b->floor) {
            b->rank[b->count] = rank;
            b->position[b->count++] = (int32_t)(first + i);
            if (b->count == 2 * b->most) {
                leave_best(b);
            }
        }
    }
}

int64_t mo_index_take(mo_index_best *b, int32_t *kept)
{
    if (b->count > b->most) {
        leave_best(b);
    }
    memcpy(kept, b->position, sizeof *kept * (size_t)b->count);
    return b->count;
}

/* ---- What is kept ----------------------------------------------------------------------------- */

/* Of codes: the units of both planes, and the two scales. */
static void copy_codes(const mo_kv_head *from, int64_t u, const mo_kv_head *to, int64_t place)
{
    const int64_t planes = mo_kv_planes(from->type), step = MO_KV_UNIT * MO_KV_BLOCK;
    const int64_t units = planes * mo_kv_plane((int)from->k_len, (int)from->tail) / MO_KV_UNIT;
    const uint8_t *block = mo_kv_block(from, u), *in = block + from->k_at + u % MO_KV_BLOCK * MO_KV_UNIT;
    uint8_t *target = mo_kv_block(to, place), *out = target + to->k_at + place % MO_KV_BLOCK * MO_KV_UNIT;
    for (int64_t i = 0; i < units; i++) {
        memcpy(out + i * step, in + i * step, MO_KV_UNIT);
    }
    memcpy(target + to->ks_at + place % MO_KV_BLOCK * 4, block + from->ks_at + u % MO_KV_BLOCK * 4, 4);
    memcpy(target + to->vs_at + place % MO_KV_BLOCK * 4, block + from->vs_at + u % MO_KV_BLOCK * 4, 4);
}

void mo_index_copy(const mo_kv_head *from, int64_t u, const mo_kv_head *to, int64_t place)
{
    if (mo_kv_coded(from->type)) {
        copy_codes(from, u, to, place);
    } else {
        memcpy(mo_kv_key(to, place), mo_kv_key(from, u), (size_t)from->k_bytes);
    }
}

void mo_index_gather(const mo_kv_head *from, const int32_t *kept, int64_t count, const mo_kv_head *to)
{
    for (int64_t i = 0; i < count; i++) {
        mo_index_copy(from, kept[i], to, i);
    }
}
