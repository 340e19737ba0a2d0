/* Response files: stored answers of the responses API on disk, one JSON file each. A file is written to a temporary name and renamed,
 * so that one that is there is whole.
 *
 * Any thread; no two calls for one id at once. */
#ifndef SRV_RESPONSE_FILES_H
#define SRV_RESPONSE_FILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Kept response: an answer of the responses API with all that was before it. */

enum { SRV_RESPONSE_ID = 64 };

typedef struct srv_kept_response {
    json_t *response; /* as its client got it */
    json_t *input;    /* all items before its output, each with an id */
    size_t bytes;     /* of both as text, or more */
} srv_kept_response;

typedef struct srv_response_files srv_response_files;

/* In `responses` of the directory, which is made when the first is written. NULL: out of memory. */
srv_response_files *srv_response_files_open(const char *directory);
void srv_response_files_close(srv_response_files *files); /* NULL is allowed */

bool srv_response_files_write(srv_response_files *files, const char *id, const char *owner,
                              const srv_kept_response *kept);
/* As srv_response_store_get(). */
bool srv_response_files_read(srv_response_files *files, const char *id, const char *owner,
                             srv_kept_response *out);
bool srv_response_files_remove(srv_response_files *files, const char *id);

#endif
