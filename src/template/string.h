/* String: text that stores for every byte whether it is from the conversation ("input") or from the template.
   Always valid UTF-8. A string is a view of a buffer. Buffers grow at their ends, so appending piece by piece
   takes linear time. */
#ifndef MO_TEMPLATE_STRING_H
#define MO_TEMPLATE_STRING_H

#include <string.h>

#include "template/work.h"

typedef struct mo_jbuffer {
    char *data;
    uint8_t *marks; /* one byte for each: 1 is input; NULL: `input` applies to all */
    uint32_t used, capacity;
    bool input;
    bool fixed; /* cannot grow: it is shared or was created complete */
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
/* Appends text of the template. */
static inline void mo_jbuffer_put(mo_work *w, mo_jbuffer *b, const char *text)
{
    mo_jbuffer_add(w, b, text, strlen(text), false);
}
/* Appends a character, which must be a valid code point. */
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
/* As a C string, cut at the first NUL. */
const char *mo_jstring_text(mo_work *w, mo_jstring s);

/* These functions count the bytes that they read as steps. Length and hash of a long string are cached. */
bool mo_jstring_is_input(mo_work *w, mo_jstring s); /* does it contain input bytes? */
bool mo_jstring_equal(mo_work *w, mo_jstring a, mo_jstring b);
int mo_jstring_compare(mo_work *w, mo_jstring a, mo_jstring b);
uint64_t mo_jstring_hash(mo_work *w, mo_jstring s);
static inline bool mo_jstring_is(mo_jstring s, const char *text)
{
    return s.length == strlen(text) && memcmp(mo_jstring_data(s), text, s.length) == 0;
}

/* The number of characters (code points). */
size_t mo_jstring_characters(mo_work *w, mo_jstring s);
/* The byte offset of the character with this index; the length if there are fewer characters. */
size_t mo_jstring_offset(mo_work *w, mo_jstring s, size_t index);
/* The character at a byte, and its length. Callers that scan a string count MO_SCAN_STEPS() of its bytes. */
uint32_t mo_jstring_code(mo_jstring s, size_t at, size_t *bytes);
#define MO_SCAN_STEPS(bytes) (1 + (uint64_t)(bytes) / 16)

/* The first position of `what` from `from` on, or the last that ends before `to`. -1: none. */
int64_t mo_jstring_find(mo_work *w, mo_jstring s, mo_jstring what, size_t from);
int64_t mo_jstring_find_last(mo_work *w, mo_jstring s, mo_jstring what, size_t to);

/* Removes white space (chars NULL) or the characters of a set from the ends. */
enum { MO_TRIM_LEFT = 1, MO_TRIM_RIGHT = 2 };
mo_jstring mo_jstring_trim(mo_work *w, mo_jstring s, const mo_jstring *chars, int sides);

#endif
