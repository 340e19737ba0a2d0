/* The disk owns its files, one queue, and its readers: threads, or io_uring's single thread. */
#include "disk/disk.h"

#include "base/status.h"
#include "base/thread.h"
#include "disk/queue.h"
#include "disk/uring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A submitter wakes this many readers; those wake the others. A wake-up costs its caller 1 to 3 us. */
#define WAKE_FANOUT 4

struct mo_disk {
    mo_queue queue;
    mo_disk_file *files;
    int file_count;
    mo_disk_options options; /* with all choices made */
    char reason[MO_DISK_REASON];
    mo_uring *uring; /* or: */
    pthread_t threads[MO_DISK_READERS];
    int thread_count;
    pthread_cond_t work; /* with the queue's lock */
    _Atomic int idle;    /* waiting threads; changed under the lock */
};

/* ---- Reader threads ---- */

/* pread() with faults injected by tests: bytes, or -errno; or *status. */
static int64_t read_some(mo_disk *disk, const mo_disk_piece *p, mo_status *status)
{
    int64_t bytes = p->bytes;
    if (disk->options.fault) {
        *status = disk->options.fault(disk->options.fault_user, p->read, p->at, &bytes);
        if (*status) {
            return 0;
        }
    }
    const ssize_t got = pread(disk->files[p->part].fd, p->to, (size_t)bytes, (off_t)p->at);
    return got < 0 ? -errno : got;
}

static mo_status read_piece(mo_disk *disk, mo_disk_piece *p, mo_error *err)
{
    for (;;) {
        const mo_disk_file *file = &disk->files[p->part];
        mo_status injected = MO_OK;
        const int64_t got = read_some(disk, p, &injected);
        if (injected) {
            mo_disk_file_failed(file, p->at, p->bytes, EIO, err);
            return err->status = injected;
        }
        switch (mo_disk_piece_advance(p, file, disk->queue.direct, got, err)) {
        case MO_PIECE_DONE: return MO_OK;
        case MO_PIECE_FAILED: return err->status;
        case MO_PIECE_MORE: break;
        }
    }
}

/* Waits for a piece, with the lock held. False when the disk closes. */
static bool await_piece(mo_disk *disk, mo_disk_piece *out)
{
    while (!mo_queue_pop(&disk->queue, out)) {
        if (disk->queue.closed) {
            return false;
        }
        atomic_fetch_add(&disk->idle, 1);
        pthread_cond_wait(&disk->work, &disk->queue.lock);
        atomic_fetch_sub(&disk->idle, 1);
    }
    return true;
}

