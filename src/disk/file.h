/* Disk file: one file of a model as the disk reads it: opened for direct or cached reads, with what it looked
 * like then, and the sentences for what can go wrong with it. */
#ifndef MO_DISK_FILE_H
#define MO_DISK_FILE_H

#include <time.h>

#include "base/input.h"
#include "moraine.h"

typedef struct mo_disk_file {
    mo_input *input;
    int fd;
    int64_t bytes;
    bool watched; /* a regular file: its size and time of change must stay */
    struct timespec changed;
} mo_disk_file;

/* Opens for direct reads (MO_EUNSUPPORTED where the file system refuses them) or cached ones, without reading
 * ahead. On failure nothing is left open. */
mo_status mo_disk_file_open(const char *path, bool direct, mo_disk_file *out, mo_error *err);
void mo_disk_file_close(mo_disk_file *file); /* an empty one is allowed */

/* Is the file as it was when it was opened? One system call of less than a microsecond. `at` is the offset of
 * the read that asks, for the sentence. */
mo_status mo_disk_file_check(const mo_disk_file *file, int64_t at, mo_error *err);

/* A read of `bytes` bytes at `at` failed with an errno, or got nothing where the file should go on. Returns
 * the status that it puts into err. */
mo_status mo_disk_file_failed(const mo_disk_file *file, int64_t at, int64_t bytes, int code, mo_error *err);
mo_status mo_disk_file_ended(const mo_disk_file *file, int64_t at, int64_t bytes, mo_error *err);

#endif
