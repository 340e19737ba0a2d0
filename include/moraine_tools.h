/* Moraine: tools for models: file contents, the machine and its speed, plans, routing traces, synthetic and converted models,
 * and several machines. The conventions of moraine.h apply. */
#ifndef MORAINE_TOOLS_H
#define MORAINE_TOOLS_H

#include "moraine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Machine ------------------------------------------------------------------------------- */

/* What this machine has and what this process may use of it. Values that cannot be read are 0 or "unknown". */
typedef struct mo_machine_info {
    char cpu_model[128];
    char isa[128];                /* instruction sets the kernels can use, such as "avx2 avx512-vnni" */
    char huge_pages[32];          /* transparent huge pages: always, madvise, never or unavailable */
    int cores_online;             /* of the machine */
    int cores_usable;             /* by this process, within its affinity and cgroup quota */
    uint64_t l1d_bytes;           /* of the first core */
    uint64_t l2_bytes;            /* of the first core */
    uint64_t l3_bytes;            /* of the first core's cluster */
    uint64_t ram_total_bytes;     /* of the machine */
    uint64_t ram_available_bytes; /* MemAvailable, or less if the cgroup limits leave less */
    uint64_t cgroup_limit_bytes;  /* the smallest memory limit of our cgroups; 0: none */
    uint64_t page_bytes;
    uint64_t huge_page_bytes; /* 0: none */
} mo_machine_info;

/* Reads some small files each time. Any thread; cannot fail. */
MO_API void mo_machine_describe(mo_machine_info *out, size_t size);

/* ---- Doctor --------------------------------------------------------------------------------- */

typedef struct mo_doctor_options {
    size_t size;
    const char *model;  /* a model file, whose disk is also checked; NULL: none */
    const char *device; /* as in mo_model_options; opened briefly */
    /* Prefix of every path in /proc and /sys, for tests and for copies from another machine; NULL: none. Instructions and
     * system calls are still checked on this machine. */
    const char *root;
} mo_doctor_options;

MO_OPTIONS(mo_doctor_options)

/* One check and its result. */
typedef struct mo_finding_info {
    const char *name; /* such as "huge_pages": a constant */
    bool wrong;       /* it slows models down */
    const char *what; /* the state and what it costs; owned by the doctor */
    const char *mend; /* a command that fixes it; "": none, or nothing is wrong. Owned by the doctor */
} mo_finding_info;

/* Finds what slows models down on this machine, in a few milliseconds, without changing anything. Fails if the model cannot be
 * opened. Checks whose data cannot be read are omitted. */
typedef struct mo_doctor mo_doctor;
MO_API mo_status mo_doctor_open(const mo_doctor_options *options, mo_doctor **out, mo_error *err);
MO_API void mo_doctor_close(mo_doctor *doctor);
/* By index, from 0; false past the last. */
MO_API bool mo_doctor_finding(const mo_doctor *doctor, int index, mo_finding_info *out, size_t size);

/* ---- Files --------------------------------------------------------------------------------- */

/* The header of a GGUF model file, or of all parts of a split one. Tensor data are not read. Constant after opening: any thread
 * may use it. */
typedef struct mo_file mo_file;

/* Opens a model and checks every count, length and offset of its header. For a split model, name the
 * first part; the others must be in the same directory. Close with mo_file_close(). */
MO_API mo_status mo_file_open(const char *path, mo_file **out, mo_error *err);
MO_API void mo_file_close(mo_file *file);

/* The parts, in order; 1 if the model is not split. NULL past the last. */
MO_API int mo_file_parts(const mo_file *file);
MO_API const char *mo_file_part_path(const mo_file *file, int part);

/* Types of metadata values, numbered as in the file. */
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

/* A constant such as "u8" or "string". */
MO_API const char *mo_value_type_text(mo_value_type type);

/* One value, or one element of an array. */
typedef struct mo_value {
    mo_value_type type;
    union {
        int64_t i;  /* I8, I16, I32, I64 */
        uint64_t u; /* U8, U16, U32, U64 */
        double r;   /* F32, F64 */
        bool b;     /* BOOL */
        mo_text s;  /* STRING: not terminated, may not be UTF-8 */
    } as;
} mo_value;

