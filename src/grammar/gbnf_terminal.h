/* Gbnf terminal: the parts of a rule that match text or a token: literals, classes, `.` and tokens. */
#ifndef MO_GRAMMAR_GBNF_TERMINAL_H
#define MO_GRAMMAR_GBNF_TERMINAL_H

#include "grammar/gbnf_text.h"

/* Reads a terminal. If there is none here, *some is false and nothing is read. */
mo_status mo_gbnf_terminal(mo_gbnf_text *t, mo_syntax **out, bool *some);

#endif
