#include "base/output.h"

#include "base/size_text.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Our own suffix, so that other programs' partial downloads are never overwritten. */
#define SUFFIX      ".moraine-part"
#define WRITE_BYTES ((size_t)1 << 30)

struct mo_output {
    int fd;
    bool seekable;
    bool temporary;           /* written as `part`, later renamed to `path` */
    uint64_t bytes;           /* announced size, 0: unknown */
    uint64_t position;        /* position of append */
    _Atomic uint64_t written; /* by all threads, for messages */
    char *path, *part;
};

/* ---- Errors ----------------------------------------------------------------------------------- */

static bool is_full(int code)
{
    return code == ENOSPC || code == EFBIG || code == EDQUOT;
}

static const char *why_full(int code)
{
    return code == EDQUOT  ? "the disk quota is exhausted"
           : code == EFBIG ? "the file exceeds the size limit (ulimit -f) or that of the file system"
                           : "no space left on the device";
}

static mo_status fail_reserve(const char *path, uint64_t bytes, int code, uint64_t bytes_free, mo_error *err)
{
    char needed[32], free_text[32];
    if (!is_full(code)) {
        return mo_fail(err, MO_EIO, "%s: %s cannot be reserved: %s", path, mo_size_text(bytes, needed),
                       strerror(code));
    }
    if (code == ENOSPC) {
        return mo_fail(err, MO_ENOSPC,
                       "%s: the file needs %s, but only %s are free; free some space or choose another path",
                       path, mo_size_text(bytes, needed), mo_size_text(bytes_free, free_text));
    }
    return mo_fail(err, MO_ENOSPC, "%s: the file needs %s, but %s; raise the limit or choose another path",
                   path, mo_size_text(bytes, needed), why_full(code));
}

static mo_status fail_write(const mo_output *o, int code, mo_error *err)
{
    char written[32], whole[32], of[48] = "";
    mo_size_text(o->written, written);
    if (!is_full(code)) {
        return mo_fail(err, MO_EIO, "%s: writing failed after %s: %s", o->path, written, strerror(code));
    }
    if (o->bytes) {
        snprintf(of, sizeof of, " of %s", mo_size_text(o->bytes, whole));
    }
    return mo_fail(err, MO_ENOSPC, "%s: %s, after %s%s were written; free some space or choose another path",
                   o->path, why_full(code), written, of);
}

static mo_status fail_create(const char *path, int code, mo_error *err)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR: return mo_fail(err, MO_ENOENT, "%s: its directory does not exist; create it first", path);
    case EACCES:
    case EPERM:
    case EROFS:
        return mo_fail(err, MO_EIO, "%s: cannot be written (%s); choose another path", path, strerror(code));
    case ENAMETOOLONG: return mo_fail(err, MO_EINVAL, "%s: the name is too long; choose a shorter one", path);
    default:
        return mo_fail(err, is_full(code) ? MO_ENOSPC : MO_EIO, "%s: cannot be created: %s", path,
                       strerror(code));
    }
}

/* ---- Creating ---- */

