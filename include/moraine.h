/* Moraine: running models. moraine_tools.h has several machines, and the tools for files and measurements: plans,
 * probing, traces, synthetic and quantized models, the contents of a file. docs/api.md shows how to use both.
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
 *  - A function that can fail returns mo_status and fills *err, which may be NULL everywhere, with a sentence that names the
 *    file or the setting (as `ram_bytes`) that is wrong. On failure out-parameters are NULL or untouched, and nothing leaks; on success *err is unchanged.
 *    Other pointers are required unless it says that they may be NULL, or their length or count is 0: MO_EINVAL names the one;
 *    functions that return no status must not get NULL, except ..._close().
 *  - Objects are made by ..._open() and freed by ..._close(), which takes NULL.
 *  - Strings returned by const char * belong to the object they came from and live as long as it does. Memory owned by
 *    the caller is freed with mo_free().
 *  - Structs come in three kinds and grow at their ends only, so a program runs with a newer library unchanged.
 *    _options: set up by their ..._default(), which sets `size`. A size of 0, or a member set that this library does not
 *    know, is MO_EINVAL. Nested structs have reserved fields that must be 0.
 *    _info (what something is) and _report (what it has done): filled up to the size that is passed in.
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
/* The functions of options that set them up: mo_model_options o = mo_model_options_default(). */
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

MO_API const char *mo_status_text(mo_status status); /* a short name, such as "I/O error": a constant */
MO_API void mo_free(void *memory);                   /* that a function returned; NULL is allowed */
/* ---- Version and log -------------------------------------------------------------------------- */
#define MORAINE_VERSION_MAJOR 0
#define MORAINE_VERSION_MINOR 2
#define MORAINE_VERSION_PATCH 0
#define MORAINE_VERSION                                                                                      \
    (MORAINE_VERSION_MAJOR * 1000000 + MORAINE_VERSION_MINOR * 1000 + MORAINE_VERSION_PATCH)
MO_API const char *mo_version(void); /* of the loaded library, as in "0.2.0" */
/* Checks that this library supports programs compiled with that header; pass MORAINE_VERSION. It does for the same
 * major number and the same or an earlier minor one; while the major number is 0, for the same minor number. */
MO_API mo_status mo_version_check(int header_version, mo_error *err);

typedef enum mo_log_level { MO_LOG_ERROR, MO_LOG_WARN, MO_LOG_INFO, MO_LOG_DEBUG } mo_log_level;
/* Called from any thread, from several at once, without a lock. It may call the library, whose messages are then dropped. */
typedef void (*mo_log_fn)(void *user, mo_log_level level, const char *subsystem, const char *text);
/* Sends messages up to `level` to fn; NULL silences the library (the default). When it returns no call of the callback before
 * is under way, unless it was called from a callback. */
MO_API void mo_log_set(mo_log_fn fn, void *user, mo_log_level level);

/* ---- Options of a model ----------------------------------------------------------------------- */
/* Called between parts of a long operation, on the calling thread. Returns false to cancel. */
typedef bool (*mo_progress_fn)(void *user, int64_t done_bytes, int64_t total_bytes);
/* Format of the KV cache: I16 (the default: 16-bit codes with a scale per vector, summed exactly), F32 (exact: twice the memory,
 * and slow), or Q8_0 (half the memory of I16, lossy). F16 is an alias of I16, which has a tenth of its error. */
typedef enum mo_kv_type { MO_KV_I16, MO_KV_F32, MO_KV_Q8_0, MO_KV_F16 = MO_KV_I16 } mo_kv_type;
/* Precision of the products of large steps on a device: exact, like everything else, or bfloat16: lossy, and faster on GPUs of
 * capability 8.0 or newer. */
typedef enum mo_precision { MO_PRECISION_EXACT, MO_PRECISION_BF16 } mo_precision;
/* How weights on disk are read: bypassing the page cache, through it, or as measured when opened. */
typedef enum mo_io { MO_IO_AUTO, MO_IO_DIRECT, MO_IO_CACHED } mo_io;
/* How ranks share a model: each has a range of layers; or rank 0 has all but the routed experts, which all ranks share. */
typedef enum mo_divide { MO_DIVIDE_AUTO, MO_DIVIDE_LAYERS, MO_DIVIDE_EXPERTS } mo_divide;
/* Post-Fetch: how an expert in RAM gets to a device: its down matrix is copied while the CPU computes gate and up, or the whole
 * expert is copied, or nothing; AUTO: whichever is faster by measured rates. DEFAULT: AUTO, or with `environment` as LLAMA_POSTFETCH_ENABLE says. */
