/* JSON text: a JSON string of any bytes: names of files, and what files say of themselves, need not be UTF-8, and one such name must not
 * cost the object that it is in. */
#ifndef SRV_JSON_TEXT_H
#define SRV_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Bytes that are no UTF-8 become U+FFFD. "" where there is no memory for it. A new reference. */
json_t *srv_json_text(const char *bytes, size_t length);
json_t *srv_json_ctext(const char *text); /* NULL: "" */

#endif
