/* Read: one read of a model's files, where its bytes go, and how a disk is asked to do many of them. */
#ifndef MO_DISK_READ_H
#define MO_DISK_READ_H

#include <stdatomic.h>

#include "moraine.h"

/* Offsets, lengths and addresses of direct reads are multiples of this. */
enum { MO_DISK_ALIGN = 4096 };

typedef enum mo_read_state { MO_READ_IDLE, MO_READ_QUEUED, MO_READ_DONE, MO_READ_FAILED } mo_read_state;

typedef enum mo_urgency {
    MO_READ_NOW,   /* a thread waits for it */
    MO_READ_AHEAD, /* will be needed in known order: behind those */
    MO_READ_GUESS, /* may be needed: only when nothing else waits */
} mo_urgency;

/* One read. Its memory belongs to the caller and must stay until the state is DONE or FAILED.
 * Begins as zeros; after it has ended it may be filled and submitted again. Reads that are larger
 * than a piece are cut into pieces, which several readers serve at once. */
typedef struct mo_read {
    int part;              /* which file */
    int64_t offset, bytes; /* bytes > 0 */
    uint8_t *memory; /* aligned to MO_DISK_ALIGN, mo_disk_capacity() bytes; data begin at mo_disk_data() */
    mo_urgency urgency;
    void *user; /* for the caller */

    _Atomic int state; /* mo_read_state; written last, with release order */
    mo_error error;    /* after FAILED: names the file and the offset */
    uint64_t time_ns;  /* after DONE: from submission to arrival */

    /* The disk's own, under its lock. */
    struct mo_read *next, *prev;
    int64_t piece_at;    /* where in the file its next piece begins */
    int64_t piece_bytes; /* of its pieces, a multiple of MO_DISK_ALIGN */
    int64_t since_ns;    /* submitted */
    int under_way;       /* pieces that are being read */
    bool listed;         /* untaken pieces are left */
    bool failed;
} mo_read;

/* Bytes of memory that a read needs: the aligned span around it. */
static inline int64_t mo_disk_capacity(int64_t offset, int64_t bytes)
{
    const int64_t from = offset / MO_DISK_ALIGN * MO_DISK_ALIGN;
    return (offset + bytes - from + MO_DISK_ALIGN - 1) / MO_DISK_ALIGN * MO_DISK_ALIGN;
}

/* Where in its memory a read's bytes begin. */
uint8_t *mo_disk_data(const mo_read *r);

enum { MO_DISK_READERS = 64 };

typedef enum mo_disk_method { MO_DISK_THREADS, MO_DISK_URING } mo_disk_method;

typedef struct mo_disk_options {
    mo_io io;      /* MO_IO_AUTO: measured when opened, on the files themselves */
    int readers;   /* threads, or the depth of io_uring; 0: chosen; at most MO_DISK_READERS */
    bool plain;    /* never io_uring */
    bool uring;    /* io_uring or failure: for tests and the probe */
    bool told;     /* the same files are also open by another disk, which has logged the choice */
    int64_t piece; /* bytes of one physical read; 0: chosen */
    /* Memory that reads will go to, for registering with the kernel (io_uring only); may be NULL. Registering pins
     * it: all of its pages are taken at once. Where that is refused, reads go on without. The lists may go
     * after opening; the memory stays until closing. */
    uint8_t *const *regions;
    const size_t *region_bytes;
    int region_count;
    /* For tests: called on the reading thread before each physical read of `bytes` bytes at `offset`; may
     * sleep; a failure other than MO_OK is that read's failure, *bytes made smaller is a short read, and 0 the
     * end of the file. NULL: none. With it, reads go through threads. */
    mo_status (*fault)(void *user, const mo_read *read, int64_t offset, int64_t *bytes);
    void *fault_user;
} mo_disk_options;

typedef struct mo_disk_counters {
    uint64_t reads, bytes; /* that ended well; bytes as asked for, not the aligned span */
    uint64_t failed;       /* those of closing included */
    uint64_t busy_ns;      /* time during which at least one read was under way */
} mo_disk_counters;

#endif
