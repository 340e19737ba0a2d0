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
    MO_EDEVICE,      /* a device (GPU) is missing, refused or lost */
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
MO_API mo_status mo_file_summarize(const mo_file *file, mo_file_summary *out, mo_error *err);

/* ---- Synthetic models ------------------------------------------------------------------------- */

/* Called between pieces of a long work, on the thread that asked for it. Returns false to cancel. */
typedef bool (*mo_progress_fn)(void *user, int64_t done_bytes, int64_t total_bytes);

typedef struct mo_synth_options {
    int layers;       /* the first so many layers; 0: all */
    const char *type; /* format of every matrix, as in "Q8_0"; NULL: the mix the model is published in.
                       * Norms, biases, routers and other small tensors are F32 in any case. Where rows
                       * do not fit the format's block, what quantizers take instead (Q4_K: Q5_0, ...) */
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

/* ---- Other formats for a model's weights ------------------------------------------------------ */

/* What a tensor counts as when a model is quantized. */
typedef enum mo_tensor_class {
    MO_CLASS_EXPERTS,   /* the matrices of routed experts */
    MO_CLASS_REST,      /* other matrices: attention, shared experts, dense layers */
    MO_CLASS_OUTPUT,    /* the output matrix, where the model has one of its own */
    MO_CLASS_EMBEDDING, /* the embedding, which also is the output where that is tied to it */
    MO_CLASS_KEPT,      /* routers, vectors, convolutions: always copied as they are */
    MO_TENSOR_CLASSES
} mo_tensor_class;

/* "experts", "rest", ... A constant. */
MO_API const char *mo_tensor_class_text(mo_tensor_class tensor_class);

typedef struct mo_quantize_options {
    /* A format such as "Q8_0" for each class; NULL leaves the tensors as they are. output and embedding
     * follow rest when they are NULL. Tensors that have the format already are copied. */
    const char *experts, *rest, *output, *embedding;
    int threads;    /* 0: one per usable core; the file does not depend on it */
    bool overwrite; /* an existing file */
} mo_quantize_options;

MO_API mo_quantize_options mo_quantize_options_default(void);

typedef struct mo_quantize_class {
    int64_t tensors, values;
    int64_t bytes_before, bytes_after;
    int64_t converted; /* tensors that got another format */
    double error;      /* of those: root of the sum of squared differences over the sum of squares */
} mo_quantize_class;

typedef struct mo_quantize_report {
    int64_t file_bytes_before, file_bytes_after; /* before: all parts */
    mo_quantize_class classes[MO_TENSOR_CLASSES];
} mo_quantize_report;

/* Writes a model with its weights in other formats: one file with the same metadata, also where the source
 * is split. Values pass through F32. The file appears when it is complete; after a failure or cancellation
 * nothing is left. Fails with MO_EINVAL, before anything is written, where a format is unknown or cannot hold
 * a tensor's rows; err then names those that can. The same bytes for any number of threads. Memory is a few
 * MiB per thread. progress may be NULL; it counts bytes of the new file. */
MO_API mo_status mo_quantize(const char *source, const char *path, const mo_quantize_options *options,
                             mo_progress_fn progress, void *user, mo_quantize_report *report, mo_error *err);

/* ---- Models ----------------------------------------------------------------------------------- */

/* How keys and values are kept: the default F16, exact F32, or Q8_0 (half of F16's memory, lossy). */
typedef enum mo_kv_type { MO_KV_F16, MO_KV_F32, MO_KV_Q8_0 } mo_kv_type;

/* How weights that stay on disk are read: past the page cache, through it, or as measured when opened. */
typedef enum mo_io { MO_IO_AUTO, MO_IO_DIRECT, MO_IO_CACHED } mo_io;

/* The cache of founding document 001, under its own options: experts chosen from a profile. With a device they lie in its
 * memory, and by a rate others take their places, in the background, after every request and every 64 tokens of an
 * answer; RAM follows its policy. Without a device they lie in RAM, do not change while a request runs, and are
 * exchanged after it. Without the cache the policy decides. */
typedef struct mo_hot_cache_options {
    const char *file;         /* a profile in that document's JSON, ours or the fork's; NULL: none */
    int64_t max_mib;          /* of experts; 0: off; -1: what the ceiling leaves free */
    int64_t auto_reserve_mib; /* left free by -1; by default 1024 */
    double update_rate;       /* share of the experts in it that an update may exchange, 0 to 1 */
    const char *weighting;    /* flat, balanced, pressure, smooth or time; NULL: flat */
    double layer_curve;       /* how much layers differ, 0 to 1; by default 0.5 */
} mo_hot_cache_options;

/* What is counted about a model, and what becomes of it. No result depends on any of it. */
typedef struct mo_learning_options {
    /* The counts of all runs, which warm the cache at the next start: "off" reads and writes none; NULL: a file in
     * the user's cache directory ($XDG_CACHE_HOME/moraine or ~/.cache/moraine); otherwise the path of one. */
    const char *profile;
    /* "full" (NULL): picks and times; "update": picks, and walls of a device's lanes; "off": nothing is counted. */
    const char *perf_mode;
    const char
        *perf_out; /* file for the counts of this run, written after each request and at the end; or NULL */
    const char *warm_file; /* a copy of what lay in RAM is kept here for a fast next start; NULL: none */
    mo_hot_cache_options hot_cache;
} mo_learning_options;

/* How an expert that is in RAM gets to a device (founding document 000): the down matrix travels while the CPU computes
 * gate and up, or the whole expert does, or none. */
typedef enum mo_postfetch_mode {
    MO_POSTFETCH_DEFAULT, /* as LLAMA_POSTFETCH_ENABLE says; without it automatic */
    MO_POSTFETCH_OFF,
    MO_POSTFETCH_AUTO, /* whichever is faster by the rates that were measured */
    MO_POSTFETCH_DOWN,
    MO_POSTFETCH_EXPERT,
} mo_postfetch_mode;

/* A loaded model with the threads and the memory to run it. Sessions share it; any thread may use it. */
typedef struct mo_model mo_model;

typedef struct mo_model_options {
    int threads;             /* 0: one per usable core; no result depends on it */
    const char *isa;         /* instruction set, as listed by mo_isa_name(); NULL or "auto": the best */
    int64_t context;         /* most positions of a session; 0: what the model was made for, at most 8192 */
    int64_t batch;           /* most tokens of one step; 0: 512 */
    bool map;                /* map the file instead of reading it: no ceiling, no tiers */
    mo_progress_fn progress; /* while loading; may be NULL */
    void *user;

    /* A model that does not fit under the ceiling keeps what every token needs in RAM, and of its experts (or
     * layers) as many as fit; the others come from disk when they are needed. The results are the same. */
    int64_t ram_bytes;  /* ceiling of the process's memory; 0: what the machine and its limits leave */
    mo_kv_type kv;      /* what sessions will use; the plan leaves room for one */
    bool all_logits;    /* logits of every position will be asked for; the plan leaves room for them */
    const char *policy; /* which experts stay, as listed by mo_policy_name(); NULL: the default */
    bool no_prediction; /* never read ahead what a layer will probably need */
    int readers;        /* reads under way at once; 0: as measured */
    mo_io io;
    bool skip_missing; /* lossy: experts that are not in RAM are left out */
    mo_learning_options learning;

    /* With a device the core and the sessions lie in its memory, and of the experts as many as fit; the others are
     * computed from RAM, or fetched. The results are the same. */
    const char
        *device; /* "none", "sim", "cuda" or "auto"; NULL: auto, that is, a GPU where one can be used */
    int64_t vram_bytes; /* ceiling of the device's memory; 0: what is free there, less a reserve */
    mo_postfetch_mode postfetch;
    bool cpu_moe; /* no expert stays in the device's memory, but for a hot cache */
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

/* Experts of a layer that its router chooses among; 0 for a layer without a router, or past the last. */
MO_API int mo_model_layer_experts(const mo_model *model, int layer);

/* Names of the policies, the default first, with one line about each; NULL past the end. Constants. */
MO_API const char *mo_policy_name(int index, const char **summary);

/* Where a model lies, and what its tiers have done since it was opened. */
typedef struct mo_tier_phase {
    uint64_t passes;  /* through the model */
    uint64_t asked;   /* experts that they needed */
    uint64_t hits;    /* of them in RAM */
    uint64_t bytes;   /* read from disk for the others */
    uint64_t wait_ns; /* nothing could be computed meanwhile */
} mo_tier_phase;

typedef struct mo_tier_report {
    const char *mode;      /* "resident", "slots", "streamed" or "mapped": a constant */
    const char *policy;    /* a constant */
    int64_t ceiling_bytes; /* 0: mapped */
    int64_t planned_bytes; /* in RAM; at most the ceiling */
    int64_t expert_bytes;  /* of the model */
    int64_t slot_bytes;    /* of RAM for experts that come and go */
    int32_t slots, filled; /* how many of them it holds */
    int streamed_layers, ring;
    mo_tier_phase prompt, generation;
    uint64_t guessed, useful, late,
        wasted; /* experts read ahead: all; needed; needed too soon; never needed */
    uint64_t guessed_bytes, evictions;
    uint64_t skipped; /* picks that were left out: --skip-missing */
    uint64_t layers_streamed, layer_bytes, layer_wait_ns;
    uint64_t disk_reads, disk_bytes, disk_busy_ns;
    double disk_probed_bytes_s; /* what moraine probe found; 0: it has not been run */
    const char
        *disk_method; /* such as "direct reads, 4 threads"; "" when nothing is read; belongs to the model */
} mo_tier_report;

MO_API void mo_model_tiers(mo_model *model, mo_tier_report *out);

/* Counters since the model was opened. */
typedef struct mo_counters {
    uint64_t steps, tokens;
    uint64_t expert_picks; /* experts chosen by tokens */
    uint64_t experts_run;  /* experts computed: fewer where tokens of a step share one */
} mo_counters;

MO_API void mo_model_counters(mo_model *model, mo_counters *out);

/* The rate at which the model's threads read memory, in GB/s: measured now, over `bytes` of scratch. */
MO_API mo_status mo_model_read_rate(mo_model *model, uint64_t bytes, double *gb_per_s, mo_error *err);

/* ---- Plans ------------------------------------------------------------------------------------ */

/* What to plan for; unused fields are 0. */
typedef struct mo_plan_ask {
    int64_t ram_bytes;      /* ceiling of the process; 0: found from the machine, less a reserve */
    int64_t context, batch; /* as in mo_model_options */
    mo_kv_type kv;
    int sessions;        /* held at once; 0: 1 */
    const char *machine; /* file with another machine's sizes and rates (JSON, as moraine probe writes it);
                            NULL: this machine, with its probed rates where there are any */
    const char
        *device; /* as in mo_model_options; of another machine: "none", or else what its file describes */
    int64_t vram_bytes; /* ceiling of the device's memory; 0: what is free there, less a reserve */
    bool cpu_moe;       /* no expert stays in the device's memory, but for a hot cache */
    mo_postfetch_mode postfetch;
    mo_hot_cache_options hot_cache; /* as in mo_model_options */
} mo_plan_ask;

#define MO_PLAN_REPORT_CLASSES 16

/* Experts of one size. */
typedef struct mo_plan_report_class {
    int64_t bytes, slot_bytes; /* of an expert, and of the slot for it */
    int64_t experts, slots;    /* in the model; in RAM */
    int64_t device_slot_bytes, device_slots;
} mo_plan_report_class;

/* What lies in a device's memory. */
typedef struct mo_plan_report_device {
    char name[128];                    /* "": no device */
    char why[256];                     /* what decided the ceiling; without a device, why there is none */
    int64_t ceiling_bytes, used_bytes; /* 0: no device */
    int64_t core_bytes, vector_bytes, kv_bytes, work_bytes, staging_bytes, ring_bytes, slot_bytes;
    int64_t least_bytes, whole_bytes; /* lowest ceilings: to run at all; to hold everything */
    int64_t slots;
    int layers, streamed_layers, ring; /* layers whose core stays; others pass through so many slots */
    int cpu_layers;                    /* of those: in prompts only, single tokens are the CPU's */
    double hit_rate;                   /* of experts, in the device's memory */
    bool fetch;                        /* missing experts cross the link as well, beside the CPU's work */
    double fetch_share;                /* of the missing bytes */
    char lane[256];                    /* why so, one sentence */
    int64_t token_bytes, token_link_bytes;
    double core_seconds, hit_seconds, miss_seconds, link_seconds, overhead_seconds;
    double memory_bytes_s, link_bytes_s, host_bytes_s; /* host: memory under both at once */
    bool measured;                                     /* false: guesses */
} mo_plan_report_device;

/* The hot cache of document 001: in the device's memory where there is one, otherwise in RAM. Its bytes are part of
 * slot_bytes there. */
typedef struct mo_plan_report_hot {
    int64_t budget_bytes, used_bytes; /* 0: there is none */
    int64_t experts, filled;          /* in it; of these the profile knows no pick */
    int layers, whole_layers;         /* with experts in it; with all of theirs, so that they need no host */
    int moves;                        /* slots of each size in which updates prepare exchanges */
    double hit_rate;                  /* of the picks that the profile knows */
    double tokens_per_second;         /* if a text's picks are those */
} mo_plan_report_hot;

/* What lies where, and how fast that will be. */
typedef struct mo_plan_report {
    const char *mode; /* "resident", "slots" or "streamed": a constant */
    char why[256];    /* one sentence: what decided the ceiling */

    /* Bytes in RAM; used is their sum, at most the ceiling. */
    int64_t ceiling_bytes, used_bytes;
    int64_t core_bytes, vector_bytes, table_bytes, kv_bytes, work_bytes, staging_bytes, other_bytes,
        slot_bytes;
    int64_t least_bytes, whole_bytes; /* lowest ceilings: to run at all; to hold everything */
    int64_t available_bytes;          /* what could be had when planned; 0: not known */

    /* Bytes that stay on disk. */
    int64_t disk_core_bytes, disk_table_bytes, disk_expert_bytes;

    int layers, routed_layers, experts, experts_used; /* experts of a layer, and those a token uses */
    int streamed_layers, ring;                        /* layers that pass through so many slots */
    int class_count;
    mo_plan_report_class classes[MO_PLAN_REPORT_CLASSES];
    int64_t context, batch;

    /* Of one token, with evenly spread routing: the slowest case for a cache. */
    int64_t token_ram_bytes, token_disk_bytes; /* found in RAM; fetched first */
    double hit_rate;                           /* of experts; 1 where there are none */
    double core_seconds, expert_seconds, disk_seconds;
    double tokens_per_second; /* 0: nothing to compute */

    /* What the speed was reckoned from. */
    double ram_bytes_s, compute_share, disk_bytes_s;
    int64_t device_bytes; /* of memory that the device has; 0: none */
    bool measured;        /* false: modest defaults */
    mo_plan_report_device device;
    mo_plan_report_hot hot;
} mo_plan_report;

/* Plans for a model file of which only the header is read, and the hot cache's profile. MO_ENOMEM when it cannot run
 * under the ceiling, MO_EDEVICE when that is the device's, or there is no such device: err says how much is needed and
 * what to change. The environment's settings of the hot cache hold, as in mo_model_open(). Any thread. */
MO_API mo_status mo_plan_file(const char *path, const mo_plan_ask *ask, mo_plan_report *out, mo_error *err);

/* Why an expert that was meant to cross to the device did not, or not beside the CPU's work. */
typedef enum mo_fallback {
    MO_FALLBACK_LATE,     /* its copy was not there in time: the CPU computed it */
    MO_FALLBACK_FAILED,   /* its copy failed: the CPU computed it */
    MO_FALLBACK_NO_STAGE, /* the device had no room for one more on its way: the CPU computed it */
    MO_FALLBACK_ON_DISK,  /* it was not in RAM when copies began: the CPU computed it when it had landed */
    MO_FALLBACK_UNPINNED, /* it was copied from memory that is not pinned, which holds the host up */
    MO_FALLBACK_OTHER,    /* in a profile that another program wrote */
    MO_FALLBACKS
} mo_fallback;

/* "late_copy", "failed_copy", "no_stage", "not_in_ram", "not_pinned" or "other". A constant. */
MO_API const char *mo_fallback_text(mo_fallback why);

/* Where the time of a layer went whose experts do not all lie on the device: sums over `served` passes of steps of few
 * tokens, as the host sees them. A pass lasts core + region; region is turn + cpu + host_wait. */
typedef struct mo_device_layer {
    int32_t layer;
    uint64_t served;
    uint64_t fetched; /* experts that crossed and were computed by the device */
    /* From the last reply until the choice was seen: what the device computes alone, and both ways between. */
    uint64_t core_ns;
    /* The host's part of a round trip: sorting the choice, starting copies, launching what follows, replying. */
    uint64_t turn_ns;
    uint64_t cpu_ns;              /* the CPU's lane */
    uint64_t fetch_ns, hidden_ns; /* the fetch lane: copies were under way; of that beside the CPU's lane */
    uint64_t host_wait_ns;        /* the CPU was done and waited for what was fetched */
    uint64_t device_wait_ns;      /* the device was done and waited for the reply */
    uint64_t region_ns;           /* from seeing the choice to the reply */
    uint64_t fallbacks[MO_FALLBACKS];
} mo_device_layer;

/* What a device did for a model since it was opened. */
typedef struct mo_device_report {
    const char *name;                /* NULL: no device. Belongs to the model */
    bool lost;                       /* it failed, and the CPU went on alone */
    int64_t limit_bytes, peak_bytes; /* of its memory: the ceiling, and the most that was taken */
    int64_t core_bytes, work_bytes, stage_bytes;
    int32_t slots, filled; /* for experts */
    int64_t slot_bytes;
    int32_t streamed_layers; /* whose core does not fit and crosses the link for every step */
    int32_t
        host_layers; /* whose core does not fit either: the CPU computes them, but for prompts they cross too */
    int64_t layer_buffer_bytes;           /* of the ring they pass through */
    uint64_t streamed_bytes, streamed_ns; /* crossed that way, and what the copies took */
    uint64_t host_ns;                     /* the CPU computed such layers */
    uint64_t steps;
    uint64_t asked, hits, by_cpu, fetched,
        fetch_failed; /* experts: chosen; in slots; computed by the CPU; sent */
    uint64_t late;    /* sent, but not there in time: the CPU computed them as well */
    uint64_t fetched_bytes, cpu_bytes;
    uint64_t wait_ns;                 /* the host waited for the device's choice */
    uint64_t cpu_ns;                  /* the CPU computed experts */
    uint64_t fetch_ns, hidden_ns;     /* copies were under way; of that while the CPU computed */
    double cpu_bytes_s, link_bytes_s; /* as they were found while running */
    /* What follows stays 0 where layers are not counted (learning.perf_mode "off"). */
    uint64_t step_ns; /* wall time of steps of few tokens */
    /* Of that the device's main stream had nothing to do: before the first launch of a step, and waiting for replies.
     * Copies and fetched experts may be under way meanwhile. */
    uint64_t idle_ns;
    mo_device_layer lanes; /* the sum over layers; layer is -1 */
    double layer_p50_s,
        layer_p99_s;     /* of all passes through such layers, each from reply to reply; 0: none */
    double round_trip_s; /* as the device was probed: its part of every core_ns; 0: not known */
    uint64_t updates;    /* of the hot cache, by its rate */
    uint64_t exchanged, exchange_failed; /* experts in slots, by updates and by hand; copies that failed */
} mo_device_report;

MO_API void mo_model_device(mo_model *model, mo_device_report *out);

/* The layers that needed the host, ascending: at most `room` are written. Returns how many there are. Any thread. */
MO_API int mo_model_device_layers(mo_model *model, mo_device_layer *out, int room);

/* ---- Probing: the rates that plans are made with ---------------------------------------------- */

typedef struct mo_probe_ask {
    const char
        *model; /* read from its files (of a split one: name the first part); NULL: from a file of 1 GiB
                            * made for it, of which nothing stays */
    const char *directory; /* where that file is made; NULL: the current directory */
    int threads;           /* most threads that read memory; 0: one per usable core */
    const char *device;    /* as in mo_model_options: measured too, where there is one */
    /* Between measurements, on the calling thread; returning false cancels. May be NULL. */
    bool (*progress)(void *user, const char *what, int done, int total);
    void *user;
} mo_probe_ask;

enum { MO_PROBE_MEMORY = 16, MO_PROBE_DISK = 24, MO_PROBE_COPIES = 5 };

/* A device and the wire to it; rates in bytes per second. */
typedef struct mo_probe_device_report {
    char name[128];                   /* "": there is none, or none was asked for */
    char kind[16];                    /* "cuda", "sim" */
    char why[256];                    /* without a device: why there is none */
    int64_t memory_bytes, free_bytes; /* free: what a process may take now */
    bool pinned;               /* false: the system refused; copies are then as slow as pageable ones */
    double link_bytes_s;       /* host to device, from pinned memory: the best size */
    double link_out_bytes_s;   /* device to host */
    double pageable_bytes_s;   /* host to device, from ordinary memory */
    double both_ram_bytes_s;   /* threads reading memory while copies run, */
    double both_link_bytes_s;  /* and those copies */
    double memory_bytes_s;     /* products reading the device's memory */
    double launch_seconds;     /* a piece of work, from asking for it to knowing that it is done */
    double round_trip_seconds; /* the device tells the host, and goes on when the host answers */

    struct mo_probe_copy {
        int64_t bytes; /* of one copy */
        double in_bytes_s, out_bytes_s, pageable_bytes_s;
    } copies[MO_PROBE_COPIES];
    int copy_count;
} mo_probe_device_report;

typedef struct mo_probe_report {
    int threads;         /* of the last measurement of memory */
    int64_t ram_bytes;   /* what a process may take now */
    double ram_bytes_s;  /* the best of the memory measurements */
    double disk_bytes_s; /* reads of 1 MiB as the engine makes them */
    bool direct, ring;   /* how those were made: past the page cache; by io_uring */
    int readers;
    char disk_reason[320]; /* why so, one sentence */

    struct mo_probe_memory {
        int threads;
        double bytes_s;
    } memory[MO_PROBE_MEMORY];
    int memory_count;

    struct mo_probe_disk {
        int64_t block_bytes;
        int depth; /* reads under way at once: threads, or entries of the ring */
        bool ring;
        double bytes_s;
        double read_s;    /* from asking for a block to having it, with so many under way */
        double cpu_share; /* processor time, 1.0: one core */
    } disk[MO_PROBE_DISK];
    int disk_count;

    mo_probe_device_report device;
} mo_probe_report;

/* Measures. Some ten seconds and 600 MiB of memory; other load on the machine shows in the result. */
MO_API mo_status mo_probe(const mo_probe_ask *ask, mo_probe_report *out, mo_error *err);

/* Keeps the rates where plans look for them (path NULL), or in a file; *saved (size bytes) says where. */
MO_API mo_status mo_probe_save(const mo_probe_report *report, const char *path, char *saved, size_t size,
                               mo_error *err);

/* ---- Text ------------------------------------------------------------------------------------- */

typedef enum mo_token_flags {
    MO_TOKEN_SPECIAL = 1, /* recognize special tokens written in the text, and add begin and end tokens as
                             the vocabulary asks */
    MO_TOKEN_CHAT = 2,    /* the same for a rendered conversation: a begin token that is there is not added */
} mo_token_flags;

/* Token ids of a text of any bytes; free() *ids. MO_EUNSUPPORTED when the model has no vocabulary. */
MO_API mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err);

/* The same from a model file alone, without loading weights. */
MO_API mo_status mo_tokenize_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                                  size_t *count, mo_error *err);

