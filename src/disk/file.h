/* Disk file: one file of a model, opened for direct or cached reads, with its size and modification time at
 * open, and the messages for its failures. */
#ifndef MO_DISK_FILE_H
#define MO_DISK_FILE_H

#include <time.h>

#include "base/input.h"
#include "moraine.h"

typedef struct mo_disk_file {
    mo_input *input;
    int fd;
    int64_t bytes;
    bool watched; /* a regular file: its size and modification time must not change */
    struct timespec changed;
} mo_disk_file;

/* Opens for direct reads (MO_EUNSUPPORTED if the file system refuses them) or for cached reads without
 * read-ahead. On failure nothing is left open. */
mo_status mo_disk_file_open(const char *path, bool direct, mo_disk_file *out, mo_error *err);
void mo_disk_file_close(mo_disk_file *file); /* a zeroed struct is allowed */

/* Checks that the file is unchanged since open, by one system call of less than a microsecond. `at` is the
 * offset of the read, for the message. */
mo_status mo_disk_file_check(const mo_disk_file *file, int64_t at, mo_error *err);

/* A read of `bytes` bytes at `at` failed with an errno, or hit an early end of file. Returns the status that
 * it puts into err. */
mo_status mo_disk_file_failed(const mo_disk_file *file, int64_t at, int64_t bytes, int code, mo_error *err);
mo_status mo_disk_file_ended(const mo_disk_file *file, int64_t at, int64_t bytes, mo_error *err);

#endif