/* clang-format off */
typedef enum mo_postfetch_mode {
    MO_POSTFETCH_DEFAULT, MO_POSTFETCH_OFF, MO_POSTFETCH_AUTO, MO_POSTFETCH_DOWN, MO_POSTFETCH_EXPERT
} mo_postfetch_mode;
/* Where guesses come from: nowhere (the default), all sources, the text before, an MTP head, or a draft model. Used only while faster. */
typedef enum { MO_SPECULATE_OFF, MO_SPECULATE_AUTO, MO_SPECULATE_NGRAM, MO_SPECULATE_MTP, MO_SPECULATE_DRAFT } mo_speculate;
/* clang-format on */

/* The hot cache: experts chosen from a profile. With a device they are in its memory, and an update rate exchanges them in the
 * background after each request and every 64 tokens. Without one they are in RAM, and are exchanged after a request. */
typedef struct mo_hot_cache_options {
    const char *file;         /* a profile in JSON, as mo_model_profile() writes it; NULL: none */
    int64_t max_mib;          /* of experts; 0: off; -1: all memory left under the ceiling */
    int64_t auto_reserve_mib; /* left free by -1; by default 1024 */
    double update_rate;       /* share of the experts in it that an update may exchange, 0 to 1 */
    const char *weighting;    /* flat, balanced, pressure, smooth or time; NULL: flat */
    double layer_curve;       /* how much layers differ, 0 to 1; by default 0.5 */
    uint64_t reserved[4];     /* 0 */
} mo_hot_cache_options;
/* Expert usage statistics and where they are stored. No result depends on them. */
typedef struct mo_learning_options {
    /* The counts of all runs, which warm the cache at the next start: NULL or "off": none; "auto": a file in the user's cache directory
     * ($XDG_CACHE_HOME/moraine or ~/.cache/moraine), where the speed of the disk is noted too; otherwise the path of one. */
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
    int threads;     /* 0: one per usable core, or fewer if a probe found that faster */
    const char *isa; /* instruction set, as listed by mo_isa_name(); NULL or "auto": the best */
    int64_t context; /* maximum positions of a session; 0: the training context, at most 8192 */
    int64_t batch;   /* maximum tokens per step; 0: chosen by the plan */
    /* Map the file instead of reading it: no ceiling, no tiers. If the file is written to meanwhile, feeds fail with MO_EIO: the
     * library handles SIGBUS, and forwards other faults to the previous handler, which it restores at the end. */
    bool map;
    mo_progress_fn progress; /* while loading; may be NULL */
    void *user;
    /* Memory ceiling of the process, shared by all open models; 0: the memory that the machine and its limits leave. A model that
     * does not fit keeps in RAM what every token needs, and as many experts (or layers) as fit; the others are read from disk
     * on demand. The results are the same. */
    int64_t ram_bytes;
    mo_kv_type kv;      /* KV cache format of sessions; the plan reserves `sessions` of them */
    bool all_logits;    /* logits of every position will be requested; the plan reserves memory for them */
    const char *policy; /* which experts stay, as listed by mo_policy_name(); NULL: the default */
    bool no_prediction; /* do not prefetch what a layer will probably need */
    int readers;        /* concurrent reads; 0: as measured */
    mo_io io;
    bool skip_missing; /* lossy: experts that are not in RAM or VRAM are skipped */
    mo_learning_options learning;
    /* "none", "sim", "cuda" or "auto"; NULL: auto: the usable GPUs that help. "cuda:1" is the second GPU; several, separated by
     * commas, share the layers, and one may be named twice. The core, the sessions and as many experts as fit are in device
     * memory; other experts are computed from RAM, or fetched. The results are the same. */
    const char *device;
    int64_t vram_bytes; /* ceiling of device memory; 0: the free memory less a reserve */
    mo_postfetch_mode postfetch;
    bool cpu_moe; /* no expert stays in device memory, except for the hot cache */
    /* Open sessions that the plan reserves memory for; 0: 1. The state of more is added to the RAM ceiling; a device rejects them. */
    int sessions;
    /* Positions of all sessions in total; 0: `sessions` times `context`. Sessions allocate blocks of 128 positions as they grow,
     * and share them with snapshots and with each other; a feed for which no block is free fails with MO_ENOMEM. */
    int64_t positions;
    int64_t kept_bytes, kept_device_bytes; /* more memory, for snapshots in RAM, on a device */
    const char *chat_template; /* Jinja, or the name of a chat format, such as "chatml"; NULL: the file's */
    /* Files of LoRA adapters that are opened with the model: mo_model_adapter(). They stay in memory; the plan reserves it. */
    const char *const *adapters;
    int adapter_count;
    const float *adapter_scales; /* [adapter_count] that new sessions have them with; NULL: they do not */
    int64_t adapter_bytes;       /* for adapters that are opened later; with `ram_bytes` there is no other */
    mo_precision prompt_precision; /* a state that was saved with another one is rejected */
    /* The ranks that share the model, of which this is rank 0; it outlives the model and has one at a time. NULL: no others. */
    struct mo_cluster *cluster;
    const int64_t *vram_each; /* [vram_each_count] ceilings of several devices, in order; 0: vram_bytes */
    int vram_each_count;
    mo_divide divide; /* with a `cluster`; 0: the faster by what was measured, else layers */
    bool environment; /* also read LLAMA_POSTFETCH_*, LLAMA_MOE_HOT_CACHE_* and LLAMA_FP4_PREFILL_M */
    /* Speculative decoding (docs/speculation.md): guessed tokens are checked in one step. Same results. */
    mo_speculate speculate;
    int draft_max;           /* most guesses of a step; 0: 64. The plan reserves memory for them */
    const char *draft_model; /* file of an MTP head or a draft model; NULL: the head in the model, if any */
    const char *mmproj;      /* file of the encoder with which the model reads pictures; NULL: none */
    int64_t image_min_tokens, image_max_tokens; /* of a picture; 0: as the encoder has it */
} mo_model_options;
MO_OPTIONS(mo_model_options)

