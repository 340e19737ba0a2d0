/* Disk pace: measures the speed of a disk under a given load: random reads with a number of them in
 * flight. */
#ifndef MO_DISK_PACE_H
#define MO_DISK_PACE_H

#include "disk/disk.h"

typedef struct mo_disk_load {
    int64_t bytes; /* of one read; less if the files are smaller */
    int in_flight; /* reads kept queued or in flight */
    /* reads that the memory holds, used in turn: like slots, far apart and in no cache. 0: in_flight */
    int places;
    int64_t budget_ns; /* no read begins after this time */
    int64_t most;      /* total bytes, 0: limited only by the time */
    uint64_t seed;     /* of the offsets */
    bool cold;         /* drop the ranges from the page cache first */
} mo_disk_load;

typedef struct mo_disk_pace {
    double bytes_s;
    double read_ns;   /* average of one read, from submission to arrival */
    double cpu_share; /* CPU time of the whole process during that time, 1.0: one core */
    double cpu_ns_per_mb;
} mo_disk_pace;

/* Reads at random aligned offsets of the files and reports the speed. memory: bytes x places, aligned. */
mo_status mo_disk_measure(mo_disk *disk, const mo_disk_load *load, uint8_t *memory, mo_disk_pace *out,
                          mo_error *err);

#endif
