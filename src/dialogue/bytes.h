/* Bytes: a text that grows, always terminated. When memory is out it stays as it was and says so in `failed`. */
#ifndef MO_DIALOGUE_BYTES_H
#define MO_DIALOGUE_BYTES_H

#include <stdlib.h>
#include <string.h>

#include "moraine.h"

typedef struct mo_bytes {
    char *data; /* NULL: nothing was ever added */
    size_t length, capacity;
    bool failed;
} mo_bytes;

static inline void mo_bytes_add(mo_bytes *b, const char *data, size_t n)
{
    if (b->length + n + 1 > b->capacity) {
        const size_t capacity = 2 * (b->length + n) + 64;
        char *more = realloc(b->data, capacity);
        if (!more) {
            b->failed = true;
            return;
        }
        b->data = more;
        b->capacity = capacity;
    }
    if (n > 0) {
        memcpy(b->data + b->length, data, n);
    }
    b->length += n;
    b->data[b->length] = 0;
}

static inline void mo_bytes_add_text(mo_bytes *b, const char *text)
{
    mo_bytes_add(b, text, strlen(text));
}

static inline void mo_bytes_clear(mo_bytes *b)
{
    b->length = 0;
    if (b->data) {
        b->data[0] = 0;
    }
}

static inline mo_text mo_bytes_text(const mo_bytes *b)
{
    return (mo_text){b->data ? b->data : "", b->length};
}

static inline void mo_bytes_free(mo_bytes *b)
{
    free(b->data);
    *b = (mo_bytes){0};
}

#endif
