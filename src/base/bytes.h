/* Bytes: text that grows, always terminated. After a failed allocation, or when the limit is exceeded, it says so in `failed` and
 * ignores what follows, so that only the end has to be checked. */
#ifndef MO_BASE_BYTES_H
#define MO_BASE_BYTES_H

#include "moraine.h"

typedef struct mo_bytes {
    char *data; /* NULL: nothing was ever added */
    size_t length, capacity;
    size_t limit; /* most bytes; 0: any */
    bool failed;  /* where the limit was exceeded, length is limit + 1 */
} mo_bytes;       /* begins as all zeros */

/* Space for `more` bytes and the end at data + length; NULL: there is none. */
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
