/* Moraine: running models. moraine_tools.h has the tools for files and measurements: plans, probing, traces,
 * synthetic and quantized models, the contents of a file.
 *
 * Conventions
 *  - A function that can fail returns mo_status and fills *err, which may be NULL everywhere, with a sentence that names the
 *    file or the setting (as `ram_bytes`) that is wrong. On failure out-parameters are NULL or untouched, and nothing leaks.
 *    Other pointers are required unless it says that they may be NULL, or their length or count is 0: MO_EINVAL names the one.
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

/* A short constant name for a status, such as "I/O error". */
MO_API const char *mo_status_text(mo_status status);

/* Frees memory that a function returned to its caller. NULL is allowed. */
MO_API void mo_free(void *memory);

/* Work of the calling thread that has no session to cancel (tokenizing, rendering a template) calls fn
 * every few thousand steps and ends with MO_ECANCELLED when it returns true. NULL: never called (the default). */
typedef bool (*mo_interrupt_fn)(void *user);
MO_API void mo_interrupt_set(mo_interrupt_fn fn, void *user);

/* ---- Version ---------------------------------------------------------------------------------- */

#define MORAINE_VERSION_MAJOR 0
#define MORAINE_VERSION_MINOR 1
#define MORAINE_VERSION_PATCH 0
#define MORAINE_VERSION                                                                                      \
    (MORAINE_VERSION_MAJOR * 1000000 + MORAINE_VERSION_MINOR * 1000 + MORAINE_VERSION_PATCH)

/* Version of the loaded library, as in "0.1.0". */
MO_API const char *mo_version(void);

/* Checks that this library supports programs compiled with that header; pass MORAINE_VERSION. It does for the same
 * major number and the same or an earlier minor one; while the major number is 0, for the same minor number. */
MO_API mo_status mo_version_check(int header_version, mo_error *err);

/* Version of the numerics (docs/numerics.md). Results of another version have different bits, and states
 * saved by it are rejected. */
MO_API int mo_numerics_version(void);

/* ---- Log -------------------------------------------------------------------------------------- */

typedef enum mo_log_level { MO_LOG_ERROR, MO_LOG_WARN, MO_LOG_INFO, MO_LOG_DEBUG } mo_log_level;

/* May be called from any thread, and from several at once. No lock of the library is held, so it may call the library; messages
 * that this causes on the same thread are dropped. text has no trailing newline. */
typedef void (*mo_log_fn)(void *user, mo_log_level level, const char *subsystem, const char *text);

/* Sends messages up to `level` to fn; NULL silences the library (the default). When it returns no call of the callback before
 * is under way, unless it was called from a callback. */
MO_API void mo_log_set(mo_log_fn fn, void *user, mo_log_level level);

/* ---- Options of a model ----------------------------------------------------------------------- */

/* Called between parts of a long operation, on the calling thread. Returns false to cancel. */
typedef bool (*mo_progress_fn)(void *user, int64_t done_bytes, int64_t total_bytes);

/* Format of the KV cache: I16 (the default: 16-bit codes with a scale per vector, summed exactly), F32 (exact,
 * for comparisons: twice the memory, and slow), or Q8_0 (half the memory of I16, lossy). F16 is an alias of I16, which takes
 * the same memory and has a tenth of its error. */
typedef enum mo_kv_type { MO_KV_I16, MO_KV_F32, MO_KV_Q8_0, MO_KV_F16 = MO_KV_I16 } mo_kv_type;

/* Precision of the products of large steps: exact, like everything else, or bfloat16, which is lossy, faster on GPUs of capability
 * 8.0 or newer, and has no effect on the CPU. */
typedef enum mo_precision { MO_PRECISION_EXACT, MO_PRECISION_BF16 } mo_precision;

/* How weights on disk are read: bypassing the page cache, through it, or as measured when opened. */
typedef enum mo_io { MO_IO_AUTO, MO_IO_DIRECT, MO_IO_CACHED } mo_io;

/* The hot cache: experts chosen from a profile. With a device they are in its memory, and an update rate
 * exchanges them in the background after each request and every 64 tokens; RAM follows its policy. Without a
 * device they are in RAM, do not change while a request runs, and are exchanged after it. Without the cache the policy
 * decides. */
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
    /* The counts of all runs, which warm the cache at the next start: "off" reads and writes none; NULL: a file in
     * the user's cache directory ($XDG_CACHE_HOME/moraine or ~/.cache/moraine); otherwise the path of one. */
    const char *profile;
    /* "full" (NULL): picks and times; "update": picks, and wall times of lanes; "off": nothing is counted. */
    const char *perf_mode;
    /* File for this run's counts, written after each request and at the end; NULL: none. */
    const char *perf_out;
    const char *warm_file; /* file that stores which experts are in RAM, for a fast next start; NULL: none */
    mo_hot_cache_options hot_cache;
    uint64_t reserved[4]; /* 0 */
} mo_learning_options;

/* Post-Fetch: how an expert in RAM gets to a device. The down matrix is copied while the CPU computes gate and up,
 * or the whole expert is copied, or nothing. */
typedef enum mo_postfetch_mode {
    MO_POSTFETCH_DEFAULT, /* set by LLAMA_POSTFETCH_ENABLE; automatic if unset */
    MO_POSTFETCH_OFF,
    MO_POSTFETCH_AUTO, /* whichever is faster by measured rates */
    MO_POSTFETCH_DOWN,
    MO_POSTFETCH_EXPERT,
} mo_postfetch_mode;

#define MO_DEVICES_MAX 8 /* maximum number of devices that share a model */

/* How ranks share a model: each has a range of layers; or rank 0 has all but the routed experts, which all ranks share. */
typedef enum mo_divide { MO_DIVIDE_AUTO, MO_DIVIDE_LAYERS, MO_DIVIDE_EXPERTS } mo_divide;

