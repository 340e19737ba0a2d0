/* Models: those the server knows by their ids, of which some are loaded, each with its engine. A model is loaded when a
 * request names it; others are unloaded before, the least recently used first, and after some idle time where that was
 * asked for. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include "moraine_server.h"
#include "server/common/defaults.h"
#include "server/common/fault.h"
#include "server/http/request.h"
#include "server/scheduler/job.h"

/* Pulse: what a model did in the last second: tokens, hits, and bytes over its wires. */

/* Sums since the model was loaded. */
typedef struct srv_pulse_counts {
    uint64_t prompt, predicted;                 /* tokens */
    uint64_t experts, hits;                     /* that tokens needed; found in the upper tier */
    uint64_t disk_bytes, ram_bytes, link_bytes; /* read from disk; by the CPU from RAM; sent to the device */
} srv_pulse_counts;

/* Waits for no step. */
void srv_pulse_count(mo_model *model, srv_engine *engine, srv_pulse_counts *out);

typedef struct srv_pulse {
    srv_pulse_counts all;
    double prompt_tokens_s, predicted_tokens_s;
    double disk_bytes_s, ram_bytes_s, link_bytes_s;
    /* 0 while there is no token. */
    double experts_per_token, hits_per_token, disk_bytes_per_token, link_bytes_per_token;
} srv_pulse;

/* The difference of two counts taken this many seconds apart. Counts that decreased were reset. */
srv_pulse srv_pulse_between(const srv_pulse_counts *before, const srv_pulse_counts *now, double seconds);

/* ---- For handlers ---- */

typedef struct srv_models srv_models;
/* A loaded model, held: it is not unloaded meanwhile. */
typedef struct srv_model srv_model;

/* Finds the model that a request names, loads it if need be, which may wait, and holds it until srv_model_unref(). NULL
 * or "": the first one; with one model any name is accepted, unless the server is strict. ":latest" may follow.
 * False with *fault: no such model, it cannot be loaded, or the client has left (q may be NULL). */
bool srv_model_ref(srv_models *models, const char *name, srv_request *q, srv_model **out, srv_fault *fault);
/* Any thread, also a sink. */
void srv_model_unref(srv_model *model);

mo_model *srv_model_mo(const srv_model *model);
srv_engine *srv_model_engine(const srv_model *model);
const char *srv_model_path(const srv_model *model);
const char *srv_model_id(const srv_model *model);  /* to be echoed */
int64_t srv_model_context(const srv_model *model); /* positions of one sequence */
const srv_defaults *srv_model_defaults(const srv_model *model);

/* Its adapters with the scales that requests begin with; how many. Any thread. */
int srv_model_adapters(const srv_model *model, mo_adapter_use out[SRV_ADAPTERS]);
/* Sets all of them, for requests that are read from now on: none sees some of the old and some of the new. */
void srv_model_scale(srv_model *model, const mo_adapter_use *adapters, int count);

/* Something could not be read: where its file is not what it was when it was loaded, the model is unloaded as soon as it is not
 * referenced, also a pinned one, and reloaded by the next request. Any thread, also a sink. */
void srv_model_doubt(srv_model *model);

/* All its sequences in the last second. */
srv_pulse srv_model_pulse(const srv_model *model);

/* How long it stays after its last use: Ollama's keep_alive. Negative: for ever; 0: it is unloaded when it is not referenced. */
void srv_model_keep(srv_model *model, double seconds);

/* ---- For who starts and describes the server ---- */

/* What is known of a model before it is loaded. Texts outlive the server. */
typedef struct srv_model_spec {
    const char *id;           /* NULL: the file's name without its directory and .gguf */
    const char *path;         /* of its first part */
    const char *alias;        /* further names with commas between them; NULL: none */
    bool alias_is_id;         /* the first of these is the id, and what would be it a further name */
    mo_model_options loading; /* context, sessions and progress are chosen here */
    bool adapters_idle;       /* requests begin without its adapters */
    int64_t
        context; /* positions of one sequence; 0: what the plan allows, up to what the model was made for */
    int64_t context_all; /* of all together; 0: parallel times as many */
    int parallel;        /* 0: 4, or as many as the plan allows */
    srv_engine_options engine;
    srv_defaults defaults;
    bool pinned;   /* it is loaded at the start and never unloaded */
    double keep_s; /* it is unloaded after this many idle seconds; negative: never */
} srv_model_spec;

typedef struct srv_models_options {
    const srv_model_spec *specs;
    int count;
    const char *directory; /* every .gguf file in it is a model as well, new ones too; NULL: none */
    srv_model_spec others; /* how those are loaded, */
    const char *(*encoder)(
        const void *user,
        const char *path); /* with which encoder of pictures, a text that stays; NULL: none */
    const void *encoder_user;
    int most;    /* loaded at once; 0: those that are pinned and one more */
    bool strict; /* a name that is not known is refused, also with one model */
} srv_models_options;

mo_status srv_models_open(const srv_models_options *options, srv_models **out, mo_error *err);
/* Loads the first model and those that are pinned. On failure the server goes on without. */
mo_status srv_models_begin(srv_models *models, mo_error *err);
/* Takes no more jobs, lets running ones finish for this many seconds, and cancels the rest. */
void srv_models_stop(srv_models *models, double seconds);
/* None may be referenced. */
void srv_models_close(srv_models *models);

typedef enum srv_model_state {
    SRV_MODEL_UNLOADED,
    SRV_MODEL_LOADING,
    SRV_MODEL_LOADED,
    SRV_MODEL_LEAVING
} srv_model_state;

/* A model as it is now; no function below waits for a load or a step. Texts live as long as the models. */
typedef struct srv_model_report {
    const char *id, *path, *alias;
    srv_model_state state;
    double load_share;         /* while it is loaded: 0 to 1 */
    bool pinned, failed;       /* failed: the last attempt to load it */
    int64_t context, made_for; /* positions of a sequence; 0: not known yet */
    int parallel;
    double idle_s; /* since its last use; -1: it is in use */
    double keep_s;
    int64_t file_bytes, parameters;
    int64_t modified;                  /* Unix time of the file */
    char architecture[64], format[16]; /* the format most bytes have; "" where the file cannot be read */
    uint64_t past_requests;            /* served in earlier times when it was loaded */
    const srv_defaults *defaults;      /* of its answers, loaded or not */
    bool pictures;                     /* it reads some: it has an encoder */
} srv_model_report;

/* How many are known; looks for new files in the directory. */
int srv_models_count(srv_models *models);
bool srv_models_describe(srv_models *models, int index, srv_model_report *out);
/* The index of a name; -1: none. */
int srv_models_find(srv_models *models, const char *name);
/* Holds it if it is loaded, until srv_models_unpeek(), without counting as use. NULL: it is not. */
srv_model *srv_models_peek(srv_models *models, int index);
void srv_models_unpeek(srv_model *model);
/* How it is, or would be, opened. */
const mo_model_options *srv_models_loading(srv_models *models, int index);
/* Counters of all engines since the server began, also of those that are gone. The gauges are of those that run. */
void srv_models_totals(srv_models *models, srv_engine_report *out);
/* Unloads one as soon as it is not referenced. False: it is pinned, or not loaded. */
bool srv_models_unload(srv_models *models, int index);
/* Is a model being loaded at the start? Then nothing can be asked yet. */
bool srv_models_beginning(srv_models *models);

#endif
