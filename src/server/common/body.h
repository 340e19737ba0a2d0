/* Body: parses a request's JSON. */
#ifndef SRV_BODY_H
#define SRV_BODY_H

#include <jansson.h>
#include <stddef.h>

#include "server/common/fault.h"

enum {
    SRV_JSON_DEPTH = 512, /* nesting depth */
    /* Cost of all values of one body: a number in a list costs 1, a string or a list 3 more, a member 4, an
     * object 6. One unit is up to about fifty bytes of memory. */
    SRV_JSON_COST = 4 << 20,
    SRV_JSON_COST_HELD = 4 * SRV_JSON_COST, /* of all bodies held at the same time */
    SRV_JSON_COST_SMALL = 16 << 10,         /* a body up to this cost is accepted beyond that limit */
    SRV_TEXT_HELD = 16 << 20,               /* bytes of text tokenized at the same time */
    SRV_TEXT_SMALL = 256 << 10
};

/* Parses a body. The caller calls json_decref(*root) and then srv_body_release(*held). A leading byte order
 * mark is skipped. Half surrogates, which JavaScript writes where it cuts a text, become U+FFFD. Integers
 * beyond 64 bits become reals, and reals beyond a double the largest double, so that the reader of the field
 * can name it. Returns false with a fault if the body is not a JSON object, is nested too deeply, exceeds the
 * limits, or memory ran out. */
bool srv_body_read(mo_text body, json_t **root, int64_t *held, srv_fault *fault);
void srv_body_release(int64_t held);
/* Called before a text of this many bytes is rendered or tokenized, which takes up to about twenty bytes of
 * memory per byte. Returns false with a fault if the text exceeds SRV_TEXT_HELD, or (retryable) while too
 * much other text is held. */
bool srv_text_hold(size_t bytes, srv_fault *fault);
void srv_text_release(size_t bytes);
/* The same limits for endpoints that report errors themselves. NULL: not a JSON list or object, or
 * rejected. */
json_t *srv_body_json(mo_text body);

/* JSON text: JSON strings from any bytes. File names and file metadata need not be UTF-8, and one such name
 * must not invalidate the whole object. */

/* Invalid UTF-8 becomes U+FFFD. "" if out of memory. A new reference. */
json_t *srv_json_text(const char *bytes, size_t length);
json_t *srv_json_ctext(const char *text); /* NULL: "" */

#endif
