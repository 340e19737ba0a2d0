/* Moraine: tools for models: the contents of files, the machine and its speed, plans, the experts that
 * texts choose, and synthetic and converted models. The conventions are those of moraine.h. */
#ifndef MORAINE_TOOLS_H
#define MORAINE_TOOLS_H

#include "moraine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Machine ------------------------------------------------------------------------------- */

/* What this machine has and what this process may use of it. What cannot be read is 0 or "unknown". */
typedef struct mo_machine_info {
    char cpu_model[128];
    char isa[128];                /* instruction sets the kernels can use, such as "avx2 avx512-vnni" */
    char huge_pages[32];          /* transparent huge pages: always, madvise, never or unavailable */
    int cores_online;             /* of the machine */
    int cores_usable;             /* of this process: affinity and cgroup quota counted */
    uint64_t l1d_bytes;           /* of the first core */
    uint64_t l2_bytes;            /* of the first core */
    uint64_t l3_bytes;            /* of the first core's cluster */
    uint64_t ram_total_bytes;     /* of the machine */
    uint64_t ram_available_bytes; /* available memory: MemAvailable or the rest under the cgroup
                                     limits, the smaller one */
    uint64_t cgroup_limit_bytes;  /* the smallest memory limit of our cgroups, 0: none */
    uint64_t page_bytes;
    uint64_t huge_page_bytes; /* 0: none */
} mo_machine_info;

/* Reads some small files each time. Any thread; cannot fail. */
MO_API void mo_machine_describe(mo_machine_info *out, size_t size);

/* ---- Doctor --------------------------------------------------------------------------------- */

typedef struct mo_doctor_options {
    size_t size;
    const char *model;  /* a model file, whose disk is checked as well; NULL: none */
    const char *device; /* as in mo_model_options; it is opened for a moment */
    /* Prefix of every path of /proc and /sys, for tests and for copies from another machine; NULL: none. Results
     * of instructions and system calls are this machine's. */
    const char *root;
} mo_doctor_options;

MO_OPTIONS(mo_doctor_options)

/* One check and its result. */
typedef struct mo_finding_info {
    const char *name; /* such as "huge_pages": a constant */
    bool wrong;       /* it slows models down */
    const char *what; /* the state and what it costs; owned by the doctor */
    const char *mend; /* a command that fixes it; "": there is none, or nothing is wrong. The doctor's */
} mo_finding_info;

/* Finds what slows models down on this machine, in a few milliseconds, and changes nothing. Fails when the model cannot be
 * opened; checks whose data cannot be read are omitted. */
typedef struct mo_doctor mo_doctor;
MO_API mo_status mo_doctor_open(const mo_doctor_options *options, mo_doctor **out, mo_error *err);
MO_API void mo_doctor_close(mo_doctor *doctor);
/* By number, from 0; false past the last. */
MO_API bool mo_doctor_finding(const mo_doctor *doctor, int index, mo_finding_info *out, size_t size);

/* ---- Files --------------------------------------------------------------------------------- */

/* A GGUF model file, or all parts of a split one: what its header says. Tensor data are not read.
 * Constant after opening: any thread may ask. */
typedef struct mo_file mo_file;

/* Opens a model and checks every count, length and offset of its header. For a split model, name the
 * first part; the others must be in the same directory. Close with mo_file_close(). */
MO_API mo_status mo_file_open(const char *path, mo_file **out, mo_error *err);
MO_API void mo_file_close(mo_file *file);

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

/* One value, or one element of an array. */
typedef struct mo_value {
    mo_value_type type;
    union {
        int64_t i;  /* I8, I16, I32, I64 */
        uint64_t u; /* U8, U16, U32, U64 */
        double r;   /* F32, F64 */
        bool b;     /* BOOL */
        mo_text s;  /* STRING: not terminated, and perhaps not UTF-8 */
    } as;
} mo_value;

typedef struct mo_metadata_info {
    const char *key;
    mo_value_type type; /* of the value, or of each element */
    bool is_array;
    uint64_t count; /* elements; 1 for a value that is no array */
} mo_metadata_info;

