/* Moraine's own programs: functions that the server, the command line, the evaluation and the tests use in
 * addition to the public headers. Not installed, and its names are not exported, so it may change with any
 * version. The conventions of moraine.h apply. */
#ifndef MORAINE_SERVER_H
#define MORAINE_SERVER_H

#include "moraine.h"
#include "moraine_pictures.h"
#include "moraine_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work of the calling thread without a session to cancel (tokenizing, rendering a template) calls fn every
 * few thousand steps, and ends with MO_ECANCELLED when it returns true. NULL (the default): never called. */
typedef bool (*mo_interrupt_fn)(void *user);
void mo_interrupt_set(mo_interrupt_fn fn, void *user);

/* Version of the numerics (docs/numerics.md). Results of another version have different bits, and states
 * saved by it are rejected. */
int mo_numerics_version(void);

/* Experts that a layer's router chooses from; 0: a layer without a router, or past the last. */
int mo_model_layer_experts(const mo_model *model, int layer);

/* MO_EFORMAT: the file is an adapter, an encoder of pictures or an importance matrix, as err says. */
mo_status mo_file_check_type(const mo_file *file, mo_error *err);

/* ---- Pictures --------------------------------------------------------------------------------- */

/* Description of a picture encoder in a clip file (mmproj). */
typedef struct mo_encoder_info {
    const char *projector; /* as in the file, "qwen3vl_merger"; the file's */
    int layers, heads;
    int64_t width;                  /* of a patch in the encoder */
    int64_t patch, merge;           /* pixels of a patch's side; patches of the side of what makes a token */
    int64_t min_tokens, max_tokens; /* of a picture, unless other limits are set */
    int64_t text_width;             /* of the text models it fits */
    int features; /* additional vectors per token, for the first layers of the text model (DeepStack) */
    int64_t weight_bytes; /* in memory */
} mo_encoder_info;

/* MO_ENOENT: the file has another architecture. MO_EUNSUPPORTED, MO_EFORMAT: this version cannot run the
 * encoder; err says why. */
mo_status mo_file_encoder(const mo_file *file, mo_encoder_info *out, size_t size, mo_error *err);

/* ---- Profiles --------------------------------------------------------------------------------- */

/* Resets the counts and sets the mode (NULL: unchanged). */
mo_status mo_model_profile_reset(mo_model *model, const char *perf_mode, mo_error *err);

typedef struct mo_profile_report {
    bool success, active;              /* all that was planned was done; some experts can be exchanged */
    double update_rate;                /* 1 */
    uint64_t exchanged;                /* experts */
    uint64_t candidates, max_exchange; /* exchanges that would help; maximum allowed by the rate */
    uint64_t hot_experts;              /* on the device, or in RAM */
    uint64_t layers_changed;
} mo_profile_report;
/* Moves the experts that a profile (JSON) ranks highest to the device if it holds experts, otherwise into
 * RAM, layer by layer, in exchange for those it ranks lowest. MO_EFORMAT: not a profile, or of another model.
 * *out is always filled. */
mo_status mo_model_profile_apply(mo_model *model, const char *json, size_t length, mo_profile_report *out,
                                 size_t size, mo_error *err);

/* ---- Several machines ------------------------------------------------------------------------- */

/* Changes `timeout_s`; use the same value in every rank. Any thread. */
mo_status mo_cluster_set_timeout(mo_cluster *cluster, double timeout_s, mo_error *err);
int mo_cluster_rank(const mo_cluster *cluster);
int mo_cluster_ranks(const mo_cluster *cluster);

/* Messages between the ranks of a model since it was opened. By layers: in steps that rank 0 waited for while
 * no other step ran, such as single tokens. By experts: in steps with one token per sequence that use an
 * expert of another rank. The message time is wait_ns - work_ns. */
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

void mo_model_traffic(mo_model *model, mo_traffic_report *out, size_t size);

/* ---- Reports ---------------------------------------------------------------------------------- */

/* Counters since the model was opened. Any thread at any time: reports do not wait for a running step, and
 * then return the values of a moment before. */
typedef struct mo_counter_report {
    uint64_t steps, tokens;
    uint64_t drafted, accepted;        /* draft tokens that were computed; of these, accepted */
    uint64_t checked;                  /* tokens that had drafts after them */
    uint64_t expert_picks;             /* experts chosen by tokens */
    uint64_t experts_run;              /* experts computed: fewer if tokens of a step share one */
    uint64_t single_steps, single_ns;  /* steps with one token of one sequence, and their time */
    uint64_t prompt_tokens, prompt_ns; /* tokens of steps of more than 8, and the time of those steps */
} mo_counter_report;

void mo_model_counters(mo_model *model, mo_counter_report *out, size_t size);

/* Speculative decoding. */
typedef struct mo_speculation_report {
    int64_t draft_max;          /* most drafts of a sequence in a step; 0: it is off */
    uint64_t drafted, accepted; /* as above */
    uint64_t checked;           /* tokens that had drafts after them: one per sequence and step */
    double tokens_per_step;     /* average per sequence and step with drafts; 0: there was none */
    double
        gain; /* estimated speed of steps with one new token of each sequence, over that without drafts; 1: none */
} mo_speculation_report;

void mo_model_speculation(mo_model *model, mo_speculation_report *out, size_t size);
/* Subtracts `count` accepted drafts that were after the end of an answer, and so are not part of it. Any
 * thread. */
