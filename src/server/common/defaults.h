/* Defaults: settings of answers that a request does not set, from the server's options. */
#ifndef SRV_DEFAULTS_H
#define SRV_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum { SRV_NOT_GIVEN = -1000000 }; /* of whole numbers; NAN and NULL of the others */

typedef struct srv_defaults {
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed, max_tokens, repeat_last_n;
    int64_t reasoning_budget;
    bool verbose;                 /* answers show the prompt */
    const char *reasoning_format; /* "none", "deepseek", "auto" */
    const char *reasoning;        /* "on", "off", "auto" */
    const char *template_kwargs;  /* a JSON object, checked */
    const char *template_text;    /* in the place of the model's own template: it was opened with it */
} srv_defaults;

/* Nothing is given. */
srv_defaults srv_defaults_none(void);

#endif
