/* Moraine: the public C API. One header, opaque types, nothing else exported.
 *
 * Conventions
 *  - A function that can fail returns mo_status and fills *err (which may be NULL) with a sentence a
 *    user can act on. On failure, out-parameters are left NULL or untouched and nothing leaks.
 *  - Strings returned by const char * belong to the object they came from and live as long as it does.
 *  - The library never prints and never exits; it logs through the callback of mo_log_set(). */
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

/* ---- Status and errors ------------------------------------------------------------------------ */

typedef enum mo_status {
    MO_OK = 0,
    MO_EINVAL,       /* the caller asked for something that makes no sense */
    MO_ENOMEM,       /* memory could not be had */
    MO_EIO,          /* reading or writing failed */
    MO_ENOENT,       /* no such file, model, tensor or name */
    MO_ENOSPC,       /* the disk is full or a size limit was reached */
    MO_EFORMAT,      /* a file is damaged or not what it says it is */
    MO_EUNSUPPORTED, /* well-formed, but this build or machine cannot do it */
    MO_ECANCELLED,   /* a callback asked to stop */
} mo_status;

typedef struct mo_error {
    mo_status status;
    char detail[1024]; /* one sentence: what is wrong, and what to do */
} mo_error;

/* A short constant name for a status, such as "I/O error". */
MO_API const char *mo_status_text(mo_status status);

/* ---- Log -------------------------------------------------------------------------------------- */

typedef enum mo_log_level { MO_LOG_ERROR, MO_LOG_WARN, MO_LOG_INFO, MO_LOG_DEBUG } mo_log_level;

/* May be called from any thread, one call at a time. text has no trailing newline. */
typedef void (*mo_log_fn)(void *user, mo_log_level level, const char *subsystem, const char *text);

/* Sends messages up to `level` to fn; NULL silences the library (the default). Call before other
 * threads use the library. */
MO_API void mo_log_set(mo_log_fn fn, void *user, mo_log_level level);

/* ---- Version ---------------------------------------------------------------------------------- */

MO_API const char *mo_version(void);

/* ---- Machine ---------------------------------------------------------------------------------- */

/* What this machine has and what this process may use of it. What cannot be read is 0 or "unknown". */
typedef struct mo_machine {
    char cpu_model[128];
    char isa[128];                /* instruction sets the kernels can use, such as "avx2 avx512-vnni" */
    char huge_pages[32];          /* transparent huge pages: always, madvise, never or unavailable */
    int cores_online;             /* of the machine */
    int cores_usable;             /* of this process: affinity and cgroup quota counted */
    uint64_t l1d_bytes;           /* of the first core */
    uint64_t l2_bytes;            /* of the first core */
    uint64_t l3_bytes;            /* of the first core's cluster */
    uint64_t ram_total_bytes;     /* of the machine */
    uint64_t ram_available_bytes; /* what may still be taken: MemAvailable or the rest under the cgroup
                                     limits, the smaller one */
    uint64_t cgroup_limit_bytes;  /* the smallest memory limit of our cgroups, 0: none */
    uint64_t page_bytes;
    uint64_t huge_page_bytes; /* 0: none */
} mo_machine;

/* Fills *out. Reads some small files each time. Any thread; cannot fail. */
MO_API void mo_machine_read(mo_machine *out);

/* ---- Files ------------------------------------------------------------------------------------ */

/* A GGUF model file, or all parts of a split one: what its header says. Tensor data are not read.
 * Constant after opening: any thread may ask. */
typedef struct mo_file mo_file;

/* Opens a model and checks every count, length and offset of its header. Of a split model, name the
 * first part; the others are found beside it. Close with mo_file_close(). */
MO_API mo_status mo_file_open(const char *path, mo_file **out, mo_error *err);
MO_API void mo_file_close(mo_file *file); /* NULL is allowed */

/* The parts, in order: 1 for a model that is not split. NULL past the last. */
MO_API int mo_file_parts(const mo_file *file);
MO_API const char *mo_file_part_path(const mo_file *file, int part);

