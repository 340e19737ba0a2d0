/* Moraine: running models. moraine_tools.h has the tools: file contents, plans, probing, traces, synthetic and quantized
 * models, and several machines. docs/api.md shows how to use both.
 *
 *     mo_model *model = NULL;
 *     mo_session *session = NULL;
 *     mo_prompt *prompt = NULL;
 *     mo_generation *generation = NULL;
 *     mo_generation_event event;
 *     mo_error err;
 *     size_t count;
 *     const char *chat = "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]";
 *     if (mo_model_open("model.gguf", NULL, &model, &err) != MO_OK ||
 *         mo_session_open(model, NULL, &session, &err) != MO_OK ||
 *         mo_prompt_open(model, chat, strlen(chat), NULL, &prompt, &err) != MO_OK ||
 *         mo_generation_open(model, NULL, &generation, &err) != MO_OK) {
 *         return fail(&err);
 *     }
 *     const int32_t *tokens = mo_prompt_tokens(prompt, &count);
 *     int running = mo_generation_prompt(generation, session, tokens, count, &err) == MO_OK;
 *     while (running > 0) {
 *         running = mo_generation_step(&generation, 1, &err);
 *         while (mo_generation_next(generation, &event, sizeof event)) printf("%s", event.text.data);
 *     } (then close generation, prompt, session and model)
 *
 * Conventions
 *  - A function that can fail returns mo_status and fills *err (may be NULL) with a sentence that names the wrong file or
 *    setting (such as `ram_bytes`). On failure out-parameters are NULL or unchanged, and nothing leaks; on success *err is
 *    unchanged. Other pointers are required, unless documented as optional or their length or count is 0: MO_EINVAL names
 *    the missing one. Functions that return no status must not get NULL, except ..._close().
 *  - Objects are made by ..._open() and freed by ..._close(), which takes NULL.
 *  - Strings returned by const char * belong to the object they came from and live as long as it does. Memory owned by
 *    the caller is freed with mo_free().
 *  - Structs come in three kinds and grow at their ends only, so a program runs with a newer library unchanged.
 *    _options: initialized by their ..._default(), which sets `size`. A size of 0, or a non-zero member that this library
 *    does not know, is MO_EINVAL. Nested structs have reserved fields that must be 0.
 *    _info (properties) and _report (counters): filled up to the size that the caller passes.
 *  - The library never prints and never exits; it logs through the callback of mo_log_set().
 *  - Unless a function says otherwise, any thread may call it, but only one at a time per object. A thread that calls the
 *    library needs 64 KiB of stack, for any model. */
#ifndef MORAINE_H
#define MORAINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define MO_API               __attribute__((visibility("default")))
#define MO_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* Defines type_init() and type_default() for an options struct: mo_model_options o = mo_model_options_default(). */
#define MO_OPTIONS(type)                                                                                     \
    MO_API void type##_init(type *options, size_t size);                                                     \
    static inline type type##_default(void)                                                                  \
    {                                                                                                        \
        type o;                                                                                              \
        type##_init(&o, sizeof o);                                                                           \
        return o;                                                                                            \
    }

/* ---- Status and errors ------------------------------------------------------------------------ */
typedef enum mo_status {
    MO_OK = 0,
    MO_EINVAL,       /* invalid argument or option */
    MO_ENOMEM,       /* out of memory */
    MO_EIO,          /* reading or writing failed */
    MO_ENOENT,       /* no such file, model, tensor or name */
    MO_ENOSPC,       /* the disk is full or a size limit was reached */
    MO_EFORMAT,      /* a file is damaged or has another format */
    MO_EUNSUPPORTED, /* valid, but not supported by this build or machine */
    MO_ECANCELLED,   /* a callback or another thread asked to stop */
    MO_EDEVICE,      /* a device (GPU) is missing, refused or lost */
} mo_status;

typedef struct mo_error {
    mo_status status;
    char detail[1024]; /* one sentence: what is wrong, and what to do */
} mo_error;

MO_API const char *mo_status_text(mo_status status); /* a short name, such as "I/O error"; a constant */
/* frees memory that a function returned; NULL is allowed */
MO_API void mo_free(void *memory);
/* ---- Version and log -------------------------------------------------------------------------- */
#define MORAINE_VERSION_MAJOR 0
#define MORAINE_VERSION_MINOR 2
#define MORAINE_VERSION_PATCH 0
#define MORAINE_VERSION                                                                                      \
    (MORAINE_VERSION_MAJOR * 1000000 + MORAINE_VERSION_MINOR * 1000 + MORAINE_VERSION_PATCH)
MO_API const char *mo_version(void); /* version of the loaded library, such as "0.2.0" */
/* Checks that this library supports programs compiled with that header; pass MORAINE_VERSION. The major number must be equal, and the
 * library's minor number at least the header's; while the major number is 0, both must be equal. */
