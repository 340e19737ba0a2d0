/* Batches whose experts cross the link in windows: the same bits as the CPU's, whatever is sent together, is in slots,
 * is pinned or fails; and no more copies than there are runs of neighbours. The device's calls are counted on their
 * way. The device is a simulated one; with MO_TEST_DEVICE=cuda in the environment it is a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/backend.h"
#include "device/choice.h"
#include "engine/session.h"
#include "gpu/gpu.h"
#include "gpu/objects.h"
#include "gpu/session.h"
#include "lanes.h"
#include "open/open.h"
#include "oracle.h"
#include "plan/limits.h"

enum { TOKENS = 32, CONTEXT = 64 };

/* Under ThreadSanitizer, which takes its time, one of them. */
#if defined(__SANITIZE_THREAD__)
enum { HOLES = 1 };
#else
enum { HOLES = 3 };
#endif

static const mo_kernels *kernels;
static mo_pool *pool;
static mo_checkpoint *pebble; /* the built-in model, interleaved */
static float *pebble_rows;    /* what the CPU computes with it */

/* ---- A device that counts --------------------------------------------------------------------- */

static const mo_backend *real;
static mo_backend counting;
static struct {
    int calls;                     /* all that take time on the host of a real device */
    int copies;                    /* both ways */
    int fail_from, fail_to;        /* copies that fail */
    const uint8_t *region, *until; /* the weights */
    int weights;                   /* copies of them */
    const void *block;             /* of the step, and the number of its copy */
    int block_at;
} seen;

static mo_status count_copy(mo_error *err)
{
    seen.calls++;
    const int number = seen.copies++;
    if (number >= seen.fail_from && number < seen.fail_to) {
        snprintf(err->detail, sizeof err->detail, "it was told to fail");
        return err->status = MO_EIO;
    }
    return MO_OK;
}

static mo_status copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    const mo_status status = count_copy(err);
    seen.block_at = from == seen.block ? seen.copies - 1 : seen.block_at;
    seen.weights += (const uint8_t *)from >= seen.region && (const uint8_t *)from < seen.until;
    return status == MO_OK ? real->copy_in(stream, to, from, bytes, err) : status;
}

static mo_status copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    const mo_status status = count_copy(err);
    return status == MO_OK ? real->copy_out(stream, to, from, bytes, err) : status;
}

static mo_status event_record(mo_event *event, mo_dstream *stream, mo_error *err)
{
    seen.calls++;
    return real->event_record(event, stream, err);
}

static mo_status stream_after(mo_dstream *stream, mo_event *event, mo_error *err)
{
    seen.calls++;
    return real->stream_after(stream, event, err);
}

static mo_status stream_wait(mo_dstream *stream, mo_error *err)
{
    seen.calls++;
    return real->stream_wait(stream, err);
}

static mo_status launch(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    seen.calls++;
    return real->launch(stream, op, err);
}

/* The simulated device insists on its own. */
static void describe(mo_device *device, mo_device_info *out)
{
    device->backend = real;
    real->describe(device, out);
    device->backend = &counting;
}

static void count_calls(mo_device *device)
{
    real = device->backend;
    counting = *real;
    counting.describe = describe;
    counting.copy_in = copy_in;
    counting.copy_out = copy_out;
    counting.event_record = event_record;
    counting.stream_after = stream_after;
    counting.stream_wait = stream_wait;
    counting.launch = launch;
    device->backend = &counting;
}

static void count_anew(void)
{
    seen.calls = seen.copies = seen.weights = seen.fail_from = seen.fail_to = 0;
}

/* ---- A model, on the CPU and on the device ---------------------------------------------------- */

typedef struct place {
    mo_checkpoint *model;
    mo_device *device;
    mo_gpu *gpu;
    mo_engine *engine;
    mo_session *session;
    float *rows; /* [TOKENS][vocab] */
    int64_t vocab;
} place;

static void check(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fail_msg("%s", err->detail);
    }
}

static mo_checkpoint *load(const char *path, int interleave)
{
    mo_error err = {.detail = ""};
    mo_checkpoint *model = NULL;
    check(mo_checkpoint_load(path, &(mo_load_options){.interleave = interleave, .pool = pool}, &model, &err),
          &err);
    return model;
}

static void keep_row(void *user, int64_t position, const float *row)
{
    const place *p = user;
    memcpy(p->rows + position * p->vocab, row, sizeof(float) * (size_t)p->vocab);
}

