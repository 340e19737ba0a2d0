/* Models: the server's models by id. Some are loaded, each with its engine. A model is loaded when a request
 * names it. Before that, least recently used models are unloaded if necessary, and idle ones after a time if
 * configured. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include "moraine_server.h"
#include "server/common/defaults.h"
#include "server/common/fault.h"
#include "server/http/request.h"
#include "server/scheduler/job.h"

/* Pulse: a model's activity in the last second: tokens, hits, and bytes transferred. */

/* Totals since the model was loaded. */
typedef struct srv_pulse_counts {
    uint64_t prompt, predicted; /* tokens */
    uint64_t experts, hits;     /* used by tokens; found in the upper tier */
    /* read from disk; read by the CPU from RAM; sent to the device */
    uint64_t disk_bytes, ram_bytes, link_bytes;
} srv_pulse_counts;

/* Does not wait for a step. */
void srv_pulse_count(mo_model *model, srv_engine *engine, srv_pulse_counts *out);

typedef struct srv_pulse {
    srv_pulse_counts all;
    double prompt_tokens_s, predicted_tokens_s;
    double disk_bytes_s, ram_bytes_s, link_bytes_s;
    /* 0 without tokens. */
    double experts_per_token, hits_per_token, disk_bytes_per_token, link_bytes_per_token;
} srv_pulse;

/* The difference of two counts taken this many seconds apart. Counts that decreased were reset. */
srv_pulse srv_pulse_between(const srv_pulse_counts *before, const srv_pulse_counts *now, double seconds);

/* ---- For handlers ---- */

typedef struct srv_models srv_models;
/* A referenced loaded model; it is not unloaded meanwhile. */
typedef struct srv_model srv_model;

/* Finds the model that a request names and references it until srv_model_unref(). Loads it if necessary,
 * which may block. NULL or "": the first one. With a single model any name is accepted, unless the server is
 * strict. ":latest" may follow the name. Returns false with *fault if there is no such model, it cannot be
 * loaded, or the client has disconnected (q may be NULL). */
bool srv_model_ref(srv_models *models, const char *name, srv_request *q, srv_model **out, srv_fault *fault);
/* Any thread, including sinks. */
void srv_model_unref(srv_model *model);

mo_model *srv_model_mo(const srv_model *model);
srv_engine *srv_model_engine(const srv_model *model);
const char *srv_model_path(const srv_model *model);
const char *srv_model_id(const srv_model *model);  /* as shown to clients */
int64_t srv_model_context(const srv_model *model); /* positions of one sequence */
const srv_defaults *srv_model_defaults(const srv_model *model);

/* Its adapters with the default scales of requests; returns their number. Any thread. */
int srv_model_adapters(const srv_model *model, mo_adapter_use out[SRV_ADAPTERS]);
/* Sets all scales at once, for requests read from now on. */
void srv_model_scale(srv_model *model, const mo_adapter_use *adapters, int count);

/* Called after a read error. If the model's file has changed since loading, the model, even a pinned one, is
 * unloaded as soon as it is not referenced, and reloaded by the next request. Any thread, including sinks. */
void srv_model_doubt(srv_model *model);

/* All its sequences in the last second. */
srv_pulse srv_model_pulse(const srv_model *model);

/* Idle seconds until it is unloaded: Ollama's keep_alive. Negative: never; 0: as soon as it is not
 * referenced. */
void srv_model_keep(srv_model *model, double seconds);

/* ---- For starting and describing the server ---- */

/* Description of a model before it is loaded. Strings must outlive the server. */
typedef struct srv_model_spec {
    const char *id;           /* NULL: the file's name without its directory and .gguf */
    const char *path;         /* of its first part */
    const char *alias;        /* further names, comma-separated; NULL: none */
    bool alias_is_id;         /* the first alias is the id, and the default id an alias */
    mo_model_options loading; /* context, sessions and progress are set here */
    bool adapters_idle;       /* requests start without its adapters */
    /* positions of one sequence; 0: as many as the plan allows, up to the model's own context */
    int64_t context;
    int64_t context_all; /* of all sequences; 0: parallel times context */
    int parallel;        /* 0: 4, or as many as the plan allows */
    srv_engine_options engine;
    srv_defaults defaults;
    bool pinned;   /* loaded at startup and never unloaded */
    double keep_s; /* unload after this many idle seconds; negative: never */
} srv_model_spec;

typedef struct srv_models_options {
    const srv_model_spec *specs;
    int count;
    const char *directory; /* every .gguf file in it is a model too, including new ones; NULL: none */
    srv_model_spec others; /* how those are loaded, */
    const char *(*encoder)(
        const void *user,
        const char *path); /* and the path of their image encoder, a string that stays valid; NULL: none */
    const void *encoder_user;
    int most;    /* loaded at once; 0: the pinned ones plus one */
    bool strict; /* reject unknown names even with a single model */
} srv_models_options;

mo_status srv_models_open(const srv_models_options *options, srv_models **out, mo_error *err);
/* Loads the first model and the pinned ones. If loading fails, the server continues without. */
mo_status srv_models_begin(srv_models *models, mo_error *err);
/* Accepts no more jobs, gives running ones this many seconds to finish, and cancels the rest. */
void srv_models_stop(srv_models *models, double seconds);
/* No model may be referenced. */
void srv_models_close(srv_models *models);

typedef enum srv_model_state {
    SRV_MODEL_UNLOADED,
    SRV_MODEL_LOADING,
    SRV_MODEL_LOADED,
    SRV_MODEL_LEAVING
} srv_model_state;

/* The current state of a model. The functions below do not wait for a load or a step. Strings live as long as
 * the models. */
typedef struct srv_model_report {
    const char *id, *path, *alias;
    srv_model_state state;
    double load_share;         /* while it is loading: 0 to 1 */
    bool pinned, failed;       /* failed: the last attempt to load it */
    int64_t context, made_for; /* positions of a sequence; 0: not known yet */
    int parallel;
    double idle_s; /* since its last use; -1: in use */
    double keep_s;
    int64_t file_bytes, parameters;
    int64_t modified;                  /* Unix time of the file */
    char architecture[64], format[16]; /* the format of most bytes; "" if the file cannot be read */
    uint64_t past_requests;            /* served during earlier loads */
    const srv_defaults *defaults;      /* of its answers, loaded or not */
    bool pictures;                     /* it accepts images: it has an encoder */
} srv_model_report;

/* Number of known models; looks for new files in the directory. */
int srv_models_count(srv_models *models);
bool srv_models_describe(srv_models *models, int index, srv_model_report *out);
/* The index of a name; -1: none. */
int srv_models_find(srv_models *models, const char *name);
/* References the model if it is loaded, until srv_models_unpeek(), without counting as use. NULL: not
 * loaded. */
srv_model *srv_models_peek(srv_models *models, int index);
void srv_models_unpeek(srv_model *model);
/* The options it is, or would be, opened with. */
const mo_model_options *srv_models_loading(srv_models *models, int index);
/* Counters of all engines since startup, including closed ones. Gauges only include running engines. */
void srv_models_totals(srv_models *models, srv_engine_report *out);
/* Unloads a model as soon as it is not referenced. Returns false if it is pinned or not loaded. */
bool srv_models_unload(srv_models *models, int index);
/* True while a model is loaded at startup; requests cannot be served yet. */
bool srv_models_beginning(srv_models *models);

#endif
