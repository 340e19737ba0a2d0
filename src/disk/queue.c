#include "disk/queue.h"

#include "base/clock.h"
#include "base/status.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Longer spinning would keep a core from the readers, which may have no other. */
#define SPIN_NS 4000

void mo_queue_init(mo_queue *q, bool direct, int64_t piece)
{
    *q = (mo_queue){.direct = direct, .piece = piece};
    pthread_mutex_init(&q->lock, NULL);
}

void mo_queue_destroy(mo_queue *q)
{
    pthread_mutex_destroy(&q->lock);
}

/* ---- Lists, under the lock ---- */

static void append(mo_queue *q, mo_read *r)
{
    mo_read **first = &q->first[r->urgency], **last = &q->last[r->urgency];
    r->next = NULL;
    r->prev = *last;
    r->listed = true;
    *(*last ? &(*last)->next : first) = r;
    *last = r;
}

static void unlist(mo_queue *q, mo_read *r)
{
    *(r->prev ? &r->prev->next : &q->first[r->urgency]) = r->next;
    *(r->next ? &r->next->prev : &q->last[r->urgency]) = r->prev;
    r->next = r->prev = NULL;
    r->listed = false;
}

static int64_t span_begin(const mo_read *r)
{
    return r->offset / MO_DISK_ALIGN * MO_DISK_ALIGN;
}

bool mo_queue_empty(const mo_queue *q)
{
    for (int u = 0; u < MO_URGENCIES; u++) {
        if (q->first[u]) {
            return false;
        }
    }
    return true;
}

/* The read is complete. Its owner may free it as soon as the state is written. */
static void end_read(mo_queue *q, mo_read *r)
{
    if (r->failed) {
        q->counters.failed++;
    } else {
        r->time_ns = (uint64_t)(mo_clock_ns() - r->since_ns);
        q->counters.reads++;
        q->counters.bytes += (uint64_t)r->bytes;
    }
    q->unfinished--;
    atomic_store_explicit(&r->state, r->failed ? MO_READ_FAILED : MO_READ_DONE, memory_order_release);
}

static void fail_closed(mo_read *r)
{
    r->failed = true;
    mo_fail(&r->error, MO_ECANCELLED, "the model was closed before this read finished");
}

/* ---- Adding and removing reads ---- */

/* Cuts a read into pieces of equal size, so that they end together. Returns their number. */
static int64_t cut(const mo_queue *q, mo_read *r)
{
    const int64_t span = mo_disk_capacity(r->offset, r->bytes);
    const int64_t count = (span + q->piece - 1) / q->piece;
    const int64_t even = (span + count - 1) / count;
    r->piece_bytes = (even + MO_DISK_ALIGN - 1) / MO_DISK_ALIGN * MO_DISK_ALIGN;
    r->piece_at = span_begin(r);
    return count;
}

int64_t mo_queue_put(mo_queue *q, mo_read *const *reads, int count)
{
    int64_t pieces = 0;
    const int64_t now = mo_clock_ns();
    pthread_mutex_lock(&q->lock);
    assert(!q->closed);
    for (int i = 0; i < count; i++) {
        mo_read *r = reads[i];
        assert(r->offset >= 0 && r->bytes > 0 && (uintptr_t)r->memory % MO_DISK_ALIGN == 0);
        assert(r->urgency >= MO_READ_NOW && r->urgency <= MO_READ_GUESS);
        assert(atomic_load_explicit(&r->state, memory_order_relaxed) != MO_READ_QUEUED);
        r->since_ns = now;
        r->under_way = 0;
        r->failed = false;
        pieces += cut(q, r);
        append(q, r);
        atomic_store_explicit(&r->state, MO_READ_QUEUED, memory_order_relaxed);
    }
    q->unfinished += count;
    pthread_mutex_unlock(&q->lock);
    return pieces;
}

void mo_queue_raise_priority(mo_queue *q, mo_read *read)
{
    pthread_mutex_lock(&q->lock);
    if (read->listed && read->urgency != MO_READ_NOW) {
        unlist(q, read);
        read->urgency = MO_READ_NOW;
        append(q, read);
    }
    pthread_mutex_unlock(&q->lock);
}

bool mo_queue_withdraw(mo_queue *q, mo_read *const *reads, int count)
{
    bool untouched = true;
    pthread_mutex_lock(&q->lock);
    for (int i = 0; i < count; i++) {
        untouched = untouched && reads[i]->listed && reads[i]->piece_at == span_begin(reads[i]);
    }
    for (int i = 0; i < count && untouched; i++) {
        unlist(q, reads[i]);
        q->unfinished--;
        atomic_store_explicit(&reads[i]->state, MO_READ_IDLE, memory_order_relaxed);
    }
    pthread_mutex_unlock(&q->lock);
    return untouched;
}

