#include "disk/uring.h"

#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"

#ifdef MO_URING

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The kernel allows at most 1 GiB per registered buffer, and this many buffers. */
#define BUFFER_BYTES ((size_t)1 << 30)
#define MAX_BUFFERS  16384

/* Marks the completion for new work in the queue. */
#define WAKE_TAG UINT64_MAX

struct mo_uring {
    struct io_uring ring; /* used only by the driving thread once it runs */
    mo_queue *queue;
    const mo_disk_file *files;
    bool files_registered;
    struct iovec *buffers; /* registered memory */
    int buffer_count;
    int event; /* eventfd: written when the queue has work and the thread could have more in flight */
    uint64_t event_value;
    bool awaited;           /* the event is being read: the kernel will write event_value */
    _Atomic bool listening; /* set by the thread under the queue's lock; whoever clears it writes the event */
    _Atomic bool stop;
    pthread_t thread;
    char memory[160];
    int depth, free_count;
    int free_slots[MO_DISK_READERS];
    mo_disk_piece pieces[MO_DISK_READERS];
};

bool mo_uring_built(void)
{
    return true;
}

/* ---- The driving thread ---- */

static struct io_uring_sqe *next_sqe(mo_uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    assert(sqe); /* the ring holds depth pieces and the event */
    return sqe;
}

static void listen_event(mo_uring *u)
{
    struct io_uring_sqe *sqe = next_sqe(u);
    io_uring_prep_read(sqe, u->event, &u->event_value, sizeof u->event_value, 0);
    io_uring_sqe_set_data64(sqe, WAKE_TAG);
    u->awaited = true;
}

/* The registered buffer that contains the whole range, or -1. */
static int find_buffer(const mo_uring *u, const uint8_t *to, int64_t bytes)
{
    for (int i = 0; i < u->buffer_count; i++) {
        const uint8_t *base = u->buffers[i].iov_base;
        if (to >= base && to + bytes <= base + u->buffers[i].iov_len) {
            return i;
        }
    }
    return -1;
}

static void prepare(mo_uring *u, int slot)
{
    const mo_disk_piece *p = &u->pieces[slot];
    struct io_uring_sqe *sqe = next_sqe(u);
    const int fd = u->files_registered ? p->part : u->files[p->part].fd;
    const int buffer = find_buffer(u, p->to, p->bytes);
    if (buffer >= 0) {
        io_uring_prep_read_fixed(sqe, fd, p->to, (unsigned)p->bytes, (uint64_t)p->at, buffer);
    } else {
        io_uring_prep_read(sqe, fd, p->to, (unsigned)p->bytes, (uint64_t)p->at);
    }
    if (u->files_registered) {
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    }
    io_uring_sqe_set_data64(sqe, (uint64_t)slot);
}

/* Fills the ring from the queue. False: it must stop and nothing is in flight, including the read of the
 * event, which the stopping thread writes. If left to the end of the ring, that read would complete later, in
 * memory that is reused by then. */
static bool fill(mo_uring *u)
{
    int fresh[MO_DISK_READERS], count = 0;
    pthread_mutex_lock(&u->queue->lock);
    while (u->free_count > 0 && mo_queue_pop(u->queue, &u->pieces[u->free_slots[u->free_count - 1]])) {
        fresh[count++] = u->free_slots[--u->free_count];
    }
    atomic_store(&u->listening, u->free_count > 0);
    pthread_mutex_unlock(&u->queue->lock);
    for (int i = 0; i < count; i++) {
        prepare(u, fresh[i]);
    }
    return u->free_count < u->depth || u->awaited || !atomic_load(&u->stop);
}

/* A piece has completed, fully or not. */
static void arrive(mo_uring *u, int slot, int result)
{
    mo_disk_piece *p = &u->pieces[slot];
    mo_error err;
    const mo_disk_piece_result what =
        mo_disk_piece_advance(p, &u->files[p->part], u->queue->direct, result, &err);
    if (what == MO_PIECE_MORE) {
        prepare(u, slot);
        return;
    }
    pthread_mutex_lock(&u->queue->lock);
    const bool ended = mo_queue_end(u->queue, p, what == MO_PIECE_FAILED ? err.status : MO_OK, &err);
    pthread_mutex_unlock(&u->queue->lock);
    p->read = NULL;
    u->free_slots[u->free_count++] = slot;
    if (ended) {
        mo_queue_wake(u->queue);
    }
}

