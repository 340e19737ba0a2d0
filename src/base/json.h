/* JSON: jansson's parser and writer with detection of failed allocations. For modules that use jansson. */
#ifndef MO_BASE_JSON_H
#define MO_BASE_JSON_H

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"

typedef struct mo_json_text {
    const char *data;
    size_t length;
    bool no_memory;
} mo_json_text;

/* jansson (2.14) drops a byte of a number or string if it gets no memory for it, and clears errno at the end
   of a number. So bytes that can belong to a number are passed one by one, and errno is checked in
   between. */
static inline size_t mo_json_next(void *buffer, size_t capacity, void *text)
{
    mo_json_text *t = text;
    t->no_memory = t->no_memory || errno == ENOMEM;
    size_t n = 0;
    while (n < t->length && n < capacity && !strchr("0123456789+-.eE", t->data[n])) {
        n++;
    }
    n = n ? n : t->length > 0;
    if (t->no_memory) {
        return (size_t)-1; /* aborts the parser */
    }
    memcpy(buffer, t->data, n);
    t->data += n;
    t->length -= n;
    return n;
}

/* json_loadb(); an empty text may be NULL. NULL with *no_memory: out of memory, and *e is not set. */
static inline json_t *mo_json_load(const char *text, size_t length, size_t flags, json_error_t *e,
                                   bool *no_memory)
{
    mo_json_text rest = {text ? text : "", length, false};
    json_error_t own = {0};
    e = e ? e : &own;
    errno = 0;
    json_t *root = json_load_callback(mo_json_next, &rest, flags, e);
    *no_memory = rest.no_memory || errno == ENOMEM ||
                 (!root && (json_error_code(e) == json_error_out_of_memory || e->line < 0));
    if (*no_memory) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

static inline int mo_json_add(const char *text, size_t length, void *bytes)
{
    mo_bytes_add(bytes, text, length);
    return ((mo_bytes *)bytes)->failed ? -1 : 0;
}

/* json_dumps(): the caller frees the text. NULL: out of memory. jansson (2.14) may omit a key instead. */
static inline char *mo_json_dump(const json_t *json, size_t flags)
{
    mo_bytes text = {0};
    if (json_dump_callback(json, mo_json_add, &text, flags) != 0 || text.failed) {
        mo_bytes_free(&text);
    }
    return text.data;
}

#endif
