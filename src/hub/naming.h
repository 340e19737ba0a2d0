/* Naming: the files of a downloaded model get their names: all of them, or none. For a split model the first part gets its name
 * last and loses it first, so that there is no moment with a model of two versions: where it is, all are. What a new version takes the
 * place of waits next to it, with HUB_ASIDE appended to its name, and gets its name back where a later file cannot have its own. */
#ifndef HUB_NAMING_H
#define HUB_NAMING_H

#include "hub/partial.h"

#define HUB_ASIDE ".prev" /* as long as .part: store.c takes both off */

typedef struct hub_named {
    const char *path;
    hub_partial *partial; /* complete and checked; NULL: it is there already */
    bool aside;           /* without a partial: it is only aside, where a run that was killed left it */
} hub_named;

/* Files in the order of their parts. When it fails, everything is where it was. */
mo_status hub_names_give(const hub_named *files, int count, mo_error *err);

#endif
