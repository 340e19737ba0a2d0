/* Plan: where everything goes and how fast it will be, decided before anything is allocated. Defines the
 * input (a model's requirements, a machine's limits) and the output. plan/make.h makes plans. */
#ifndef MO_PLAN_PLAN_H
#define MO_PLAN_PLAN_H

#include "moraine.h"
#include "plan/location.h"
#include "plan/rates.h"

enum {
    MO_PLAN_CLASSES = 16,
    MO_PLAN_BATCHES = 8,
    MO_PLAN_IN_FLIGHT = 4, /* experts in transit besides those in use: enough to keep a disk busy */
    MO_PLAN_LAYER_BUFFERS_LEAST = 2,
    MO_PLAN_LAYER_BUFFERS = 3, /* one computes, one has arrived, one is being read */
    /* In VRAM: one layer computes, one arrives, and one buffer holds data that RAM keeps in another layout.
     * Two buffers work, but then nothing arrives while a layer computes. */
    MO_PLAN_DEVICE_LAYER_BUFFERS = 3,
    MO_PLAN_DEVICE_LAYER_BUFFERS_LEAST = 2,
};

/* Experts of one size. */
typedef struct mo_plan_class {
    int64_t bytes;         /* weights of one expert; the mean if sizes differ */
    int64_t slot_bytes;    /* slot size, at least bytes: includes the alignment of direct reads */
    int64_t experts;       /* in the model */
    double used_per_token; /* experts that a token computes, over all layers */
    int used;              /* maximum that a token uses in one layer; 0: the model's `used` */
} mo_plan_class;

/* The core of one layer: its matrices that can be left on disk and streamed. */
typedef struct mo_plan_layer {
    int64_t bytes;        /* read from disk; 0: nothing can be streamed */
    int64_t resident;     /* in RAM, if it stays there */
    int64_t buffer_bytes; /* layer buffer in RAM */
    int64_t device_bytes; /* in VRAM: permanent, and as a layer buffer */
    int64_t link_bytes;   /* bytes that cross the link */
    /* largest group of rows that RAM interleaves; 0: RAM keeps the file's layout */
    int64_t group_bytes;
    int size_class;      /* class of its experts; -1: no experts */
    int64_t kv_bytes;    /* part of device_kv_bytes: KV cache that can move to RAM; 0: cannot move */
    int64_t core_bytes;  /* part of device_core_bytes: its matrices and vectors */
    int64_t state_bytes; /* part of device_kv_bytes: its session state */
    int64_t read_bytes;  /* KV cache bytes read by a token at the end of a full context */
    int queries;         /* query heads of a token that share a KV head; 0: 1 */
    int64_t adapter_bytes, adapter_expert_bytes; /* adapters; the part that changes experts */
    /* uses the previous layer's router choice: both must be on the same rank and device */
    bool joined;
} mo_plan_layer;

/* Sizes that depend on how many prompt tokens go through the layers together. */
typedef struct mo_plan_batch {
    int64_t batch;
    int64_t kv_bytes, work_bytes, device_kv_bytes, device_work_bytes, device_idle_bytes, device_host_bytes,
        device_piece_bytes; /* as in mo_plan_model */
} mo_plan_batch;