/* Names by number, NULL past the last: instruction sets this machine can run, best first; policies, the default first, with one
 * line about each. Constants. */
MO_API const char *mo_isa_name(int index);
MO_API const char *mo_policy_name(int index, const char **summary);

/* ---- Models ----------------------------------------------------------------------------------- */
/* A loaded model with the threads and the memory to run it. Sessions share it; any number of threads may use it at once. */
typedef struct mo_model mo_model;
/* Opens and loads a model file (of a split model: its first part); options may be NULL. Close it after everything opened with it.
 * After fork() it belongs to the parent: in the child, what computes gives MO_EINVAL and closing does nothing; open the model there. */
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
    bool rewinds; /* sessions can rewind to any position: no layer is recurrent or sees a window only */
    mo_precision prompt_precision; /* in effect: exact if no device supports bf16 */
} mo_model_info;
MO_API void mo_model_describe(const mo_model *model, mo_model_info *out, size_t size);

/* A text about the model, which is the model's; NULL: it has none, or the key is unknown. "chat_template", "chat_template.NAME": in
 * its file, or the one it was opened with; "chat_format": as in "chatml", "template" where its template alone is known, or "none";
 * "tool_format": how it writes calls, as in "hermes", or "generic"; "device": its name, of several all; "tier.mode": "resident",
 * "slots", "streamed", "tiered" (layers that are not in RAM are in VRAM) or "mapped"; "tier.policy"; "disk_method": such as "direct
 * reads, threads of 4", "" when nothing is read. */
MO_API const char *mo_model_text(const mo_model *model, const char *key);
/* Call it after a request is answered: a hot cache with an update rate exchanges experts now, and perf_out is written. A failure
 * leaves the model as usable as before. Waits for a step that runs. */
MO_API mo_status mo_model_request_done(mo_model *model, mo_error *err);
/* What was counted since the model was opened, or since a reset: one line of JSON, as perf_out gets it; mo_free() *json. */
MO_API mo_status mo_model_profile(mo_model *model, char **json, mo_error *err);

