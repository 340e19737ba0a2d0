/* Download: one file into a partial: several ranges at once, each asked for again from where it was cut off. */
#ifndef HUB_DOWNLOAD_H
#define HUB_DOWNLOAD_H

#include "hub/partial.h"
#include "hub/web.h"

typedef struct hub_download_options {
    const char *url;
    int64_t bytes;      /* of the file */
    const char *etag;   /* that every answer has to have; "": any */
    const char *linked; /* the same of what the hub says in its redirect, where it says something */
    int connections;
    bool (*progress)(
        void *user,
        int64_t done); /* bytes of this file that are there, about ten times a second; false: cancel */
    void *user;
} hub_download_options;

/* Fetches all that is missing, hashing on the way. What has come is saved in any case. MO_ECANCELLED, MO_ENOSPC, MO_EFORMAT (another
 * file than was said), MO_EIO. */
mo_status hub_download(const hub_web *web, const hub_download_options *options, hub_partial *partial,
                       mo_error *err);

#endif
