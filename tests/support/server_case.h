/* Clients of the server's engine, without HTTP: jobs whose events are written down, models and engines for them, and what a
 * session answers that is fed alone. */
#ifndef MO_TESTS_SERVER_CASE_H
#define MO_TESTS_SERVER_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"
#include "server/scheduler/job.h"

#define ORACLE(name) MO_TEST_DATA "/oracle/" name ".gguf"

/* All positions, windows, recurrent layers. */
extern const char *const families[3];
extern const char *const devices[2]; /* none, and the simulated one */

/* ---- Clients ---------------------------------------------------------------------------------- */

enum { CHOICES = 4, TEXT = 4096, TOKENS = 512 };

typedef struct client {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    srv_engine *engine;
    uint64_t job;
    int32_t tokens[CHOICES][TOKENS];
    float logprobs[CHOICES][TOKENS];
    mo_logprob top[CHOICES][TOKENS][3];
    int top_count;
    int count[CHOICES];
    char text[CHOICES][TEXT];
    srv_finish finish[CHOICES];
    int stop[CHOICES];
    int ends, lasts, started, progress, events_after;
    srv_event_kind last;
    srv_usage usage;
    int64_t told_cached; /* when it started */
    srv_timings timings;
    mo_status status;
    int events;
    char thought[TEXT], name[64], call_id[64], arguments[TEXT];
    int calls, call_ends;
    /* What it does after so many events; 0: never. */
    int pause_after, leave_after, act_after;
    void (*act)(struct client *client);
    void *user;               /* of act */
    double left_at, ended_at; /* seconds_now(): it was cancelled, or wanted no more; its last event */
    uint64_t *order;          /* of ends: a common counter */
    uint64_t order_number;
} client;

client *new_client(void);
void free_client(client *c);
void wait_last(client *c);
void wait_events(client *c, int events); /* so many, or the last */
double seconds_now(void);

/* ---- Models and engines ----------------------------------------------------------------------- */

/* A context of 512 and steps of 64, with memory for sessions that are kept. */
mo_model_options model_settings(const char *device, int sessions);
mo_model *open_model_with(const char *path, const mo_model_options *options);
mo_model *open_model(const char *path, const char *device, int sessions);
srv_engine *open_engine(mo_model *model, srv_engine_options options);
int64_t vocab_of(const mo_model *model);

/* ---- Jobs ------------------------------------------------------------------------------------- */

/* A prompt whose first `shared` tokens depend on `family` alone. */
void prompt_of(int64_t vocab, int family, int shared, int number, int count, int32_t *tokens);
/* The tokens of a text, to be freed with mo_free(); and one for which the built-in model writes on for a while. */
int32_t *text_of(const mo_model *model, const char *text, size_t *count);
extern const char story[];

srv_job_options job_of(client *c, const int32_t *tokens, int count, int answer); /* greedy */
void submit(srv_engine *e, client *c, const srv_job_options *options);
/* Sends the tokens; returns the client after its last event, which must be a good one. */
client *ask(srv_engine *e, const int32_t *tokens, int count, int answer);

/* What a session alone answers, greedily; tokens that end answers do. Returns how many. The second under a grammar. */
int alone(mo_model *model, const int32_t *prompt, int count, int answer, int32_t *out);
int alone_under(mo_model *model, mo_grammar *grammar, const int32_t *prompt, int count, int answer,
                int32_t *out);

/* ---- A small model with an engine ------------------------------------------------------------- */

typedef struct crowd {
    mo_model *model;
    srv_engine *engine;
    int32_t prompt[400];
} crowd;

void crowd_open(crowd *w, srv_engine_options options);
void crowd_close(crowd *w);

#endif
