/* Job: one request to the engine, and the engine, a scheduler for one loaded model. A job has tokens and
 * settings and reports its progress in events; it knows nothing of clients.
 *
 * A job's sink is called on engine threads, in order, one call at a time. It must not block: a slow client
 * pauses its job (srv_job_pause). The last event is SRV_DONE or SRV_FAILED. It comes exactly once for every
 * accepted job, also for a cancelled one; afterwards neither the sink nor the data of the options is used. */
#ifndef SRV_JOB_H
#define SRV_JOB_H

#include "moraine_server.h"

/* ---- Events ----------------------------------------------------------------------------------- */

typedef enum srv_event_kind {
    SRV_STARTED,  /* it has left the queue; `usage.cached_tokens` is known */
    SRV_PROGRESS, /* more of the prompt has been computed: usage.prompt_done; only if `progress` is set */
    SRV_TEXT,     /* text of the answer; empty with a token if the model has no vocabulary */
    SRV_THOUGHT,  /* text of the model's reasoning */
    /* start of a tool call: text is its name, call its index in the choice, call_id its id for clients */
    SRV_CALL,
    SRV_ARGUMENTS, /* text is the next part of the call's arguments, JSON */
    SRV_CALL_END,
    SRV_END,    /* of one choice: finish, stop, completion_tokens */
    SRV_DONE,   /* of the job: usage and timings are final */
    SRV_FAILED, /* error; usage has what was computed. MO_ECANCELLED: cancelled */
} srv_event_kind;

typedef enum srv_finish {
    SRV_FINISH_NONE,
    SRV_FINISH_END,    /* end-of-generation token */
    SRV_FINISH_STRING, /* stop string: `stop` is its index */
    SRV_FINISH_LENGTH, /* max_tokens, or the context is full */
} srv_finish;

/* Draft tokens of speculative decoding; prediction_*: those from the request's prediction. */
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
    int64_t prompt_done;       /* of them held so far, including cached ones */
    int64_t completion_tokens; /* of all choices */
    int64_t thought_tokens;    /* of these in thoughts */
    srv_draft_counts drafts;   /* of all choices; accepted ones are tokens of the answer */
} srv_usage;

typedef struct srv_timings {
    double queued_s;    /* until start */
    double prompt_s;    /* from start to the first token */
    double predicted_s; /* from the first token to the last */
    int64_t firsts;     /* answer tokens not in predicted_s: the first of each choice */
    double first_s;     /* from submission to the first token; 0: none */
} srv_timings;

typedef struct srv_event {
    srv_event_kind kind;
    uint64_t job;
    int choice;
    mo_text text; /* terminated; complete characters */
    int call;
    const char *call_id;
    /* The sampled tokens whose text this event completes, or (SRV_END) that had no text; also in SRV_CALL...
     * events. Valid until the sink returns. Every sampled token is reported exactly once, except the one that
     * ended the answer if no data about it was requested. */
    const mo_generation_token *tokens;
    size_t token_count;
    srv_finish finish;
    int stop;                  /* index of the stop string; -1: none */
    int64_t completion_tokens; /* of this choice so far */
    const srv_usage *usage;    /* never NULL */
    const srv_timings *timings;
    const mo_error *error; /* SRV_FAILED */
    bool more;             /* another event, or `batch_end` of the job, follows at once */
} srv_event;

/* Returning false cancels the job: its client is gone. */
typedef bool (*srv_sink)(void *user, const srv_event *event);

/* Receives the experts a layer chose for a token of the answer, on the engine's thread; must not block. */
typedef void (*srv_routes_fn)(void *user, int layer, int64_t position, int32_t token, const int32_t *ids,
                              int used);

/* ---- Jobs ------------------------------------------------------------------------------------- */

enum {
    SRV_ADAPTERS = 16,
    /* maximum per model, and per session */
    SRV_ADAPTERS_USED = 8
};

