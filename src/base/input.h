/* Input: a file opened for reading at any position. */
#ifndef MO_BASE_INPUT_H
#define MO_BASE_INPUT_H

#include "moraine.h"

typedef struct mo_input mo_input;

/* Opens a regular file (or a block device) for reading. On failure *out is NULL and err names the path:
 * MO_ENOENT (no such file), MO_EUNSUPPORTED (a directory, pipe or device), MO_EIO. */
mo_status mo_input_open(const char *path, mo_input **out, mo_error *err);

void mo_input_close(mo_input *input); /* NULL is allowed */

/* As given to mo_input_open(); belongs to the input. */
const char *mo_input_path(const mo_input *input);

/* The size when it was opened. */
uint64_t mo_input_bytes(const mo_input *input);

/* For callers with a method of their own to read (mmap, io_uring); belongs to the input. */
int mo_input_descriptor(const mo_input *input);

/* Reads exactly `bytes` bytes at `offset`. Any number of threads at once. Fails with MO_EFORMAT when the
 * file ends before that and with MO_EIO when reading fails; err names the path and the offset, and the
 * content of data is undefined. */
mo_status mo_input_read_at(const mo_input *input, void *data, size_t bytes, uint64_t offset, mo_error *err);

#endif