typedef struct mo_model_options {
    size_t size;
    int threads; /* 0: one per usable core, or fewer if a probe found that faster; no result depends on it */
    const char *isa; /* instruction set, as listed by mo_isa_name(); NULL or "auto": the best */
    int64_t context; /* maximum positions of a session; 0: the training context, at most 8192 */
    int64_t batch;   /* maximum tokens per step; 0: chosen by the plan */
    /* Map the file instead of reading it: no ceiling, no tiers. If the file is truncated or written to meanwhile, feeds
     * fail with MO_EIO. While a file is mapped, the library handles SIGBUS, forwards other faults to the previous
     * handler, and restores that handler at the end; a handler set meanwhile should do the same. */
    bool map;
    mo_progress_fn progress; /* while loading; may be NULL */
    void *user;

    /* A model that does not fit under the ceiling keeps in RAM what every token needs, and as many
     * experts (or layers) as fit; the others are read from disk on demand. The results are the same. */
    /* Memory ceiling of the process, shared by all open models; it holds for up to `sessions` sessions. 0:
     * the memory that the machine and its limits leave. */
    int64_t ram_bytes;
    mo_kv_type kv;      /* KV cache format of sessions; the plan reserves `sessions` of them */
    bool all_logits;    /* logits of every position will be requested; the plan reserves memory for them */
    const char *policy; /* which experts stay, as listed by mo_policy_name(); NULL: the default */
    bool no_prediction; /* do not prefetch what a layer will probably need */
    int readers;        /* concurrent reads; 0: as measured */
    mo_io io;
    bool skip_missing; /* lossy: experts that are not in RAM are skipped */
    mo_learning_options learning;

    /* With a device, the core, the sessions and as many experts as fit are in its memory; other experts are
     * computed from RAM, or fetched. The results are the same. */
    /* "none", "sim", "cuda" or "auto"; NULL: auto: the usable GPUs that help. "cuda:1" is the second GPU; several,
     * separated by commas ("cuda:0,cuda:1"), share the layers, and one may be named twice. */
    const char *device;
    int64_t vram_bytes; /* ceiling of device memory; 0: the free memory less a reserve */
    mo_postfetch_mode postfetch;
    bool cpu_moe; /* no expert stays in device memory, except for the hot cache */

    /* Open sessions: under `ram_bytes` the plan reserves memory for this many of `kv` and `context`; 0: 1.
     * More may be opened, but their state, or what exceeds the planned size (see mo_session_bytes()), is added to
     * the RAM ceiling. Device memory is never exceeded: such a session is rejected there. */
    int sessions;

    /* Sessions allocate blocks of 128 positions as they grow, and share them with snapshots and with each other
     * (mo_snapshot_open()); a feed for which no block is free fails with MO_ENOMEM. */
    /* Positions of all sessions in total; 0: `sessions` times `context`. */
    int64_t positions;
    /* More memory, for snapshots; the plan reserves it. They may also use blocks that sessions do not use. In RAM: with a
     * device, for snapshots that were moved to RAM (mo_snapshot_spill()). */
    int64_t kept_bytes;
    int64_t kept_device_bytes; /* the same in the memory of a device */

    /* A chat template that replaces those in the file: how conversations, tools and answers are formatted. Jinja, or the
     * name of a chat format (mo_chat_template_check()). NULL: the file's. */
    const char *chat_template;

    /* Files of LoRA adapters that are opened with the model: mo_model_adapter(). They stay in memory; the plan reserves it. */
    const char *const *adapters;
    int adapter_count;
    const float *
        adapter_scales; /* [adapter_count] with which sessions have them when they are opened; NULL: they do not */
    /* Memory for adapters that are opened later (mo_adapter_open()) and for the buffers of their steps; the plan reserves it. With a
     * given `ram_bytes` there is no memory for other adapters. */
    int64_t adapter_bytes;

    /* BF16 is lossy and applies to the products of large steps on a device, which then need some more memory. The state of sessions
     * then differs from exact runs: a saved state is rejected if its precision is different. */
    mo_precision prompt_precision;

    /* The ranks that share the model, of which this is rank 0 (mo_cluster_open()); it outlives it and has one model at a
     * time. NULL, or a cluster of one rank: this process has the whole model. */
    struct mo_cluster *cluster;

    int64_t
        vram_each[MO_DEVICES_MAX]; /* ceilings of several devices, in their order; 0: vram_bytes for each */
    mo_divide divide;              /* with a `cluster`; 0: the faster by what was measured, else layers */
} mo_model_options;

MO_API void mo_model_options_init(mo_model_options *options, size_t size);
static inline mo_model_options mo_model_options_default(void)
{
    mo_model_options o;
    mo_model_options_init(&o, sizeof o);
    return o;
}

/* Instruction sets this machine can run, best first; NULL past the last, which is "scalar". */
MO_API const char *mo_isa_name(int index);

/* Names of the policies, the default first, with one line about each; NULL past the end. Constants. */
MO_API const char *mo_policy_name(int index, const char **summary);

/* ---- Models ----------------------------------------------------------------------------------- */

/* A loaded model with the threads and the memory to run it. Sessions share it; any number of threads may use it at once. */
typedef struct mo_model mo_model;

/* Opens and loads a model file (of a split model: its first part); options may be NULL. Close every session before the
 * model; streams, replies and grammars too. After fork() the model belongs to the parent: in the child, sessions give
 * MO_EINVAL and closing does nothing; open the model there. */
MO_API mo_status mo_model_open(const char *path, const mo_model_options *options, mo_model **out,
                               mo_error *err);
MO_API void mo_model_close(mo_model *model);

/* Properties of a model. Bytes are exact, known before a session is opened. */
typedef struct mo_model_info {
    const char *path, *architecture, *name, *isa;
    int threads, layers, experts, experts_used;
    int64_t vocab, width, context, batch;
    uint64_t core_bytes, expert_bytes, table_bytes, vector_bytes; /* weights in memory */
    uint64_t work_bytes;                                          /* working memory of a step */
    uint64_t bytes_per_token;                                     /* weights a single token reads */
    bool has_vocabulary;
    uint64_t fingerprint; /* identifies a model by names, keys and shapes, not by weights; never 0 */
    bool
        rewinds; /* sessions can rewind to any position they held: no layer is recurrent or sees a window only */
    mo_precision prompt_precision; /* in effect: exact if no device supports bf16 */
} mo_model_info;

MO_API void mo_model_describe(const mo_model *model, mo_model_info *out, size_t size);

/* Experts of a layer that its router chooses among; 0 for a layer without a router, or past the last. */
MO_API int mo_model_layer_experts(const mo_model *model, int layer);

/* ---- Several machines ------------------------------------------------------------------------- */

/* The ranks of a run: processes started by mpirun. Each has the file and loads a part of it: a range of layers, or experts. Rank 0 leads: it opens models with
 * `cluster` set and uses them as usual, with the same results; the others follow. Messages between ranks are not encrypted. */
typedef struct mo_cluster mo_cluster;

typedef struct mo_cluster_options {
    size_t size;
    /* A rank that is silent for this long ends the run, and so does a step without progress, or one in which a rank
     * takes sixty times as long for a layer: every later step fails with MO_EIO and names the rank. 0.1 to
     * 3600; by default 10. */
    double timeout_s;
    /* Called once, by any thread, when that happens; may be NULL. */
    void (*lost)(void *user, const char *why);
    void *user;
} mo_cluster_options;

MO_API void mo_cluster_options_init(mo_cluster_options *options, size_t size);
static inline mo_cluster_options mo_cluster_options_default(void)
{
    mo_cluster_options o;
    mo_cluster_options_init(&o, sizeof o);
    return o;
}

/* The library that ranks communicate with, such as "Open MPI v4.1.4"; NULL: this build has none. A constant. */
MO_API const char *mo_cluster_library(void);

/* Joins the run; call it once in each process. options may be NULL. A process that was not started by mpirun is a cluster of one. */
MO_API mo_status mo_cluster_open(const mo_cluster_options *options, mo_cluster **out, mo_error *err);
/* In rank 0, after its models are closed: notifies the others that the run ends, and waits for each as long as in a step. */
MO_API void mo_cluster_close(mo_cluster *cluster);
/* Changes `timeout_s`; use the same value in every rank. Any thread. */
MO_API mo_status mo_cluster_set_timeout(mo_cluster *cluster, double timeout_s, mo_error *err);
MO_API int mo_cluster_rank(const mo_cluster *cluster);
MO_API int mo_cluster_ranks(const mo_cluster *cluster);

/* Every rank but 0: opens its part of each model that rank 0 opens and computes with it, until rank 0 closes the cluster (MO_OK) or the
 * run ends otherwise. path: this rank's file; options: threads, ceiling and I/O of this rank; session settings come from rank 0. */
MO_API mo_status mo_cluster_follow(mo_cluster *cluster, const char *path, const mo_model_options *options,
                                   mo_error *err);

/* Messages between the ranks of a model since it was opened. By layers: in steps that rank 0 waited for while no other step ran, such as
 * single tokens; by experts: in steps with one token per sequence that use an expert of another rank. The message time is wait_ns - work_ns. */
