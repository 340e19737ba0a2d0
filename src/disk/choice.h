/* Disk choice: opens files so that they are read fastest here: past the page cache or through it, by threads or by
 * io_uring, measured on the files themselves where that was left open. */
#ifndef MO_DISK_CHOICE_H
#define MO_DISK_CHOICE_H

#include "disk/disk.h"

enum {
    /* Enough that the device always has a next request, few enough that compute threads hardly notice. */
    MO_DISK_THREADS_DEFAULT = 4,
    MO_DISK_DEPTH_DEFAULT = 8,
    MO_DISK_PIECE_DEFAULT = 1 << 20,
};

/* Chooses what the options leave open and starts, as mo_disk_start(). Measuring takes some 50 ms, on a slow disk as long
 * as a few reads take. MO_EINVAL for options that make no sense. */
mo_status mo_disk_open(const char *const *paths, int count, const mo_disk_options *options, mo_disk **out,
                       mo_error *err);

#endif
