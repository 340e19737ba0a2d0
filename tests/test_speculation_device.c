/* Speculative decoding with a device: with drafts that are right, wrong or both, tokens, logits and the session's state are those without, for
 * every family, wherever weights, experts and the KV cache are, on one device and on two. The devices are simulated; with
 * MO_TEST_DEVICE=cuda in the environment it runs on a GPU. */
#include "gpu_case.h"

#include <pthread.h>
#include <time.h>

#include "api/model.h"
#include "device/sim/sim.h"
#include "sanitized.h"
#include "sweep.h"
#include "talks.h"

/* Where a model is. */
typedef enum place {
    ALL_THERE,
    TWO_DEVICES,
    LAYERS_ELSEWHERE,
    EXPERTS_IN_RAM,
    EXPERTS_ON_DISK,
    KV_ELSEWHERE,
    PLACES,
    NO_DEVICE
} place;

static char two[64];
/* Of both runs: the rotations of some models depend on it. */
static int64_t context = 256;

static mo_model_options options_of(place p, mo_speculate speculate, mo_kv_type kv)
{
    mo_model_options o = mo_model_options_default();
    o.context = context;
    o.batch = 64;
    o.threads = 2;
    o.sessions = 8;
    o.kv = kv;
    o.device = p == TWO_DEVICES ? two : p == NO_DEVICE ? "none" : device_name;
    o.cpu_moe = p == EXPERTS_IN_RAM;
    o.learning.profile = "off";
    o.speculate = speculate;
    return o;
}

/* Ceilings under which layers or experts are elsewhere. False: the model has nothing that could be. */
static bool limit(const oracle *o, place p, mo_model_options *options)
{
    mo_error err = {.detail = ""};
    mo_plan_report r;
    check_status(mo_plan_file(o->path, options, NULL, &r, sizeof r, &err), &err);
    const int64_t room = r.device.whole_bytes - r.device.least_bytes;
    if (p == KV_ELSEWHERE) {
        options->vram_bytes = r.device.least_bytes;
    } else if (p == LAYERS_ELSEWHERE) {
        options->vram_bytes = r.device.least_bytes + room / 8;
    } else if (p == EXPERTS_ON_DISK) {
        options->vram_bytes = r.device.whole_bytes - r.device.slot_bytes / 2;
        options->ram_bytes = r.least_bytes;
    }
    return p != EXPERTS_IN_RAM && p != EXPERTS_ON_DISK ? true : r.class_count > 0;
}

static mo_model *open_there(const oracle *o, place p, mo_speculate speculate, mo_kv_type kv, bool *any)
{
    mo_error err = {.detail = ""};
    mo_model *model = NULL;
    mo_model_options options = options_of(p, speculate, kv);
    *any = limit(o, p, &options);
    if (*any) {
        check_status(mo_model_open(o->path, &options, &model, &err), &err);
    }
    return model;
}

static void everywhere(void **state)
{
    static const mo_kv_type kinds[] = {MO_KV_I16, MO_KV_F32, MO_KV_Q8_0};
    static const unsigned wrong[] = {0, 3, 1};
    (void)state;
    sweep s = {.name = "speculation-device",
               .axes = {{"model", model_count},
                        {"place", PLACES},
                        {"kv", 3},
                        {"wrong", 3},
                        {"sampling", 3},
                        {"deep", 3}},
               .meet = {{0, 1}},
               .fewer = 3};
    while (sweep_next(&s)) {
        const oracle *o = &models[s.at[0]];
        const place p = (place)s.at[1];
        const mo_kv_type kv = kinds[s.at[2]];
        bool any;
        context = p == KV_ELSEWHERE ? 16384 : 256;
        mo_model *with = open_there(o, p, MO_SPECULATE_NGRAM, kv, &any);
        if (!any) {
            continue;
        }
        mo_model *plain = open_there(o, NO_DEVICE, MO_SPECULATE_OFF, kv, &any);
        const talk_plan plan = {.temperature = s.at[4] == 2 ? 1.0f : 0.0f,
                                .plain = s.at[4] == 0,
                                .wrong = wrong[s.at[3]],
                                .sessions = s.at[5] ? 1 : SESSIONS,
                                .deep = s.at[5] == 2 ? 21 : 7,
                                .kv = kv};
        same_with_drafts(o, plain, with, &plan);
        mo_model_close(plain);
        mo_model_close(with);
    }
    context = 256;
}

/* ---- What happens to a step --------------------------------------------------------------------- */

/* Attention, windows, and recurrent layers of every kind. */
static const char *const families[] = {"gpt-oss", "qwen3next", "jamba", "granitehybrid", "kimi-linear"};
enum { FAMILIES = sizeof families / sizeof *families };

/* An answer without drafts, and one with them that has the same. */
typedef struct pair {
    const oracle *o;
    mo_model *plain, *with;
    talk said;
} pair;

static void pair_open(pair *p, const char *family, const talk_plan *plan)
{
    bool any;
    *p = (pair){.o = find_model(family)};
    p->plain = open_there(p->o, NO_DEVICE, MO_SPECULATE_OFF, plan->kv, &any);
    talk_open(&p->said, p->plain, p->o, 0, plan);
    while (talk_step(&p->said, 1, NULL, plan)) {
    }
}

/* faulty: NULL, or the device that was told to fail: what comes after the last token is not looked at. */
static void pair_expect(pair *p, const talk_plan *plan, mo_device *faulty)
{
    talk t;
    talk_open(&t, p->with, p->o, 0, plan);
    while (talk_step(&t, 1, &p->said, plan)) {
    }
    if (faulty) {
        mo_sim_arm(faulty, MO_SIM_NONE, 0);
    }
    expect_equal(&p->said, &t, p->o->name, 0);
    talk_close(&t);
}

