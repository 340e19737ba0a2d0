/* What `moraine plan` says and what opening a model does are the same: over ceilings of RAM and of device memory, contexts,
 * batches, formats of the cache, numbers of sessions and of models, both accept or both refuse; planned bytes are the bytes
 * that were allocated; and the bytes of a token are the counted ones where routing plays no part, otherwise those that a
 * replay of the same run's trace gives. */
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/model.h"
#include "base/host.h"
#include "engine/session.h"
#include "gpu/gpu.h"
#include "gpu/objects.h"
#include "gpu/requirements.h"
#include "moraine_server.h"
#include "oracle.h"
#include "plan/placement.h"
#include "random.h"
#include "sanitized.h"

enum {
    MODELS_MOST = ORACLE_MODELS_MAX + 2,
    SESSIONS_MOST = 3,
    STEPS = SANITIZED ? 4 : 24,     /* ceilings of a sweep */
    MODEL_STEP = SANITIZED ? 5 : 1, /* models that are looked at */
    THREADS = 2,
};

static oracle oracles[ORACLE_MODELS_MAX];
static char paths[MODELS_MOST][512];
static int model_count, oracle_count;
static char folder[] = "/tmp/moraine-plan-run-XXXXXX";

/* ---- Memory that is counted --------------------------------------------------------------------- */

static _Atomic int64_t held; /* of what was asked for in pages, and not given back */

void *__real_mo_host_alloc_huge(size_t bytes);
void __real_mo_host_free_huge(void *memory, size_t bytes);
void *__wrap_mo_host_alloc_huge(size_t bytes);
void __wrap_mo_host_free_huge(void *memory, size_t bytes);

void *__wrap_mo_host_alloc_huge(size_t bytes)
{
    void *memory = __real_mo_host_alloc_huge(bytes);
    atomic_fetch_add(&held, memory ? (int64_t)bytes : 0);
    return memory;
}

void __wrap_mo_host_free_huge(void *memory, size_t bytes)
{
    __real_mo_host_free_huge(memory, bytes);
    atomic_fetch_sub(&held, memory ? (int64_t)bytes : 0);
}

/* ---- A case, planned and run ------------------------------------------------------------------ */

typedef struct setting {
    const char *path, *device; /* NULL: none */
    int64_t ram, vram;         /* 0: found */
    int64_t context, batch;
    mo_kv_type kv;
    int sessions;
    int64_t positions, kept, kept_device;
    bool cpu_moe;
} setting;

static mo_status plan_of(const setting *s, mo_plan_report *out, mo_error *err)
{
    mo_model_options o = mo_model_options_default();
    o.ram_bytes = s->ram;
    o.vram_bytes = s->vram;
    o.context = s->context;
    o.batch = s->batch;
    o.kv = s->kv;
    o.sessions = s->sessions;
    o.positions = s->positions;
    o.kept_bytes = s->kept;
    o.kept_device_bytes = s->kept_device;
    o.device = s->device ? s->device : "none";
    o.cpu_moe = s->cpu_moe;
    o.threads = THREADS;
    return mo_plan_file(s->path, &o, NULL, out, sizeof *out, err);
}

typedef struct run {
    mo_model *model;
    mo_session *session[SESSIONS_MOST];
    int64_t before; /* bytes that the process held */
} run;

static void end_run(run *r)
{
    for (int i = 0; i < SESSIONS_MOST; i++) {
        mo_session_close(r->session[i]);
    }
    mo_model_close(r->model);
    *r = (run){0};
}

