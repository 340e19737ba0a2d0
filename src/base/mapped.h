/* Mapped: files mapped for reading. Such a file may be truncated while it is in use, or its disk may fail, and then a read
 * of its memory ends in SIGBUS.
 *
 * While any file is mapped the library handles that signal: in its own mappings, pages that cannot be read become zeros and
 * the file is remembered as lost, so that the code that computed with it can check, and fails. Other faults, and signals that
 * were sent by a process, go to the previous handler. It is restored when the last file is closed, unless
 * another has been put in the place of ours. */
#ifndef MO_BASE_MAPPED_H
#define MO_BASE_MAPPED_H

#include <signal.h>

#include "base/input.h"

typedef struct mo_mapped mo_mapped;

/* The first `bytes` bytes of a file, which must be that long. The input may be closed afterwards. */
mo_status mo_mapped_open(const mo_input *input, size_t bytes, mo_mapped **out, mo_error *err);
void mo_mapped_close(mo_mapped *mapped); /* NULL is allowed */
uint8_t *mo_mapped_data(const mo_mapped *mapped);

/* After reading: MO_EIO when pages were lost, or when the file is not what it was. Any thread. */
mo_status mo_mapped_check(const mo_mapped *mapped, mo_error *err);

/* Around reading, on a thread that is not ours: it may have blocked the signal, which would end the process. */
void mo_mapped_enter(sigset_t *before);
void mo_mapped_leave(const sigset_t *before);

#endif
