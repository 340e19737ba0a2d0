/* Output: a file that appears under its name when it is complete. Before, it is PATH.moraine-part in the same
   directory. Pipes and devices are written directly. */
#ifndef MO_BASE_OUTPUT_H
#define MO_BASE_OUTPUT_H

#include "moraine.h"

typedef struct mo_output mo_output;

/* Begins a file of `bytes` bytes (0: unknown). A known size is reserved here, so that a full disk fails
   before any work is done. An existing regular file is replaced at commit. On failure *out is NULL, nothing
   remains, and err says what to do: MO_ENOSPC, MO_ENOENT (no such directory), MO_EINVAL (a directory; another
   process writes it), MO_EIO. */
mo_status mo_output_create(const char *path, uint64_t bytes, mo_output **out, mo_error *err);

/* Can mo_output_write_at() write in any order? False for pipes and terminals. */
bool mo_output_seekable(const mo_output *output);

/* Appends bytes. One thread at a time. MO_ENOSPC says how much was written. A pipe without a reader raises
   SIGPIPE; if the program ignores it, the result is MO_EIO. */
mo_status mo_output_append(mo_output *output, const void *data, size_t bytes, mo_error *err);

/* Writes at a position. Any number of threads at once; ranges must not overlap. Holes read as zeros. A file
   that is not seekable accepts only its current position (otherwise MO_EUNSUPPORTED), from one thread. Does
   not move the position of mo_output_append(). */
mo_status mo_output_write_at(mo_output *output, const void *data, size_t bytes, uint64_t offset,
                             mo_error *err);

/* Renames the file and frees the output, also on failure; then the temporary file is removed and an older
   file is unchanged. Does not sync. */
mo_status mo_output_commit(mo_output *output, mo_error *err);

/* Removes the temporary file and frees the output. NULL is allowed. */
void mo_output_abort(mo_output *output);

#endif
