/* Body: a request's JSON, as clients write it. */
#ifndef SRV_BODY_H
#define SRV_BODY_H

#include <jansson.h>

#include "server/fault.h"

enum {
    SRV_JSON_DEPTH = 512,   /* lists and objects inside each other */
    SRV_JSON_COST = 4 << 20 /* of all values: a number in a list costs 1, a list 3, a member 4, an object 6 */
};

/* Parses a body; *root is the caller's, json_decref() it. A byte order mark before it is no part of it. Half surrogates, which
 * JavaScript writes where a text was cut, become U+FFFD; whole numbers that 64 bits do not hold become reals, and those that
 * no double holds the largest one, so that whoever reads the field can name it. False: it is no JSON object, or nested too
 * deeply, or memory ran out; fault says where. */
bool srv_body_read(mo_text body, json_t **root, srv_fault *fault);
/* The same bounds for endpoints that say themselves what is wrong. NULL: it is no JSON list or object, or none that is taken. */
json_t *srv_body_json(mo_text body);

#endif
