/* Kept response: an answer of the responses API with all that was before it. */
#ifndef SRV_KEPT_RESPONSE_H
#define SRV_KEPT_RESPONSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { SRV_RESPONSE_ID = 64 };

typedef struct srv_kept_response {
    json_t *response; /* as its client got it */
    json_t *input;    /* all items before its output, each with an id */
    size_t bytes;     /* of both as text, or more */
} srv_kept_response;

#endif