static mo_status begin_run(const setting *s, run *r, mo_error *err)
{
    mo_model_options o = mo_model_options_default();
    o.threads = THREADS;
    o.context = s->context;
    o.batch = s->batch;
    o.kv = s->kv;
    o.sessions = s->sessions;
    o.positions = s->positions;
    o.kept_bytes = s->kept;
    o.kept_device_bytes = s->kept_device;
    o.ram_bytes = s->ram;
    o.vram_bytes = s->vram;
    o.device = s->device ? s->device : "none";
    o.cpu_moe = s->cpu_moe;
    o.no_prediction = true;
    o.io = MO_IO_CACHED;
    o.readers = 2;
    o.learning.profile = "off"; /* nothing of the user's is read or written */
    *r = (run){.before = atomic_load(&held)};
    mo_status status = mo_model_open(s->path, &o, &r->model, err);
    for (int i = 0; i < s->sessions && status == MO_OK; i++) {
        mo_session_options with = mo_session_options_default();
        with.kv = s->kv;
        status = mo_session_open(r->model, &with, &r->session[i], err);
    }
    if (status != MO_OK) {
        end_run(r);
    }
    return status;
}

/* Bytes of RAM that loader, store, workspace, states and the device's part have allocated. */
static int64_t ram_of(const run *r, const setting *s)
{
    const mo_model *m = r->model;
    const mo_model_spec *spec = m->engine->spec;
    int64_t bytes = atomic_load(&held) - r->before;
    bytes += s->sessions * mo_session_logits_bytes(spec, m->engine->batch, false);
    if (m->gpu) {
        bytes += m->gpu->scratch.pinned.bytes + mo_gpu_map_bytes(spec);
        for (int i = 0; i < m->gpu->kv_in_ram.count; i++) {
            bytes += m->gpu->kv_in_ram.areas[i].bytes;
        }
    }
    return bytes;
}

/* As the device itself counts. */
static int64_t vram_of(const run *r)
{
    mo_device_info info;
    mo_device_describe(r->model->device, &info);
    return info.total_bytes - info.free_bytes;
}

static void explain(const setting *s)
{
    fprintf(stderr,
            "%s, RAM %lld, device %s, VRAM %lld, context %lld, batch %lld, kv %d, %d sessions, "
            "%lld positions, kept %lld and %lld\n",
            s->path, (long long)s->ram, s->device ? s->device : "none", (long long)s->vram,
            (long long)s->context, (long long)s->batch, (int)s->kv, s->sessions, (long long)s->positions,
            (long long)s->kept, (long long)s->kept_device);
}

/* Both accept or both refuse; planned bytes are those that were allocated. Returns whether they accept. */
static bool holds(const setting *s)
{
    mo_plan_report plan;
    run r;
    mo_error planning = {.detail = ""}, opening = {.detail = ""};
    const mo_status planned = plan_of(s, &plan, &planning), ran = begin_run(s, &r, &opening);
    if (planned != ran) {
        explain(s);
        fail_msg("plan: %d %s; run: %d %s", planned, planning.detail, ran, opening.detail);
    }
    if (planned != MO_OK) {
        assert_true(planned == MO_ENOMEM || planned == MO_EDEVICE);
        return false;
    }
    const int64_t ram = ram_of(&r, s), ram_planned = plan.used_bytes - plan.other_bytes;
    const int64_t vram = r.model->device ? vram_of(&r) : 0;
    if (ram != ram_planned || vram != plan.device.used_bytes) {
        explain(s);
        fail_msg("mode %s, RAM: planned %lld, allocated %lld; VRAM: planned %lld, allocated %lld", plan.mode,
                 (long long)ram_planned, (long long)ram, (long long)plan.device.used_bytes, (long long)vram);
    }
    assert_true(plan.used_bytes <= plan.ceiling_bytes && plan.device.used_bytes <= plan.device.ceiling_bytes);
    end_run(&r);
    return true;
}

/* ---- Ceilings ---------------------------------------------------------------------------------- */

