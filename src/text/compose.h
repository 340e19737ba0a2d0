/* Compose: text in Unicode's normal form C, which some tokenizers were published with. */
#ifndef MO_TEXT_COMPOSE_H
#define MO_TEXT_COMPOSE_H

#include "moraine.h"

/* Memory that is used again from call to call; zeroed before the first, freed with mo_compose_free(). */
typedef struct mo_compose {
    uint8_t *text; /* what the last call made */
    size_t length, capacity;
    int32_t *points; /* code points on their way */
    size_t limit;
} mo_compose;

void mo_compose_free(mo_compose *c);

/* Is the text in normal form for certain? Quick, and true of most texts; false says nothing. */
bool mo_compose_needless(const uint8_t *text, size_t length);

/* Puts the text in normal form into c. Bytes that are not UTF-8 stay as they are. Time is linear but for the sorting of runs of
 * marks. False when memory is out. */
bool mo_compose_run(mo_compose *c, const uint8_t *text, size_t length);

#endif