typedef struct mo_traffic_report {
    int ranks; /* 1: the model is not divided, and the rest is 0 */
    uint64_t steps, tokens;
    uint64_t sent_bytes, received_bytes; /* by rank 0 */
    uint64_t
        wait_ns; /* from the end of rank 0's layers, or in each layer of its experts, until the last answer arrived */
    uint64_t work_ns;   /* of that: compute time of the other ranks */
    uint64_t least_ns;  /* wait_ns - work_ns of the step where it was the least */
    uint64_t middle_ns; /* the same for the median of the last 256 steps */
    mo_divide divide;   /* by layers or by experts */
} mo_traffic_report;

MO_API void mo_model_traffic(mo_model *model, mo_traffic_report *out, size_t size);

/* ---- Reports ---------------------------------------------------------------------------------- */

/* Counters since the model was opened. Any thread at any time: no report waits for a running step; it then returns the
 * values of a moment before. */
typedef struct mo_counter_report {
    uint64_t steps, tokens;
    uint64_t expert_picks; /* experts chosen by tokens */
    uint64_t experts_run;  /* experts computed: fewer if tokens of a step share one */
} mo_counter_report;

MO_API void mo_model_counters(mo_model *model, mo_counter_report *out, size_t size);

/* Placement of a model and statistics of its tiers. */
typedef struct mo_tier_phase {
    uint64_t passes;  /* through the model */
    uint64_t asked;   /* experts that they needed */
    uint64_t hits;    /* of them in RAM */
    uint64_t bytes;   /* read from disk for the others */
    uint64_t wait_ns; /* time without anything to compute */
} mo_tier_phase;

typedef struct mo_tier_report {
    const char *mode;                  /* "resident", "slots", "streamed" or "mapped": a constant */
    const char *policy;                /* a constant */
    int64_t ceiling_bytes;             /* 0: mapped */
    int64_t planned_bytes;             /* in RAM; at most the ceiling */
    int64_t expert_bytes;              /* of the model */
    int64_t slot_bytes;                /* RAM for cached experts */
    int32_t slots, filled;             /* how many of them it holds */
    int streamed_layers, layer_buffer; /* layers read from disk for every step; number of buffers for them */
    mo_tier_phase prompt, generation;
    uint64_t guessed, useful, late,
        wasted; /* prefetched experts: all; needed; needed too early; never needed */
    uint64_t guessed_bytes, evictions;
    uint64_t skipped; /* skipped picks (skip_missing) */
    uint64_t layers_streamed, layer_bytes, layer_wait_ns;
    uint64_t disk_reads, disk_bytes, disk_busy_ns;
    double disk_probed_bytes_s; /* as measured by mo_probe(); 0: it has not been run */
    const char *disk_method; /* such as "direct reads, threads of 4"; "" when nothing is read; the model's */
    double ram_probed_bytes_s; /* likewise: reached by products on the CPU */
    int64_t experts;           /* experts of this process, in memory or on disk: all, or a rank's part */
    uint64_t start_bytes;      /* read to fill both tiers while the first steps run */
    uint64_t yielded, taken;   /* experts that left RAM for a device, and came back */
    int layers;                /* layers of this process: all, or a rank's part */
} mo_tier_report;

MO_API void mo_model_tiers(mo_model *model, mo_tier_report *out, size_t size);

/* Why an expert scheduled for a copy to the device was not copied, or not in parallel with the CPU's work. */
typedef enum mo_fallback {
    MO_FALLBACK_LATE,     /* its copy did not arrive in time: the CPU computed it */
    MO_FALLBACK_FAILED,   /* its copy failed: the CPU computed it */
    MO_FALLBACK_NO_STAGE, /* the device had no free staging buffer: the CPU computed it */
    MO_FALLBACK_ON_DISK,  /* it was not in RAM when copies began: the CPU computed it when it arrived */
    MO_FALLBACK_UNPINNED, /* it was copied from memory that is not pinned, which blocks the host */
    MO_FALLBACK_OTHER,    /* in a profile that another program wrote */
    MO_FALLBACKS
} mo_fallback;

/* "late_copy", "failed_copy", "no_stage", "not_in_ram", "not_pinned" or "other". A constant. */
MO_API const char *mo_fallback_text(mo_fallback why);

/* Times of a layer whose experts are not all on the device: sums over `served` steps of at most 8 tokens,
 * as the host sees them. A layer lasts core + region; region is turn + cpu + host_wait. */
typedef struct mo_device_layer {
    int32_t layer;
    uint64_t served;
    uint64_t fetched; /* experts that were copied and computed by the device */
    /* From the last reply until the choice was seen: the device's own work, and the transfer in both directions. */
    uint64_t core_ns;
    /* The host's part of a round trip: sorting the choice, starting copies, launching what follows, replying. */
    uint64_t turn_ns;
    uint64_t cpu_ns;              /* the CPU's lane */
    uint64_t fetch_ns, hidden_ns; /* the fetch lane: copies in flight; of that, parallel to the CPU's lane */
    uint64_t host_wait_ns;        /* the CPU was done and waited for copies */
    uint64_t device_wait_ns;      /* the device was done and waited for the reply */
    uint64_t region_ns;           /* from seeing the choice to the reply */
    uint64_t fallbacks[MO_FALLBACKS];
} mo_device_layer;

/* Statistics of a device. */
typedef struct mo_device_report {
    const char *name;                /* NULL: no device. The model's */
    bool lost;                       /* it failed, and the CPU took over */
    int64_t limit_bytes, peak_bytes; /* device memory: the ceiling, and the peak allocation */
    int64_t core_bytes, work_bytes, stage_bytes;
    int32_t slots, filled; /* for experts */
    int64_t slot_bytes;
    int32_t streamed_layers;              /* whose core does not fit and is streamed for every step */
    int32_t host_layers;                  /* layers that the CPU computes instead; streamed in prompts only */
    int64_t layer_buffer_bytes;           /* of the buffers for streamed layers */
    uint64_t streamed_bytes, streamed_ns; /* bytes streamed, and the time of the copies */
    uint64_t host_ns;                     /* the CPU computed such layers */
    uint64_t steps;
    uint64_t asked, hits, by_cpu, fetched,
        fetch_failed; /* experts: chosen; in slots; computed by the CPU; sent */
    uint64_t late;    /* sent, but late, or not sent for that: the CPU computed them */
    uint64_t fetched_bytes, cpu_bytes;
    uint64_t wait_ns;                 /* the host waited for the device's choice */
    uint64_t cpu_ns;                  /* the CPU computed experts */
    uint64_t fetch_ns, hidden_ns;     /* copies were in flight; of that, while the CPU computed */
    double cpu_bytes_s, link_bytes_s; /* as measured while running */
    /* What follows stays 0 where layers are not counted (learning.perf_mode "off"). */
    uint64_t step_ns; /* wall time of steps of at most 8 tokens */
    /* Of that, idle time of the device's main stream: before the first launch of a step, and waiting for replies.
     * Copies and fetched experts may be in flight meanwhile. */
    uint64_t idle_ns;
    mo_device_layer lanes;           /* the sum over layers; layer is -1 */
    double layer_p50_s, layer_p99_s; /* of every time such a layer was run, from reply to reply; 0: none */
    double round_trip_s;             /* as the device was probed: its part of every core_ns; 0: not known */
    uint64_t updates;                /* of the hot cache, by its rate */
    uint64_t exchanged, exchange_failed; /* experts in slots, by updates and by hand; copies that failed */
    double link_probed_bytes_s;          /* what mo_probe() found; 0: it has not been run for this device */
    double host_probed_bytes_s; /* likewise: of memory, when the CPU reads it and copies leave it at once */
    double experts_probed_bytes_s; /* likewise: of the link, by copies as large as an expert's matrices */
} mo_device_report;

