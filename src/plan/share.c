#include "plan/share.h"

#include <math.h>

int64_t mo_plan_sum(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_add_overflow(a, b, &c) ? INT64_MAX : c;
}

int64_t mo_plan_times(int64_t a, int64_t b)
{
    int64_t c;
    return __builtin_mul_overflow(a, b, &c) ? INT64_MAX : c;
}

/* Slots of one size when every size has `level` bytes for each byte a token reads of it. */
static int64_t slots_at(const mo_plan_share *s, double level)
{
    if (s->most == 0) {
        return 0;
    }
    const double slots = floor(level * s->weight / (double)s->slot_bytes) - (double)s->held;
    if (!(slots < (double)s->most)) {
        return s->most;
    }
    return slots > (double)s->least ? (int64_t)slots : s->least;
}

static int64_t bytes_at(const mo_plan_share *s, int count, double level)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes = mo_plan_sum(bytes, mo_plan_times(slots_at(&s[i], level), s[i].slot_bytes));
    }
    return bytes;
}

int64_t mo_plan_share_least(const mo_plan_share *shares, int count)
{
    return bytes_at(shares, count, 0);
}

int64_t mo_plan_share_most(const mo_plan_share *s, int count)
{
    int64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes = mo_plan_sum(bytes, mo_plan_times(s[i].most, s[i].slot_bytes));
    }
    return bytes;
}

/* A level at which every size that a token uses is full. */
static double level_of_all(const mo_plan_share *s, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        const double experts = (double)s[i].most + (double)s[i].held;
        const double level = s[i].weight > 0 ? experts * (double)s[i].slot_bytes / s[i].weight : 0;
        most = level > most ? level : most;
    }
    return 2 * most; /* doubled against rounding */
}

/* All sizes follow one level, the highest within the budget, so that a larger budget never takes a slot from
 * any size. Filling up the rounding remainder would break that. */
int64_t mo_plan_share_out(const mo_plan_share *shares, int count, int64_t budget, int32_t *slots)
{
    double low = 0, high = level_of_all(shares, count);
    if (bytes_at(shares, count, high) <= budget) {
        low = high;
    }
    for (;;) {
        const double middle = low + (high - low) / 2;
        if (!(middle > low && middle < high)) {
            break;
        }
        *(bytes_at(shares, count, middle) <= budget ? &low : &high) = middle;
    }
    for (int i = 0; i < count; i++) {
        slots[i] = (int32_t)slots_at(&shares[i], low);
    }
    return bytes_at(shares, count, low);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t mo_plan_staging(int64_t stage, int64_t ceiling, int64_t spare, int64_t all)
{
    /* One GiB is enough prefetch distance for any link; with small ceilings the memory is better used
     * elsewhere. */
    const int64_t most = (int64_t)1 << 30, least = mo_plan_times(MO_PLAN_STAGES_LEAST, stage);
    if (all > 0 && spare - all >= least) {
        return least;
    }
    const int64_t bytes =
        smaller(smaller(most, ceiling / 16), smaller(spare, mo_plan_times(MO_PLAN_STAGES, stage)));
    return bytes > least ? bytes : least;
}
