/* Model list: the models that a server knows, with what the parts that load, hold, watch and describe them share. For
 * this directory alone. Where nothing else is said, functions are called with the mutex held. */
#ifndef SRV_MODEL_LIST_H
#define SRV_MODEL_LIST_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "moraine_server.h"
#include "server/models/models.h"

enum { SRV_MODELS_MAX = 1024 };

struct srv_model {
    srv_models *all;
    srv_model_spec spec;
    char *id, *path, *aliases; /* aliases: with commas between them; NULL: none */

    /* Of the file; read by srv_models_describe(), again when it has changed. Under the models' mutex. */
    bool looked;
    struct stat seen; /* then */
    char architecture[64], format[16];
    int64_t file_bytes, parameters, made_for, modified;

    /* Under the models' mutex. */
    srv_model_state state;
    int refs;
    bool wanted_away; /* unload it as soon as it is not referenced; no new references */
    bool failed;
    double keep_s;
    int64_t used_ns;
    double load_s;
    mo_server_plan plan;
    _Atomic int load_permille;
    srv_engine_report past; /* of engines that are gone */
    struct stat opened;     /* its file when it was loaded */
    const char *away;       /* why it is unloaded; NULL: requested */
    srv_pulse pulse;
    int64_t pulse_ns;                  /* when it was taken */
    float adapter_scale[SRV_ADAPTERS]; /* of its spec, or as set since: all of them at once */

    /* Constant while it is loaded. */
    mo_model *mo;
    srv_engine *engine;
};

struct srv_models {
    srv_models_options o;
    pthread_mutex_t mutex; /* of the list and of what the models say */
    pthread_cond_t changed;
    srv_model *list[SRV_MODELS_MAX];
    int count;
    bool changing; /* one model is being loaded or unloaded */
    _Atomic bool stopping;
    _Atomic bool beginning;
    pthread_t idle_unload;
    bool has_idle_unload;
};

/* Waits until something has changed, or a fifth of a second; gives the mutex up meanwhile. */
void srv_list_wait(srv_models *models);

/* False: no space, or out of memory. */
bool srv_list_add(srv_models *models, const srv_model_spec *spec, const char *path);
/* Adds files that have come into the directory since. */
void srv_list_look(srv_models *models);
/* The index of a name; NULL or "": the first. -1: none. */
int srv_list_find(srv_models *models, const char *name);

/* Is a file still what it was? Any time. */
bool srv_list_same_file(const struct stat *a, const struct stat *b);

int srv_list_pinned(const srv_models *models);
int srv_list_loaded(const srv_models *models);
/* How many may be loaded at once: as was said, or those that are pinned and one more. */
int srv_list_most(const srv_models *models);
/* The loaded model that was used longest ago and may go; *busy says that it would have to be waited for. */
srv_model *srv_list_victim(srv_models *models, const srv_model *but, bool *busy);

/* Loader: brings a model into memory with its engine, and takes it out again. One at a time: the caller holds the models' mutex,
 * which is given up meanwhile, and has set `changing`. */

/* Others are unloaded if their memory is needed and they are not in use. Logs the result. */
mo_status srv_loader_load(srv_models *models, srv_model *model, mo_error *err);
/* It must not be referenced. why: for the log. */
void srv_loader_unload(srv_models *models, srv_model *model, const char *why);

/* Keeper: the thread that looks at the models now and then: it unloads what is idle or wanted away, and counts what
 * happens in a second. */

/* Runs until the models stop. A thread's function. */
void *srv_idle_unload_run(void *models);

#endif
