/* Nearest: finds the word that a mistyped one probably means. */
#ifndef MO_BASE_NEAREST_H
#define MO_BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

/* Initialize with the word and `best` NULL, pass all candidates, and read `best`: the nearest, or NULL. */
typedef struct mo_nearest {
    const char *word; /* the typed word */
    size_t length;    /* of it */
    const char *best; /* the best candidate so far */
    size_t distance;  /* distance of `best` */
} mo_nearest;

void mo_nearest_offer(mo_nearest *nearest, const char *candidate);

#endif
