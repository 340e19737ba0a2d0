#include "experts/layer.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- Workers ---------------------------------------------------------------------------------- */

bool mo_workers_any(const mo_workers *w)
{
    bool any = false;
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        any |= w->list[i] != NULL;
    }
    return any;
}

bool mo_workers_add(mo_workers *w, const mo_worker *worker)
{
    assert(!worker->optional || (worker->lost && !worker->remote)); /* so that the CPU can take over */
    if (w->list[MO_WORKERS_MAX - 1]) {
        return false;
    }
    int at = MO_WORKERS_MAX - 1;
    while (at > 0 && (!w->list[at - 1] || (worker->remote && !w->list[at - 1]->remote))) {
        w->list[at] = w->list[at - 1];
        at--;
    }
    w->list[at] = worker;
    return true;
}

void mo_workers_remove(mo_workers *w, const mo_worker *worker)
{
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        w->list[i] = w->list[i] == worker ? NULL : w->list[i];
    }
}

const mo_worker *mo_workers_ahead(const mo_workers *w)
{
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        const mo_worker *each = w->list[i];
        if (each && each->reads_ahead && each->reads_ahead(each->owner)) {
            return each;
        }
    }
    return NULL;
}

/* Lets one worker claim, and undoes claims that are not allowed. Returns the number of its experts. */
static int claim(const mo_worker *worker, uint8_t me, mo_expert_work *work)
{
    uint8_t before[MO_EXPERTS_MAX];
    int claimed = 0;
    memcpy(before, work->who, sizeof before);
    worker->claim(worker->owner, work, me);
    for (int e = 0; e < work->picks->experts; e++) {
        const bool allowed = before[e] == MO_BY_CPU && work->who[e] == me && work->picks->count[e] > 0;
        work->who[e] = allowed ? me : before[e];
        claimed += allowed;
    }
    return claimed;
}

int mo_workers_claim(const mo_workers *w, mo_expert_work *work)
{
    int claimed = 0;
    work->begun = 0;
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        claimed += w->list[i] ? claim(w->list[i], (uint8_t)(MO_BY_WORKER + i), work) : 0;
    }
    return claimed;
}

/* Reassigns the experts of one worker to another. Returns their number. */
static int hand_over(mo_expert_work *work, uint8_t from, uint8_t to)
{
    int count = 0;
    for (int e = 0; e < work->picks->experts; e++) {
        if (work->who[e] == from) {
            work->who[e] = to;
            count++;
        }
    }
    return count;
}

static void lose(mo_workers *w, int number, const mo_error *why)
{
    mo_log(MO_LOG_WARN, "device", "%s; %s", why->detail, w->list[number]->lost);
    w->list[number] = NULL;
}

mo_status mo_workers_begin(mo_workers *w, mo_expert_work *work, mo_side_task *rest, int *returned,
                           mo_error *err)
{
    *returned = 0;
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        const mo_worker *each = w->list[i];
        const uint8_t me = (uint8_t)(MO_BY_WORKER + i);
        mo_side_task task = {0};
        mo_error why = {0};
        if (!each) {
            continue;
        }
        const mo_status status = each->begin(each->owner, work, me, &task, &why);
        if (status == MO_OK) {
            work->begun |= 1U << i;
        } else if (each->optional) {
            *returned += hand_over(work, me, MO_BY_CPU);
            lose(w, i, &why);
        } else {
            int unused;
            *rest = (mo_side_task){0};
            *err = why;
            return mo_workers_end(w, work, status, &unused, err);
        }
        task = status == MO_OK ? task : (mo_side_task){0};
        if (task.fn && rest->fn) {
            task.fn(task.ctx);
        } else if (task.fn) {
            *rest = task;
        }
    }
    return MO_OK;
}

mo_status mo_workers_end(mo_workers *w, mo_expert_work *work, mo_status status, int *returned, mo_error *err)
{
    *returned = 0;
    for (int i = 0; i < MO_WORKERS_MAX; i++) {
        const mo_worker *each = w->list[i];
        const uint8_t me = (uint8_t)(MO_BY_WORKER + i);
        mo_error why = {0};
        if (!each || !(work->begun >> i & 1)) {
            continue;
        }
        const mo_status ended = each->end(each->owner, work, me, &why);
        if (ended != MO_OK && ended != MO_ECANCELLED && each->optional) {
            *returned += hand_over(work, me, MO_BY_CPU_AGAIN);
            lose(w, i, &why);
        } else if (ended != MO_OK && status == MO_OK) {
            *err = why;
            status = ended;
        }
    }
    work->begun = 0;
    return status;
}

/* ---- The CPU's rounds ------------------------------------------------------------------------- */

static int64_t tick(const mo_rounds *r)
{
    return r->timed ? mo_clock_ns() : 0;
}

/* True if a read from disk is still in flight. Looking costs a layer two microseconds. */
static bool awaits_bytes(const mo_rounds *r)
{
    for (int i = 0; r->store && i < r->count; i++) {
        const mo_need *n = &r->needs[i];
        if (!n->in || !n->down) {
            return true;
        }
    }
    return false;
}

/* Adds everything that can be computed now; false: nothing. *left counts unfinished experts. */
static bool add_ready(mo_rounds *r, int *left)
{
    const bool in_ram = !r->store;
    bool some = false;
    *left = 0;
    for (int i = 0; i < r->count; i++) {
        mo_need *n = &r->needs[i];
        if ((in_ram || n->in) && !n->in_done) {
            r->ops->add_expert(r->owner, n, false);
            n->in_done = some = true;
        }
        if (n->in_done && (in_ram || n->down) && !n->down_done) {
            r->ops->add_expert(r->owner, n, true);
            n->down_done = some = true;
        }
        *left += !n->down_done;
    }
    return some;
}

static mo_status look(mo_rounds *r, bool first, bool wait, mo_error *err)
{
    const int64_t began = tick(r);
    mo_status status = awaits_bytes(r) ? mo_store_look(r->store, wait, err) : MO_OK;
    r->waiting_ns += tick(r) - began;
    return status == MO_OK && r->ops->looked ? r->ops->looked(r->owner, first, err) : status;
}

mo_status mo_rounds_run(mo_rounds *r, mo_error *err)
{
    mo_status status = MO_OK;
    bool first = true, wait = false;
    for (int left = 1; left > 0 && status == MO_OK;) {
        status = look(r, first && !wait, wait, err);
        if (status != MO_OK) {
            break;
        }
        r->ops->begin_round(r->owner);
        const bool beside = first && r->ops->beside && r->ops->beside(r->owner);
        const bool some = add_ready(r, &left) || beside;
        const int64_t began = tick(r);
        wait = !some && left > 0;
        r->landed = left == 0 ? began : r->landed;
        if (some || (r->merges && left == 0)) {
            r->ops->run_round(r->owner, left == 0);
            r->computing_ns += tick(r) - began;
            r->rounds++;
            first = false;
        } else if (r->ops->idle) {
            r->ops->idle(r->owner);
        }
        if (r->store && left > 0) {
            const int64_t done = tick(r);
            status = r->ops->release_done(r->owner, err);
            r->waiting_ns += tick(r) - done;
        }
    }
    return status;
}
