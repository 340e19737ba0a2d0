/* Job: one request for the engine, and the engine that does it: a scheduler for one loaded model. A job takes tokens and
 * settings and tells what becomes of it in events; what the events mean to a client is not known here.
 *
 * The sink of a job is called on threads of the engine, one call at a time per job, in order. It must not wait: a client
 * that reads slowly pauses its job (srv_job_pause). The last event is SRV_DONE or SRV_FAILED; it comes exactly once for
 * every job that was accepted, also for one that is cancelled, and after it nothing of the job is used any more: neither
 * the sink nor what the options pointed to. */
#ifndef SRV_JOB_H
#define SRV_JOB_H

#include "moraine_server.h"

/* ---- Events ----------------------------------------------------------------------------------- */

typedef enum srv_event_kind {
    SRV_STARTED, /* it has left the queue; `usage.cached_tokens` is known */
    SRV_PROGRESS, /* more of the prompt has been computed: usage.prompt_done; only where `progress` was asked for */
    SRV_TEXT,    /* text of the answer; empty, with a token, where the model has no vocabulary */
    SRV_THOUGHT, /* text of the model's reasoning */
    SRV_CALL, /* a tool call begins: text is its name, call its index in the choice, call_id its name for clients */
    SRV_ARGUMENTS, /* text is the next piece of the call's arguments, which are JSON */
    SRV_CALL_END,
    SRV_END,    /* of one choice: finish, stop, completion_tokens */
    SRV_DONE,   /* of the job: usage and timings are final */
    SRV_FAILED, /* error; the usage says what was computed. MO_ECANCELLED: cancelled */
} srv_event_kind;

typedef enum srv_finish {
    SRV_FINISH_NONE,
    SRV_FINISH_END,    /* the model ended its answer */
    SRV_FINISH_STRING, /* a stop string: `stop` is its index */
    SRV_FINISH_LENGTH, /* max_tokens, or the window is full */
} srv_finish;

/* Guesses of speculative decoding; of a prediction: those that came from the request's. */
typedef struct srv_draft_counts {
    int64_t drafted, accepted, prediction_drafted, prediction_accepted;
} srv_draft_counts;

static inline void srv_draft_counts_add(srv_draft_counts *to, const srv_draft_counts *more)
{
    to->drafted += more->drafted;
    to->accepted += more->accepted;
    to->prediction_drafted += more->prediction_drafted;
    to->prediction_accepted += more->prediction_accepted;
}

typedef struct srv_usage {
    int64_t prompt_tokens;
    int64_t cached_tokens;     /* of them not computed for this job */
    int64_t prompt_done;       /* of them held so far, cached ones included */
    int64_t completion_tokens; /* of all choices */
    int64_t thought_tokens;    /* of these in thoughts */
    srv_draft_counts drafts;   /* of all choices; accepted ones are tokens of the answer */
} srv_usage;

typedef struct srv_timings {
    double queued_s;    /* until it started */
    double prompt_s;    /* from then until the first token */
    double predicted_s; /* from the first token to the last */
    int64_t firsts;     /* tokens of the answer that predicted_s does not have: the first of each choice */
    double first_s;     /* from submitting to the first token; 0: there is none */
} srv_timings;

typedef struct srv_event {
    srv_event_kind kind;
    uint64_t job;
    int choice;
    mo_text text; /* terminated; whole characters */
    int call;
    const char *call_id;
    /* The sampled tokens whose text this event completes, or (SRV_END) that had no text; those of SRV_CALL... too. Valid
     * until the sink returns. Every sampled token is reported exactly once, but for the one that ended the answer where
     * nothing was asked about it. */
    const mo_generation_token *tokens;
    size_t token_count;
    srv_finish finish;
    int stop;                  /* index of the stop string; -1: none */
    int64_t completion_tokens; /* of this choice so far */
    const srv_usage *usage;    /* always there */
    const srv_timings *timings;
    const mo_error *error; /* SRV_FAILED */
    bool more;             /* another event, or `told` of the job, follows at once */
} srv_event;

/* Returning false cancels the job: its client is gone. */
typedef bool (*srv_sink)(void *user, const srv_event *event);

/* Hears which experts a layer chose for a token of the answer, on the engine's thread; it must not wait. */
typedef void (*srv_routes_fn)(void *user, int layer, int64_t position, int32_t token, const int32_t *ids,
                              int used);