MO_API mo_status mo_version_check(int header_version, mo_error *err);

typedef enum mo_log_level { MO_LOG_ERROR, MO_LOG_WARN, MO_LOG_INFO, MO_LOG_DEBUG } mo_log_level;
/* Called from any thread, possibly from several at once, without a lock. It may call the library, whose messages are then dropped. */
typedef void (*mo_log_fn)(void *user, mo_log_level level, const char *subsystem, const char *text);
/* Sends messages up to `level` to fn; NULL (the default) silences the library. On return no call of the previous callback is running,
 * unless mo_log_set() was called from a callback. */
MO_API void mo_log_set(mo_log_fn fn, void *user, mo_log_level level);

/* ---- Options of a model ----------------------------------------------------------------------- */
/* Called between parts of a long operation, on the calling thread. Returns false to cancel. */
typedef bool (*mo_progress_fn)(void *user, int64_t done_bytes, int64_t total_bytes);
/* Format of the KV cache. I16 (the default): 16-bit codes with a scale per vector, summed exactly. F32: exact, but slow and twice the
 * memory. Q8_0: lossy, half the memory of I16. F16 is an alias of I16, whose error is a tenth of F16's. */
typedef enum mo_kv_type { MO_KV_I16, MO_KV_F32, MO_KV_Q8_0, MO_KV_F16 = MO_KV_I16 } mo_kv_type;
/* Precision of matrix products in large steps on a device. EXACT: as everywhere else. BF16: bfloat16, lossy, faster on GPUs of
 * capability 8.0 or newer. */
typedef enum mo_precision { MO_PRECISION_EXACT, MO_PRECISION_BF16 } mo_precision;
/* How weights are read from disk: bypassing the page cache, through it, or (AUTO) as measured at open. */
typedef enum mo_io { MO_IO_AUTO, MO_IO_DIRECT, MO_IO_CACHED } mo_io;
/* How ranks share a model. LAYERS: each has a range of layers. EXPERTS: all share the routed experts, and rank 0 has the rest. */
typedef enum mo_divide { MO_DIVIDE_AUTO, MO_DIVIDE_LAYERS, MO_DIVIDE_EXPERTS } mo_divide;
/* Post-Fetch: how an expert in RAM reaches a device. DOWN copies its down matrix while the CPU computes gate and up, EXPERT the whole
 * expert, OFF nothing; AUTO picks the fastest by measured rates. DEFAULT: AUTO, or with `environment` LLAMA_POSTFETCH_ENABLE. */
/* clang-format off */
typedef enum mo_postfetch_mode {
    MO_POSTFETCH_DEFAULT, MO_POSTFETCH_OFF, MO_POSTFETCH_AUTO, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT
} mo_postfetch_mode;
/* Source of draft tokens: none (the default), all, n-grams of the text, an MTP head, or a draft model. Used only while faster. */
typedef enum { MO_SPECULATE_OFF, MO_SPECULATE_AUTO, MO_SPECULATE_NGRAM, MO_SPECULATE_MTP, MO_SPECULATE_DRAFT } mo_speculate;
/* clang-format on */

/* The hot cache: experts chosen from a profile. With a device it is in device memory, and an update rate exchanges experts in the
 * background after each request and every 64 tokens. Without one it is in RAM, and experts are exchanged after a request. */
