/* Fields: the fields of a header, in their order. */
#ifndef SRV_FIELDS_H
#define SRV_FIELDS_H

#include <stdbool.h>

typedef struct srv_fields {
    struct srv_field_pair {
        char *name, *value;
    } * item;
    int count, capacity;
} srv_fields; /* begins as all zeros */

/* Copies both. False: out of memory. */
bool srv_fields_add(srv_fields *fields, const char *name, const char *value);
void srv_fields_free(srv_fields *fields);

#endif