MO_API void mo_model_device(mo_model *model, mo_device_report *out, size_t size);

/* The layers that needed the host, ascending: at most `count` are written. Returns how many there are. */
MO_API int mo_model_device_layers(mo_model *model, mo_device_layer *out, size_t size, int count);

/* Where an expert is. Device memory takes precedence over RAM, which may hold it as well. */
typedef enum mo_expert_place { MO_EXPERT_DISK, MO_EXPERT_RAM, MO_EXPERT_DEVICE } mo_expert_place;

typedef struct mo_expert_report {
    mo_expert_place place;
    uint64_t picks; /* tokens that chose it, as the profile counts them; 0 where it does not */
    uint64_t hits;  /* of those, hits in the upper tier: the device, or RAM without a device */
    int64_t bytes;  /* of its weights */
} mo_expert_report;

/* Fills the first `count` experts of a layer. Returns how many experts the layer has; 0: none. */
MO_API int mo_model_experts(mo_model *model, int layer, mo_expert_report *out, size_t size, int count);

/* ---- Text ------------------------------------------------------------------------------------- */

/* Bytes that end before data[length]; where a function says so, a terminator follows. */
typedef struct mo_text {
    const char *data;
    size_t length;
} mo_text;

typedef enum mo_token_flags {
    MO_TOKEN_SPECIAL = 1, /* recognize special tokens written in the text, and add begin and end tokens as
                             the vocabulary specifies */
    MO_TOKEN_CHAT = 2,    /* the same for a rendered conversation: an existing begin token is not added */
    MO_TOKEN_NAMES = 4, /* of MO_TOKEN_SPECIAL only the first: recognize special tokens written in the text */
    MO_TOKEN_ENDS = 8,  /* of MO_TOKEN_SPECIAL only the second: add begin and end tokens */
} mo_token_flags;

/* Token ids of a text of any bytes; mo_free() *ids. MO_EUNSUPPORTED when the model has no vocabulary. */
MO_API mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                             size_t *count, mo_error *err);

/* The first `most` tokens of the text: the rest is not tokenized. 0: all. */
MO_API mo_status mo_tokenize_first(const mo_model *model, const char *text, size_t length, int flags,
                                   size_t most, int32_t **ids, size_t *count, mo_error *err);

/* The bytes that a token stands for, perhaps part of a character; a special token's are its name. They belong to the
 * model and are not terminated. Empty for an id out of range, or without a vocabulary. */
MO_API mo_text mo_token_bytes(const mo_model *model, int32_t token);

/* True for tokens that end an answer. */
MO_API bool mo_token_ends(const mo_model *model, int32_t token);

/* Tokens that the vocabulary says must never be sampled, all in range; *count may be 0. They belong to the
 * model. A sampler takes them as biases of -INFINITY. */
MO_API const int32_t *mo_model_suppressed(const mo_model *model, size_t *count);

/* Turns tokens into text piece by piece and never splits a character: bytes wait until they are whole. */
typedef struct mo_stream mo_stream;
MO_API mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err);
MO_API void mo_stream_close(mo_stream *stream);
/* The text that the token completes, perhaps none: terminated, the stream's until the next call. */
MO_API mo_status mo_stream_put(mo_stream *stream, int32_t token, mo_text *out, mo_error *err);
/* Returns pending bytes; incomplete characters become U+FFFD. */
MO_API mo_status mo_stream_flush(mo_stream *stream, mo_text *out, mo_error *err);

/* Finds strings that end an answer in text that comes in pieces, however it is split: a possible beginning
 * is held back, always less than the longest string. The first complete one ends the answer; of several that end
 * together, the longest. Whole characters come out whole. */
typedef struct mo_stop mo_stop;
/* Copies the strings, 0 to 256; MO_EINVAL for one that is empty or not UTF-8. */
MO_API mo_status mo_stop_open(const char *const *strings, size_t count, mo_stop **out, mo_error *err);
MO_API void mo_stop_close(mo_stop *stop);
/* Adds a piece. *out is what may be shown now: terminated, valid until the next call. *met is the index of the string that
 * ended the answer, before which *out ends and after which nothing comes; -1: none yet. */
MO_API mo_status mo_stop_put(mo_stop *stop, mo_text text, mo_text *out, int *met, mo_error *err);
/* Returns the text held back when the answer ended otherwise; then a new answer may begin. */
MO_API void mo_stop_flush(mo_stop *stop, mo_text *out);

/* ---- Templates -------------------------------------------------------------------------------- */

/* A Jinja template, as model files contain it to format conversations, with the semantics of Python's jinja2 as models
 * are trained: trim_blocks, lstrip_blocks, break and continue, {% generation %}, raise_exception(), strftime_now(), tojson.
 * It can access only its context, and its time and memory are limited. Constant once open: any number of threads
 * may render it. */
typedef struct mo_template mo_template;

typedef struct mo_template_options {
    size_t size;
    const char *
        clock; /* local time for strftime_now(), as 2026-01-15T10:20:30; NULL: the clock's; "": it says nothing */
    uint64_t steps; /* most operations; 0: 100 million, some seconds */
    uint64_t bytes; /* most memory; 0: 256 MiB and 32 times the context's length */
} mo_template_options;

MO_API void mo_template_options_init(mo_template_options *options, size_t size);
static inline mo_template_options mo_template_options_default(void)
{
    mo_template_options o;
    mo_template_options_init(&o, sizeof o);
    return o;
}

/* MO_EFORMAT if it is not a template, with the line. */
MO_API mo_status mo_template_open(const char *text, size_t length, mo_template **out, mo_error *err);
MO_API void mo_template_close(mo_template *t);
/* context: a JSON object, the template's variables. *text is terminated; mo_free() it. MO_EINVAL: the text of
 * the template's raise_exception(), or "line 7: " and the error. MO_ENOSPC: a limit was reached. */
MO_API mo_status mo_template_render(const mo_template *t, const char *context, size_t context_length,
                                    const mo_template_options *options, char **text, size_t *length,
                                    mo_error *err);

/* ---- Chat ------------------------------------------------------------------------------------- */

/* Does a model that can think do so? */
typedef enum mo_thinking {
    MO_THINKING_DEFAULT, /* as its template does by itself */
    MO_THINKING_ON,
    MO_THINKING_OFF,
} mo_thinking;

typedef struct mo_chat_options {
    size_t size;
    mo_thinking thinking; /* enable_thinking and thinking of templates */
    const char *effort;   /* reasoning_effort: "low", "medium" or "high" for harmony; NULL: not said */
    const char *date;     /* today, for formats that name it, as YYYY-MM-DD; NULL: the clock's; "": none */
    bool no_prompt;       /* do not begin the assistant's turn at the end */
    /* A template to use instead of the model's own; NULL: that. Answers are parsed in the model's own format: see
     * mo_model_options.chat_template. */
    const char *chat_template;
    /* Produce only this many tokens; 0: all. */
    size_t tokens_most;
} mo_chat_options;

