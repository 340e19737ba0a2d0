#include "plan/prompt.h"

#include <math.h>
#include <stdio.h>

#include "plan/batch.h"
#include "plan/cold.h"
#include "plan/device.h"
#include "plan/make.h"
#include "plan/placement.h"
#include "plan/request.h"
#include "plan/share.h"
#include "plan/text.h"

/* As MO_PLAN_CPU_REUSE: 7.5 and 8 on an H200 (Qwen3-30B 13,900 and gpt-oss-20b 14,300 tokens/s, prompts of 2048). */
#define DEVICE_REUSE 8.0
/* A layer of a batch on a device: some twenty launches, and the choice's way to the host and back. */
#define BATCH_LAYER_SECONDS 150e-6
/* Experts that cross together at most, as gpu/windows.c has it. */
#define WINDOW 16
/* A smaller batch is taken when its request takes at most so much longer: memory has other uses. */
#define NEARLY 1.01

/* Bytes of a batch, by where they are found. */
typedef struct batch_bytes {
    double used;   /* read by products, each once: the core and the experts that somebody chose */
    double token;  /* multiplied, for one token */
    double link;   /* that cross to the device, */
    double copies; /* and in how many copies */
    double disk;   /* that are read from disk first */
} batch_bytes;

double mo_plan_share_used(double used, double experts, double tokens)
{
    return experts > used ? -expm1(tokens * log1p(-used / experts)) : 1;
}

static void add_class(const mo_plan_model *m, const mo_plan *p, int i, double tokens, batch_bytes *b)
{
    const mo_plan_class *c = &m->classes[i];
    const int used = c->used ? c->used : m->used;
    const double bricks = (double)c->bricks;
    if (c->bricks == 0 || used == 0) {
        return;
    }
    const double layers = c->used_per_token / used, experts = layers > 0 ? bricks / layers : bricks;
    const double bytes = bricks * (double)c->bytes * mo_plan_share_used(used, experts, tokens);
    const double here = (double)p->device.class_slots[i] / bricks;
    const double in_ram = p->mode == MO_PLAN_RESIDENT ? 1 : (double)p->class_slots[i] / bricks;
    const double there = fmin(1, here + in_ram); /* what lies in VRAM leaves its place in RAM */
    /* Experts that are neighbours in RAM and cross together are one copy for each of their matrices; what comes from disk
     * crosses by itself. */
    const double crossing = mo_plan_share_used(used, experts, tokens) * (1 - here);
    const double apart = in_ram < 1 ? 1 : fmax(1 - crossing, 1.0 / WINDOW);
    b->copies += p->device.ceiling ? bricks * crossing * apart * MO_RATES_EXPERT_COPIES : 0;
    b->used += bytes;
    b->token += c->used_per_token * (double)c->bytes;
    b->link += p->device.ceiling ? bytes * (1 - here) : 0;
    b->disk += bytes * (1 - there);
}

static batch_bytes count_bytes(const mo_plan_model *m, const mo_plan *p, double tokens)
{
    const double core = (double)m->core_bytes + (m->tied ? (double)m->table_bytes : 0);
    mo_placement_counts counts = mo_placement_counts_of(m, p);
    counts.by_cpu = 0; /* that is for single tokens */
    const mo_placement_sums s = mo_placement_sum(m, counts);
    batch_bytes b = {.used = core,
                     .token = core - (double)m->output_bytes,
                     .link = p->device.ceiling ? (double)s.token_link_bytes : 0,
                     .disk = (double)s.token_disk_bytes};
    b.token = fmax(0, b.token);
    for (int i = 0; i < m->class_count; i++) {
        add_class(m, p, i, tokens, &b);
    }
    return b;
}

/* Products run beside copies and reads, but for a part of the shorter: on an H200 a prompt of 2048 with all experts in RAM reads
 * 6,000 tokens/s (Qwen3-30B), where products alone allow 9,500 and the link 6,800. */
double mo_plan_batch_seconds(const mo_plan_model *m, const mo_rates *r, const mo_plan *p, double tokens)
{
    const batch_bytes b = count_bytes(m, p, tokens);
    const bool device = p->device.ceiling > 0;
    const double cpu = p->mode == MO_PLAN_RESIDENT ? mo_rates_products(r) : mo_rates_slots(r);
    const double vram = r->vram_bytes_s > 0 ? r->vram_bytes_s : MO_RATES_VRAM_GUESS;
    const double link = mo_rates_link(r, b.link, b.copies);
    const double memory = device ? vram : cpu, reuse = device ? DEVICE_REUSE : MO_PLAN_CPU_REUSE;
    const double products = b.used / memory + tokens * b.token / (reuse * memory);
    const double reads = b.disk / r->disk_bytes_s;
    return device ? mo_rates_layer(products, fmax(b.link / link, reads)) + m->layers * BATCH_LAYER_SECONDS
                  : mo_rates_layer(products, reads);
}