/* Metadata in the order of the file (of a split model: of its first part). False past the last. */
MO_API int64_t mo_file_metadata_count(const mo_file *file);
MO_API bool mo_file_metadata(const mo_file *file, int64_t index, mo_metadata_info *out, size_t size);
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
MO_API bool mo_file_tensor(const mo_file *file, int64_t index, mo_tensor_info *out, size_t size);

#define MO_FILE_FORMATS 32

typedef struct mo_file_format {
    const char *type;
    int64_t tensors, values, bytes;
} mo_file_format;

/* Sizes of a model, and the bytes one token reads when nothing is cached. */
typedef struct mo_file_info {
    const char *architecture; /* "" when the file does not say */
    const char *name;         /* "" when the file does not say */
    int version;              /* of the container */
    int parts;
    int64_t file_bytes; /* all parts, headers included */
    int64_t tensors, parameters, tensor_bytes;
    int64_t context_length; /* training context in tokens; 0 if unknown */
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
} mo_file_info;

/* Fails with MO_EFORMAT where metadata and tensors contradict each other. */
MO_API mo_status mo_file_summarize(const mo_file *file, mo_file_info *out, size_t size, mo_error *err);

/* As mo_tokenize(), from a model file alone, without loading weights. */
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
    float skew;          /* of the router: 0 none, up to 8; see moraine synth --help */
    int threads;         /* 0: one per usable core; the file does not depend on it */
    bool overwrite;      /* an existing file */
    bool vocabulary;     /* add a generated one: bytes, letter pairs, words; otherwise the file has none */
    const char *experts; /* format of the matrices of routed experts; NULL: as `type` says */
} mo_synth_options;

MO_OPTIONS(mo_synth_options)

/* The published models whose shapes are known, by number; NULL past the last. */
MO_API const char *mo_synth_name(int index);

typedef struct mo_synth_info {
    const char *title, *architecture; /* constants */
    int layers;
    int64_t tensors, parameters, file_bytes;
} mo_synth_info;

/* What mo_synth() would write. MO_ENOENT: unknown name; err lists the known ones. */
MO_API mo_status mo_synth_measure(const char *name, const mo_synth_options *options, mo_synth_info *out,
                                  size_t size, mo_error *err);

/* Writes a model file of the named shape with random, well-scaled weights and no vocabulary unless one is asked for. The same
 * bytes for the same options on every machine. The file appears when it is complete; after a failure or
 * cancellation (MO_ECANCELLED) nothing is left. progress may be NULL. */
MO_API mo_status mo_synth(const char *name, const char *path, const mo_synth_options *options,
                          mo_progress_fn progress, void *user, mo_error *err);

/* ---- Other formats for a model's weights --------------------------------------------------- */

/* Class of a tensor when a model is quantized. */
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
    size_t size;
    /* A format such as "Q8_0" for each class; NULL copies the tensors unchanged. output and embedding
     * follow rest when they are NULL. Tensors that have the format already are copied. */
    const char *experts, *rest, *output, *embedding;
    int threads;    /* 0: one per usable core; the file does not depend on it */
    bool overwrite; /* an existing file */
} mo_quantize_options;

MO_OPTIONS(mo_quantize_options)

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
 * nothing is left. Fails with MO_EINVAL, before anything is written, where a format is unknown. Rows that do not fit a
 * format's blocks get the usual fallback format (Q4_K: Q5_0, ...; else F16), which is logged as a warning. The same bytes for any number of threads. Memory is a few
 * MiB per thread. report may be NULL. progress may be NULL; it counts bytes of the new file. */
MO_API mo_status mo_quantize(const char *source, const char *path, const mo_quantize_options *options,
                             mo_progress_fn progress, void *user, mo_quantize_report *report, size_t size,
                             mo_error *err);

/* ---- Plans --------------------------------------------------------------------------------- */

