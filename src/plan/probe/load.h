/* Load: how many cores other programs used during a measurement. */
#ifndef MO_PLAN_PROBE_LOAD_H
#define MO_PLAN_PROBE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_load {
    double all_s, own_s; /* CPU time of the machine since boot, and of this process */
    int64_t at_ns;
    bool known;
} mo_load;

/* root is prepended to /proc: "" for this machine. */
mo_load mo_load_begin(const char *root);

/* Cores used by other programs since then; 0 if unknown. */
double mo_load_others(const char *root, const mo_load *begin);

/* True if this load invalidates rates measured meanwhile. cores: usable ones. */
bool mo_load_disturbs(double others, int cores);

#endif