static void reap(mo_uring *u)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        const uint64_t tag = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (tag == WAKE_TAG) {
            u->awaited = false;
            if (!atomic_load(&u->stop)) {
                listen_event(u);
            }
        } else {
            arrive(u, (int)tag, result);
        }
    }
}

static void pause_1_ms(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Fails every piece with this error, in flight or queued. */
static void fail_pieces(mo_uring *u, int error)
{
    mo_error err;
    const mo_status status =
        mo_fail(&err, MO_EIO, "the kernel no longer accepts reads by io_uring: %s", strerror(error));
    pthread_mutex_lock(&u->queue->lock);
    for (int slot = 0; slot < u->depth; slot++) {
        if (u->pieces[slot].read) {
            mo_queue_end(u->queue, &u->pieces[slot], status, &err);
            u->pieces[slot].read = NULL;
        }
    }
    for (mo_disk_piece p; mo_queue_pop(u->queue, &p);) {
        mo_queue_end(u->queue, &p, status, &err);
    }
    pthread_mutex_unlock(&u->queue->lock);
    mo_queue_wake(u->queue);
}

/* The kernel refuses permanently, as after its file was closed: later reads fail. */
static void refuse_all(mo_uring *u, int error)
{
    mo_log(MO_LOG_ERROR, "disk", "the kernel no longer accepts reads by io_uring (%s); restart the program",
           strerror(error));
    while (!atomic_load(&u->stop)) {
        fail_pieces(u, error);
        pause_1_ms();
    }
    fail_pieces(u, error);
}

static void *drive(void *arg)
{
    mo_uring *u = arg;
    listen_event(u);
    while (fill(u)) {
        const int submitted = io_uring_submit_and_wait(&u->ring, 1);
        if (submitted == -EAGAIN || submitted == -EBUSY || submitted == -ENOMEM) {
            pause_1_ms(); /* temporarily out of memory or completions; prepared entries stay prepared */
        } else if (submitted < 0 && submitted != -EINTR) {
            refuse_all(u, -submitted);
            break;
        }
        reap(u);
    }
    return NULL;
}

/* ---- Starting and stopping ---- */

static void register_memory(mo_uring *u, const mo_disk_options *o)
{
    size_t count = 0;
    for (int i = 0; i < o->region_count; i++) {
        count += (o->region_bytes[i] + BUFFER_BYTES - 1) / BUFFER_BYTES;
    }
    if (count == 0 || count > MAX_BUFFERS) {
        snprintf(u->memory, sizeof u->memory, "memory not registered: %s",
                 count ? "too many regions" : "none was given");
        return;
    }
    u->buffers = calloc(count, sizeof *u->buffers);
    if (!u->buffers) {
        snprintf(u->memory, sizeof u->memory, "memory not registered: out of memory");
        return;
    }
    size_t n = 0;
    for (int i = 0; i < o->region_count; i++) {
        for (size_t at = 0; at < o->region_bytes[i]; at += BUFFER_BYTES) {
            const size_t rest = o->region_bytes[i] - at;
            u->buffers[n++] = (struct iovec){.iov_base = o->regions[i] + at,
                                             .iov_len = rest < BUFFER_BYTES ? rest : BUFFER_BYTES};
        }
    }
    const int code = io_uring_register_buffers(&u->ring, u->buffers, (unsigned)n);
    if (code == 0) {
        u->buffer_count = (int)n;
        snprintf(u->memory, sizeof u->memory, "registered memory");
    } else {
        snprintf(u->memory, sizeof u->memory, "memory not registered: %s%s", strerror(-code),
                 code == -ENOMEM ? " (raise the limit of locked memory, ulimit -l)" : "");
    }
}

static void register_files(mo_uring *u, int count)
{
    int *fds = calloc((size_t)count, sizeof *fds);
    for (int i = 0; fds && i < count; i++) {
        fds[i] = u->files[i].fd;
    }
    u->files_registered = fds && io_uring_register_files(&u->ring, fds, (unsigned)count) == 0;
    free(fds);
}

static mo_status refuse(int code, mo_error *err)
{
    if (code == EPERM || code == EACCES || code == ENOSYS) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "io_uring is not allowed here (%s): a container policy or kernel.io_uring_disabled "
                       "forbids it, or the kernel does not support it; use reader threads",
                       strerror(code));
    }
    return mo_fail(err, MO_EUNSUPPORTED, "cannot start io_uring: %s; use reader threads", strerror(code));
}

