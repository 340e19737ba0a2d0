#include "experts/late.h"

#define NEW_SHARE 0.25 /* weight of a new observation */
#define SOON      2.0  /* a way that is expected to be at most this much slower is tried at once */
#define TRIAL     32.0 /* turns between two trials of a way that is as fast as the best */
#define IN_TIME   0.9  /* part of the CPU's time by which copies should have arrived */

static double believed(double before, double now)
{
    if (before <= 0) {
        return now;
    }
    const double most = now < 2 * before ? now : 2 * before;
    return before + NEW_SHARE * (most - before);
}

void mo_late_observe(mo_late *l, mo_late_way way, double seconds)
{
    if (seconds > 0) {
        l->seconds[way] = believed(l->seconds[way], seconds);
    }
}

void mo_late_observe_cpu(mo_late *l, double seconds)
{
    if (seconds > 0) {
        l->cpu_seconds = believed(l->cpu_seconds, seconds);
    }
}

/* The fastest measured way; MO_LATE_WAYS: none was measured. */
static mo_late_way fastest(const mo_late *l, const bool *allowed)
{
    mo_late_way best = MO_LATE_WAYS;
    for (int i = 0; i < MO_LATE_WAYS; i++) {
        if (allowed[i] && l->seconds[i] > 0 && (best == MO_LATE_WAYS || l->seconds[i] < l->seconds[best])) {
            best = (mo_late_way)i;
        }
    }
    return best;
}

/* Turns after which a way is due for another trial, or for its first one. */
static double due_after(const mo_late *l, mo_late_way way, mo_late_way best, const double *expected)
{
    const double seconds = l->seconds[way] > 0 ? l->seconds[way] : expected[way];
    const double slower = seconds / l->seconds[best];
    return l->seconds[way] <= 0 && slower <= SOON ? 0 : TRIAL * (slower > 1 ? slower : 1);
}

mo_late_way mo_late_choose(mo_late *l, const bool *allowed, const double *expected)
{
    mo_late_way way = fastest(l, allowed);
    const mo_late_way best = way;
    l->turns++;
    if (best == MO_LATE_WAYS) {
        way = allowed[MO_LATE_WAIT] ? MO_LATE_WAIT : allowed[MO_LATE_LEAVE] ? MO_LATE_LEAVE : MO_LATE_NONE;
    }
    for (int i = 0; i < MO_LATE_WAYS && best != MO_LATE_WAYS && way == best; i++) {
        if (allowed[i] && i != (int)best &&
            (double)(l->turns - l->used[i]) > due_after(l, (mo_late_way)i, best, expected)) {
            way = (mo_late_way)i;
        }
    }
    l->used[way] = l->turns;
    return way;
}

int mo_late_fit(const mo_late *l, const double *copy_s, const double *saved, int count)
{
    double link = 0, cpu = count;
    int fit = 0;
    for (int i = 0; i < count; i++) {
        link += copy_s[i];
        cpu -= saved[i];
        if (l->cpu_seconds <= 0 || link <= IN_TIME * cpu * l->cpu_seconds) {
            fit = i + 1;
        }
    }
    return fit;
}