typedef struct mo_hot_cache_options {
    const char *file;         /* a profile in JSON, as mo_model_profile() writes it; NULL: none */
    int64_t max_mib;          /* size in MiB; 0: off; -1: all memory left under the ceiling */
    int64_t auto_reserve_mib; /* MiB that -1 leaves free; by default 1024 */
    double update_rate;       /* share of its experts that one update may exchange, 0 to 1 */
    const char *weighting;    /* flat, balanced, pressure, smooth or time; NULL: flat */
    double layer_curve;       /* how much layers may differ, 0 to 1; by default 0.5 */
    uint64_t reserved[4];     /* 0 */
} mo_hot_cache_options;
/* Expert usage statistics and where they are stored. They never change results. */
typedef struct mo_learning_options {
    /* File with the counts of all runs, which warm the cache at the next start. NULL or "off": none. "auto": a file in the user's
     * cache directory ($XDG_CACHE_HOME/moraine or ~/.cache/moraine), which also stores the disk's speed. Otherwise: a path. */
    const char *profile;
    const char *perf_mode; /* "full" (NULL): picks and times; "update": picks and lanes; "off": nothing */
    const char *perf_out;  /* file for this run's counts, written after each request; NULL: none */
    const char *warm_file; /* file that stores which experts are in RAM, for a fast next start; NULL: none */
    mo_hot_cache_options hot_cache;
    uint64_t reserved[4]; /* 0 */
} mo_learning_options;
#define MO_DEVICES_MAX 8 /* maximum number of devices that share a model */
typedef struct mo_model_options {
    size_t size;
    int threads;     /* 0: one per usable core, or fewer if a probe found that to be faster */
    const char *isa; /* instruction set, as listed by mo_isa_name(); NULL or "auto": the best */
    int64_t context; /* maximum positions of a session; 0: the training context, at most 8192 */
    int64_t batch;   /* maximum tokens per step; 0: chosen by the plan */
    /* Map the file instead of reading it: no ceiling, no tiers. If the file is written to meanwhile, feeds fail with MO_EIO: the
     * library handles SIGBUS, forwards other faults to the previous handler, and restores that handler at the end. */
    bool map;
    mo_progress_fn progress; /* while loading; may be NULL */
    void *user;
    /* Memory ceiling of the process, shared by all open models; 0: the memory that the machine and its limits leave. A model that does
     * not fit keeps in RAM what every token needs and as many experts (or layers) as fit. The rest is read from disk on demand. The
     * results are the same. */
    int64_t ram_bytes;
    mo_kv_type kv;      /* KV cache format of sessions; the plan reserves `sessions` of them */
    bool all_logits;    /* logits of every position will be requested; the plan reserves memory for them */
    const char *policy; /* cache policy for experts, as listed by mo_policy_name(); NULL: the default */
    bool no_prediction; /* do not prefetch what a layer will probably need */
    int readers;        /* concurrent reads; 0: as measured */
    mo_io io;
    bool skip_missing; /* lossy: experts that are not in RAM or VRAM are skipped */
    mo_learning_options learning;
    /* "none", "sim", "cuda" or "auto". NULL: "auto", the usable GPUs that help. "cuda:1" is the second GPU. Several, separated by
     * commas, share the layers; one may be named twice. The core, the sessions and as many experts as fit are in device memory. Other
     * experts are computed from RAM, or fetched. The results are the same. */
    const char *device;
    int64_t vram_bytes; /* ceiling of device memory; 0: the free memory less a reserve */
    mo_postfetch_mode postfetch;
    bool cpu_moe; /* keep no experts in device memory, except for the hot cache */
    /* Open sessions that the plan reserves memory for; 0: 1. Further sessions add to the RAM ceiling; a device rejects them. */
    int sessions;
    /* Positions of all sessions in total; 0: `sessions` times `context`. Sessions allocate blocks of 128 positions as they grow, and
     * share them with snapshots and with each other. A feed fails with MO_ENOMEM if no block is free. */
    int64_t positions;
    int64_t kept_bytes, kept_device_bytes; /* extra memory for snapshots: in RAM, on a device */
    const char *chat_template;             /* Jinja, or a chat format such as "chatml"; NULL: from the file */
    /* LoRA adapter files to open with the model: mo_model_adapter(). They stay in memory; the plan reserves it. */
    const char *const *adapters;
    int adapter_count;
    /* [adapter_count] scales in new sessions; NULL: no session starts with them */
    const float *adapter_scales;
    /* memory for adapters that are opened later; with `ram_bytes` they get no other */
    int64_t adapter_bytes;
    mo_precision prompt_precision; /* saved states with another precision are rejected */
    /* The ranks that share the model; this process is rank 0. It must outlive the model and serves one model at a time. NULL: none. */
    struct mo_cluster *cluster;
    const int64_t *vram_each; /* [vram_each_count] ceilings of the devices, in order; 0: vram_bytes */
    int vram_each_count;
    mo_divide divide; /* with a `cluster`; 0: the faster by measured rates, or layers if there are none */
    bool environment; /* also read LLAMA_POSTFETCH_*, LLAMA_MOE_HOT_CACHE_* and LLAMA_FP4_PREFILL_M */
    /* Speculative decoding (docs/speculation.md): draft tokens are verified in one step. The results are the same. */
    mo_speculate speculate;
    int draft_max;           /* maximum draft tokens per step; 0: 64. The plan reserves memory for them */
    const char *draft_model; /* file of an MTP head or a draft model; NULL: the model's own head, if any */
    const char *mmproj;      /* encoder file, for models that read pictures; NULL: none */
    int64_t image_min_tokens, image_max_tokens; /* tokens per picture; 0: the encoder's limits */
} mo_model_options;
MO_OPTIONS(mo_model_options)

/* Names by index, NULL past the last; constants. Instruction sets of this machine, best first; policies, default first, with a summary. */
MO_API const char *mo_isa_name(int index);
MO_API const char *mo_policy_name(int index, const char **summary);

/* ---- Models ----------------------------------------------------------------------------------- */
/* A loaded model with its threads and its memory. Sessions share it; any number of threads may use it at once. */
typedef struct mo_model mo_model;
/* Opens and loads a model file (the first part of a split model); options may be NULL. Close it after everything opened with it. After
 * fork() it belongs to the parent: in the child, computing is MO_EINVAL and closing has no effect; open the model there. */
MO_API mo_status mo_model_open(const char *path, const mo_model_options *options, mo_model **out,
                               mo_error *err);
