/* Defaults: generation settings from the server's options, for fields that a request does not set. */
#ifndef SRV_DEFAULTS_H
#define SRV_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum { SRV_NOT_GIVEN = -1000000 }; /* for integers; NAN and NULL for other types */

typedef struct srv_defaults {
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, seed, max_tokens, repeat_last_n;
    int64_t reasoning_budget;
    bool verbose;                 /* answers include the prompt */
    const char *reasoning_format; /* "none", "deepseek", "auto" */
    const char *reasoning;        /* "on", "off", "auto" */
    const char *template_kwargs;  /* a JSON object, already checked */
    const char *template_text;    /* replaces the model's own template, which was opened with it */
} srv_defaults;

/* All values not given. */
srv_defaults srv_defaults_none(void);

#endif
