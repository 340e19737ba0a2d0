/* Template: a parsed template and its renderings. Implements the functions of moraine.h for templates. */
#ifndef MO_TEMPLATE_TEMPLATE_H
#define MO_TEMPLATE_TEMPLATE_H

#include <time.h>

#include "moraine_server.h"
#include "template/value.h"

/* A rendered text with the origin of each byte. */
typedef struct mo_rendering {
    char *text; /* terminated, may contain NUL bytes; free() it */
    size_t length;
    uint8_t *input; /* for each byte: 1 if it is from the context's input; free() it */
    bool raised;    /* the template called raise_exception() */
} mo_rendering;

/* Creates a rendering's variables in the work's memory. clock: time for strftime_now(); NULL: none. */
typedef mo_jdict *(*mo_context_fn)(mo_work *w, const struct tm *clock, void *user);

/* Renders with the context that `make` creates. input_bytes: its approximate size, for the default memory
   limit. On failure only out->raised is set. */
mo_status mo_template_run(const mo_template *t, const mo_template_options *options, mo_context_fn make,
                          void *user, size_t input_bytes, mo_rendering *out, mo_error *err);
void mo_rendering_free(mo_rendering *r);

#endif
