#include "device/fetch_share.h"

#include <stddef.h>

int mo_fetch_share(const mo_fetch_costs *c, int count, int most, double *seconds)
{
    double best = count > 0 ? count * c->cpu_alone : 0;
    int chosen = 0;
    for (int f = 1; f <= most && f <= count; f++) {
        const double link = MO_FETCH_START_S + f * c->link, cpu = (count - f) * c->cpu;
        const double both = (link > cpu ? link : cpu) + MO_FETCH_PAYS_S;
        if (both < best) {
            best = both;
            chosen = f;
        }
    }
    if (seconds) {
        *seconds = best;
    }
    return chosen;
}
