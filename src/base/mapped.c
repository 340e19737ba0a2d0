#include "base/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

/* Never freed, because a handler may traverse the list at any time. Closed ones are reused. */
struct mo_mapped {
    /* Read by the handler; an empty range is closed. `end` is written first at closing and last at
       opening. */
    _Atomic uintptr_t begin, end;
    atomic_bool lost; /* a page could not be read */
    mo_mapped *next;  /* set before it is added to the list, then constant */
    bool used;        /* protected by the lock, as the following members */
    char *path;
    int fd; /* for checking the file; -1: not available */
    struct stat opened;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(mo_mapped *) list;
static int open_count;            /* protected by the lock */
static bool installed;            /* likewise: our handler was installed; another handler may still call it */
static struct sigaction previous; /* set before our handler is installed */
static _Atomic uintptr_t page_bytes;

/* ---- The signal handler: only loads, stores and mmap() ---- */

static mo_mapped *find(uintptr_t at)
{
    for (mo_mapped *m = atomic_load(&list); m; m = m->next) {
        const uintptr_t end = atomic_load(&m->end), begin = atomic_load(&m->begin);
        if (at >= begin && at < end && atomic_load(&m->end) == end) {
            return m;
        }
    }
    return NULL;
}

/* Data after the end of a truncated file is lost, including its last page. */
static bool put_zeros(mo_mapped *m, uintptr_t at)
{
    const uintptr_t from = at & ~(atomic_load(&page_bytes) - 1);
    void *zeros = mmap((void *)from, atomic_load(&m->end) - from, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    atomic_store(&m->lost, true);
    return zeros != MAP_FAILED;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else if (info->si_code > 0 || previous.sa_handler == SIG_DFL) {
        /* The fault repeats after the return, and then ends the process with the default action. */
        const struct sigaction end = {.sa_handler = SIG_DFL};
        sigaction(SIGBUS, &end, NULL);
        if (info->si_code <= 0) {
            raise(SIGBUS);
        }
    }
}

static void handle(int number, siginfo_t *info, void *context)
{
    const int before = errno;
    const uintptr_t at = (uintptr_t)info->si_addr;
    mo_mapped *m = info->si_code > 0 ? find(at) : NULL; /* 0 and negative: sent by a process */
    if (!m || !put_zeros(m, at)) {
        pass_on(number, info, context);
    }
    errno = before;
}

/* Call with the lock held. */
static void take_signal(void)
{
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) {
        return;
    }
    /* otherwise another handler was installed after ours, which may forward signals to ours */
    if (!installed) {
        const struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        atomic_store(&page_bytes, (uintptr_t)sysconf(_SC_PAGESIZE));
        previous = now;
        installed = sigaction(SIGBUS, &ours, NULL) == 0;
    }
}

/* Call with the lock held. */
static void give_signal_back(void)
{
    struct sigaction now;
    if (installed && sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == handle) {
        sigaction(SIGBUS, &previous, NULL);
        installed = false;
    }
}

/* ---- Mappings ---- */

/* A closed entry, or a new one at the head of the list. Call with the lock held. */
static mo_mapped *spare(void)
{
    for (mo_mapped *m = atomic_load(&list); m; m = m->next) {
        if (!m->used) {
            return m;
        }
    }
    mo_mapped *m = calloc(1, sizeof *m);
    if (m) {
        m->next = atomic_load(&list);
        atomic_store(&list, m);
    }
    return m;
}

/* Adds a mapping of the file to the list. NULL when out of memory. Call with the lock held. */
static mo_mapped *enter(const mo_input *input, void *data, size_t bytes)
{
    mo_mapped *m = spare();
    char *name = m ? strdup(mo_input_path(input)) : NULL;
    if (!name) {
        return NULL;
    }
    m->used = true;
    m->path = name;
    m->fd = fcntl(mo_input_descriptor(input), F_DUPFD_CLOEXEC, 0);
    if (m->fd >= 0 && fstat(m->fd, &m->opened) != 0) {
        close(m->fd);
        m->fd = -1;
    }
    atomic_store(&m->lost, false);
    atomic_store(&m->begin, (uintptr_t)data);
    atomic_store(&m->end, (uintptr_t)data + bytes);
    open_count++;
    take_signal();
    return m;
}

mo_status mo_mapped_open(const mo_input *input, size_t bytes, mo_mapped **out, mo_error *err)
{
    const char *path = mo_input_path(input);
    *out = NULL;
    if (mo_input_bytes(input) < bytes) {
        return mo_fail(err, MO_EFORMAT, "%s: the file was truncated while it was opened; download it again",
                       path);
    }
    void *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, mo_input_descriptor(input), 0);
    if (data == MAP_FAILED) {
        return mo_fail(err, MO_ENOMEM,
                       "%s: cannot map the file; its file system may "
                       "not support it, so load it without mapping",
                       path);
    }
    pthread_mutex_lock(&lock);
    mo_mapped *m = enter(input, data, bytes);
    pthread_mutex_unlock(&lock);
    if (!m) {
        munmap(data, bytes);
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while mapping the file; free some and try again",
                       path);
    }
    *out = m;
    return MO_OK;
}

void mo_mapped_close(mo_mapped *m)
{
    if (!m) {
        return;
    }
    pthread_mutex_lock(&lock);
    const uintptr_t begin = atomic_load(&m->begin), end = atomic_load(&m->end);
    atomic_store(&m->end, 0);
    atomic_store(&m->begin, 0);
    munmap((void *)begin, end - begin);
    if (m->fd >= 0) {
        close(m->fd);
    }
    free(m->path);
    m->path = NULL;
    m->used = false;
    if (--open_count == 0) {
        give_signal_back();
    }
    pthread_mutex_unlock(&lock);
}

uint8_t *mo_mapped_data(const mo_mapped *m)
{
    return (uint8_t *)atomic_load(&m->begin);
}

mo_status mo_mapped_check(const mo_mapped *m, mo_error *err)
{
    struct stat st;
    const bool seen = m->fd >= 0 && fstat(m->fd, &st) == 0;
    if (seen && st.st_size != m->opened.st_size) {
        return mo_fail(err, MO_EIO,
                       "%s: the file changed size while it was mapped, from "
                       "%lld to %lld bytes; restore it and reopen the model",
                       m->path, (long long)m->opened.st_size, (long long)st.st_size);
    }
    if (atomic_load(&m->lost)) {
        return mo_fail(err, MO_EIO,
                       "%s: reading the mapped file failed; "
                       "check the disk and reopen the model",
                       m->path);
    }
    if (seen &&
        (st.st_mtim.tv_sec != m->opened.st_mtim.tv_sec || st.st_mtim.tv_nsec != m->opened.st_mtim.tv_nsec)) {
        return mo_fail(err, MO_EIO,
                       "%s: the file was modified while it was mapped; restore it and reopen the model",
                       m->path);
    }
    return MO_OK;
}

static sigset_t only_bus(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    return set;
}

void mo_mapped_enter(sigset_t *before)
{
    const sigset_t set = only_bus();
    pthread_sigmask(SIG_UNBLOCK, &set, before);
}

void mo_mapped_leave(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
