/* Plan: what is where, before anything is allocated, and how fast that will be: what goes into a plan (a model's needs, a
 * machine's limits) and what comes out. plan/make.h makes one. */
#ifndef MO_PLAN_PLAN_H
#define MO_PLAN_PLAN_H

#include "moraine.h"
#include "plan/location.h"
#include "plan/rates.h"

enum {
    MO_PLAN_CLASSES = 16,
    MO_PLAN_BATCHES = 8,
    MO_PLAN_IN_FLIGHT = 4, /* experts in transit in addition to those in use: enough to keep a disk busy */
    MO_PLAN_LAYER_BUFFERS_LEAST = 2,
    MO_PLAN_LAYER_BUFFERS = 3, /* one layer computes, one has arrived, one is being read */
    /* In VRAM: one layer computes, one arrives, and one place for what is in another order in RAM. One less works, but
     * then nothing arrives while a layer computes. */
    MO_PLAN_DEVICE_LAYER_BUFFERS = 3,
    MO_PLAN_DEVICE_LAYER_BUFFERS_LEAST = 2,
};

/* Experts of one size. */
typedef struct mo_plan_class {
    int64_t bytes;         /* of weights in one expert; the mean where they differ */
    int64_t slot_bytes;    /* of its slot: with the alignment of direct reads, so at least bytes */
    int64_t experts;       /* in the model */
    double used_per_token; /* how many a token computes, over all layers */
    int used;              /* most of them that a token needs in one layer; 0: the model's `used` */
} mo_plan_class;

/* The core of one layer: those of its matrices that can be left on disk and streamed. */
typedef struct mo_plan_layer {
    int64_t bytes;        /* read for it from disk; 0: nothing of it can be streamed */
    int64_t resident;     /* in RAM, where it stays there */
    int64_t buffer_bytes; /* of a layer buffer in RAM */
    int64_t device_bytes; /* in VRAM: of its place there, and of a layer buffer */
    int64_t link_bytes;   /* that cross the link for it */
    int64_t
        group_bytes;    /* of the largest group of rows that RAM interleaves; 0: it keeps the file's layout */
    int size_class;     /* of its experts; -1: it has none */
    int64_t kv_bytes;   /* of device_kv_bytes: its KV cache, if it can be in RAM instead; 0: no */
    int64_t core_bytes; /* of device_core_bytes: its matrices and vectors */
    int64_t state_bytes; /* of device_kv_bytes: its part of the sessions' states */
    int64_t read_bytes;  /* KV cache that a token at the end of a full context reads */
    int queries;         /* heads of a token that read the same of them; 0: 1 */
    int64_t adapter_bytes, adapter_expert_bytes; /* of adapters; those of them that change experts */
    bool
        joined; /* it needs what the layer before it has chosen: both are in the same rank and on the same device */
} mo_plan_layer;

/* What depends on how many tokens of a prompt go through the layers together. */
typedef struct mo_plan_batch {
    int64_t batch;
    int64_t kv_bytes, work_bytes, device_kv_bytes, device_work_bytes, device_idle_bytes, device_host_bytes,
        device_piece_bytes; /* as in mo_plan_model */
} mo_plan_batch;

