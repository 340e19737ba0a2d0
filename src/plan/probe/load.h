/* Load: how many cores other programs kept busy while something was measured. */
#ifndef MO_PLAN_PROBE_LOAD_H
#define MO_PLAN_PROBE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mo_load {
    double all_s, own_s; /* processor time of the machine since its start, and of this process */
    int64_t at_ns;
    bool known;
} mo_load;

/* root is put before /proc: "" for this machine. */
mo_load mo_load_begin(const char *root);

/* Cores that others kept busy since then; 0 where the system does not say. */
double mo_load_others(const char *root, const mo_load *begin);

/* Is that so much that rates measured meanwhile say nothing? cores: that could be used. */
bool mo_load_disturbs(double others, int cores);

#endif
