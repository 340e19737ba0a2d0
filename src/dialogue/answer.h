/* Answer: what a model writes, as a sequence of characters and marks, becomes pieces. A machine with one state; what might
 * be a call, but is not certain yet, is kept and becomes text if it is none. Nothing is an error.
 *
 * Private to the module: reply.h finds the marks and feeds it. */
#ifndef MO_DIALOGUE_ANSWER_H
#define MO_DIALOGUE_ANSWER_H

#include "dialogue/reading.h"

/* The roles in which marks are looked for now. */
unsigned mo_answer_roles(const mo_reading *r);
void mo_answer_byte(mo_reading *r, char c);
/* role is one of mo_answer_roles(). */
void mo_answer_mark(mo_reading *r, mo_role role, const char *text);
/* A mark that is a token of its own although none of its roles is looked for: what is being read was broken off. */
void mo_answer_break(mo_reading *r);
/* The answer is over, or was cut short: there was to be more. */
void mo_answer_end(mo_reading *r, bool cut);

bool mo_answer_in_thought(const mo_reading *r);

#endif
