#include "base/interrupt.h"

#include "base/status.h"
#include "moraine_server.h"

enum { STEPS = 1 << 14 };

static _Thread_local struct {
    mo_interrupt_fn fn;
    void *user;
    size_t steps;
} watch;

void mo_interrupt_set(mo_interrupt_fn fn, void *user)
{
    watch.fn = fn;
    watch.user = user;
    watch.steps = 0;
}

bool mo_interrupted(size_t steps)
{
    if (!watch.fn || (watch.steps += steps) < STEPS) {
        return false;
    }
    watch.steps = 0;
    return watch.fn(watch.user);
}

mo_status mo_interrupt_fail(mo_error *err)
{
    return mo_fail(err, MO_ECANCELLED, "cancelled");
}
