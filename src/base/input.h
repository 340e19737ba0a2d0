/* Input: a file opened for reading at any position. */
#ifndef MO_BASE_INPUT_H
#define MO_BASE_INPUT_H

#include "moraine.h"

typedef struct mo_input mo_input;

/* Opens a regular file or block device for reading. On failure *out is NULL and err names the path: MO_ENOENT
   (no such file), MO_EUNSUPPORTED (a directory, pipe or other device), MO_EIO. */
mo_status mo_input_open(const char *path, mo_input **out, mo_error *err);

void mo_input_close(mo_input *input); /* NULL is allowed */

/* The path given to mo_input_open(); belongs to the input. */
const char *mo_input_path(const mo_input *input);

/* The size at opening. */
uint64_t mo_input_bytes(const mo_input *input);

/* For callers that read in other ways (mmap, io_uring); belongs to the input. */
int mo_input_descriptor(const mo_input *input);

/* Reads exactly `bytes` bytes at `offset`. Any number of threads at once. MO_EFORMAT if the file is too
   short, MO_EIO if reading fails; err names path and offset, and data is undefined. */
mo_status mo_input_read_at(const mo_input *input, void *data, size_t bytes, uint64_t offset, mo_error *err);

#endif
