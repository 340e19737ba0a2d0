/* Bytes: growing text, always terminated. After a failed allocation, or when the limit is exceeded, sets
   `failed` and ignores further calls, so callers only check at the end. */
#ifndef MO_BASE_BYTES_H
#define MO_BASE_BYTES_H

#include "moraine.h"

typedef struct mo_bytes {
    char *data; /* NULL: nothing was added yet */
    size_t length, capacity;
    size_t limit; /* maximum bytes; 0: no limit */
    bool failed;  /* if the limit was exceeded, length is limit + 1 */
} mo_bytes;       /* initialize with zeros */

/* Makes space for `more` bytes and the terminator at data + length. NULL: failed. */
char *mo_bytes_reserve(mo_bytes *b, size_t more);
void mo_bytes_add(mo_bytes *b, const char *data, size_t n);
void mo_bytes_add_text(mo_bytes *b, const char *text);
void mo_bytes_print(mo_bytes *b, const char *fmt, ...) MO_PRINTF(2, 3);
/* Keeps the memory. */
void mo_bytes_clear(mo_bytes *b);
void mo_bytes_free(mo_bytes *b);

static inline mo_text mo_bytes_text(const mo_bytes *b)
{
    return (mo_text){b->data ? b->data : "", b->length};
}

#endif
