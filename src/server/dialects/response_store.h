/* Response store: answers of the responses API, which clients can fetch and continue by id. The latest are in
 * memory, and with a directory also on disk, where they survive a restart. The oldest are dropped.
 *
 * Any thread. JSON passed in or out is never modified. */
#ifndef SRV_RESPONSE_STORE_H
#define SRV_RESPONSE_STORE_H

#include "server/dialects/response_files.h"

typedef struct srv_response_store srv_response_store;

/* directory NULL: memory only. Write failures are logged. NULL: out of memory. */
srv_response_store *srv_response_store_open(const char *directory);
/* Writes the answers that are not on disk yet. */
void srv_response_store_close(srv_response_store *store); /* accepts NULL */

/* Takes the references. owner: the client with access; others do not find the answer. */
void srv_response_store_add(srv_response_store *store, const char *id, const char *owner,
                            const srv_kept_response *kept);
/* Returns false if there is none. The caller owns the references. May read a file. */
bool srv_response_store_get(srv_response_store *store, const char *id, const char *owner,
                            srv_kept_response *out);
/* Returns false if there was none. */
bool srv_response_store_remove(srv_response_store *store, const char *id, const char *owner);
/* An input or output item of any answer in memory; a new reference, or NULL. */
json_t *srv_response_store_item(srv_response_store *store, const char *item_id, const char *owner);

#endif