double mo_plan_prompt_seconds(const mo_plan_model *m, const mo_rates *r, const mo_plan *p, int64_t tokens)
{
    const double cold = mo_plan_cold_prompt(m, p->device.cold_layers, 0, tokens) / mo_rates_link(r, 0, 0);
    const int64_t batch = m->batch > 0 && m->batch < tokens ? m->batch : tokens;
    const int64_t whole = batch > 0 ? tokens / batch : 0, rest = batch > 0 ? tokens % batch : 0;
    return (double)whole * (whole ? mo_plan_batch_seconds(m, r, p, (double)batch) : 0) +
           (rest ? mo_plan_batch_seconds(m, r, p, (double)rest) : 0) + cold;
}

/* ---- The choice ---- */

/* What keeps a batch from being larger. */
typedef enum limit { LIMIT_NONE, LIMIT_MEMORY, LIMIT_STAGING, LIMIT_TOKENS } limit;

/* Every batch, with either arrangement of RAM. */
enum { WAYS = 2, CANDIDATES = WAYS * MO_PLAN_BATCHES };

/* What they come to. */
typedef struct trial {
    double seconds[CANDIDATES]; /* of a request */
    double speed[CANDIDATES];   /* tokens of an answer in a second */
    bool fits[CANDIDATES];
    int64_t lacking[CANDIDATES]; /* bytes of what was asked for experts on their way */
    int64_t least_lacking;
    double best_speed; /* of those that lack no more than that */
    int count;
} trial;

static int64_t prompt_of(const mo_plan_model *m)
{
    return m->context > 0 && m->context < MO_PLAN_PROMPT_MOST ? m->context : MO_PLAN_PROMPT_MOST;
}

static void estimate(const mo_plan_model *m, const mo_rates *r, mo_plan *p)
{
    p->prompt_tokens = prompt_of(m);
    p->prompt_seconds = mo_plan_prompt_seconds(m, r, p, p->prompt_tokens);
}

/* Its prompt comes in half a context, as its answer does (plan/request.h). */
static double request_seconds(const mo_plan_model *m, const mo_rates *r, const mo_plan *p)
{
    const double answer = (double)p->prompt_tokens / MO_PLAN_PROMPT_PER_ANSWER;
    const int layers = p->device.cold_layers;
    const double deeper = (mo_plan_cold_prompt(m, layers, mo_plan_request_from(m->context, p->prompt_tokens),
                                               p->prompt_tokens) -
                           mo_plan_cold_prompt(m, layers, 0, p->prompt_tokens)) /
                          mo_rates_link(r, 0, 0);
    return p->prompt_seconds + deeper + (p->tokens_per_second > 0 ? answer / p->tokens_per_second : 0);
}

/* What the batch was chosen for. */
static void explain(const mo_plan_model *m, const mo_plan *p, limit why, char *text, size_t size)
{
    const batch_bytes b =
        count_bytes(m, p, (double)(m->batch < p->prompt_tokens ? m->batch : p->prompt_tokens));
    const int64_t times = (p->prompt_tokens + m->batch - 1) / m->batch;
    char bytes[32], work[32];
    mo_plan_size_text((int64_t)fmin(fmax(b.disk, b.link), 1e18), bytes);
    mo_plan_size_text(p->device.ceiling ? p->device.work : p->work, work);
    if (why == LIMIT_MEMORY) {
        snprintf(text, size, "%s leaves no memory for more",
                 p->device.ceiling ? "`vram_bytes`" : "`ram_bytes`");
    } else if (why == LIMIT_STAGING) {
        snprintf(text, size, "a larger one would take memory that was asked for experts on their way");
    } else if (why == LIMIT_TOKENS) {
        snprintf(text, size, "a larger one would cost an answer's tokens more than a tenth of their speed");
    } else if (b.disk > 0 || b.link > 0) {
        snprintf(text, size,
                 "a prompt of %lld tokens brings %s %s %lld time%s; working memory of %s is worth that",
                 (long long)p->prompt_tokens, bytes, b.disk > 0 ? "from disk" : "over the link",
                 (long long)times, times == 1 ? "" : "s", work);
    } else {
        snprintf(text, size, "weights are at hand, and a larger one would save less than 1 %%");
    }
}

/* A size that was given by hand wins over a batch that was not, unless no expert is ever on its way. */
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

/* Does a batch leave tokens nearly as fast as the best for them does? */
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

/* Of those with which the request is done nearly first, the smallest. */
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

/* Why none that is larger than the chosen one was taken. */
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

mo_status mo_plan_choose(mo_plan_model *model, const mo_plan_limits *l, const mo_rates *r, mo_plan *out,
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
            return status; /* larger ones need more */
        }
        t.fits[i] = status == MO_OK;
        if (t.fits[i]) {
            estimate(&one, r, out);
            t.seconds[i] = request_seconds(&one, r, out);
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
                                          err); /* again: all of them at once are too much for small stacks */
    if (status != MO_OK) {
        return status;
    }
    estimate(model, r, out);
    if (batches) {
        explain(model, out, limit_of(&t, chosen), out->batch_why, sizeof out->batch_why);
    } else {
        snprintf(out->batch_why, sizeof out->batch_why, "as asked for");
    }
    return MO_OK;
}
