/* Json: JSON that comes byte by byte and may be wrong: where a value ends, what its strings say, and strings written. Nothing
 * here fails: what is not JSON ends up as some text. */
#ifndef MO_DIALOGUE_JSON_H
#define MO_DIALOGUE_JSON_H

#include <string.h>

#include "base/bytes.h"

static inline bool mo_json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Is the byte one of the set? A zero byte is in none. */
static inline bool mo_json_among(char c, const char *set)
{
    return c && strchr(set, c);
}

/* Adds one byte of a string as JSON writes it. */
void mo_json_escape(mo_bytes *to, char c);

/* Adds the text as a JSON string with its quotes. */
void mo_json_quote(mo_bytes *to, mo_text text);

/* ---- Strings that are read ---- */

/* A string after its opening quote. Starts as {0}. */
typedef struct mo_json_string {
    bool escaped;
    int digits;    /* of \uXXXX still to come */
    uint32_t code; /* of them so far */
    uint32_t high; /* the first half of a pair waits; 0: none */
} mo_json_string;

/* Adds what the byte completes to `to`. True: it was the closing quote. */
bool mo_json_string_put(mo_json_string *s, char c, mo_bytes *to);

/* ---- Values that pass ---- */

/* A value on its way. Starts as {0}. */
typedef struct mo_json_scan {
    int depth; /* lists and objects that are open */
    bool begun, in_string, escaped, scalar;
} mo_json_scan;

typedef enum mo_json_step {
    MO_JSON_MORE,
    MO_JSON_END,    /* the byte was the value's last */
    MO_JSON_BEFORE, /* the value ended before this byte, which is not its */
} mo_json_step;

/* Adds the byte to `to` (NULL: nowhere) unless it is not the value's. Two faults of models are fixed: control characters
 * within strings, and escapes that JSON does not have. */
mo_json_step mo_json_scan_put(mo_json_scan *s, char c, mo_bytes *to);

#endif