MO_API void mo_model_close(mo_model *model);

typedef struct mo_model_info {
    const char *path, *architecture, *name, *isa;
    int threads, layers, experts, experts_used;
    int64_t vocab, width, context, batch;
    uint64_t core_bytes, expert_bytes, table_bytes, vector_bytes; /* weights in memory */
    uint64_t work_bytes, bytes_per_token; /* working memory of a step; weights a single token reads */
    bool has_vocabulary;
    uint64_t fingerprint; /* identifies a model by names, keys and shapes, not by weights; never 0 */
    bool rewinds;         /* sessions can rewind to any position: no layer is recurrent or has a window */
    mo_precision prompt_precision; /* in effect: exact if no device supports bf16 */
} mo_model_info;
MO_API void mo_model_describe(const mo_model *model, mo_model_info *out, size_t size);

/* A text about the model, owned by the model. NULL: the model has none, or the key is unknown. "chat_template", "chat_template.NAME":
 * from the file, or as opened with. "chat_format": such as "chatml", "template" if only its template is known, or "none".
 * "tool_format": how the model writes calls, such as "hermes", or "generic". "device": the names of all devices. "tier.mode":
 * "resident", "slots", "streamed", "tiered" (layers that are not in RAM are in VRAM) or "mapped". "tier.policy". "disk_method": such
 * as "direct reads, threads of 4", or "" when nothing is read. */
MO_API const char *mo_model_text(const mo_model *model, const char *key);
/* Call it after each answered request: a hot cache with an update rate exchanges experts now, and perf_out is written. Waits for a
 * running step. The model stays usable after a failure. */
MO_API mo_status mo_model_request_done(mo_model *model, mo_error *err);
/* Counts since the model was opened or reset: one line of JSON, as in perf_out; mo_free() *json. */
MO_API mo_status mo_model_profile(mo_model *model, char **json, mo_error *err);

/* ---- Text ------------------------------------------------------------------------------------- */
/* Bytes that end before data[length]. They are zero-terminated only where a function says so. */
typedef struct mo_text {
    const char *data;
    size_t length;
} mo_text;
typedef enum mo_token_flags {
    MO_TOKEN_SPECIAL = 1, /* NAMES and ENDS */
    MO_TOKEN_CHAT = 2,    /* like SPECIAL, for a rendered chat: an existing begin token is not added */
    MO_TOKEN_NAMES = 4,   /* recognize special tokens written in the text */
    MO_TOKEN_ENDS = 8,    /* add begin and end tokens as the vocabulary specifies */
} mo_token_flags;

/* Token ids of any bytes; mo_free() *ids. MO_EUNSUPPORTED when the model has no vocabulary. */
MO_API mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err);

/* The bytes of a token, perhaps part of a character; for a special token its name. Owned by the model, not terminated; empty for an id
 * out of range, or without a vocabulary. */
MO_API mo_text mo_token_bytes(const mo_model *model, int32_t token);
MO_API bool mo_token_ends(const mo_model *model, int32_t token); /* the token ends an answer */

/* ---- Prompts ---------------------------------------------------------------------------------- */
/* Whether a model that can think does so. DEFAULT: as its template decides. */
typedef enum mo_thinking { MO_THINKING_DEFAULT, MO_THINKING_ON, MO_THINKING_OFF } mo_thinking;

typedef struct mo_chat_options {
    size_t size;
    mo_thinking thinking; /* sets enable_thinking and thinking in templates */
    const char *effort;   /* reasoning_effort: "low", "medium" or "high" for harmony; NULL: not set */
    const char *date;     /* YYYY-MM-DD or YYYY-MM-DDThh:mm:ss, where shown; NULL: the clock's; "": none */
    bool no_prompt;       /* do not start the assistant's turn at the end */
    const char *chat_template; /* replaces the model's template and answer format; NULL: the model's */
    size_t tokens_most;        /* produce only this many tokens; 0: all */
} mo_chat_options;
MO_OPTIONS(mo_chat_options)

/* A rendered conversation, with the beginning of the next answer. */
typedef struct mo_prompt mo_prompt;
/* Renders a conversation with the model's template, or in a recognized format if the file's template is missing or cannot be read.
 * json: a list of messages, or an object with that list as "messages", with "tools" and any variable that the template may use, such
 * as "enable_thinking" or "documents". Members of "chat_template_kwargs" override the others, which override the options. A message
 * has "role" and "content" (a text, or a list of parts of type "text"), perhaps "reasoning_content", "tool_calls", "tool_call_id",
 * "name". Messages are adapted to the template: the role developer becomes system, arguments of calls become objects or JSON texts,
 * contents become texts or parts, null becomes "", and system messages are prepended to user messages. With "continue_final_message"
 * the text ends with the last message, which the answer continues.
 * MO_EINVAL: not a conversation, or the template rejects it: err has the text of its raise_exception(). options may be NULL. */
