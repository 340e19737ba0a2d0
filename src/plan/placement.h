/* Placement: where each layer is. A plan only says how many layers are not in RAM, how many are streamed to
 * the device and how many of those the CPU computes. Which layers these are follows from the numbers; all
 * code that loads, streams or shows layers asks here. Pure arithmetic without state. */
#ifndef MO_PLAN_PLACEMENT_H
#define MO_PLAN_PLACEMENT_H

#include "plan/plan.h"

/* Location of one layer's core. The file always has it. A layer kept only in VRAM has no copy in RAM; a layer
 * kept nowhere is read from disk for every token. */
typedef struct mo_layer_location {
    uint32_t kept; /* bit p: kept permanently at location p of the plan's list */
    /* location whose processor computes it in small steps; a device, if there is one, computes prompts */
    int runs;
} mo_layer_location;

static inline bool mo_layer_kept(const mo_layer_location *l, int location)
{
    return l->kept >> location & 1;
}

/* The placement to carry out. The caller owns all three parts. */
typedef struct mo_placement {
    const mo_plan_model *model;
    const mo_run_plan *plan;
    const mo_layer_location *layers; /* [model->layers] */
} mo_placement;

/* Fills out[model->layers] for this plan. */
void mo_placement_list(const mo_plan_model *model, const mo_run_plan *plan, mo_layer_location *out);

/* ---- For modules that make plans ---- */

/* How many layers are missing from a tier. */
typedef struct mo_placement_counts {
    int on_disk;  /* not in RAM */
    int streamed; /* not in VRAM; all layers without a device */
    int by_cpu;   /* streamed layers in RAM that the CPU computes */
    bool alone;   /* layers in VRAM have no copy in RAM: on_disk then counts streamed layers only */
} mo_placement_counts;

/* Bytes of the layers. Only streamable layers count. */
typedef struct mo_placement_sums {
    int64_t ram_bytes, ram_buffer_bytes;       /* layers in RAM; a buffer for the largest of the others */
    int64_t device_bytes, device_buffer_bytes; /* layers in VRAM; a buffer for the largest of the others */
    int64_t group_bytes;                       /* largest of the layers in RAM */
    int from_disk;                             /* streamed to the device and not in RAM */
    int64_t token_disk_bytes; /* layers on disk that a token needs in RAM: all, or from_disk */
    int64_t token_link_bytes; /* layers that cross the link for a token */
} mo_placement_sums;

mo_placement_sums mo_placement_sum(const mo_plan_model *model, mo_placement_counts counts);

/* The counts of a plan. */
mo_placement_counts mo_placement_counts_of(const mo_plan_model *model, const mo_run_plan *plan);

/* How many layers RAM can hold permanently if `bytes` are left for them and for buffers of the others. -1:
 * they do not fit even with all layers on disk. `counts` holds earlier decisions. */
int mo_placement_fill_ram(const mo_plan_model *model, mo_placement_counts counts, int buffers, int64_t bytes);

/* How many layers must be streamed, through how many buffers, if `bytes` of VRAM are left for layers and
 * buffers. Returns false if no number fits. *least: the fewest bytes that fit. */
bool mo_placement_fill_device(const mo_plan_model *model, mo_placement_counts counts, bool interleaved,
                              int64_t bytes, int *streamed, int *buffers, int64_t *least);

#endif
