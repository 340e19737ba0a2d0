/* Gbnf terminal: the parts of a rule that stand for text or a token by themselves: literals, classes, `.` and tokens. */
#ifndef MO_GRAMMAR_GBNF_TERMINAL_H
#define MO_GRAMMAR_GBNF_TERMINAL_H

#include "grammar/gbnf_text.h"

/* Reads the one that begins here; *some is false, and nothing is read, where none does. */
mo_status mo_gbnf_terminal(mo_gbnf_text *t, mo_syntax **out, bool *some);

#endif
