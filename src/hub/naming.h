/* Naming: renames all files of a downloaded model to their final names, or none. The first part of a split
   model gets its name last and loses it first, so a model with parts of two versions never exists: if the
   first part exists, all do. Replaced files are kept with HUB_ASIDE appended and get their names back if a
   later file cannot be renamed. */
#ifndef HUB_NAMING_H
#define HUB_NAMING_H

#include "hub/partial.h"

#define HUB_ASIDE ".prev" /* has the length of .part: store.c removes either */

typedef struct hub_named {
    const char *path;
    hub_partial *partial; /* complete and checked; NULL: the file exists already */
    bool aside;           /* without a partial: a killed run left the file with HUB_ASIDE */
} hub_named;

/* Renames the files, given in the order of parts. On failure everything is as before. */
mo_status hub_names_give(const hub_named *files, int count, mo_error *err);

#endif
