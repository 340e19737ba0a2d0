/* String: texts of templates, which know of every byte whether it came from the conversation ("input") or from the template
 * itself. Always valid UTF-8. A string is a view of a buffer; buffers grow at their ends, so that building a text piece by
 * piece costs its length once. */
#ifndef MO_TEMPLATE_STRING_H
#define MO_TEMPLATE_STRING_H

#include <string.h>

#include "template/work.h"

typedef struct mo_jbuffer {
    char *data;
    uint8_t *marks; /* a byte for each: 1 is input; NULL: all are as `input` says */
    uint32_t used, capacity;
    bool input;
    bool fixed; /* never grows: it is shared, or was made whole */
} mo_jbuffer;

typedef struct mo_jstring {
    mo_jbuffer *buffer;
    uint32_t from, length;
} mo_jstring;

static inline const char *mo_jstring_data(mo_jstring s)
{
    return s.buffer->data + s.from;
}

/* ---- Buffers ---- */

mo_jbuffer *mo_jbuffer_new(mo_work *w, size_t capacity);
void mo_jbuffer_add(mo_work *w, mo_jbuffer *b, const char *data, size_t length, bool input);
void mo_jbuffer_add_string(mo_work *w, mo_jbuffer *b, mo_jstring s);
/* A text of the template's. */
static inline void mo_jbuffer_put(mo_work *w, mo_jbuffer *b, const char *text)
{
    mo_jbuffer_add(w, b, text, strlen(text), false);
}
/* One character, which must be a valid code point. */
void mo_jbuffer_add_code(mo_work *w, mo_jbuffer *b, uint32_t code, bool input);

static inline mo_jstring mo_jbuffer_view(mo_jbuffer *b)
{
    return (mo_jstring){b, 0, b->used};
}

/* ---- Strings ---- */

mo_jstring mo_jstring_new(mo_work *w, const char *data, size_t length, bool input);
static inline mo_jstring mo_jstring_literal(mo_work *w, const char *text)
{
    return mo_jstring_new(w, text, strlen(text), false);
}
static inline mo_jstring mo_jstring_part(mo_jstring s, size_t from, size_t length)
{
    return (mo_jstring){s.buffer, (uint32_t)(s.from + from), (uint32_t)length};
}
mo_jstring mo_jstring_concat(mo_work *w, mo_jstring a, mo_jstring b);
/* As C text, cut at the first NUL. */
const char *mo_jstring_text(mo_work *w, mo_jstring s);

/* These spend steps by the bytes they look at. Length and hash of a long string are kept: looking again costs nothing. */
bool mo_jstring_is_input(mo_work *w, mo_jstring s); /* a byte of it is */
bool mo_jstring_equal(mo_work *w, mo_jstring a, mo_jstring b);
int mo_jstring_compare(mo_work *w, mo_jstring a, mo_jstring b);
uint64_t mo_jstring_hash(mo_work *w, mo_jstring s);
static inline bool mo_jstring_is(mo_jstring s, const char *text)
{
    return s.length == strlen(text) && memcmp(mo_jstring_data(s), text, s.length) == 0;
}

/* Characters, which are code points. */
size_t mo_jstring_characters(mo_work *w, mo_jstring s);
/* The byte at which the character of that index begins; the length when there are fewer. */
size_t mo_jstring_offset(mo_work *w, mo_jstring s, size_t index);
/* The character at a byte, and its bytes. Callers that go through a string spend MO_SCAN_STEPS() of the bytes they see. */
uint32_t mo_jstring_code(mo_jstring s, size_t at, size_t *bytes);
#define MO_SCAN_STEPS(bytes) (1 + (uint64_t)(bytes) / 16)

/* The first place of `what` at or behind `from`, or the last one that ends before `to`; -1: none. */
int64_t mo_jstring_find(mo_work *w, mo_jstring s, mo_jstring what, size_t from);
int64_t mo_jstring_find_last(mo_work *w, mo_jstring s, mo_jstring what, size_t to);

/* Without white space (chars NULL), or without characters of a set, at its sides. */
enum { MO_TRIM_LEFT = 1, MO_TRIM_RIGHT = 2 };
mo_jstring mo_jstring_trim(mo_work *w, mo_jstring s, const mo_jstring *chars, int sides);

#endif