/* Types of metadata values; the numbers are those of the file. */
typedef enum mo_value_type {
    MO_VALUE_U8 = 0,
    MO_VALUE_I8 = 1,
    MO_VALUE_U16 = 2,
    MO_VALUE_I16 = 3,
    MO_VALUE_U32 = 4,
    MO_VALUE_I32 = 5,
    MO_VALUE_F32 = 6,
    MO_VALUE_BOOL = 7,
    MO_VALUE_STRING = 8,
    MO_VALUE_U64 = 10,
    MO_VALUE_I64 = 11,
    MO_VALUE_F64 = 12,
} mo_value_type;

/* "u8", "string", ... A constant. */
MO_API const char *mo_value_type_text(mo_value_type type);

/* Bytes from a file: not terminated, and perhaps not UTF-8. */
typedef struct mo_text {
    const char *data;
    size_t length;
} mo_text;

/* One value, or one element of an array. */
typedef struct mo_value {
    mo_value_type type;
    union {
        int64_t i;  /* I8, I16, I32, I64 */
        uint64_t u; /* U8, U16, U32, U64 */
        double r;   /* F32, F64 */
        bool b;     /* BOOL */
        mo_text s;  /* STRING */
    } as;
} mo_value;

typedef struct mo_metadata {
    const char *key;
    mo_value_type type; /* of the value, or of each element */
    bool is_array;
    uint64_t count; /* elements; 1 for a value that is no array */
} mo_metadata;

/* Metadata in the order of the file (of a split model: of its first part). False past the last. */
MO_API int64_t mo_file_metadata_count(const mo_file *file);
MO_API bool mo_file_metadata(const mo_file *file, int64_t index, mo_metadata *out);
MO_API bool mo_file_metadata_value(const mo_file *file, int64_t index, uint64_t element, mo_value *out);

/* Writes the value for people to read, always terminated: numbers plainly, strings with control
 * characters escaped, arrays as [a, b, ...] with at most max_elements of them. Returns the bytes the
 * whole text needs, without the terminator, as snprintf does. */
MO_API size_t mo_file_metadata_text(const mo_file *file, int64_t index, uint64_t max_elements, char *text,
                                    size_t size);

typedef struct mo_tensor_info {
    const char *name;
    const char *type; /* as in "Q4_K" */
    int dims;         /* how many sizes the file gives */
    int64_t size[4];  /* first is fastest; missing ones are 1 */
    int64_t values;   /* product of the sizes */
    int64_t bytes;    /* in the file */
    int64_t offset;   /* from the beginning of its part, in bytes */
    int part;         /* which part holds it, from 0 */
} mo_tensor_info;

/* Tensors in the order of the file. False past the last. */
MO_API int64_t mo_file_tensor_count(const mo_file *file);
MO_API bool mo_file_tensor(const mo_file *file, int64_t index, mo_tensor_info *out);

#define MO_FILE_FORMATS 32

typedef struct mo_file_format {
    const char *type;
    int64_t tensors, values, bytes;
} mo_file_format;

/* What a model weighs, and what one token reads of it when nothing is cached. */
typedef struct mo_file_summary {
    const char *architecture; /* "" when the file does not say */
    const char *name;         /* "" when the file does not say */
    int version;              /* of the container */
    int parts;
    int64_t file_bytes; /* all parts, headers included */
    int64_t tensors, parameters, tensor_bytes;
    int64_t context_length; /* tokens the model was made for; 0 when the file does not say */
    int layers;             /* without those for predicting further tokens */
    int mtp_layers;         /* layers for predicting further tokens (nextn); never read per token */

    int expert_layers, experts, experts_used;   /* experts in one layer, and how many a token uses */
    int64_t expert_bytes_min, expert_bytes_max; /* one expert: gate, up and down, with scales and biases */
    int64_t expert_bytes_total;                 /* every expert of every layer a token passes */

    /* Bytes one token reads. */
    int64_t token_expert_bytes;    /* the experts it is routed to */
    int64_t token_other_bytes;     /* attention, norms, routers, shared experts, dense layers */
    int64_t token_output_bytes;    /* the output matrix */
    int64_t token_embedding_bytes; /* one row of the embedding */
    int64_t token_bytes;           /* all of these */
    bool output_tied;              /* the output matrix is the embedding */

    int formats; /* entries of format, most bytes first */
    mo_file_format format[MO_FILE_FORMATS];
} mo_file_summary;

