/* Output: a file that appears under its name only when it is complete. Until then it is
 * PATH.moraine-part, next to the target. Pipes and devices are written directly. */
#ifndef MO_BASE_OUTPUT_H
#define MO_BASE_OUTPUT_H

#include "moraine.h"

typedef struct mo_output mo_output;

/* Begins a file of `bytes` bytes (0: not known yet). When the size is known, the space is reserved here,
 * so that a disk that is too small fails before any work is done. Replaces an existing regular file at
 * commit. On failure *out is NULL, nothing is left behind and err says what to do: MO_ENOSPC,
 * MO_ENOENT (no such directory), MO_EINVAL (a directory; another process writes it), MO_EIO. */
mo_status mo_output_create(const char *path, uint64_t bytes, mo_output **out, mo_error *err);

/* Can mo_output_write_at() be used in any order? False for pipes and terminals. */
bool mo_output_seekable(const mo_output *output);

/* Writes after what was appended before. One thread at a time. MO_ENOSPC says how much was written. A pipe
 * whose reader has gone raises SIGPIPE unless the program ignores it, then it is MO_EIO. */
mo_status mo_output_append(mo_output *output, const void *data, size_t bytes, mo_error *err);

/* Writes at a position. Any number of threads at once, ranges must not overlap. Holes read as zeros. A
 * file that is not seekable takes only the position where it stands (MO_EUNSUPPORTED otherwise), from one
 * thread. Does not move the position of mo_output_append(). */
mo_status mo_output_write_at(mo_output *output, const void *data, size_t bytes, uint64_t offset,
                             mo_error *err);

/* Gives the file its name and frees the output, in case of failure too; then the temporary is removed and
 * an older file of that name is untouched. Does not wait for the disk. */
mo_status mo_output_commit(mo_output *output, mo_error *err);

/* Removes the temporary and frees the output. NULL is allowed. */
void mo_output_abort(mo_output *output);

#endif
