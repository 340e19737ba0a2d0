/* Pull: a model from a hub into the store: finds what is meant, tells what it is and what it would take, and fetches it. One thread. */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/listing.h"
#include "moraine_server.h"

/* What fetches: "libcurl 7.88.1 with GnuTLS/3.7.9". A constant. */
const char *hub_pull_library(void);

typedef struct hub_pull hub_pull;

typedef struct hub_pull_options {
    const char *directory; /* the store's */
    const char *endpoint;  /* the hub's address; NULL: HUB_ENDPOINT */
    const char *
        encoder; /* of pictures: the name of one of the repository; "none"; NULL: the usual one, if the model reads pictures */
    int connections; /* at once */
    int64_t piece;   /* bytes of one request */
    int timeout_s;   /* without a byte */
    int tries;
    bool (*progress)(void *user, const char *label, int64_t done, int64_t total); /* false: cancel */
    bool (*goes_on)(void *user);
    void (*says)(void *user, const char *text); /* one line: what is waited for, what is begun anew */
    void *user;
} hub_pull_options;

/* Asks the hub what there is. Options and their texts outlive it. */
mo_status hub_pull_open(const hub_reference *reference, const hub_pull_options *options, hub_pull **out,
                        mo_error *err);
void hub_pull_close(hub_pull *pull); /* NULL is allowed */

/* All that the repository offers. */
const hub_listing *hub_pull_listing(const hub_pull *pull);

/* Decides which one is meant, and looks at what is there of it. */
mo_status hub_pull_choose(hub_pull *pull, mo_error *err);

typedef struct hub_pull_info {
    const char *name;    /* owner/repo:label */
    const char *path;    /* where its first file will be */
    const char *encoder; /* of pictures, among the files; NULL: none */
    int64_t encoder_bytes;
    int files;
    int64_t bytes;      /* of all files */
    int64_t have_bytes; /* there already, whole or in part */
    int64_t need_bytes; /* of the disk, still */
    int64_t free_bytes; /* of the disk; -1: not known */
    bool there;         /* it is whole already */
} hub_pull_info;

void hub_pull_describe(const hub_pull *pull, hub_pull_info *out);

/* Fetches the model's header alone; path: of its first file, for hub_header_remove(). */
mo_status hub_pull_header(hub_pull *pull, char *path, size_t size, mo_error *err);
/* What a run with these options would be like, by the header alone, which also says whether an encoder is of use. MO_ENOMEM, MO_EDEVICE: not on this machine; MO_EUNSUPPORTED,
 * MO_EFORMAT: the model itself. */
mo_status hub_pull_plan(hub_pull *pull, const mo_model_options *options, const mo_plan_extra *extra,
                        mo_plan_report *report, mo_error *err);

/* Fetches what is missing, checks it, and gives it its names. What has come when it fails is kept, unless it is damaged. */
mo_status hub_pull_run(hub_pull *pull, mo_error *err);

#endif
