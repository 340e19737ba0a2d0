/* Generation: one request for text from its JSON to its answer. A dialect reads the request into it and
 * provides a writer for the answer, complete or as a stream; everything in between is shared. */
#ifndef SRV_GENERATION_H
#define SRV_GENERATION_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/http/request.h"
#include "server/http/routes.h"
#include "server/models/models.h"
#include "server/requests/choice.h"
#include "server/requests/constraint.h"
#include "server/requests/conversation.h"
#include "server/requests/parameters.h"
#include "server/requests/rendering.h"
#include "server/scheduler/job.h"

enum { SRV_PROMPTS_MAX = 64 }; /* per request */

typedef struct srv_generation srv_generation;

/* State shared by all requests for text: the owner of the dialects' routes. Lives as long as the server. */
typedef struct srv_generator {
    srv_models *models;
    struct srv_running *running;       /* NULL: no one else can stop an answer */
    struct srv_call_index *call_index; /* NULL: returned answers are processed as text */
    struct srv_traces *traces;
    bool image_urls; /* images may be fetched from other servers */
} srv_generator;

/* How a dialect writes. All functions write to `out`, on the thread that has the event, one at a time. */
typedef struct srv_dialect_writer {
    srv_stream_kind stream;
    /* A stream: output before the first event; for an event of a choice (already added to it; `fresh`: it
     * started an item); at the end; and for an error instead. */
    void (*begin)(srv_generation *g, srv_writer *out);
    void (*event)(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *out);
    void (*end)(srv_generation *g, srv_writer *out);
    void (*fail)(srv_generation *g, const srv_fault *fault, srv_writer *out);
    /* Stores data of an event's tokens for the complete answer; NULL: nothing. */
    void (*keep)(srv_generation *g, srv_choice *choice, const srv_event *event);
    /* The complete answer. */
    void (*whole)(srv_generation *g, srv_writer *out);
} srv_dialect_writer;

/* Earlier answers, for the responses API: see response_input.h. */
typedef struct srv_history {
    struct srv_response_store *kept; /* NULL: none are stored */
    json_t *before;                  /* items before the request's own; NULL: none */
    size_t bytes;                    /* of `before` */
    bool store;                      /* store the answer */
} srv_history;

typedef struct srv_generation_times {
    int64_t created;  /* Unix time */
    int64_t begun_ns; /* arrival, monotonic clock */
    int64_t load_ns;  /* time waiting for the model */
} srv_generation_times;

/* Ways to end early. */
typedef struct srv_generation_stops {
    bool listed;         /* others can stop it */
    atomic_bool stopped; /* on request: the text so far is the answer */
    atomic_bool ending;  /* by server shutdown: the answer is incomplete */
    atomic_bool gone;
    atomic_uint drained;
} srv_generation_stops;

/* The job of one prompt. */
typedef struct srv_request_job {
    srv_generation *generation;
    size_t prompt;
    srv_usage usage;
    srv_timings timings;
} srv_request_job;

struct srv_generation {
    const srv_generator *generator;
    srv_request *request;
    srv_model *model_ref;
    const srv_dialect_writer *writer;
    srv_dialect dialect;

    /* The request. */
    json_t *root;
    int64_t root_held; /* see body.h */
    bool large;        /* the body */
    srv_fault fault;
    srv_parameters parameters;
    srv_tools tools;
    srv_format format;
    srv_conversation conversation;
    srv_history history;

    /* The engine's input. */
    srv_tokens prompts[SRV_PROMPTS_MAX];
    size_t prompt_count;
    bool several;    /* prompts came as a list */
    bool raw;        /* plain completion, no chat */
    bool in_thought; /* the prompt ends inside a thought */
    /* number of the conversation, to recognize returned calls; see token_replay.h */
    uint64_t call_conversation;
    mo_grammar *grammar;
    char *tools_text; /* the tools as JSON */
    char *unenforced; /* unenforced schema parts and dropped history parts, one per line; NULL: none */

    /* Metadata of the answer. */
    char id[64];
    srv_generation_times times;
    const char *model; /* its id */
    char fingerprint[64];
    srv_writer prefix; /* for the dialect writer: the start of every chunk */

    /* The answer: choices ordered by prompt. */
    srv_choice *choices;
    size_t choice_count;
    srv_usage usage; /* of all jobs */
    srv_timings timings;
    int64_t sequence; /* for the dialect writer: event numbers */

    /* Processing state: see generation.c. */
    pthread_mutex_t lock;
    _Atomic uint64_t jobs[SRV_PROMPTS_MAX];
    srv_request_job running[SRV_PROMPTS_MAX];
    size_t running_count;
    bool starting, streaming, failed;
    struct srv_trace *trace; /* NULL: not requested */
    srv_generation_stops stops;
    srv_writer out;
};

/* Reads the body and references the model it names. NULL: the request has been answered. */
srv_generation *srv_generation_open(const srv_generator *generator, srv_request *request, srv_dialect dialect,
                                    const srv_dialect_writer *writer);
/* Answers with g->fault and closes. */
void srv_generation_refuse(srv_generation *g);
/* Closes after an answer was given. */
void srv_generation_close(srv_generation *g);

/* Reads the generation parameters of the object (the request, or its options) over the server's defaults. */
bool srv_generation_parameters(srv_generation *g, const srv_field *object);
/* Renders and tokenizes the conversation, or reads the prompts of a field; both check the length. */
bool srv_generation_chat(srv_generation *g);
bool srv_generation_text(srv_generation *g, const srv_field *prompt);
/* Builds the grammar for tools and format. */
bool srv_generation_constrain(srv_generation *g);
/* Submits to the engine; answers, now or later, and closes. */
void srv_generation_start(srv_generation *g);

/* True if a choice was ended by a limit or a stop request, not by the model or a stop string. */
bool srv_generation_is_cut(const srv_generation *g, const srv_choice *choice);

/* For dialect writers: stores probabilities as in chats; the same unless already streamed; token ids. */
void srv_keep_probabilities(srv_generation *g, srv_choice *choice, const srv_event *event);
void srv_keep_unsent(srv_generation *g, srv_choice *choice, const srv_event *event);
void srv_keep_tokens(srv_generation *g, srv_choice *choice, const srv_event *event);
/* The text of a prompt's tokens, as a JSON string. */
void srv_put_prompt(srv_writer *w, const srv_generation *g, size_t prompt);

/* Renders the conversation only to show or count it; free the result in any case. */
bool srv_generation_render(srv_generation *g, srv_rendering *out);

#endif
