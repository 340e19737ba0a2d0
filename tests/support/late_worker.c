#include "late_worker.h"

#include <time.h>

#include "base/status.h"
#include "engine/forward.h"

/* Every second expert, or so, that is here. It reads matrices in RAM, so it leaves a model alone whose experts come from a store. */
static void claim(void *owner, mo_expert_work *work, uint8_t me)
{
    const mo_engine *engine = work->forward->engine;
    const int every = ((const late_worker *)owner)->every;
    for (int e = 0; e < work->picks->experts && !mo_engine_store(engine); e += every ? every : 2) {
        if (work->picks->count[e] > 0 && work->who[e] == MO_BY_CPU && mo_spec_has_expert(engine->spec, e)) {
            work->who[e] = me;
        }
    }
}

static mo_status begin(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest, mo_error *err)
{
    late_worker *late = owner;
    (void)work, (void)me, (void)rest;
    return late->fail_begin > 0 && --late->fail_begin == 0
               ? mo_fail(err, MO_EDEVICE, "the late worker is lost")
               : MO_OK;
}

static mo_status end(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err)
{
    late_worker *late = owner;
    const struct timespec delay = {.tv_nsec = late->delay_ns};
    if (late->fail_end > 0 && --late->fail_end == 0) {
        return mo_fail(err, MO_EDEVICE, "the late worker is lost");
    }
    for (int e = 0; e < work->picks->experts; e++) {
        late->computed += work->who[e] == me;
    }
    nanosleep(&delay, NULL);
    mo_forward_compute(work->forward, work, me);
    return MO_OK;
}

void late_worker_join(late_worker *late, mo_workers *workers)
{
    late->worker = (mo_worker){.owner = late,
                               .optional = true,
                               .lost = "the CPU computes its experts at once",
                               .claim = claim,
                               .begin = begin,
                               .end = end};
    mo_workers_add(workers, &late->worker);
}
