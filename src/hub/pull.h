/* Pull: finds a model on a hub, describes it and its needs, and downloads it into the store. One thread. */
#ifndef HUB_PULL_H
#define HUB_PULL_H

#include "hub/listing.h"
#include "moraine_server.h"

/* The HTTP library: "libcurl 7.88.1 with GnuTLS/3.7.9". A constant. */
const char *hub_pull_library(void);

typedef struct hub_pull hub_pull;

typedef struct hub_pull_options {
    const char *directory; /* of the store */
    const char *endpoint;  /* the hub's address; NULL: HUB_ENDPOINT */
    /* name of an encoder of the repository; "none"; NULL: the best one, if the model reads pictures */
    const char *encoder;
    int connections; /* concurrent */
    int64_t piece;   /* bytes of one request */
    int timeout_s;   /* without data */
    int tries;
    bool (*progress)(void *user, const char *label, int64_t done, int64_t total); /* false: cancel */
    bool (*goes_on)(void *user);
    /* one line: the reason for waiting, or that a file is fetched again */
    void (*says)(void *user, const char *text);
    void *user;
} hub_pull_options;

/* Asks the hub for a list. The options and their texts must outlive the pull. */
mo_status hub_pull_open(const hub_reference *reference, const hub_pull_options *options, hub_pull **out,
                        mo_error *err);
void hub_pull_close(hub_pull *pull); /* NULL is allowed */

/* All models of the repository. */
const hub_listing *hub_pull_listing(const hub_pull *pull);

/* Chooses the model, and checks which of its files exist. */
mo_status hub_pull_choose(hub_pull *pull, mo_error *err);

typedef struct hub_pull_info {
    const char *name;    /* owner/repo:label */
    const char *path;    /* path that its first file will have */
    const char *encoder; /* one of the files; NULL: none */
    int64_t encoder_bytes;
    int files;
    int64_t bytes;      /* of all files */
    int64_t have_bytes; /* already received */
    int64_t need_bytes; /* disk space still needed */
    int64_t free_bytes; /* of the disk; -1: unknown */
    bool there;         /* the model is complete already */
} hub_pull_info;

void hub_pull_describe(const hub_pull *pull, hub_pull_info *out);

/* Fetches only the model's header. path: of its first file, for hub_header_remove(). */
mo_status hub_pull_header(hub_pull *pull, char *path, size_t size, mo_error *err);
/* Plans a run with these options from the header; also decides whether an encoder is useful. MO_ENOMEM,
   MO_EDEVICE: not possible on this machine; MO_EUNSUPPORTED, MO_EFORMAT: the model is not usable. */
mo_status hub_pull_plan(hub_pull *pull, const mo_model_options *options, const mo_plan_extra *extra,
                        mo_plan_report *report, mo_error *err);

/* Fetches and checks what is missing, and renames it. On failure undamaged data are kept. */
mo_status hub_pull_run(hub_pull *pull, mo_error *err);

#endif
