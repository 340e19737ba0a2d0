/* Download: fetches one file into a partial by several concurrent ranges. Each is resumed after a failure. */
#ifndef HUB_DOWNLOAD_H
#define HUB_DOWNLOAD_H

#include "hub/partial.h"
#include "hub/web.h"

typedef struct hub_download_options {
    const char *url;
    int64_t bytes;      /* of the file */
    const char *etag;   /* expected in every answer; "": any */
    const char *linked; /* expected in the hub's redirect, if it has one */
    int connections;
    bool (*progress)(void *user,
                     int64_t done); /* bytes of this file so far, about ten times a second; false: cancel */
    void *user;
} hub_download_options;

/* Fetches all missing bytes and hashes them. What was received is saved even on failure. MO_ECANCELLED,
   MO_ENOSPC, MO_EFORMAT (another file than expected), MO_EIO. */
mo_status hub_download(const hub_web *web, const hub_download_options *options, hub_partial *partial,
                       mo_error *err);

#endif
