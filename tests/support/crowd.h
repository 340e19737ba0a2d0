/* How busy the machine is, for tests that say how long something takes at most. */
#ifndef MO_TESTS_CROWD_H
#define MO_TESTS_CROWD_H

#include <stdio.h>
#include <unistd.h>

/* How many times as long something may take here as on a machine that does nothing else: the programs that want a core, now or of late, for
 * each core. At least 1. */
static inline double crowd(void)
{
    const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double late = 0, now = 0;
    FILE *f = fopen("/proc/loadavg", "r");
    if (f) {
        if (fscanf(f, "%lf %*f %*f %lf", &late, &now) != 2) {
            late = now = 0;
        }
        fclose(f);
    }
    const double most = late > now ? late : now;
    return most > cores ? most / cores : 1;
}

#endif
