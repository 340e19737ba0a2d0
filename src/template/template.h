/* Template: a parsed template and its renderings. The functions of moraine.h that work on one are implemented here. */
#ifndef MO_TEMPLATE_TEMPLATE_H
#define MO_TEMPLATE_TEMPLATE_H

#include <time.h>

#include "moraine_server.h"
#include "template/value.h"

/* A rendering that knows where its bytes came from. */
typedef struct mo_rendering {
    char *text; /* terminated, may have NUL bytes inside; free() it */
    size_t length;
    uint8_t *input; /* for each byte: 1 where it came from the context's input; free() it */
    bool raised;    /* it failed because the template itself refused */
} mo_rendering;

/* Makes the variables of a rendering, in its memory. clock: the local time, as strftime_now() says it; NULL: none. */
typedef mo_jdict *(*mo_context_fn)(mo_work *w, const struct tm *clock, void *user);

/* Renders with the context that `make` gives; input_bytes: about how long it is, for the default limit of memory. On
 * failure *out holds nothing but `raised`. */
mo_status mo_template_run(const mo_template *t, const mo_template_options *options, mo_context_fn make,
                          void *user, size_t input_bytes, mo_rendering *out, mo_error *err);
void mo_rendering_free(mo_rendering *r);

#endif
