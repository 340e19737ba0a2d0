/* Cgroup: what the control groups of this process (v1 and v2) let it use. */
#ifndef MO_BASE_CGROUP_H
#define MO_BASE_CGROUP_H

#include <stdint.h>

typedef struct mo_cgroup {
    uint64_t memory_limit_bytes;     /* the smallest limit from our group up to the root; 0: none */
    uint64_t memory_available_bytes; /* the smallest rest under those limits, file cache counted as
                                        free; means nothing when there is no limit */
    int cpu_millicores;              /* the smallest processor quota, 1000 = one core; 0: none */
} mo_cgroup;

/* Reads the groups of the calling process. `root` is put before every path ("" for the real machine,
 * a directory with proc/ and sys/ in tests). What cannot be read counts as no limit. Any thread. */
mo_cgroup mo_cgroup_read(const char *root);

#endif