/* What to plan for. */
typedef struct mo_plan_options {
    size_t size;
    int64_t ram_bytes;      /* ceiling of the process; 0: available memory less a reserve */
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
    mo_hot_cache_options hot_cache;                   /* as in mo_model_options */
    int threads;                                      /* likewise; of another machine: what its file says */
    const char *isa;                                  /* likewise */
    int64_t positions, kept_bytes, kept_device_bytes; /* likewise */
    mo_precision prompt_precision;                    /* likewise */
    int64_t vram_each[MO_DEVICES_MAX];                /* likewise */
    const char *const *adapters;                      /* likewise */
    int adapter_count;
    int64_t adapter_bytes;
    /* Likewise: plans rank 0's part with the other ranks as they are; if a model is open on it, as they were before, and for that
     * model's file only. */
    struct mo_cluster *cluster;
    mo_divide divide; /* likewise */
    /* A model of this process: its memory counts as free, as if it were closed; keep it open until the call returns. NULL: none. */
    mo_model *instead;
} mo_plan_options;

MO_OPTIONS(mo_plan_options)

#define MO_PLAN_REPORT_CLASSES 16

/* Experts of one size. */
typedef struct mo_plan_report_class {
    int64_t bytes, slot_bytes; /* of an expert, and of the slot for it */
    int64_t experts, slots;    /* in the model; in RAM */
    int64_t device_slot_bytes, device_slots;
} mo_plan_report_class;

/* What is in a device's memory. */
typedef struct mo_plan_report_device {
    char name[128];                    /* "": no device */
    char why[256];                     /* what decided the ceiling; without a device, why there is none */
    int64_t ceiling_bytes, used_bytes; /* 0: no device */
    int64_t core_bytes, vector_bytes, kv_bytes, work_bytes, staging_bytes, layer_buffer_bytes, slot_bytes;
    int64_t least_bytes, whole_bytes; /* lowest ceilings: to run at all; to hold everything */
    int64_t slots;
    int layers, streamed_layers, layer_buffers; /* layers whose core stays; streamed layers, and the number of
                                                   buffers */
    int cpu_layers;     /* of those: streamed in prompts only; the CPU computes them for single tokens */
    double hit_rate;    /* of experts, in the device's memory */
    bool fetch;         /* missing experts are also copied over the link, in parallel with the CPU's work */
    double fetch_share; /* of the missing bytes */
    char lane[256];     /* the reason, one sentence */
    int64_t token_bytes, token_link_bytes;
    double core_seconds, hit_seconds, miss_seconds, link_seconds, overhead_seconds;
    double memory_bytes_s, link_bytes_s, host_bytes_s; /* host: memory while CPU and link use it at once */
    bool measured;                                     /* false: estimates */
} mo_plan_report_device;

/* One of several devices, which share the layers. */
typedef struct mo_plan_report_card {
    char name[64];
    int first_layer, layers;
    int64_t ceiling_bytes, used_bytes;
    int64_t core_bytes, kv_bytes, work_bytes, staging_bytes, slot_bytes; /* core: with vectors */
    int64_t slots;                                                       /* experts that stay there */
    double hit_rate;                                                     /* of the experts of its layers */
    double seconds;                                                      /* of a token, in its layers */
} mo_plan_report_card;

/* The hot cache: in the device's memory where there is one, otherwise in RAM. Its bytes are part of
 * slot_bytes there. */
typedef struct mo_plan_report_hot {
    int64_t budget_bytes, used_bytes; /* 0: there is none */
    int64_t experts, filled;          /* in it; of those, experts without picks in the profile */
    int layers, whole_layers;         /* with experts in it; with all of theirs, so that they need no host */
    int moves;                        /* slots of each size in which updates prepare exchanges */
    double hit_rate;                  /* of the picks that the profile knows */
    double tokens_per_second;         /* if a text's picks are those */
} mo_plan_report_hot;