/* True for tokens that end an answer. */
MO_API bool mo_token_ends(const mo_model *model, int32_t token);

/* Tokens that the vocabulary says must never be sampled, all in range; *count may be 0. They belong to the
 * model. A sampler takes them as biases of -INFINITY. */
MO_API const int32_t *mo_model_suppressed(const mo_model *model, size_t *count);

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

/* The messages in the model's chat format with the opening of the next answer, to be tokenized with
 * MO_TOKEN_CHAT; free() *text. think: let models that can think do so. */
MO_API mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count, bool think,
                               char **text, mo_error *err);
/* The name of the chat format, as in "chatml". */
MO_API const char *mo_model_chat_name(const mo_model *model);

/* ---- Sessions --------------------------------------------------------------------------------- */

/* One conversation. Any number per model; one call at a time per session. */
typedef struct mo_session mo_session;

/* Bytes of a session of so many positions (0: the model's context). */
MO_API uint64_t mo_session_bytes(const mo_model *model, mo_kv_type kv, int64_t context);

MO_API mo_status mo_session_create(mo_model *model, mo_kv_type kv, int64_t context, mo_session **out,
                                   mo_error *err);
MO_API void mo_session_destroy(mo_session *session); /* NULL is allowed */

/* Hears which experts the router of a layer chose for the token at a position: `used` ids in router order with
 * their weights, which belong to the engine until it returns. Called on the thread that feeds, layer by layer
 * within a step, and in the order of positions within a layer. It cannot change anything and must not feed. */
