#include "server/scheduler/cachedir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/status.h"

struct srv_cachedir {
    char *path;
    int fd; /* of the directory */
    char *key;
};

/* A file: this, then the key, the tokens and the state. */
typedef struct header {
    char magic[8];
    uint64_t key_bytes, tokens, state_bytes;
    uint64_t beginning; /* checksum of key and tokens */
    uint64_t state;     /* and of the state */
} header;

static const char magic[8] = {'M', 'O', 'K', 'E', 'P', 'T', '0', '1'};
static const char suffix[] = ".session", unfinished[] = ".unfinished";

enum { TOKENS_MAX = 1 << 27, KEY_MAX = 4096 };

static mo_status fail(mo_error *err, mo_status status, const char *what, const char *path, int number)
{
    return mo_fail(err, status, "%s: %s%s%s", path, what, number ? ": " : "", number ? strerror(number) : "");
}

static uint64_t checksum(uint64_t h, const void *data, size_t size)
{
    const uint8_t *at = data;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; size; at++, size--) {
        h = (h ^ *at) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return h;
}

static uint64_t beginning_of(const char *key, size_t key_bytes, const int32_t *tokens, size_t count)
{
    return checksum(checksum(1, key, key_bytes), tokens, sizeof *tokens * count);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* ---- The directory ---------------------------------------------------------------------------- */

typedef struct listed {
    char name[SRV_CACHEDIR_NAME];
    int64_t bytes;
    struct timespec time;
} listed;

static int by_time(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (x->time.tv_sec != y->time.tv_sec) {
        return x->time.tv_sec < y->time.tv_sec ? -1 : 1;
    }
    return (x->time.tv_nsec > y->time.tv_nsec) - (x->time.tv_nsec < y->time.tv_nsec);
}

/* The sessions, the oldest first; free() *out. */
static mo_status list(const srv_cachedir *d, listed **out, size_t *count, mo_error *err)
{
    size_t capacity = 0;
    const int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    *out = NULL;
    *count = 0;
    if (!dir) {
        const int number = errno;
        if (fd >= 0) {
            close(fd);
        }
        return fail(err, MO_EIO, "cannot be read", d->path, number);
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat info;
        if (!ends_with(entry->d_name, suffix) || strlen(entry->d_name) >= SRV_CACHEDIR_NAME ||
            fstatat(d->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        if (!mo_array_reserve(out, &capacity, *count + 1, sizeof **out)) {
            free(*out);
            *out = NULL;
            closedir(dir);
            return fail(err, MO_ENOMEM, "out of memory while listing it", d->path, 0);
        }
        listed *l = &(*out)[(*count)++];
        memcpy(l->name, entry->d_name, strlen(entry->d_name) + 1);
        l->bytes = info.st_size;
        l->time = info.st_mtim;
    }
    closedir(dir);
    if (*count) {
        qsort(*out, *count, sizeof **out, by_time);
    }
    return MO_OK;
}

/* Removes a draft unless it is being written, by this server for another model or by another one that lives. A writer has a
 * lock on it: numbers of processes say nothing where each container has its own. It goes while it is locked here, so that a writer
 * who has just made it sees, once it has the lock, that its file is gone. */
static void remove_draft(const srv_cachedir *d, const char *draft)
{
    const int fd = openat(d->fd, draft, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
        unlinkat(d->fd, draft, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void remove_unfinished(const srv_cachedir *d)
{
    const int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (ends_with(entry->d_name, unfinished)) {
            remove_draft(d, entry->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static mo_status remove_oldest(const srv_cachedir *d, int64_t limit, mo_error *err)
{
    listed *files;
    size_t count;
    int64_t total = 0;
    const mo_status status = list(d, &files, &count, err);
    for (size_t i = 0; status == MO_OK && i < count; i++) {
        total += files[i].bytes;
    }
    for (size_t i = 0; status == MO_OK && i < count && total > limit; i++) {
        unlinkat(d->fd, files[i].name, 0);
        total -= files[i].bytes;
    }
    free(files);
    return status;
}

mo_status srv_cachedir_open(const char *directory, const char *key, int64_t limit, srv_cachedir **out,
                            mo_error *err)
{
    srv_cachedir *d = calloc(1, sizeof *d);
    mo_status status = MO_OK;
    *out = NULL;
    if (d) {
        d->fd = -1;
        d->path = strdup(directory);
        d->key = strdup(key);
    }
    if (!d || !d->path || !d->key) {
        srv_cachedir_close(d);
        return fail(err, MO_ENOMEM, "out of memory while opening it", directory, 0);
    }
    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        status = fail(err, MO_EIO, "cannot create the cache directory", directory, errno);
    } else if ((d->fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        status = fail(err, MO_EIO, "cannot open the cache directory", directory, errno);
    } else {
        remove_unfinished(d);
        status = remove_oldest(d, limit, err);
    }
    if (status != MO_OK) {
        srv_cachedir_close(d);
        return status;
    }
    *out = d;
    return MO_OK;
}

void srv_cachedir_close(srv_cachedir *dir)
{
    if (dir) {
        if (dir->fd >= 0) {
            close(dir->fd);
        }
        free(dir->path);
        free(dir->key);
        free(dir);
    }
}

void srv_cachedir_remove(srv_cachedir *dir, const char *name)
{
    unlinkat(dir->fd, name, 0);
}

/* ---- Reading ---------------------------------------------------------------------------------- */

static bool read_all(int fd, void *to, size_t size)
{
    uint8_t *at = to;
    while (size) {
        const ssize_t n = read(fd, at, size < 1 << 30 ? size : 1 << 30);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* Opens a file whose sizes make sense and whose key is this one's; tokens are read and checked. -1: it is of no use. */
static int open_session(const srv_cachedir *d, const char *name, header *h, int32_t **tokens, int64_t *bytes)
{
    struct stat info;
    char key[KEY_MAX];
    const size_t key_bytes = strlen(d->key);
    *tokens = NULL;
    const int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && read_all(fd, h, sizeof *h) &&
        memcmp(h->magic, magic, sizeof magic) == 0 && h->key_bytes == key_bytes && key_bytes < sizeof key &&
        h->tokens > 0 && h->tokens <= TOKENS_MAX && h->state_bytes <= (uint64_t)info.st_size &&
        (uint64_t)info.st_size == sizeof *h + h->key_bytes + 4 * h->tokens + h->state_bytes &&
        read_all(fd, key, key_bytes) && memcmp(key, d->key, key_bytes) == 0) {
        *tokens = malloc(4 * h->tokens);
        *bytes = info.st_size;
        if (*tokens && read_all(fd, *tokens, 4 * h->tokens) &&
            h->beginning == beginning_of(key, key_bytes, *tokens, h->tokens)) {
            return fd;
        }
    }
    free(*tokens);
    *tokens = NULL;
    close(fd);
    return -1;
}

mo_status srv_cachedir_each(srv_cachedir *dir, srv_cachedir_fn fn, void *user, mo_error *err)
{
    listed *files;
    size_t count;
    const mo_status status = list(dir, &files, &count, err);
    for (size_t i = 0; status == MO_OK && files && i < count; i++) {
        header h;
        int32_t *tokens;
        int64_t bytes;
        const int fd = open_session(dir, files[i].name, &h, &tokens, &bytes);
        if (fd >= 0) {
            fn(user, files[i].name, tokens, (int64_t)h.tokens, bytes);
            free(tokens);
            close(fd);
        }
    }
    free(files);
    return status;
}

mo_status srv_cachedir_read_as(srv_cachedir *dir, const char *name, int32_t **tokens, int64_t *count,
                               uint8_t **state, size_t *size, int64_t *bytes, mo_error *err)
{
    header h;
    *state = NULL;
    const int fd = open_session(dir, name, &h, tokens, bytes);
    if (fd < 0) {
        return fail(err, MO_EFORMAT, "the cached session is missing, damaged or of another model", name, 0);
    }
    mo_status status = MO_OK;
    if (!(*state = malloc(h.state_bytes + 1))) {
        status = fail(err, MO_ENOMEM, "out of memory while reading the cached session", name, 0);
    } else if (!read_all(fd, *state, h.state_bytes) || checksum(2, *state, h.state_bytes) != h.state) {
        status = fail(err, MO_EFORMAT, "the cached session is damaged", name, 0);
    }
    if (status == MO_OK) {
        futimens(fd, NULL); /* it was used; where that cannot be noted it is forgotten sooner */
        *count = (int64_t)h.tokens;
        *size = h.state_bytes;
    } else {
        free(*state);
        free(*tokens);
        *state = NULL;
        *tokens = NULL;
    }
    close(fd);
    return status;
}

mo_status srv_cachedir_read(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                            uint8_t **state, size_t *size, mo_error *err)
{
    int32_t *own = NULL;
    int64_t own_count = 0, bytes;
    mo_status status = srv_cachedir_read_as(dir, name, &own, &own_count, state, size, &bytes, err);
    if (status == MO_OK && (!own || own_count != count || memcmp(own, tokens, 4 * (size_t)count) != 0)) {
        free(*state);
        *state = NULL;
        status = fail(err, MO_EFORMAT, "the cached session is a different one", name, 0);
    }
    free(own);
    return status;
}

/* ---- Writing ---------------------------------------------------------------------------------- */

static bool write_all(int fd, const void *from, size_t size)
{
    const uint8_t *at = from;
    while (size) {
        const ssize_t n = write(fd, at, size < 1 << 30 ? size : 1 << 30);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* Waits for a cleanup, which holds it for a moment. False: errno has the reason. */
static bool lock(int fd)
{
    int got;
    do {
        got = flock(fd, LOCK_EX);
    } while (got != 0 && errno == EINTR);
    return got == 0;
}

/* A new file, locked; its name is written to `draft`. -1: errno says why. */
static int open_draft(const srv_cachedir *dir, uint64_t beginning, char *draft, size_t size)
{
    static _Atomic unsigned number; /* so that no two of this process are one */
    for (;;) {
        struct stat info;
        snprintf(draft, size, "%016llx-%ld-%u%s", (unsigned long long)beginning, (long)getpid(), number++,
                 unfinished);
        const int fd = openat(dir->fd, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST) {
            continue; /* of a process with the same number, in another container */
        }
        if (fd < 0) {
            return -1;
        }
        /* Where files cannot be locked, another server may take it for left behind. */
        if (!lock(fd) || fstat(fd, &info) != 0 || info.st_nlink > 0) {
            return fd;
        }
        close(fd); /* a cleanup ran before the lock was taken */
    }
}

mo_status srv_cachedir_write_as(srv_cachedir *dir, const char *name, const int32_t *tokens, int64_t count,
                                const uint8_t *state, size_t size, int64_t *bytes, mo_error *err)
{
    char draft[64];
    const size_t key_bytes = strlen(dir->key);
    header h = {.key_bytes = key_bytes,
                .tokens = (uint64_t)count,
                .state_bytes = size,
                .beginning = beginning_of(dir->key, key_bytes, tokens, (size_t)count),
                .state = checksum(2, state, size)};
    memcpy(h.magic, magic, sizeof magic);
    *bytes = (int64_t)(sizeof h + key_bytes + 4 * h.tokens + size);
    const int fd = open_draft(dir, h.beginning, draft, sizeof draft);
    if (fd < 0) {
        return fail(err, errno == ENOSPC ? MO_ENOSPC : MO_EIO, "cannot write a cached session", dir->path,
                    errno);
    }
    const bool written = write_all(fd, &h, sizeof h) && write_all(fd, dir->key, key_bytes) &&
                         write_all(fd, tokens, 4 * h.tokens) && write_all(fd, state, size) &&
                         fdatasync(fd) == 0;
    int number = written ? 0 : errno;
    if (written && renameat(dir->fd, draft, dir->fd, name) != 0) {
        number = errno;
    }
    close(fd);
    if (!number && fsync(dir->fd) != 0) {
        number = errno;
    }
    if (number) {
        unlinkat(dir->fd, draft, 0);
        return fail(err, number == ENOSPC ? MO_ENOSPC : MO_EIO, "cannot write a cached session", dir->path,
                    number);
    }
    return MO_OK;
}

mo_status srv_cachedir_write(srv_cachedir *dir, const int32_t *tokens, int64_t count, const uint8_t *state,
                             size_t size, char name[SRV_CACHEDIR_NAME], int64_t *bytes, mo_error *err)
{
    const uint64_t beginning = beginning_of(dir->key, strlen(dir->key), tokens, (size_t)count);
    snprintf(name, SRV_CACHEDIR_NAME, "%016llx%s", (unsigned long long)beginning, suffix);
    return srv_cachedir_write_as(dir, name, tokens, count, state, size, bytes, err);
}
