/* Models in three tiers, for tests: ceilings that put shares of the built-in model's experts into each, what lies where, and a model
 * put together by hand, for what options do not say. */
#ifndef MO_TESTS_TIER_CASE_H
#define MO_TESTS_TIER_CASE_H

#include "api/model.h"
#include "check.h"
#include "device/sim/sim.h"
#include "engine/session.h"
#include "gpu/objects.h"
#include "gpu_case.h"
#include "lanes.h"

enum { VOCAB = 4096, EXPERTS = 448, PROMPT = 512 };

static int32_t tokens[PROMPT + 256];

static inline int make_tokens(void **state)
{
    (void)state;
    name_device();
    for (int i = 0; i < PROMPT + 256; i++) {
        tokens[i] = (i * 7919 + i * i * 31 + 11) % VOCAB;
    }
    return 0;
}

/* What a plan counts is the same for every device, and a real one takes a while to open. */
static inline mo_plan_report plan_for(const setting *s)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_model_options ask = {.size = sizeof(mo_model_options),
                                  .environment = true,
                                  .context = 600,
                                  .batch = s->batch,
                                  .sessions = s->sessions,
                                  .device = "sim",
                                  .ram_bytes = s->ram,
                                  .vram_bytes = s->vram,
                                  .threads = 2};
    if (mo_plan_file(MO_TEST_MODEL, &ask, NULL, &plan, sizeof plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return plan;
}

static inline mo_plan_report plan_of(int64_t ram, int64_t vram)
{
    return plan_for(&(setting){.ram = ram, .vram = vram, .batch = 64});
}

/* Ceilings with which at least such shares of the experts have slots in each tier. */
static inline setting tiers_of(double in_vram, double in_ram)
{
    setting s = {.device = device_name, .ram = (int64_t)64 << 20, .vram = (int64_t)64 << 20, .batch = 64};
    const mo_plan_report whole = plan_of(s.ram, s.vram);
    s.vram = whole.device.least_bytes;
    s.ram = whole.least_bytes + (1 << 19);
    while ((double)plan_of((int64_t)64 << 20, s.vram).classes[0].device_slots < in_vram * EXPERTS) {
        s.vram += 1 << 17;
    }
    while ((double)plan_of(s.ram, s.vram).classes[0].slots < in_ram * EXPERTS) {
        s.ram += 1 << 17;
    }
    return s;
}

typedef struct counts {
    mo_tier_report ram;
    mo_device_report vram;
} counts;

static inline counts count(mo_model *model)
{
    counts c;
    mo_model_tiers(model, &c.ram, sizeof c.ram);
    mo_model_device(model, &c.vram, sizeof c.vram);
    return c;
}

/* As if the CPU were so slow that experts had better cross the link: the built-in model's are too small for that. */
static inline void slow_cpu(mo_model *model)
{
    start_cpu(model->gpu, 2e7);
}

/* Experts that VRAM has and RAM has not, or that both have. */
static inline int in_vram(const mo_gpu *gpu, const mo_model_spec *spec, bool also_in_ram)
{
    int count = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        for (int e = 0; spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
            count += (mo_where_address(mo_gpu_where(gpu, i), i, e) != 0) &&
                     mo_store_resident(gpu->experts.where.store, i, e) == also_in_ram;
        }
    }
    return count;
}

/* ---- Parts put together by hand, for what options do not say ---- */

typedef struct rigged {
    setting set;
    bool least_slots;                         /* RAM has as few as a token needs */
    bool known;                               /* a profile has seen every expert, the last ones most */
    int universal;                            /* of these, so many are universal */
    const mo_policy *policy;                  /* of VRAM's slots; NULL: the default */
    double link_bytes_s, link_copy_s, call_s; /* of a simulated device */
    int64_t staging;                          /* limit for experts on their way to the device; 0: none */
    const mo_kernels *kernels;                /* the CPU's; NULL: the best */
    mo_status (*fault)(void *user, const mo_read *read, int64_t offset, int64_t *bytes);
    void *fault_user;
} rigged;

typedef struct rig {
    mo_pool *pool;
    mo_resources resources;
    mo_opened opened;
    mo_gpu *gpu;
    mo_engine *engine;
    mo_session *session;
    mo_error err;
} rig;