/* Other settings for each step of a sweep. */
static void vary(setting *s, uint64_t *seed)
{
    static const mo_kv_type kinds[] = {MO_KV_I16, MO_KV_Q8_0, MO_KV_F32, MO_KV_I16};
    s->context = 64 + random_below(seed, 600);
    s->batch = 1 + random_below(seed, 96);
    s->kv = kinds[random_below(seed, 4)];
    s->sessions = 1 + (int)random_below(seed, SESSIONS_MOST);
    s->cpu_moe = s->device && random_below(seed, 4) == 0;
    s->positions = random_below(seed, 2) ? s->context + random_below(seed, s->context * s->sessions) : 0;
    s->kept = random_below(seed, 2) * random_below(seed, 1 << 20);
    s->kept_device = s->device ? random_below(seed, 2) * random_below(seed, 1 << 20) : 0;
}

/* The least and the most that a plan can use, with what is given. */
static mo_plan_report bounds(const setting *s)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    setting ample = *s;
    ample.ram = s->ram ? s->ram : (int64_t)1 << 40;
    ample.vram = s->vram ? s->vram : s->device ? (int64_t)1 << 30 : 0;
    if (plan_of(&ample, &plan, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return plan;
}

/* From below the least to above everything. */
static int64_t ceiling_at(int64_t least, int64_t whole, int step)
{
    const int64_t span = whole - least + 1;
    return step == 0           ? least - 1
           : step == 1         ? least
           : step == STEPS - 2 ? whole
           : step == STEPS - 1 ? whole + span / 8
                               : least + span * (step - 1) / (STEPS - 3);
}

static void ceilings_of_ram(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int refused = 0, accepted = 0;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        for (int step = 0; step < STEPS; step++) {
            setting s = {.path = paths[i]};
            vary(&s, &seed);
            const mo_plan_report plan = bounds(&s);
            s.ram = ceiling_at(plan.least_bytes, plan.whole_bytes, step);
            const bool fits = holds(&s);
            assert_int_equal(fits, step > 0);
            accepted += fits;
            refused += !fits;
        }
    }
    assert_true(refused > 0 && accepted > 0);
}

static void ceilings_of_a_device(void **state)
{
    (void)state;
    uint64_t seed = 12;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        for (int step = 0; step < STEPS; step++) {
            setting s = {.path = paths[i], .device = "sim"};
            vary(&s, &seed);
            /* RAM is anywhere between its own bounds: how experts are ordered there decides what the device needs. */
            mo_plan_report plan = bounds(&s);
            s.ram = ceiling_at(plan.least_bytes, plan.whole_bytes, 1 + (int)random_below(&seed, STEPS - 1));
            plan = bounds(&s);
            s.vram = ceiling_at(plan.device.least_bytes, plan.device.whole_bytes, step);
            assert_int_equal(holds(&s), step > 0);
        }
    }
}

/* A device of so little memory that the usual reserve would leave none of it. */
static void small_devices(void **state)
{
    (void)state;
    static const char *const sizes[] = {"memory=256M", "memory=64M", "memory=8M", "memory=1M", "memory=64K"};
    int refused = 0, accepted = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        setenv("MORAINE_SIM", sizes[i], 1);
        const setting s = {
            .path = MO_TEST_MODEL, .device = "sim", .context = 300, .batch = 32, .sessions = 1};
        const bool fits = holds(&s);
        accepted += fits;
        refused += !fits;
        unsetenv("MORAINE_SIM");
    }
    assert_true(accepted >= 2 && refused >= 1);
}

/* ---- Several models ---------------------------------------------------------------------------- */

