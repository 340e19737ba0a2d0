/* Store: where pulled models are kept: DIRECTORY/OWNER/REPO/FILE.gguf. A file has that name only when it is whole and checked;
 * until then it is FILE.gguf.part, with FILE.gguf.part.json next to it (partial.h). So what is there is what the names say, and
 * there is no other record of it. */
#ifndef HUB_STORE_H
#define HUB_STORE_H

#include "hub/reference.h"

/* Where it is: `given`, or MORAINE_MODELS in the environment, or XDG_DATA_HOME/moraine/models, or ~/.local/share/moraine/models. */
mo_status hub_store_directory(const char *given, char *path, size_t size, mo_error *err);

typedef struct hub_model {
    char name[3 * HUB_NAME]; /* owner/repo:label */
    char owner[HUB_NAME], repo[HUB_NAME];
    char label[HUB_NAME]; /* or its file's name without .gguf: */
    bool apart;           /* others have the same label */
    char path[HUB_PATH];  /* its first file's in the repository */
    char **
        files; /* whole paths, in the order of their parts; of an unfinished one those that end in .part as well */
    int count;
    int64_t bytes;      /* of its files, on disk */
    int64_t modified_s; /* when the newest of them was written */
    bool whole;
} hub_model;

typedef struct hub_models {
    hub_model *items; /* by name */
    int count;
} hub_models;

/* Encoders of pictures are no models. A directory that is not there holds none. hub_models_free() *out in any case. */
mo_status hub_models_scan(const char *directory, hub_models *out, mo_error *err);
void hub_models_free(hub_models *models);

/* Could this one be meant? */
bool hub_model_meant(const hub_model *model, const hub_reference *reference);
/* The whole model that a reference means (hub_label_choose). NULL: there is none; *several: because there are several. */
const hub_model *hub_models_find(const hub_models *models, const hub_reference *reference, bool *several);

/* Removes its files and what is left unfinished of it, with the last model of a repository also its encoders, and folders that are empty
 * then. */
mo_status hub_model_remove(const char *directory, const hub_model *model, mo_error *err);

/* Makes the folders of a path below the store, also the store itself. */
mo_status hub_store_make_folders(const char *path, mo_error *err);

#endif