static void *serve(void *arg)
{
    mo_disk *disk = arg;
    mo_queue *q = &disk->queue;
    mo_disk_piece piece;
    mo_error err;
    pthread_mutex_lock(&q->lock);
    while (await_piece(disk, &piece)) {
        const bool more = atomic_load(&disk->idle) > 0 && !mo_queue_empty(q);
        pthread_mutex_unlock(&q->lock);
        if (more) {
            pthread_cond_signal(&disk->work);
        }
        const mo_status status = read_piece(disk, &piece, &err);
        pthread_mutex_lock(&q->lock);
        if (mo_queue_end(q, &piece, status, &err)) {
            pthread_mutex_unlock(&q->lock);
            mo_queue_wake(q);
            pthread_mutex_lock(&q->lock);
        }
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static mo_status start_threads(mo_disk *disk, mo_error *err)
{
    int code = 0;
    while (disk->thread_count < disk->options.readers && code == 0) {
        code = mo_thread_start(&disk->threads[disk->thread_count], "mo-read", serve, disk);
        disk->thread_count += code == 0;
    }
    return code == 0 ? MO_OK
                     : mo_fail(err, MO_ENOMEM, "cannot start a reader thread: %s; raise the thread limit",
                               strerror(code));
}

/* ---- Opening ---- */

static mo_status open_files(mo_disk *disk, const char *const *paths, int count, mo_error *err)
{
    disk->files = calloc((size_t)count, sizeof *disk->files);
    if (!disk->files) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %d files", count);
    }
    for (int i = 0; i < count; i++) {
        const mo_status status =
            mo_disk_file_open(paths[i], disk->options.io == MO_IO_DIRECT, &disk->files[i], err);
        if (status) {
            return status;
        }
        disk->file_count++;
    }
    return MO_OK;
}

static void add_reason(mo_disk *disk, const char *text)
{
    const size_t used = strlen(disk->reason);
    snprintf(disk->reason + used, sizeof disk->reason - used, "; %s", text);
}

/* Threads replace io_uring if it cannot be used as in the trial: it fails the second time (the trial's memory
 * may still be charged to us), or the caller's memory cannot be registered. */
static mo_status start_readers(mo_disk *disk, int threads, mo_error *err)
{
    if (!disk->options.uring) {
        return start_threads(disk, err);
    }
    mo_error fault = {0};
    const mo_status status =
        mo_uring_start(&disk->queue, disk->files, disk->file_count, &disk->options, &disk->uring, &fault);
    if (status && threads == 0) {
        return mo_fail(err, status, "%s", fault.detail);
    }
    add_reason(disk, status ? fault.detail : mo_uring_memory(disk->uring));
    if (!status && (threads == 0 || disk->options.region_count == 0 || mo_uring_registered(disk->uring))) {
        return MO_OK;
    }
    add_reason(disk, "so threads are used");
    mo_uring_stop(disk->uring);
    disk->uring = NULL;
    disk->options.uring = false;
    disk->options.plain = true;
    disk->options.readers = threads;
    return start_threads(disk, err);
}

mo_status mo_disk_start(const char *const *paths, int count, const mo_disk_settings *settings, mo_disk **out,
                        mo_error *err)
{
    mo_disk *disk = calloc(1, sizeof *disk);
    *out = NULL;
    if (!disk) {
        return mo_fail(err, MO_ENOMEM, "out of memory while opening %s", paths[0]);
    }
    disk->options = settings->options;
    memcpy(disk->reason, settings->reason, sizeof disk->reason);
    mo_queue_init(&disk->queue, disk->options.io == MO_IO_DIRECT, disk->options.piece);
    pthread_cond_init(&disk->work, NULL);
    mo_status status = open_files(disk, paths, count, err);
    if (status == MO_OK) {
        status = start_readers(disk, settings->threads, err);
    }
    if (status) {
        mo_disk_close(disk);
        return status;
    }
    disk->options.regions = NULL; /* the caller owns the lists */
    disk->options.region_bytes = NULL;
    disk->options.region_count = 0;
    *out = disk;
    return MO_OK;
}

void mo_disk_close(mo_disk *disk)
{
    if (!disk) {
        return;
    }
    mo_queue_close(&disk->queue);
    pthread_cond_broadcast(&disk->work);
    for (int i = 0; i < disk->thread_count; i++) {
        pthread_join(disk->threads[i], NULL);
    }
    mo_uring_stop(disk->uring);
    for (int i = 0; i < disk->file_count; i++) {
        mo_disk_file_close(&disk->files[i]);
    }
    pthread_cond_destroy(&disk->work);
    mo_queue_destroy(&disk->queue);
    free(disk->files);
    free(disk);
}

uint8_t *mo_disk_data(const mo_read *r)
{
    return r->memory + r->offset % MO_DISK_ALIGN;
}

mo_io mo_disk_io(const mo_disk *disk)
{
    return disk->options.io;
}

mo_disk_method mo_disk_chosen(const mo_disk *disk)
{
    return disk->uring ? MO_DISK_URING : MO_DISK_THREADS;
}

int mo_disk_readers(const mo_disk *disk)
{
    return disk->options.readers;
}

const char *mo_disk_reason(const mo_disk *disk)
{
    return disk->reason;
}

int mo_disk_files(const mo_disk *disk)
{
    return disk->file_count;
}

int64_t mo_disk_file_bytes(const mo_disk *disk, int part)
{
    return disk->files[part].bytes;
}

int64_t mo_disk_file_changed_ns(const mo_disk *disk, int part)
{
    const struct timespec *t = &disk->files[part].changed;
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void mo_disk_forget(const mo_disk *disk, int part, int64_t offset, int64_t bytes)
{
    posix_fadvise(disk->files[part].fd, offset, bytes, POSIX_FADV_DONTNEED);
}

/* ---- Reads ---- */

void mo_disk_submit(mo_disk *disk, mo_read *const *reads, int count)
{
    for (int i = 0; i < count; i++) {
        assert(reads[i]->part >= 0 && reads[i]->part < disk->file_count);
    }
    const int64_t pieces = mo_queue_put(&disk->queue, reads, count); /* the reads belong to the readers now */
    if (disk->uring) {
        mo_uring_wake(disk->uring);
        return;
    }
    const int idle = atomic_load(&disk->idle);
    for (int i = 0; i < WAKE_FANOUT && i < pieces && i < idle; i++) {
        pthread_cond_signal(&disk->work);
    }
}

void mo_disk_raise_priority(mo_disk *disk, mo_read *read)
{
    mo_queue_raise_priority(&disk->queue, read);
}

bool mo_disk_withdraw(mo_disk *disk, mo_read *const *reads, int count)
{
    const bool done = mo_queue_withdraw(&disk->queue, reads, count);
    if (done) { /* they would not end otherwise */
        mo_queue_wake(&disk->queue);
    }
    return done;
}

uint64_t mo_disk_wait(mo_disk *disk, uint64_t seen)
{
    return mo_queue_wait(&disk->queue, seen);
}

uint64_t mo_disk_ended(const mo_disk *disk)
{
    return atomic_load(&disk->queue.ended);
}

void mo_disk_finish(mo_disk *disk, const mo_read *reads, int count)
{
    uint64_t seen = mo_disk_ended(disk);
    for (int i = 0; i < count;) {
        const int state = atomic_load_explicit(&reads[i].state, memory_order_acquire);
        if (state == MO_READ_DONE || state == MO_READ_FAILED) {
            i++;
        } else {
            seen = mo_disk_wait(disk, seen);
        }
    }
}

/* Locking the queue does not count as a change for const callers. */
static mo_queue *queue_of(const mo_disk *disk)
{
    return (mo_queue *)&disk->queue;
}

mo_disk_counters mo_disk_count(const mo_disk *disk)
{
    return mo_queue_count(queue_of(disk));
}
