/* JSON: parsing and writing, as Python's json module does. Not jansson, because integers have any size,
   strings may contain NUL, each byte is marked as input or not, and the memory belongs to the work. */
#ifndef MO_TEMPLATE_JSON_H
#define MO_TEMPLATE_JSON_H

#include "template/value.h"

/* If a key is repeated the last value counts. Lone surrogates become U+FFFD. Strings are marked as input or
   not. Invalid JSON fails the work; the error names `what`. */
mo_jv mo_json_read(mo_work *w, const char *json, size_t length, bool input, const char *what);

/* The same for text that may not be JSON. False: it is not. */
bool mo_json_try(mo_work *w, const char *json, size_t length, bool input, mo_jv *out);

typedef struct mo_json_style {
    int64_t indent;         /* negative: all on one line */
    mo_jstring indent_text; /* used instead when its length is not 0 */
    bool ascii;             /* write non-ASCII characters as \uXXXX */
    bool sorted;
    bool separated;       /* separators were given; otherwise an indented list has no blanks after commas */
    mo_jstring item, key; /* separators: ", " and ": " */
} mo_json_style;

mo_json_style mo_json_style_default(mo_work *w);
void mo_json_write(mo_work *w, mo_jbuffer *out, mo_jv v, const mo_json_style *style);

#endif
