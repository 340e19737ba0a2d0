#include "base/input.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maximum of one read; the kernel limits it to 2 GiB - 4 KiB anyway. */
#define READ_BYTES ((size_t)1 << 30)

struct mo_input {
    int fd;
    uint64_t bytes;
    char path[];
};

static mo_status fail_open(const char *path, int code, mo_error *err)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR: return mo_fail(err, MO_ENOENT, "%s: no such file; check the path", path);
    case EACCES:
    case EPERM: return mo_fail(err, MO_EIO, "%s: not readable by this user; check its permissions", path);
    case EMFILE:
    case ENFILE: return mo_fail(err, MO_EIO, "%s: too many open files; raise the limit (ulimit -n)", path);
    default: return mo_fail(err, MO_EIO, "%s: cannot open: %s", path, strerror(code));
    }
}

/* Finds the size of fd's file. An error if it cannot be read by position. */
static mo_status measure(int fd, const char *path, uint64_t *bytes, mo_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return mo_fail(err, MO_EIO, "%s: cannot get its size: %s", path, strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        return mo_fail(err, MO_EUNSUPPORTED, "%s: is a directory; give the file inside it", path);
    }
    off_t end = S_ISREG(st.st_mode) ? st.st_size : S_ISBLK(st.st_mode) ? lseek(fd, 0, SEEK_END) : -1;
    if (end < 0) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: is a pipe, socket or device and cannot be "
                       "read at arbitrary offsets; copy it to a file first",
                       path);
    }
    *bytes = (uint64_t)end;
    return MO_OK;
}

mo_status mo_input_open(const char *path, mo_input **out, mo_error *err)
{
    *out = NULL;
    size_t length = strlen(path);
    int fd;
    do { /* O_NONBLOCK: opening a named pipe without a writer must not block before it is refused */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return fail_open(path, errno, err);
    }
    uint64_t bytes = 0;
    mo_status status = measure(fd, path, &bytes, err);
    mo_input *input = status ? NULL : malloc(sizeof *input + length + 1);
    if (!input) {
        close(fd);
        return status ? status : mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    input->fd = fd;
    input->bytes = bytes;
    memcpy(input->path, path, length + 1);
    *out = input;
    return MO_OK;
}

void mo_input_close(mo_input *input)
{
    if (input) {
        close(input->fd);
        free(input);
    }
}

const char *mo_input_path(const mo_input *input)
{
    return input->path;
}

uint64_t mo_input_bytes(const mo_input *input)
{
    return input->bytes;
}

int mo_input_descriptor(const mo_input *input)
{
    return input->fd;
}

mo_status mo_input_read_at(const mo_input *input, void *data, size_t bytes, uint64_t offset, mo_error *err)
{
    if (offset > input->bytes || bytes > input->bytes - offset) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: %zu bytes at offset %" PRIu64 " are needed, but the file ends at %" PRIu64
                       "; it is damaged or truncated",
                       input->path, bytes, offset, input->bytes);
    }
    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < READ_BYTES ? bytes - done : READ_BYTES;
        ssize_t n = pread(input->fd, (unsigned char *)data + done, part, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return mo_fail(err, MO_EIO,
                           "%s: reading %zu bytes at offset %" PRIu64 " failed: %s; check the disk",
                           input->path, part, offset + done, strerror(errno));
        }
        if (n == 0) {
            return mo_fail(err, MO_EFORMAT,
                           "%s: the file was truncated while in use, it ends at %" PRIu64
                           " instead of %" PRIu64 "; do not modify a file that is open",
                           input->path, offset + done, input->bytes);
        }
        done += (size_t)n;
    }
    return MO_OK;
}
