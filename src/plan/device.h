/* Plan device: plans the contents of a device's memory and their effect on the time of a token. */
#ifndef MO_PLAN_DEVICE_H
#define MO_PLAN_DEVICE_H

#include "plan/plan.h"

/* Fixed cost of a layer: about ten dependent kernels. 48 to 63 us from one router choice to the next on an
 * H200 (gpt-oss-20b, Qwen3-30B, Qwen3-Next). */
#define MO_PLAN_LAYER_SECONDS 50e-6
/* The same for an attention layer whose experts are in VRAM: its kernels overlap. On an H200: 33 us with
 * gpt-oss-20b, 37 us with Qwen3-30B. */
#define MO_PLAN_JOINED_SECONDS 35e-6
#define MO_PLAN_HAND_SECONDS                                                                                 \
    30e-6 /* hidden rows to the CPU for a layer and back: a round trip and two launches, not measured */
/* a layer asks the host for experts; the rates may have a measured value */
#define MO_PLAN_TRIP_SECONDS 10e-6
#define MO_PLAN_FETCH_SECONDS                                                                                \
    20e-6 /* fixed cost of a layer's fetches without their copies: submitting and joining */

/* How many of `count` streamed layers the CPU computes; `candidates` of them are in RAM. Copies run while the
 * CPU computes, so the slower one counts. cpu_s, link_s: seconds per layer; *seconds: the total. */
int mo_plan_split_layers(int count, int candidates, double cpu_s, double link_s, double *seconds);

/* Bytes of the ceiling that other models hold. */
int64_t mo_plan_vram_held(const mo_plan_limits *limits);

/* Places the core, the sessions and as many experts as fit under limits->vram_bytes. First come parts with no
 * other place (vectors, output matrix, KV cache, working memory, staging), then the layer cores, which every
 * token reads, then experts. ram: a RAM plan that keeps everything; NULL: RAM will get the rest. Returns
 * false if it does not fit; *out then holds the smallest arrangement. */
bool mo_plan_device_place(const mo_plan_model *model, const mo_plan_limits *limits, const mo_run_plan *ram,
                          mo_plan_device *out);

/* Number of layers whose KV cache can move to RAM; `hot` is the plan with all of it in VRAM. 0 unless they
 * are half of the minimum VRAM, since little would be gained. */
int mo_plan_device_kv_movable(const mo_plan_model *model, const mo_plan_device *hot);
/* KV cache bytes of the last `count` of these layers; and the model as the device sees it with this many
 * bytes of KV cache in RAM. */
int64_t mo_plan_device_kv_of_last(const mo_plan_model *model, int count);
mo_plan_model mo_plan_device_kv_to_ram(const mo_plan_model *model, int64_t bytes);

/* What RAM must hold: the core of streamed layers and all expert classes, without sessions. */
mo_plan_model mo_plan_device_rest(const mo_plan_model *model, const mo_plan_device *device);

/* Rates in bytes per second for the model's experts together: the CPU while no missing expert crosses the
 * link, the CPU while some do, and the link. A plan divides the missing experts by them, and so does a run
 * when it starts. */
void mo_plan_device_lanes(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                          double *alone, double *cpu, double *link);

/* Computes the speed of a plan whose placement is decided; hits as in mo_plan_estimate(). */
void mo_plan_device_estimate(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                             const double *hits, mo_run_plan *plan);

#endif
