#include "profile/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cachedir.h"
#include "base/clock.h"
#include "base/input.h"
#include "base/output.h"
#include "base/status.h"
#include "profile/json.h"

enum {
    LOCK_SECONDS = 10,
    ASIDE_MAX = 100,
    FILE_BYTES_MAX = 256 << 20, /* a million experts need less */
};

/* ---- Paths ---- */

mo_status mo_profile_file_path(uint64_t fingerprint, char *path, size_t size, mo_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "%016" PRIx64 ".json", fingerprint);
    return mo_cachedir_path(name, path, size, err);
}

/* ---- Lock ---- */

/* Locks path.lock, which is never removed: otherwise two processes could lock different files. */
static mo_status lock(const char *path, int *fd, mo_error *err)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name) {
        return mo_fail(err, MO_EINVAL, "%.200s...: the path is too long", path);
    }
    do {
        *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    } while (*fd < 0 && errno == EINTR);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return mo_fail(err, MO_ENOENT, "%s: its directory does not exist; create it first", path);
    }
    if (*fd < 0) {
        return mo_fail(err, errno == ENOSPC || errno == EDQUOT ? MO_ENOSPC : MO_EIO,
                       "%s: cannot be opened: %s", name, strerror(errno));
    }
    const int64_t end = mo_clock_ns() + LOCK_SECONDS * INT64_C(1000000000);
    const struct timespec pause = {.tv_nsec = 5000000};
    while (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || mo_clock_ns() > end) {
            const int code = errno;
            close(*fd);
            return mo_fail(err, MO_EIO, "%s: cannot be locked (%s); does another process use it?", name,
                           strerror(code));
        }
        nanosleep(&pause, NULL);
    }
    return MO_OK;
}

static void unlock(int fd)
{
    close(fd);
}

/* ---- Reading ---- */

static mo_status read_text(const char *path, char **text, size_t *length, mo_error *err)
{
    mo_input *input = NULL;
    *text = NULL;
    mo_status status = mo_input_open(path, &input, err);
    if (status) {
        return status;
    }
    const uint64_t bytes = mo_input_bytes(input);
    if (bytes > FILE_BYTES_MAX) {
        status = mo_fail(err, MO_EFORMAT, "%s: is too large for a profile (%" PRIu64 " bytes)", path, bytes);
    } else {
        *text = malloc((size_t)bytes + 1);
        status = *text ? mo_input_read_at(input, *text, (size_t)bytes, 0, err)
                       : mo_fail(err, MO_ENOMEM,
                                 "%s: out of memory while reading it; free some and try again", path);
    }
    mo_input_close(input);
    if (status) {
        free(*text);
        *text = NULL;
        return status;
    }
    *length = (size_t)bytes;
    return MO_OK;
}

mo_status mo_profile_file_read(const char *path, mo_profile **out, mo_error *err)
{
    char *text;
    size_t length;
    *out = NULL;
    mo_status status = read_text(path, &text, &length, err);
    if (status) {
        return status;
    }
    status = mo_profile_json_read(text, length, out, err);
    free(text);
    return status ? mo_fail_prefix(err, status, "%s", path) : MO_OK;
}