typedef struct mo_metadata_info {
    const char *key;
    mo_value_type type; /* of the value, or of the array's elements */
    bool is_array;
    uint64_t count; /* number of elements; 1 for a value that is no array */
} mo_metadata_info;

/* Metadata in file order; for a split model, of its first part. False past the last. */
MO_API int64_t mo_file_metadata_count(const mo_file *file);
MO_API bool mo_file_metadata(const mo_file *file, int64_t index, mo_metadata_info *out, size_t size);
MO_API bool mo_file_metadata_value(const mo_file *file, int64_t index, uint64_t element, mo_value *out);

/* Writes the value as readable text, always terminated: plain numbers, strings with control characters escaped, arrays as [a,
 * b, ...] with at most max_elements elements. Returns the bytes of the whole text, without the terminator, as snprintf does. */
MO_API size_t mo_file_metadata_text(const mo_file *file, int64_t index, uint64_t max_elements, char *text,
                                    size_t size);

typedef struct mo_tensor_info {
    const char *name;
    const char *type; /* such as "Q4_K" */
    int dims;         /* number of sizes in the file */
    int64_t size[4];  /* fastest first; missing ones are 1 */
    int64_t values;   /* product of the sizes */
    int64_t bytes;    /* in the file */
    int64_t offset;   /* from the beginning of its part, in bytes */
    int part;         /* index of the part that holds it */
} mo_tensor_info;

/* Tensors in file order. False past the last. */
MO_API int64_t mo_file_tensor_count(const mo_file *file);
MO_API bool mo_file_tensor(const mo_file *file, int64_t index, mo_tensor_info *out, size_t size);

typedef struct mo_file_format {
    const char *type;
    int64_t tensors, values, bytes;
} mo_file_format;

/* Sizes of a model, and the bytes that one token reads when nothing is cached. */
typedef struct mo_file_info {
    const char *architecture; /* "" if the file has none */
    const char *name;         /* "" if the file has none */
    int version;              /* of the container format */
    int parts;
    int64_t file_bytes; /* all parts, headers included */
    int64_t tensors, parameters, tensor_bytes;
    int64_t context_length; /* training context in tokens; 0 if unknown */
    int layers;             /* without the MTP layers */
    int mtp_layers;         /* multi-token prediction layers (nextn), not counted in what a token reads */
    int expert_layers, experts, experts_used;   /* experts per layer; used per token */
    int64_t expert_bytes_min, expert_bytes_max; /* one expert: gate, up and down, with scales and biases */
    int64_t expert_bytes_total;                 /* all experts of all layers that a token passes */

    /* Bytes one token reads. */
    int64_t token_expert_bytes;    /* the experts it is routed to */
    int64_t token_other_bytes;     /* attention, norms, routers, shared experts, dense layers */
    int64_t token_output_bytes;    /* the output matrix */
    int64_t token_embedding_bytes; /* one row of the embedding */
    int64_t token_bytes;           /* the sum of these */
    bool output_tied;              /* the output matrix is the embedding */

    int formats;                  /* number of formats among the tensors */
    const mo_file_format *format; /* [formats], most bytes first; owned by the file */
    int mtp_heads;                /* MTP layers that can draft tokens */
    int64_t mtp_bytes;            /* tensors of the MTP layers */
} mo_file_info;

/* Fails with MO_EFORMAT if metadata and tensors contradict each other. */
MO_API mo_status mo_file_summarize(const mo_file *file, mo_file_info *out, size_t size, mo_error *err);

/* Like mo_tokenize(), from a model file, without loading weights. */
MO_API mo_status mo_tokenize_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                                  size_t *count, mo_error *err);