/* The placement of a model and its expected speed. */
typedef struct mo_plan_report {
    const char *mode; /* "resident", "slots" or "streamed": a constant */
    char why[256];    /* one sentence: what decided the ceiling */

    /* Bytes in RAM; used is their sum, at most the ceiling. */
    int64_t ceiling_bytes, used_bytes;
    int64_t core_bytes, vector_bytes, table_bytes, kv_bytes, work_bytes, staging_bytes, other_bytes,
        slot_bytes;
    int64_t least_bytes, whole_bytes; /* lowest ceilings: to run at all; to hold everything */
    int64_t available_bytes;          /* available memory at planning time; 0: unknown */

    /* Bytes that stay on disk. */
    int64_t disk_core_bytes, disk_table_bytes, disk_expert_bytes;

    int layers, routed_layers, experts, experts_used; /* experts of a layer, and those a token uses */
    int streamed_layers, layer_buffers; /* layers read from disk for every token, and the number of buffers */
    int class_count;
    mo_plan_report_class classes[MO_PLAN_REPORT_CLASSES];
    int64_t context, batch;

    /* For one token, with uniform routing: the worst case for a cache. */
    int64_t token_ram_bytes, token_disk_bytes; /* found in RAM; fetched first */
    double hit_rate;                           /* of experts; 1 where there are none */
    double core_seconds, expert_seconds, disk_seconds;
    double tokens_per_second; /* 0: nothing to compute */

    /* What the speed was computed from. */
    double ram_bytes_s, compute_share, disk_bytes_s;
    int64_t device_bytes; /* of memory that the device has; 0: none */
    bool measured;        /* false: modest defaults */
    mo_plan_report_device device;
    mo_plan_report_hot hot;
    int64_t kept_bytes, device_kept_bytes; /* for snapshots: part of kv_bytes, and of the device's */
    int64_t prompt_tokens;                 /* of a long prompt, at most the context, */
    double prompt_tokens_per_second;       /* and how fast it is read in batches of that size; 0: not known */
    char batch_why[192];                   /* one sentence: what decided the batch */
    /* KV cache of the device's sessions that does not fit there, for this many layers: in RAM, part of kv_bytes. Every token
     * reads that of its sequence over the link. */
    int device_cold_layers;
    int64_t device_cold_bytes;
    /* Several devices: `device` is their sum, and these are each of them. 0: there is one, or none. */
    int card_count;
    mo_plan_report_card cards[MO_DEVICES_MAX];
    bool disk_learned; /* disk_bytes_s was measured by earlier runs from the same file system */
    /* The same speed including the KV cache: for the first token of a text, and for one at the end of a full context, which
     * takes this many seconds to read it. tokens_per_second counts weights, and half of the KV cache read over the link. */
    double empty_tokens_per_second, full_tokens_per_second, attention_seconds;
    mo_precision prompt_precision; /* in effect: exact if no device supports bf16, or steps are too short */
    /* As prompt_tokens_per_second, but for the last step of a full context; 0: not known (without a device, or with
     * several). */
    double full_prompt_tokens_per_second;
} mo_plan_report;

/* Plans for a model file of which only the header is read, and the hot cache's profile. MO_ENOMEM when it cannot run
 * under the ceiling, MO_EDEVICE when that is the device's, or there is no such device: err says how much is needed and
 * what to change. The environment's settings of the hot cache hold, as in mo_model_open(). Any thread. */
MO_API mo_status mo_plan_file(const char *path, const mo_plan_options *options, mo_plan_report *out,
                              size_t size, mo_error *err);

/* A report of that size as one line of JSON, as `moraine plan --json` prints it; mo_free() *json. */
MO_API mo_status mo_plan_json(const mo_plan_report *report, size_t size, char **json, mo_error *err);

/* ---- Plans for servers ---------------------------------------------------------------------- */

/* The options of a plan for a model that is opened with these, except for its context, sessions and caches. */
MO_API mo_plan_options mo_plan_options_of(const mo_model_options *loading);

/* What was asked for; 0: not given. */
typedef struct mo_server_request {
    int64_t context, context_all; /* positions of one sequence; of all together */
    int parallel;                 /* sequences */
    int64_t kept_bytes;           /* most for cached prefixes */
} mo_server_request;

typedef struct mo_server_plan {
    int64_t context; /* of one sequence */
    int parallel;
    int64_t made_for;                      /* the context that the file names; 0: none */
    int64_t kept_bytes, kept_device_bytes; /* for prefixes, in addition to blocks that sequences do not use */
} mo_server_plan;

/* How many sequences a server decodes at once, with how many positions each and how much memory for cached prefixes, where that costs
 * little speed by the plan. Only headers are read. */
MO_API mo_status mo_plan_server(const char *path, const mo_model_options *loading,
                                const mo_server_request *asked, mo_server_plan *out, mo_error *err);

/* ---- Plans for several machines ------------------------------------------------------------- */