MO_API void mo_chat_options_init(mo_chat_options *options, size_t size);
static inline mo_chat_options mo_chat_options_default(void)
{
    mo_chat_options o;
    mo_chat_options_init(&o, sizeof o);
    return o;
}

typedef struct mo_message {
    const char *role, *content; /* role: system, user or assistant */
} mo_message;

/* A conversation as the model will see it, with the beginning of the next answer. */
typedef struct mo_prompt mo_prompt;

/* Renders a conversation with the model's own template, or, if its file has none, in a recognized format. json: a
 * list of messages, or an object with such a list as "messages", with "tools" and any variable that the template may use, such as
 * "enable_thinking", "reasoning_effort" or "documents"; members of "chat_template_kwargs" are variables too and override
 * the others, which override the options. A message has "role" and "content" (a text, or a list of parts of type
 * "text"), perhaps "reasoning_content", "tool_calls", "tool_call_id", "name".
 *
 * Templates differ in what they accept, so the messages are adapted: the role developer is system; arguments of tool calls
 * become objects or JSON texts, contents texts or parts; null becomes "" where the template fails with null; system messages
 * are prepended to user messages if it does not support them (which is logged). With "continue_final_message" the text
 * ends with that of the last message, which the answer continues.
 *
 * MO_EINVAL: not a conversation, or the template rejects it: err has the text of its raise_exception(). options may be
 * NULL. Where the template is the file's own and cannot be read, the recognized format is used (which was logged when the model
 * was opened). */
MO_API mo_status mo_prompt_open(const mo_model *model, const char *json, size_t length,
                                const mo_chat_options *options, mo_prompt **out, mo_error *err);
MO_API void mo_prompt_close(mo_prompt *prompt);
MO_API mo_text mo_prompt_text(const mo_prompt *prompt); /* terminated; the prompt's */
/* Its tokens, the prompt's. Text of the conversation never becomes a control token, and there is one BOS at
 * most. *count is 0 when the model has no vocabulary. */
MO_API const int32_t *mo_prompt_tokens(const mo_prompt *prompt, size_t *count);
/* The prompt ends inside a thought, which the answer continues. */
MO_API bool mo_prompt_in_thought(const mo_prompt *prompt);

/* Can the text be given as a template? MO_EFORMAT: it is Jinja, with an error, whose line is named. MO_EINVAL: it is neither Jinja
 * nor the name of a chat format, such as "chatml"; err lists the names. */
MO_API mo_status mo_chat_template_check(const char *text, mo_error *err);

/* The template in the model's file, or the one it was opened with; name: NULL, or as in tokenizer.chat_template.NAME. NULL: there
 * is none, or it cannot be read. The model's. */
MO_API const char *mo_model_chat_template(const mo_model *model, const char *name);

/* The text of such a prompt, to be tokenized with MO_TOKEN_CHAT (then special tokens written in messages are special);
 * mo_free() *text. options may be NULL. */
MO_API mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count,
                               const mo_chat_options *options, char **text, mo_error *err);
/* The same for a conversation in JSON, as mo_prompt_open() takes it. Where the file has no template, a member that says
 * something (is not null or empty) and is not supported by the format is MO_EINVAL and named with its message. Invalid
 * JSON is MO_EINVAL with line and column. */
MO_API mo_status mo_model_chat_json(const mo_model *model, const char *json, size_t length,
                                    const mo_chat_options *options, char **text, mo_error *err);
/* The name of the chat format, as in "chatml"; "template" where it is known by its template alone, "none" where there is
 * none. A constant. */
MO_API const char *mo_model_chat_name(const mo_model *model);

/* ---- Answers ---------------------------------------------------------------------------------- */

typedef enum mo_piece_kind {
    MO_PIECE_TEXT,    /* of the answer */
    MO_PIECE_THOUGHT, /* of the model's reasoning */
    MO_PIECE_CALL,    /* a tool call begins */
    MO_PIECE_ARGUMENTS, /* of the call: JSON text; all together are an object, unless the answer was cut short in it */
    MO_PIECE_CALL_END, /* comes for every call, at the latest from mo_reply_flush() or mo_reply_cut() */
} mo_piece_kind;

typedef struct mo_piece {
    mo_piece_kind kind;
    int call;     /* which call of the answer, from 0; of text and thoughts -1 */
    mo_text text; /* of a CALL the function's name; whole characters, terminated */
    mo_text id;   /* of a CALL: unique and unguessable, unless the model's format prescribes it; terminated */
} mo_piece;

typedef struct mo_reply_options {
    size_t size;
    bool in_thought;   /* the prompt ends inside a thought: mo_model_in_thought() */
    bool keep_thought; /* thoughts are text, with their marks */
    /* The functions that may be called, JSON: a list of {"type": "function", "function": {"name", "parameters"}}, or of
     * the inner objects ("input_schema" is another name of "parameters"). NULL: none, and no calls are looked for. */
    const char *tools;
    size_t tools_length;
    bool single; /* what follows the first call is text */
} mo_reply_options;

MO_API void mo_reply_options_init(mo_reply_options *options, size_t size);
static inline mo_reply_options mo_reply_options_default(void)
{
    mo_reply_options o;
    mo_reply_options_init(&o, sizeof o);
    return o;
}

/* As a mo_stream for an answer of a chat model, taken apart as it comes by the marks of the model's own format, which are
 * left out, as newlines next to them are. Unknown parts are text: no answer is an error. options may be NULL;
 * MO_EINVAL: invalid tools. */
typedef struct mo_reply mo_reply;
MO_API mo_status mo_reply_open(const mo_model *model, const mo_reply_options *options, mo_reply **out,
                               mo_error *err);
MO_API void mo_reply_close(mo_reply *reply);
/* What the token completes: *count pieces, perhaps none, the reply's until its next call. */
MO_API mo_status mo_reply_put(mo_reply *reply, int32_t token, const mo_piece **pieces, size_t *count,
                              mo_error *err);
/* The same for bytes of text, cut anywhere; marks are known by their letters. */
MO_API mo_status mo_reply_put_text(mo_reply *reply, const char *text, size_t length, const mo_piece **pieces,
                                   size_t *count, mo_error *err);
/* Returns pending pieces when the model has ended the answer. */
MO_API mo_status mo_reply_flush(mo_reply *reply, const mo_piece **pieces, size_t *count, mo_error *err);
/* The same for an answer that was cut short by a limit or cancelled: a call is returned as far as it was written, and text that
 * only looks like the start of one is dropped. */
MO_API mo_status mo_reply_cut(mo_reply *reply, const mo_piece **pieces, size_t *count, mo_error *err);

MO_API bool mo_reply_in_thought(const mo_reply *reply); /* now */
MO_API int mo_reply_calls(const mo_reply *reply);       /* begun so far */

/* A budget for reasoning: the tokens that end the current thought, to be fed instead of sampled
 * ones. *count is 0 when it is in none. They belong to the reply. */
MO_API mo_status mo_reply_thought_end(mo_reply *reply, const int32_t **tokens, size_t *count, mo_error *err);

/* Does a prompt of these tokens end inside a thought, so that the answer continues it? */
MO_API bool mo_model_in_thought(const mo_model *model, const int32_t *tokens, size_t count);

/* ---- Tools ------------------------------------------------------------------------------------ */

/* How the model writes calls, as in "hermes" or "harmony"; "generic" where it has no way of its own. A constant. */
MO_API const char *mo_model_tool_format(const mo_model *model);
/* Does the model's template show tools? If not, put mo_tools_text() into the system message: the reply parses what
 * it asks for. */