/* Fails with MO_EFORMAT where metadata and tensors contradict each other. */
MO_API mo_status mo_file_summarise(const mo_file *file, mo_file_summary *out, mo_error *err);

/* ---- Synthetic models ------------------------------------------------------------------------- */

/* Called between pieces of a long work, on the thread that asked for it. Returns false to cancel. */
typedef bool (*mo_progress_fn)(void *user, int64_t done_bytes, int64_t total_bytes);

typedef struct mo_synth_options {
    int layers;       /* the first so many layers; 0: all */
    const char *type; /* format of every matrix, as in "Q8_0"; NULL: the mix the model is published in.
                       * Norms, biases, routers and other small tensors are F32 in any case. Where rows
                       * do not fit the format's block, what quantisers take instead (Q4_K: Q5_0, ...) */
    uint64_t seed;
    float skew;     /* of the router: 0 none, up to 8; see moraine synth --help */
    int threads;    /* 0: one per usable core; the file does not depend on it */
    bool overwrite; /* an existing file */
} mo_synth_options;

MO_API mo_synth_options mo_synth_options_default(void);

/* The published models whose shapes are known, by number; NULL past the last. */
MO_API const char *mo_synth_name(int index);

typedef struct mo_synth_info {
    const char *title, *architecture; /* constants */
    int layers;
    int64_t tensors, parameters, file_bytes;
} mo_synth_info;

/* What mo_synth() would write. MO_ENOENT for an unknown name lists the known ones. */
MO_API mo_status mo_synth_measure(const char *name, const mo_synth_options *options, mo_synth_info *out,
                                  mo_error *err);

/* Writes a model file of the named shape with random, well-scaled weights and no vocabulary. The same
 * bytes for the same options on every machine. The file appears when it is complete; after a failure or
 * cancellation (MO_ECANCELLED) nothing is left. progress may be NULL. */
MO_API mo_status mo_synth(const char *name, const char *path, const mo_synth_options *options,
                          mo_progress_fn progress, void *user, mo_error *err);

/* ---- Models ----------------------------------------------------------------------------------- */

/* A loaded model with the threads and the memory to run it. Sessions share it; any thread may use it. */
typedef struct mo_model mo_model;

typedef struct mo_model_options {
    int threads;             /* 0: one per usable core; no result depends on it */
    const char *isa;         /* instruction set, as listed by mo_isa_name(); NULL or "auto": the best */
    int64_t context;         /* most positions of a session; 0: what the model was made for, at most 8192 */
    int64_t batch;           /* most tokens of one step; 0: 512 */
    bool map;                /* map the file instead of reading it */
    mo_progress_fn progress; /* while loading; may be NULL */
    void *user;
} mo_model_options;

MO_API mo_model_options mo_model_options_default(void);

/* Instruction sets this machine can run, best first; NULL past the last, which is "scalar". */
MO_API const char *mo_isa_name(int index);

/* Opens and loads a model file (of a split model: its first part). Close every session before the model. */
MO_API mo_status mo_model_open(const char *path, const mo_model_options *options, mo_model **out,
                               mo_error *err);
MO_API void mo_model_close(mo_model *model); /* NULL is allowed */

