#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *mo_bytes_reserve(mo_bytes *b, size_t more)
{
    if (b->failed) {
        return NULL;
    }
    if (b->limit && more > b->limit - b->length) {
        b->failed = true;
        b->length = b->limit + 1;
        return NULL;
    }
    if (more >= b->capacity - b->length) {
        const size_t capacity = more < SIZE_MAX / 4 ? 2 * (b->length + more) + 64 : 0;
        char *data = capacity ? realloc(b->data, capacity) : NULL;
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
    }
    return b->data + b->length;
}

void mo_bytes_add(mo_bytes *b, const char *data, size_t n)
{
    char *to = mo_bytes_reserve(b, n);
    if (to) {
        memcpy(to, n ? data : "", n);
        to[n] = '\0';
        b->length += n;
    }
}

void mo_bytes_add_text(mo_bytes *b, const char *text)
{
    mo_bytes_add(b, text, strlen(text));
}

void mo_bytes_print(mo_bytes *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *to = length >= 0 ? mo_bytes_reserve(b, (size_t)length) : NULL;
    if (to) {
        va_start(args, fmt);
        vsnprintf(to, (size_t)length + 1, fmt, args);
        va_end(args);
        b->length += (size_t)length;
    }
}

void mo_bytes_clear(mo_bytes *b)
{
    b->length = 0;
    if (b->data) {
        b->data[0] = '\0';
    }
}

void mo_bytes_free(mo_bytes *b)
{
    free(b->data);
    *b = (mo_bytes){0};
}