MO_API mo_status mo_prompt_open(const mo_model *model, const char *json, size_t length,
                                const mo_chat_options *options, mo_prompt **out, mo_error *err);
MO_API void mo_prompt_close(mo_prompt *prompt);
MO_API mo_text mo_prompt_text(const mo_prompt *prompt);    /* terminated; owned by the prompt */
MO_API bool mo_prompt_in_thought(const mo_prompt *prompt); /* the prompt ends inside a thought */
/* Owned by the prompt. Text of the conversation never becomes a control token. *count is 0 when the model has no vocabulary. */
MO_API const int32_t *mo_prompt_tokens(const mo_prompt *prompt, size_t *count);

/* ---- Sessions --------------------------------------------------------------------------------- */
/* One conversation. A model may have any number. Only one call at a time per session, except mo_session_cancel(). Threads may open,
 * feed and close their own sessions in parallel. Options may be NULL. */
typedef struct mo_session mo_session;
typedef struct mo_session_options {
    size_t size;
    mo_kv_type kv;
    int64_t context; /* maximum positions; 0: the model's context */
} mo_session_options;
MO_OPTIONS(mo_session_options)
MO_API mo_status mo_session_open(mo_model *model, const mo_session_options *options, mo_session **out,
                                 mo_error *err);
MO_API void mo_session_close(mo_session *session);

/* Receives the experts that a layer's router chose for the token at a position: `used` ids in router order with their weights, owned
 * by the engine. Called on the feeding thread, layer by layer within a step. It must not feed. */
typedef void (*mo_routing_observer)(void *user, int layer, int64_t position, const int32_t *ids,
                                    const float *weights, int used);
typedef struct mo_logprob {
    int32_t token;
    float logprob; /* natural logarithm of its probability */
} mo_logprob;
typedef struct mo_feed_report {
    mo_error error;   /* of this session; status MO_OK: the session holds the whole sequence */
    int64_t computed; /* tokens computed; the session already held the others */
    /* For feeds with a sampler: the token (-1: none), its log probability, and the likeliest tokens; valid until the next feed. */
    int32_t token;
    float logprob;
    int top_count;
    const mo_logprob *top;
    int64_t drafted, accepted; /* draft tokens computed; of these, accepted */
} mo_feed_report;
/* Unused members are 0. */
typedef struct mo_feed {
    size_t size; /* sizeof(mo_feed) */
    mo_session *session;
    const int32_t *tokens; /* the whole sequence from its beginning; the session computes only the new part */
    int64_t count;         /* at least 1 */
    int64_t step;          /* maximum tokens per step; 0: the model's batch */
    /* Each may be NULL. progress: after each step; returning false cancels this feed. logits: for every new position, in order; if
     * NULL, only the logits of the last token are computed. routes: the experts of every new token. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    void (*logits)(void *user, int64_t position, const float *row);
    mo_routing_observer routes;
    void *user;
    mo_feed_report *report; /* always filled; NULL: not needed */
    size_t report_size;     /* sizeof(mo_feed_report) */
    /* For the library's own use: a generation samples with these. 0 elsewhere. */
    struct mo_sampler *sampler;
    const uint32_t *mask;
    bool logprobs;
    int top;
    const uint32_t *(*late_mask)(void *user);
    bool unfinished; /* the sequence continues later: the logits after these tokens are not needed */
    bool uncounted;  /* a dry run: it changes no profile, and steps of only such feeds are not counted */
    /* Draft tokens in tokens[count ..]; used with a sampler, if only the last token is new. As many as fit a step are computed with
     * it. Each sampled token that equals the draft is passed to `accept` with its log probabilities. The feed ends with the token for
     * which `accept` returns false or that differs from the draft. The session then holds the same as without drafts. */
    int64_t drafts;
    bool (*accept)(void *user, const mo_feed_report *picked);
    struct mo_image *const *images; /* [image_count] the pictures in the sequence (moraine_pictures.h) */
    int image_count;
} mo_feed;
/* Extends 1 to 256 sessions of one model to their sequences, in shared steps; sharing changes no result. A session whose feed fails
 * (also MO_ECANCELLED) keeps a part and computes the rest next time. The others are completed, and the call returns the first failure.
 * Feeds that cannot be combined (one session twice, two models) are MO_EINVAL before anything is fed. Decoding allocates nothing. */
MO_API mo_status mo_session_feed(const mo_feed *feeds, int count, mo_error *err);

/* For a text whose experts are on disk, before its first feed: runs the first tokens through the model without routed experts and
 * prefetches what the routers chose. *experts: how many were read. The session must be empty, and stays empty. */
MO_API mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count,
                                     int64_t *experts, mo_error *err);

/* Logits after the last token fed: `vocab` floats, valid until the next feed; NULL before the first. If a device sampled the token,
 * the first call copies them from the device and waits for a running step; NULL if that device is lost: feed again. */