typedef struct srv_job_options {
    const int32_t *tokens; /* the prompt, at least 1 token; copied, as is everything `generation` points to */
    size_t count;
    mo_image *const *images; /* [image_count] its images; used only while submitting */
    int image_count;
    /* For each choice; choice i uses seed + i. ignore_end: tokens that end answers are not sampled either. */
    mo_generation_options generation;
    const mo_reply_options *reply; /* parsing of the answer; NULL: defaults. Used only while submitting */
    mo_grammar *grammar; /* constraint of the answer; NULL: none. Must stay open until the last event */
    int n;               /* number of choices, 1 to the engine's `parallel`; 0: 1 */
    bool no_cache;       /* compute every token of the prompt (cache_prompt: false); affects only time */
    bool progress;       /* emit SRV_PROGRESS events */
    int priority;        /* higher goes first; 0: default */
    uint64_t client;     /* jobs with the same number share a client's turns; 0: its own client */
    uint64_t owner;      /* only prefixes of this owner and of owner 0 are used (caller.h) */
    /* of the client's key, even if keys share prefixes: drafts come only from its own answers */
    uint64_t identity;
    srv_sink sink;
    void (*batch_end)(void *user); /* called after events that had `more`; NULL: no event has it */
    void *user;
    mo_adapter_use adapters[SRV_ADAPTERS]; /* of the engine's model */
    int adapter_count;
    srv_routes_fn routes; /* for the first choice; NULL: not needed */
    void *routes_user;
} srv_job_options;

/* One choice with default generation options; otherwise zeros. */
srv_job_options srv_job_options_default(void);

typedef enum srv_verdict {
    SRV_ACCEPTED,
    SRV_QUEUE_FULL, /* 429 */
    SRV_TOO_LONG,   /* 400: the prompt exceeds the context; err has the numbers */
    SRV_TOO_MANY,   /* 400: more choices than sequences */
    SRV_INVALID,    /* 400 */
    SRV_STOPPING,   /* 503 */
    SRV_NO_MEMORY,  /* 500 */
} srv_verdict;

typedef struct srv_engine srv_engine;

/* Never blocks. *job is the job's number, never 0 and never reused. Events may come before this returns. */
srv_verdict srv_job_submit(srv_engine *engine, const srv_job_options *options, uint64_t *job, mo_error *err);

/* Ends the job with SRV_FAILED and MO_ECANCELLED, within a second in every state. Any thread, including the
 * sink; no effect if the job has ended. */
void srv_job_cancel(srv_engine *engine, uint64_t job);

/* A paused job generates no tokens. It keeps its sequences, but is cancelled once it has been paused for
 * `stalled_s` while others wait. Any thread, including the sink. */
void srv_job_pause(srv_engine *engine, uint64_t job);
void srv_job_resume(srv_engine *engine, uint64_t job);

/* ---- Engines ---------------------------------------------------------------------------------- */

typedef struct srv_engine_options {
    /* concurrent sequences, 1 to 256; 0: 4. The model was opened with this many `sessions` */
    int parallel;
    int64_t context; /* positions per sequence; 0: the model's */
    mo_kv_type kv;
    int queue; /* maximum queued jobs; 0: 256 */
    /* prompts are split so that they delay others' tokens by at most this; 0: 0.05 */
    double between_s;
    double stalled_s;    /* a job paused for this long ends if others wait; 0: 10 */
    int64_t cache_bytes; /* cached sessions in RAM; 0: 1 GiB; -1: no cache */
    /* the model was opened with a lossy option: nothing is cached on disk or shared */
    bool lossy;
    const char *cache_dir;   /* cached sessions are stored there across restarts; NULL: none */
    int64_t cache_dir_bytes; /* limit; 0: 8 GiB */
    /* tokens of a new text used to find experts on disk before it is computed; 0: none */
    int64_t discover;
} srv_engine_options;

/* The model must outlive the engine. */
mo_status srv_engine_open(mo_model *model, const srv_engine_options *options, srv_engine **out,
                          mo_error *err);
/* Runs a few steps, so that a device's first-time setup is done before the first request. Only before any
 * job. Returns the number of steps until `stopping`; all sequences are empty afterwards. */