void mo_model_uncount_accepted(mo_model *model, int64_t count);

/* Placement of a model and statistics of its tiers. */
typedef struct mo_tier_phase {
    uint64_t passes;  /* through the model */
    uint64_t asked;   /* experts that passes needed */
    uint64_t hits;    /* found in RAM */
    uint64_t bytes;   /* read from disk for the others */
    uint64_t wait_ns; /* time without anything to compute */
} mo_tier_phase;

typedef struct mo_tier_report {
    const char *mode;                  /* "resident", "slots", "streamed", "tiered" or "mapped": a constant */
    const char *policy;                /* a constant */
    int64_t ceiling_bytes;             /* 0: mapped */
    int64_t planned_bytes;             /* in RAM; at most the ceiling */
    int64_t expert_bytes;              /* of the model */
    int64_t slot_bytes;                /* RAM for cached experts */
    int32_t slots, filled;             /* slots; slots that hold an expert */
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
    uint64_t yielded, taken;   /* experts moved from RAM to a device; taken back */
    int layers;                /* layers of this process: all, or a rank's part */
    uint64_t
        known; /* experts whose reads began with a step because its tokens say them (hash-routed layers); most are in `guessed` */
} mo_tier_report;

void mo_model_tiers(mo_model *model, mo_tier_report *out, size_t size);

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
const char *mo_fallback_text(mo_fallback why);

/* Times of a layer whose experts are not all on the device: sums over `served` steps of at most 8 tokens, as
 * seen by the host. A layer lasts core + region; region is turn + cpu + host_wait. */
typedef struct mo_device_layer {
    int32_t layer;
    uint64_t served;
    uint64_t fetched; /* experts that were copied and computed by the device */
    /* From the last reply until the choice was seen: the device's own work, and the transfers in both
     * directions. */
    uint64_t core_ns;
    /* The host's part of a round trip: sorting the choice, starting copies, launching the next segment,
     * replying. */
    uint64_t turn_ns;
    uint64_t cpu_ns; /* the CPU's lane */
    /* the fetch lane: copies in flight; part of it in parallel with the CPU's lane */
    uint64_t fetch_ns, hidden_ns;
    uint64_t host_wait_ns;   /* the CPU was done and waited for copies */
    uint64_t device_wait_ns; /* the device was done and waited for the reply */
    uint64_t region_ns;      /* from seeing the choice to the reply */
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
        fetch_failed; /* experts: chosen; in slots; computed by the CPU; fetched */
    uint64_t late;    /* late, or not sent because they would be late: the CPU computed them */
    uint64_t fetched_bytes, cpu_bytes;
    uint64_t wait_ns;                 /* the host waited for the device's choice */
    uint64_t cpu_ns;                  /* the CPU computed experts */
    uint64_t fetch_ns, hidden_ns;     /* copies were in flight; of that, while the CPU computed */
    double cpu_bytes_s, link_bytes_s; /* as measured while running */
    /* The following stay 0 if layers are not counted (learning.perf_mode "off"). */
    uint64_t step_ns; /* wall time of steps of at most 8 tokens */
    /* Of that, idle time of the device's main stream: before the first launch of a step, and waiting for replies.
     * Copies and fetched experts may be in flight meanwhile. */
    uint64_t idle_ns;
    mo_device_layer lanes;           /* the sum over layers; layer is -1 */
    double layer_p50_s, layer_p99_s; /* of all times of such layers, from reply to reply; 0: none */
    double round_trip_s;             /* as the device was probed: its part of every core_ns; 0: not known */
    uint64_t updates;                /* of the hot cache, by its rate */
    uint64_t exchanged, exchange_failed; /* experts in slots, by updates and by hand; copies that failed */
    double link_probed_bytes_s;          /* what mo_probe() found; 0: it has not been run for this device */
    double host_probed_bytes_s; /* likewise: of memory, when the CPU reads it and copies leave it at once */
    double experts_probed_bytes_s; /* likewise: of the link, by copies as large as an expert's matrices */
} mo_device_report;

void mo_model_device(mo_model *model, mo_device_report *out, size_t size);

/* The layers that needed the host, ascending; writes at most `count`. Returns their number; -1: out of
 * memory. */
int mo_model_device_layers(mo_model *model, mo_device_layer *out, size_t size, int count);

/* Where an expert is. Device memory takes precedence over RAM, which may hold it as well. */
typedef enum mo_expert_place { MO_EXPERT_DISK, MO_EXPERT_RAM, MO_EXPERT_DEVICE } mo_expert_place;

typedef struct mo_expert_report {
    mo_expert_place place;
    uint64_t picks; /* tokens that chose it, as counted by the profile; 0: not counted */
    uint64_t hits;  /* picks that hit the upper tier: the device, or RAM without a device */
    int64_t bytes;  /* of its weights */
} mo_expert_report;

/* Fills the first `count` experts of a layer. Returns how many experts the layer has; 0: none. */
int mo_model_experts(mo_model *model, int layer, mo_expert_report *out, size_t size, int count);

/* The rate at which the model's threads read memory, in GB/s, measured now over at most `bytes` of its
 * weights. MO_EUNSUPPORTED: the model is mapped. */
mo_status mo_model_read_rate(mo_model *model, uint64_t bytes, double *gb_per_s, mo_error *err);

