/* Placement: which layers are where. A plan says how many layers RAM leaves on disk, how many are streamed to the device
 * and how many of those the CPU computes; which ones these are follows from the numbers alone, so the code that loads, streams
 * or shows them asks here. Pure arithmetic; nothing is kept. */
#ifndef MO_PLAN_PLACEMENT_H
#define MO_PLAN_PLACEMENT_H

#include "plan/plan.h"

/* The core of one layer. The file always has it. A layer that is kept in VRAM alone has no copy in RAM; one that is kept
 * nowhere comes from disk for every token. */
typedef struct mo_layer_location {
    uint32_t kept; /* bit p: in place p of the plan's list, for good */
    int runs; /* the place whose processor computes it in small steps; prompts are a device's wherever there is one */
} mo_layer_location;

static inline bool mo_layer_kept(const mo_layer_location *l, int location)
{
    return l->kept >> location & 1;
}

/* What is carried out: the caller keeps all three. */
typedef struct mo_placement {
    const mo_plan_model *model;
    const mo_run_plan *plan;
    const mo_layer_location *layers; /* [model->layers] */
} mo_placement;

/* Fills out[model->layers] as the plan of this model has it. */
void mo_placement_list(const mo_plan_model *model, const mo_run_plan *plan, mo_layer_location *out);

/* ---- For the files that make plans ---- */

/* How many layers have no place somewhere. */
typedef struct mo_placement_counts {
    int on_disk;  /* not in RAM */
    int streamed; /* not in VRAM; without a device all of them */
    int by_cpu;   /* of the streamed ones that are in RAM */
    bool alone;   /* what stays in VRAM has no copy in RAM: on_disk counts the streamed ones alone */
} mo_placement_counts;

/* What the layers take then. Only layers that can be streamed count. */
typedef struct mo_placement_sums {
    int64_t ram_bytes, ram_buffer_bytes; /* of those in RAM; of a buffer for the largest of the others */
    int64_t device_bytes,
        device_buffer_bytes;  /* of those in VRAM; of a buffer for the largest of the others */
    int64_t group_bytes;      /* the largest of those in RAM */
    int from_disk;            /* streamed to the device, and not in RAM */
    int64_t token_disk_bytes; /* of the layers on disk that a token needs in RAM: all, or from_disk */
    int64_t token_link_bytes; /* of those that cross the link for a token */
} mo_placement_sums;

mo_placement_sums mo_placement_sum(const mo_plan_model *model, mo_placement_counts counts);

/* The counts of a plan. */
mo_placement_counts mo_placement_counts_of(const mo_plan_model *model, const mo_run_plan *plan);

/* How many layers RAM can hold for good when `bytes` are left for them and for buffers of the others; -1: even all of
 * them on disk take more. `counts` says what is decided already. */
int mo_placement_fill_ram(const mo_plan_model *model, mo_placement_counts counts, int buffers, int64_t bytes);

/* How many have to be streamed through how many buffers when `bytes` of VRAM are left for layers and buffers. False when it
 * does not fit however many are. *least: the fewest bytes with which it does. */
bool mo_placement_fill_device(const mo_plan_model *model, mo_placement_counts counts, bool interleaved,
                              int64_t bytes, int *streamed, int *buffers, int64_t *least);

#endif
