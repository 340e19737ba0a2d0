/* Picks: a counting sort. */
#include "experts/picks.h"

#include <string.h>

void mo_picks_begin(mo_picks *p, int experts, int used, int64_t tokens)
{
    p->experts = experts;
    p->used = used;
    p->tokens = tokens;
}

int64_t mo_picks_rows(const mo_picks *p)
{
    return p->tokens * p->used;
}

int mo_picks_count(mo_picks *p)
{
    int32_t *const count = p->count;
    const int32_t *const ids = p->ids;
    const int64_t rows = mo_picks_rows(p);
    int chosen = 0;
    memset(count, 0, sizeof *count * (size_t)p->experts);
    for (int64_t i = 0; i < rows; i++) {
        chosen += count[ids[i]]++ == 0;
    }
    return chosen;
}

/* first[] holds the end of each expert's rows, and in the end their beginning: picks are placed from last to
 * first. */
static void place(mo_picks *p)
{
    const int64_t used = p->used;
    int32_t *const first = p->first, *const row_of = p->row_of, *const token_of = p->token_of;
    const int32_t *const ids = p->ids;
    for (int64_t t = p->tokens - 1; t >= 0; t--) {
        for (int64_t i = (t + 1) * used - 1; i >= t * used; i--) {
            if (ids[i] < 0) {
                row_of[i] = -1;
                continue;
            }
            const int32_t row = --first[ids[i]];
            row_of[i] = row;
            token_of[row] = (int32_t)t;
        }
    }
}

int mo_picks_sort(mo_picks *p)
{
    const int chosen = mo_picks_count(p);
    int32_t end = 0;
    for (int e = 0; e < p->experts; e++) {
        end += p->count[e];
        p->first[e] = end;
    }
    p->first[p->experts] = end;
    place(p);
    return chosen;
}

void mo_picks_sort_in(mo_picks *p, const int *order, int chosen)
{
    int32_t end = 0;
    for (int i = 0; i < chosen; i++) {
        end += p->count[order[i]];
        p->first[order[i]] = end;
    }
    p->first[p->experts] = end;
    place(p);
}

void mo_picks_lay(mo_picks *p)
{
    int32_t next = 0;
    for (int e = 0; e < p->experts; e++) {
        p->first[e] = next;
        next += p->count[e];
    }
    p->first[p->experts] = next;
}

/* ---- Skipping missing experts ---------------------------------------------------------------- */

/* A token needs at least one expert: if all of its experts are missing, the one with the largest weight is
 * loaded. */
static void keep_best(const mo_picks *p, bool *missing, int64_t t)
{
    const int32_t *ids = p->ids + t * p->used;
    const float *weights = p->weights + t * p->used;
    int best = 0;
    for (int r = 0; r < p->used; r++) {
        if (!missing[ids[r]]) {
            return;
        }
        best = weights[r] > weights[best] ? r : best;
    }
    missing[ids[best]] = false;
}

/* Distributes the weight of skipped picks over the others, in proportion. */
static int shift_weight(const mo_picks *p, const bool *missing, int64_t t)
{
    int32_t *ids = p->ids + t * p->used;
    float *weights = p->weights + t * p->used;
    float all = 0.0f, kept = 0.0f;
    int skipped = 0;
    for (int r = 0; r < p->used; r++) {
        all += weights[r];
        if (missing[ids[r]]) {
            ids[r] = -1;
            skipped++;
        } else {
            kept += weights[r];
        }
    }
    for (int r = 0; kept > 0.0f && r < p->used; r++) {
        weights[r] *= all / kept;
    }
    return skipped;
}

int64_t mo_picks_skip(mo_picks *p, bool *missing)
{
    int64_t skipped = 0;
    for (int64_t t = 0; t < p->tokens; t++) {
        keep_best(p, missing, t);
    }
    for (int64_t t = 0; t < p->tokens; t++) {
        skipped += shift_weight(p, missing, t);
    }
    return skipped;
}
