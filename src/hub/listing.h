/* Listing: the models of a repository, made from the hub's list of files in JSON. The hub states sizes and
   checksums; paths are checked. */
#ifndef HUB_LISTING_H
#define HUB_LISTING_H

#include "hub/reference.h"

typedef struct hub_file {
    char *path;
    char *url;       /* address if it is not in the repository; otherwise NULL */
    int64_t bytes;   /* -1: unknown yet */
    char sha256[65]; /* "": unknown */
} hub_file;

/* One model: a file, or the parts of a split model in order. */
typedef struct hub_choice {
    char label[HUB_NAME]; /* or, if the name has none, the file's name without .gguf: */
    bool apart;           /* other models have the same label */
    hub_file *files;
    int count;
    int64_t bytes;
} hub_choice;

typedef struct hub_listing {
    hub_file *files; /* in the hub's order */
    int file_count;
    hub_file *encoders; /* of pictures */
    int encoder_count;
    bool cut; /* files beyond the limit were ignored */
    hub_choice *choices;
    int count;
} hub_listing;

/* Adds one page of the hub's answer: an array of {"type", "path", "size", "lfs": {"oid", "size"}}. Ignores
   files other than models and encoders, and unsafe names. MO_EFORMAT: not such JSON. */
mo_status hub_listing_add(hub_listing *listing, const char *json, size_t length, mo_error *err);
/* Adds a file that is not in a repository. */
mo_status hub_listing_add_file(hub_listing *listing, const char *path, const char *url, mo_error *err);

/* Call after the last page: groups files into models. Split models with missing parts are omitted. */
mo_status hub_listing_finish(hub_listing *listing, mo_error *err);

/* The requested model (hub_label_choose()). MO_ENOENT lists the existing ones. */
mo_status hub_listing_choose(const hub_listing *listing, const hub_reference *reference,
                             const hub_choice **out, mo_error *err);

/* The encoder for the model with this file (hub_encoder_better()). NULL: none. named: its name or path; NULL:
   the best one in the model's folders. */
const hub_file *hub_listing_encoder(const hub_listing *listing, const char *model, const char *named);

void hub_listing_free(hub_listing *listing);

#endif
