#include "plan/prompt.h"

#include <math.h>
#include <stdio.h>

#include "plan/batch.h"
#include "plan/make.h"
#include "plan/request.h"
#include "plan/share.h"
#include "plan/text.h"

/* A smaller batch is taken if its request takes at most this much longer: memory has other uses. */
#define NEARLY 1.01

/* What limits the batch. */
typedef enum limit { LIMIT_NONE, LIMIT_MEMORY, LIMIT_STAGING, LIMIT_TOKENS } limit;

/* Every batch with both arrangements of RAM. */
enum { WAYS = 2, CANDIDATES = WAYS * MO_PLAN_BATCHES };

/* Their results. */
typedef struct trial {
    double seconds[CANDIDATES]; /* of a request */
    double speed[CANDIDATES];   /* answer tokens per second */
    bool fits[CANDIDATES];
    mo_plan_batch_choice choice[CANDIDATES];
    int64_t lacking[CANDIDATES]; /* missing bytes of the requested staging */
    int64_t least_lacking;
    double best_speed; /* of the candidates that lack no more than least */
    int count;
} trial;

static void estimate(const mo_plan_model *m, const mo_rates *r, mo_run_plan *p)
{
    p->prompt_tokens = mo_plan_request_prompt(m->context);
    p->prompt_seconds = mo_plan_prompt_seconds(m, r, p, p->prompt_tokens);
}

/* Working memory of the processor that computes prompts. */
static int64_t work_of(const mo_plan_model *m, const mo_run_plan *p)
{
    return p->device.ceiling && !m->core_on_cpu ? p->device.work : p->work;
}

/* Number of experts kept in RAM and VRAM; if all are resident, all of them. */
static mo_plan_batch_choice describe(const mo_plan_model *m, const mo_rates *r, const mo_run_plan *p)
{
    mo_plan_batch_choice c = {.batch = m->batch,
                              .work_bytes = work_of(m, p),
                              .prompt_seconds = p->prompt_seconds,
                              .seconds = mo_plan_request_seconds(m, r, p)};
    for (int i = 0; i < m->class_count; i++) {
        c.ram_experts += p->mode == MO_PLAN_RESIDENT ? m->classes[i].experts : p->class_slots[i];
        c.vram_experts += p->device.class_slots[i];
    }
    return c;
}

/* The faster of a batch's two arrangements of RAM. */
static mo_plan_batch_choice better_of(const trial *t, int batch)
{
    const int i = batch * WAYS;
    if (batch < 0 || i >= t->count || !(t->fits[i] || t->fits[i + 1])) {
        return (mo_plan_batch_choice){.batch = 0};
    }
    const bool second = !t->fits[i] || (t->fits[i + 1] && t->seconds[i + 1] < t->seconds[i]);
    return t->choice[second ? i + 1 : i];
}

/* Explains the choice of the batch. */
static void explain(const mo_plan_model *m, const mo_run_plan *p, limit why, char *text, size_t size)
{
    const mo_plan_batch_bytes b =
        mo_plan_batch_bytes_of(m, p, (double)(m->batch < p->prompt_tokens ? m->batch : p->prompt_tokens));
    const int64_t times = (p->prompt_tokens + m->batch - 1) / m->batch;
    char bytes[32], work[32];
    mo_plan_size_text((int64_t)fmin(fmax(b.disk, b.link), 1e18), bytes);
    mo_plan_size_text(work_of(m, p), work);
    if (why == LIMIT_MEMORY) {
        snprintf(text, size, "a larger one does not fit into %s", p->device.ceiling ? "VRAM or RAM" : "RAM");
    } else if (why == LIMIT_STAGING) {
        snprintf(text, size, "a larger one would use the memory for experts in transit");
    } else if (why == LIMIT_TOKENS) {
        snprintf(text, size, "a larger one would slow generation down by more than a tenth");
    } else if (b.disk > 0 || b.link > 0) {
        snprintf(text, size,
                 "a prompt of %lld tokens then reads %s %s %lld time%s; worth %s of working memory",
                 (long long)p->prompt_tokens, bytes, b.disk > 0 ? "from disk" : "over the link",
                 (long long)times, times == 1 ? "" : "s", work);
    } else {
        snprintf(text, size, "weights are in memory, and a larger one would save less than 1 %%");
    }
}