MO_API bool mo_model_shows_tools(const mo_model *model);
/* A text that tells the model about its tools (JSON as in mo_reply_options) and how to call them: in its own way where its template
 * writes calls, otherwise as JSON; mo_free() *text. required: it must call one. */
MO_API mo_status mo_tools_text(const mo_model *model, const char *tools, size_t length, bool required,
                               char **text, mo_error *err);

/* ---- Sampling --------------------------------------------------------------------------------- */

typedef struct mo_logit_bias {
    int32_t token;
    float bias; /* added to its logit; -INFINITY forbids it */
} mo_logit_bias;

/* Applied in this order: penalties and bias, mask, top-k, top-p, min-p, temperature. */
typedef struct mo_sampler_options {
    size_t size;
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
} mo_sampler_options;

MO_API void mo_sampler_options_init(mo_sampler_options *options, size_t size);
static inline mo_sampler_options mo_sampler_options_default(void)
{
    mo_sampler_options o;
    mo_sampler_options_init(&o, sizeof o);
    return o;
}

/* Overrides the options with those recommended by the model file (general.sampling.*: temp, top_k, top_p, min_p, penalty_repeat,
 * penalty_last_n); others are unchanged. */
MO_API void mo_model_sampling(const mo_model *model, mo_sampler_options *options);

typedef struct mo_sampler mo_sampler;
/* Copies the options (NULL: the defaults). MO_EINVAL names the invalid one. vocab: mo_model_info's. */
MO_API mo_status mo_sampler_open(const mo_sampler_options *options, int64_t vocab, mo_sampler **out,
                                 mo_error *err);
MO_API void mo_sampler_close(mo_sampler *sampler);
/* Picks the next token; `recent` is the sequence so far. mask: bit t % 32 of word t / 32 says whether token t may be
 * picked; NULL: all may. Returns -1 when none may: a token whose bias is -INFINITY may not either. Allocates nothing. */
MO_API int32_t mo_sampler_pick(mo_sampler *sampler, const float *logits, const uint32_t *mask,
                               const int32_t *recent, size_t count);

typedef struct mo_logprob {
    int32_t token;
    float logprob; /* natural logarithm of its probability */
} mo_logprob;

enum { MO_TOP_MAX = 20 };

/* Probabilities of a row of logits, before penalties, bias, mask and temperature: the log probability of `token`, and
 * the `count` likeliest tokens (at most vocab), best first. Allocates nothing. */
MO_API float mo_logprobs(const float *logits, int64_t vocab, int32_t token, mo_logprob *top, int count);

/* ---- Constraints ------------------------------------------------------------------------------ */

/* A grammar for answers, compiled for a model's vocabulary. Any number of constraints and threads can use one at
 * once. Close it after its constraints and before the model. docs/grammar.md describes both notations. */
typedef struct mo_grammar mo_grammar;

typedef struct mo_grammar_options {
    size_t size;
    bool strict; /* of a schema: what cannot be enforced is MO_EUNSUPPORTED, with its path */
    /* Free text comes first, and the grammar begins where one of these strings does, with which it must begin itself; an
     * answer without any is free text to its end. A string that is the text of a special token means that token; other
     * special tokens may stand in the free text. At most 64; none: the grammar begins at once. */
    const char *const *triggers;
    size_t trigger_count;
    /* Free text comes first, up to and with this string or special token, as "</think>"; then the grammar, or what its
     * triggers allow. NULL: none. */
    const char *after;
    /* It is the answer of a chat model: a thought may come first, free, and marks that the model's format has around an answer
     * (the channels of harmony). in_thought: the prompt has begun a thought, which has to end (mo_model_in_thought()). */
    bool answer, in_thought;
} mo_grammar_options;

MO_API void mo_grammar_options_init(mo_grammar_options *options, size_t size);
static inline mo_grammar_options mo_grammar_options_default(void)
{
    mo_grammar_options o;
    mo_grammar_options_init(&o, sizeof o);
    return o;
}

/* From GBNF; options may be NULL. MO_EINVAL names line and column of what is wrong. */
MO_API mo_status mo_grammar_open(const mo_model *model, const char *gbnf, size_t length,
                                 const mo_grammar_options *options, mo_grammar **out, mo_error *err);
/* From a JSON schema. MO_EINVAL names the path of what is malformed, as "/properties/x/type". {} is any value,
 * {"type":"object"} any object. */
MO_API mo_status mo_grammar_open_schema(const mo_model *model, const char *json, size_t length,
                                        const mo_grammar_options *options, mo_grammar **out, mo_error *err);
MO_API void mo_grammar_close(mo_grammar *grammar);
/* The parts of a schema that are not enforced, one per line, as "/properties/x/not"; "": none. */
MO_API const char *mo_grammar_unenforced(const mo_grammar *grammar);
/* A schema as rules of GBNF, to be put into a grammar: `prefix` is the value's rule, and others begin with prefix and '-'.
 * options: `strict` alone counts. mo_free() *gbnf, and *unenforced (NULL: not wanted), which is as above. */
MO_API mo_status mo_schema_gbnf(const char *json, size_t length, const char *prefix,
                                const mo_grammar_options *options, char **gbnf, char **unenforced,
                                mo_error *err);
/* Rules of GBNF for any text, perhaps empty, in which none of the strings occurs: `prefix` is the rule, and others begin
 * with prefix and '-'. mo_free() *gbnf. */
MO_API mo_status mo_until_gbnf(const char *const *strings, size_t count, const char *prefix, char **gbnf,
                               mo_error *err);

/* One answer on its way through a grammar. */
typedef struct mo_constraint mo_constraint;
MO_API mo_status mo_constraint_open(mo_grammar *grammar, mo_constraint **out, mo_error *err);
MO_API mo_status mo_constraint_copy(const mo_constraint *constraint, mo_constraint **out, mo_error *err);
MO_API void mo_constraint_close(mo_constraint *constraint);
/* Which tokens may come next, as mo_sampler_pick() takes it; the constraint's until its next call. End tokens are among
 * them where the answer may end. NULL with err: out of memory, or (MO_ENOSPC) the grammar is too ambiguous. */
MO_API const uint32_t *mo_constraint_mask(mo_constraint *constraint, mo_error *err);
/* Appends this token to the answer; MO_EINVAL if it is not allowed, and nothing changes. */
MO_API mo_status mo_constraint_accept(mo_constraint *constraint, int32_t token, mo_error *err);
/* The answer may end here; and: only an end token may follow, or one was accepted. */
MO_API bool mo_constraint_may_end(const mo_constraint *constraint);
MO_API bool mo_constraint_ended(const mo_constraint *constraint);

/* What an answer with calls must look like. */
typedef struct mo_tools_options {
    size_t size;
    const char *tools; /* JSON, as in mo_reply_options */
    size_t tools_length;
    bool required;         /* a call must come, after a thought at most; otherwise text may come, and calls */
    const char *name;      /* a call of this function is required; NULL: any. MO_EINVAL: unknown name */
    bool single;           /* one call at most */
    bool in_thought;       /* the prompt ends inside a thought */
    bool strict;           /* what of the schemas cannot be enforced is MO_EUNSUPPORTED */
    const char *text_gbnf; /* what an answer without calls must look like: a grammar; NULL: any text */
} mo_tools_options;

MO_API void mo_tools_options_init(mo_tools_options *options, size_t size);
static inline mo_tools_options mo_tools_options_default(void)
{
    mo_tools_options o;
    mo_tools_options_init(&o, sizeof o);
    return o;
}