MO_API const float *mo_session_logits(const mo_session *session);

typedef struct mo_session_info {
    int64_t length, context; /* positions held, and maximum */
    int64_t computed;        /* tokens the last feed computed */
    uint64_t adapters;       /* identifies adapters, their scales and their order; 0: the model alone */
    const int32_t *tokens;   /* [length] tokens held; owned by the session, valid until its next feed */
    mo_kv_type kv;
} mo_session_info;
MO_API void mo_session_describe(const mo_session *session, mo_session_info *out, size_t size);

/* Cancels the running feed and later ones, until mo_session_clear_cancel(). The running feed ends within about a layer, or after the
 * step if others share it. Clear before the session gets new work. Any thread, and signal handlers. */
MO_API void mo_session_cancel(mo_session *session);
MO_API void mo_session_clear_cancel(mo_session *session);

/* ---- Generation ------------------------------------------------------------------------------- */
/* One answer at a time, generated in a session. It samples, follows a grammar, detects end tokens and stop strings, and parses the
 * answer. It never samples tokens that the vocabulary forbids. The text does not depend on other generations in a step. */
typedef struct mo_generation mo_generation;
/* clang-format off */
typedef struct mo_logit_bias {
    int32_t token;
    float bias; /* finite: added to the token's logit; -INFINITY forbids it */
} mo_logit_bias;
typedef struct mo_generation_options {
    size_t size;
    /* Sampling: bias and grammar first, then the samplers in the order of `samplers`. A member left at its default (NAN or MO_UNSET)
     * takes the value that the model's file recommends, or else this one: */
    float temperature, top_p, min_p; /* 0.8 (0: always the likeliest token), 0.95 (1: off), 0.05 (0: off) */
    int64_t top_k;                   /* 40 (0: off) */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0 and 0: off */
    int64_t penalty_last; /* 64: number of recent tokens considered; 0: none, -1: all */
    float top_n_sigma;    /* 0: off; drops logits this many standard deviations below the best */
    float typical_p;      /* 1: off; keeps tokens about as surprising as expected, up to this share */
    /* 0: off. 0.1: with this chance, only the least likely of the tokens above the threshold stays. */
    float xtc_probability, xtc_threshold;
    float dynatemp_range, dynatemp_exponent; /* 0: off; 1: the temperature varies by this with the entropy */
    float mirostat_tau, mirostat_eta;        /* 5 and 0.1 */
    int64_t mirostat; /* 0: off; 2: keeps the surprise at tau; replaces top_k, top_p and the like */
    /* DRY: a token that continues a repetition longer than the allowed length costs multiplier * base^(excess length). Repetitions end
     * at breakers; NULL: newline, colon, quotation mark and star. */
    float dry_multiplier, dry_base; /* 0: off; 1.75 */
    int64_t dry_allowed_length, dry_penalty_last; /* 2; -1: all tokens are searched, otherwise this many recent ones */
    const char *const *dry_breakers;
    size_t dry_breaker_count;
    /* NULL: "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature". Samplers that are not listed are off. */
    const char *samplers;
    int64_t seed; /* the same seed gives the same text on every machine; -1 (default): a random seed */
    const mo_logit_bias *bias;
    size_t bias_count;
    int64_t max_tokens; /* -1 (default): until the session is full; 0: only the prompt is computed */
    const char *const *stop; /* [stop_count] strings, UTF-8, not empty; the answer ends before the first that occurs */
    size_t stop_count;
    bool ignore_end; /* end tokens do not end the answer; not with grammar, schema or tools */
    bool strict; /* MO_EUNSUPPORTED if part of a schema cannot be enforced; otherwise mo_generation_unenforced() lists it */
    const char *grammar, *schema; /* GBNF, or a JSON schema (docs/grammar.md), for the text after a thought; NULL: none */
    /* Functions that may be called: a JSON list of {"type": "function", "function": {"name", "parameters"}}; NULL: none. Arguments
     * follow the schemas. tool_choice: "auto" (NULL), "required", "none", or the name of the required function. */
    const char *tools, *tool_choice;
    bool single_call; /* at most one call */
    bool raw;         /* all text is MO_EVENT_TEXT: no thoughts, no calls */
    int64_t thought_tokens; /* maximum tokens of a thought, which is then ended; -1 (default): no maximum */
    int logprobs; /* log probabilities of sampled tokens and of this many likeliest ones, 0 to 20; -1 (default): none */
    /* Called while a prompt is computed; returning false cancels. NULL: none. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    void *user;
    /* Speculative decoding, if the model was opened with it. draft_max: most draft tokens per step, -1 (default): the model's, 0:
     * none. draft_min: fewest that are worth a step (0). draft_p_min: lowest acceptance probability, as measured so far (0). */
    int draft_max, draft_min;
    float draft_p_min;
    const int32_t *prediction; /* [prediction_count] tokens that the answer probably contains; NULL: none */
    size_t prediction_count;
} mo_generation_options;
#define MO_UNSET INT64_MIN
MO_OPTIONS(mo_generation_options)

