/* Body: a request's JSON, as clients write it. */
#ifndef SRV_BODY_H
#define SRV_BODY_H

#include <jansson.h>
#include <stddef.h>

#include "server/common/fault.h"

enum {
    SRV_JSON_DEPTH = 512, /* lists and objects inside each other */
    /* Of all values of one body: a number in a list costs 1, a string or a list 3 more, a member 4, an object 6. That is up to some
     * fifty bytes of memory each. */
    SRV_JSON_COST = 4 << 20,
    SRV_JSON_COST_HELD = 4 * SRV_JSON_COST, /* of all bodies that are held together */
    SRV_JSON_COST_SMALL = 16 << 10,         /* one that costs no more is taken beyond that too */
    SRV_TEXT_HELD = 16 << 20,               /* bytes of text that are tokenized at a time */
    SRV_TEXT_SMALL = 256 << 10
};

/* Parses a body; *root is the caller's, json_decref() it, and then srv_body_release(*held). A byte order mark before it is no part of it. Half surrogates, which
 * JavaScript writes where a text was cut, become U+FFFD; whole numbers that 64 bits do not hold become reals, and those that
 * no double holds the largest one, so that the reader of the field can name it. False: it is not a JSON object, or is nested too
 * deeply, or memory ran out, or too much of it is held already; fault says where. */
bool srv_body_read(mo_text body, json_t **root, int64_t *held, srv_fault *fault);
void srv_body_release(int64_t held);
/* Before a text of this many bytes is rendered or tokenized, which takes up to some twenty bytes of memory for each: false with a
 * fault where it is more than SRV_TEXT_HELD, and, to be tried again, while too much of it is under way. */
bool srv_text_hold(size_t bytes, srv_fault *fault);
void srv_text_release(size_t bytes);
/* The same bounds for endpoints that report errors themselves. NULL: it is not a JSON list or object, or is not accepted. */
json_t *srv_body_json(mo_text body);

/* JSON text: a JSON string of any bytes: names of files, and what files say of themselves, need not be UTF-8, and one such name must not
 * cost the object that it is in. */

/* Bytes that are no UTF-8 become U+FFFD. "" where there is no memory for it. A new reference. */
json_t *srv_json_text(const char *bytes, size_t length);
json_t *srv_json_ctext(const char *text); /* NULL: "" */

#endif
