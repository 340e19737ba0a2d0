/* Calls: the tool calls of one answer as they come out: each begins with its name and gets an id, has arguments, and ends. */
#ifndef MO_DIALOGUE_CALLS_H
#define MO_DIALOGUE_CALLS_H

#include "dialogue/piece_list.h"
#include "dialogue/style.h"
#include "dialogue/tools.h"

typedef struct mo_calls {
    mo_piece_list *out;
    const mo_style *style;
    const mo_tools *tools; /* NULL: calls are not looked for */
    int count;             /* begun */
    bool open;             /* the last one has not ended */
    bool arguments;        /* and has some */
    int function;          /* of it, in tools; -1: an unknown one */
} mo_calls;

/* Is the text a name that a function may have? known: one of the tools. */
bool mo_calls_name_fits(const mo_calls *c, mo_text name, bool known);

/* id: the model's own; empty: one is made. Ends the call before. */
void mo_calls_begin(mo_calls *c, mo_text name, mo_text id);
void mo_calls_arguments(mo_calls *c, mo_text json);
/* A call without arguments gets {}. Nothing when none is open. */
void mo_calls_end(mo_calls *c);
/* The answer was cut short in it: what it has is all there is. */
void mo_calls_cut(mo_calls *c);

#endif
