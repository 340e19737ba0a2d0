/* JSON: into values and out of them, as Python's json module does it. Its own reader, because contexts hold integers of any
 * size and NUL characters, every byte must be remembered as input, and memory is the work's. */
#ifndef MO_TEMPLATE_JSON_H
#define MO_TEMPLATE_JSON_H

#include "template/value.h"

/* Of a key that comes twice the last value counts. Lone surrogates become U+FFFD. Strings are marked as input or not. The
 * work ends for what is no JSON; `what` names it. */
mo_jv mo_json_read(mo_work *w, const char *json, size_t length, bool input, const char *what);

/* The same for what may be none. False: it is not. */
bool mo_json_try(mo_work *w, const char *json, size_t length, bool input, mo_jv *out);

typedef struct mo_json_style {
    int64_t indent;         /* below 0: all in one line */
    mo_jstring indent_text; /* used instead when its length is not 0 */
    bool ascii;             /* \uXXXX for what is not ASCII */
    bool sorted;
    bool separated; /* the separators were given; otherwise an indented list has no blanks behind commas */
    mo_jstring item, key; /* separators: ", " and ": " */
} mo_json_style;

mo_json_style mo_json_style_default(mo_work *w);
void mo_json_write(mo_work *w, mo_jbuffer *out, mo_jv v, const mo_json_style *style);

#endif