/* Does the temporary file still have its name? Another process may have renamed it before we locked it. */
static bool same_file(int fd, const char *part)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && stat(part, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

/* Opens and locks the temporary file, or reuses the file of a killed process. The lock excludes others. */
static mo_status open_part(mo_output *o, mo_error *err)
{
    for (;;) {
        o->fd = open(o->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (o->fd < 0 && errno == EINTR) {
            continue;
        }
        if (o->fd < 0) {
            return fail_create(o->path, errno, err);
        }
        if (flock(o->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(o->fd);
            o->fd = -1;
            return mo_fail(err, MO_EINVAL, "%s: another process is writing this file (%s); wait for it",
                           o->path, o->part);
        }
        if (same_file(o->fd, o->part)) {
            o->temporary = true; /* it must be removed by us from now on */
            o->seekable = true;
            break;
        }
        close(o->fd);
        o->fd = -1;
    }
    if (ftruncate(o->fd, 0) != 0) {
        return fail_create(o->path, errno, err);
    }
    return MO_OK;
}

/* Writing beyond RLIMIT_FSIZE raises SIGXFSZ, which ends the program, so check first. */
static bool over_limit(const mo_output *o, uint64_t end)
{
    struct rlimit limit;
    return o->temporary && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           end > limit.rlim_cur;
}

static uint64_t bytes_free(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* Reserves the announced space. If the file system does not support this, compares its free space and sets
   the size: writing zeros, as posix_fallocate() does, would take as long as the work itself. */
static mo_status reserve(mo_output *o, mo_error *err)
{
    uint64_t bytes = o->bytes;
    if (bytes == 0) {
        return MO_OK;
    }
    if (bytes > INT64_MAX || over_limit(o, bytes)) {
        return fail_reserve(o->path, bytes, EFBIG, 0, err);
    }
    uint64_t space = bytes_free(o->fd);
    if (space < bytes) {
        return fail_reserve(o->path, bytes, ENOSPC, space, err);
    }
    int failed;
    do {
        failed = fallocate(o->fd, 0, 0, (off_t)bytes) ? errno : 0;
    } while (failed == EINTR);
    if (failed == EOPNOTSUPP || failed == ENOSYS || failed == EINVAL) {
        failed = ftruncate(o->fd, (off_t)bytes) ? errno : 0;
    }
    return failed ? fail_reserve(o->path, bytes, failed, bytes_free(o->fd), err) : MO_OK;
}

/* Pipes and devices are written directly. */
static mo_status open_special(mo_output *o, mo_error *err)
{
    do {
        o->fd = open(o->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } while (o->fd < 0 && errno == EINTR);
    if (o->fd < 0) {
        return fail_create(o->path, errno, err);
    }
    struct stat st;
    bool ordered = fstat(o->fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(o->fd));
    o->seekable = !ordered && lseek(o->fd, 0, SEEK_CUR) >= 0;
    return MO_OK;
}

static void free_output(mo_output *o)
{
    if (o->fd >= 0) {
        close(o->fd);
    }
    free(o->path);
    free(o->part);
    free(o);
}

mo_status mo_output_create(const char *path, uint64_t bytes, mo_output **out, mo_error *err)
{
    *out = NULL;
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) {
        return mo_fail(err, MO_EINVAL, "%s: is a directory; give a file name", path);
    }
    mo_output *o = calloc(1, sizeof *o);
    if (!o) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while creating it", path);
    }
    o->fd = -1;
    o->bytes = bytes;
    bool special = exists && !S_ISREG(st.st_mode);
    /* Follows symbolic links: the rename must replace the file, not the link. */
    o->path = exists && !special ? realpath(path, NULL) : strdup(path);
    if (o->path && asprintf(&o->part, "%s" SUFFIX, o->path) < 0) {
        o->part = NULL;
    }
    mo_status status;
    if (!o->path || !o->part) {
        status = mo_fail(err, MO_ENOMEM, "%s: out of memory while creating it", path);
    } else if (special) {
        status = open_special(o, err);
    } else {
        status = open_part(o, err);
        status = status ? status : reserve(o, err);
    }
    if (status) {
        mo_output_abort(o);
        return status;
    }
    *out = o;
    return MO_OK;
}

bool mo_output_seekable(const mo_output *output)
{
    return output->seekable;
}

/* ---- Writing ---------------------------------------------------------------------------------- */

static mo_status write_all(mo_output *o, const void *data, size_t bytes, uint64_t offset, mo_error *err)
{
    if (offset > INT64_MAX || bytes > INT64_MAX - offset || over_limit(o, offset + bytes)) {
        return fail_write(o, EFBIG, err);
    }
    for (size_t done = 0; done < bytes;) {
        const unsigned char *from = (const unsigned char *)data + done;
        size_t part = bytes - done < WRITE_BYTES ? bytes - done : WRITE_BYTES;
        ssize_t n =
            o->seekable ? pwrite(o->fd, from, part, (off_t)(offset + done)) : write(o->fd, from, part);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return fail_write(o, n < 0 ? errno : ENOSPC, err);
        }
        done += (size_t)n;
        atomic_fetch_add_explicit(&o->written, (uint64_t)n, memory_order_relaxed);
    }
    return MO_OK;
}

mo_status mo_output_append(mo_output *output, const void *data, size_t bytes, mo_error *err)
{
    mo_status status = write_all(output, data, bytes, output->position, err);
    if (!status) {
        output->position += bytes;
    }
    return status;
}

mo_status mo_output_write_at(mo_output *output, const void *data, size_t bytes, uint64_t offset,
                             mo_error *err)
{
    if (!output->seekable) {
        if (offset != output->position) {
            return mo_fail(err, MO_EUNSUPPORTED,
                           "%s: a pipe can only be written sequentially, it is at %" PRIu64
                           ", not at %" PRIu64 "; choose a file instead",
                           output->path, output->position, offset);
        }
        return mo_output_append(output, data, bytes, err);
    }
    return write_all(output, data, bytes, offset, err);
}

/* ---- Ending ----------------------------------------------------------------------------------- */

/* Some file systems report a full disk only when a descriptor is closed. Closing a copy reports it and keeps
   the lock, so that no other process takes the temporary file before it is renamed. */
static int close_copy(int fd)
{
    int copy = dup(fd);
    return copy >= 0 && close(copy) != 0 && errno != EINTR ? errno : 0;
}

mo_status mo_output_commit(mo_output *output, mo_error *err)
{
    int failed = close_copy(output->fd);
    mo_status status = failed ? fail_write(output, failed, err) : MO_OK;
    if (!status && output->temporary) {
        if (rename(output->part, output->path) != 0) {
            status = mo_fail(err, MO_EIO, "%s: cannot rename the finished file: %s", output->path,
                             strerror(errno));
        } else {
            output->temporary = false;
        }
    }
    mo_output_abort(output);
    return status;
}

void mo_output_abort(mo_output *output)
{
    if (!output) {
        return;
    }
    if (output->temporary && output->part) {
        unlink(output->part);
    }
    free_output(output);
}
