/* Unknown fields: each name is logged once, so that a user finds a misspelled one. The members of a request's inner objects that are known
 * are listed here; schemas, metadata and other objects of free names are not looked into. Any thread. */
#ifndef SRV_UNKNOWN_FIELDS_H
#define SRV_UNKNOWN_FIELDS_H

#include "server/common/field.h"
#include "server/requests/parameters.h"

/* path: of the object it is in, as "messages[]"; "": the request. */
void srv_unknown_field_log(const char *path, const char *name);

/* Logs the unknown members of a field of the request, and of the objects in it. */
void srv_unknown_members_log(const char *name, const json_t *value, srv_dialect dialect);

#endif