/* What a model asks for. The caller fills it from a description; nothing is loaded. */
typedef struct mo_plan_model {
    int layers, routed_layers, experts, used;
    int64_t core_bytes;   /* matrices every token reads: with the output matrix, unless it is tied */
    int64_t vector_bytes; /* norms, biases, scales: always in RAM */
    int64_t table_bytes;  /* the embedding: rows come from the file, unless it is tied: then it is the output
                             matrix, is in RAM and every token reads it */
    bool tied;
    int64_t output_bytes;                   /* the output matrix, whichever of the two it is part of */
    mo_plan_class classes[MO_PLAN_CLASSES]; /* routed experts; none: the model is dense */
    int class_count;
    int64_t resident_bytes;     /* of all experts where RAM has them for good; 0: as many as their weights */
    const mo_plan_layer *layer; /* [layers], the caller's; NULL: each counts as the largest */
    bool core_on_cpu;           /* a device has experts alone: the CPU computes the rest of every layer */
    int recurrent_layers;       /* layers without attention */
    int dense_layers;           /* layers whose matrices could be streamed; 0: none */
    int64_t dense_bytes;        /* of those matrices in RAM, part of core_bytes */
    int64_t dense_layer_bytes;  /* of the largest such layer */
    int64_t dense_buffer_bytes; /* of a buffer for it, at least its bytes */
    int64_t kv_bytes;           /* of all sessions at the context asked for, and for snapshots */
    int64_t kept_bytes;         /* for snapshots; part of kv_bytes, only shown */
    int64_t work_bytes;         /* activations of the largest step */
    int64_t other_bytes;        /* vocabulary, file table, program, adapters, heads */
    int64_t head_bytes;         /* of what computes guesses, */
    int64_t draft_bytes;        /* and of guesses; parts of those two, only shown */
    int64_t encoder_bytes;      /* of pictures' encoder, with its work; part of other_bytes, only shown */
    int64_t adapter_bytes;      /* the sum of the layers; part of that, and of what devices hold */
    int64_t rank_bytes;         /* for messages, in a rank among several that has all of it */
    int64_t width;              /* values of a token between two layers, */
    int64_t expert_io;          /* and those that an expert reads and makes */
    int64_t staging_bytes;      /* memory of reads apart from slots, such as embedding rows */
    int in_flight;              /* experts on their way at once; 0: MO_PLAN_IN_FLIGHT */
    int64_t context, batch;     /* as they came out of what was asked for */
    mo_plan_batch batches[MO_PLAN_BATCHES]; /* of which mo_plan_choose() takes one; growing */
    int batch_count;                        /* 0: the batch is decided */
    mo_plan_batch smallest; /* of them, kept when one is taken; its batch is 0 where there was no list */
    /* In VRAM, with the padding that is between matrices there; 0: as in RAM. */
    int64_t device_core_bytes;  /* all matrices and vectors of the core, the output matrix included */
    int64_t device_group_bytes; /* as a layer's group_bytes, of what is not streamed */
    int64_t device_slot_bytes[MO_PLAN_CLASSES]; /* of a slot for an expert of each class */
    int64_t device_kv_bytes;                    /* of all sessions, with their tables, and for snapshots */
    int64_t device_kept_bytes;                  /* for snapshots; part of it, only shown */
    int64_t device_work_bytes;                  /* activations, flags, tables, logits */
    int64_t device_idle_bytes; /* of these, what is free while a layer attends (plan/kv_in_ram.h) */
    int64_t
        device_stage_bytes; /* of an expert on its way, in the layout of RAM and in the file's; 0: in_flight
                                  slots of the largest class serve */
    int64_t device_stage_plain; /* the same where RAM has the file's layout; 0: as device_stage_bytes */
    int64_t device_down_bytes;  /* of an expert's down matrix there, in one layout; 0: not known */
    int64_t device_map_bytes;   /* of the table of experts */
    int64_t device_host_bytes;  /* in RAM, for the device's sake: pinned memory */
    int64_t device_piece_bytes; /* in addition, for each of several devices: for prompts in pieces */
} mo_plan_model;

typedef struct mo_plan_limits {
    int64_t ram_bytes;            /* the ceiling of the process; 0: to be found by mo_plan_limits_find() */
    int64_t reserve_bytes;        /* left to others when the ceiling is found; <0: the stated default */
    int64_t vram_bytes;           /* the ceiling of the device tier; 0: there is no device */
    int64_t ram_held;             /* of the ceiling, by other models of the process */
    int64_t vram_held;            /* likewise */
    int64_t vram_lacking;         /* this much more than vram_bytes was given, but is not free */
    int64_t vram_there;           /* free on the device, whatever the ceiling; 0: not known */
    mo_location_id vram_location; /* whose memory vram_bytes is */
    int64_t available_bytes;      /* what could be had, the reserve included; 0: not known */
    char why[192];                /* what decided the ceiling; may be empty */
    char vram_why[192];           /* the same for vram_bytes */
    int64_t vram_margin;          /* free on the device above a default ceiling */
    bool cpu_moe;                 /* no expert stays in VRAM, but for vram_expert_bytes */
    int64_t vram_expert_bytes;    /* most for experts that stay in VRAM; 0: what is left, none with cpu_moe */
    int64_t staging_bytes;        /* for experts on their way to the device, as given; 0: as many as help */
    mo_postfetch_mode postfetch;  /* how missing experts get to the device; the default is auto */
    bool cpu_layers;              /* the CPU computes some of the layers that do not fit in VRAM */
    /* RAM can do without the device, which then may be lost: it holds all it would need, or has buffers for that, or makes
     * two beyond the ceiling then. What lies in VRAM may be on disk otherwise. Opening a model always asks for that; false is the seam for models whose layers have
     * no other place, and until there are any, tests alone reach it. */
    bool ram_keeps;
    bool plain; /* the first arrangement of RAM that fits is taken, though another may give faster tokens */
} mo_plan_limits;

/* Numbers of the places in a plan's list. */
enum { MO_AT_DISK, MO_AT_RAM, MO_AT_VRAM, MO_PLAN_LOCATIONS };

/* A batch, and what a request takes with it (plan/request.h). */
typedef struct mo_plan_batch_choice {
    int64_t batch;                     /* 0: there is none, or it does not fit */
    int64_t ram_experts, vram_experts; /* that are kept there */
    int64_t work_bytes;                /* where prompts are computed */
    double prompt_seconds, seconds;    /* of its prompt; of all of it */
} mo_plan_batch_choice;