/* Time of prompts by part, for steps of more than 8 tokens, in seconds that add up to `seconds`. */
typedef struct mo_split_report {
    uint64_t steps, tokens;
    double seconds;
    double attention; /* and recurrent mixers, without their products */
    double products;  /* by matrices that every token uses */
    double experts;   /* routed experts; on the CPU also the shared one */
    double routing;
    double other;  /* norms and sums */
    double copies; /* over the link and from disk, where not overlapped with compute */
    double host;   /* the rest: embedding, sorting experts, synchronization */
} mo_split_report;

/* Starts or stops measuring the parts of steps. *out (may be NULL): the times so far. It changes no result.
 * On a device, where two events measure each op, it takes some time itself. Waits for a running step. */
void mo_model_split(mo_model *model, bool on, mo_split_report *out, size_t size);

/* For plans: writes the header that mo_synth() would write into an empty file of that size, whose weights are
 * a hole. The name is from mo_synth_name(), or a unique beginning of one that includes the size
 * ("qwen3-235b"). *found: the whole name, a constant; may be NULL. MO_ENOENT: err names the nearest. */
mo_status mo_synth_header(const char *name, int fd, const char **found, mo_error *err);

/* Like mo_synth_measure() and mo_synth(), with the shape and formats from the header of a model file, whose
 * weights are not read. name: for messages and the new file. The options type, experts and vocabulary must be
 * unset; *out has no texts. */
mo_status mo_synth_like_measure(const char *model, const char *name, const mo_synth_options *options,
                                mo_synth_info *out, size_t size, mo_error *err);
mo_status mo_synth_like(const char *model, const char *name, const char *path,
                        const mo_synth_options *options, mo_progress_fn progress, void *user, mo_error *err);

/* ---- Plans ------------------------------------------------------------------------------------ */

#define MO_PLAN_REPORT_CLASSES 16

/* Experts of one size. */
typedef struct mo_plan_report_class {
    int64_t bytes, slot_bytes; /* of an expert, and of the slot for it */
    int64_t experts, slots;    /* in the model; in RAM */
    int64_t device_slot_bytes, device_slots;
} mo_plan_report_class;

/* Contents of a device's memory. */
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
    /* host: memory while CPU and link use it concurrently */
    double memory_bytes_s, link_bytes_s, host_bytes_s;
    bool measured; /* false: estimates */
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

/* The hot cache: in device memory if there is a device, otherwise in RAM. Its bytes are part of slot_bytes
 * there. */
typedef struct mo_plan_report_hot {
    int64_t budget_bytes, used_bytes; /* 0: there is none */
    int64_t experts, filled;          /* in it; of those, experts without picks in the profile */
    int layers, whole_layers;         /* with experts in it; with all of theirs, so that they need no host */
    int moves;                        /* slots of each size in which updates prepare exchanges */
    double hit_rate;                  /* of the picks that the profile knows */
    double tokens_per_second;         /* if a text's picks are those */
} mo_plan_report_hot;

/* A batch, and the time of a request with it: a chat prompt of 2,048 tokens, or of a shorter context, and an
 * answer of an eighth of that. */
typedef struct mo_plan_report_batch {
    int64_t batch;                     /* 0: none that fits */
    int64_t ram_experts, vram_experts; /* that are kept there */
    int64_t work_bytes;                /* working memory where prompts are computed */
    double prompt_seconds, seconds;    /* of the prompt, and of all of it */
} mo_plan_report_batch;

/* The placement of a model and its expected speed. */
typedef struct mo_plan_report {
    const char *mode; /* "resident", "slots", "streamed" or "tiered": a constant */
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
    /* KV cache of the device's sessions that does not fit on the device: number of layers, and bytes in RAM,
     * part of kv_bytes. Every token reads its sequence's part over the link. */
    int device_cold_layers;
    int64_t device_cold_bytes;
    /* Several devices: `device` has the totals, and these are the devices. 0: one device, or none. */
    int card_count;
    mo_plan_report_card cards[MO_DEVICES_MAX];
    bool disk_learned; /* disk_bytes_s was measured by earlier runs from the same file system */
    /* The speed including the KV cache: for the first token of a text, and for a token at the end of a full
     * context, which takes this many seconds to read it. tokens_per_second counts weights, and half of the KV
     * cache read over the link. */
    double empty_tokens_per_second, full_tokens_per_second, attention_seconds;
    mo_precision prompt_precision; /* in effect: exact if no device supports bf16, or steps are too short */
    /* As prompt_tokens_per_second, but for the last step of a full context; 0: not known (without a device, or with
     * several). */
    double full_prompt_tokens_per_second;
    mo_plan_report_batch batches[3]; /* the next smaller one, the one that is used, the next larger */
    char described
        [256]; /* one sentence: the machine of mo_plan_extra's parts; "": this one, or that of a file */
    /* Speculative decoding: maximum drafts of a sequence per step, 0: none; parts of work_bytes and
     * other_bytes: for drafts, and for the MTP head or draft model, 0: none. */
    int64_t drafts, draft_bytes, head_bytes;
    bool draft_model;
    int64_t
        encoder_bytes; /* of pictures, with its work for the largest; part of other_bytes; 0: there is none */
    int64_t device_encoder_bytes; /* free on the device for pictures; part of its work_bytes; 0: none is */
} mo_plan_report;

/* GPUs that plans know by name. */
typedef struct mo_known_gpu_info {
    const char *name, *title; /* "rtx-4070", "RTX 4070": constants */
    int64_t memory_bytes;
    double memory_bytes_s, link_bytes_s; /* as published, and as plans count with it */
} mo_known_gpu_info;
/* By number; false past the last. */
bool mo_known_gpu(int index, mo_known_gpu_info *out, size_t size);

