#include "disk/file.h"

#include "base/status.h"
#include "disk/read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mo_status refuse_direct(const char *path, mo_error *err)
{
    return mo_fail(err, MO_EUNSUPPORTED,
                   "%s: its file system does not support direct reads (O_DIRECT); "
                   "read it through the page cache, or move it to a local disk",
                   path);
}

/* Some file systems accept the flag but refuse the read, so one is tried. */
static mo_status make_direct(int fd, const char *path, mo_error *err)
{
    /* The same descriptor: opening the path again could open another file. */
    if (fcntl(fd, F_SETFL, O_RDONLY | O_DIRECT) != 0) {
        return refuse_direct(path, err);
    }
    void *page = aligned_alloc(MO_DISK_ALIGN, MO_DISK_ALIGN);
    if (!page) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", path);
    }
    const ssize_t got = pread(fd, page, MO_DISK_ALIGN, 0);
    const int code = errno;
    free(page);
    if (got >= 0) {
        return MO_OK;
    }
    if (code == EINVAL || code == EOPNOTSUPP) {
        return refuse_direct(path, err);
    }
    return mo_fail(err, MO_EIO, "%s: cannot read its beginning: %s; check the disk", path, strerror(code));
}

static mo_status make_cached(int fd, const char *path, mo_error *err)
{
    /* Clears O_NONBLOCK, which mo_input_open() sets: io_uring would interpret it as "do not wait for the
     * disk". */
    if (fcntl(fd, F_SETFL, O_RDONLY) != 0) {
        return mo_fail(err, MO_EIO, "%s: cannot be prepared for reading: %s", path, strerror(errno));
    }
    /* Reads only what is requested: readahead would fill memory with unneeded bytes. It is advice, so a
     * refusal does not matter. */
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    return MO_OK;
}

mo_status mo_disk_file_open(const char *path, bool direct, mo_disk_file *out, mo_error *err)
{
    *out = (mo_disk_file){.fd = -1};
    mo_input *input;
    mo_status status = mo_input_open(path, &input, err);
    if (status) {
        return status;
    }
    const int fd = mo_input_descriptor(input);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = mo_fail(err, MO_EIO, "%s: cannot get its size: %s", path, strerror(errno));
    } else {
        status = direct ? make_direct(fd, path, err) : make_cached(fd, path, err);
    }
    if (status) {
        mo_input_close(input);
        return status;
    }
    *out = (mo_disk_file){
        .input = input,
        .fd = fd,
        .bytes = (int64_t)mo_input_bytes(input),
        .watched = S_ISREG(st.st_mode),
        .changed = st.st_mtim,
    };
    return MO_OK;
}

void mo_disk_file_close(mo_disk_file *file)
{
    mo_input_close(file->input);
    *file = (mo_disk_file){.fd = -1};
}

mo_status mo_disk_file_check(const mo_disk_file *file, int64_t at, mo_error *err)
{
    struct stat st;
    if (!file->watched) {
        return MO_OK;
    }
    const char *path = mo_input_path(file->input);
    if (fstat(file->fd, &st) != 0) {
        return mo_fail(err, MO_EIO,
                       "%s: cannot get its status while reading offset %" PRId64 ": %s; check the disk", path,
                       at, strerror(errno));
    }
    if (st.st_size != file->bytes) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: the file changed size while it was in use, from %" PRId64 " to %" PRId64
                       " bytes (noticed at offset %" PRId64 "); restore it and reopen the model",
                       path, file->bytes, (int64_t)st.st_size, at);
    }
    if (st.st_mtim.tv_sec != file->changed.tv_sec || st.st_mtim.tv_nsec != file->changed.tv_nsec) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: the file was modified while it was in use (noticed at offset %" PRId64
                       "); restore it and reopen the model",
                       path, at);
    }
    return MO_OK;
}

mo_status mo_disk_file_failed(const mo_disk_file *file, int64_t at, int64_t bytes, int code, mo_error *err)
{
    return mo_fail(err, MO_EIO,
                   "%s: reading %" PRId64 " bytes at offset %" PRId64
                   " failed: %s; check the disk (see dmesg), or copy the file to another one",
                   mo_input_path(file->input), bytes, at, strerror(code));
}

mo_status mo_disk_file_ended(const mo_disk_file *file, int64_t at, int64_t bytes, mo_error *err)
{
    const mo_status status = mo_disk_file_check(file, at, err);
    if (status) {
        return status; /* the better reason */
    }
    return mo_fail(err, MO_EFORMAT,
                   "%s: %" PRId64 " bytes at offset %" PRId64
                   " are needed, but reading stopped there (the file has %" PRId64
                   " bytes); it is damaged or truncated, download it again",
                   mo_input_path(file->input), bytes, at, file->bytes);
}
