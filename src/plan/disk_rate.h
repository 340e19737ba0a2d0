/* Disk rate: the rate a disk reached while models ran from it, kept across runs for each file system. Unlike
 * a probe, it reflects the real sizes and order of expert reads. */
#ifndef MO_PLAN_DISK_RATE_H
#define MO_PLAN_DISK_RATE_H

#include "moraine.h"

/* Runs that read fewer bytes are ignored. */
#define MO_DISK_RATE_BYTES ((uint64_t)64 << 20)

/* The known rate of this file's disk in bytes per second; 0: not known. An unreadable rates file counts as
 * missing. Any thread. */
double mo_disk_rate_known(const char *path);

/* Records that a run read this many bytes of the file, bypassing the page cache; busy_ns is the time with at
 * least one read in flight. `before` is the rate known at the start (0: none). It weighs as 4 GiB, so a short
 * run changes it little. Too few bytes and impossible rates are ignored. */
mo_status mo_disk_rate_note(const char *path, uint64_t bytes, uint64_t busy_ns, double before, mo_error *err);

#endif
