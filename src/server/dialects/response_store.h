/* Response store: answers of the responses API that can be asked for again and gone on from, by their ids. The last ones are in
 * memory, and with a directory also on disk, where they are found after a restart; the oldest are forgotten.
 *
 * Any thread. JSON that it has taken or returned is never changed. */
#ifndef SRV_RESPONSE_STORE_H
#define SRV_RESPONSE_STORE_H

#include "server/dialects/response_files.h"

typedef struct srv_response_store srv_response_store;

/* directory: NULL: memory alone. Write failures are logged. NULL: out of memory. */
srv_response_store *srv_response_store_open(const char *directory);
/* Writes what is not on disk yet. */
void srv_response_store_close(srv_response_store *store); /* NULL is allowed */

/* Takes the references. owner: whose key it was asked with; others do not find it. */
void srv_response_store_add(srv_response_store *store, const char *id, const char *owner,
                            const srv_kept_response *kept);
/* False: there is none. The references are the caller's. May read a file. */
bool srv_response_store_get(srv_response_store *store, const char *id, const char *owner,
                            srv_kept_response *out);
/* False: there was none. */
bool srv_response_store_remove(srv_response_store *store, const char *id, const char *owner);
/* An item of any answer in memory, of its input or output; a new reference, or NULL. */
json_t *srv_response_store_item(srv_response_store *store, const char *item_id, const char *owner);

#endif