static mo_status feed(place *p, int64_t count, mo_routing_observer routes, mo_error *err)
{
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)((i * 7919 + 11) % p->vocab);
    }
    const mo_feed f = {.size = sizeof(mo_feed),
                       .session = p->session,
                       .tokens = tokens,
                       .count = count,
                       .logits = keep_row,
                       .routes = routes,
                       .user = p};
    memset(p->rows, 0, sizeof(float) * (size_t)(TOKENS * p->vocab));
    return mo_session_feed(&f, 1, err);
}

static struct {
    int fault;  /* the copy that fails; -1: none */
    int copies; /* that there were */
} start = {.fault = -1};

typedef struct setting {
    bool cpu_moe;
    int64_t stage_bytes; /* 0: as planned */
    size_t pin_bytes;
    bool
        shared; /* the CPU is as fast as the link, and computes some of the experts; otherwise it is far too slow for that */
} setting;

static int interleave_of(const mo_checkpoint *model)
{
    const mo_model_spec *spec = mo_checkpoint_spec(model);
    int group = spec->output.w.interleave;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        group = l->routed && l->moe.expert[0].gate.w.interleave ? l->moe.expert[0].gate.w.interleave : group;
        group = l->attention.q.w.interleave ? l->attention.q.w.interleave : group;
    }
    return group;
}

/* Everything in RAM, and on the device what fits. */
static mo_choice plan(const mo_checkpoint *model, mo_device *device, const setting *s)
{
    mo_error err = {.detail = ""};
    mo_device_info info;
    mo_choice choice;
    mo_resources resources = {
        .rates = mo_rates_default(),
        .limits = {.ram_bytes = (int64_t)1 << 50, .ram_keeps = true, .cpu_moe = s->cpu_moe}};
    mo_device_describe(device, &info);
    mo_plan_limits_device(0, info.free_bytes, MO_PLAN_VRAM_RESERVE_MIB, &resources.limits);
    const mo_model_options asked = {0};
    const mo_requirements_options requirements = {.asked = &asked,
                                                  .batch = TOKENS,
                                                  .context = CONTEXT,
                                                  .threads = 1,
                                                  .interleave = interleave_of(model)};
    check(mo_opened_plan(mo_checkpoint_path(model), &requirements, &resources, &choice, &err), &err);
    mo_plan_device *d = &choice.plan.device;
    const int64_t least = MO_PLAN_STAGES_LEAST * d->stage_bytes;
    d->staging = s->stage_bytes == 0 ? d->staging : s->stage_bytes < least ? least : s->stage_bytes;
    return choice;
}

/* options: NULL for the CPU. */
static place open_place(mo_checkpoint *model, const setting *options)
{
    mo_error err = {.detail = ""};
    place p = {.model = model, .vocab = mo_checkpoint_spec(model)->vocab};
    size_t bytes = 0;
    p.rows = malloc(sizeof(float) * (size_t)(TOKENS * p.vocab));
    if (options) {
        const char *asked = getenv("MO_TEST_DEVICE");
        check(mo_device_choose(asked ? asked : "sim", &p.device, NULL, 0, &err), &err);
        mo_choice choice = plan(model, p.device, options);
        const mo_gpu_options own = {.device = p.device,
                                    .batch = TOKENS,
                                    .context = CONTEXT,
                                    .placement = mo_choice_view(&choice),
                                    .pin_bytes = options->pin_bytes,
                                    .cpu_bytes_s = options->shared ? 1e9 : 1e3,
                                    .link_bytes_s = 1e9};
        count_calls(p.device);
        seen.region = mo_checkpoint_region(model, &bytes);
        seen.until = seen.region + bytes;
        count_anew();
        seen.fail_from = start.fault;
        seen.fail_to = start.fault + 1;
        check(mo_gpu_open(model, &own, &p.gpu, &err), &err);
        mo_choice_drop(&choice);
        start.copies = seen.copies;
        seen.block = p.gpu->scratch.pinned.block;
    }
    const mo_engine_options with = {.kernels = kernels,
                                    .pool = pool,
                                    .batch = TOKENS,
                                    .context = CONTEXT,
                                    .accelerator = mo_gpu_accelerator(p.gpu)};
    check(mo_engine_create(model, &with, &p.engine, &err), &err);
    check(mo_engine_session_open(p.engine, MO_KV_I16, CONTEXT, &p.session, &err), &err);
    count_anew();
    return p;
}

