/* Fields: the fields of a header, in their order. */
#ifndef SRV_HEADER_FIELDS_H
#define SRV_HEADER_FIELDS_H

#include <stdbool.h>

typedef struct srv_header_fields {
    struct srv_header_field {
        char *name, *value;
    } * item;
    int count, capacity;
} srv_header_fields; /* begins as all zeros */

/* Copies both. False: out of memory. */
bool srv_header_fields_add(srv_header_fields *fields, const char *name, const char *value);
void srv_header_fields_free(srv_header_fields *fields);

#endif