/* A PC in words. */
typedef struct mo_plan_pc {
    char words[256];
    mo_plan_extra extra; /* points into them */
} mo_plan_pc;
/* Reads "rtx-3060, 32G, ddr5, nvme-4": a GPU of mo_known_gpu(), if it has one, its RAM, and what memory and disk it has. */
mo_status mo_plan_pc_read(const char *text, mo_plan_pc *out, mo_error *err);

/* The report of mo_plan_open(), filled up to the size. */
mo_status mo_plan_file(const char *path, const mo_model_options *options, const mo_plan_extra *extra,
                       mo_plan_report *out, size_t size, mo_error *err);
/* Formats such a report like mo_plan_json(). */
mo_status mo_plan_report_json(const mo_plan_report *report, size_t size, char **json, mo_error *err);

/* ---- Plans for servers ---------------------------------------------------------------------- */

/* Requested values; 0: not given. */
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

/* How many sequences a server decodes at once, with how many positions each and how much memory for cached
 * prefixes, as far as the plan says that it costs little speed. Only headers are read. */
mo_status mo_plan_server(const char *path, const mo_model_options *loading, const mo_server_request *asked,
                         mo_server_plan *out, mo_error *err);

/* ---- Plans for several machines ------------------------------------------------------------- */

#define MO_PLAN_HOSTS 256 /* most of them */

/* One host's part, one rank on each: with layers divided, and with experts divided. Bytes are everything that
 * its rank holds; disk: of those, the bytes that do not fit in memory. */
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

/* Plans for a model divided among hosts, which a text file describes (docs/several-machines.md); "probed":
 * those saved by mo_probe_ranks_save(). divide: "layers", "experts", or "auto" (NULL), the faster one. The
 * options context, batch, kv and sessions apply. MO_EFORMAT: err names the line of the file. Any thread; the
 * report is large. */
mo_status mo_plan_hosts(const char *path, const char *hosts, const char *divide,
                        const mo_model_options *options, mo_plan_hosts_report *out, size_t size,
                        mo_error *err);

/* ---- Probing ---------------------------------------------------------------------------------- */

enum { MO_PROBE_MEMORY = 16, MO_PROBE_DISK = 24, MO_PROBE_COPIES = 5, MO_PROBE_EXPERTS = 5 };

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

    struct mo_probe_expert {
        int64_t bytes;                              /* of an expert */
        double cpu_bytes_s;                         /* products of eight of them, nothing else going on, */
        double both_cpu_bytes_s, both_link_bytes_s; /* of some while others cross, and those; middle values */
    } experts[MO_PROBE_EXPERTS];
    int expert_count;
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

    double others_cores; /* that other programs kept busy meanwhile; 0: none, or not known */
    bool disturbed;      /* too many for the rates to say much about the machine */
    mo_probe_device_report device;

    double product_bytes_s; /* weights that products read, in the slowest of the common formats */
    double slot_bytes_s;    /* the same for weights in the file's layout */
} mo_probe_report;

/* Measures the machine. Takes about ten seconds and 600 MiB of memory; other load lowers the rates. */
mo_status mo_probe(const mo_probe_options *options, mo_probe_report *out, size_t size, mo_error *err);

/* Saves the rates where plans look for them (path NULL), or in a file; *saved (size bytes) says where. */
mo_status mo_probe_save(const mo_probe_report *report, size_t report_size, const char *path, char *saved,
                        size_t size, mo_error *err);

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
mo_status mo_probe_ranks(mo_cluster *cluster, const mo_probe_report *own, size_t own_size,
                         mo_probe_ranks_report *out, size_t size, mo_error *err);
/* Saves them as a file of hosts where plans look for them (path NULL), or in a file; *saved (size bytes) says where. */
mo_status mo_probe_ranks_save(const mo_probe_ranks_report *report, size_t report_size, const char *path,
                              char *saved, size_t size, mo_error *err);

/* ---- Charts ----------------------------------------------------------------------------------- */

/* A chart (SVG) of hit rates: a line for each policy, in the order in which they come. */
typedef struct mo_replay_point {
    const char *policy;
    double budget_share, hit_rate; /* 0 to 1 */
} mo_replay_point;
mo_status mo_replay_chart(const mo_replay_point *points, int count, const char *title, const char *path,
                          mo_error *err);

/* A chart (SVG) of how often each expert of each layer was picked. */
mo_status mo_trace_chart(const mo_trace *trace, const char *title, const char *path, mo_error *err);

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
mo_status mo_bar_chart(const mo_bar *bars, int count, const char *title, const char *path, mo_error *err);

/* ---- Quantizing ------------------------------------------------------------------------------- */

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
const char *mo_tensor_class_text(mo_tensor_class tensor_class);

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

/* As mo_quantize(), with what it did; report may be NULL. */
mo_status mo_quantize_reported(const char *source, const char *path, const mo_quantize_options *options,
                               mo_progress_fn progress, void *user, mo_quantize_report *report, size_t size,
                               mo_error *err);

/* ---- Text ------------------------------------------------------------------------------------- */

/* The first `most` tokens of the text: the rest is not tokenized. 0: all. */
mo_status mo_tokenize_first(const mo_model *model, const char *text, size_t length, int flags, size_t most,
                            int32_t **ids, size_t *count, mo_error *err);

