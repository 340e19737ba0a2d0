#include "device/sim/state.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"

mo_status mo_sim_state(mo_sim *sim, mo_error *err)
{
    const mo_error *f = &sim->failure;
    return f->status == MO_OK ? MO_OK : mo_fail(err, f->status, "%s", f->detail);
}

void mo_sim_lose(mo_sim *sim, const mo_error *why)
{
    if (sim->failure.status == MO_OK) {
        sim->failure = *why;
        atomic_store(&sim->lost, true);
    }
    pthread_cond_broadcast(&sim->changed);
}

bool mo_sim_hits(mo_sim *sim, mo_sim_fault kind, int64_t calls)
{
    if (sim->fault != kind) {
        return false;
    }
    if (sim->left >= calls) {
        sim->left -= calls;
        return false;
    }
    if (--sim->hits == 0) {
        sim->fault = MO_SIM_NONE;
    }
    return true;
}

void mo_sim_quiet(mo_sim *sim)
{
    while (sim->executing > 0) {
        pthread_cond_wait(&sim->changed, &sim->lock);
    }
}

/* Waits for a change, at most hang_ms. True when nothing moved in that time and nothing will: a stream that could go on and has found
 * no core so far will. */
static bool stuck(mo_sim *sim)
{
    const int64_t progress = sim->progress;
    const int64_t end = mo_clock_ns() + sim->options.hang_ms * INT64_C(1000000);
    while (sim->progress == progress && sim->failure.status == MO_OK) {
        if (!mo_cond_wait(&sim->changed, &sim->lock, end) && sim->progress == progress) {
            return sim->active == sim->held && sim->failure.status == MO_OK;
        }
    }
    return false;
}

mo_status mo_sim_wait(mo_sim *sim, bool (*done)(void *ctx), void *ctx, mo_error *err)
{
    while (sim->failure.status == MO_OK && !done(ctx)) {
        if (!sim->hung) {
            pthread_cond_wait(&sim->changed, &sim->lock);
        } else if (stuck(sim) && !done(ctx)) {
            mo_error why;
            mo_fail(&why, MO_EDEVICE, "the simulated GPU hangs: an event was not done after %d ms",
                    sim->options.hang_ms);
            mo_sim_lose(sim, &why);
        }
    }
    if (sim->failure.status != MO_OK) { /* the waiting thread may now free what a copy still reads */
        mo_sim_quiet(sim);
    }
    return mo_sim_state(sim, err);
}