/* ---- Synthetic models ---------------------------------------------------------------------- */
typedef struct mo_synth_options {
    size_t size;
    int layers;       /* number of layers, from the first; 0: all */
    const char *type; /* format of every matrix, as in "Q8_0"; NULL: the mix the model is published in.
                       * Norms, biases, routers and other small tensors are F32 in any case. Where rows
                       * do not fit the format's block, the usual fallback format (Q4_K: Q5_0, ...) */
    uint64_t seed;
    float skew;          /* skew of the router: 0 (none) to 8; see moraine synth --help */
    int threads;         /* 0: one per usable core; the file does not depend on it */
    bool overwrite;      /* replace an existing file */
    bool holes;          /* routed experts are zeros that take no space in the file */
    bool vocabulary;     /* generate a vocabulary: bytes, letter pairs, words; otherwise the file has none */
    const char *experts; /* format of the routed experts' matrices; NULL: as `type` */
} mo_synth_options;

MO_OPTIONS(mo_synth_options)

/* Published models with known shapes, by index; NULL past the last. */
MO_API const char *mo_synth_name(int index);

typedef struct mo_synth_info {
    const char *title, *architecture; /* constants */
    int layers;
    int64_t tensors, parameters, file_bytes;
} mo_synth_info;

/* What mo_synth() would write. MO_ENOENT: unknown name; err lists the known ones. */
MO_API mo_status mo_synth_measure(const char *name, const mo_synth_options *options, mo_synth_info *out,
                                  size_t size, mo_error *err);

/* Writes a model file of the named shape with random, well-scaled weights. The same options give the same bytes on every
 * machine. The file appears when it is complete; nothing is left after a failure or a cancellation (MO_ECANCELLED). progress
 * may be NULL. */
MO_API mo_status mo_synth(const char *name, const char *path, const mo_synth_options *options,
                          mo_progress_fn progress, void *user, mo_error *err);

/* ---- Other formats for a model's weights --------------------------------------------------- */

typedef struct mo_quantize_options {
    size_t size;
    /* A format such as "Q8_0" for each class of tensors: routed experts, other matrices, a separate output matrix, the
     * embedding. NULL copies the tensors unchanged; output and embedding use `rest` if NULL. Tensors that already have the
     * format are copied, and so are routers, vectors and convolutions. */
    const char *experts, *rest, *output, *embedding;
    int threads;    /* 0: one per usable core; the file does not depend on it */
    bool overwrite; /* replace an existing file */
} mo_quantize_options;

MO_OPTIONS(mo_quantize_options)

/* Writes a model with its weights in other formats: one file with the same metadata, even if the source is split. Values are
 * converted through F32. The file appears when it is complete; nothing is left after a failure or a cancellation. An unknown
 * format is MO_EINVAL, before anything is written. Rows that do not fit a format's blocks get the usual fallback format (Q4_K:
 * Q5_0, ...; else F16), with a warning in the log. The bytes do not depend on the number of threads. Uses a few MiB per thread.
 * progress may be NULL; it counts bytes of the new file. */
MO_API mo_status mo_quantize(const char *source, const char *path, const mo_quantize_options *options,
                             mo_progress_fn progress, void *user, mo_error *err);

/* ---- Plans --------------------------------------------------------------------------------- */

/* Options of a plan in addition to the model's. Set `size`; the rest may be 0. */
typedef struct mo_plan_extra {
    size_t size;
    /* File with another machine's sizes, rates and device (JSON, from moraine probe); NULL: this machine, as probed. */
    const char *machine;
    /* A model of this process that counts as closed: its memory is free. Keep it open until the call returns. NULL: none. */
    mo_model *instead;
    /* Parts of a described machine, by published figures: a GPU ("rtx-4070"; "auto": if none is here, the smallest with
     * `vram_bytes`), memory ("ddr5", "60GB/s"), a disk ("nvme-4"); NULL: this machine's, or a PC's if pc_ram_bytes is set. */
    const char *gpu, *cpu, *disk;
    int64_t pc_ram_bytes;
} mo_plan_extra;

