/* Call: the part of the machine that is within a call, or within what may become one. Module-private. */
#ifndef MO_DIALOGUE_CALL_H
#define MO_DIALOGUE_CALL_H

#include "dialogue/reading.h"

/* An opening mark: of a section, a call, Python or a fence. */
void mo_call_open(mo_reading *r, mo_role role, const char *text);
/* A brace where an object may be a call. bare: nothing else says so. */
void mo_call_begin_object(mo_reading *r, char c, bool bare);
/* The call has begun, its arguments follow. */
void mo_call_begin_arguments(mo_reading *r);

unsigned mo_call_roles(const mo_reading *r);
/* Is a JSON string being read, in which marks are only text? */
bool mo_call_in_string(const mo_reading *r);
/* False: the byte is not part of a call, which is over; it belongs to what follows. */
bool mo_call_byte(mo_reading *r, char c);
void mo_call_mark(mo_reading *r, mo_role role, const char *text);

/* Ends the call that is open, whatever is missing; role: what closes it, 0: nothing does. */
void mo_call_close(mo_reading *r, mo_role role);
/* The answer ended within a call: the arguments so far are returned unchanged. Text that may have become a call, but is none
 * yet, is text; or nothing where the answer was cut short. */
void mo_call_end(mo_reading *r, bool cut);

#endif