/* Copies the options (NULL: the defaults) and checks them. Close it before the sessions it was used with, and the model. */
MO_API mo_status mo_generation_open(mo_model *model, const mo_generation_options *options, mo_generation **out, mo_error *err);
MO_API void mo_generation_close(mo_generation *generation);

/* Starts an answer to this whole sequence. What the session already holds is not computed again. Answers may follow each other, in any
 * session of the model; the random numbers continue. An earlier cancel is cleared. */
MO_API mo_status mo_generation_prompt(mo_generation *generation, mo_session *session, const int32_t *tokens, int64_t count,
                                      mo_error *err);

/* Computes, in shared steps, the next token of each generation (several with speculative decoding), or more of its prompt: 1 to 256
 * generations of one model in different sessions. Returns how many have not ended; -1: the list is invalid, and err says why (it is
 * filled only then). A failure ends only its own generation. Ended generations are skipped. Decoding allocates nothing. */
MO_API int mo_generation_step(mo_generation *const *list, int count, mo_error *err);

/* Ends the answer, at once or after the running step that others share, until the next prompt. Any thread, and signal handlers. */
MO_API void mo_generation_cancel(mo_generation *generation);
/* NONE: not ended; MODEL: an end token, or the grammar is complete; STOP: a stop string, which is not part of the text; LENGTH:
 * max_tokens; CONTEXT: the session is full; CANCELLED: also by `progress`; FAILED: the event's `error` says why. */
typedef enum mo_end {
    MO_END_NONE, MO_END_MODEL, MO_END_STOP, MO_END_LENGTH, MO_END_CONTEXT, MO_END_CANCELLED, MO_END_FAILED
} mo_end;

typedef enum mo_generation_event_kind {
    MO_EVENT_TEXT,      /* text of the answer */
    MO_EVENT_THOUGHT,   /* text of the model's reasoning */
    MO_EVENT_CALL,      /* a tool call begins; text is the function's name */
    MO_EVENT_ARGUMENTS, /* arguments of the call: JSON, an object unless the answer was cut short */
    MO_EVENT_CALL_END,  /* sent for every call */
    MO_EVENT_END,       /* the last event */
} mo_generation_event_kind;

/* A sampled token. */
typedef struct mo_generation_token {
    int32_t id;
    int top_count;
    const mo_logprob *top; /* [top_count], best first; only if logprobs were requested */
    float logprob;         /* likewise; from the model alone, before bias, grammar and samplers */
    int64_t time_ns;       /* time of sampling, CLOCK_MONOTONIC */
    uint64_t reserved[2];
} mo_generation_token;

typedef struct mo_generation_event {
    mo_generation_event_kind kind;
    mo_text text; /* whole characters, terminated. Without a vocabulary: empty, one event per token */
    int call;     /* index of the call in the answer, from 0 */
    mo_text id;   /* of a CALL: unique and unguessable, unless the model's format prescribes it; terminated */
    const mo_generation_token *tokens; /* tokens whose text this completes, or (END) tokens without text; each is reported once */
    size_t token_count;
    int64_t generated;     /* tokens of the answer so far */
    mo_end end;            /* for END */
    int stop;              /* for END: index of the stop string; -1: none */
    const mo_error *error; /* for an END that failed; else NULL */
} mo_generation_event;
/* Takes the next event, valid until the next call; false: none until the next step. END comes only once, even across saving and
 * loading: end a loop when mo_generation_step() returns 0. */
MO_API bool mo_generation_next(mo_generation *generation, mo_generation_event *out, size_t size);

typedef struct mo_generation_info {
    uint64_t seed;     /* in effect */
    float temperature; /* in effect */
    mo_end end;
    const int32_t *tokens; /* [count] prompt and answer; valid until the next step or prompt */
    int64_t count, prompt_tokens, generated; /* all tokens; in the prompt; in the answer */
    int64_t computed;                        /* prompt tokens that were computed: the session did not hold them */
    int64_t drafted, accepted; /* draft tokens that were computed; of these, accepted */
} mo_generation_info;
MO_API void mo_generation_describe(const mo_generation *generation, mo_generation_info *out, size_t size);
/* Parts of schemas that are not enforced, one per line, such as "/properties/x/not"; "": none. */
MO_API const char *mo_generation_unenforced(const mo_generation *generation);

/* Saves the generation with its session's state as bytes; mo_free() them. Call it when mo_generation_next() has returned false.
 * Loading into a session of the same model, also in another process, continues with the same text. MO_EFORMAT: damaged. */