/* A model's requirements. The caller fills it from a description; nothing is loaded. */
typedef struct mo_plan_model {
    int layers, routed_layers, experts, used;
    int64_t core_bytes;   /* matrices every token reads, including the output matrix unless it is tied */
    int64_t vector_bytes; /* norms, biases, scales: always in RAM */
    /* the embedding: rows are read from the file, unless it is tied: then it is also the output matrix, is in
     * RAM and every token reads it */
    int64_t table_bytes;
    bool tied;
    int64_t output_bytes;                   /* the output matrix, tied or not */
    mo_plan_class classes[MO_PLAN_CLASSES]; /* routed experts; none: a dense model */
    int class_count;
    int64_t resident_bytes;     /* all experts if kept in RAM permanently; 0: the size of their weights */
    const mo_plan_layer *layer; /* [layers], owned by the caller; NULL: all layers count as the largest */
    bool core_on_cpu;           /* the device has only experts: the CPU computes the rest of every layer */
    int recurrent_layers;       /* layers without attention */
    int dense_layers;           /* layers whose matrices can be streamed; 0: none */
    int64_t dense_bytes;        /* RAM for those matrices, part of core_bytes */
    int64_t dense_layer_bytes;  /* the largest such layer */
    int64_t dense_buffer_bytes; /* layer buffer for it, at least dense_layer_bytes */
    int64_t kv_bytes;           /* all sessions at the given context, and snapshots */
    int64_t kept_bytes;         /* snapshots; part of kv_bytes, only shown */
    int64_t work_bytes;         /* activations of the largest step */
    int64_t other_bytes;        /* vocabulary, file table, program, adapters, heads */
    int64_t head_bytes;         /* MTP head or draft model; part of other_bytes and work_bytes, only shown */
    int64_t draft_bytes;        /* draft tokens; part of work_bytes, only shown */
    int64_t device_encoder_bytes; /* left on a device for pictures; part of device_work_bytes, only shown */
    int64_t encoder_bytes;        /* image encoder and its working memory; part of other_bytes, only shown */
    int64_t adapter_bytes;        /* sum over the layers; part of other_bytes and of what devices hold */
    int64_t rank_bytes;           /* message buffers of a rank that holds the whole model */
    int64_t width;                /* values per token between two layers */
    int64_t expert_io;            /* input and output values of an expert */
    int64_t staging_bytes;        /* buffers for reads other than experts, such as embedding rows */
    int in_flight;                /* experts in transit at once; 0: MO_PLAN_IN_FLIGHT */
    int64_t context, batch;       /* the final values */
    mo_plan_batch batches[MO_PLAN_BATCHES]; /* candidates for mo_plan_choose(), ascending */
    int batch_count;                        /* 0: the batch is decided */
    mo_plan_batch smallest; /* smallest candidate, kept when one is chosen; batch 0: there was no list */
    /* In VRAM, including the padding between matrices; 0: as in RAM. */
    int64_t device_core_bytes;  /* all matrices and vectors of the core, including the output matrix */
    int64_t device_group_bytes; /* as a layer's group_bytes, for matrices that are not streamed */
    int64_t device_slot_bytes[MO_PLAN_CLASSES]; /* slot for an expert of each class */
    int64_t device_kv_bytes;                    /* all sessions with their tables, and snapshots */
    int64_t device_kept_bytes;                  /* snapshots; part of device_kv_bytes, only shown */
    int64_t device_work_bytes;                  /* activations, flags, tables, logits */
    int64_t device_idle_bytes; /* part that is idle while a layer attends (plan/kv_in_ram.h) */
    /* expert in transit, in RAM's and in the file's layout; 0: as in_flight slots of the largest class */
    int64_t device_stage_bytes;
    int64_t device_stage_plain; /* the same if RAM keeps the file's layout; 0: as device_stage_bytes */
    int64_t device_down_bytes;  /* an expert's down matrix in one layout; 0: not known */
    int64_t device_map_bytes;   /* expert table */
    int64_t device_host_bytes;  /* pinned RAM for the device */
    int64_t device_piece_bytes; /* additional, per device of several: for prompts in pieces */
} mo_plan_model;

typedef struct mo_plan_limits {
    int64_t ram_bytes;            /* ceiling of the process; 0: mo_plan_limits_find() determines it */
    int64_t reserve_bytes;        /* left to other programs when the ceiling is determined; <0: default */
    int64_t vram_bytes;           /* ceiling in VRAM; 0: no device */
    int64_t ram_held;             /* part of the ceiling held by other models of the process */
    int64_t vram_held;            /* likewise */
    int64_t vram_lacking;         /* how much the given ceiling exceeds vram_bytes, because less is free */
    int64_t vram_there;           /* free on the device, whatever the ceiling; 0: not known */
    mo_location_id vram_location; /* the device of vram_bytes */
    int64_t available_bytes;      /* available memory including the reserve; 0: not known */
    char why[192];                /* the reason for the ceiling; may be empty */
    char vram_why[192];           /* the same for vram_bytes */
    int64_t vram_margin;          /* free on the device above a default ceiling */
    bool cpu_moe;                 /* no expert stays in VRAM, except within vram_expert_bytes */
    /* maximum for experts in VRAM; 0: the remaining VRAM, or none with cpu_moe */
    int64_t vram_expert_bytes;
    int64_t staging_bytes;       /* given size of staging for experts; 0: as much as helps */
    mo_postfetch_mode postfetch; /* how missing experts get to the device; default auto */
    bool cpu_layers;             /* the CPU computes some of the layers that do not fit in VRAM */
    /* RAM must be able to run the model if the device is lost: it holds everything needed, or has layer
     * buffers, or allocates two beyond the ceiling when that happens. If false, data in VRAM may
     * otherwise be only on disk. Opening a model always sets it. Only tests clear it: false is for future
     * models whose layers have no other place. */
    bool ram_keeps;
    bool plain; /* use the first arrangement of RAM that fits, even if another may be faster */
} mo_plan_limits;

/* Indexes into a plan's list of locations. */
enum { MO_AT_DISK, MO_AT_RAM, MO_AT_VRAM, MO_PLAN_LOCATIONS };

/* A batch and the cost of a request with it (plan/request.h). */
typedef struct mo_plan_batch_choice {
    int64_t batch;                     /* 0: none, or it does not fit */
    int64_t ram_experts, vram_experts; /* kept there */
    int64_t work_bytes;                /* on the processor that computes prompts */
    double prompt_seconds, seconds;    /* prompt; whole request */
} mo_plan_batch_choice;