/* What the model needs and holds. Bytes are exact, known before a session is opened. */
typedef struct mo_model_info {
    const char *path, *architecture, *name, *isa;
    int threads, layers, experts, experts_used;
    int64_t vocab, width, context, batch;
    uint64_t core_bytes, expert_bytes, table_bytes, vector_bytes; /* weights in memory */
    uint64_t work_bytes;                                          /* working memory of a step */
    uint64_t bytes_per_token;                                     /* weights a single token reads */
    bool has_vocabulary;
} mo_model_info;

MO_API void mo_model_describe(const mo_model *model, mo_model_info *out);

/* Counters since the model was opened. */
typedef struct mo_counters {
    uint64_t steps, tokens;
    uint64_t expert_picks; /* experts chosen by tokens */
    uint64_t experts_run;  /* experts computed: fewer where tokens of a step share one */
} mo_counters;

MO_API void mo_model_counters(mo_model *model, mo_counters *out);

/* The rate at which the model's threads read memory, in GB/s: measured now, over `bytes` of scratch. */
MO_API mo_status mo_model_read_rate(mo_model *model, uint64_t bytes, double *gb_per_s, mo_error *err);

/* ---- Text ------------------------------------------------------------------------------------- */

typedef enum mo_token_flags {
    MO_TOKEN_SPECIAL = 1, /* recognise special tokens written in the text, and add begin and end tokens as
                             the vocabulary asks */
    MO_TOKEN_CHAT = 2,    /* the same for a rendered conversation: a begin token that is there is not added */
} mo_token_flags;

/* Token ids of a text of any bytes; free() *ids. MO_EUNSUPPORTED when the model has no vocabulary. */
MO_API mo_status mo_tokenise(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err);

/* The same from a model file alone, without loading weights. */
MO_API mo_status mo_tokenise_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                                  size_t *count, mo_error *err);

/* True for tokens that end an answer. */
MO_API bool mo_token_ends(const mo_model *model, int32_t token);

/* Turns tokens into text piece by piece and never splits a character: bytes wait until they are whole. */
typedef struct mo_stream mo_stream;
MO_API mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err);
MO_API void mo_stream_close(mo_stream *stream); /* NULL is allowed */
/* The text that the token completes, perhaps none: terminated, the stream's until the next call. */
MO_API mo_status mo_stream_put(mo_stream *stream, int32_t token, mo_text *out, mo_error *err);
/* What still waits, replaced by U+FFFD where it is no character. */
MO_API mo_status mo_stream_flush(mo_stream *stream, mo_text *out, mo_error *err);

/* The same for an answer of a chat model, taken apart as it comes: *thought says whether the text is the
 * model's reasoning or its answer; marks of the chat format are left out. think: as in mo_model_chat(). */
typedef struct mo_reply mo_reply;
MO_API mo_status mo_reply_open(const mo_model *model, bool think, mo_reply **out, mo_error *err);
MO_API void mo_reply_close(mo_reply *reply); /* NULL is allowed */
MO_API mo_status mo_reply_put(mo_reply *reply, int32_t token, mo_text *out, bool *thought, mo_error *err);
MO_API mo_status mo_reply_flush(mo_reply *reply, mo_text *out, bool *thought, mo_error *err);

typedef struct mo_message {
    const char *role, *content; /* role: system, user or assistant */
} mo_message;

/* The messages in the model's chat format with the opening of the next answer, to be tokenised with
 * MO_TOKEN_CHAT; free() *text. think: let models that can think do so. */
MO_API mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count, bool think,
                               char **text, mo_error *err);
/* The name of the chat format, as in "chatml". */
MO_API const char *mo_model_chat_name(const mo_model *model);

/* ---- Sessions --------------------------------------------------------------------------------- */

/* One conversation. Any number per model; one call at a time per session. */
typedef struct mo_session mo_session;

/* How keys and values are kept: the default F16, exact F32, or Q8_0 (half of F16's memory, lossy). */
typedef enum mo_kv_type { MO_KV_F16, MO_KV_F32, MO_KV_Q8_0 } mo_kv_type;

