/* Mapped: files mapped for reading. If such a file is truncated or its disk fails, reading its memory raises
   SIGBUS.

   While a file is mapped the library handles this signal. In its own mappings, unreadable pages become zeros
   and the file is marked as lost, so that the computation can check this and fail. Other faults, and signals
   sent by processes, go to the previous handler. That is restored when the last file is closed, unless
   another handler has replaced ours. */
#ifndef MO_BASE_MAPPED_H
#define MO_BASE_MAPPED_H

#include <signal.h>

#include "base/input.h"

typedef struct mo_mapped mo_mapped;

/* Maps the first `bytes` bytes of a file, which must have them. The input may be closed afterwards. */
mo_status mo_mapped_open(const mo_input *input, size_t bytes, mo_mapped **out, mo_error *err);
void mo_mapped_close(mo_mapped *mapped); /* NULL is allowed */
uint8_t *mo_mapped_data(const mo_mapped *mapped);

/* Call after reading. MO_EIO if pages were lost or the file has changed. Any thread. */
mo_status mo_mapped_check(const mo_mapped *mapped, mo_error *err);

/* Call before and after reading on threads that are not ours and may have blocked the signal. */
void mo_mapped_enter(sigset_t *before);
void mo_mapped_leave(const sigset_t *before);

#endif
