/* Known fields: what the clients of every dialect can say in a request. A field that changes the text is honoured (read elsewhere), or
 * refused here by its name, unless its value asks for nothing. Fields that nobody knows are logged, once each. */
#ifndef SRV_KNOWN_FIELDS_H
#define SRV_KNOWN_FIELDS_H

#include "server/requests/parameters.h"

/* False: the object has a field that asks for what cannot be served. options: it is the options of Ollama's request. */
bool srv_known_fields_check(const srv_field *object, srv_dialect dialect, bool options);

#endif