#define MO_PLAN_HOSTS 256 /* most of them */

/* What one host would have, one rank on each: with layers divided, and with experts divided. Bytes are all that its rank holds;
 * disk: of those, the bytes that do not fit in memory. */
typedef struct mo_plan_report_host {
    char name[64];
    int64_t ram_bytes, vram_bytes; /* that its rank may use */
    int first_layer, layers;
    int64_t layers_bytes, layers_disk_bytes;
    int first_expert, experts; /* of every layer with experts */
    int64_t experts_bytes, experts_disk_bytes;
} mo_plan_report_host;

/* The cost of one kind of division. A token's seconds are core + expert + latency + wire. */
typedef struct mo_plan_report_way {
    bool possible;                                     /* false: nothing else is set but why_not */
    char why_not[128];                                 /* one sentence */
    double token_seconds;                              /* of the next token of one sequence */
    double core_seconds, expert_seconds, disk_seconds; /* disk: part of the other two */
    double latency_seconds, wire_seconds;              /* waiting for messages, and for their bytes */
    double token_messages, token_bytes;                /* between hosts */
    double tokens_per_second, prompt_tokens_per_second;
    const char *bound, *prompt_bound; /* bottleneck of a token, and of a prompt: constants */
} mo_plan_report_way;

typedef struct mo_plan_hosts_report {
    const char *way; /* "layers" or "experts": a constant */
    char why[256];   /* one sentence: why that one */
    mo_plan_report_way by_layers, by_experts;
    int layers, routed_layers, experts, experts_used;
    int64_t context, batch, prompt_tokens;
    int host_count;
    mo_plan_report_host hosts[MO_PLAN_HOSTS];
} mo_plan_hosts_report;

/* Plans for a model that is divided among hosts, which a text file describes (docs/several-machines.md); "probed" are those that
 * mo_probe_ranks_save() saved. divide: "layers", "experts", or
 * "auto" (NULL), the faster one. Of the options, context, batch, kv and sessions apply. MO_EFORMAT: err names the line of the
 * file. Any thread; the report is large. */
MO_API mo_status mo_plan_hosts(const char *path, const char *hosts, const char *divide,
                               const mo_plan_options *options, mo_plan_hosts_report *out, size_t size,
                               mo_error *err);

/* ---- Probing: the rates that plans are made with ------------------------------------------- */

typedef struct mo_probe_options {
    size_t size;
    const char
        *model; /* read from its files (of a split one: name the first part); NULL: from a file of 1 GiB
                            * created for it and removed afterwards */
    const char *directory; /* where that file is made; NULL: the current directory */
    int threads;           /* most threads that read memory; 0: one per usable core */
    const char *device;    /* as in mo_model_options: measured too, where there is one */
    /* Between measurements, on the calling thread; returning false cancels. May be NULL. */
    bool (*progress)(void *user, const char *what, int done, int total);
    void *user;
} mo_probe_options;

MO_OPTIONS(mo_probe_options)

enum { MO_PROBE_MEMORY = 16, MO_PROBE_DISK = 24, MO_PROBE_COPIES = 5 };

/* A device and the wire to it; rates in bytes per second. */
typedef struct mo_probe_device_report {
    char name[128];                   /* "": there is none, or none was requested */
    char kind[16];                    /* "cuda", "sim" */
    char why[256];                    /* without a device: why there is none */
    int64_t memory_bytes, free_bytes; /* free: what a process may still have */
    bool pinned;               /* false: the system refused; copies are then as slow as pageable ones */
    double link_bytes_s;       /* host to device, from pinned memory: the best size */
    double link_out_bytes_s;   /* device to host */
    double pageable_bytes_s;   /* host to device, from ordinary memory */
    double both_ram_bytes_s;   /* threads reading memory while copies run, */
    double both_link_bytes_s;  /* and those copies */
    double memory_bytes_s;     /* products reading the device's memory */
    double launch_seconds;     /* one launch, from the request to its completion */
    double round_trip_seconds; /* the device signals the host, and continues when the host answers */

    struct mo_probe_copy {
        int64_t bytes; /* of one copy */
        double in_bytes_s, out_bytes_s, pageable_bytes_s;
    } copies[MO_PROBE_COPIES];
    int copy_count;
} mo_probe_device_report;

