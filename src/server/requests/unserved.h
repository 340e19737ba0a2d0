/* Unserved: fields that mean something to other servers, or in other dialects, and that cannot be served here. What would change the
 * answer is refused by name; unknown fields are not. */
#ifndef SRV_UNSERVED_H
#define SRV_UNSERVED_H

#include "server/requests/parameters.h"

/* False: the object (a request, or its options) has such a field, and its value asks for something. */
bool srv_unserved_check(const srv_field *object, srv_dialect dialect);

#endif