/* Bytes of a session of so many positions (0: the model's context). */
MO_API uint64_t mo_session_bytes(const mo_model *model, mo_kv_type kv, int64_t context);

MO_API mo_status mo_session_create(mo_model *model, mo_kv_type kv, int64_t context, mo_session **out,
                                   mo_error *err);
MO_API void mo_session_destroy(mo_session *session); /* NULL is allowed */

/* What to feed, and what to be told meanwhile; unused fields are 0. */
typedef struct mo_feed {
    mo_session *session;
    const int32_t *tokens; /* the whole sequence from its beginning; the session works out what is new */
    int64_t count;         /* at least 1 */
    int64_t step;          /* most tokens per step; 0: the model's batch */
    /* After each step; returning false cancels. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    /* Logits of every new position, in order. Without it only those of the last token are computed. */
    void (*logits)(void *user, int64_t position, const float *row);
    /* The experts of every token after each routed layer, in router order. */
    void (*routes)(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                   int used);
    void *user;
} mo_feed;

/* Brings the session to the sequence. On failure (also MO_ECANCELLED) it keeps what it can and feeds the rest
 * again next time. */
MO_API mo_status mo_session_feed(const mo_feed *feed, mo_error *err);

/* Several sessions of one model share the steps; no result changes. */
MO_API mo_status mo_session_feed_all(const mo_feed *feeds, int count, mo_error *err);

/* Logits after the last token fed: `vocab` floats, valid until the next feed; NULL before the first. */
MO_API const float *mo_session_logits(const mo_session *session);
MO_API int64_t mo_session_length(const mo_session *session);   /* tokens held */
MO_API int64_t mo_session_computed(const mo_session *session); /* tokens the last feed computed */

/* Asks a running feed to stop. Any thread, and signal handlers. */
MO_API void mo_session_cancel(mo_session *session);

/* A copy of the session's state, to go back to or to fork from: it may be restored into any session of the
 * same model and format, and outlives the session. */
typedef struct mo_snapshot mo_snapshot;
MO_API mo_status mo_session_save(const mo_session *session, mo_snapshot **out, mo_error *err);
MO_API mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, mo_error *err);
MO_API void mo_snapshot_free(mo_snapshot *snapshot); /* NULL is allowed */
/* As bytes for a file; free() them. Reading checks every field. */
MO_API mo_status mo_snapshot_write(const mo_snapshot *snapshot, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_snapshot_read(const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err);

/* ---- Sampling --------------------------------------------------------------------------------- */

typedef struct mo_logit_bias {
    int32_t token;
    float bias; /* added to its logit; -INFINITY forbids it */
} mo_logit_bias;

/* Applied in this order: penalties and bias, top-k, top-p, min-p, temperature. */
typedef struct mo_sampling {
    float repeat_penalty; /* 1: none; logits of recent tokens are divided (or multiplied, below 0) by it */
    float presence_penalty, frequency_penalty; /* 0: none; subtracted once, and per occurrence */
    int64_t penalty_last;                      /* recent tokens that count; 0: none, -1: all */
    const mo_logit_bias *bias;
    size_t bias_count;
    int64_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all; relative to the likeliest token */
    float temperature; /* 0: the likeliest token, always */
    uint64_t seed;     /* the same seed gives the same text on every machine */
} mo_sampling;

MO_API mo_sampling mo_sampling_default(void);

typedef struct mo_sampler mo_sampler;
/* Copies the settings. MO_EINVAL names the one that makes no sense. */
MO_API mo_status mo_sampler_create(const mo_sampling *settings, int64_t vocab, mo_sampler **out,
                                   mo_error *err);
MO_API void mo_sampler_destroy(mo_sampler *sampler); /* NULL is allowed */
/* Picks the next token; `recent` is the sequence so far. Allocates nothing. */
MO_API int32_t mo_sampler_pick(mo_sampler *sampler, const float *logits, const int32_t *recent, size_t count);

#ifdef __cplusplus
}
#endif
#endif
