/* Disk choice: how files are read fastest here: past the page cache or through it, by threads or by a ring,
 * measured on the files themselves. */
#ifndef MO_STORE_DISK_CHOICE_H
#define MO_STORE_DISK_CHOICE_H

#include "store/disk/disk.h"

enum {
    /* Enough that the device always has a next request, few enough that compute threads hardly notice. */
    MO_DISK_THREADS_DEFAULT = 4,
    MO_DISK_DEPTH_DEFAULT = 8,
    MO_DISK_PIECE_DEFAULT = 1 << 20,
    MO_DISK_REASON = 320, /* bytes of a reason */
};

/* Fills what `asked` left open: io is DIRECT or CACHED afterwards, and plain or ring is set. Takes some 50 ms,
 * on a slow disk as long as a few reads take; nothing is measured where nothing is open. reason: a sentence. */
mo_status mo_disk_choose(const char *const *paths, int count, const mo_disk_options *asked,
                         mo_disk_options *chosen, char *reason, mo_error *err);

#endif