typedef void (*mo_routing_observer)(void *user, int layer, int64_t position, const int32_t *ids,
                                    const float *weights, int used);

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
    /* The experts of every new token. */
    mo_routing_observer routes;
    void *user;
} mo_feed;

/* Brings the session to the sequence. On failure (also MO_ECANCELLED) it keeps what it can and feeds the rest
 * again next time. */
MO_API mo_status mo_session_feed(const mo_feed *feed, mo_error *err);

/* Several sessions of one model share the steps; no result changes. */
MO_API mo_status mo_session_feed_all(const mo_feed *feeds, int count, mo_error *err);

/* Before the first feed of a text whose experts are on disk: lets its first tokens through the model without routed
 * experts and reads what the routers chose, so that the text finds it in RAM. *experts says how many were read. The
 * session must hold nothing, and holds nothing afterwards. */
MO_API mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count,
                                     int64_t *experts, mo_error *err);

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

/* ---- Routing traces and their replay ---------------------------------------------------------- */

/* What a pass through the model belongs to. */
typedef enum mo_trace_phase { MO_TRACE_PROMPT, MO_TRACE_GENERATION } mo_trace_phase;

/* Records which experts every token of some texts chooses, in memory until it is saved. One thread at a time. */
typedef struct mo_tracer mo_tracer;