/* The grammar of a whole answer: thoughts are free, text is free until an opening mark is written, calls have the model's own
 * format (or the one that mo_tools_text() asks for, where its template shows no tools), and arguments follow the schemas.
 * mo_grammar_unenforced() lists what is not enforced. */
MO_API mo_status mo_tools_grammar(const mo_model *model, const mo_tools_options *options, mo_grammar **out,
                                  mo_error *err);
/* A grammar for answers of a model that may think: the thought is free, what follows is as `gbnf` says; mo_free() *out. */
MO_API mo_status mo_answer_grammar(const mo_model *model, const char *gbnf, size_t length, bool in_thought,
                                   char **out, mo_error *err);

/* ---- Sessions --------------------------------------------------------------------------------- */

/* One conversation. Any number per model; one call at a time per session, but for mo_session_cancel(). Any thread may
 * open, feed and close its own while others do. */
typedef struct mo_session mo_session;

typedef struct mo_session_options {
    size_t size;
    mo_kv_type kv;
    int64_t context; /* positions it can hold; 0: the model's context */
} mo_session_options;

MO_API void mo_session_options_init(mo_session_options *options, size_t size);
static inline mo_session_options mo_session_options_default(void)
{
    mo_session_options o;
    mo_session_options_init(&o, sizeof o);
    return o;
}

/* ---- Adapters --------------------------------------------------------------------------------- */

/* A LoRA adapter (GGUF) for an open model, whose weights are not changed: a session with it computes W x + f B (A x), on every
 * device and tier. At most 16 per model. */
typedef struct mo_adapter mo_adapter;

typedef struct mo_adapter_info {
    const char *path, *name; /* name: of the file's metadata */
    const char *task,
        *prefix; /* what the file says for clients: a name of what it is for, a text to begin prompts with; or "" */
    int64_t rank;      /* the largest */
    int64_t tensors;   /* of the model that it changes */
    float alpha;       /* f = scale * alpha / rank; 0: f = scale */
    int64_t bytes;     /* in memory */
    uint64_t identity; /* identifies an adapter by its contents; never 0 */
} mo_adapter_info;

/* Reads the file. One of another model is MO_EINVAL with the reason. Sessions may be fed meanwhile; close the adapter before the model. */
MO_API mo_status mo_adapter_open(mo_model *model, const char *path, mo_adapter **out, mo_error *err);
/* Sessions that have it keep it as long as they have it. */
MO_API void mo_adapter_close(mo_adapter *adapter);
MO_API void mo_adapter_describe(const mo_adapter *adapter, mo_adapter_info *out, size_t size);
/* Those that were opened with the model, the model's own: NULL past the last. */
MO_API mo_adapter *mo_model_adapter(const mo_model *model, int index);

/* An adapter and how much of it. */
typedef struct mo_adapter_use {
    mo_adapter *adapter;
    float scale; /* 1: as trained; 0: no effect */
} mo_adapter_use;

/* From now on the session computes with these and no others; none: with the model alone. They are added in this order; at most 8 whose
 * scale is not 0. Sessions with different ones are fed together with the results that each has alone. What the session held is dropped
 * unless it was computed with the same. */
MO_API mo_status mo_session_adapt(mo_session *session, const mo_adapter_use *uses, int count, mo_error *err);
/* Identifies what a session or snapshot was computed with: adapters, their scales and their order; 0: the model alone. A snapshot is
 * restored only into sessions with the same number. */
MO_API uint64_t mo_adapters_identity(const mo_adapter_use *uses, int count);
MO_API uint64_t mo_session_adapters(const mo_session *session);

/* ---- What sessions hold ------------------------------------------------------------------------ */

/* Bytes of such a session's state. */
MO_API uint64_t mo_session_bytes(const mo_model *model, const mo_session_options *options);

/* The blocks of the sessions and snapshots in the model's `kv` format, where sessions are: in RAM, or in a device's memory. */
typedef struct mo_kept_report {
    int64_t
        total_bytes; /* of all blocks: of the sessions that were planned for, of more that are open, kept_bytes */
    int64_t free_bytes;     /* free */
    int64_t session_bytes;  /* held by sessions, whichever snapshots hold them too */
    int64_t snapshot_bytes; /* held by snapshots alone: what closing all of them frees */
    int64_t sessions;       /* that are open */
    bool device;            /* this is a device's memory: then, of RAM: */
    int64_t spilled_bytes;  /* held by snapshots that were moved there, */
    int64_t spill_bytes;    /* and free for more */
    int64_t row_bytes;      /* in RAM, in addition to blocks: of delta snapshots (mo_snapshot_lean()) */
} mo_kept_report;

/* Any thread at any time; waits for no step. */
MO_API void mo_model_kept(mo_model *model, mo_kept_report *out, size_t size);

/* options may be NULL. */
MO_API mo_status mo_session_open(mo_model *model, const mo_session_options *options, mo_session **out,
                                 mo_error *err);
MO_API void mo_session_close(mo_session *session);

/* Gets the experts the router of a layer chose for the token at a position: `used` ids in router order with
 * their weights, which belong to the engine until it returns. Called on the thread that feeds, layer by layer
 * within a step, and in the order of positions within a layer. It cannot change anything and must not feed. */
typedef void (*mo_routing_observer)(void *user, int layer, int64_t position, const int32_t *ids,
                                    const float *weights, int used);

/* The result of one feed. */
typedef struct mo_feed_report {
    mo_error error;   /* of this session; status MO_OK: it holds the whole sequence */
    int64_t computed; /* tokens; it held the others */
    int32_t token;    /* what the sampler picked; -1: none */
    float logprob;    /* of it, where logprobs were wanted */
    int top_count;
    mo_logprob top[MO_TOP_MAX]; /* the likeliest, best first */
} mo_feed_report;

/* What to feed and what to return; unused members are 0. */
typedef struct mo_feed {
    size_t size; /* sizeof(mo_feed) */
    mo_session *session;
    const int32_t *tokens; /* the whole sequence from its beginning; the session computes only the new part */
    int64_t count;         /* at least 1 */
    int64_t step;          /* maximum tokens per step; 0: the model's batch */
    /* After each step; returning false cancels this feed. */
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    /* Logits of every new position, in order. Without it only those of the last token are computed. */
    void (*logits)(void *user, int64_t position, const float *row);
    /* The experts of every new token. */
    mo_routing_observer routes;
    void *user;

    mo_feed_report *report; /* always filled; NULL: not needed */
    size_t report_size;     /* sizeof(mo_feed_report) */
    mo_sampler *sampler;    /* picks the next token; used by no other feed. NULL: none */
    const uint32_t *mask;   /* which tokens it may pick, as in mo_sampler_pick() */
    bool logprobs;          /* the picked token's log probability, */
    int top;                /* and the number of likeliest tokens to return, at most MO_TOP_MAX */
    /* Computes the mask while the step runs, instead of `mask`: called with `user` when the logits are ready, by any thread of
     * the model, for several feeds at once. It may block; the step then waits. NULL: no token may be picked. */
    const uint32_t *(*late_mask)(void *user);
    /* More of the sequence follows: the logits after these tokens are not needed, and the feed does not wait for other ranks. */
    bool unfinished;
    /* A dry run: it does not change profiles, and steps with only such feeds are not counted. */
    bool uncounted;
} mo_feed;

/* Extends the session to the sequence. On failure (also MO_ECANCELLED) it keeps a part and computes the rest
 * again next time. */
