/* Disk choice: opens files with the fastest way to read them: bypassing the page cache or through it, by
 * threads or by io_uring. Options that are left open are decided by measuring the files themselves. */
#ifndef MO_DISK_CHOICE_H
#define MO_DISK_CHOICE_H

#include "disk/disk.h"

enum {
    /* Enough that the device always has another request, few enough that compute threads hardly notice. */
    MO_DISK_THREADS_DEFAULT = 4,
    MO_DISK_DEPTH_DEFAULT = 8,
    MO_DISK_PIECE_DEFAULT = 1 << 20,
};

/* Decides open options and starts like mo_disk_start(). Measuring takes about 50 ms, on a slow disk as long
 * as a few reads. MO_EINVAL: invalid options. */
mo_status mo_disk_open(const char *const *paths, int count, const mo_disk_options *options, mo_disk **out,
                       mo_error *err);

#endif
