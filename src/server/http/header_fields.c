/* Fields: see fields.h. */
#include "server/http/header_fields.h"

#include <stdlib.h>
#include <string.h>

bool srv_header_fields_add(srv_header_fields *f, const char *name, const char *value)
{
    if (f->count == f->capacity) {
        const int capacity = f->capacity ? 2 * f->capacity : 16;
        struct srv_header_field *item = realloc(f->item, (size_t)capacity * sizeof *item);
        if (!item) {
            return false;
        }
        f->item = item;
        f->capacity = capacity;
    }
    struct srv_header_field *added = &f->item[f->count];
    added->name = strdup(name);
    added->value = strdup(value);
    if (!added->name || !added->value) {
        free(added->name);
        free(added->value);
        return false;
    }
    f->count++;
    return true;
}

void srv_header_fields_free(srv_header_fields *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->item[i].name);
        free(f->item[i].value);
    }
    free(f->item);
}