/* ---- Jobs ------------------------------------------------------------------------------------- */

enum {
    SRV_ADAPTERS = 16,
    SRV_ADAPTERS_USED = 8
}; /* as many as a model can have, and as a session can compute with */

typedef struct srv_job_options {
    const int32_t *tokens; /* the prompt, at least 1; copied, as is what `generation` points to */
    size_t count;
    mo_image *const *images; /* [image_count] its pictures; used while submitting only */
    int image_count;
    /* Of each choice; choice i draws with seed + i. ignore_end: tokens that end answers are not sampled either. */
    mo_generation_options generation;
    const mo_reply_options *reply; /* how it is parsed; NULL: the defaults. Used while submitting only */
    mo_grammar *grammar; /* what the answer must look like; NULL: anything. Stays open until the last event */
    int n;               /* choices, 1 to the engine's `parallel`; 0: 1 */
    bool no_cache;     /* compute every token of the prompt (cache_prompt: false); nothing changes but time */
    bool progress;     /* SRV_PROGRESS events */
    int priority;      /* higher goes first; 0: usual */
    uint64_t client;   /* jobs of one number share a client's turn; 0: this job is a client of its own */
    uint64_t owner;    /* only prefixes of this owner and of owner 0 are used (caller.h) */
    uint64_t identity; /* of the client's key, whatever keys share: only its own answers are guessed from */
    srv_sink sink;
    void (*batch_end)(void *user); /* after events that had `more`; NULL: none has it */
    void *user;
    mo_adapter_use adapters[SRV_ADAPTERS]; /* of the engine's model */
    int adapter_count;
    srv_routes_fn routes; /* of the first choice; NULL: not needed */
    void *routes_user;
} srv_job_options;

/* One choice with the defaults of generations; otherwise zeros. */
srv_job_options srv_job_options_default(void);

typedef enum srv_verdict {
    SRV_ACCEPTED,
    SRV_QUEUE_FULL, /* 429 */
    SRV_TOO_LONG,   /* 400: the prompt fills the window; err says the numbers */
    SRV_TOO_MANY,   /* 400: more choices than there are sequences */
    SRV_INVALID,    /* 400 */
    SRV_STOPPING,   /* 503 */
    SRV_NO_MEMORY,  /* 500 */
} srv_verdict;

typedef struct srv_engine srv_engine;

/* Never blocks. *job is the job's number, never 0 and never used again. Events may come before this returns. */
srv_verdict srv_job_submit(srv_engine *engine, const srv_job_options *options, uint64_t *job, mo_error *err);

/* The job ends with SRV_FAILED and MO_ECANCELLED, within a second in every state. Any thread, also the sink; nothing
 * happens when there is no such job any more. */
void srv_job_cancel(srv_engine *engine, uint64_t job);

/* A paused job makes no tokens. It keeps its place, but when others need it, it is cancelled once it has been paused for
 * `stalled_s`. Any thread, also the sink. */
void srv_job_pause(srv_engine *engine, uint64_t job);
void srv_job_resume(srv_engine *engine, uint64_t job);

/* ---- Engines ---------------------------------------------------------------------------------- */

typedef struct srv_engine_options {
    int parallel;    /* sequences at once, 1 to 256; 0: 4. The model was opened with this many `sessions` */
    int64_t context; /* positions of one; 0: the model's */
    mo_kv_type kv;
    int queue;               /* jobs that may wait; 0: 256 */
    double between_s;        /* prompts pass in pieces that delay others' tokens by no more; 0: 0.05 */
    double stalled_s;        /* a job paused for this long ends if others wait; 0: 10 */
    int64_t cache_bytes;     /* of kept sessions in RAM; 0: 1 GiB; -1: none are kept */
    bool lossy;              /* the model was opened with a lossy option: nothing is kept on disk or shared */
    const char *cache_dir;   /* kept sessions are written there and found after a restart; NULL: none */
    int64_t cache_dir_bytes; /* at most; 0: 8 GiB */
    int64_t discover;        /* tokens of a new text that find experts on disk before it is fed; 0: none do */
} srv_engine_options;

/* The model outlives the engine. */
mo_status srv_engine_open(mo_model *model, const srv_engine_options *options, srv_engine **out,
                          mo_error *err);