static void release(mo_uring *u)
{
    if (u->event >= 0) {
        close(u->event);
    }
    free(u->buffers);
    free(u);
}

static mo_status start_thread(mo_uring *u)
{
    return mo_thread_start(&u->thread, "mo-uring", drive, u) ? MO_ENOMEM : MO_OK;
}

mo_status mo_uring_start(mo_queue *queue, const mo_disk_file *files, int count,
                         const mo_disk_options *options, mo_uring **out, mo_error *err)
{
    *out = NULL;
    mo_uring *u = calloc(1, sizeof *u);
    if (!u) {
        return mo_fail(err, MO_ENOMEM, "out of memory for io_uring");
    }
    u->queue = queue;
    u->files = files;
    u->depth = u->free_count = options->readers;
    for (int i = 0; i < u->depth; i++) {
        u->free_slots[i] = i;
    }
    u->event = eventfd(0, EFD_CLOEXEC);
    /* Space for every piece and the event. */
    const int code = u->event < 0 ? -errno : io_uring_queue_init((unsigned)u->depth + 1, &u->ring, 0);
    if (code < 0) {
        release(u);
        return refuse(-code, err);
    }
    register_memory(u, options);
    register_files(u, count);
    if (start_thread(u)) {
        io_uring_queue_exit(&u->ring);
        release(u);
        return mo_fail(err, MO_ENOMEM, "cannot start the disk thread; raise the thread limit");
    }
    *out = u;
    return MO_OK;
}

static void write_event(mo_uring *u)
{
    const uint64_t one = 1;
    while (write(u->event, &one, sizeof one) < 0) {
        if (errno != EINTR) {
            mo_log(MO_LOG_ERROR, "disk", "cannot wake the disk thread: %s", strerror(errno));
            return;
        }
    }
}

void mo_uring_wake(mo_uring *u)
{
    if (atomic_load(&u->listening) && atomic_exchange(&u->listening, false)) {
        write_event(u);
    }
}

void mo_uring_stop(mo_uring *u)
{
    if (!u) {
        return;
    }
    atomic_store(&u->stop, true);
    write_event(u);
    pthread_join(u->thread, NULL);
    /* Unregister here: closing the ring would do it later, and until then the memory and the files would
     * count as in use. */
    if (u->buffer_count > 0) {
        io_uring_unregister_buffers(&u->ring);
    }
    if (u->files_registered) {
        io_uring_unregister_files(&u->ring);
    }
    io_uring_queue_exit(&u->ring);
    release(u);
}

const char *mo_uring_memory(const mo_uring *u)
{
    return u->memory;
}

bool mo_uring_registered(const mo_uring *u)
{
    return u->buffer_count > 0;
}

#else

bool mo_uring_built(void)
{
    return false;
}

mo_status mo_uring_start(mo_queue *queue, const mo_disk_file *files, int count,
                         const mo_disk_options *options, mo_uring **out, mo_error *err)
{
    (void)queue, (void)files, (void)count, (void)options;
    *out = NULL;
    return mo_fail(err, MO_EUNSUPPORTED,
                   "this build has no io_uring; install liburing "
                   "(liburing-dev) and rebuild, or use reader threads");
}

void mo_uring_wake(mo_uring *ring)
{
    (void)ring;
}

void mo_uring_stop(mo_uring *ring)
{
    (void)ring;
}

const char *mo_uring_memory(const mo_uring *ring)
{
    (void)ring;
    return "";
}

bool mo_uring_registered(const mo_uring *ring)
{
    (void)ring;
    return false;
}

#endif