/* ---- Text ------------------------------------------------------------------------------------- */
/* Bytes that end before data[length]; where a function says so, a terminator follows. */
typedef struct mo_text {
    const char *data;
    size_t length;
} mo_text;
typedef enum mo_token_flags {
    MO_TOKEN_SPECIAL = 1, /* NAMES and ENDS */
    MO_TOKEN_CHAT = 2,    /* the same for a rendered conversation: an existing begin token is not added */
    MO_TOKEN_NAMES = 4,   /* recognize special tokens written in the text */
    MO_TOKEN_ENDS = 8,    /* add begin and end tokens as the vocabulary specifies */
} mo_token_flags;

/* Token ids of a text of any bytes; mo_free() *ids. MO_EUNSUPPORTED when the model has no vocabulary. */
MO_API mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err);

/* The bytes that a token stands for, perhaps part of a character; a special token's are its name. The model's, not terminated; empty
 * for an id out of range, or without a vocabulary. */
MO_API mo_text mo_token_bytes(const mo_model *model, int32_t token);
MO_API bool mo_token_ends(const mo_model *model, int32_t token); /* it ends an answer */

/* ---- Prompts ---------------------------------------------------------------------------------- */
/* Does a model that can think do so? DEFAULT: as its template does by itself. */
typedef enum mo_thinking { MO_THINKING_DEFAULT, MO_THINKING_ON, MO_THINKING_OFF } mo_thinking;

typedef struct mo_chat_options {
    size_t size;
    mo_thinking thinking; /* enable_thinking and thinking of templates */
    const char *effort;   /* reasoning_effort: "low", "medium" or "high" for harmony; NULL: not said */
    const char *date;     /* today, for formats that name it, as YYYY-MM-DD; NULL: the clock's; "": none */
    bool no_prompt;       /* do not begin the assistant's turn at the end */
    const char *chat_template; /* used instead of the model's own, in whose format answers are; NULL: that */
    size_t tokens_most;        /* produce only this many tokens; 0: all */
} mo_chat_options;
MO_OPTIONS(mo_chat_options)

/* A conversation as the model will see it, with the beginning of the next answer. */
typedef struct mo_prompt mo_prompt;
/* Renders a conversation with the model's own template, or, if its file has none or one that cannot be read, in a recognized
 * format. json: a list of messages, or an object with such a list as "messages", with "tools" and any variable that the template
 * may use, such as "enable_thinking" or "documents"; members of "chat_template_kwargs" override the others, which override the
 * options. A message has "role" and "content" (a text, or a list of parts of type "text"), perhaps "reasoning_content",
 * "tool_calls", "tool_call_id", "name". Messages are adapted to what the template accepts: the role developer is system, arguments
 * of calls become objects or JSON texts, contents texts or parts, null "", and system messages are prepended to user messages.
 * With "continue_final_message" the text ends with that of the last message, which the answer continues.
 * MO_EINVAL: not a conversation, or the template rejects it: err has the text of its raise_exception(). options may be NULL. */
MO_API mo_status mo_prompt_open(const mo_model *model, const char *json, size_t length,
                                const mo_chat_options *options, mo_prompt **out, mo_error *err);
MO_API void mo_prompt_close(mo_prompt *prompt);
MO_API mo_text mo_prompt_text(const mo_prompt *prompt);    /* terminated; the prompt's */
MO_API bool mo_prompt_in_thought(const mo_prompt *prompt); /* it ends in a thought */
/* The prompt's. Text of the conversation never becomes a control token. *count is 0 when the model has no vocabulary. */
MO_API const int32_t *mo_prompt_tokens(const mo_prompt *prompt, size_t *count);

/* ---- Sessions --------------------------------------------------------------------------------- */
/* One conversation. Any number per model; one call at a time per session, but for mo_session_cancel(). Any thread may
 * open, feed and close its own while others do. Options may be NULL. */
typedef struct mo_session mo_session;
typedef struct mo_session_options {
    size_t size;
    mo_kv_type kv;
    int64_t context; /* positions it can hold; 0: the model's context */
} mo_session_options;
MO_OPTIONS(mo_session_options)
MO_API mo_status mo_session_open(mo_model *model, const mo_session_options *options, mo_session **out,
                                 mo_error *err);
MO_API void mo_session_close(mo_session *session);

/* Gets the experts the router of a layer chose for the token at a position: `used` ids in router order with their weights, which
 * belong to the engine. Called on the thread that feeds, layer by layer within a step. It must not feed. */
typedef void (*mo_routing_observer)(void *user, int layer, int64_t position, const int32_t *ids,
                                    const float *weights, int used);
