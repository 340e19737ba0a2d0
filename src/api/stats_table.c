/* The table of statistics: every name, its meaning, and its source in models and plans. */
#include <stdint.h>
#include <string.h>

#include "api/stats.h"
#include "base/growing.h"
#include "base/nearest.h"
#include "base/status.h"

/* Our compilers treat enums as unsigned. */
#define TYPE(value)                                                                                          \
    _Generic((value), bool                                                                                   \
             : MO_STAT_BOOL, int                                                                             \
             : MO_STAT_INT, unsigned                                                                         \
             : MO_STAT_UNSIGNED, int64_t                                                                     \
             : MO_STAT_I64, uint64_t                                                                         \
             : MO_STAT_U64, double                                                                           \
             : MO_STAT_DOUBLE)
#define MEMBER(type, member)                                                                                 \
    {                                                                                                        \
        offsetof(type, member), TYPE(((type *)0)->member)                                                    \
    }
#define NOWHERE                                                                                              \
    {                                                                                                        \
        0, MO_STAT_NONE                                                                                      \
    }
#define RUN(name, member, about)                                                                             \
    {                                                                                                        \
        name, about, MO_STAT_ONE, MEMBER(mo_run_look, member), NOWHERE                                       \
    }
#define PLAN(name, member, about)                                                                            \
    {                                                                                                        \
        name, about, MO_STAT_ONE, NOWHERE, MEMBER(mo_plan_look, member)                                      \
    }
#define BOTH(name, member, planned, about)                                                                   \
    {                                                                                                        \
        name, about, MO_STAT_ONE, MEMBER(mo_run_look, member), MEMBER(mo_plan_look, planned)                 \
    }
#define LAYER(name, member, about)                                                                           \
    {                                                                                                        \
        name, about, MO_STAT_DEVICE_LAYERS, MEMBER(mo_device_layer, member), NOWHERE                         \
    }
#define EXPERT(name, member, about)                                                                          \
    {                                                                                                        \
        name, about, MO_STAT_EXPERTS, MEMBER(mo_expert_report, member), NOWHERE                              \
    }
#define CLASS(name, member, about)                                                                           \
    {                                                                                                        \
        name, about, MO_STAT_CLASSES, NOWHERE, MEMBER(mo_plan_report_class, member)                          \
    }
#define CARD(name, member, about)                                                                            \
    {                                                                                                        \
        name, about, MO_STAT_CARDS, NOWHERE, MEMBER(mo_plan_report_card, member)                             \
    }