/* A few steps, so that a device's first-time setup is done before the first request. For an engine that has had no job. How
 * many there were until `stopping`; sequences hold nothing afterwards. */
int srv_engine_warmup(srv_engine *engine, const _Atomic bool *stopping);
/* Cancels what is there; kept sessions stay on disk. NULL is allowed. */
void srv_engine_close(srv_engine *engine);
/* Accepts no more jobs, and waits until the others have ended, or this many seconds. True: none is left. */
bool srv_engine_drain(srv_engine *engine, double seconds);

/* Cancels the jobs that have been paused for `stalled_s`: others wait for the model to be free. */
void srv_engine_end_stalled(srv_engine *engine);

/* Runs the work on the engine's thread between two steps, and returns when it is done: applying a profile, for example. */
void srv_engine_between_steps(srv_engine *engine, void (*work)(void *user), void *user);

/* The tokens of the sequence in which a call of that id was made, from the prompt's beginning to the end of the answer, so
 * that a history that is rendered again can be made of them: mo_free() *tokens. The answer begins at *prompt. False: no such
 * call is known. Any thread. */
bool srv_engine_find_call(srv_engine *engine, const char *call_id, int32_t **tokens, size_t *count,
                          size_t *prompt);

/* ---- Reports: no one waits for a step that runs ------------------------------------------------ */

typedef enum srv_job_state { SRV_QUEUED, SRV_PROMPT, SRV_GENERATING, SRV_PAUSED } srv_job_state;

typedef struct srv_job_report {
    uint64_t job, client, owner;
    srv_job_state state;
    int priority, choices;
    int first_slot; /* of its sequences; -1: queued */
    double age_s;
    srv_usage usage;
    int64_t max_tokens;
} srv_job_report;

typedef struct srv_slot_report {
    uint64_t job;   /* 0: free */
    uint64_t owner; /* of what it holds */
    int choice;
    int64_t context;
    int64_t prompt_tokens, prompt_done, cached_tokens, generated, remaining; /* remaining: -1: no limit */
    bool speculates;
    mo_generation_options generation; /* of the job, without what it points to */
} srv_slot_report;

enum { SRV_BUCKETS = 16 };
/* Upper bounds of the histograms' buckets in seconds; what is above the last is counted in `count` only. */
extern const double srv_bucket_bounds[SRV_BUCKETS];

typedef struct srv_histogram {
    uint64_t buckets[SRV_BUCKETS]; /* each bucket's own, not cumulated */
    uint64_t count;
    double sum;
} srv_histogram;

typedef struct srv_engine_report {
    int parallel, busy; /* sequences */
    int queued, queue;  /* jobs that wait, and may wait */
    int running;        /* jobs */
    int64_t context;    /* positions of a sequence */
    bool stopping;
    uint64_t accepted, done, failed, cancelled, refused;
    uint64_t steps, step_sequences;        /* steps, and the sum of the sequences in them */
    uint64_t prompt_tokens, cached_tokens; /* computed, and found */
    uint64_t predicted_tokens;
    double prompt_s, predicted_s;
    int64_t longest;                /* tokens of a sequence */
    srv_histogram first, between;   /* time to the first token, and between two tokens of a sequence */
    uint64_t kept, kept_bytes;      /* snapshots in memory, and what they alone hold */
    uint64_t disk_kept, disk_bytes; /* in the cache directory */
    uint64_t disk_failures;         /* writes that failed */
} srv_engine_report;

void srv_engine_describe(srv_engine *engine, srv_engine_report *out);
/* Constant: what the model says of itself, and how many jobs may wait. */
const mo_model_info *srv_engine_info(const srv_engine *engine);
int srv_engine_queue(const srv_engine *engine);
/* The tokens that were computed of prompts, and generated, so far: for those who ask often. */
void srv_engine_tokens(srv_engine *engine, uint64_t *prompt, uint64_t *predicted);
/* At most `limit` are written; they return how many there are. */
int srv_engine_jobs(srv_engine *engine, srv_job_report *out, int limit);
int srv_engine_slots(srv_engine *engine, srv_slot_report *out, int limit);

/* Counters: what engines have done, added up over those that are gone. */

/* Adds what only ever rises; what is so at the moment is left alone. */
void srv_counters_add(srv_engine_report *sum, const srv_engine_report *report);

#endif