static void close_place(place *p)
{
    mo_session_close(p->session);
    mo_engine_destroy(p->engine);
    mo_gpu_close(p->gpu);
    if (p->device) {
        p->device->backend = real;
    }
    mo_device_close(p->device);
    free(p->rows);
}

/* What the CPU computes; free() it. */
static float *expected(mo_checkpoint *model, int64_t count)
{
    mo_error err = {.detail = ""};
    place p = open_place(model, NULL);
    check(feed(&p, count, NULL, &err), &err);
    float *rows = p.rows;
    p.rows = NULL;
    close_place(&p);
    return rows;
}

/* The session holds nothing again; copies from .. to - 1 of the next feed fail. */
static void begin_anew(place *p, int from, int to)
{
    mo_error err = {.detail = ""};
    mo_session_close(p->session);
    check(mo_engine_session_open(p->engine, MO_KV_I16, CONTEXT, &p->session, &err), &err);
    count_anew();
    seen.fail_from = from;
    seen.fail_to = to;
}

static void expect_same(place *p, const float *want, int64_t count, mo_routing_observer routes)
{
    mo_error err = {.detail = ""};
    check(feed(p, count, routes, &err), &err);
    assert_memory_equal(p->rows, want, sizeof(float) * (size_t)(count * p->vocab));
}

static int64_t expert_bytes(const place *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->gpu->core.spec->layer_count; i++) {
        bytes = p->gpu->core.layers[i].expert_bytes > bytes ? p->gpu->core.layers[i].expert_bytes : bytes;
    }
    return bytes;
}

static int routed_layers(const place *p)
{
    int layers = 0;
    for (int i = 0; i < p->gpu->core.spec->layer_count; i++) {
        layers += p->gpu->core.spec->layers[i].routed;
    }
    return layers;
}

/* ---- Windows ---------------------------------------------------------------------------------- */

/* All experts of the built-in model in RAM: each crosses once, sixteen at a time, in three copies. */
static void neighbours_cross_together(void **state)
{
    (void)state;
    for (int interleave = 0; interleave <= 8; interleave += 8) {
        mo_checkpoint *model = interleave ? pebble : load(MO_TEST_MODEL, 0);
        place p = open_place(model, &(setting){.cpu_moe = true});
        expect_same(&p, pebble_rows, TOKENS, NULL);
        const int layers = routed_layers(&p), experts = (int)p.gpu->core.extent.experts;
        assert_int_equal(p.gpu->experts.window_size, GPU_WINDOW);
        assert_int_equal(p.gpu->experts.fetched, layers * experts);
        assert_int_equal(seen.weights, layers * experts / GPU_WINDOW * 3);
        /* a window: five calls to send it, seven to compute it; the rest of a layer */
        assert_in_range(seen.calls, 1, layers * (experts / GPU_WINDOW * 12 + 30) + 30);
        if (getenv("MO_TEST_SHOW")) {
            print_message(
                "interleave %d: %d calls of the device, %d copies, %d of weights; %d layers of %d experts\n",
                interleave, seen.calls, seen.copies, seen.weights, layers, experts);
        }
        close_place(&p);
        mo_checkpoint_free(model == pebble ? NULL : model);
    }
}

/* Matrices of odd sizes are apart on the device, and cross one by one. */
static void odd_sizes_cross_alone(void **state)
{
    (void)state;
    oracle models[ORACLE_MODELS_MAX];
    const int count = oracle_read(models);
    int odd = 0;
    for (int i = 0; i < count; i++) {
        for (int interleave = 0; interleave <= 8 && models[i].used; interleave += 8) {
            mo_checkpoint *model = load(models[i].path, interleave);
            const setting options = {.cpu_moe = true};
            float *want = expected(model, TOKENS);
            place p = open_place(model, &options);
            const mo_gpu_layer *l = &p.gpu->core.layers[p.gpu->core.spec->layer_count - 1];
            const int64_t size =
                mo_format_row_bytes(mo_format_of((uint32_t)l->expert_up.type), l->expert_up.cols) *
                l->expert_up.rows;
            expect_same(&p, want, TOKENS, NULL);
            if (size % MO_OP_ALIGN) {
                odd++;
                assert_int_equal(seen.weights, 3 * p.gpu->experts.fetched);
            } else {
                assert_true(seen.weights * 2 <= 3 * (int)p.gpu->experts.fetched);
            }
            close_place(&p);
            mo_checkpoint_free(model);
            free(want);
        }
    }
    assert_true(odd > 0);
    oracle_free(models, count);
}

