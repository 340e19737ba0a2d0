/* Probe file: a file for measuring a disk. It is incompressible, on the disk, not in memory, and disappears
 * when the process ends for any reason. */
#ifndef MO_PLAN_PROBE_FILE_H
#define MO_PLAN_PROBE_FILE_H

#include "moraine.h"

typedef struct mo_probe_file {
    int fd;
    char path[48]; /* opens the file, which has no other name */
} mo_probe_file;

/* Called regularly; false cancels (MO_ECANCELLED). */
typedef bool (*mo_probe_file_fn)(void *user);

/* directory NULL: the current one. On failure nothing is left behind. */
mo_status mo_probe_file_create(const char *directory, int64_t bytes, mo_probe_file_fn go_on, void *user,
                               mo_probe_file *out, mo_error *err);
void mo_probe_file_remove(mo_probe_file *file);

#endif
