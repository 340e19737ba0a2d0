/* Store: the directory of pulled models: DIRECTORY/OWNER/REPO/FILE.gguf. A file has this name only when it is
   complete and checked; before, it is FILE.gguf.part, with FILE.gguf.part.json (partial.h). The names are the
   only record. */
#ifndef HUB_STORE_H
#define HUB_STORE_H

#include "hub/reference.h"

/* The directory: `given`, or MORAINE_MODELS in the environment, or XDG_DATA_HOME/moraine/models, or
   ~/.local/share/moraine/models. */
mo_status hub_store_directory(const char *given, char *path, size_t size, mo_error *err);

typedef struct hub_model {
    char name[3 * HUB_NAME]; /* owner/repo:label */
    char owner[HUB_NAME], repo[HUB_NAME];
    char label[HUB_NAME]; /* or, if the name has none, the file's name without .gguf: */
    bool apart;           /* other models have the same label */
    char path[HUB_PATH];  /* of its first file in the repository */
    /* complete paths in the order of parts; for an unfinished model also those that end in .part */
    char **files;
    int count;
    int64_t bytes;      /* of its files on disk */
    int64_t modified_s; /* newest modification time of its files */
    bool whole;
} hub_model;

typedef struct hub_models {
    hub_model *items; /* sorted by name */
    int count;
} hub_models;

/* Lists all models, without encoders. A missing directory is empty. Always call hub_models_free(). */
mo_status hub_models_scan(const char *directory, hub_models *out, mo_error *err);
void hub_models_free(hub_models *models);

/* Does the reference match this model? */
bool hub_model_meant(const hub_model *model, const hub_reference *reference);
/* The complete model that a reference means (hub_label_choose()). NULL: none; *several: more than one. */
const hub_model *hub_models_find(const hub_models *models, const hub_reference *reference, bool *several);

/* Removes the model's files, also unfinished ones, encoders without models, and empty folders. */
mo_status hub_model_remove(const char *directory, const hub_model *model, mo_error *err);

/* Creates the folders of a path in the store, including the store. */
mo_status hub_store_make_folders(const char *path, mo_error *err);

#endif