typedef struct mo_probe_report {
    int threads;           /* with which products are fastest: all, unless fewer are clearly better */
    int64_t ram_bytes;     /* what a process may still have */
    double ram_bytes_s;    /* the best of the memory measurements */
    double disk_bytes_s;   /* reads of 1 MiB as the engine makes them */
    bool direct, io_uring; /* how they were read: bypassing the page cache; by io_uring */
    int readers;
    char disk_reason[320]; /* the reason, one sentence */

    struct mo_probe_memory {
        int threads;
        double bytes_s;
    } memory[MO_PROBE_MEMORY];
    int memory_count;

    struct mo_probe_disk {
        int64_t block_bytes;
        int depth; /* concurrent reads: threads, or entries of io_uring */
        bool io_uring;
        double bytes_s;
        double read_s;    /* latency of a read with this many in flight */
        double cpu_share; /* processor time, 1.0: one core */
    } disk[MO_PROBE_DISK];
    int disk_count;

    mo_probe_device_report device;

    double product_bytes_s; /* weights that products read, in the slowest of the common formats */
    double slot_bytes_s;    /* the same for weights in the file's layout */
} mo_probe_report;

/* Measures the machine. Takes about ten seconds and 600 MiB of memory; other load lowers the rates. */
MO_API mo_status mo_probe(const mo_probe_options *options, mo_probe_report *out, size_t size, mo_error *err);

/* Saves the rates where plans look for them (path NULL), or in a file; *saved (size bytes) says where. */
MO_API mo_status mo_probe_save(const mo_probe_report *report, size_t report_size, const char *path,
                               char *saved, size_t size, mo_error *err);

/* One of several ranks: its speed, and its network distance. Rates in bytes per second. */
typedef struct mo_probe_rank {
    char host[64];
    int64_t ram_bytes;                    /* that it may use; ranks of one machine share what is free there */
    double product_bytes_s, disk_bytes_s; /* as plans take them */
    bool measured;                        /* these rates; false: conservative estimates */
    double latency_s, bytes_s;            /* a small message to rank 0, one way; large ones. Of rank 0: 0 */
    double message_s;                     /* each further small message behind another */
    double next_latency_s, next_bytes_s;  /* to the rank after it, from the last to rank 0 */
} mo_probe_rank;

typedef struct mo_probe_ranks_report {
    int count;
    mo_probe_rank ranks[MO_PLAN_HOSTS];
} mo_probe_ranks_report;

/* Measures the network between ranks. All of them call it: rank 0 gets the report, and the others return when it has closed the
 * cluster, with a report of none. own: what mo_probe() found in this rank; NULL: the saved rates. */
MO_API mo_status mo_probe_ranks(mo_cluster *cluster, const mo_probe_report *own, size_t own_size,
                                mo_probe_ranks_report *out, size_t size, mo_error *err);
/* Saves them as a file of hosts where plans look for them (path NULL), or in a file; *saved (size bytes) says where. */
MO_API mo_status mo_probe_ranks_save(const mo_probe_ranks_report *report, size_t report_size,
                                     const char *path, char *saved, size_t size, mo_error *err);

/* ---- Routing traces and their replay ------------------------------------------------------- */

/* What a pass through the model belongs to. */
typedef enum mo_trace_phase { MO_TRACE_PROMPT, MO_TRACE_GENERATION } mo_trace_phase;

/* Records which experts every token of some texts chooses, in memory until it is saved. One thread at a time. */
typedef struct mo_tracer mo_tracer;

/* MO_EUNSUPPORTED when the model has no routed experts. The model must outlive the call only. */
MO_API mo_status mo_tracer_open(const mo_model *model, mo_tracer **out, mo_error *err);
MO_API void mo_tracer_close(mo_tracer *tracer);

/* Before each pass, that is, each feed of at most the model's batch of new tokens: how many tokens, of which text
 * (0 to 65535), prompt or generation. An incomplete pass is discarded. */
MO_API mo_status mo_tracer_step(mo_tracer *tracer, int tokens, int text, mo_trace_phase phase, mo_error *err);

