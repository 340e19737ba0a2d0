#include "plan/probe/file.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)8 << 20)

/* Random bytes that a file system cannot compress. */
static void fill(uint64_t *chunk, uint64_t *state)
{
    for (size_t i = 0; i < CHUNK_BYTES / sizeof *chunk; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        chunk[i] = *state;
    }
}

static mo_status fail_write(const char *directory, int64_t bytes, int code, mo_error *err)
{
    if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
        return mo_fail(err, MO_ENOSPC,
                       "%s: no space for a test file of %" PRId64 " MiB; free some space, choose another "
                       "directory, or measure with an existing model",
                       directory, bytes >> 20);
    }
    return mo_fail(err, MO_EIO, "%s: cannot write a test file: %s", directory, strerror(code));
}

static mo_status fill_file(int fd, const char *directory, int64_t bytes, mo_probe_file_fn go_on, void *user,
                           mo_error *err)
{
    uint64_t state = 88172645463325252u;
    uint64_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk) {
        return mo_fail(err, MO_ENOMEM, "out of memory while writing a test file");
    }
    mo_status status = MO_OK;
    for (int64_t at = 0; at < bytes && !status;) {
        const size_t part = bytes - at < (int64_t)CHUNK_BYTES ? (size_t)(bytes - at) : CHUNK_BYTES;
        fill(chunk, &state);
        const ssize_t written = pwrite(fd, chunk, part, at);
        if (written < 0 && errno != EINTR) {
            status = fail_write(directory, bytes, errno, err);
        } else if (!go_on(user)) {
            status = mo_fail(err, MO_ECANCELLED, "measuring was cancelled");
        }
        at += written > 0 ? written : 0;
    }
    free(chunk);
    return status;
}

mo_status mo_probe_file_create(const char *directory, int64_t bytes, mo_probe_file_fn go_on, void *user,
                               mo_probe_file *out, mo_error *err)
{
    char name[4096];
    directory = directory ? directory : ".";
    if (snprintf(name, sizeof name, "%s/.moraine-probe-XXXXXX", directory) >= (int)sizeof name) {
        return mo_fail(err, MO_EINVAL, "the directory name is too long");
    }
    const int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        return mo_fail(err, errno == ENOENT ? MO_ENOENT : MO_EIO,
                       "%s: cannot create a test file: %s; choose another directory", directory,
                       strerror(errno));
    }
    unlink(name);
    const int code = posix_fallocate(fd, 0, bytes);
    mo_status status = code ? fail_write(directory, bytes, code, err) : MO_OK;
    if (!status) {
        status = fill_file(fd, directory, bytes, go_on, user, err);
    }
    if (!status && fsync(fd) != 0) {
        status = fail_write(directory, bytes, errno, err);
    }
    if (status) {
        close(fd);
        return status;
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    out->fd = fd;
    snprintf(out->path, sizeof out->path, "/proc/self/fd/%d", fd);
    return MO_OK;
}

void mo_probe_file_remove(mo_probe_file *file)
{
    close(file->fd);
    file->fd = -1;
}
