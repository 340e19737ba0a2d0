/* Nearest: the probably intended word for a mistyped one. */
#ifndef MO_BASE_NEAREST_H
#define MO_BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

/* Begin anew with `best` NULL, offer every word there is, and look at `best`: the nearest, or NULL where none is near. */
typedef struct mo_nearest {
    const char *word; /* that was typed */
    size_t length;    /* of it */
    const char *best; /* one that was offered */
    size_t distance;  /* of that */
} mo_nearest;

void mo_nearest_offer(mo_nearest *nearest, const char *candidate);

#endif