/* Tokens that the vocabulary says must never be sampled, all in range; *count may be 0. They belong to the
 * model. A sampler takes them as biases of -INFINITY. */
const int32_t *mo_model_suppressed(const mo_model *model, size_t *count);

/* Turns tokens into text piece by piece and never splits a character: bytes wait until they are whole. */
typedef struct mo_stream mo_stream;
mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err);
void mo_stream_close(mo_stream *stream);
/* The text that the token completes, perhaps none: terminated, the stream's until the next call. */
mo_status mo_stream_put(mo_stream *stream, int32_t token, mo_text *out, mo_error *err);
/* Returns pending bytes; incomplete characters become U+FFFD. */
mo_status mo_stream_flush(mo_stream *stream, mo_text *out, mo_error *err);

/* Finds strings that end an answer in text that arrives in pieces, however it is split. A possible beginning
 * is held back, always less than the longest string. The first complete one ends the answer; of several that
 * end together, the longest. Characters are never split. */
typedef struct mo_stop mo_stop;
/* Copies the strings, 0 to 256; MO_EINVAL for one that is empty or not UTF-8. */
mo_status mo_stop_open(const char *const *strings, size_t count, mo_stop **out, mo_error *err);
void mo_stop_close(mo_stop *stop);
/* Adds a piece. *out: text that may be shown now, terminated, valid until the next call. *met: index of the
 * string that ended the answer, before which *out ends; -1: none yet. No text follows it. */
mo_status mo_stop_put(mo_stop *stop, mo_text text, mo_text *out, int *met, mo_error *err);
/* Returns the text held back when the answer ended otherwise; then a new answer may begin. */
void mo_stop_flush(mo_stop *stop, mo_text *out);

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

MO_OPTIONS(mo_template_options)

/* MO_EFORMAT if it is not a template, with the line. */
mo_status mo_template_open(const char *text, size_t length, mo_template **out, mo_error *err);
void mo_template_close(mo_template *t);
/* context: a JSON object, the template's variables. *text is terminated; mo_free() it. MO_EINVAL: the text of
 * the template's raise_exception(), or "line 7: " and the error. MO_ENOSPC: a limit was reached. */
mo_status mo_template_render(const mo_template *t, const char *context, size_t context_length,
                             const mo_template_options *options, char **text, size_t *length, mo_error *err);

/* ---- Chat ------------------------------------------------------------------------------------- */

typedef struct mo_message {
    const char *role, *content; /* role: system, user or assistant */
} mo_message;
/* Stands for a picture in a content; no text of JSON has this byte. */
#define MO_MESSAGE_PICTURE 0xFF

/* Checks a text that is to be used as a template. MO_EFORMAT: Jinja with an error, whose line is named.
 * MO_EINVAL: neither Jinja nor the name of a chat format, such as "chatml"; err lists the names. */
mo_status mo_chat_template_check(const char *text, mo_error *err);
/* Does such a template, of any file, show tools? Rendering it with one decides. */
bool mo_chat_template_shows_tools(const char *text);
/* Checks `samplers` of mo_generation_options. */
mo_status mo_samplers_check(const char *samplers, mo_error *err);

/* The template in the model's file, or the one it was opened with; name: NULL, or as in tokenizer.chat_template.NAME. NULL: there
 * is none, or it cannot be read. The model's. */
const char *mo_model_chat_template(const mo_model *model, const char *name);

/* The text of such a prompt, to be tokenized with MO_TOKEN_CHAT (then special tokens written in messages are special);
 * mo_free() *text. options may be NULL. */
mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count,
                        const mo_chat_options *options, char **text, mo_error *err);
/* The same for a conversation in JSON, as mo_prompt_open() takes it. Where the file has no template, a member that says
 * something (is not null or empty) and is not supported by the format is MO_EINVAL and named with its message. Invalid
 * JSON is MO_EINVAL with line and column. */
mo_status mo_model_chat_json(const mo_model *model, const char *json, size_t length,
                             const mo_chat_options *options, char **text, mo_error *err);
/* The name of the chat format, as in "chatml"; "template" where it is known by its template alone, "none" where there is
 * none. A constant. */
const char *mo_model_chat_name(const mo_model *model);

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

MO_OPTIONS(mo_reply_options)

/* Like mo_stream, for an answer of a chat model. It is parsed by the marks of the model's format as it
 * arrives; marks, and newlines next to them, are omitted. Unknown parts are text: no answer is an error.
 * options may be NULL; MO_EINVAL: invalid tools. */
typedef struct mo_reply mo_reply;
mo_status mo_reply_open(const mo_model *model, const mo_reply_options *options, mo_reply **out,
                        mo_error *err);
void mo_reply_close(mo_reply *reply);
/* What the token completes: *count pieces, perhaps none, the reply's until its next call. */
mo_status mo_reply_put(mo_reply *reply, int32_t token, const mo_piece **pieces, size_t *count, mo_error *err);
/* The same for bytes of text, cut anywhere; marks are known by their letters. */
mo_status mo_reply_put_text(mo_reply *reply, const char *text, size_t length, const mo_piece **pieces,
                            size_t *count, mo_error *err);
/* Returns pending pieces when the model has ended the answer. */
mo_status mo_reply_flush(mo_reply *reply, const mo_piece **pieces, size_t *count, mo_error *err);
/* The same for an answer that was cut short by a limit or cancelled: a call is returned as far as it was written, and text that
 * only looks like the start of one is dropped. */