MO_API mo_status mo_session_feed(const mo_feed *feed, mo_error *err);

/* The same for several sessions of one model, 1 to 256, which share the steps; no result changes. One that fails or is
 * cancelled does not affect the others: they are completed, and the call returns the first failure. Feeds that
 * cannot be combined (a session or a sampler named twice, sessions of two models) are MO_EINVAL before anything is
 * fed. Decoding allocates nothing. */
MO_API mo_status mo_session_feed_all(const mo_feed *feeds, int count, mo_error *err);

/* Before the first feed of a text whose experts are on disk: runs its first tokens through the model without routed
 * experts and prefetches what the routers chose, so that it is in RAM later. *experts: how many were read. The
 * session must hold nothing, and holds nothing afterwards. */
MO_API mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count,
                                     int64_t *experts, mo_error *err);

/* Logits after the last token fed: `vocab` floats, valid until the next feed; NULL before the first. Where a device picked the token
 * they are copied from there by the first call, which waits for a step that runs; NULL if that device is lost: feed again. */
MO_API const float *mo_session_logits(const mo_session *session);
MO_API int64_t mo_session_length(const mo_session *session);   /* tokens held */
MO_API int64_t mo_session_computed(const mo_session *session); /* tokens the last feed computed */

/* Bytes of blocks that the session takes to hold `count` positions more: new ones, and copies of those that it shares and will
 * write. Where free_bytes of mo_model_kept() are fewer, close or spill snapshots before feeding. */
MO_API uint64_t mo_session_need(const mo_session *session, int64_t count);

/* Cancels the running feed, within about a layer if no other feed shares its step, otherwise after the step. It stays
 * in effect: feeds and discoveries that begin later end with MO_ECANCELLED at once, until mo_session_clear_cancel(). So no
 * cancel is lost between two feeds. Any thread, and signal handlers. */
MO_API void mo_session_cancel(mo_session *session);
/* The session may be fed again. Call it before the session gets new work, not between the feeds of one. */
MO_API void mo_session_clear_cancel(mo_session *session);

/* A session's state, to rewind to or to fork from: it can be restored into any session of the same model and format, and
 * outlives the session, but not its model. It shares the session's blocks: a session that writes into a shared one gets a
 * copy first. So opening and restoring take microseconds, wait for no steps of others (on a device that leaves layers to
 * the CPU, or has the logits still: for the one that runs), and change no result. Several threads may restore from one at the
 * same time. */
typedef struct mo_snapshot mo_snapshot;
MO_API mo_status mo_snapshot_open(const mo_session *session, mo_snapshot **out, mo_error *err);
MO_API void mo_snapshot_close(mo_snapshot *snapshot);
/* If blocks must be copied (the snapshot is in other memory, of another open model, or read from bytes) and that
 * fails, the session is empty afterwards: feed it again, or restore again. */
MO_API mo_status mo_session_restore(mo_session *session, const mo_snapshot *snapshot, mo_error *err);
/* Its first `length` positions alone, at least mo_snapshot_least(); MO_EUNSUPPORTED for fewer, and the session is as it
 * was. Logits come with all of them only. */
MO_API mo_status mo_session_restore_first(mo_session *session, const mo_snapshot *snapshot, int64_t length,
                                          mo_error *err);
/* Makes the session hold what `from` holds: a snapshot, opened, restored and closed. */
MO_API mo_status mo_session_fork(mo_session *session, const mo_session *from, mo_error *err);
MO_API int64_t mo_snapshot_length(const mo_snapshot *snapshot);        /* positions */
MO_API uint64_t mo_snapshot_adapters(const mo_snapshot *snapshot);     /* as mo_session_adapters() */
MO_API const int32_t *mo_snapshot_tokens(const mo_snapshot *snapshot); /* its tokens, owned by it */
/* The fewest positions that can be restored: 1 where all layers attend to everything; with windows, while the window
 * is still held; with recurrent layers, all. If read from bytes: all, although the model may allow fewer. */
MO_API int64_t mo_snapshot_least(const mo_snapshot *snapshot);
/* Bytes that only this snapshot holds now: what closing it frees. *all (may be NULL): all that it refers to. */
MO_API uint64_t mo_snapshot_bytes(const mo_snapshot *snapshot, uint64_t *all);
/* Makes it a delta of `on`, to save memory, if both share a prefix and differ in the middle of a block, not far from
 * its end: it then refers to the block of `on` and stores only its own positions, in RAM. Restoring it assembles a block that is
 * bit-identical, which takes a copy of one block per layer, and MO_ENOMEM if none is free. Nothing
 * changes (MO_OK) if that saves no memory, with recurrent layers, or with `prompt_precision` bf16. On a device it waits for the step that
 * runs; do not use either meanwhile. With windows, mo_snapshot_least() may be its length afterwards. */
MO_API mo_status mo_snapshot_lean(mo_snapshot *snapshot, const mo_snapshot *on, mo_error *err);
/* Moves it from a device's memory to RAM, under kept_bytes; no effect if it is in RAM. MO_ENOMEM: no space, and it is
 * unchanged. Restoring it from RAM copies it: open a snapshot of that session to share it again. Waits for the step that
 * runs; do not use the snapshot meanwhile. */
MO_API mo_status mo_snapshot_spill(mo_snapshot *snapshot, mo_error *err);
MO_API bool mo_snapshot_on_device(const mo_snapshot *snapshot);
/* As bytes for a file, which mo_free() frees; and from such bytes; every field is validated. */
MO_API mo_status mo_snapshot_write(const mo_snapshot *snapshot, uint8_t **bytes, size_t *size, mo_error *err);
MO_API mo_status mo_snapshot_open_bytes(const uint8_t *bytes, size_t size, mo_snapshot **out, mo_error *err);

/* ---- Learning --------------------------------------------------------------------------------- */

/* Call it after a request is answered: a hot cache with an update rate exchanges experts now, and perf_out is
 * written. A failure leaves the model as usable as before. Waits for a step that runs. */
MO_API mo_status mo_model_request_done(mo_model *model, mo_error *err);

/* What was counted since the model was opened, or since a reset: one line of JSON, as perf_out gets it;
 * mo_free() *json. Any thread. */
MO_API mo_status mo_model_profile(mo_model *model, char **json, mo_error *err);

/* Counts from 0 again, in the mode named (NULL: the one it was). The profile keeps earlier counts. */
MO_API mo_status mo_model_profile_reset(mo_model *model, const char *perf_mode, mo_error *err);

/* The result of applying a profile. */
typedef struct mo_profile_report {
    bool success;          /* everything that was planned was done */
    bool active;           /* there are experts that can be exchanged */
    double update_rate;    /* 1 */
    uint64_t exchanged;    /* experts */
    uint64_t candidates;   /* exchanges that would help */
    uint64_t max_exchange; /* of them, as many as the rate allows */
    uint64_t hot_experts;  /* on the device, or in RAM */
    uint64_t layers_changed;
} mo_profile_report;

/* Moves the experts that a profile (JSON) ranks highest to the device, if it holds experts, or else into RAM, layer
 * by layer, replacing those it ranks lowest. MO_EFORMAT if it is not a profile, or of another model. *out is always
 * filled. */
MO_API mo_status mo_model_profile_apply(mo_model *model, const char *json, size_t length,
                                        mo_profile_report *out, size_t size, mo_error *err);

#ifdef __cplusplus
}
#endif
#endif
