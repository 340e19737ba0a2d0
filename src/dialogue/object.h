/* Object: a call that is written as a JSON object with a name and arguments, in any order, or a list of such objects:
 *
 *     {"name": N, "arguments": {...}}      also "parameters", and within "function" or "tool_call"
 *     {"response": S}                      no call: the generic way's answer
 *
 * Comes byte by byte. Arguments go out as they come once the name is known. */
#ifndef MO_DIALOGUE_OBJECT_H
#define MO_DIALOGUE_OBJECT_H

#include "dialogue/calls.h"
#include "dialogue/json.h"

typedef enum mo_object_step {
    MO_OBJECT_MORE,
    MO_OBJECT_DONE,   /* the byte was the last */
    MO_OBJECT_FAILED, /* this byte cannot be part of a call */
} mo_object_step;

typedef struct mo_object {
    bool
        bare; /* nothing but the object itself says that it is a call: it must be one of the tools, with arguments */
    bool list;    /* within [ ] */
    bool certain; /* a call has begun, or an answer: nothing can be taken back */
    int state;
    int depth; /* objects that are open */
    bool named, argued;
    mo_json_string string;
    mo_json_scan scan;
    mo_bytes key, name, text; /* text: arguments that wait for the name, or that must be seen whole */
} mo_object;

void mo_object_begin(mo_object *o, bool bare);
void mo_object_free(mo_object *o);

/* Adds a byte. What is certain goes to `calls`; the text of an answer goes to *answer. */
mo_object_step mo_object_put(mo_object *o, char c, mo_calls *calls, mo_bytes *answer);

/* Is a string being read, in which marks are only text? */
bool mo_object_in_string(const mo_object *o);

#endif