/* Some experts are in slots, some are chosen by nobody: runs end there, and nothing crosses that need not. */
static void windows_have_holes(void **state)
{
    (void)state;
    const int64_t counts[3] = {TOKENS, 10, TOKENS}; /* ten are too few to guess what they need */
    for (int round = 0; round < HOLES; round++) {
        /* Where everything has a slot there would be only two stages. */
        place p = open_place(pebble, &(setting){.stage_bytes = (int64_t)8 << 20});
        const int experts = (int)p.gpu->core.extent.experts, layers = p.gpu->core.spec->layer_count;
        int missing = 0, runs = 0;
        for (int i = 0; i < layers; i++) {
            for (int e = 0; e < experts && p.gpu->core.spec->layers[i].routed; e++) {
                const bool gone = round == 2 ? e % 2 : (e * 7 + i) % 5 > 1;
                if (gone) {
                    mo_vram_drop(p.gpu->experts.where.vram, i, e);
                    missing++;
                    runs += e == 0 || mo_where_address(&p.gpu->experts.where, i, e - 1);
                }
            }
        }
        expect_same(&p, pebble_rows, counts[round], NULL);
        if (round != 1) {
            assert_int_equal(p.gpu->experts.fetched, missing);
            /* the end of a window ends a run too */
            assert_in_range(seen.weights, 3 * runs,
                            3 * (runs + missing / p.gpu->experts.window_size + layers));
        } else {
            assert_true((int)p.gpu->experts.fetched < missing);
            assert_int_equal(p.gpu->experts.fetched + p.gpu->experts.hits, p.gpu->experts.asked);
        }
        close_place(&p);
    }
}

/* Stages of all sizes, down to two experts. */
static void few_stages(void **state)
{
    (void)state;
    place first = open_place(pebble, &(setting){.cpu_moe = true});
    const int64_t expert_size = expert_bytes(&first);
    close_place(&first);
    const int stages[] = {1, 5, 13, 30, 100};
    for (int i = 0; i < 5; i++) {
        place p = open_place(pebble, &(setting){.cpu_moe = true, .stage_bytes = 2 * expert_size * stages[i]});
        assert_int_equal(p.gpu->experts.stage_count, stages[i] < 2 ? 2 : stages[i]);
        assert_true(p.gpu->experts.window_count >= 2);
        assert_true(p.gpu->experts.window_count * p.gpu->experts.window_size <= p.gpu->experts.stage_count);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        assert_true((int)p.gpu->experts.fetched <= routed_layers(&p) * (int)p.gpu->core.extent.experts);
        assert_int_equal(p.gpu->experts.window_head, p.gpu->experts.window_tail);
        close_place(&p);
    }
}