mo_status mo_reply_cut(mo_reply *reply, const mo_piece **pieces, size_t *count, mo_error *err);

bool mo_reply_in_thought(const mo_reply *reply); /* now */

/* A budget for reasoning: the tokens that end the current thought, to be fed instead of sampled
 * ones. *count is 0 when it is in none. They belong to the reply. */
mo_status mo_reply_thought_end(mo_reply *reply, const int32_t **tokens, size_t *count, mo_error *err);

/* Does a prompt of these tokens end inside a thought, so that the answer continues it? */
bool mo_model_in_thought(const mo_model *model, const int32_t *tokens, size_t count);

/* ---- Tools ------------------------------------------------------------------------------------ */

/* How the model writes calls, as in "hermes" or "harmony"; "generic" where it has no way of its own. A constant. */
const char *mo_model_tool_format(const mo_model *model);
/* Does the model's template show tools? If not, put mo_tools_text() into the system message: the reply parses what
 * it asks for. */
bool mo_model_shows_tools(const mo_model *model);
/* Does it show calls of earlier messages? If not, put them into the texts of their messages. */
bool mo_model_shows_calls(const mo_model *model);
/* A text that tells the model about its tools (JSON as in mo_reply_options) and how to call them: in its own way where its template
 * writes calls, otherwise as JSON; mo_free() *text. required: it must call one. */
mo_status mo_tools_text(const mo_model *model, const char *tools, size_t length, bool required, char **text,
                        mo_error *err);

/* ---- Sampling --------------------------------------------------------------------------------- */

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
    /* Those that follow, and `order`, are as in mo_generation_options; any of them that is not off makes this the order: bias and
     * mask, and then what `order` names. */
    float top_n_sigma, typical_p, xtc_probability, xtc_threshold, dynatemp_range, dynatemp_exponent;
    int64_t mirostat; /* 0: off; 2 */
    float mirostat_tau, mirostat_eta;
    float dry_multiplier, dry_base;
    int64_t dry_allowed_length, dry_penalty_last;
    const uint32_t
        *dry_breakers; /* bit t % 32 of word t / 32: no repetition goes across token t; NULL: across all */
    const char *order; /* NULL: as usual */
} mo_sampler_options;

MO_OPTIONS(mo_sampler_options)

/* Overrides the options with those recommended by the model file (general.sampling.*: temp, top_k, top_p, min_p, penalty_repeat,
 * penalty_last_n); others are unchanged. */
void mo_model_sampling(const mo_model *model, mo_sampler_options *options);

typedef struct mo_sampler mo_sampler;
/* Copies the options (NULL: the defaults). MO_EINVAL names the invalid one. vocab: mo_model_info's. */
mo_status mo_sampler_open(const mo_sampler_options *options, int64_t vocab, mo_sampler **out, mo_error *err);
void mo_sampler_close(mo_sampler *sampler);
/* Picks the next token; `recent` is the sequence so far. mask: bit t % 32 of word t / 32 says whether token t may be
 * picked; NULL: all may. Returns -1 when none may: a token whose bias is -INFINITY may not either. Allocates nothing. */
int32_t mo_sampler_pick(mo_sampler *sampler, const float *logits, const uint32_t *mask, const int32_t *recent,
                        size_t count);

enum { MO_TOP_MAX = 20 };

/* Probabilities of a row of logits, before penalties, bias, mask and temperature: the log probability of `token`, and
 * the `count` likeliest tokens (at most vocab), best first. Allocates nothing. */
float mo_logprobs(const float *logits, int64_t vocab, int32_t token, mo_logprob *top, int count);

/* ---- Constraints ------------------------------------------------------------------------------ */

/* A grammar for answers, compiled for a model's vocabulary. Any number of constraints and threads can use one at
 * once. Close it after its constraints and before the model. docs/grammar.md describes both notations. */
typedef struct mo_grammar mo_grammar;

typedef struct mo_grammar_options {
    size_t size;
    bool strict; /* of a schema: what cannot be enforced is MO_EUNSUPPORTED, with its path */
    /* Free text comes first. The grammar begins at one of these strings, which the grammar must itself begin
     * with; an answer without any is free text to its end. A string that is the text of a special token means
     * that token; other special tokens may occur in the free text. At most 64; none: the grammar begins at
     * once. */
    const char *const *triggers;
    size_t trigger_count;
    /* Free text comes first, up to and with this string or special token, as "</think>"; then the grammar, or what its
     * triggers allow. NULL: none. */
    const char *after;
    /* The answer of a chat model: it may begin with a free thought and with the marks that the model's format
     * has around an answer (the channels of harmony). in_thought: the prompt has begun a thought, which must
     * end (mo_model_in_thought()). */
    bool answer, in_thought;
} mo_grammar_options;

MO_OPTIONS(mo_grammar_options)

/* From GBNF; options may be NULL. MO_EINVAL names line and column of what is wrong. */
mo_status mo_grammar_open(const mo_model *model, const char *gbnf, size_t length,
                          const mo_grammar_options *options, mo_grammar **out, mo_error *err);
/* From a JSON schema. MO_EINVAL names the path of what is malformed, as "/properties/x/type". {} is any value,
 * {"type":"object"} any object. */
mo_status mo_grammar_open_schema(const mo_model *model, const char *json, size_t length,
                                 const mo_grammar_options *options, mo_grammar **out, mo_error *err);