/* What one model holds another does not find, in RAM and on the device; when it is closed it is free again. */
static void models_share_a_ceiling(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    for (int device = 0; device < 2; device++) {
        setting first = {.path = MO_TEST_MODEL,
                         .device = device ? "sim" : NULL,
                         .context = 200,
                         .batch = 16,
                         .sessions = 1};
        setting second = first;
        second.path = paths[0];
        const mo_plan_report one = bounds(&first), two = bounds(&second);
        first.ram = second.ram = one.whole_bytes + two.least_bytes - 1;
        if (device) {
            first.vram = second.vram = one.device.whole_bytes + two.device.least_bytes - 1;
        }
        run r;
        assert_int_equal(begin_run(&first, &r, &err), MO_OK);
        assert_false(holds(&second)); /* one byte is missing */
        second.ram++;
        if (device) {
            assert_false(holds(&second)); /* now on the device */
            second.vram++;
        }
        assert_true(holds(&second));
        second.ram = two.whole_bytes + one.whole_bytes;
        assert_true(holds(&second));
        end_run(&r);
        second.ram = two.whole_bytes;
        assert_true(holds(&second));
    }
    assert_int_equal(mo_location_held(mo_location_here(MO_TIER_RAM, 0)), 0);
    assert_int_equal(mo_location_held(mo_location_here(MO_TIER_VRAM, 0)), 0);
}

/* Means found for both before either has planned: what is held is counted when it matters. */
static void resources_found_before_another_plans(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    setting s = {.path = MO_TEST_MODEL, .device = "sim", .context = 200, .batch = 16, .sessions = 1};
    const mo_plan_report plan = bounds(&s);
    const int64_t ram = plan.whole_bytes + plan.least_bytes + 1000,
                  vram = plan.device.whole_bytes + plan.device.least_bytes + 1000;
    const mo_model_options asked = {.ram_bytes = ram, .vram_bytes = vram, .device = "sim", .sessions = 1};
    const mo_resources_ask ask = {.options = &asked, .to_open = true};
    mo_resources resources[2];
    mo_opened opened[2];
    mo_pool *pool = NULL;
    int64_t used = 0, device = 0;
    assert_int_equal(mo_pool_create(THREADS, &pool, &err), MO_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mo_resources_find(&ask, &resources[i], &err), MO_OK);
    }
    for (int i = 0; i < 2; i++) {
        const mo_open_options o = {
            .resources = &resources[i],
            .requirements = {.asked = &asked, .context = s.context, .batch = s.batch, .threads = THREADS},
            .pool = pool};
        if (mo_opened_make(s.path, &o, &opened[i], &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        used += opened[i].choice.plan.used;
        device += opened[i].choice.plan.device.used;
    }
    assert_true(used <= ram && device <= vram);
    assert_true(opened[1].choice.plan.used < opened[0].choice.plan.used);
    assert_true(opened[1].choice.plan.device.used < opened[0].choice.plan.device.used);
    for (int i = 0; i < 2; i++) {
        mo_opened_drop(&opened[i]);
        mo_device_close(resources[i].device);
    }
    mo_pool_destroy(pool);
}

typedef struct opener {
    setting with;
    pthread_barrier_t *start;
    run made;
    mo_status status;
    mo_error err;
} opener;

static void *open_at_once(void *user)
{
    opener *o = user;
    pthread_barrier_wait(o->start);
    o->status = begin_run(&o->with, &o->made, &o->err);
    return NULL;
}

/* Two threads open a model each: together they stay under both ceilings, whoever plans first. */
static void models_opened_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < (SANITIZED ? 8 : 40); round++) {
        setting s = {.path = MO_TEST_MODEL,
                     .device = round % 2 ? "sim" : NULL,
                     .context = 200,
                     .batch = 16,
                     .sessions = 1};
        const mo_plan_report plan = bounds(&s);
        s.ram = plan.whole_bytes + plan.least_bytes + 1000;
        s.vram = s.device ? plan.device.whole_bytes + plan.device.least_bytes + 1000 : 0;
        pthread_barrier_t start;
        pthread_t threads[2];
        opener openers[2] = {{.with = s, .start = &start}, {.with = s, .start = &start}};
        int64_t used = 0, device = 0;
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, open_at_once, &openers[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&start);
        for (int i = 0; i < 2; i++) {
            if (openers[i].status != MO_OK) {
                fail_msg("%s", openers[i].err.detail);
            }
            used += openers[i].made.model->opened.choice.plan.used;
            device += openers[i].made.model->opened.choice.plan.device.used;
        }
        assert_true(used <= s.ram && device <= s.vram);
        for (int i = 0; i < 2; i++) {
            end_run(&openers[i].made);
        }
    }
    assert_int_equal(mo_location_held(mo_location_here(MO_TIER_RAM, 0)), 0);
    assert_int_equal(mo_location_held(mo_location_here(MO_TIER_VRAM, 0)), 0);
}

