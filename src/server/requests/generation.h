/* Generation: one request for text on its way from its JSON to its answer. A dialect reads the request into it and brings a
 * writer, which writes the answer, whole or as a stream; everything between is the same for all. */
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

enum { SRV_PROMPTS_MAX = 64 }; /* of one request */

typedef struct srv_generation srv_generation;

/* What requests for text share: the owner of the dialects' routes. It lives as long as the server. */
typedef struct srv_generator {
    srv_models *models;
    struct srv_running *running;       /* NULL: nobody else can stop an answer */
    struct srv_call_index *call_index; /* NULL: answers that come back are taken as text */
    struct srv_traces *traces;
    bool image_urls; /* pictures are fetched from other servers */
} srv_generator;

/* How a dialect writes. All write to `out`, on whichever thread has the event, one at a time. */
typedef struct srv_dialect_writer {
    srv_stream_kind stream;
    /* A stream: what comes before the first event; what an event of a choice adds (already taken by it; `fresh`: it began
     * an item); what comes last; and how an error is written instead. */
    void (*begin)(srv_generation *g, srv_writer *out);
    void (*event)(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *out);
    void (*end)(srv_generation *g, srv_writer *out);
    void (*fail)(srv_generation *g, const srv_fault *fault, srv_writer *out);
    /* Of an event's tokens, what the whole answer will tell of them; NULL: nothing. */
    void (*keep)(srv_generation *g, srv_choice *choice, const srv_event *event);
    /* The whole answer. */
    void (*whole)(srv_generation *g, srv_writer *out);
} srv_dialect_writer;

/* Earlier answers, for the responses API: see response_input.h. */
typedef struct srv_history {
    struct srv_response_store *kept; /* NULL: none are kept */
    json_t *before;                  /* items before the request's own; NULL: none */
    size_t bytes;                    /* of these */
    bool store;                      /* the answer is kept */
} srv_history;

typedef struct srv_generation_times {
    int64_t created;  /* Unix time */
    int64_t begun_ns; /* when it came, by the monotonic clock */
    int64_t load_ns;  /* how long it waited for its model */
} srv_generation_times;

/* How it may end early. */
typedef struct srv_generation_stops {
    bool listed;         /* others can stop it */
    atomic_bool stopped; /* on request: the text so far is the answer */
    atomic_bool ending;  /* by the server's end: it is not complete */
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

    /* What was asked. */
    json_t *root;
    int64_t root_held; /* see body.h */
    bool large;        /* the body */
    srv_fault fault;
    srv_parameters parameters;
    srv_tools tools;
    srv_format format;
    srv_conversation conversation;
    srv_history history;

    /* What the engine is asked. */
    srv_tokens prompts[SRV_PROMPTS_MAX];
    size_t prompt_count;
    bool several;               /* prompts came as a list */
    bool raw;                   /* no chat: text as the model says it */
    bool in_thought;            /* the prompt ended inside a thought */
    uint64_t call_conversation; /* the conversation's number, for calls that come back; see recall.h */
    mo_grammar *grammar;
    char *tools_text; /* the tools as JSON */
    char *unenforced; /* what of schemas is not enforced, and of a history left out: lines; NULL: nothing */

    /* What the answer says of itself. */
    char id[64];
    srv_generation_times times;
    const char *model; /* its id */
    char fingerprint[64];
    srv_writer prefix; /* of the dialect writer: what every chunk begins with */

    /* The answer: choices prompt by prompt. */
    srv_choice *choices;
    size_t choice_count;
    srv_usage usage; /* of all jobs */
    srv_timings timings;
    int64_t sequence; /* of the dialect writer: numbers of its events */

    /* The way between: see generation.c. */
    pthread_mutex_t lock;
    _Atomic uint64_t jobs[SRV_PROMPTS_MAX];
    srv_request_job running[SRV_PROMPTS_MAX];
    size_t running_count;
    bool starting, streaming, failed;
    struct srv_trace *trace; /* NULL: not wanted */
    srv_generation_stops stops;
    srv_writer out;
};

/* Reads the body and holds the model it names. NULL: the request has been answered. */
srv_generation *srv_generation_open(const srv_generator *generator, srv_request *request, srv_dialect dialect,
                                    const srv_dialect_writer *writer);
/* Answers with g->fault and closes. */
void srv_generation_refuse(srv_generation *g);
/* Closes without an answer: it has been given. */
void srv_generation_close(srv_generation *g);

/* The generation parameters of the object (the request, or its options), over the server's defaults. */
bool srv_generation_parameters(srv_generation *g, const srv_field *object);
/* Renders and tokenizes the conversation, or takes the prompts of a field; both check that they fit. */
bool srv_generation_chat(srv_generation *g);
bool srv_generation_text(srv_generation *g, const srv_field *prompt);
/* Makes the grammar that tools and format ask for. */
bool srv_generation_constrain(srv_generation *g);
/* Hands it to the engine; answers, now or later, and closes. */
void srv_generation_start(srv_generation *g);

/* Was a choice ended by something other than the model or a stop string: a limit, or a request to stop? */
bool srv_generation_is_cut(const srv_generation *g, const srv_choice *choice);

/* For dialect writers: probabilities as in chats; the same unless a stream has already sent them; ids. */
void srv_keep_probabilities(srv_generation *g, srv_choice *choice, const srv_event *event);
void srv_keep_unsent(srv_generation *g, srv_choice *choice, const srv_event *event);
void srv_keep_tokens(srv_generation *g, srv_choice *choice, const srv_event *event);
/* The text of a prompt's tokens, as a string. */
void srv_put_prompt(srv_writer *w, const srv_generation *g, size_t prompt);

/* The rendered conversation, for those who only want to see or count it; to be freed in any case. */
bool srv_generation_render(srv_generation *g, srv_rendering *out);

#endif