void mo_grammar_close(mo_grammar *grammar);
/* The parts of a schema that are not enforced, one per line, as "/properties/x/not"; "": none. */
const char *mo_grammar_unenforced(const mo_grammar *grammar);
/* A schema as rules of GBNF, to be put into a grammar: `prefix` is the value's rule, and others begin with prefix and '-'.
 * options: `strict` alone counts. mo_free() *gbnf, and *unenforced (NULL: not wanted), which is as above. */
mo_status mo_schema_gbnf(const char *json, size_t length, const char *prefix,
                         const mo_grammar_options *options, char **gbnf, char **unenforced, mo_error *err);
/* Rules of GBNF for any text, perhaps empty, in which none of the strings occurs: `prefix` is the rule, and others begin
 * with prefix and '-'. mo_free() *gbnf. */
mo_status mo_until_gbnf(const char *const *strings, size_t count, const char *prefix, char **gbnf,
                        mo_error *err);

/* One answer on its way through a grammar. */
typedef struct mo_constraint mo_constraint;
mo_status mo_constraint_open(mo_grammar *grammar, mo_constraint **out, mo_error *err);
mo_status mo_constraint_copy(const mo_constraint *constraint, mo_constraint **out, mo_error *err);
void mo_constraint_close(mo_constraint *constraint);
/* Which tokens may come next, as mo_sampler_pick() takes it; the constraint's until its next call. End tokens are among
 * them where the answer may end. NULL with err: out of memory, or (MO_ENOSPC) the grammar is too ambiguous. */
const uint32_t *mo_constraint_mask(mo_constraint *constraint, mo_error *err);
/* Appends this token to the answer; MO_EINVAL if it is not allowed, and nothing changes. */
mo_status mo_constraint_accept(mo_constraint *constraint, int32_t token, mo_error *err);
/* The answer may end here; and: only an end token may follow, or one was accepted. */
bool mo_constraint_may_end(const mo_constraint *constraint);
bool mo_constraint_ended(const mo_constraint *constraint);

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

MO_OPTIONS(mo_tools_options)

/* The grammar of a whole answer: thoughts are free, text is free until an opening mark is written, calls have the model's own
 * format (or the one that mo_tools_text() asks for, where its template shows no tools), and arguments follow the schemas.
 * mo_grammar_unenforced() lists what is not enforced. */
mo_status mo_tools_grammar(const mo_model *model, const mo_tools_options *options, mo_grammar **out,
                           mo_error *err);
/* A grammar for answers of a model that may think: the thought is free, what follows is as `gbnf` says; mo_free() *out. */
mo_status mo_answer_grammar(const mo_model *model, const char *gbnf, size_t length, bool in_thought,
                            char **out, mo_error *err);

/* ---- Sessions and snapshots -------------------------------------------------------------------- */

/* Identifies what a session or snapshot was computed with: adapters, their scales and their order; 0: the model alone. A snapshot is
 * restored only into sessions with the same number. */
uint64_t mo_adapters_identity(const mo_adapter_use *uses, int count);
uint64_t mo_session_adapters(const mo_session *session);

/* Bytes of such a session's state. */
uint64_t mo_session_bytes(const mo_model *model, const mo_session_options *options);

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
void mo_model_kept(mo_model *model, mo_kept_report *out, size_t size);

/* Returns the memory of free blocks in RAM to the system; they take memory again when written. Any thread. */
void mo_model_trim(mo_model *model);

int64_t mo_session_length(const mo_session *session);   /* tokens held */
int64_t mo_session_computed(const mo_session *session); /* tokens the last feed computed */

/* Bytes of blocks that the session needs for `count` more positions: new ones, and copies of shared ones that
 * it will write. If free_bytes of mo_model_kept() are fewer, close or spill snapshots before feeding. */
uint64_t mo_session_need(const mo_session *session, int64_t count);

int64_t mo_snapshot_length(const mo_snapshot *snapshot);        /* positions */
uint64_t mo_snapshot_adapters(const mo_snapshot *snapshot);     /* as mo_session_adapters() */
const int32_t *mo_snapshot_tokens(const mo_snapshot *snapshot); /* its tokens, owned by it */
/* The fewest positions that can be restored: 1 where all layers attend to everything; with windows, while the window
 * is still held; with recurrent layers, all. If read from bytes: all, although the model may allow fewer. */
int64_t mo_snapshot_least(const mo_snapshot *snapshot);
/* Bytes that only this snapshot holds now: what closing it frees. *all (may be NULL): all that it refers to. */
uint64_t mo_snapshot_bytes(const mo_snapshot *snapshot, uint64_t *all);
/* Makes it a delta of `on`, to save memory, if both share a prefix and differ in the middle of a block, not far from
 * its end: it then refers to the block of `on` and stores only its own positions, in RAM. Restoring it assembles a block that is
 * bit-identical, which takes a copy of one block per layer, and MO_ENOMEM if none is free. Nothing
 * changes (MO_OK) if that saves no memory, with recurrent layers, or with `prompt_precision` bf16. On a device it waits for the step that
 * runs; do not use either meanwhile. With windows, mo_snapshot_least() may be its length afterwards. */