MO_API mo_status mo_generation_save(const mo_generation *generation, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_generation_load(mo_model *model, mo_session *session, const uint8_t *bytes, size_t size,
                                    mo_generation **out, mo_error *err);

/* ---- Snapshots -------------------------------------------------------------------------------- */
/* A session's state, to rewind to or to fork from. It can be restored into any session of the same model and format, by several
 * threads at once. It outlives the session, but not its model. It shares the session's blocks, so opening and restoring take
 * microseconds. They wait for a running step if a device leaves layers to the CPU or still has the logits. */
typedef struct mo_snapshot mo_snapshot;
MO_API mo_status mo_snapshot_open(const mo_session *session, mo_snapshot **out, mo_error *err);
MO_API void mo_snapshot_close(mo_snapshot *snapshot);

/* Restores the first `length` positions, -1: all; only all have logits. Fewer than `least`: MO_EUNSUPPORTED, and the session is
 * unchanged. If blocks must be copied (from other memory, or from bytes) and that fails, the session is empty afterwards. */
MO_API mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, int64_t length, mo_error *err);

typedef struct mo_snapshot_info {
    int64_t length; /* positions */
    int64_t least; /* fewest that can be restored: 1; more with windows or recurrent layers, or from bytes */
    uint64_t bytes, all_bytes; /* held only by this snapshot: closing it frees them; referred to in total */
    uint64_t adapters;     /* as in mo_session_info; restores only into sessions with the same number */
    uint64_t fingerprint;  /* of the model */
    bool on_device;        /* stored in device memory */
    const int32_t *tokens; /* [length]; owned by the snapshot */
} mo_snapshot_info;
MO_API void mo_snapshot_describe(const mo_snapshot *snapshot, mo_snapshot_info *out, size_t size);

/* Writes a snapshot as bytes for a file (mo_free() them), and reads it back, validated; MO_EINVAL: of another model. */
MO_API mo_status mo_snapshot_write(const mo_snapshot *snapshot, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_snapshot_read(const mo_model *model, const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err);

/* ---- Adapters --------------------------------------------------------------------------------- */
/* A LoRA adapter (GGUF) for an open model. The model's weights are not changed: a session with an adapter computes W x + f B (A x), on
 * every device and tier. At most 16 per model. */
typedef struct mo_adapter mo_adapter;
typedef struct mo_adapter_info {
    const char *path, *name;   /* name: from the file's metadata */
    const char *task, *prefix; /* from the file: its purpose; a text to begin prompts with; or "" */
    int64_t rank, tensors;     /* the largest rank; number of model tensors it changes */
    float alpha;               /* f = scale * alpha / rank; 0: f = scale */
    int64_t bytes;             /* in memory */
    uint64_t identity;         /* identifies an adapter by its contents; never 0 */
} mo_adapter_info;
/* Reads the file; one of another model is MO_EINVAL with the reason. Sessions may be fed meanwhile. Close it before the model. */
MO_API mo_status mo_adapter_open(mo_model *model, const char *path, mo_adapter **out, mo_error *err);
MO_API void mo_adapter_close(mo_adapter *adapter); /* sessions that use it keep it */
MO_API void mo_adapter_describe(const mo_adapter *adapter, mo_adapter_info *out, size_t size);
/* Adapters opened with the model and owned by it; NULL past the last. */
MO_API mo_adapter *mo_model_adapter(const mo_model *model, int index);

typedef struct mo_adapter_use {
    mo_adapter *adapter;
    float scale; /* 1: as trained; 0: no effect */
} mo_adapter_use;
/* Sets the session's adapters, in this order; count 0: the model alone. At most 8 may have a scale other than 0. The session's
 * contents are dropped unless they were computed with the same adapters. */
MO_API mo_status mo_session_adapt(mo_session *session, const mo_adapter_use *uses, int count, mo_error *err);

/* ---- Statistics ------------------------------------------------------------------------------- */
/* Properties and counters of a model by name, such as "tier.ram.hits" or "kept.free_bytes". about: one line, which says what the index
 * is if a name has several values. NULL past the last; constants. Versions may add names. Some names are of plans (mo_plan_stat()); a
 * name that both have means the same. */
MO_API const char *mo_stat_name(int index, const char **about);
/* One value, from a recent moment: it waits for no step. index: 0, or a layer, or layer * model.experts + expert. MO_ENOENT: unknown
 * name, err names the nearest; MO_EINVAL: past the last index; MO_EUNSUPPORTED: plans only. */
MO_API mo_status mo_model_stat(mo_model *model, const char *name, int64_t index, double *value, mo_error *err);
/* Several values of one moment, each with index 0. */
MO_API mo_status mo_model_stats(mo_model *model, const char *const *names, int count, double *values, mo_error *err);
/* All values as one JSON object; names with an index are arrays. mo_free() *json. */
MO_API mo_status mo_model_stats_json(mo_model *model, char **json, mo_error *err);
/* clang-format on */

#ifdef __cplusplus
}
#endif
#endif
