/* Listing: what a repository offers: files from the hub's JSON, put together as models. Sizes and checksums are the hub's words,
 * paths have been checked. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub/reference.h"

typedef struct hub_file {
    char *path;
    char *url;       /* where it is, if not in the repository; otherwise NULL */
    int64_t bytes;   /* -1: not known yet */
    char sha256[65]; /* "": not known */
} hub_file;

/* One model: a file, or the parts of a split one in their order. */
typedef struct hub_choice {
    char label[HUB_NAME]; /* or its file's name without .gguf: */
    bool apart;           /* others have the same label */
    hub_file *files;
    int count;
    int64_t bytes;
} hub_choice;

typedef struct hub_listing {
    hub_file *files; /* as they came */
    int file_count;
    hub_file *encoders; /* of pictures */
    int encoder_count;
    bool cut; /* there were more than are kept */
    hub_choice *choices;
    int count;
} hub_listing;

/* Adds one page of the hub's answer: an array of {"type", "path", "size", "lfs": {"oid", "size"}}. Other files than models and encoders are
 * passed over, and so are names that could not be kept safely. MO_EFORMAT: it is no such JSON. */
mo_status hub_listing_add(hub_listing *listing, const char *json, size_t length, mo_error *err);
/* One file that no repository lists. */
mo_status hub_listing_add_file(hub_listing *listing, const char *path, const char *url, mo_error *err);

/* After the last page: makes models of the files. Split ones that lack a part are left out. */
mo_status hub_listing_finish(hub_listing *listing, mo_error *err);

/* The one that is meant (hub_label_choose). MO_ENOENT with a sentence that names what there is. */
mo_status hub_listing_choose(const hub_listing *listing, const hub_reference *reference,
                             const hub_choice **out, mo_error *err);

/* The encoder of pictures for the model with this file (hub_encoder_better); NULL: there is none. named: its name or path; NULL: the usual
 * one of those beside the model. */
const hub_file *hub_listing_encoder(const hub_listing *listing, const char *model, const char *named);

void hub_listing_free(hub_listing *listing);

#endif
