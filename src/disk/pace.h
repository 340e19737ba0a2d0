/* Disk pace: how fast a disk is under a given load: random reads with a number of them in flight. */
#ifndef MO_DISK_PACE_H
#define MO_DISK_PACE_H

#include "disk/disk.h"

typedef struct mo_disk_load {
    int64_t bytes; /* of one read; smaller where the files are */
    int in_flight; /* reads that are kept queued or under way */
    int places; /* reads that the memory holds, used in turn: slots are far apart, in no cache. 0: in_flight */
    int64_t budget_ns; /* no read begins after that */
    int64_t most;      /* bytes in all, 0: as many as the time allows */
    uint64_t seed;     /* of the places */
    bool cold;         /* what is read is thrown out of the page cache first */
} mo_disk_load;

typedef struct mo_disk_pace {
    double bytes_s;
    double read_ns;   /* of one read, on average, from submission to arrival */
    double cpu_share; /* processor time of the whole process in that time, 1.0: one core */
    double cpu_ns_per_mb;
} mo_disk_pace;

/* Reads at random aligned places of the files and says how fast it went. memory: bytes x places, aligned. */
mo_status mo_disk_measure(mo_disk *disk, const mo_disk_load *load, uint8_t *memory, mo_disk_pace *out,
                          mo_error *err);

#endif