mo_disk_counters mo_queue_count(mo_queue *q)
{
    pthread_mutex_lock(&q->lock);
    mo_disk_counters counters = q->counters;
    if (q->under_way > 0) {
        counters.busy_ns += (uint64_t)(mo_clock_ns() - q->busy_since_ns);
    }
    pthread_mutex_unlock(&q->lock);
    return counters;
}

void mo_queue_close(mo_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    for (int u = 0; u < MO_URGENCIES; u++) {
        while (q->first[u]) {
            mo_read *r = q->first[u];
            unlist(q, r);
            fail_closed(r);
            if (r->under_way == 0) {
                end_read(q, r);
            }
        }
    }
    pthread_mutex_unlock(&q->lock);
    mo_queue_wake(q);
}

/* ---- Pieces, under the lock ---- */

bool mo_queue_pop(mo_queue *q, mo_disk_piece *out)
{
    int u = 0;
    while (u < MO_URGENCIES && !q->first[u]) {
        u++;
    }
    if (u == MO_URGENCIES) {
        return false;
    }
    mo_read *r = q->first[u];
    const int64_t asked_end = r->offset + r->bytes;
    const int64_t span_end = span_begin(r) + mo_disk_capacity(r->offset, r->bytes);
    const int64_t end = r->piece_at + r->piece_bytes < span_end ? r->piece_at + r->piece_bytes : span_end;
    *out = (mo_disk_piece){.read = r, .part = r->part, .at = r->piece_at, .bytes = end - r->piece_at};
    if (!q->direct) { /* exactly the requested bytes */
        out->at = out->at > r->offset ? out->at : r->offset;
        out->bytes = (end < asked_end ? end : asked_end) - out->at;
    }
    out->need = (end < asked_end ? end : asked_end) - out->at;
    out->to = r->memory + (out->at - span_begin(r));
    r->piece_at = end;
    r->under_way++;
    if (end == span_end) {
        unlist(q, r);
    }
    if (q->under_way++ == 0) {
        q->busy_since_ns = mo_clock_ns();
    }
    return true;
}

bool mo_queue_end(mo_queue *q, const mo_disk_piece *piece, mo_status status, const mo_error *err)
{
    mo_read *r = piece->read;
    if (--q->under_way == 0) {
        q->counters.busy_ns += (uint64_t)(mo_clock_ns() - q->busy_since_ns);
    }
    if (status && !r->failed) {
        r->failed = true;
        r->error = *err;
        if (r->listed) {
            unlist(q, r);
        }
    }
    if (--r->under_way > 0 || r->listed) {
        return false;
    }
    end_read(q, r);
    return true;
}

mo_disk_piece_result mo_disk_piece_advance(mo_disk_piece *piece, const mo_disk_file *file, bool direct,
                                           int64_t got, mo_error *err)
{
    if (got == -EINTR) {
        return MO_PIECE_MORE;
    }
    if (got < 0) {
        mo_disk_file_failed(file, piece->at, piece->bytes, (int)-got, err);
        return MO_PIECE_FAILED;
    }
    if (got >= piece->need) {
        /* After the read, so that a change before its end is detected. */
        return mo_disk_file_check(file, piece->at, err) ? MO_PIECE_FAILED : MO_PIECE_DONE;
    }
    const int64_t step = direct ? got / MO_DISK_ALIGN * MO_DISK_ALIGN : got;
    if (step == 0) {
        mo_disk_file_ended(file, piece->at + got, piece->need - got, err);
        return MO_PIECE_FAILED;
    }
    piece->at += step;
    piece->to += step;
    piece->bytes -= step;
    piece->need -= step;
    return MO_PIECE_MORE;
}

/* ---- Waiting. A sleeper increments `waiters` and then checks `ended` again; the end of a read increments
 * `ended` and then checks `waiters`: sequentially consistent, so one of the two sees the other. ---- */

void mo_queue_wake(mo_queue *q)
{
    atomic_fetch_add(&q->ended, 1);
    if (atomic_load(&q->waiters) > 0) {
        atomic_fetch_add(&q->bell, 1);
        syscall(SYS_futex, &q->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

uint64_t mo_queue_wait(mo_queue *q, uint64_t seen)
{
    const int64_t until = mo_clock_ns() + SPIN_NS;
    uint64_t now;
    do {
        now = atomic_load(&q->ended);
        if (now != seen) {
            return now;
        }
        cpu_pause();
    } while (mo_clock_ns() < until);
    while (now == seen) {
        const uint32_t bell = atomic_load(&q->bell);
        atomic_fetch_add(&q->waiters, 1);
        if (atomic_load(&q->ended) == seen) {
            syscall(SYS_futex, &q->bell, FUTEX_WAIT_PRIVATE, bell, NULL, NULL, 0);
        }
        atomic_fetch_sub(&q->waiters, 1);
        now = atomic_load(&q->ended);
    }
    return now;
}