/* A mo_routing_observer whose user is the tracer. Allocates nothing. */
MO_API void mo_tracer_observe(void *tracer, int layer, int64_t position, const int32_t *ids,
                              const float *weights, int used);

/* Writes the file, which appears when it is complete. MO_EINVAL when nothing was recorded. */
MO_API mo_status mo_tracer_save(const mo_tracer *tracer, const char *path, mo_error *err);

/* A recorded trace. Constant: any thread may ask. */
typedef struct mo_trace mo_trace;
/* Reads a trace and checks every field of it. */
MO_API mo_status mo_trace_open(const char *path, mo_trace **out, mo_error *err);
MO_API void mo_trace_close(mo_trace *trace);

typedef struct mo_trace_info {
    uint64_t fingerprint;      /* of the model it was recorded with */
    int layers, experts, used; /* routed layers; experts in each, and how many a token uses */
    int texts;                 /* the highest number + 1 */
    int64_t passes;
    int64_t tokens[2];                 /* by mo_trace_phase */
    int64_t expert_bytes, token_bytes; /* all experts; those a token uses */
    int64_t core_bytes;                /* bytes a token reads apart from experts */
} mo_trace_info;
MO_API void mo_trace_describe(const mo_trace *trace, mo_trace_info *out, size_t size);

typedef struct mo_replay_options {
    size_t size;
    /* A name of mo_policy_name(); NULL: the default; "optimum": knows the future, the upper bound for all others. */
    const char *policy;
    int64_t budget_bytes; /* for experts in RAM */
    int step;             /* maximum tokens per pass; longer ones are split; 0: as recorded */
    const mo_trace *warm; /* start with what this trace of the same model used most; NULL: empty */
    const char *rates;    /* a file of rates, for the time; NULL: this machine's, as measured, or defaults */
} mo_replay_options;

MO_OPTIONS(mo_replay_options)

/* Totals of a phase. An expert counts once per pass and layer, even if several tokens picked it. */
typedef struct mo_replay_phase {
    int64_t passes, tokens;
    int64_t needed, hits;             /* experts */
    int64_t bytes_needed, bytes_read; /* of experts */
    /* Core, and for each layer the longer of computing its experts and reading the missing ones. Counts reading memory
     * and disk only, so long prompts really take more. */
    double seconds;
} mo_replay_phase;

typedef struct mo_replay_report {
    mo_replay_phase phase[2]; /* by mo_trace_phase */
    int32_t slots, experts;   /* of all layers */
    int64_t slot_bytes;
    bool rates_measured; /* false: the seconds are based on defaults */
} mo_replay_report;

/* Replays the trace under a memory budget and a cache policy. MO_EINVAL when the budget is too
 * small for one layer's experts in use, or the policy is unknown. */
MO_API mo_status mo_replay(const mo_trace *trace, const mo_replay_options *options, mo_replay_report *out,
                           size_t size, mo_error *err);

/* A chart (SVG) of hit rates: a line for each policy, in the order in which they come. */
typedef struct mo_replay_point {
    const char *policy;
    double budget_share, hit_rate; /* 0 to 1 */
} mo_replay_point;
MO_API mo_status mo_replay_chart(const mo_replay_point *points, int count, const char *title,
                                 const char *path, mo_error *err);

/* A chart (SVG) of how often each expert of each layer was picked. */
MO_API mo_status mo_trace_chart(const mo_trace *trace, const char *title, const char *path, mo_error *err);

/* A chart (SVG) of amounts, as of a plan's bytes: a bar for each, one below the other, made of pieces. Pieces of one label have one
 * colour, and where there are several labels a key tells them. */
typedef struct mo_bar_piece {
    const char *label;
    double amount; /* 0: left out */
} mo_bar_piece;
typedef struct mo_bar {
    const char *label, *note; /* above it, at its left and right; note may be NULL */
    const mo_bar_piece *pieces;
    int count;
    double limit; /* drawn as a frame; 0: none */
    double scale; /* value of the full width; 0: the largest sum or limit of bars without one */
} mo_bar;
MO_API mo_status mo_bar_chart(const mo_bar *bars, int count, const char *title, const char *path,
                              mo_error *err);

#ifdef __cplusplus
}
#endif
#endif