typedef enum mo_plan_mode {
    MO_PLAN_RESIDENT, /* all in RAM, rearranged for speed */
    MO_PLAN_SLOTS,    /* core in RAM, experts in slots and on disk */
    MO_PLAN_STREAMED, /* not all layers are in RAM: the others come from disk through buffers, or are in VRAM, all of
                         them; experts, if any, have the fewest slots */
} mo_plan_mode;

/* What is in the memory of a device, and what it does to a token. */
typedef struct mo_plan_device {
    int64_t ceiling; /* 0: there is no device, and nothing else here is set */
    int64_t core, vectors, kv, work, staging, layer_buffer_bytes, slots; /* bytes in VRAM */
    int64_t used;                                                        /* their sum, at most the ceiling */
    int64_t least;                        /* the lowest ceiling with which the device is of use */
    int64_t whole;                        /* the lowest ceiling with which everything is there */
    int32_t class_slots[MO_PLAN_CLASSES]; /* experts that stay */
    int64_t expert_resident;              /* their bytes */
    int layers, streamed, layer_buffers;  /* layers whose core stays; is streamed; buffers for these */
    int by_cpu;                           /* of the streamed ones: in prompts only, the CPU computes tokens */
    int64_t stage_bytes;                  /* of an expert on its way */
    int64_t
        scratch; /* of staging, for what Post-Fetch copies for tokens: all of it, or less where a limit holds no whole expert */
    bool staged; /* RAM has experts in another layout: they are put in order on their way */
    int64_t margin;     /* free on the device above the default ceiling */
    int64_t upload;     /* bytes of a buffer for sending the core, gone when that is done */
    bool interleaved;   /* RAM has some of the core in another layout: one of the buffers is for the file's */
    double hit_rate;    /* of experts, here; 1 where there are none */
    bool fetch;         /* missing experts cross the link as well, while the CPU computes others */
    double fetch_share; /* of the missing bytes of the classes for which that pays */
    int64_t token_bytes, token_link_bytes; /* a token reads here; crosses the link */
    double core_seconds, hit_seconds;      /* products on the device */
    double miss_seconds;                   /* experts that are not there, by CPU and fetch */
    double link_seconds;     /* streamed layers, beyond their products; mo_plan_kv_in_ram_token() */
    double overhead_seconds; /* launches and round trips */
    char why[192];           /* what decided the ceiling */
    char lane[256];          /* one sentence: why the fetch lane is used or not */
    int kv_in_ram_layers;    /* whose KV cache is in RAM and read over the link: the last that can be */
    int64_t kv_in_ram_bytes; /* of them, part of the plan's kv */
} mo_plan_device;

/* With a device, RAM holds what is not in VRAM: the core of streamed layers and other experts, these always in slots
 * (a device takes them as they are in the file); vectors are in both, since the CPU computes experts too. */
typedef struct mo_run_plan {
    mo_plan_mode mode;
    bool alone; /* what is in VRAM has no copy in RAM */
    mo_location_id
        location[MO_PLAN_LOCATIONS]; /* where things can be: the disk, RAM, and with a device its memory */
    int location_count;
    int64_t ceiling, core, vectors, table, kv, work, other, staging, slots; /* bytes in RAM */
    int64_t used;                          /* their sum, at most the ceiling */
    int64_t least;                         /* the lowest ceiling with which the model runs */
    int64_t whole;                         /* the lowest ceiling with which everything is resident */
    int32_t class_slots[MO_PLAN_CLASSES];  /* those in flight included; 0 when resident */
    int64_t expert_bytes, expert_resident; /* of all experts; of those that are in RAM */
    int dense_resident,
        layer_buffers; /* streamed: layers that stay; buffers for the others, 0: VRAM has these */
    int64_t
        layer_pass; /* without buffers: bytes through which the others are read when the model is opened; not in `used` */
    int64_t token_ram_bytes,
        token_disk_bytes; /* a token finds in RAM, and must fetch; evenly spread routing */
    double hit_rate;      /* of experts; 1 where there are none */
    double core_seconds, expert_seconds, disk_seconds; /* per token: products, products, reads; wherever */
    double tokens_per_second; /* reads and products of a layer overlap, layers do not; 0: nothing to do */
    char why[256];            /* one sentence: what decided the ceiling */
    int64_t prompt_tokens;    /* of a prompt, and what it would take; set by mo_plan_choose() */
    double prompt_seconds;
    char batch_why[192];            /* likewise: what decided the batch */
    mo_plan_batch_choice around[3]; /* the next smaller batch, this one, and the next larger */
    mo_plan_device device;
} mo_run_plan;

#endif
