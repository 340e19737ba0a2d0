/* Picks: a counting sort. */
#include "experts/picks.h"

#include <string.h>

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

/* first[] holds where each expert's rows end, and then where they begin: picks are placed from the last to the first. */
static void place(mo_picks *p)
{
    const int64_t used = p->used;
    int32_t *const first = p->first, *const row_of = p->row_of, *const token_of = p->token_of;
    const int32_t *const ids = p->ids;
    for (int64_t t = p->tokens - 1; t >= 0; t--) {
        for (int64_t i = (t + 1) * used - 1; i >= t * used; i--) {
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
