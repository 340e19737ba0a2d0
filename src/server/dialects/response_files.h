/* Response files: stored answers of the responses API on disk, one JSON file each. Files are written to a
 * temporary name and renamed, so a file with its final name is complete.
 *
 * Any thread; no two concurrent calls for one id. */
#ifndef SRV_RESPONSE_FILES_H
#define SRV_RESPONSE_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Kept response: an answer of the responses API with the conversation before it. */

enum { SRV_RESPONSE_ID = 64 };

typedef struct srv_kept_response {
    json_t *response; /* as sent to the client */
    json_t *input;    /* all items before its output, each with an id */
    size_t bytes;     /* size of both as text, or an upper bound */
} srv_kept_response;

typedef struct srv_response_files srv_response_files;

/* Uses the subdirectory `responses`, which is created on the first write. NULL: out of memory. */
srv_response_files *srv_response_files_open(const char *directory);
void srv_response_files_close(srv_response_files *files); /* accepts NULL */

bool srv_response_files_write(srv_response_files *files, const char *id, const char *owner,
                              const srv_kept_response *kept);
/* As srv_response_store_get(). */
bool srv_response_files_read(srv_response_files *files, const char *id, const char *owner,
                             srv_kept_response *out);
bool srv_response_files_remove(srv_response_files *files, const char *id);

#endif