/* Placement and expected speed of a model. Constant once open: any thread may use it. */
typedef struct mo_plan mo_plan;
/* Plans for opening a model file with these options; options and extra may be NULL. Only the header and the hot cache's profile
 * are read. MO_ENOMEM: the model cannot run under the ceiling. MO_EDEVICE: or under the device's ceiling, or no such device.
 * err says how much is needed and what to change. `map` and options that do not affect placement are ignored. With a `cluster`:
 * rank 0's part, with the other ranks as they are; if a model is open on it, as they were before, for the same file. */
MO_API mo_status mo_plan_open(const char *path, const mo_model_options *options, const mo_plan_extra *extra,
                              mo_plan **out, mo_error *err);
MO_API void mo_plan_close(mo_plan *plan);
/* A value listed by mo_stat_name(), as in mo_model_stat(). index: 0, or a class, or a device. MO_EUNSUPPORTED: runs only. */
MO_API mo_status mo_plan_stat(const mo_plan *plan, const char *name, int64_t index, double *value,
                              mo_error *err);
/* "tier.mode" and "device" as in mo_model_text(), and sentences: "ceiling" and "device.ceiling" (what decided them, or why
 * there is no device), "device.fetch" (why missing experts are copied or not), "batch" (what decided it). NULL: unknown key. */
MO_API const char *mo_plan_text(const mo_plan *plan, const char *key);
/* One line of JSON, as `moraine plan --json` prints it; mo_free() *json. */
MO_API mo_status mo_plan_json(const mo_plan *plan, char **json, mo_error *err);

/* ---- Probing: the rates that plans are made with ------------------------------------------- */

typedef struct mo_probe_options {
    size_t size;
    const char *model;     /* model whose (first) file is read; NULL: a 1 GiB file, removed later */
    const char *directory; /* directory for that file; NULL: the current one */
    int threads;           /* maximum threads that read memory; 0: one per usable core */
    const char *device;    /* as in mo_model_options; measured too, if there is one */
    /* Called between measurements on the calling thread; returning false cancels. May be NULL. */
    bool (*progress)(void *user, const char *what, int done, int total);
    void *user;
} mo_probe_options;

MO_OPTIONS(mo_probe_options)

/* Measures the machine and saves the rates to `path`, or (NULL) where plans look for them; *saved (size bytes) is the path
 * used. Takes about ten seconds and 600 MiB of memory. Other load lowers the rates. options may be NULL. */
MO_API mo_status mo_probe_machine(const mo_probe_options *options, const char *path, char *saved, size_t size,
                                  mo_error *err);

/* ---- Routing traces and their replay ------------------------------------------------------- */

/* Kind of a pass through the model. */
typedef enum mo_trace_phase { MO_TRACE_PROMPT, MO_TRACE_GENERATION } mo_trace_phase;

/* Records in memory which experts each token of some texts chooses. One thread at a time. */
typedef struct mo_tracer mo_tracer;

/* MO_EUNSUPPORTED when the model has no routed experts. The model need only outlive this call. */
MO_API mo_status mo_tracer_open(const mo_model *model, mo_tracer **out, mo_error *err);
MO_API void mo_tracer_close(mo_tracer *tracer);

/* Call it before each pass (a feed of at most the model's batch of new tokens) with the number of tokens, the number of the
 * text (0 to 65535) and the phase. An incomplete pass is discarded. */
MO_API mo_status mo_tracer_step(mo_tracer *tracer, int tokens, int text, mo_trace_phase phase, mo_error *err);

/* A mo_routing_observer; `user` is the tracer. Allocates nothing. */
MO_API void mo_tracer_observe(void *tracer, int layer, int64_t position, const int32_t *ids,
                              const float *weights, int used);

/* Writes the file, which appears when complete. MO_EINVAL when nothing was recorded. */
MO_API mo_status mo_tracer_save(const mo_tracer *tracer, const char *path, mo_error *err);

/* A recorded trace. Constant: any thread may use it. */
typedef struct mo_trace mo_trace;
/* Reads a trace and validates every field. */
MO_API mo_status mo_trace_open(const char *path, mo_trace **out, mo_error *err);
MO_API void mo_trace_close(mo_trace *trace);

