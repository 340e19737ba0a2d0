/* Interrupt: cancels long work without a session: tokenizing and rendering. Each thread may have a function
   that says whether its work is still wanted (mo_interrupt_set() in moraine.h); such work calls it every few
   thousand steps. */
#ifndef MO_BASE_INTERRUPT_H
#define MO_BASE_INTERRUPT_H

#include "moraine.h"

/* Counts `steps` (about a nanosecond to a microsecond each) and sometimes calls the thread's function. True:
   the work is no longer wanted and must end with mo_interrupt_fail(). */
bool mo_interrupted(size_t steps);

mo_status mo_interrupt_fail(mo_error *err);

#endif
