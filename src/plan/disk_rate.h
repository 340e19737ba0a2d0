/* Disk rate: what a disk was found to give while models ran from it, kept from run to run for each file system. A probe says
 * what a disk can do; this says what it did, with the sizes and the order in which experts are read, and needs no probe. */
#ifndef MO_PLAN_DISK_RATE_H
#define MO_PLAN_DISK_RATE_H

#include "moraine.h"

/* Less than this in one run says little. */
#define MO_DISK_RATE_BYTES ((uint64_t)64 << 20)

/* Bytes a second that the disk of this file was found to give; 0: not known. A file of such rates that cannot be read counts as
 * none. Any thread. */
double mo_disk_rate_known(const char *path);

/* A run has read this many bytes of the file, bypassing the page cache, in the time with at least one read in flight.
 * `before` is what was believed when it began (0: nothing): it weighs as 4 GiB, so that a short run changes less. Too few
 * bytes, and rates that no disk has, are passed over. */
mo_status mo_disk_rate_note(const char *path, uint64_t bytes, uint64_t busy_ns, double before, mo_error *err);

#endif
