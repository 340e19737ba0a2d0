/* Header: of a model of which nothing else is here: some megabytes are fetched and put into files of the model's size that are holes
 * otherwise. */
#ifndef HUB_HEADER_H
#define HUB_HEADER_H

#include "hub/web.h"

typedef struct hub_header_file {
    const char *name; /* without folders */
    const char *url;
    int64_t bytes;
} hub_header_file;

/* Makes them in a folder of this directory, which is made if need be. path: of the first, for hub_header_remove(), which removes the folder. On
 * failure nothing is left. */
mo_status hub_header_fetch(const hub_web *web, const char *directory, const hub_header_file *files, int count,
                           char *path, size_t size, mo_error *err);
void hub_header_remove(const char *path);

/* Leaves the folder out of a message. */
void hub_header_say(const char *path, char *text);

#endif
