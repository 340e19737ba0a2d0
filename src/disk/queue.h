/* Disk queue: the reads that wait, by urgency, cut into pieces; what is under way; and the word that ended
 * reads are waited on. Readers (threads or io_uring) pop pieces and end them. */
#ifndef MO_DISK_QUEUE_H
#define MO_DISK_QUEUE_H

#include <pthread.h>

#include "disk/file.h"
#include "disk/read.h"

enum { MO_URGENCIES = MO_READ_GUESS + 1 };

/* One physical read: what is left of it. */
typedef struct mo_disk_piece {
    mo_read *read;
    int part;
    int64_t at, bytes; /* in the file; aligned in direct mode */
    int64_t need;      /* this many of them were requested: a direct read may end after the file */
    uint8_t *to;
} mo_disk_piece;

typedef struct mo_queue {
    pthread_mutex_t lock;
    /* Under the lock. */
    mo_read *first[MO_URGENCIES], *last[MO_URGENCIES];
    int unfinished; /* reads that are queued or under way */
    int under_way;  /* pieces */
    int64_t busy_since_ns;
    mo_disk_counters counters;
    bool closed;
    /* Constant. */
    bool direct;
    int64_t piece; /* most bytes of one */

    _Atomic uint64_t ended;
    _Atomic int waiters;
    _Atomic uint32_t bell; /* futex: changes when a read ends and a thread sleeps */
} mo_queue;

void mo_queue_init(mo_queue *q, bool direct, int64_t piece);
void mo_queue_destroy(mo_queue *q);

/* These take the lock. */
/* Returns how many pieces they make. */
int64_t mo_queue_put(mo_queue *q, mo_read *const *reads, int count);
void mo_queue_raise_priority(mo_queue *q, mo_read *read);
bool mo_queue_withdraw(mo_queue *q, mo_read *const *reads, int count);
mo_disk_counters mo_queue_count(mo_queue *q);
/* Fails pending reads; no piece can be popped any more. */
void mo_queue_close(mo_queue *q);

/* These are called with the lock held. */

bool mo_queue_empty(const mo_queue *q);
/* Removes the most urgent piece; false when there is none. */
bool mo_queue_pop(mo_queue *q, mo_disk_piece *out);
/* A piece was read, or failed. True when its read has ended: wake those who wait, without the lock. The
 * read must not be touched any more. */
bool mo_queue_end(mo_queue *q, const mo_disk_piece *piece, mo_status status, const mo_error *err);

void mo_queue_wake(mo_queue *q);
uint64_t mo_queue_wait(mo_queue *q, uint64_t seen);

/* What a physical read of a piece came to. */
typedef enum mo_disk_piece_result { MO_PIECE_DONE, MO_PIECE_MORE, MO_PIECE_FAILED } mo_disk_piece_result;

/* Notes that `got` bytes of the piece came, or -errno. MORE: the piece now is the rest, to be read again.
 * FAILED: err says why. */
mo_disk_piece_result mo_disk_piece_advance(mo_disk_piece *piece, const mo_disk_file *file, bool direct,
                                           int64_t got, mo_error *err);

#endif