typedef struct mo_logprob {
    int32_t token;
    float logprob; /* natural logarithm of its probability */
} mo_logprob;
typedef struct mo_feed_report {
    mo_error error;   /* of this session; status MO_OK: it holds the whole sequence */
    int64_t computed; /* tokens; it held the others */
    /* Of feeds with a sampler: the token (-1: none), its log probability, the likeliest ones: the session's until its next feed. */
    int32_t token;
    float logprob;
    int top_count;
    const mo_logprob *top;
    int64_t drafted, accepted; /* drafts that were computed; those of them that became tokens */
} mo_feed_report;
/* Unused members are 0. */
typedef struct mo_feed {
    size_t size; /* sizeof(mo_feed) */
    mo_session *session;
    const int32_t *tokens; /* the whole sequence from its beginning; the session computes only the new part */
    int64_t count;         /* at least 1 */
    int64_t step;          /* maximum tokens per step; 0: the model's batch */
    /* After each step (returning false cancels this feed); logits of every new position, in order, without which only those of the
     * last token are computed; the experts of every new token. Each may be NULL. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    void (*logits)(void *user, int64_t position, const float *row);
    mo_routing_observer routes;
    void *user;
    mo_feed_report *report; /* always filled; NULL: not needed */
    size_t report_size;     /* sizeof(mo_feed_report) */
    /* Of the library's own: a generation samples with these. 0 elsewhere. */
    struct mo_sampler *sampler;
    const uint32_t *mask;
    bool logprobs;
    int top;
    const uint32_t *(*late_mask)(void *user);
    bool unfinished; /* more of the sequence follows: the logits after these tokens are not needed */
    bool uncounted;  /* a dry run: it changes no profile, and steps with only such feeds are not counted */
    /* Guesses of the tokens that follow, in tokens[count ..]; with a sampler, if only the last token is new. As many as a step takes are
     * computed with it. While the token drawn is the draft it goes to `accept`, with its log probabilities; if that returns
     * false, or another token is drawn, the feed ends with this one. The session holds what it would have without drafts. */
    int64_t drafts;
    bool (*accept)(void *user, const mo_feed_report *picked);
    struct mo_image *const *images; /* [image_count] the pictures of the sequence (moraine_pictures.h) */
    int image_count;
} mo_feed;
/* Extends sessions of one model, 1 to 256, to their sequences, in steps that they share; no result depends on that. A session
 * whose feed fails (also MO_ECANCELLED) keeps a part and computes the rest again next time; the others are completed, and the
 * call returns the first failure. Feeds that cannot be combined (a session named twice, sessions of two models) are MO_EINVAL
 * before anything is fed. Decoding allocates nothing. */
MO_API mo_status mo_session_feed(const mo_feed *feeds, int count, mo_error *err);

/* Before the first feed of a text whose experts are on disk: runs its first tokens through the model without routed experts and
 * prefetches what the routers chose. *experts: how many were read. The session must hold nothing, and holds nothing afterwards. */
MO_API mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count,
                                     int64_t *experts, mo_error *err);

/* Logits after the last token fed: `vocab` floats, valid until the next feed; NULL before the first. Where a device picked the token
 * they are copied from there by the first call, which waits for a step that runs; NULL if that device is lost: feed again. */
MO_API const float *mo_session_logits(const mo_session *session);

typedef struct mo_session_info {
    int64_t length, context; /* positions it holds, and can hold */
    int64_t computed;        /* tokens the last feed computed */
    uint64_t adapters;       /* identifies adapters, their scales and their order; 0: the model alone */
    const int32_t *tokens;   /* [length] that it holds; the session's until its next feed */
    mo_kv_type kv;
} mo_session_info;
MO_API void mo_session_describe(const mo_session *session, mo_session_info *out, size_t size);

/* Cancels the running feed, within about a layer if no other feed shares its step, otherwise after the step, and later ones, until
 * mo_session_clear_cancel(), which is called before the session gets new work. Any thread, and signal handlers. */
MO_API void mo_session_cancel(mo_session *session);
MO_API void mo_session_clear_cancel(mo_session *session);

/* ---- Generation ------------------------------------------------------------------------------- */
/* One answer at a time, generated in a session. It samples, follows a grammar, notices end tokens and stop strings, and parses the
 * answer; tokens that the vocabulary forbids are never sampled. The text does not depend on who else is stepped with it. */
