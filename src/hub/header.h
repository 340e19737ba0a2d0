/* Header: plans a model before its download: some megabytes are fetched into files of the model's size, which
   are holes otherwise. */
#ifndef HUB_HEADER_H
#define HUB_HEADER_H

#include "hub/web.h"

typedef struct hub_header_file {
    const char *name; /* without folders */
    const char *url;
    int64_t bytes;
} hub_header_file;

/* Creates the files in a new folder of this directory, which is created if necessary. path: of the first
   file, for hub_header_remove(), which removes the folder. On failure nothing is left. */
mo_status hub_header_fetch(const hub_web *web, const char *directory, const hub_header_file *files, int count,
                           char *path, size_t size, mo_error *err);
void hub_header_remove(const char *path);

/* Removes the folder's name from a message. */
void hub_header_say(const char *path, char *text);

#endif