static void pair_close(pair *p)
{
    talk_close(&p->said);
    mo_model_close(p->plain);
}

static void faults_cost_speed_alone(void **state)
{
    (void)state;
    const talk_plan plan = {.plain = true, .wrong = 3, .sessions = 1, .deep = 12};
    for (int f = 0; f < FAMILIES && simulated(); f++) {
        pair p;
        pair_open(&p, families[f], &plan);
        for (int i = 0; i < (SANITIZED ? 4 : 16); i++) {
            const bool several = i % 4 == 3;
            bool any;
            p.with = open_there(p.o, several ? TWO_DEVICES : ALL_THERE, MO_SPECULATE_NGRAM, plan.kv, &any);
            mo_device *device = several && i % 8 == 3 ? p.with->others[0] : p.with->device;
            mo_sim_arm(device, i % 2 ? MO_SIM_LOST : MO_SIM_COPY, 20 + 61 * i);
            pair_expect(&p, &plan, device);
            mo_model_close(p.with);
        }
        pair_close(&p);
    }
}

typedef struct canceller {
    mo_session *session;
    long ns;
} canceller;

static void *cancel_later(void *user)
{
    const canceller *c = user;
    nanosleep(&(struct timespec){.tv_nsec = c->ns}, NULL);
    mo_session_cancel(c->session);
    return NULL;
}

/* Is cancelled somewhere, until it was not in time. */
static mo_status feed_cancelled(const mo_feed *feeds, int count, mo_error *err)
{
    static long ns;
    mo_status status;
    do {
        canceller c = {.session = feeds->session, .ns = ns = (ns + 37000) % 400000};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
        status = mo_session_feed(feeds, count, err);
        pthread_join(thread, NULL);
        mo_session_clear_cancel(feeds->session);
        if (status == MO_ECANCELLED && ns < 40000) {
            status = mo_session_feed(feeds, count, err);
        }
    } while (status == MO_ECANCELLED);
    return status;
}

static void a_cancelled_step_has_not_been(void **state)
{
    (void)state;
    const talk_plan plain = {.temperature = 1.0f, .wrong = 4, .sessions = 1, .deep = 12};
    talk_plan plan = plain;
    plan.feed = feed_cancelled;
    for (int f = 0; f < FAMILIES; f++) {
        pair p;
        pair_open(&p, families[f], &plain);
        for (int i = 0; i < 2; i++) {
            bool any;
            p.with = open_there(p.o, i ? LAYERS_ELSEWHERE : ALL_THERE, MO_SPECULATE_NGRAM, plan.kv, &any);
            pair_expect(&p, &plan, NULL);
            mo_model_close(p.with);
        }
        pair_close(&p);
    }
}

static bool accept_none(void *user, const mo_feed_report *picked)
{
    (void)user;
    (void)picked;
    return false;
}

/* More drafts than a device takes in a step are fewer, not none. */
static void too_many_drafts_are_cut(void **state)
{
    enum { TALKS = 3, ROWS = 64 };
    static const int64_t deep[][TALKS] = {{64, 0, 0}, {60, 20, 0}, {0, 64, 64}, {20, 20, 20}};
    const talk_plan plan = {.plain = true};
    const oracle *o = find_model("jamba");
    mo_model_options options = options_of(ALL_THERE, MO_SPECULATE_NGRAM, MO_KV_I16);
    mo_model *model;
    mo_error err;
    talk talks[TALKS];
    (void)state;
    options.batch = 4 * ROWS;
    check_status(mo_model_open(o->path, &options, &model, &err), &err);
    for (int i = 0; i < TALKS; i++) {
        talk_open(&talks[i], model, o, i, &plan);
    }
    while (talk_step(talks, TALKS, NULL, &plan)) {
    }
    for (size_t c = 0; c < sizeof deep / sizeof *deep; c++) {
        mo_feed feeds[TALKS];
        int64_t asked = TALKS, drafted = TALKS;
        for (int i = 0; i < TALKS; i++) {
            talk *t = &talks[i];
            feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                 .session = t->session,
                                 .tokens = t->tokens,
                                 .count = t->count,
                                 .sampler = t->sampler,
                                 .report = &t->report,
                                 .report_size = sizeof t->report,
                                 .drafts = deep[c][i],
                                 .accept = accept_none};
            asked += deep[c][i];
        }
        check_status(mo_session_feed(feeds, TALKS, &err), &err);
        for (int i = 0; i < TALKS; i++) {
            drafted += talks[i].report.drafted;
            talks[i].tokens[talks[i].count++] = talks[i].report.token;
        }
        assert_int_equal(drafted, asked < ROWS ? asked : ROWS);
    }
    for (int i = 0; i < TALKS; i++) {
        talk_close(&talks[i]);
    }
    mo_model_close(model);
}

static int begin(void **state)
{
    (void)state;
    read_models();
    snprintf(two, sizeof two, "%s,%s", device_name, device_name);
    return 0;
}

static int end(void **state)
{
    (void)state;
    oracle_free(models, model_count);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everywhere),
        cmocka_unit_test(faults_cost_speed_alone),
        cmocka_unit_test(a_cancelled_step_has_not_been),
        cmocka_unit_test(too_many_drafts_are_cut),
    };
    return cmocka_run_group_tests_name("speculation_device", tests, begin, end);
}
