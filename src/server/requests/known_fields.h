/* Known fields: the request fields that clients of each dialect may send. A field that affects the text is
 * supported (read elsewhere), or rejected here by name unless its value has no effect. Unknown fields are
 * logged once each. */
#ifndef SRV_KNOWN_FIELDS_H
#define SRV_KNOWN_FIELDS_H

#include "server/requests/parameters.h"

/* Returns false if the object has a field with an unsupported value. options: the object is the options of an
 * Ollama request. */
bool srv_known_fields_check(const srv_field *object, srv_dialect dialect, bool options);

#endif
