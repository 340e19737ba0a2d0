#include "store/worklist.h"

#include <assert.h>
#include <stdlib.h>

#include "base/status.h"

mo_status mo_worklist_create(int32_t capacity, int32_t experts, mo_worklist *out, mo_error *err)
{
    *out = (mo_worklist){.capacity = capacity, .experts = experts};
    if (capacity < 0 || experts < 1) {
        return mo_fail(err, MO_EINVAL, "a worklist of %d picks among %d experts cannot be", (int)capacity,
                       (int)experts);
    }
    const size_t runs = (size_t)(capacity < experts ? capacity : experts);
    out->next = malloc((size_t)experts * sizeof *out->next);
    bool good = out->next != NULL;
    for (int place = 0; place < MO_FOUNDS; place++) {
        mo_work_lane *lane = &out->lane[place];
        lane->work = malloc(((size_t)capacity + 1) * sizeof *lane->work);
        lane->run = malloc((runs + 1) * sizeof *lane->run);
        good = good && lane->work && lane->run;
    }
    if (!good) {
        mo_worklist_destroy(out);
        return mo_fail(err, MO_ENOMEM, "no memory for a worklist of %d picks; free some and try again",
                       (int)capacity);
    }
    return MO_OK;
}

void mo_worklist_destroy(mo_worklist *w)
{
    for (int place = 0; place < MO_FOUNDS; place++) {
        free(w->lane[place].work);
        free(w->lane[place].run);
    }
    free(w->next);
    *w = (mo_worklist){0};
}

static int32_t slot_in(const int32_t *slot_of, int32_t expert)
{
    return slot_of && slot_of[expert] >= 0 ? slot_of[expert] : -1;
}

static void build_by_token(mo_worklist *w, const int32_t *ids, const float *weights, int32_t picks,
                           int32_t used, const int32_t *slot_of)
{
    for (int32_t i = 0; i < picks; i++) {
        const int32_t slot = slot_in(slot_of, ids[i]);
        mo_work_lane *lane = &w->lane[slot >= 0 ? MO_FOUND_HOT : MO_FOUND_COLD];
        lane->work[lane->count++] = (mo_work){ids[i], slot, i / used, i, weights[i]};
    }
}

/* A counting sort: counts become the first places of the experts, which the picks then fill in their
 * order. */
static void build_by_expert(mo_worklist *w, const int32_t *ids, const float *weights, int32_t picks,
                            int32_t used, const int32_t *slot_of)
{
    for (int32_t e = 0; e < w->experts; e++) {
        w->next[e] = 0;
    }
    for (int32_t i = 0; i < picks; i++) {
        w->next[ids[i]]++;
    }
    for (int32_t e = 0; e < w->experts; e++) {
        const int32_t count = w->next[e], slot = slot_in(slot_of, e);
        mo_work_lane *lane = &w->lane[slot >= 0 ? MO_FOUND_HOT : MO_FOUND_COLD];
        w->next[e] = lane->count;
        if (count) {
            lane->run[lane->runs++] = (mo_work_run){e, slot, lane->count, count};
            lane->count += count;
        }
    }
    for (int32_t i = 0; i < picks; i++) {
        const int32_t slot = slot_in(slot_of, ids[i]);
        mo_work_lane *lane = &w->lane[slot >= 0 ? MO_FOUND_HOT : MO_FOUND_COLD];
        lane->work[w->next[ids[i]]++] = (mo_work){ids[i], slot, i / used, i, weights[i]};
    }
}

void mo_worklist_build(mo_worklist *w, const int32_t *ids, const float *weights, int32_t tokens, int32_t used,
                       const int32_t *slot_of, mo_work_order order)
{
    assert(tokens >= 0 && used >= 1 && (int64_t)tokens * used <= w->capacity);
    const int32_t picks = tokens * used;
    for (int32_t i = 0; i < picks; i++) {
        assert(ids[i] >= 0 && ids[i] < w->experts);
    }
    for (int place = 0; place < MO_FOUNDS; place++) {
        w->lane[place].count = w->lane[place].runs = 0;
    }
    if (order == MO_WORK_BY_TOKEN) {
        build_by_token(w, ids, weights, picks, used, slot_of);
    } else {
        build_by_expert(w, ids, weights, picks, used, slot_of);
    }
}