typedef enum mo_plan_mode {
    MO_PLAN_RESIDENT, /* everything in RAM, rearranged for speed */
    MO_PLAN_SLOTS,    /* core in RAM, experts in slots and on disk */
    /* some layers are not in RAM: they are read from disk through buffers, or all of them are in VRAM;
     * experts, if any, have the minimum number of slots */
    MO_PLAN_STREAMED,
} mo_plan_mode;

/* The contents of a device's memory and their effect on the speed. */
typedef struct mo_plan_device {
    int64_t ceiling; /* 0: no device, all other fields are unset */
    int64_t core, vectors, kv, work, staging, layer_buffer_bytes, slots; /* bytes in VRAM */
    int64_t used;                                                        /* their sum, at most the ceiling */
    int64_t least;                        /* lowest ceiling with which the device is useful */
    int64_t whole;                        /* lowest ceiling with which everything is in VRAM */
    int32_t class_slots[MO_PLAN_CLASSES]; /* permanent experts */
    int64_t expert_resident;              /* their bytes */
    int layers, streamed, layer_buffers;  /* layers with a permanent core; streamed layers; their buffers */
    /* streamed layers whose single tokens the CPU computes; the device computes prompts */
    int by_cpu;
    int64_t stage_bytes; /* expert in transit */
    /* part of staging that Post-Fetch uses for tokens: all of it, or less if a limit holds no whole expert */
    int64_t scratch;
    bool staged;        /* RAM keeps experts in another layout: they are converted in transit */
    int64_t margin;     /* free on the device above the default ceiling */
    int64_t upload;     /* buffer for uploading the core, freed afterwards */
    bool interleaved;   /* RAM keeps some of the core in another layout: one buffer is for the file's */
    double hit_rate;    /* of experts in VRAM; 1 without experts */
    bool fetch;         /* missing experts are also copied over the link while the CPU computes others */
    double fetch_share; /* share of the missing bytes copied, of classes for which that is faster */
    int64_t token_bytes, token_link_bytes; /* bytes per token: read in VRAM; over the link */
    double core_seconds, hit_seconds;      /* products on the device */
    double miss_seconds;                   /* experts not in VRAM, by CPU and fetch */
    double link_seconds;     /* streamed layers beyond their products; mo_plan_kv_in_ram_token() */
    double overhead_seconds; /* launches and round trips */
    char why[192];           /* the reason for the ceiling */
    char lane[256];          /* one sentence: why experts are fetched or not */
    /* layers whose KV cache is in RAM and read over the link: the last movable ones */
    int kv_in_ram_layers;
    int64_t kv_in_ram_bytes; /* their KV cache, part of the plan's kv */
} mo_plan_device;

/* With a device, RAM holds what is not in VRAM: the core of streamed layers and the other experts. These are
 * always in slots, because a device takes them in the file's layout. Vectors are in both, since the CPU
 * computes experts too. */
typedef struct mo_run_plan {
    mo_plan_mode mode;
    bool alone; /* layers in VRAM have no copy in RAM */
    /* disk, RAM and, with a device, its memory */
    mo_location_id location[MO_PLAN_LOCATIONS];
    int location_count;
    int64_t ceiling, core, vectors, table, kv, work, other, staging, slots; /* bytes in RAM */
    int64_t used;                          /* their sum, at most the ceiling */
    int64_t least;                         /* lowest ceiling with which the model runs */
    int64_t whole;                         /* lowest ceiling with which everything is resident */
    int32_t class_slots[MO_PLAN_CLASSES];  /* including those in transit; 0 when resident */
    int64_t expert_bytes, expert_resident; /* all experts; experts in RAM */
    int dense_resident,
        layer_buffers; /* streamed: permanent layers; buffers for the others, 0: they are in VRAM */
    /* without buffers: buffer for reading the others when the model is opened; not in `used` */
    int64_t layer_pass;
    int64_t token_ram_bytes,
        token_disk_bytes; /* bytes per token: found in RAM; read from other tiers; evenly spread routing */
    double hit_rate;      /* of experts; 1 without experts */
    /* per token: products, products, reads; on any processor */
    double core_seconds, expert_seconds, disk_seconds;
    /* reads and products overlap within a layer, layers do not overlap; 0: no work */
    double tokens_per_second;
    char why[256];         /* one sentence: the reason for the ceiling */
    int64_t prompt_tokens; /* of a prompt; set by mo_plan_choose(), with its time in prompt_seconds */
    double prompt_seconds;
    char batch_why[192];            /* one sentence: the reason for the batch */
    mo_plan_batch_choice around[3]; /* the next smaller batch, this one, the next larger */
    mo_plan_device device;
} mo_run_plan;

#endif