typedef struct mo_generation mo_generation;
/* clang-format off */
typedef struct mo_logit_bias {
    int32_t token;
    float bias; /* added to its logit; -INFINITY forbids it */
} mo_logit_bias;
typedef struct mo_generation_options {
    size_t size;
    /* Sampling: bias and grammar first, then the samplers in the order of `samplers`. A member that is left as
     * mo_generation_options_default() sets it (NAN or MO_UNSET) is what the model's file recommends, or else this: */
    float temperature, top_p, min_p; /* 0.8 (0: always the likeliest token), 0.95 (1: off), 0.05 (0: off) */
    int64_t top_k;                   /* 40 (0: off) */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0 and 0: off */
    int64_t penalty_last; /* 64: recent tokens that count; 0: none, -1: all */
    float top_n_sigma;    /* 0: off; drops logits this many standard deviations below the best */
    float typical_p;      /* 1: off; keeps tokens about as surprising as expected, up to this share */
    /* 0: off; 0.1: with that chance, of the tokens above the threshold only the least likely stays. */
    float xtc_probability, xtc_threshold;
    float dynatemp_range, dynatemp_exponent; /* 0: off; 1: the temperature varies by it with the entropy */
    float mirostat_tau, mirostat_eta;        /* 5 and 0.1 */
    int64_t mirostat; /* 0: off; 2: keeps the surprise at tau, in place of top_k, top_p and the like */
    /* DRY: a token that continues a repetition of more than the allowed length costs multiplier * base to the power of what is
     * above it. No repetition goes across the breakers; NULL: newline, colon, quotation mark and star. */
    float dry_multiplier, dry_base; /* 0: off; 1.75 */
    int64_t dry_allowed_length, dry_penalty_last; /* 2; -1: all tokens are looked at, otherwise this many recent ones */
    const char *const *dry_breakers;
    size_t dry_breaker_count;
    /* NULL: "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature". What is not named is off. */
    const char *samplers;
    int64_t seed; /* the same seed gives the same text on every machine; -1 (default): random, any other is a seed */
    const mo_logit_bias *bias;
    size_t bias_count;
    int64_t max_tokens; /* -1 (default): until the session is full; 0: only the prompt is computed */
    const char *const *stop; /* [stop_count] strings, UTF-8 and not empty; the first that comes ends the answer before it */
    size_t stop_count;
    bool ignore_end; /* end tokens do not end it; not with grammar, schema or tools */
    bool strict; /* what of a schema cannot be enforced is MO_EUNSUPPORTED; else mo_generation_unenforced() lists it */
    const char *grammar, *schema; /* GBNF, or a JSON schema (docs/grammar.md), for what follows a thought; NULL: none */
    /* Functions that may be called: a JSON list of {"type": "function", "function": {"name", "parameters"}}; NULL: none.
     * Arguments follow the schemas. tool_choice: "auto" (NULL), "required", "none", or the name of the one to be called. */
    const char *tools, *tool_choice;
    bool single_call; /* one call at most */
    bool raw;         /* all text is MO_EVENT_TEXT: no thoughts, no calls */
    int64_t thought_tokens; /* most tokens of thought, after which its end is forced; -1 (default): any number */
    int logprobs; /* of sampled tokens, and of this many of the likeliest, 0 to 20; -1 (default): none */
    /* While a prompt is computed; returning false cancels. NULL: none. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    void *user;
    /* Speculative decoding, where the model was opened with it: most guesses of a step, -1 (default): the model's, 0: none; the fewest that are
     * worth a step (0); the least chance, as measured so far, that a guess is accepted (0). */
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

/* An answer to this whole sequence begins; what the session holds of it is not computed again. Several answers may follow each
 * other, in any session of the model; random numbers continue. A cancel before is forgotten. */
MO_API mo_status mo_generation_prompt(mo_generation *generation, mo_session *session, const int32_t *tokens, int64_t count,
                                      mo_error *err);

/* Computes the next token of each, several with speculative decoding, or more of their prompts, in shared steps: 1 to 256 generations of
 * one model in different sessions. Returns how many have not ended; -1: the list is invalid, and err, which is filled only then, says why.
 * A failure ends the generation that has it and no other. Generations that have ended are skipped. Decoding allocates nothing. */
MO_API int mo_generation_step(mo_generation *const *list, int count, mo_error *err);

/* Ends the answer, at once or after the step that runs with others, until the next prompt. Any thread, and signal handlers. */
MO_API void mo_generation_cancel(mo_generation *generation);
/* NONE: it has not ended; MODEL: an end token, or the grammar is complete; STOP: a stop string, which is not part of the text;
 * LENGTH: max_tokens; CONTEXT: the session is full; CANCELLED: also by `progress`; FAILED: the event's `error` says why. */
typedef enum mo_end {
    MO_END_NONE, MO_END_MODEL, MO_END_STOP, MO_END_LENGTH, MO_END_CONTEXT, MO_END_CANCELLED, MO_END_FAILED
} mo_end;

typedef enum mo_generation_event_kind {
    MO_EVENT_TEXT,      /* of the answer */
    MO_EVENT_THOUGHT,   /* of the model's reasoning */
    MO_EVENT_CALL,      /* a tool call begins: text is the function's name */
    MO_EVENT_ARGUMENTS, /* of the call: JSON, an object unless the answer was cut short in it */
    MO_EVENT_CALL_END,  /* comes for every call */
    MO_EVENT_END,       /* the last one */
} mo_generation_event_kind;

/* A sampled token. */
typedef struct mo_generation_token {
    int32_t id;
    int top_count;
    const mo_logprob *top; /* [top_count], best first, where logprobs were asked for */
    float logprob;         /* likewise: by the model alone, before bias, grammar and samplers */
    int64_t time_ns;       /* when it was sampled, by CLOCK_MONOTONIC */
    uint64_t reserved[2];
} mo_generation_token;

typedef struct mo_generation_event {
    mo_generation_event_kind kind;
    mo_text text; /* whole characters; terminated. Without a vocabulary: empty, one event for each token */
    int call;     /* which call of the answer, from 0 */
    mo_text id;   /* of a CALL: unique and unguessable, unless the model's format prescribes it; terminated */
    const mo_generation_token *tokens; /* whose text this completes, or (END) that had none: each comes once */
    size_t token_count;
    int64_t generated;     /* tokens of the answer so far */
    mo_end end;            /* of END, */
    int stop;              /* and the index of the stop string; -1: none */
    const mo_error *error; /* of an END that failed; else NULL */
} mo_generation_event;
/* Takes the next event, which is valid until the next call; false: there is none until the next step. END comes once, also across
 * saving and loading: end a loop when mo_generation_step() returns 0. */
MO_API bool mo_generation_next(mo_generation *generation, mo_generation_event *out, size_t size);

typedef struct mo_generation_info {
    uint64_t seed;     /* in effect */
    float temperature; /* in effect */
    mo_end end;
    const int32_t *tokens; /* [count] prompt and answer; valid until the next step or prompt */
    int64_t count, prompt_tokens, generated; /* of them in the prompt, and in the answer */
    int64_t computed;                        /* of the prompt: what the session did not hold */
    int64_t drafted, accepted; /* guesses that were computed, and those that are part of the answer */
} mo_generation_info;
MO_API void mo_generation_describe(const mo_generation *generation, mo_generation_info *out, size_t size);
/* The parts of schemas that are not enforced, one per line, as "/properties/x/not"; "": none. */
MO_API const char *mo_generation_unenforced(const mo_generation *generation);

/* The generation with its session's state as bytes, which mo_free() frees, when mo_generation_next() has returned false; and from
 * such bytes, into a session of the same model: in another process too, it continues with the same text. MO_EFORMAT: damaged. */
MO_API mo_status mo_generation_save(const mo_generation *generation, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_generation_load(mo_model *model, mo_session *session, const uint8_t *bytes, size_t size,
                                    mo_generation **out, mo_error *err);

/* ---- Snapshots -------------------------------------------------------------------------------- */
/* A session's state, to rewind to or to fork from: it can be restored into any session of the same model and format, by several
 * threads at the same time, and outlives the session, but not its model. It shares the session's blocks, so that opening and
 * restoring take microseconds (on a device that leaves layers to the CPU, or has the logits still: after the step that runs). */
typedef struct mo_snapshot mo_snapshot;
MO_API mo_status mo_snapshot_open(const mo_session *session, mo_snapshot **out, mo_error *err);
MO_API void mo_snapshot_close(mo_snapshot *snapshot);

/* Restores the first `length` positions, -1: all; logits come with all of them only. MO_EUNSUPPORTED for fewer than `least`, and the
 * session is as it was. If blocks must be copied (from other memory, or from bytes) and that fails, it is empty afterwards. */
MO_API mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, int64_t length, mo_error *err);

typedef struct mo_snapshot_info {
    int64_t length; /* positions */
    int64_t least; /* fewest that can be restored: 1; with windows or recurrent layers, or from bytes, more */
    uint64_t bytes, all_bytes; /* that only this snapshot holds: what closing it frees; that it refers to */
    uint64_t adapters;     /* as in mo_session_info; it is restored only into sessions with the same number */
    uint64_t fingerprint;  /* of the model */
    bool on_device;        /* it is in the memory of a device */
    const int32_t *tokens; /* [length]; the snapshot's */
} mo_snapshot_info;
MO_API void mo_snapshot_describe(const mo_snapshot *snapshot, mo_snapshot_info *out, size_t size);

/* As bytes for a file, which mo_free() frees; and from such bytes, which are validated; those of another model are MO_EINVAL. */
MO_API mo_status mo_snapshot_write(const mo_snapshot *snapshot, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_snapshot_read(const mo_model *model, const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err);

/* ---- Adapters --------------------------------------------------------------------------------- */
/* A LoRA adapter (GGUF) for an open model, whose weights are not changed: a session with it computes W x + f B (A x), on every
 * device and tier. At most 16 per model. */
typedef struct mo_adapter mo_adapter;
typedef struct mo_adapter_info {
    const char *path, *name;   /* name: of the file's metadata */
    const char *task, *prefix; /* as the file says: what it is for, a text to begin prompts with; or "" */
    int64_t rank, tensors;     /* the largest rank; tensors of the model that it changes */
    float alpha;               /* f = scale * alpha / rank; 0: f = scale */
    int64_t bytes;             /* in memory */
    uint64_t identity;         /* identifies an adapter by its contents; never 0 */
} mo_adapter_info;
/* Reads the file. One of another model is MO_EINVAL with the reason. Sessions may be fed meanwhile; close the adapter before the model. */
MO_API mo_status mo_adapter_open(mo_model *model, const char *path, mo_adapter **out, mo_error *err);
MO_API void mo_adapter_close(mo_adapter *adapter); /* sessions that have it keep it */
MO_API void mo_adapter_describe(const mo_adapter *adapter, mo_adapter_info *out, size_t size);
/* Those that were opened with the model, the model's own: NULL past the last. */
MO_API mo_adapter *mo_model_adapter(const mo_model *model, int index);

typedef struct mo_adapter_use {
    mo_adapter *adapter;
    float scale; /* 1: as trained; 0: no effect */
} mo_adapter_use;
/* From now on the session computes with these and no others, in this order; none: with the model alone. At most 8 whose scale is not 0.
 * What the session held is dropped unless it was computed with the same. */
MO_API mo_status mo_session_adapt(mo_session *session, const mo_adapter_use *uses, int count, mo_error *err);

/* ---- Statistics ------------------------------------------------------------------------------- */
/* What a model has, and what it has done since it was opened, by name, as in "tier.ram.hits" or "kept.free_bytes". about: one line,
 * with what the index is where a name has several values. NULL past the last; constants. Versions may add names. Some are of plans
 * (mo_plan_stat()); where both have a name, it means the same. */
MO_API const char *mo_stat_name(int index, const char **about);
/* One value; waits for no step, and has the values of a moment before then. index: 0, or a layer, or layer * model.experts + expert.
 * MO_ENOENT: unknown name, with the nearest; MO_EINVAL: past the last index; MO_EUNSUPPORTED: of plans only. */
MO_API mo_status mo_model_stat(mo_model *model, const char *name, int64_t index, double *value, mo_error *err);
/* Several of one moment, each with index 0. */
MO_API mo_status mo_model_stats(mo_model *model, const char *const *names, int count, double *values, mo_error *err);
/* All of them, as one JSON object; those with an index are arrays. mo_free() *json. */
MO_API mo_status mo_model_stats_json(mo_model *model, char **json, mo_error *err);
/* clang-format on */

#ifdef __cplusplus
}
#endif
#endif