/* MO_EUNSUPPORTED when the model has no routed experts. The model must outlive the call only. */
MO_API mo_status mo_tracer_open(const mo_model *model, mo_tracer **out, mo_error *err);
MO_API void mo_tracer_destroy(mo_tracer *tracer); /* NULL is allowed */

/* Before each pass, that is, each feed of at most the model's batch of new tokens: how many tokens, of which text
 * (0 to 65535), prompt or generation. A pass that was not heard to its end is forgotten. */
MO_API mo_status mo_tracer_step(mo_tracer *tracer, int tokens, int text, mo_trace_phase phase, mo_error *err);

/* A mo_routing_observer whose user is the tracer. Allocates nothing. */
MO_API void mo_tracer_observe(void *tracer, int layer, int64_t position, const int32_t *ids,
                              const float *weights, int used);

/* Writes the file, which appears when it is complete. MO_EINVAL when nothing was recorded. */
MO_API mo_status mo_tracer_save(const mo_tracer *tracer, const char *path, mo_error *err);

/* A recorded trace. Constant: any thread may ask. */
typedef struct mo_trace mo_trace;
/* Reads a trace and checks every field of it. */
MO_API mo_status mo_trace_load(const char *path, mo_trace **out, mo_error *err);
MO_API void mo_trace_free(mo_trace *trace); /* NULL is allowed */