/* A given staging size overrides the choice of the batch, unless no expert is ever in transit. */
static int64_t lacks(const mo_plan_limits *l, const mo_plan_device *d)
{
    const int64_t most = mo_plan_times(MO_PLAN_STAGES, d->stage_bytes);
    const int64_t asked = l->staging_bytes < most ? l->staging_bytes : most;
    return d->hit_rate >= 1 || asked - d->staging < MO_PLAN_GRAIN ? 0 : asked - d->staging;
}

static bool has_stages(const trial *t, int i)
{
    return t->fits[i] && t->lacking[i] <= t->least_lacking;
}

/* True if a batch leaves tokens nearly as fast as the best batch for them. */
static bool allowed(const trial *t, int i)
{
    return has_stages(t, i) && t->speed[i] * MO_PLAN_TOKEN_WORTH >= t->best_speed;
}

static void compare(trial *t)
{
    t->least_lacking = INT64_MAX;
    for (int i = 0; i < t->count; i++) {
        t->least_lacking = t->fits[i] && t->lacking[i] < t->least_lacking ? t->lacking[i] : t->least_lacking;
    }
    for (int i = 0; i < t->count; i++) {
        t->best_speed = has_stages(t, i) ? fmax(t->best_speed, t->speed[i]) : t->best_speed;
    }
}

/* The smallest of the batches whose request is nearly the fastest. */
static int choose(const trial *t)
{
    double best = INFINITY;
    for (int i = 0; i < t->count; i++) {
        best = allowed(t, i) ? fmin(best, t->seconds[i]) : best;
    }
    for (int i = 0; i < t->count; i++) {
        if (allowed(t, i) && t->seconds[i] <= best * NEARLY) {
            return i;
        }
    }
    return 0; /* not a number: nothing to compare */
}

/* Why no larger batch was taken. */
static limit limit_of(const trial *t, int chosen)
{
    const int next = (chosen / WAYS + 1) * WAYS;
    limit why = next < t->count && !t->fits[next] ? LIMIT_MEMORY : LIMIT_NONE;
    for (int i = next; i < t->count; i++) {
        if (t->fits[i] && !allowed(t, i) && t->seconds[i] < t->seconds[chosen]) {
            why = has_stages(t, i) ? LIMIT_TOKENS : LIMIT_STAGING;
        }
    }
    return why;
}

mo_status mo_plan_choose(mo_plan_model *model, const mo_plan_limits *l, const mo_rates *r, mo_run_plan *out,
                         mo_error *err)
{
    const int batches = model->batch_count;
    const mo_plan_batch none = {0};
    mo_plan_limits limits = *l;
    trial t = {.count = WAYS * (batches ? batches : 1)};
    for (int i = 0; i < t.count; i++) {
        const mo_plan_model one = batches ? mo_plan_with_batch(model, &model->batches[i / WAYS]) : *model;
        limits.plain = i % WAYS == 1;
        const mo_status status = mo_plan_make(&one, &limits, r, out, i == 0 ? err : NULL);
        if (status != MO_OK && i == 0) {
            return status; /* larger batches need more */
        }
        t.fits[i] = status == MO_OK;
        if (t.fits[i]) {
            estimate(&one, r, out);
            t.choice[i] = describe(&one, r, out);
            t.seconds[i] = t.choice[i].seconds;
            t.speed[i] = out->tokens_per_second;
            t.lacking[i] = lacks(l, &out->device);
        }
    }
    compare(&t);
    const int chosen = choose(&t);
    model->smallest = batches ? model->batches[0] : none;
    *model = batches ? mo_plan_with_batch(model, &model->batches[chosen / WAYS]) : *model;
    limits.plain = chosen % WAYS == 1;
    const mo_status status = mo_plan_make(model, &limits, r, out,
                                          err); /* recomputed: keeping all plans would need too much stack */
    if (status != MO_OK) {
        return status;
    }
    estimate(model, r, out);
    out->around[1] = describe(model, r, out);
    if (batches) {
        out->around[0] = better_of(&t, chosen / WAYS - 1);
        out->around[2] = better_of(&t, chosen / WAYS + 1);
        explain(model, out, limit_of(&t, chosen), out->batch_why, sizeof out->batch_why);
    } else {
        snprintf(out->batch_why, sizeof out->batch_why, "as requested");
    }
    return MO_OK;
}