static const mo_stat table[] = {
    /* Speed: predicted by the plan, measured by the run. */
    BOTH("tokens_per_second", tokens_per_second, report.tokens_per_second,
         "speed of one sequence: of single tokens so far; expected of a token with evenly spread routing"),
    BOTH("prompt.tokens_per_second", prompt_tokens_per_second, report.prompt_tokens_per_second,
         "speed of steps of more than 8 tokens; expected of a long prompt, 0: not known"),

    /* The model. */
    BOTH("model.layers", info.layers, report.layers, "layers of the model"),
    PLAN("model.routed_layers", report.routed_layers, "layers with routed experts"),
    BOTH("model.experts", info.experts, report.experts, "experts of a layer"),
    BOTH("model.experts_used", info.experts_used, report.experts_used,
         "experts that a token uses in a layer"),
    BOTH("model.context", info.context, report.context, "most positions of a session"),
    BOTH("model.batch", info.batch, report.batch, "most tokens of a step"),
    RUN("model.threads", info.threads, "threads that compute"),
    RUN("model.core_bytes", info.core_bytes, "core weights in memory"),
    RUN("model.expert_bytes", info.expert_bytes, "experts in memory"),
    RUN("model.table_bytes", info.table_bytes, "embedding in memory"),
    RUN("model.vector_bytes", info.vector_bytes, "vectors in memory"),
    RUN("model.work_bytes", info.work_bytes, "working memory of a step"),
    RUN("model.token_bytes", info.bytes_per_token, "weights that a single token reads"),
    {"layer.experts", "experts that the layer's router chooses among; 0: it has none; index: layer",
     MO_STAT_LAYERS, MEMBER(mo_layer_look, experts), NOWHERE},

    /* Counters of steps. */
    RUN("engine.steps", counters.steps, "steps"),
    RUN("engine.tokens", counters.tokens, "tokens computed"),
    RUN("engine.expert_picks", counters.expert_picks, "experts chosen by tokens"),
    RUN("engine.experts_run", counters.experts_run, "experts computed: fewer if tokens of a step share one"),
    RUN("engine.single_steps", counters.single_steps, "steps with one token of one sequence"),
    RUN("engine.single_ns", counters.single_ns, "time of those"),
    RUN("engine.prompt_tokens", counters.prompt_tokens, "tokens of steps of more than 8"),
    RUN("engine.prompt_ns", counters.prompt_ns, "time of those steps"),

    /* Speculative decoding. */
    RUN("speculation.draft_max", speculation.draft_max, "most drafts of a sequence in a step; 0: it is off"),
    RUN("speculation.drafted", speculation.drafted, "draft tokens that were computed"),
    RUN("speculation.accepted", speculation.accepted, "of these, tokens that were accepted"),
    RUN("speculation.checked", speculation.checked, "tokens that had drafts behind them"),
    RUN("speculation.tokens_per_step", speculation.tokens_per_step,
        "tokens of a sequence by a step in which it had drafts, on average; 0: there was none"),
    RUN("speculation.gain", speculation.gain,
        "estimated speed of steps with one new token of each sequence, over that without drafts"),

    /* RAM. */
    BOTH("tier.ram.ceiling_bytes", tiers.ceiling_bytes, report.ceiling_bytes,
         "ceiling of memory; 0: the model is mapped"),
    BOTH("tier.ram.planned_bytes", tiers.planned_bytes, report.used_bytes,
         "memory that the plan gives away, at most the ceiling"),
    BOTH("tier.ram.slots", tiers.slots, ram_slots, "experts that RAM can cache; 0: all are there, or none"),
    RUN("tier.ram.slot_bytes", tiers.slot_bytes, "memory for cached experts"),
    RUN("tier.ram.filled", tiers.filled, "experts that RAM caches now"),
    BOTH("tier.ram.hit_rate", ram_hit_rate, report.hit_rate,
         "share of the needed experts that was in RAM; of a plan: with evenly spread routing"),
    RUN("tier.ram.passes", both.passes, "passes through the model"),
    RUN("tier.ram.asked", both.asked, "experts that they needed"),
    RUN("tier.ram.hits", both.hits, "of them in RAM"),
    RUN("tier.ram.read_bytes", both.bytes, "bytes read from disk for the others"),
    RUN("tier.ram.wait_ns", both.wait_ns, "time without anything to compute"),
    RUN("tier.ram.prompt.passes", tiers.prompt.passes, "of prompts: passes through the model"),
    RUN("tier.ram.prompt.asked", tiers.prompt.asked, "of prompts: experts that they needed"),
    RUN("tier.ram.prompt.hits", tiers.prompt.hits, "of prompts: of them in RAM"),
    RUN("tier.ram.prompt.read_bytes", tiers.prompt.bytes, "of prompts: bytes read for the others"),
    RUN("tier.ram.prompt.wait_ns", tiers.prompt.wait_ns, "of prompts: time without anything to compute"),
    RUN("tier.ram.generation.passes", tiers.generation.passes, "of generation: passes through the model"),
    RUN("tier.ram.generation.asked", tiers.generation.asked, "of generation: experts that they needed"),
    RUN("tier.ram.generation.hits", tiers.generation.hits, "of generation: of them in RAM"),
    RUN("tier.ram.generation.read_bytes", tiers.generation.bytes, "of generation: bytes read for the others"),
    RUN("tier.ram.generation.wait_ns", tiers.generation.wait_ns,
        "of generation: time without anything to compute"),
    RUN("tier.ram.evictions", tiers.evictions, "experts that left RAM for others"),
    RUN("tier.ram.yielded", tiers.yielded, "experts that left RAM for a device"),
    RUN("tier.ram.taken", tiers.taken, "experts that came back from a device"),
    RUN("tier.guess.experts", tiers.guessed, "experts that were prefetched"),
    RUN("tier.guess.useful", tiers.useful, "of them needed"),
    RUN("tier.guess.late", tiers.late, "of them needed before they arrived"),
    RUN("tier.guess.wasted", tiers.wasted, "of them never needed"),
    RUN("tier.guess.bytes", tiers.guessed_bytes, "bytes that were prefetched"),
    RUN("tier.guess.known", tiers.known, "experts whose reads began because a step's tokens say them"),
    RUN("tier.skipped", tiers.skipped, "picks that were skipped (`skip_missing`)"),
    RUN("tier.start_bytes", tiers.start_bytes, "bytes read to fill the tiers while the first steps run"),
    RUN("tier.experts", tiers.experts, "experts of this process, in memory or on disk"),
    RUN("tier.expert_bytes", tiers.expert_bytes, "bytes of the model's experts"),
    RUN("tier.layers", tiers.layers, "layers of this process: all, or a rank's part"),
    BOTH("tier.streamed_layers", tiers.streamed_layers, report.streamed_layers,
         "layers that are read from disk for every step"),
    BOTH("tier.layer_buffers", tiers.layer_buffer, report.layer_buffers, "buffers for those layers"),
    RUN("tier.layers_streamed", tiers.layers_streamed, "layers read so far"),
    RUN("tier.layer_bytes", tiers.layer_bytes, "bytes read for them"),
    RUN("tier.layer_wait_ns", tiers.layer_wait_ns, "time waited for them"),
    RUN("disk.reads", tiers.disk_reads, "reads from disk"),
    RUN("disk.read_bytes", tiers.disk_bytes, "bytes read from disk"),
    RUN("disk.busy_ns", tiers.disk_busy_ns, "time in which reads were under way"),
    RUN("disk.probed_bytes_s", tiers.disk_probed_bytes_s, "rate of the disk as probed; 0: it was not"),
    RUN("ram.probed_bytes_s", tiers.ram_probed_bytes_s,
        "rate at which products on the CPU read memory, as probed; 0: it was not"),

    /* A device: all are 0 without one. */
    BOTH("device.present", has_device, has_device, "1: the model has a device"),
    RUN("device.lost", device.lost, "1: it failed, and the CPU took over"),
    BOTH("device.limit_bytes", device.limit_bytes, report.device.ceiling_bytes, "ceiling of device memory"),
    RUN("device.peak_bytes", device.peak_bytes, "most device memory that was allocated"),
    PLAN("device.planned_bytes", report.device.used_bytes, "device memory that the plan gives away"),
    RUN("device.core_bytes", device.core_bytes, "core weights in device memory"),
    RUN("device.work_bytes", device.work_bytes, "working memory on the device"),
    RUN("device.stage_bytes", device.stage_bytes, "staging buffers on the device"),
    BOTH("device.slots", device.slots, report.device.slots, "experts that device memory can hold"),
    RUN("device.filled", device.filled, "experts that it holds now"),
    RUN("device.slot_bytes", device.slot_bytes, "device memory for experts"),
    BOTH("device.hit_rate", device_hit_rate, report.device.hit_rate,
         "share of the chosen experts that was in device memory; of a plan: with evenly spread routing"),
    BOTH("device.streamed_layers", device.streamed_layers, report.device.streamed_layers,
         "layers whose core is copied to the device for every step"),
    BOTH("device.host_layers", device.host_layers, report.device.cpu_layers,
         "of those: layers that the CPU computes, but for prompts"),
    RUN("device.layer_buffer_bytes", device.layer_buffer_bytes, "buffers for streamed layers"),
    RUN("device.streamed_bytes", device.streamed_bytes, "bytes copied for streamed layers"),
    RUN("device.streamed_ns", device.streamed_ns, "time of those copies"),
    RUN("device.host_ns", device.host_ns, "time in which the CPU computed layers of the device"),
    RUN("device.steps", device.steps, "steps of the device"),
    RUN("device.asked", device.asked, "experts chosen"),
    RUN("device.hits", device.hits, "of them in device memory"),
    RUN("device.by_cpu", device.by_cpu, "of them computed by the CPU"),
    RUN("device.fetched", device.fetched, "of them copied to the device and computed there"),
    RUN("device.fetch_failed", device.fetch_failed, "copies of experts that failed"),
    RUN("device.late", device.late, "experts that arrived late: the CPU computed them as well"),
    RUN("device.fetched_bytes", device.fetched_bytes, "bytes of copied experts"),
    RUN("device.cpu_bytes", device.cpu_bytes, "bytes of experts that the CPU computed"),
    RUN("device.wait_ns", device.wait_ns, "time in which the host waited for the device's choice"),
    RUN("device.cpu_ns", device.cpu_ns, "time in which the CPU computed experts"),
    RUN("device.fetch_ns", device.fetch_ns, "time in which copies of experts were in flight"),
    RUN("device.hidden_ns", device.hidden_ns, "of that, while the CPU computed"),
    RUN("device.cpu_bytes_s", device.cpu_bytes_s, "rate at which the CPU computes experts, as measured"),
    RUN("device.link_bytes_s", device.link_bytes_s, "rate of copies to the device, as measured"),
    RUN("device.step_ns", device.step_ns, "time of steps of at most 8 tokens"),
    RUN("device.idle_ns", device.idle_ns, "of that, time in which the device's main stream waited"),
    RUN("device.layer_p50_s", device.layer_p50_s, "median time of a layer that needed the host"),
    RUN("device.layer_p99_s", device.layer_p99_s, "the same: 99 of 100 were faster"),
    RUN("device.round_trip_s", device.round_trip_s, "signal to the host and back, as probed; 0: not known"),
    RUN("device.updates", device.updates, "updates of the hot cache"),
    RUN("device.exchanged", device.exchanged, "experts exchanged in device memory"),
    RUN("device.exchange_failed", device.exchange_failed, "exchanges whose copy failed"),
    RUN("device.link_probed_bytes_s", device.link_probed_bytes_s,
        "rate of the link as probed; 0: it was not"),
    RUN("device.host_probed_bytes_s", device.host_probed_bytes_s,
        "rate of memory under the CPU and copies at once, as probed; 0: it was not"),
    RUN("device.experts_probed_bytes_s", device.experts_probed_bytes_s,
        "rate of the link by copies as large as an expert's matrices, as probed; 0: it was not"),

    /* Layers with some experts not on the device: sums over layers, then each layer. */
    RUN("device.lanes.served", device.lanes.served, "times such a layer was run"),
    RUN("device.lanes.fetched", device.lanes.fetched, "experts that were copied for it"),
    RUN("device.lanes.core_ns", device.lanes.core_ns, "from the last reply until the choice was seen"),
    RUN("device.lanes.turn_ns", device.lanes.turn_ns, "the host's part of round trips"),
    RUN("device.lanes.cpu_ns", device.lanes.cpu_ns, "the CPU's lane"),
    RUN("device.lanes.fetch_ns", device.lanes.fetch_ns, "the fetch lane: copies in flight"),
    RUN("device.lanes.hidden_ns", device.lanes.hidden_ns, "of that, while the CPU computed"),
    RUN("device.lanes.host_wait_ns", device.lanes.host_wait_ns, "the CPU was done and waited for copies"),
    RUN("device.lanes.device_wait_ns", device.lanes.device_wait_ns,
        "the device was done and waited for the reply"),
    RUN("device.lanes.region_ns", device.lanes.region_ns, "from seeing the choice to the reply"),
    RUN("device.fallback.late_copy", device.lanes.fallbacks[MO_FALLBACK_LATE],
        "experts whose copy did not arrive in time"),
    RUN("device.fallback.failed_copy", device.lanes.fallbacks[MO_FALLBACK_FAILED],
        "experts whose copy failed"),
    RUN("device.fallback.no_stage", device.lanes.fallbacks[MO_FALLBACK_NO_STAGE],
        "experts for which the device had no staging buffer"),
    RUN("device.fallback.not_in_ram", device.lanes.fallbacks[MO_FALLBACK_ON_DISK],
        "experts that were on disk when copies began"),
    RUN("device.fallback.not_pinned", device.lanes.fallbacks[MO_FALLBACK_UNPINNED],
        "experts copied from memory that is not pinned, which blocks the host"),
    RUN("device.fallback.other", device.lanes.fallbacks[MO_FALLBACK_OTHER], "other reasons, from a profile"),
    LAYER("device.layer.served", served, "times the layer was run with the host; index: layer"),
    LAYER("device.layer.fetched", fetched, "experts that were copied for it; index: layer"),
    LAYER("device.layer.core_ns", core_ns, "from the last reply until the choice was seen; index: layer"),
    LAYER("device.layer.turn_ns", turn_ns, "the host's part of round trips; index: layer"),
    LAYER("device.layer.cpu_ns", cpu_ns, "the CPU's lane; index: layer"),
    LAYER("device.layer.fetch_ns", fetch_ns, "the fetch lane: copies in flight; index: layer"),
    LAYER("device.layer.hidden_ns", hidden_ns, "of that, while the CPU computed; index: layer"),
    LAYER("device.layer.host_wait_ns", host_wait_ns, "the CPU was done and waited for copies; index: layer"),
    LAYER("device.layer.device_wait_ns", device_wait_ns,
          "the device was done and waited for the reply; index: layer"),
    LAYER("device.layer.region_ns", region_ns, "from seeing the choice to the reply; index: layer"),
    LAYER("device.layer.fallback.late_copy", fallbacks[MO_FALLBACK_LATE],
          "experts whose copy did not arrive in time; index: layer"),
    LAYER("device.layer.fallback.failed_copy", fallbacks[MO_FALLBACK_FAILED],
          "experts whose copy failed; index: layer"),
    LAYER("device.layer.fallback.no_stage", fallbacks[MO_FALLBACK_NO_STAGE],
          "experts for which the device had no staging buffer; index: layer"),
    LAYER("device.layer.fallback.not_in_ram", fallbacks[MO_FALLBACK_ON_DISK],
          "experts that were on disk when copies began; index: layer"),
    LAYER("device.layer.fallback.not_pinned", fallbacks[MO_FALLBACK_UNPINNED],
          "experts copied from memory that is not pinned; index: layer"),
    LAYER("device.layer.fallback.other", fallbacks[MO_FALLBACK_OTHER],
          "other reasons, from a profile; index: layer"),

    /* Single experts. */
    EXPERT("expert.place", place,
           "0: on disk, 1: in RAM, 2: on the device; index: layer * model.experts + expert"),
    EXPERT("expert.picks", picks, "tokens that chose it; index: layer * model.experts + expert"),
    EXPERT("expert.hits", hits, "of those, found in the upper tier; index: layer * model.experts + expert"),
    EXPERT("expert.bytes", bytes,
           "bytes of its weights; 0: there is no such expert; index: layer * model.experts + expert"),

    /* Memory of sessions and snapshots. */
    RUN("kept.total_bytes", kept.total_bytes, "bytes of all blocks of sessions and snapshots"),
    RUN("kept.free_bytes", kept.free_bytes, "of them free"),
    RUN("kept.session_bytes", kept.session_bytes, "of them held by sessions"),
    RUN("kept.snapshot_bytes", kept.snapshot_bytes, "of them held by snapshots alone"),
    RUN("kept.sessions", kept.sessions, "open sessions"),
    RUN("kept.on_device", kept.device, "1: these blocks are in device memory"),
    RUN("kept.spilled_bytes", kept.spilled_bytes, "then, of RAM: held by snapshots that were moved there"),
    RUN("kept.spill_bytes", kept.spill_bytes, "and free for more"),
    RUN("kept.row_bytes", kept.row_bytes, "in RAM, in addition to blocks: of delta snapshots"),

    /* Messages between ranks. */
    RUN("traffic.ranks", traffic.ranks,
        "ranks that share the model; 1: it is not divided, and the rest is 0"),
    RUN("traffic.divide", traffic.divide, "1: by layers, 2: by experts"),
    RUN("traffic.steps", traffic.steps, "steps that were counted"),
    RUN("traffic.tokens", traffic.tokens, "tokens of those"),
    RUN("traffic.sent_bytes", traffic.sent_bytes, "bytes sent by rank 0"),
    RUN("traffic.received_bytes", traffic.received_bytes, "bytes received by rank 0"),
    RUN("traffic.wait_ns", traffic.wait_ns, "time until the last answer arrived"),
    RUN("traffic.work_ns", traffic.work_ns, "of that: compute time of the other ranks"),
    RUN("traffic.least_ns", traffic.least_ns, "least wait_ns - work_ns of a step"),
    RUN("traffic.middle_ns", traffic.middle_ns, "the same for the median of the last 256 steps"),

    /* Prompt time by part, if measured. */
    RUN("split.steps", split.steps, "steps of more than 8 tokens whose parts were timed"),
    RUN("split.tokens", split.tokens, "tokens of those"),
    RUN("split.seconds", split.seconds, "time of those"),
    RUN("split.attention_seconds", split.attention, "attention and recurrent mixers, without their products"),
    RUN("split.products_seconds", split.products, "products by matrices that every token uses"),
    RUN("split.experts_seconds", split.experts, "routed experts; on the CPU also the shared one"),
    RUN("split.routing_seconds", split.routing, "routing"),
    RUN("split.other_seconds", split.other, "norms and sums"),
    RUN("split.copies_seconds", split.copies, "copies that did not overlap with computing"),
    RUN("split.host_seconds", split.host, "the rest"),

    /* Plans: bytes in RAM and on disk. */
    PLAN("ram.core_bytes", report.core_bytes, "in RAM: core"),
    PLAN("ram.vector_bytes", report.vector_bytes, "in RAM: vectors"),
    PLAN("ram.table_bytes", report.table_bytes, "in RAM: embedding"),
    PLAN("ram.kv_bytes", report.kv_bytes, "in RAM: sessions and snapshots"),
    PLAN("ram.work_bytes", report.work_bytes, "in RAM: working memory of steps"),
    PLAN("ram.staging_bytes", report.staging_bytes, "in RAM: staging buffers"),
    PLAN("ram.other_bytes", report.other_bytes, "in RAM: everything else"),
    PLAN("ram.expert_bytes", report.slot_bytes, "in RAM: experts"),
    PLAN("ram.kept_bytes", report.kept_bytes, "of ram.kv_bytes: for snapshots"),
    PLAN("ram.draft_bytes", report.draft_bytes, "of ram.work_bytes: for guesses"),
    PLAN("ram.head_bytes", report.head_bytes, "of that and of ram.other_bytes: MTP head or draft model"),
    PLAN("ram.encoder_bytes", report.encoder_bytes,
         "of ram.other_bytes: the encoder of pictures, and its work"),
    PLAN("ram.least_bytes", report.least_bytes, "lowest ceiling that runs"),
    PLAN("ram.whole_bytes", report.whole_bytes, "lowest ceiling that holds everything"),
    PLAN("ram.available_bytes", report.available_bytes, "available memory at planning time; 0: unknown"),
    PLAN("disk.core_bytes", report.disk_core_bytes, "stays on disk: core"),
    PLAN("disk.table_bytes", report.disk_table_bytes, "stays on disk: embedding"),
    PLAN("disk.expert_bytes", report.disk_expert_bytes, "stays on disk: experts"),
    CLASS("class.bytes", bytes, "bytes of an expert; index: class"),
    CLASS("class.slot_bytes", slot_bytes, "bytes of the slot for it; index: class"),
    CLASS("class.experts", experts, "experts of that size; index: class"),
    CLASS("class.slots", slots, "of them in RAM; index: class"),
    CLASS("class.device_slot_bytes", device_slot_bytes, "bytes of its slot on the device; index: class"),
    CLASS("class.device_slots", device_slots, "of them on the device; index: class"),

    /* The cost of a token. */
    PLAN("token.ram_bytes", report.token_ram_bytes, "bytes that a token finds in RAM"),
    PLAN("token.disk_bytes", report.token_disk_bytes, "bytes that are fetched first"),
    PLAN("token.core_seconds", report.core_seconds, "time of a token: core"),
    PLAN("token.expert_seconds", report.expert_seconds, "time of a token: experts"),
    PLAN("token.disk_seconds", report.disk_seconds, "time of a token: reads"),
    PLAN("token.attention_seconds", report.attention_seconds, "time of a token that reads a full KV cache"),
    PLAN("empty.tokens_per_second", report.empty_tokens_per_second, "speed of the first token of a text"),
    PLAN("full.tokens_per_second", report.full_tokens_per_second, "speed at the end of a full context"),
    PLAN("full.prompt.tokens_per_second", report.full_prompt_tokens_per_second,
         "speed of the last step of a full context; 0: not known"),
    PLAN("prompt.tokens", report.prompt_tokens, "tokens of the long prompt that is expected"),
    PLAN("prompt.precision", report.prompt_precision, "precision of its products: 0: exact, 1: bf16"),

    /* The rates used by a plan. */
    PLAN("rate.ram_bytes_s", report.ram_bytes_s, "rate of memory"),
    PLAN("rate.compute_share", report.compute_share, "share of that rate that products reach"),
    PLAN("rate.disk_bytes_s", report.disk_bytes_s, "rate of the disk"),
    PLAN("rate.disk_learned", report.disk_learned, "1: earlier runs measured it on this file system"),
    PLAN("rate.measured", report.measured, "1: measured; 0: modest defaults"),
    PLAN("rate.device_measured", report.device.measured, "the same of the device's"),
    PLAN("rate.device_memory_bytes_s", report.device.memory_bytes_s, "rate of device memory"),
    PLAN("rate.device_link_bytes_s", report.device.link_bytes_s, "rate of the link"),
    PLAN("rate.device_host_bytes_s", report.device.host_bytes_s, "rate of memory while CPU and link use it"),

    /* A plan's device. */
    PLAN("device.memory_bytes", report.device_bytes, "memory that the device has"),
    PLAN("device.planned_core_bytes", report.device.core_bytes, "in device memory: core"),
    PLAN("device.planned_vector_bytes", report.device.vector_bytes, "in device memory: vectors"),
    PLAN("device.planned_kv_bytes", report.device.kv_bytes, "in device memory: sessions and snapshots"),
    PLAN("device.planned_work_bytes", report.device.work_bytes, "in device memory: working memory"),
    PLAN("device.planned_staging_bytes", report.device.staging_bytes, "in device memory: staging buffers"),
    PLAN("device.planned_layer_buffer_bytes", report.device.layer_buffer_bytes,
         "in device memory: buffers for streamed layers"),
    PLAN("device.planned_expert_bytes", report.device.slot_bytes, "in device memory: experts"),
    PLAN("device.kept_bytes", report.device_kept_bytes, "of device.planned_kv_bytes: for snapshots"),
    PLAN("device.least_bytes", report.device.least_bytes, "lowest ceiling that runs"),
    PLAN("device.whole_bytes", report.device.whole_bytes, "lowest ceiling that holds everything"),
    PLAN("device.layers", report.device.layers, "layers whose core stays on the device"),
    PLAN("device.layer_buffers", report.device.layer_buffers, "buffers for streamed layers"),
    PLAN("device.cold_layers", report.device_cold_layers, "layers whose KV cache is in RAM"),
    PLAN("device.cold_bytes", report.device_cold_bytes, "bytes of that, part of ram.kv_bytes"),
    PLAN("device.fetch", report.device.fetch, "1: missing experts are copied while the CPU works"),
    PLAN("device.fetch_share", report.device.fetch_share, "of the missing bytes"),
    PLAN("device.token_bytes", report.device.token_bytes, "bytes that a token finds in device memory"),
    PLAN("device.token_link_bytes", report.device.token_link_bytes, "bytes that it copies"),
    PLAN("device.encoder_bytes", report.device_encoder_bytes,
         "of device.planned_work_bytes: free for pictures while they are encoded"),
    PLAN("device.core_seconds", report.device.core_seconds, "time of a token: core"),
    PLAN("device.hit_seconds", report.device.hit_seconds, "time of a token: experts in device memory"),
    PLAN("device.miss_seconds", report.device.miss_seconds, "time of a token: other experts"),
    PLAN("device.link_seconds", report.device.link_seconds, "time of a token: copies"),
    PLAN("device.overhead_seconds", report.device.overhead_seconds, "time of a token: launches and signals"),
    CARD("device.each.first_layer", first_layer, "first layer of one of several devices; index: device"),
    CARD("device.each.layers", layers, "its layers; index: device"),
    CARD("device.each.ceiling_bytes", ceiling_bytes, "ceiling of its memory; index: device"),
    CARD("device.each.used_bytes", used_bytes, "of that, given away; index: device"),
    CARD("device.each.core_bytes", core_bytes, "of that, core and vectors; index: device"),
    CARD("device.each.kv_bytes", kv_bytes, "of that, sessions and snapshots; index: device"),
    CARD("device.each.work_bytes", work_bytes, "of that, working memory; index: device"),
    CARD("device.each.staging_bytes", staging_bytes, "of that, staging buffers; index: device"),
    CARD("device.each.expert_bytes", slot_bytes, "of that, experts; index: device"),
    CARD("device.each.slots", slots, "experts that stay there; index: device"),
    CARD("device.each.hit_rate", hit_rate, "share of the experts of its layers; index: device"),
    CARD("device.each.seconds", seconds, "time of a token in its layers; index: device"),

    /* A plan's hot cache: all are 0 without one. */
    PLAN("hot.present", has_hot_cache, "1: there is a hot cache"),
    PLAN("hot.budget_bytes", report.hot.budget_bytes, "memory that it may have"),
    PLAN("hot.used_bytes", report.hot.used_bytes, "memory that it has"),
    PLAN("hot.experts", report.hot.experts, "experts in it"),
    PLAN("hot.filled", report.hot.filled, "of them without picks in the profile"),
    PLAN("hot.layers", report.hot.layers, "layers with experts in it"),
    PLAN("hot.whole_layers", report.hot.whole_layers, "layers with all of theirs in it"),
    PLAN("hot.moves", report.hot.moves, "slots of each size in which updates prepare exchanges"),
    PLAN("hot.hit_rate", report.hot.hit_rate, "share of the profile's picks"),
    PLAN("hot.tokens_per_second", report.hot.tokens_per_second, "speed if a text's picks are those"),
};