typedef struct mo_trace_info {
    uint64_t fingerprint;      /* of the model it was recorded with */
    int layers, experts, used; /* routed layers; experts in each, and how many a token uses */
    int texts;                 /* the highest number + 1 */
    int64_t passes;
    int64_t tokens[2];                 /* by mo_trace_phase */
    int64_t expert_bytes, token_bytes; /* all experts; those a token uses */
    int64_t core_bytes;                /* what a token reads besides */
} mo_trace_info;
MO_API void mo_trace_describe(const mo_trace *trace, mo_trace_info *out);

typedef struct mo_replay_request {
    const char *
        policy; /* a name of mo_policy_name(); NULL: the default; "optimum": as if the future were known, a bound for all others */
    int64_t budget_bytes; /* for experts in RAM */
    int step;             /* passes of more tokens are cut to so many; 0: as recorded */
    const mo_trace *warm; /* begin with what this trace used most, of the same model; NULL: begin empty */
    const char *rates;    /* a file of rates, for the time; NULL: this machine's, as measured, or defaults */
} mo_replay_request;

/* Of all passes of a phase. An expert counts once per pass and layer, however many tokens picked it. */
typedef struct mo_replay_phase {
    int64_t passes, tokens;
    int64_t needed, hits;             /* experts */
    int64_t bytes_needed, bytes_read; /* of experts */
    double
        seconds; /* core, and for each layer the longer of computing its experts and reading the missing ones.
                       Counts reading memory and disk only, so long prompts take more in truth */
} mo_replay_phase;

