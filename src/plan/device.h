/* Plan device: the part of a plan that is in a device's memory, and what it makes of a token's time. */
#ifndef MO_PLAN_DEVICE_H
#define MO_PLAN_DEVICE_H

#include "plan/plan.h"

/* What a layer's work takes beyond its bytes: some ten kernels, each waiting for the one before. On an H200 48 to 63 us
 * from one choice of experts to the next (gpt-oss-20b, Qwen3-30B, Qwen3-Next). */
#define MO_PLAN_LAYER_SECONDS 50e-6
/* The same of a layer of attention whose experts are in VRAM: its kernels start while others end. 33 us on an H200 with gpt-oss-20b, 37 with Qwen3-30B. */
#define MO_PLAN_JOINED_SECONDS 35e-6
#define MO_PLAN_HAND_SECONDS                                                                                 \
    30e-6 /* hidden rows to the CPU for a layer, and back: a round trip and two launches, not measured */
#define MO_PLAN_TRIP_SECONDS 10e-6 /* a layer asks the host for experts; rates may know better */
#define MO_PLAN_FETCH_SECONDS                                                                                \
    20e-6 /* cost of a layer's fetches without their copies: submitting and joining */

/* How many of `count` streamed layers the CPU computes, of `candidates` that are in RAM: copies run while it does, so
 * the slower of the two counts. Seconds of one layer by each; *seconds of all. */
int mo_plan_split_layers(int count, int candidates, double cpu_s, double link_s, double *seconds);

/* Of the ceiling, by other models. */
int64_t mo_plan_vram_held(const mo_plan_limits *limits);

/* Places the core, the sessions and as many experts as fit under limits->vram_bytes. First what has no other place
 * (vectors, output matrix, KV cache, working memory, staging for experts in transit), then the core of layers,
 * which every token reads, then experts. ram: the plan of RAM, which keeps everything; NULL: RAM will have the rest. False:
 * it does not fit, and *out holds the smallest arrangement. */
bool mo_plan_device_place(const mo_plan_model *model, const mo_plan_limits *limits, const mo_run_plan *ram,
                          mo_plan_device *out);

/* Number of layers whose KV cache can be in RAM instead, which `hot`, placed without that, has them in VRAM: none unless they are
 * half of the least that it needs, since little would be gained. */
int mo_plan_device_kv_movable(const mo_plan_model *model, const mo_plan_device *hot);
/* Bytes of the KV cache of the last `count` of these, and the model as the device sees it with so many bytes of it in RAM. */
int64_t mo_plan_device_kv_of_last(const mo_plan_model *model, int count);
mo_plan_model mo_plan_device_kv_to_ram(const mo_plan_model *model, int64_t bytes);

/* What is left for RAM: the core of streamed layers, experts' classes as they were, no sessions. */
mo_plan_model mo_plan_device_rest(const mo_plan_model *model, const mo_plan_device *device);

/* Bytes a second of the CPU while no missing expert crosses, of it while some do, and of the link, for the model's experts together: what a plan divides
 * them by, and a run at its beginning. */
void mo_plan_device_lanes(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan,
                          double *alone, double *cpu, double *link);

/* Fills the speed of a plan whose places are decided; hits as in mo_plan_estimate(). */
void mo_plan_device_estimate(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                             const double *hits, mo_run_plan *plan);

#endif