/* Reads a model's own file and checks that it is that model's. */
static mo_status read_own(const char *path, uint64_t fingerprint, mo_profile **out, mo_error *err)
{
    mo_status status = mo_profile_file_read(path, out, err);
    if (!status && (*out)->fingerprint != fingerprint) {
        status = mo_fail(err, MO_EFORMAT, "%s: belongs to another model (%016" PRIx64 ", not %016" PRIx64 ")",
                         path, (*out)->fingerprint, fingerprint);
        mo_profile_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- Moving aside ---- */

/* Renames an unusable file. err describes its fault; the new name is appended. Call with the lock held. */
static mo_status move_aside(const char *path, mo_error *err)
{
    char name[PATH_MAX];
    for (int i = 1; i <= ASIDE_MAX; i++) {
        if (snprintf(name, sizeof name, "%s.aside-%d", path, i) >= (int)sizeof name) {
            break;
        }
        struct stat st;
        if (lstat(name, &st) == 0) {
            continue;
        }
        if (rename(path, name) != 0) {
            return mo_fail(err, MO_EIO, "%s: is not a usable profile and cannot be moved aside: %s", path,
                           strerror(errno));
        }
        if (err) {
            const size_t used = strlen(err->detail);
            snprintf(err->detail + used, sizeof err->detail - used,
                     "; it is kept as %s, and recording starts over", name);
        }
        return MO_OK;
    }
    return mo_fail(err, MO_EIO, "%s: is not a usable profile, and %d were already moved aside; remove some",
                   path, ASIDE_MAX);
}

/* Reads the file with the lock held. *moved: it was renamed, and *out is NULL as if there were no file. */
static mo_status read_locked(const char *path, uint64_t fingerprint, mo_profile **out, mo_error *moved,
                             mo_error *err)
{
    mo_error fault = {0};
    moved->status = MO_OK;
    mo_status status = read_own(path, fingerprint, out, &fault);
    if (status == MO_ENOENT) {
        return MO_OK;
    }
    if (status == MO_EFORMAT) {
        *moved = fault;
        status = move_aside(path, moved);
        if (!status) {
            return MO_OK;
        }
        fault = *moved;
        moved->status = MO_OK;
    }
    return status ? mo_fail(err, status, "%s", fault.detail) : MO_OK;
}

mo_status mo_profile_file_load(const char *path, uint64_t fingerprint, mo_profile **out, mo_error *err)
{
    mo_error moved;
    int fd = -1;
    mo_status status = read_own(path, fingerprint, out, err);
    if (status != MO_EFORMAT) {
        return status;
    }
    /* again with the lock: another process may have renamed it or saved a new one */
    status = lock(path, &fd, err);
    if (status) {
        return status;
    }
    status = read_locked(path, fingerprint, out, &moved, err);
    unlock(fd);
    if (!status && moved.status) {
        return mo_fail(err, MO_EFORMAT, "%s", moved.detail);
    }
    return !status && !*out ? mo_fail(err, MO_ENOENT, "%s: no such profile yet", path) : status;
}

/* ---- Writing ---- */

/* Waits until the file with this name is on the disk. */
static mo_status sync_name(const char *name, int flags, mo_error *err)
{
    const int fd = open(name, flags | O_CLOEXEC);
    const bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL || errno == EROFS);
    const int code = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? MO_OK
                : mo_fail(err, code == ENOSPC || code == EDQUOT ? MO_ENOSPC : MO_EIO,
                          "%s: cannot be written to disk: %s", name, strerror(code));
}

/* Makes the new name survive a loss of power. Failures are ignored: the file itself is complete. */
static void sync_directory(const char *path)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) {
        slash[slash == directory] = 0;
    }
    sync_name(slash ? directory : ".", O_RDONLY | O_DIRECTORY, NULL);
}

/* If the bytes were not on the disk before the rename, a loss of power could leave an empty file. */
static mo_status sync_part(const char *path, mo_error *err)
{
    char part[PATH_MAX + 16];
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return MO_OK; /* a pipe or device is written directly */
    }
    snprintf(part, sizeof part, "%s.moraine-part", path); /* the name in base/output.h */
    return sync_name(part, O_RDONLY, err);
}

mo_status mo_profile_file_write(const char *path, const mo_profile *p, mo_error *err)
{
    char real[PATH_MAX];
    char *text;
    size_t length;
    mo_output *output = NULL;
    mo_status status = mo_profile_json_write(p, MO_PROFILE_FULL, &text, &length, err);
    if (status) {
        return status;
    }
    if (!realpath(path, real)) { /* a new file, or an error that mo_output_create() will report */
        snprintf(real, sizeof real, "%s", path);
    }
    text[length] = '\n'; /* replaces the terminator */
    status = mo_output_create(real, length + 1, &output, err);
    if (!status) {
        status = mo_output_append(output, text, length + 1, err);
        status = status ? status : sync_part(real, err);
        if (status) {
            mo_output_abort(output);
        } else {
            status = mo_output_commit(output, err);
        }
    }
    free(text);
    if (!status) {
        sync_directory(real);
    }
    return status;
}

static mo_status add_locked(const char *path, const mo_profile *counted, mo_error *moved, mo_error *err)
{
    mo_profile *old = NULL, *sum = NULL;
    mo_status status = read_locked(path, counted->fingerprint, &old, moved, err);
    if (!status && old) {
        status = mo_profile_merge(old, counted, &sum, err);
    } else if (!status) {
        const mo_profile none = {.fingerprint = counted->fingerprint};
        status = mo_profile_merge(counted, &none, &sum, err);
    }
    if (!status) {
        mo_profile_age(sum);
        status = mo_profile_file_write(path, sum, err);
    }
    mo_profile_free(old);
    mo_profile_free(sum);
    return status;
}

mo_status mo_profile_file_add(const char *path, const mo_profile *counted, mo_error *moved, mo_error *err)
{
    mo_error unheard = {0};
    int fd = -1;
    moved = moved ? moved : &unheard;
    moved->status = MO_OK;
    mo_status status = mo_cachedir_make(path, err);
    status = status ? status : lock(path, &fd, err);
    if (!status) {
        status = add_locked(path, counted, moved, err);
        unlock(fd);
    }
    return status;
}