typedef struct mo_replay_result {
    mo_replay_phase phase[2]; /* by mo_trace_phase */
    int32_t slots, experts;   /* of all layers */
    int64_t slot_bytes;
    bool rates_measured; /* false: the seconds rest on defaults */
} mo_replay_result;

/* What would have happened to the trace's tokens under a budget and a policy. MO_EINVAL when the budget is too
 * small for one layer's experts in use, or the policy is unknown. */
MO_API mo_status mo_replay(const mo_trace *trace, const mo_replay_request *request, mo_replay_result *out,
                           mo_error *err);

/* A picture (SVG) of hit rates: a line for each policy, in the order in which they come. */
typedef struct mo_replay_point {
    const char *policy;
    double budget_share, hit_rate; /* 0 to 1 */
} mo_replay_point;
MO_API mo_status mo_replay_chart(const mo_replay_point *points, int count, const char *title,
                                 const char *path, mo_error *err);

/* A picture (SVG) of how often each expert of each layer was picked. */
MO_API mo_status mo_trace_chart(const mo_trace *trace, const char *title, const char *path, mo_error *err);

/* ---- Learning --------------------------------------------------------------------------------- */

/* Tells that a request has been answered: a hot cache with an update rate exchanges experts now, and perf_out is
 * written. A failure leaves the model as usable as before. Not while a feed runs on another thread. */