int srv_engine_warmup(srv_engine *engine, const _Atomic bool *stopping);
/* Cancels all jobs; cached sessions stay on disk. Accepts NULL. */
void srv_engine_close(srv_engine *engine);
/* Accepts no more jobs and waits until the others have ended, at most this many seconds. Returns true if none
 * is left. */
bool srv_engine_drain(srv_engine *engine, double seconds);

/* Cancels the jobs paused for `stalled_s`, because others wait for the model to be free. */
void srv_engine_end_stalled(srv_engine *engine);

/* Runs the work on the engine's thread between two steps and waits for it, for example to apply a profile. */
void srv_engine_between_steps(srv_engine *engine, void (*work)(void *user), void *user);

/* The tokens of the sequence that made a call with this id, from the start of the prompt to the end of the
 * answer, so that a history can be rebuilt from them: mo_free() *tokens. The answer starts at *prompt.
 * Returns false if the call is unknown. Any thread. */
bool srv_engine_find_call(srv_engine *engine, const char *call_id, int32_t **tokens, size_t *count,
                          size_t *prompt);

/* ---- Reports: they never wait for a running step ------------------------------------------------ */

typedef enum srv_job_state { SRV_QUEUED, SRV_PROMPT, SRV_GENERATING, SRV_PAUSED } srv_job_state;

typedef struct srv_job_report {
    uint64_t job, client, owner;
    srv_job_state state;
    int priority, choices;
    int first_slot; /* first of its sequences; -1: queued */
    double age_s;
    srv_usage usage;
    int64_t max_tokens;
} srv_job_report;

typedef struct srv_slot_report {
    uint64_t job;   /* 0: free */
    uint64_t owner; /* of its contents */
    int choice;
    int64_t context;
    int64_t prompt_tokens, prompt_done, cached_tokens, generated, remaining; /* remaining: -1: no limit */
    bool speculates;
    mo_generation_options generation; /* of the job, without pointers */
} srv_slot_report;

enum { SRV_BUCKETS = 16 };
/* Upper bounds of the histogram buckets in seconds; larger values only count in `count`. */
extern const double srv_bucket_bounds[SRV_BUCKETS];

typedef struct srv_histogram {
    uint64_t buckets[SRV_BUCKETS]; /* not cumulative */
    uint64_t count;
    double sum;
} srv_histogram;

typedef struct srv_engine_report {
    int parallel, busy; /* sequences */
    int queued, queue;  /* current and maximum number of waiting jobs */
    int running;        /* jobs */
    int64_t context;    /* positions of a sequence */
    bool stopping;
    uint64_t accepted, done, failed, cancelled, refused;
    uint64_t steps, step_sequences;        /* steps, and total sequences in them */
    uint64_t prompt_tokens, cached_tokens; /* computed, cached */
    uint64_t predicted_tokens;
    double prompt_s, predicted_s;
    int64_t longest;                /* tokens of the longest sequence */
    srv_histogram first, between;   /* time to the first token, and between tokens of a sequence */
    uint64_t kept, kept_bytes;      /* snapshots in memory, and the bytes only they hold */
    uint64_t disk_kept, disk_bytes; /* in the cache directory */
    uint64_t disk_failures;         /* failed writes */
} srv_engine_report;

void srv_engine_describe(srv_engine *engine, srv_engine_report *out);
/* Constant: the model's info, and the maximum queue length. */
const mo_model_info *srv_engine_info(const srv_engine *engine);
int srv_engine_queue(const srv_engine *engine);
/* Prompt tokens computed and tokens generated so far; cheap enough for frequent calls. */
void srv_engine_tokens(srv_engine *engine, uint64_t *prompt, uint64_t *predicted);
/* Write at most `limit` entries; return the total number. */
int srv_engine_jobs(srv_engine *engine, srv_job_report *out, int limit);
int srv_engine_slots(srv_engine *engine, srv_slot_report *out, int limit);

/* Counters: totals of engines, including closed ones. */

/* Adds the counters; gauges are unchanged. */
void srv_counters_add(srv_engine_report *sum, const srv_engine_report *report);

#endif
