/* Cgroup: limits of this process' control groups (v1 and v2). */
#ifndef MO_BASE_CGROUP_H
#define MO_BASE_CGROUP_H

#include <stdint.h>

typedef struct mo_cgroup {
    uint64_t memory_limit_bytes; /* the smallest limit from our group up to the root; 0: none */
    /* the smallest remainder under these limits; file cache counts as free; undefined without a limit */
    uint64_t memory_available_bytes;
    int cpu_millicores; /* the smallest processor quota, 1000 = one core; 0: none */
} mo_cgroup;

/* Reads the groups of the calling process. `root` is a prefix of every path ("" for the real machine, a
   directory with proc/ and sys/ in tests). Values that cannot be read count as no limit. Any thread. */
mo_cgroup mo_cgroup_read(const char *root);

#endif