const mo_stat *mo_stat_at(int index)
{
    return index >= 0 && (size_t)index < sizeof table / sizeof *table ? &table[index] : NULL;
}

const char *mo_stat_name(int index, const char **about)
{
    const mo_stat *stat = mo_stat_at(index);
    if (stat && about) {
        *about = stat->about;
    }
    return stat ? stat->name : NULL;
}

mo_status mo_stat_find(const char *name, size_t length, const mo_stat **out, mo_error *err)
{
    mo_nearest nearest = {.word = name, .length = length};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) {
            *out = &table[i];
            return MO_OK;
        }
        mo_nearest_offer(&nearest, table[i].name);
    }
    return nearest.best
               ? mo_fail(err, MO_ENOENT, "there is no statistic %.60s; did you mean %s?", name, nearest.best)
               : mo_fail(err, MO_ENOENT, "there is no statistic %.60s; mo_stat_name() lists the names", name);
}

double mo_stat_value(const void *from, mo_stat_member m)
{
    const char *at = (const char *)from + m.offset;
    switch (m.type) {
    case MO_STAT_BOOL: return *(const bool *)at;
    case MO_STAT_INT: return *(const int *)(const void *)at;
    case MO_STAT_UNSIGNED: return *(const unsigned *)(const void *)at;
    case MO_STAT_I64: return (double)*(const int64_t *)(const void *)at;
    case MO_STAT_U64: return (double)*(const uint64_t *)(const void *)at;
    case MO_STAT_DOUBLE: return *(const double *)(const void *)at;
    case MO_STAT_NONE: break;
    }
    return 0;
}

mo_status mo_stat_check_index(const mo_stat *stat, int64_t index, int64_t count, mo_error *err)
{
    if (index >= 0 && index < count) {
        return MO_OK;
    }
    return count ? mo_refuse_member(err, stat->name, "index", "must be 0 to %lld, not %lld",
                                    (long long)count - 1, (long long)index)
                 : mo_refuse_member(err, stat->name, "index", "cannot be %lld: it has no values here",
                                    (long long)index);
}
