/* Interrupt: ends long work of a thread that has no session to cancel: tokenizing and rendering. Each thread may have a
 * function that says whether its work is still wanted (mo_interrupt_set() in moraine.h); such work asks it every few thousand
 * steps. */
#ifndef MO_BASE_INTERRUPT_H
#define MO_BASE_INTERRUPT_H

#include "moraine.h"

/* Counts `steps` (about a nanosecond to a microsecond each) and asks the thread's function once in a while. True: the work is
 * no longer wanted, and ends with mo_interrupt_fail(). */
bool mo_interrupted(size_t steps);

mo_status mo_interrupt_fail(mo_error *err);

#endif
