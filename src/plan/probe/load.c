#include "plan/probe/load.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/textfile.h"

/* Other programs may use a quarter of a core, or a tenth of all cores. */
#define QUARTER 0.25
#define TENTH   0.1

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

mo_load mo_load_begin(const char *root)
{
    char text[512];
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
    struct rusage own;
    mo_load load = {.at_ns = mo_clock_ns()};
    /* Interrupts are excluded: they serve our own reads. */
    load.known = mo_textfile_read(text, sizeof text, "%s/proc/stat", root) &&
                 sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                        &iowait, &irq, &softirq, &steal) == 8 &&
                 getrusage(RUSAGE_SELF, &own) == 0;
    if (load.known) {
        load.all_s = (double)(user + nice + system + steal) / (double)sysconf(_SC_CLK_TCK);
        load.own_s = seconds_of(own.ru_utime) + seconds_of(own.ru_stime);
    }
    return load;
}

double mo_load_others(const char *root, const mo_load *begin)
{
    const mo_load now = mo_load_begin(root);
    const double passed = (double)(now.at_ns - begin->at_ns) * 1e-9;
    const double others = now.all_s - begin->all_s - (now.own_s - begin->own_s);
    return begin->known && now.known && passed > 0 && others > 0 ? others / passed : 0;
}

bool mo_load_disturbs(double others, int cores)
{
    return others > QUARTER && others > TENTH * cores;
}