/* Neither way: a driver refuses copies that begin in one pinned piece and end in another. */
static void copies_stay_within_pinned_pieces(void **state)
{
    (void)state;
    enum { PIECE = 4096, BYTES = 3 * PIECE };
    const char *asked = getenv("MO_TEST_DEVICE");
    uint8_t *memory = aligned_alloc(PIECE, (size_t)8 * PIECE);
    mo_error err = {.detail = ""};
    mo_device *device = NULL;
    mo_gpu_link link;
    mo_daddr there = 0;
    for (int i = 0; i < 8 * PIECE; i++) {
        memory[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    check(mo_device_choose(asked ? asked : "sim", &device, NULL, 0, &err), &err);
    count_calls(device);
    check(mo_gpu_link_open(&link, device, PIECE, &err), &err);
    mo_gpu_link_adopt(&link, 0, memory, (size_t)8 * PIECE, "memory of a test");
    assert_true(mo_gpu_link_pinned(&link, memory));
    check(mo_device_alloc(device, BYTES, &there, &err), &err);
    count_anew();
    check(mo_gpu_link_copy(&link, link.main, memory + 1000, BYTES, there, &err), &err);
    assert_int_equal(seen.copies, 4);
    check(mo_gpu_link_copy_back(&link, link.main, there, BYTES, memory + 4 * PIECE + 1000, &err), &err);
    assert_int_equal(seen.copies, 8);
    check(mo_dstream_wait(link.main, &err), &err);
    assert_memory_equal(memory + 4 * PIECE + 1000, memory + 1000, BYTES);
    mo_device_free(device, there);
    mo_gpu_link_stop(&link);
    mo_gpu_link_close(&link);
    device->backend = real;
    mo_device_close(device);
    free(memory);
}

/* Copies end where a pinned piece does; what could not be pinned crosses all the same. */
static void pinned_pieces(void **state)
{
    (void)state;
    const size_t pieces[] = {4096, (size_t)1 << 20};
    for (int i = 0; i < 2; i++) {
        place p = open_place(pebble, &(setting){.cpu_moe = true, .pin_bytes = pieces[i]});
        const int whole = routed_layers(&p) * (int)p.gpu->core.extent.experts / GPU_WINDOW * 3;
        assert_int_equal(p.gpu->link.adopted[0].piece, pieces[i]);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        assert_true(seen.weights > whole);
        const size_t at = p.gpu->link.adopted[0].piece; /* from here on nothing is pinned any more */
        for (size_t gone = at; gone < p.gpu->link.adopted[0].bytes; gone += at) {
            mo_device_release(p.device, p.gpu->link.adopted[0].memory + gone);
        }
        p.gpu->link.adopted[0].bytes = at;
        begin_anew(&p, 0, 0);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        close_place(&p);
    }
}

/* ---- When guesses are wrong ------------------------------------------------------------------- */

static int drop_at; /* layer */

/* Between the guesses of a layer and its order, experts leave their slots. */
static void drop_slots(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                       int used)
{
    (void)weights;
    const place *p = user;
    for (int i = 0; i < used && layer == drop_at && position < 5; i++) {
        if (mo_where_address(&p->gpu->experts.where, layer, ids[i])) {
            mo_vram_drop(p->gpu->experts.where.vram, layer, ids[i]);
        }
    }
}

static void slots_change_behind_the_window(void **state)
{
    (void)state;
    place first = open_place(pebble, &(setting){.cpu_moe = true});
    const int64_t expert_size = expert_bytes(&first);
    close_place(&first);
    for (int stages = 4; stages <= 150; stages += 146) {
        for (drop_at = 0; drop_at < 7; drop_at += 4) {
            place p = open_place(pebble, &(setting){.stage_bytes = 2 * expert_size * stages});
            for (int i = 0; i < p.gpu->core.spec->layer_count; i++) {
                for (int e = 0; e < p.gpu->core.extent.experts && p.gpu->core.spec->layers[i].routed;
                     e += 3) {
                    mo_vram_drop(p.gpu->experts.where.vram, i, e);
                }
            }
            expect_same(&p, pebble_rows, TOKENS, drop_slots);
            assert_int_equal(p.gpu->experts.window_head, p.gpu->experts.window_tail);
            close_place(&p);
        }
    }
}

/* ---- The CPU's share -------------------------------------------------------------------------- */

/* Rates as in the beginning: what was observed since depends on who else uses the machine. */
static void forget_rates(place *p)
{
    start_cpu(p->gpu, 1e9);
    p->gpu->lanes.rates.link = mo_lane_rate_of(1e9);
}

static void the_cpu_computes_some_experts_of_few_tokens(void **state)
{
    (void)state;
    for (int interleave = 0; interleave <= 8; interleave += 8) {
        mo_checkpoint *model = interleave ? pebble : load(MO_TEST_MODEL, 0);
        for (int slots = 0; slots < 2; slots++) {
            place p = open_place(model, &(setting){.cpu_moe = !slots, .shared = true});
            for (int64_t count = GPU_SMALL + 1; count <= TOKENS; count += 11) {
                begin_anew(&p, -1, -1);
                forget_rates(&p);
                expect_same(&p, pebble_rows, count, NULL);
            }
            assert_true(slots || p.gpu->lanes.by_cpu > 0);
            assert_true(slots || p.gpu->experts.fetched > 0);
            assert_true(p.gpu->experts.hits + p.gpu->lanes.by_cpu + p.gpu->experts.fetched >=
                        p.gpu->experts.asked); /* some were sent ahead in vain */
            close_place(&p);
        }
        mo_checkpoint_free(model == pebble ? NULL : model);
    }
}

/* Those of the choice with the input, of the experts that cross, and of the CPU's rows. */
static void a_failed_copy_beside_the_cpu_is_made_again(void **state)
{
    (void)state;
    place p = open_place(pebble, &(setting){.cpu_moe = true, .shared = true});
    forget_rates(&p);
    expect_same(&p, pebble_rows, TOKENS, NULL);
    uint64_t failed = 0;
    const int block = seen.block_at;
    for (int at = 1; at < 30; at += 1 + at % 3) {
        begin_anew(&p, at + (at >= block), at + (at >= block) + 1);
        forget_rates(&p);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        assert_int_equal(p.gpu->link.failed, ++failed);
    }
    begin_anew(&p, 10, 12);
    forget_rates(&p);
    expect_same(&p, pebble_rows, TOKENS, NULL);
    assert_null(atomic_load(&p.engine->accelerator)); /* twice: the CPU went on */
    begin_anew(&p, -1, -1);
    expect_same(&p, pebble_rows, TOKENS, NULL);
    close_place(&p);
}

/* ---- When copies fail ------------------------------------------------------------------------- */

/* Any copy of a batch, but those of the step itself: its block, and the last ones with its results. */
static void a_failed_copy_is_made_again(void **state)
{
    (void)state;
    place p = open_place(pebble, &(setting){.cpu_moe = true});
    expect_same(&p, pebble_rows, TOKENS, NULL);
    const int copies = seen.copies, block = seen.block_at,
              results = (TOKENS + GPU_LOGITS - 1) / GPU_LOGITS + 1;
    close_place(&p);
    p = open_place(pebble, &(setting){.cpu_moe = true});
    uint64_t failed = 0;
    for (int at = 0; at < copies - results; at += 1 + at % 13) {
        at += at == block;
        begin_anew(&p, at, at + 1);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        assert_int_equal(p.gpu->link.failed, ++failed);
    }
    assert_true(failed > 8);
    close_place(&p);
}

/* The second time the device counts as lost: the CPU ends the same feed, and makes those that follow. */
static void a_copy_that_fails_twice_loses_the_device(void **state)
{
    (void)state;
    for (int at = 0; at < 60; at += 23) {
        place p = open_place(pebble, &(setting){.cpu_moe = true});
        begin_anew(&p, at, at + 2);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        assert_null(atomic_load(&p.engine->accelerator));
        begin_anew(&p, -1, -1);
        expect_same(&p, pebble_rows, TOKENS, NULL);
        close_place(&p);
    }
}

static void a_failed_copy_to_a_slot_is_made_again(void **state)
{
    (void)state;
    for (int interleave = 0; interleave <= 8; interleave += 8) {
        mo_checkpoint *model = interleave ? pebble : load(MO_TEST_MODEL, 0);
        int copies[2];
        for (int i = 0; i < 2; i++) { /* without slots and with */
            place p = open_place(model, &(setting){.cpu_moe = i == 0});
            copies[i] = start.copies;
            close_place(&p);
        }
        const int at[] = {copies[0], copies[1] - 2};
        for (int i = 0; i < 2; i++) {
            start.fault = at[i];
            place p = open_place(model, &(setting){0});
            start.fault = -1;
            assert_int_equal(p.gpu->link.failed, 1);
            expect_same(&p, pebble_rows, TOKENS, NULL);
            close_place(&p);
        }
        mo_checkpoint_free(model == pebble ? NULL : model);
    }
}

int main(int argc, char **argv)
{
    mo_error err = {.detail = ""};
    if (mo_kernels_select(NULL, &kernels, &err) != MO_OK || mo_pool_create(2, &pool, &err) != MO_OK) {
        fprintf(stderr, "%s\n", err.detail);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_cross_together),
        cmocka_unit_test(odd_sizes_cross_alone),
        cmocka_unit_test(windows_have_holes),
        cmocka_unit_test(few_stages),
        cmocka_unit_test(pinned_pieces),
        cmocka_unit_test(copies_stay_within_pinned_pieces),
        cmocka_unit_test(slots_change_behind_the_window),
        cmocka_unit_test(the_cpu_computes_some_experts_of_few_tokens),
        cmocka_unit_test(a_failed_copy_beside_the_cpu_is_made_again),
        cmocka_unit_test(a_failed_copy_is_made_again),
        cmocka_unit_test(a_copy_that_fails_twice_loses_the_device),
        cmocka_unit_test(a_failed_copy_to_a_slot_is_made_again),
    };
    pebble = load(MO_TEST_MODEL, 8);
    pebble_rows = expected(pebble, TOKENS);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mo_checkpoint_free(pebble);
    free(pebble_rows);
    mo_pool_destroy(pool);
    return failed;
}