MO_API mo_status mo_model_request_done(mo_model *model, mo_error *err);

/* What was counted since the model was opened, or since a reset: one line of JSON in the schema of document 001;
 * free() *json. Any thread. */
MO_API mo_status mo_model_profile(mo_model *model, char **json, mo_error *err);

/* Counts from 0 again, in the mode named (NULL: the one it was). What was counted before is still learned. */
MO_API mo_status mo_model_profile_reset(mo_model *model, const char *perf_mode, mo_error *err);

/* What applying a profile did, as document 001 reports it. */
typedef struct mo_profile_applied {
    bool success;          /* everything that was planned was done */
    bool active;           /* there are experts that can be exchanged */
    double update_rate;    /* 1 */
    uint64_t exchanged;    /* experts */
    uint64_t candidates;   /* exchanges that would help */
    uint64_t max_exchange; /* of them, as many as the rate allows */
    uint64_t hot_experts;  /* on the device, or in RAM */
    uint64_t layers_changed;
} mo_profile_applied;

/* Brings the experts that a profile (JSON of document 001) ranks highest to the device, where it holds experts, or else
 * into RAM, layer by layer in the place of those it ranks lowest. MO_EFORMAT when it is none, or another model's. *out is filled in any case. */
MO_API mo_status mo_model_profile_apply(mo_model *model, const char *json, size_t length,
                                        mo_profile_applied *out, mo_error *err);

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
