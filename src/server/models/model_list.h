/* Model list: the server's models, and declarations shared by the files that load, hold, monitor and describe
 * them. Only for this directory. Unless stated otherwise, functions require the mutex. */
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
    char *id, *path, *aliases; /* aliases: comma-separated; NULL: none */

    /* From the file; read by srv_models_describe(), and again when the file has changed. Protected by the
     * models' mutex. */
    bool looked;
    struct stat seen; /* when it was read */
    char architecture[64], format[16];
    int64_t file_bytes, parameters, made_for, modified;

    /* Protected by the models' mutex. */
    srv_model_state state;
    int refs;
    bool wanted_away; /* unload it as soon as it is not referenced; no new references */
    bool failed;
    double keep_s;
    int64_t used_ns;
    double load_s;
    mo_server_plan plan;
    _Atomic int load_permille;
    srv_engine_report past; /* of closed engines */
    struct stat opened;     /* its file when it was loaded */
    const char *away;       /* why it is unloaded; NULL: requested */
    srv_pulse pulse;
    int64_t pulse_ns;                  /* when the pulse was taken */
    float adapter_scale[SRV_ADAPTERS]; /* from its spec, or set later; always set together */

    /* Constant while loaded. */
    mo_model *mo;
    srv_engine *engine;
};

struct srv_models {
    srv_models_options o;
    pthread_mutex_t mutex; /* protects the list and the models' states */
    pthread_cond_t changed;
    srv_model *list[SRV_MODELS_MAX];
    int count;
    bool changing; /* one model is being loaded or unloaded */
    _Atomic bool stopping;
    _Atomic bool beginning;
    pthread_t idle_unload;
    bool has_idle_unload;
};

/* Waits for a change, at most a fifth of a second; releases the mutex meanwhile. */
void srv_list_wait(srv_models *models);

/* Returns false if the list is full or memory ran out. */
bool srv_list_add(srv_models *models, const srv_model_spec *spec, const char *path);
/* Adds new files of the directory. */
void srv_list_look(srv_models *models);
/* The index of a name; NULL or "": the first. -1: none. */
int srv_list_find(srv_models *models, const char *name);

/* True if the file is unchanged. No mutex required. */
bool srv_list_same_file(const struct stat *a, const struct stat *b);

int srv_list_pinned(const srv_models *models);
int srv_list_loaded(const srv_models *models);
/* Maximum loaded at once: as configured, or the pinned ones plus one. */
int srv_list_most(const srv_models *models);
/* The least recently used loaded model that may be unloaded; *busy: one exists but is in use. */
srv_model *srv_list_victim(srv_models *models, const srv_model *but, bool *busy);

/* Loader: loads a model with its engine, and unloads it. One at a time: the caller holds the models' mutex,
 * which is released meanwhile, and has set `changing`. */

/* Unloads unused models if their memory is needed. Logs the result. */
mo_status srv_loader_load(srv_models *models, srv_model *model, mo_error *err);
/* The model must not be referenced. why: for the log. */
void srv_loader_unload(srv_models *models, srv_model *model, const char *why);

/* Idle unload: the thread that periodically unloads models that are idle or marked for unloading, and
 * computes the pulses. */

/* Thread function; runs until the models stop. */
void *srv_idle_unload_run(void *models);

#endif