mo_status mo_snapshot_lean(mo_snapshot *snapshot, const mo_snapshot *on, mo_error *err);
/* Moves it from a device's memory to RAM, under kept_bytes; no effect if it is in RAM. MO_ENOMEM: no space, and it is
 * unchanged. Restoring it from RAM copies it: open a snapshot of that session to share it again. Waits for the step that
 * runs; do not use the snapshot meanwhile. */
mo_status mo_snapshot_spill(mo_snapshot *snapshot, mo_error *err);
bool mo_snapshot_on_device(const mo_snapshot *snapshot);

/* ---- Generations that are stepped by one thread and drained by another ------------------------- */

/* A source of draft tokens that replaces the usual ones: writes predictions of the tokens after tokens[count]
 * to out, at most `most`, and returns their number. Called by the stepping thread. */
typedef struct mo_draft_source {
    int64_t (*draft)(void *user, const int32_t *tokens, int64_t count, int32_t *out, int64_t most);
    void *user;
    int64_t
        match; /* how many of them are computed is decided as after a match of this many tokens; 0: all are */
} mo_draft_source;

/* Recent answers by client: a source of drafts for the client's next answers. It is bounded, and clients
 * never get each other's. Used only by the stepping thread. */
typedef struct mo_recent mo_recent;
mo_status mo_recent_open(mo_recent **out, mo_error *err);
void mo_recent_close(mo_recent *recent);
/* An answer of the client's has ended. */
void mo_recent_add(mo_recent *recent, uint64_t client, const int32_t *tokens, int64_t count);

/* What our own programs add to the options. */
typedef struct mo_generation_extra {
    mo_grammar
        *grammar; /* compiled, in the place of a text; stays open as long as the generation. NULL: none */
    const mo_reply_options
        *reply; /* how the answer is parsed, with in_thought; its tools stay. NULL: as the options say */
    int choice; /* which of several answers to one prompt: it draws with the options' seed + choice */
    const mo_draft_source *source; /* stays as long as the generation; NULL: the usual ones */
    const mo_recent *recent; /* likewise: what answers of `client` said lately; NULL: nothing is known */
    uint64_t client;
} mo_generation_extra;

/* Overrides the sampling options with the recommendations of the model's file (model NULL: none). Options that
 * are still unset get their defaults. */
void mo_generation_options_recommend(const mo_model *model, mo_generation_options *options);

/* As mo_generation_open(). extra may be NULL. */
mo_status mo_generation_open_with(mo_model *model, const mo_generation_options *options,
                                  const mo_generation_extra *extra, mo_generation **out, mo_error *err);

/* What of a generation a step computes. */
typedef struct mo_generation_part {
    mo_generation *generation;
    int64_t piece; /* most tokens of its prompt; 0: all that are left */
    bool logits;   /* its state will be kept afterwards, with its logits, although the prompt goes on */
    bool settled;  /* all its tokens are parsed, and nobody else parses during the step: guesses may go
                      behind what its text decides */
    mo_routing_observer routes; /* NULL: not needed */
    void *user;
    /* The result: */
    mo_error
        error; /* status MO_OK: none. Unless that has ended the generation: step it again, or mo_generation_fail() */
    int64_t computed;          /* tokens */
    int64_t drafted, accepted; /* drafts that were computed, and those of them that became tokens */
    bool predicted;            /* they came from the prediction */
    bool sampled;              /* a token */
    bool late;                 /* its mask was not ready: nothing was sampled */
} mo_generation_part;

/* One step of all of them; unlike mo_generation_step() it looks at no text unless a part is settled. feeds: space for as many. */
mo_status mo_generation_step_parts(mo_generation_part *parts, mo_feed *feeds, int count, mo_error *err);

/* May it be stepped? False: its mask is not ready. */
bool mo_generation_is_ready(mo_generation *generation);
/* From now on fn is called, by a thread of the model, when a mask is ready that a step could not wait for. */
void mo_generation_on_mask(mo_generation *generation, void (*fn)(void *user), void *user);
/* Ends it, if it has not ended. */
void mo_generation_fail(mo_generation *generation, mo_end end, const mo_error *err);
/* The stepping thread's: why it has ended; tokens held by the session. */
mo_end mo_generation_ended(const mo_generation *generation);
int64_t mo_generation_held(const mo_generation *generation);
/* The first picture that the session does not hold and whose rows are not computed, to be closed; NULL: none.
 * A step computes the rows it needs, and other generations wait for that. */
mo_image *mo_generation_picture(const mo_generation *generation);
/* The session was changed from outside, and holds this many tokens of the sequence. */
void mo_generation_set_held(mo_generation *generation, int64_t held);
/* If it has thought as long as it may: appends the tokens that end its thought. All that was sampled must have been parsed. */
void mo_generation_end_thought(mo_generation *generation);

/* The draining thread's: turns one sampled token, or the end, into events. False: there is none. */
bool mo_generation_parse(mo_generation *generation);
/* The next event that is there. */
bool mo_generation_take_event(mo_generation *generation, mo_generation_event *out, size_t size);
/* Tokens parsed so far, and of them in thoughts; was a stop string met? Ids of its calls; NULL: it made fewer. */
void mo_generation_count(const mo_generation *generation, int64_t *tokens, int64_t *thoughts);
/* The whole sequence, up to the last token that was parsed. */
const int32_t *mo_generation_parsed(const mo_generation *generation, int64_t *count);
bool mo_generation_stopped(const mo_generation *generation);
const char *mo_generation_call_id(const mo_generation *generation, int index);

#ifdef __cplusplus
}
#endif
#endif