static inline void rig_open_gpu(rig *r, const rigged *how, const mo_requirements_options *requirements)
{
    static mo_store_request known[EXPERTS];
    const mo_model_spec *spec = mo_checkpoint_spec(r->opened.model);
    int32_t count = 0;
    for (int e = EXPERTS; how->known && e-- > 0;) {
        for (int i = 0; i < spec->layer_count; i++) {
            if (spec->layers[i].routed && e < spec->layers[i].moe.experts) {
                known[count] = (mo_store_request){.layer = i,
                                                  .expert = e,
                                                  .hits = (uint64_t)(EXPERTS - count),
                                                  .keep = count < how->universal};
                count++;
            }
        }
    }
    const mo_gpu_options options = {
        .device = r->resources.device,
        .batch = requirements->batch,
        .context = requirements->context,
        .states = mo_requirements_states(requirements, requirements->batch, requirements->context, true),
        .placement = mo_choice_view(&r->opened.choice),
        .tiers = r->opened.tiers,
        .postfetch = &r->resources.postfetch,
        .policy = how->policy,
        .requests = known,
        .request_count = count};
    check_status(mo_gpu_open(r->opened.model, &options, &r->gpu, &r->err), &r->err);
}

/* The store again, with a slot more than a token needs. */
static inline void rig_shrink(rig *r)
{
    mo_tiers_options t = {.layer_slots = 2, .predict = true};
    const mo_expert_table *experts = mo_store_experts(r->opened.tiers->store);
    for (int i = 0; i < experts->class_count; i++) {
        t.store.class_slots[i] = experts->classes[i].used + 1;
    }
    mo_tiers_close(r->opened.tiers);
    check_status(mo_tiers_open(r->opened.model, &t, &r->opened.tiers, &r->err), &r->err);
}

static inline void rig_open(rig *r, const rigged *how)
{
    const mo_kernels *kernels = NULL;
    const mo_model_options asked = {.environment = true,
                                    .ram_bytes = how->set.ram,
                                    .vram_bytes = how->set.vram,
                                    .device = device_name,
                                    .cpu_moe = how->set.cpu_moe,
                                    .postfetch = how->set.postfetch,
                                    .sessions = 1};
    *r = (rig){.err = {.detail = ""}};
    check_status(mo_kernels_select(NULL, &kernels, &r->err), &r->err);
    kernels = how->kernels ? how->kernels : kernels;
    check_status(mo_pool_create(2, &r->pool, &r->err), &r->err);
    check_status(
        mo_resources_find(&(mo_resources_ask){.options = &asked, .to_open = true}, &r->resources, &r->err),
        &r->err);
    r->resources.limits.staging_bytes = how->staging;
    if (how->link_bytes_s > 0) {
        mo_device_close(r->resources.device);
        const mo_sim_options sim = {
            .link_bytes_s = how->link_bytes_s, .link_copy_s = how->link_copy_s, .call_s = how->call_s};
        check_status(mo_sim_open(&sim, &r->resources.device, &r->err), &r->err);
    }
    const mo_requirements_options requirements = {
        .asked = &asked, .batch = 64, .context = 600, .threads = 2, .interleave = kernels->interleave};
    mo_open_options options = {.resources = &r->resources,
                               .requirements = requirements,
                               .disk = {.fault = how->fault, .fault_user = how->fault_user},
                               .predict = true,
                               .pool = r->pool};
    check_status(mo_opened_make(MO_TEST_MODEL, &options, &r->opened, &r->err), &r->err);
    if (how->least_slots) {
        rig_shrink(r);
    }
    rig_open_gpu(r, how, &requirements);
    const mo_engine_options engine = {.kernels = kernels,
                                      .pool = r->pool,
                                      .batch = requirements.batch,
                                      .context = requirements.context,
                                      .tiers = r->opened.tiers,
                                      .accelerator = mo_gpu_accelerator(r->gpu),
                                      .states = mo_requirements_states(&requirements, 0, 0, false)};
    check_status(mo_engine_create(r->opened.model, &engine, &r->engine, &r->err), &r->err);
    check_status(mo_engine_session_open(r->engine, MO_KV_I16, requirements.context, &r->session, &r->err),
                 &r->err);
}

static inline void rig_close(rig *r)
{
    mo_session_close(r->session);
    mo_engine_destroy(r->engine);
    mo_gpu_close(r->gpu);
    mo_device_close(r->resources.device);
    mo_opened_drop(&r->opened);
    mo_pool_destroy(r->pool);
}

#endif