/* ---- Options that make no sense ------------------------------------------------------------------ */

static void refused_model(mo_model_options o, const char *named)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    o.device = o.device ? o.device : "none";
    o.learning.profile = "off";
    const mo_status status = mo_model_open(MO_TEST_MODEL, &o, &model, &err);
    if (status != MO_EINVAL || model || !strstr(err.detail, named)) {
        fail_msg("%s: %d %s", named, status, err.detail);
    }
}

static void refused_plan(mo_model_options o, const char *named)
{
    mo_error err = {.detail = ""};
    mo_plan_report report;
    o.device = o.device ? o.device : "none";
    const mo_status status = mo_plan_file(MO_TEST_MODEL, &o, NULL, &report, sizeof report, &err);
    if (status != MO_EINVAL || !strstr(err.detail, named)) {
        fail_msg("plan %s: %d %s", named, status, err.detail);
    }
}

#define REFUSE_MODEL(member, value)                                                                          \
    do {                                                                                                     \
        mo_model_options o = mo_model_options_default();                                                     \
        o.member = value;                                                                                    \
        refused_model(o, "`" #member "`");                                                                   \
    } while (0)

#define REFUSE_BOTH(member, value)                                                                           \
    do {                                                                                                     \
        mo_model_options p = mo_model_options_default();                                                     \
        p.member = value;                                                                                    \
        refused_plan(p, "`" #member "`");                                                                    \
        REFUSE_MODEL(member, value);                                                                         \
    } while (0)

static void senseless_options(void **state)
{
    (void)state;
    REFUSE_BOTH(kv, (mo_kv_type)99);
    REFUSE_BOTH(kv, (mo_kv_type)-1);
    REFUSE_BOTH(postfetch, (mo_postfetch_mode)77);
    REFUSE_BOTH(postfetch, (mo_postfetch_mode)-1);
    REFUSE_BOTH(ram_bytes, -5);
    REFUSE_BOTH(vram_bytes, -5);
    REFUSE_BOTH(sessions, -3);
    REFUSE_BOTH(positions, -1);
    REFUSE_BOTH(positions, 10);
    REFUSE_BOTH(kept_bytes, -1);
    REFUSE_BOTH(kept_device_bytes, (int64_t)1 << 60);
    REFUSE_BOTH(threads, -4);
    REFUSE_BOTH(threads, 1025);
    REFUSE_BOTH(batch, -5);
    REFUSE_BOTH(batch, (int64_t)1 << 40);
    REFUSE_BOTH(context, -7);
    REFUSE_BOTH(context, (int64_t)1 << 60);
    REFUSE_MODEL(readers, -1);
    REFUSE_MODEL(readers, 100000);
    REFUSE_MODEL(io, (mo_io)77);
    REFUSE_MODEL(io, (mo_io)-1);
    /* Each has sense alone; what they make together cannot be counted. */
    mo_model_options o = mo_model_options_default();
    mo_model_options p = mo_model_options_default();
    o.sessions = p.sessions = INT32_MAX;
    o.context = p.context = 1 << 24;
    refused_model(o, "`sessions`");
    refused_plan(p, "`sessions`");
    o.device = p.device = "sim";
    refused_model(o, "`sessions`");
    refused_plan(p, "`sessions`");
}

/* ---- Tokens ------------------------------------------------------------------------------------ */

enum { TOKENS = 12 };

static void feed(mo_session *session, int64_t vocab, int64_t count, mo_tracer *tracer)
{
    int32_t tokens[TOKENS];
    mo_error err = {.detail = ""};
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)((i * 7919 + 11) % vocab);
    }
    for (int64_t n = mo_session_length(session) + 1; n <= count; n++) {
        const mo_feed f = {.size = sizeof(mo_feed),
                           .session = session,
                           .tokens = tokens,
                           .count = n,
                           .routes = tracer ? mo_tracer_observe : NULL,
                           .user = tracer};
        if ((tracer && mo_tracer_step(tracer, 1, 0, MO_TRACE_GENERATION, &err) != MO_OK) ||
            mo_session_feed(&f, 1, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
    }
}

/* Of a dense model: what a token reads of layers from disk, and what crosses the link for it, is what was planned. */
static void count_a_token(const setting *s, int *streamed, int *crossed)
{
    mo_plan_report plan;
    mo_tier_report before, after;
    mo_error err = {.detail = ""};
    run r;
    assert_int_equal(plan_of(s, &plan, &err), MO_OK);
    assert_int_equal(begin_run(s, &r, &err), MO_OK);
    assert(r.model);
    const int64_t vocab = r.model->engine->spec->vocab;
    feed(r.session[0], vocab, 2, NULL);
    mo_model_tiers(r.model, &before, sizeof before);
    feed(r.session[0], vocab, TOKENS, NULL);
    mo_model_tiers(r.model, &after, sizeof after);
    const int64_t read = (int64_t)(after.layer_bytes - before.layer_bytes);
    *streamed += read > 0;
    if (!r.model->gpu) {
        assert_int_equal(read, (TOKENS - 2) * plan.token_disk_bytes);
    } else { /* copies run ahead, so what a token needs is summed up, and what was read differs by what is ahead */
        const mo_gpu_layer_buffer *b = &r.model->gpu->layer_buffer;
        const mo_expert_table *experts = r.model->opened.tiers ? r.model->opened.tiers->experts : NULL;
        int64_t bytes = 0, from_disk = 0, largest = 0;
        for (int i = 0; i < b->small_count; i++) {
            const mo_streamed_layer *l = &b->layers[b->small[i]];
            const int32_t expert_id = experts ? experts->layer[l->layer] : -1;
            bytes += l->used;
            from_disk += expert_id < 0 ? 0 : experts->home[expert_id].bytes;
            largest = expert_id >= 0 && experts->home[expert_id].bytes > largest
                          ? experts->home[expert_id].bytes
                          : largest;
        }
        assert_int_equal(bytes, plan.device.token_link_bytes);
        assert_int_equal(from_disk, plan.token_disk_bytes);
        assert_true(llabs(read - (TOKENS - 2) * from_disk) <= b->slots * largest);
        assert_int_equal(b->count, plan.device.streamed_layers);
        assert_int_equal(b->cpu.count, plan.device.cpu_layers);
        *crossed += bytes > 0;
    }
    end_run(&r);
}

static void tokens_of_streamed_layers(void **state)
{
    (void)state;
    int from_disk = 0, crossed = 0, disk_and_link = 0;
    for (int i = 0; i < model_count; i++) {
        setting s = {.path = paths[i], .context = 64, .batch = 8, .sessions = 1};
        const mo_plan_report plan = bounds(&s);
        if (plan.routed_layers > 0) {
            continue;
        }
        for (int step = 0; step < 6; step++) {
            s.ram = plan.least_bytes + (plan.whole_bytes - plan.least_bytes) * step / 6;
            s.device = NULL;
            s.vram = 0;
            count_a_token(&s, &from_disk, &crossed);
            s.device = "sim";
            const int64_t ram = s.ram;
            s.ram = 0;
            s.ram = ram + bounds(&s).least_bytes - plan.least_bytes;
            const mo_plan_report with = bounds(&s);
            s.vram = with.device.least_bytes + (with.device.whole_bytes - with.device.least_bytes) * step / 8;
            count_a_token(&s, &disk_and_link, &crossed);
        }
    }
    assert_true(from_disk > 0 && crossed > 0 && disk_and_link > 0);
}

/* Experts of two sizes may share slots in RAM where a replay gives each size its own. */
static bool alike(const mo_expert_table *b)
{
    bool same = b->class_count == 1;
    for (int32_t i = 1; i < b->expert_count; i++) {
        same = same && b->home[i].bytes == b->home[0].bytes;
    }
    return same;
}

/* Where experts come and go, what was read is what a replay of the same run says for as many slots. */
static void tokens_of_routed_layers(void **state)
{
    (void)state;
    int missed = 0, compared = 0;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        mo_plan_report plan;
        mo_error err = {.detail = ""};
        setting s = {.path = paths[i], .context = 64, .batch = 8, .sessions = 1};
        const mo_plan_report all = bounds(&s);
        for (int step = 1; step < 4 && all.routed_layers > 0; step++) {
            s.ram = all.whole_bytes - (all.whole_bytes - all.least_bytes) * step / 5;
            assert_int_equal(plan_of(&s, &plan, &err), MO_OK);
            if (strcmp(plan.mode, "slots") != 0) {
                continue;
            }
            char path[600];
            run r;
            mo_tracer *tracer = NULL;
            mo_trace *trace = NULL;
            mo_tier_report counted;
            mo_replay_report replayed;
            mo_replay_options o = mo_replay_options_default();
            snprintf(path, sizeof path, "%s/trace", folder);
            assert_int_equal(begin_run(&s, &r, &err), MO_OK);
            assert(r.model);
            if (!alike(r.model->opened.tiers->experts)) {
                end_run(&r);
                continue;
            }
            compared++;
            assert_int_equal(mo_tracer_open(r.model, &tracer, &err), MO_OK);
            feed(r.session[0], r.model->engine->spec->vocab, TOKENS, tracer);
            assert_int_equal(mo_tracer_save(tracer, path, &err), MO_OK);
            assert_int_equal(mo_trace_open(path, &trace, &err), MO_OK);
            mo_model_tiers(r.model, &counted, sizeof counted);
            o.budget_bytes = (int64_t)1 << 40; /* a trace counts an expert's biases and scales with it */
            assert_int_equal(mo_replay(trace, &o, &replayed, sizeof replayed, &err), MO_OK);
            const int64_t each = replayed.slot_bytes / replayed.slots;
            o.budget_bytes = plan.classes[0].slots * each;
            if (mo_replay(trace, &o, &replayed, sizeof replayed, &err) != MO_OK) {
                fail_msg("%s", err.detail);
            }
            assert_int_equal(replayed.slots, plan.classes[0].slots);
            assert_int_equal(counted.slots, plan.classes[0].slots);
            assert_int_equal(counted.generation.asked, replayed.phase[MO_TRACE_GENERATION].needed);
            assert_int_equal(counted.generation.hits, replayed.phase[MO_TRACE_GENERATION].hits);
            assert_int_equal(counted.generation.bytes / (uint64_t)plan.classes[0].bytes,
                             replayed.phase[MO_TRACE_GENERATION].bytes_read / each);
            missed += counted.generation.bytes > 0;
            mo_trace_close(trace);
            mo_tracer_close(tracer);
            unlink(path);
            end_run(&r);
        }
    }
    assert_true(missed > 0 && compared >= (SANITIZED ? 3 : 12));
}

/* ---- The list of places ------------------------------------------------------------------------ */

/* What opening carries out says of every layer where it is kept and what computes it, and adds up to the plan. */
static void layers_have_locations(void **state)
{
    (void)state;
    int disk_only = 0, vram_only = 0, by_cpu = 0;
    for (int i = 0; i < model_count; i += MODEL_STEP) {
        setting s = {.path = paths[i], .device = "sim", .context = 64, .batch = 8, .sessions = 1};
        const mo_plan_report all = bounds(&s);
        for (int step = 0; step < 8; step++) {
            run r;
            mo_error err = {.detail = ""};
            setenv("MORAINE_SIM", step % 2 ? "link=4e8" : "link=1e12", 1);
            s.ram = all.least_bytes + (all.whole_bytes - all.least_bytes) * (step / 4) / 2;
            s.vram =
                all.device.least_bytes + (all.device.whole_bytes - all.device.least_bytes) * (step % 4) / 5;
            assert_int_equal(begin_run(&s, &r, &err), MO_OK);
            assert(r.model);
            const mo_choice *p = &r.model->opened.choice;
            int kept = 0, cpu = 0;
            assert_int_equal(p->plan.location_count, MO_AT_VRAM + 1);
            assert_int_equal(p->plan.location[MO_AT_VRAM].tier, MO_TIER_VRAM);
            assert_int_equal(p->plan.location[MO_AT_RAM].device, -1);
            for (int l = 0; l < p->model.layers; l++) {
                const bool in_ram = mo_layer_kept(&p->layers[l], MO_AT_RAM),
                           in_vram = mo_layer_kept(&p->layers[l], MO_AT_VRAM);
                const bool ours = p->layers[l].runs == MO_AT_RAM;
                assert_true(!ours || (in_ram && !in_vram));
                assert_int_equal(in_vram, !mo_gpu_layer_buffer_has(&r.model->gpu->layer_buffer, l));
                const mo_tiers *tiers = r.model->opened.tiers;
                assert_int_equal(in_ram, !(tiers && tiers->experts->layer[l] >= 0));
                kept += in_vram;
                cpu += ours;
                disk_only += !in_ram && !in_vram;
                vram_only += !in_ram && in_vram;
            }
            by_cpu += cpu;
            assert_int_equal(kept, p->plan.device.layers);
            assert_int_equal(cpu, p->plan.device.by_cpu);
            end_run(&r);
            unsetenv("MORAINE_SIM");
        }
    }
    assert_true(disk_only > 0 && vram_only > 0 && by_cpu > 0);
}

/* ---- Models ------------------------------------------------------------------------------------ */

static void make_model(const char *name, const char *shape, int layers, const char *type)
{
    mo_error err = {.detail = ""};
    mo_synth_options o = mo_synth_options_default();
    o.layers = layers;
    o.type = type;
    o.threads = THREADS;
    snprintf(paths[model_count], sizeof paths[0], "%s/%s", folder, name);
    if (mo_synth(shape, paths[model_count], &o, NULL, NULL, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    model_count++;
}

static int begin(void **state)
{
    (void)state;
    oracle_count = oracle_read(oracles);
    for (int i = 0; i < oracle_count; i++) {
        snprintf(paths[model_count++], sizeof paths[0], "%s", oracles[i].path);
    }
    snprintf(paths[model_count++], sizeof paths[0], "%s", MO_TEST_MODEL);
    assert_non_null(mkdtemp(folder));
    make_model("dense.gguf", "smollm2-135m", 9, "Q4_0");
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(paths[model_count - 1]);
    rmdir(folder);
    oracle_free(oracles, oracle_count);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ceilings_of_ram),
        cmocka_unit_test(ceilings_of_a_device),
        cmocka_unit_test(small_devices),
        cmocka_unit_test(models_share_a_ceiling),
        cmocka_unit_test(resources_found_before_another_plans),
        cmocka_unit_test(models_opened_at_once),
        cmocka_unit_test(senseless_options),
        cmocka_unit_test(tokens_of_streamed_layers),
        cmocka_unit_test(tokens_of_routed_layers),
        cmocka_unit_test(layers_have_locations),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, begin, end);
}
