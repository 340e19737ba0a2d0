/* Read: one read of a model's files, and the options of a disk. */
#ifndef MO_DISK_READ_H
#define MO_DISK_READ_H

#include <stdatomic.h>

#include "moraine.h"

/* Offsets, lengths and addresses of direct reads are multiples of this. */
enum { MO_DISK_ALIGN = 4096 };

typedef enum mo_read_state { MO_READ_IDLE, MO_READ_QUEUED, MO_READ_DONE, MO_READ_FAILED } mo_read_state;

typedef enum mo_urgency {
    MO_READ_NOW,   /* a thread waits for it */
    MO_READ_AHEAD, /* needed later in known order: after those */
    MO_READ_GUESS, /* perhaps needed: only if nothing else is pending */
} mo_urgency;

/* One read. The caller owns its memory, which must stay valid until the state is DONE or FAILED.
 * Zero-initialize it; after it has ended it may be filled and submitted again. Reads larger than a piece are
 * cut into pieces, which several readers process at once. */
typedef struct mo_read {
    int part;              /* index of the file */
    int64_t offset, bytes; /* bytes > 0 */
    uint8_t *memory; /* aligned to MO_DISK_ALIGN, mo_disk_capacity() bytes; data begin at mo_disk_data() */
    mo_urgency urgency;
    void *user; /* for the caller's use */

    _Atomic int state; /* mo_read_state; written last, with release order */
    mo_error error;    /* after FAILED: names the file and the offset */
    uint64_t time_ns;  /* after DONE: from submission to arrival */

    /* Private to the disk, under its lock. */
    struct mo_read *next, *prev;
    int64_t piece_at;    /* file offset of its next piece */
    int64_t piece_bytes; /* piece size, a multiple of MO_DISK_ALIGN */
    int64_t since_ns;    /* time of submission */
    int under_way;       /* pieces in flight */
    bool listed;         /* it has pending pieces */
    bool failed;
} mo_read;

/* Bytes of memory for a read: the aligned span around it. */
static inline int64_t mo_disk_capacity(int64_t offset, int64_t bytes)
{
    const int64_t from = offset / MO_DISK_ALIGN * MO_DISK_ALIGN;
    return (offset + bytes - from + MO_DISK_ALIGN - 1) / MO_DISK_ALIGN * MO_DISK_ALIGN;
}

/* Address of a read's first byte in its memory. */
uint8_t *mo_disk_data(const mo_read *r);

enum { MO_DISK_READERS = 64 };

typedef enum mo_disk_method { MO_DISK_THREADS, MO_DISK_URING } mo_disk_method;

typedef struct mo_disk_options {
    mo_io io;      /* MO_IO_AUTO: measured at open, on the files themselves */
    int readers;   /* threads, or the depth of io_uring; 0: chosen; at most MO_DISK_READERS */
    bool plain;    /* never io_uring */
    bool uring;    /* fail without io_uring: for tests and the probe */
    bool told;     /* another disk has opened the same files and logged the choice */
    int64_t piece; /* bytes of one physical read; 0: chosen */
    /* Memory that reads will go to, for registering with the kernel (io_uring only); may be NULL. Registering
     * pins it, which allocates all of its pages. If that is refused, reads work without it. The lists may be
     * freed after opening; the memory must stay valid until closing. */
    uint8_t *const *regions;
    const size_t *region_bytes;
    int region_count;
    /* For tests: called on the reading thread before each physical read of `bytes` bytes at `offset`; may
     * sleep. A status other than MO_OK fails the read; a smaller *bytes is a short read, and 0 the end of the
     * file. NULL: none. With it, reads use threads. */
    mo_status (*fault)(void *user, const mo_read *read, int64_t offset, int64_t *bytes);
    void *fault_user;
} mo_disk_options;

typedef struct mo_disk_counters {
    uint64_t reads, bytes; /* successful ones; requested bytes, not the aligned span */
    uint64_t failed;       /* including those cancelled by closing */
    uint64_t busy_ns;      /* time with at least one read in flight */
} mo_disk_counters;

#endif