typedef struct mo_trace_info {
    uint64_t fingerprint;      /* of the model it was recorded with */
    int layers, experts, used; /* routed layers; experts per layer; used per token */
    int texts;                 /* highest text number + 1 */
    int64_t passes;
    int64_t tokens[2];                 /* by mo_trace_phase */
    int64_t expert_bytes, token_bytes; /* all experts; used by one token */
    int64_t core_bytes;                /* bytes a token reads, without experts */
} mo_trace_info;
MO_API void mo_trace_describe(const mo_trace *trace, mo_trace_info *out, size_t size);

typedef struct mo_replay_options {
    size_t size;
    /* A policy from mo_policy_name(); NULL: the default. "optimum" knows the future: the upper bound for all others. */
    const char *policy;
    int64_t budget_bytes; /* RAM for experts */
    int step;             /* maximum tokens per pass; longer ones are split; 0: as recorded */
    const mo_trace *warm; /* starts with the experts this trace of the same model used most; NULL: empty */
    const char *rates;    /* file with rates, for `seconds`; NULL: this machine's, as measured, or defaults */
} mo_replay_options;

MO_OPTIONS(mo_replay_options)

/* Totals of a phase. An expert counts once per pass and layer, even if several tokens picked it. */
typedef struct mo_replay_phase {
    int64_t passes, tokens;
    int64_t needed, hits;             /* experts */
    int64_t bytes_needed, bytes_read; /* of experts */
    /* Time of the core, plus per layer the longer of computing its experts and reading the missing ones. Counts only memory and
     * disk reads, so long prompts take longer than this. */
    double seconds;
} mo_replay_phase;

typedef struct mo_replay_report {
    mo_replay_phase phase[2]; /* indexed by mo_trace_phase */
    int32_t slots, experts;   /* in all layers */
    int64_t slot_bytes;
    bool rates_measured; /* false: the seconds are based on defaults */
} mo_replay_report;

/* Replays the trace under a memory budget and a cache policy. MO_EINVAL when the budget is smaller than the experts one layer
 * uses, or the policy is unknown. */
MO_API mo_status mo_replay(const mo_trace *trace, const mo_replay_options *options, mo_replay_report *out,
                           size_t size, mo_error *err);

/* ---- Several machines ------------------------------------------------------------------------- */
/* The ranks of a run: processes started by mpirun. Each has the file and loads a part of it. Rank 0 leads: it opens models with
 * `cluster` set and uses them as usual, with the same results. The others follow. Messages between ranks are not encrypted. */
typedef struct mo_cluster mo_cluster;
typedef struct mo_cluster_options {
    size_t size;
    /* A rank that is silent for this long, or a step without progress for this long, ends the run: every later step fails with
     * MO_EIO and names the rank. 0.1 to 3600; by default 10. */
    double timeout_s;
    /* called once, by any thread, when that happens; may be NULL */
    void (*lost)(void *user, const char *why);
    void *user;
} mo_cluster_options;
MO_OPTIONS(mo_cluster_options)
MO_API const char *mo_cluster_library(void); /* such as "Open MPI v4.1.4"; NULL: built without MPI */
/* Joins the run; call it once per process. options may be NULL. A process that was not started by mpirun is a cluster of one.
 * Closing it in rank 0, after its models, ends the run and waits for the other ranks. */
MO_API mo_status mo_cluster_open(const mo_cluster_options *options, mo_cluster **out, mo_error *err);
MO_API void mo_cluster_close(mo_cluster *cluster);
typedef struct mo_cluster_info {
    int rank, ranks; /* number of this rank, and of all */
} mo_cluster_info;
MO_API void mo_cluster_describe(const mo_cluster *cluster, mo_cluster_info *out, size_t size);

/* For every rank but 0: opens its part of each model that rank 0 opens and computes with it, until rank 0 closes the cluster
 * (MO_OK). path: this rank's file. options: this rank's threads, ceiling and I/O; session settings come from rank 0. */
MO_API mo_status mo_cluster_follow(mo_cluster *cluster, const char *path, const mo_model_options *options,
                                   mo_error *err);

#ifdef __cplusplus
}
#endif
#endif
