/* Compose: text in Unicode's normalization form C, which some published tokenizers use. */
#ifndef MO_TEXT_COMPOSE_H
#define MO_TEXT_COMPOSE_H

#include "moraine.h"

/* Buffers that are reused between calls. All zeros before the first call; free with mo_compose_free(). */
typedef struct mo_compose {
    uint8_t *text; /* the result of the last call */
    size_t length, capacity;
    int32_t *points; /* code points being processed */
    size_t limit;
} mo_compose;

void mo_compose_free(mo_compose *c);

/* True if the text is certainly in form C already. Fast, and true for most texts. False means unknown. */
bool mo_compose_needless(const uint8_t *text, size_t length);

/* Writes the text in form C into c. Invalid UTF-8 bytes are copied unchanged. Time is linear except for
   sorting runs of marks. False when out of memory. */
bool mo_compose_run(mo_compose *c, const uint8_t *text, size_t length);

#endif
