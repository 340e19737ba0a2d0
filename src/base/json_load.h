/* JSON load: jansson's parser, and whether it was memory that it lacked. For modules that have jansson. */
#ifndef MO_BASE_JSON_LOAD_H
#define MO_BASE_JSON_LOAD_H

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>

/* json_loadb(); an empty text may be NULL. NULL with *no_memory: memory ran out, and *e says nothing. jansson then has a code for it, or names no line, or
 * takes the place that it got to for a fault of the text: but malloc() has said so. */
static inline json_t *mo_json_load(const char *text, size_t length, size_t flags, json_error_t *e,
                                   bool *no_memory)
{
    errno = 0;
    json_t *root = json_loadb(text ? text : "", length, flags, e);
    *no_memory = !root && (json_error_code(e) == json_error_out_of_memory || e->line < 0 || errno == ENOMEM);
    return root;
}

#endif
