/* Disk queue: the pending reads by urgency, cut into pieces; the pieces in flight; and the futex for waiting
 * until reads end. Readers (threads or io_uring) pop pieces and end them. */
#ifndef MO_DISK_QUEUE_H
#define MO_DISK_QUEUE_H

#include <pthread.h>

#include "disk/file.h"
#include "disk/read.h"

enum { MO_URGENCIES = MO_READ_GUESS + 1 };

/* The rest of one physical read. */
typedef struct mo_disk_piece {
    mo_read *read;
    int part;
    int64_t at, bytes; /* in the file; aligned for direct reads */
    int64_t need;      /* requested bytes among them: a direct read may end after the file */
    uint8_t *to;
} mo_disk_piece;

typedef struct mo_queue {
    pthread_mutex_t lock;
    /* Under the lock. */
    mo_read *first[MO_URGENCIES], *last[MO_URGENCIES];
    int unfinished; /* reads queued or in flight */
    int under_way;  /* pieces in flight */
    int64_t busy_since_ns;
    mo_disk_counters counters;
    bool closed;
    /* Constant. */
    bool direct;
    int64_t piece; /* maximum bytes of a piece */

    _Atomic uint64_t ended;
    _Atomic int waiters;
    _Atomic uint32_t bell; /* futex: changes when a read ends while a thread sleeps */
} mo_queue;

void mo_queue_init(mo_queue *q, bool direct, int64_t piece);
void mo_queue_destroy(mo_queue *q);

/* These take the lock. */
/* Returns the number of their pieces. */
int64_t mo_queue_put(mo_queue *q, mo_read *const *reads, int count);
void mo_queue_raise_priority(mo_queue *q, mo_read *read);
bool mo_queue_withdraw(mo_queue *q, mo_read *const *reads, int count);
mo_disk_counters mo_queue_count(mo_queue *q);
/* Fails pending reads; no further piece can be popped. */
void mo_queue_close(mo_queue *q);

/* These are called with the lock held. */

bool mo_queue_empty(const mo_queue *q);
/* Removes the most urgent piece; false: there is none. */
bool mo_queue_pop(mo_queue *q, mo_disk_piece *out);
/* A piece was read, or failed. True: its read has ended; wake the waiting threads without the lock. The read
 * must not be accessed any more. */
bool mo_queue_end(mo_queue *q, const mo_disk_piece *piece, mo_status status, const mo_error *err);

void mo_queue_wake(mo_queue *q);
uint64_t mo_queue_wait(mo_queue *q, uint64_t seen);

/* Result of a physical read of a piece. */
typedef enum mo_disk_piece_result { MO_PIECE_DONE, MO_PIECE_MORE, MO_PIECE_FAILED } mo_disk_piece_result;

/* Records that `got` bytes of the piece were read, or -errno. MORE: the piece is now the rest, to be read
 * again. FAILED: err says why. */
mo_disk_piece_result mo_disk_piece_advance(mo_disk_piece *piece, const mo_disk_file *file, bool direct,
                                           int64_t got, mo_error *err);

#endif
