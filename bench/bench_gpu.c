/* bench_gpu MODEL [DEVICE] [TOKENS] [POSITION | ram]: what each kind of op of a token at that position costs on a device,
 * one at a time, and all of them as one program; on a GPU also with every choice apart from its router, and with every
 * kernel after the one before it.
 * Of more than 8 tokens, a prompt: as it runs, its copies of experts alone, and op by op; ram: no expert stays on the
 * device. Figures are for finding out where time goes; `moraine bench` tells how fast a model runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "device/choice.h"
#include "device/cuda/cuda.h"
#include "engine/session.h"
#include "gpu/gpu.h"
#include "gpu/objects.h"
#include "gpu/session.h"
#include "numeric/kernels.h"
#include "open/open.h"
#include "plan/limits.h"

enum { REPEATS = 20, ROUNDS = 6 };

static const char *const names[MO_OP_KINDS] = {
    [MO_OP_STREAM] = "stream",       [MO_OP_PRODUCT] = "product",       [MO_OP_GROUPED] = "grouped",
    [MO_OP_ACTIVATE] = "activate",   [MO_OP_HEADS] = "heads",           [MO_OP_LATENT] = "latent",
    [MO_OP_ATTEND] = "attend",       [MO_OP_COLLECT] = "collect",       [MO_OP_CONVOLVE] = "convolve",
    [MO_OP_RECUR] = "recur",         [MO_OP_SHORT_CONV] = "short conv", [MO_OP_SSM_CONVOLVE] = "ssm convolve",
    [MO_OP_SSM_PARTS] = "ssm parts", [MO_OP_SSM_SCAN] = "ssm scan",     [MO_OP_CHOOSE] = "choose",
    [MO_OP_ARRANGE] = "arrange",     [MO_OP_EXPERTS_IN] = "experts in", [MO_OP_EXPERTS_DOWN] = "experts down",
    [MO_OP_LOGITS] = "logits",       [MO_OP_PUBLISH] = "publish",       [MO_OP_AWAIT] = "await",
    [MO_OP_RESTORE] = "restore",     [MO_OP_ROUND] = "round",           [MO_OP_TO_BF16] = "widen",
    [MO_OP_BF16] = "wide",
};

static void check(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fprintf(stderr, "%s\n", err->detail);
        exit(1);
    }
}

static double time_op(mo_gpu *gpu, const mo_op *op, mo_event *from, mo_event *to)
{
    mo_error err = {0};
    double seconds = 0;
    check(mo_op_launch(gpu->link.main, op, &err), &err);
    check(mo_event_record(from, gpu->link.main, &err), &err);
    for (int i = 0; i < REPEATS; i++) {
        check(mo_op_launch(gpu->link.main, op, &err), &err);
    }
    check(mo_event_record(to, gpu->link.main, &err), &err);
    check(mo_dstream_wait(gpu->link.main, &err), &err);
    check(mo_event_seconds(from, to, &seconds, &err), &err);
    return seconds / REPEATS;
}

static double time_program(mo_gpu *gpu, const mo_op *ops, int count)
{
    mo_error err = {0};
    mo_program *program;
    check(mo_program_create(gpu->memory.device, ops, count, &program, &err), &err);
    check(mo_program_run(program, gpu->link.main, &err), &err);
    check(mo_dstream_wait(gpu->link.main, &err), &err);
    const int64_t began = mo_clock_ns();
    for (int i = 0; i < REPEATS; i++) {
        check(mo_program_run(program, gpu->link.main, &err), &err);
    }
    check(mo_dstream_wait(gpu->link.main, &err), &err);
    mo_program_destroy(program);
    return (double)(mo_clock_ns() - began) * 1e-9 / REPEATS;
}

/* Two neighbours again and again in one program: seconds of both. */
static double time_pair(mo_gpu *gpu, const mo_op *pair)
{
    mo_op ops[2 * REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        memcpy(ops + 2 * i, pair, 2 * sizeof *ops);
    }
    return time_program(gpu, ops, 2 * REPEATS) / REPEATS;
}

/* Routers and choices, which a GPU may join, apart and joined. */
static void print_pairs(mo_gpu *gpu, const mo_gpu_ops *p)
{
    double apart = 0, joined = 0;
    int count = 0;
    for (int i = 0; i + 1 < p->count; i++) {
        if (p->ops[i].kind == MO_OP_PRODUCT && p->ops[i + 1].kind == MO_OP_CHOOSE) {
            mo_cuda_fuse(gpu->memory.device, false);
            apart += time_pair(gpu, p->ops + i);
            mo_cuda_fuse(gpu->memory.device, true);
            joined += time_pair(gpu, p->ops + i);
            count++;
        }
    }
    if (count) {
        printf("%-23s %6s %10s %10s\n", "neighbours in a program", "count", "us apart", "us joined");
        printf("%-23s %6d %10.2f %10.2f\n", "router, choose", count, apart * 1e6 / count,
               joined * 1e6 / count);
    }
}

/* All ops as one program: as the device is, or on a GPU in both variants. */
static void print_programs(mo_gpu *gpu, const mo_gpu_ops *p)
{
    mo_device_info info;
    mo_device_describe(gpu->memory.device, &info);
    if (strcmp(info.kind, "cuda") != 0) {
        printf("%-14s %6s %10s %10.3f\n", "one program", "", "", time_program(gpu, p->ops, p->count) * 1e3);
        return;
    }
    double best[3] = {1e9, 1e9, 1e9};
    for (int round = 0; round < 3 * ROUNDS; round++) { /* one after the other: clocks change */
        const int variant = round % 3;
        mo_cuda_fuse(gpu->memory.device, variant != 1);
        mo_cuda_prelaunch(gpu->memory.device, variant != 2);
        const double seconds = time_program(gpu, p->ops, p->count);
        best[variant] = seconds < best[variant] ? seconds : best[variant];
    }
    mo_cuda_prelaunch(gpu->memory.device, true);
    printf("%-14s %6s %10s %10.3f\n", "one program", "", "", best[0] * 1e3);
    printf("%-14s %6s %10s %10.3f\n", "nothing joined", "", "", best[1] * 1e3);
    printf("%-14s %6s %10s %10.3f\n", "none ahead", "", "", best[2] * 1e3);
    print_pairs(gpu, p);
}

/* A step from a position on, of the first session, whose cache is as it is. */
static void send_step(mo_gpu *gpu, mo_state *state, int64_t tokens, int64_t position)
{
    mo_error err = {0};
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, tokens);
    memset(gpu->scratch.pinned.block, 0, (size_t)b.bytes);
    mo_dplace *places = (mo_dplace *)(void *)(gpu->scratch.pinned.block + b.places);
    mo_dslice *slices = (mo_dslice *)(void *)(gpu->scratch.pinned.block + b.slices);
    float *x = (float *)(void *)(gpu->scratch.pinned.block + b.x);
    for (int64_t t = 0; t < tokens; t++) {
        places[t] =
            (mo_dplace){.layers = state->gpu_session->table, .position = position + t, .into = (int32_t)t};
    }
    slices[0] =
        (mo_dslice){.layers = state->gpu_session->table, .position = position, .count = (int32_t)tokens};
    for (int64_t i = 0; i < tokens * gpu->core.spec->width; i++) {
        x[i] = (float)((i * 7919) % 1000) / 1000.0f - 0.5f;
    }
    check(mo_copy_in(gpu->link.main, gpu->scratch.step, gpu->scratch.pinned.block, (size_t)b.bytes, &err),
          &err);
}

static void list_ops(mo_gpu *gpu, mo_gpu_ops *p)
{
    mo_gpu_ops_begin(p, 0);
    for (int i = 0; i < gpu->core.spec->layer_count; i++) {
        mo_gpu_ops_mixer(p, i);
        if (gpu->core.spec->layers[i].routed && mo_vram_has(gpu->experts.where.vram, i)) {
            mo_gpu_ops_hot(p, i);
        }
        mo_gpu_ops_side(p, i);
        mo_gpu_ops_merge(p, i, false, true);
    }
    mo_gpu_ops_logits(p, 0, p->tokens, 0);
}

/* What a prompt that needs every expert sends, through the windows as it does, but nothing is computed. Seconds. */
static double time_copies(mo_gpu *gpu, int64_t *bytes)
{
    mo_error err = {0};
    const uint64_t before = gpu->experts.fetched_bytes;
    const int64_t began = mo_clock_ns();
    check(mo_gpu_window_ahead(&gpu->experts, 0, gpu->experts.window_count, gpu->experts.window_size, &err),
          &err);
    while (gpu->experts.window_tail < gpu->experts.window_head) {
        check(mo_dstream_after(gpu->link.main,
                               mo_gpu_window_at(&gpu->experts, gpu->experts.window_tail)->ready, &err),
              &err);
        check(
            mo_gpu_window_ahead(&gpu->experts, 0, gpu->experts.window_count, gpu->experts.window_size, &err),
            &err);
        check(mo_gpu_window_retire(&gpu->experts, &err), &err);
    }
    check(mo_dstream_wait(gpu->link.main, &err), &err);
    *bytes = (int64_t)(gpu->experts.fetched_bytes - before);
    return (double)(mo_clock_ns() - began) * 1e-9;
}

/* The whole beside what the link needs: whichever is nearer to it limits. */
static void compare(mo_gpu *gpu, double whole, int64_t sent, int64_t tokens)
{
    int64_t bytes = 0;
    double best = time_copies(gpu, &bytes);
    for (int i = 0; i < 3; i++) {
        const double seconds = time_copies(gpu, &bytes);
        best = seconds < best ? seconds : best;
    }
    printf("prompt of %d: %.1f ms, %.0f tokens/s, %.2f GB of experts sent\n", (int)tokens, whole * 1e3,
           (double)tokens / whole, (double)sent * 1e-9);
    if (bytes > 0) {
        printf("the copies alone: %.1f ms for %.2f GB, %.1f GB/s, %.1f %% of the whole; windows of %d, %d of "
               "them\n",
               best * 1e3, (double)bytes * 1e-9, (double)bytes / best * 1e-9, 100.0 * best / whole,
               gpu->experts.window_size, gpu->experts.window_count);
    }
}

/* A prompt through the engine: as it runs, and its ops one at a time. */
static void watch_batch(const mo_checkpoint *model, mo_gpu *gpu, mo_pool *pool, int64_t tokens)
{
    mo_error err = {0};
    mo_engine *engine = NULL;
    mo_session *session = NULL;
    const mo_kernels *kernels = NULL;
    mo_gpu_watch watch = {.count = {0}};
    int32_t *ids = calloc((size_t)tokens, sizeof *ids);
    check(mo_kernels_select(NULL, &kernels, &err), &err);
    mo_tiers *tiers = NULL;
    check(mo_tiers_open(model, &(mo_tiers_options){0}, &tiers, &err), &err);
    const mo_engine_options options = {.kernels = kernels,
                                       .pool = pool,
                                       .batch = tokens,
                                       .context = tokens,
                                       .accelerator = mo_gpu_accelerator(gpu),
                                       .tiers = tiers};
    check(mo_engine_create(model, &options, &engine, &err), &err);
    check(mo_engine_session_open(engine, MO_KV_I16, tokens, &session, &err), &err);
    for (int64_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)(i * 7919 % engine->spec->vocab);
    }
    double whole = 0;
    int64_t sent = 0;
    for (int round = 0; round < ROUNDS; round++) { /* the first one warms up, the last goes op by op */
        const uint64_t before = gpu->experts.fetched_bytes;
        memset(&watch, 0, sizeof watch);
        ids[0] = round;
        gpu->link.watch = round == ROUNDS - 1 ? &watch : NULL;
        const int64_t began = mo_clock_ns();
        check(mo_session_feed(
                  &(mo_feed){.size = sizeof(mo_feed), .session = session, .tokens = ids, .count = tokens}, 1,
                  &err),
              &err);
        const double seconds = (double)(mo_clock_ns() - began) * 1e-9;
        if (gpu->link.watch) {
            compare(gpu, whole, sent, tokens);
            printf("op by op: %.1f ms\n", seconds * 1e3);
        } else if (round > 0 && (round == 1 || seconds < whole)) {
            whole = seconds;
            sent = (int64_t)(gpu->experts.fetched_bytes - before);
        }
    }
    for (int k = 0; k < MO_OP_KINDS; k++) {
        if (watch.count[k]) {
            printf("%-14s %6d %10.2f %10.3f\n", names[k], watch.count[k],
                   watch.seconds[k] * 1e6 / watch.count[k], watch.seconds[k] * 1e3);
        }
    }
    mo_session_close(session);
    mo_engine_destroy(engine);
    mo_tiers_close(tiers);
    free(ids);
}

int main(int argc, char **argv)
{
    mo_error err = {0};
    mo_device *device = NULL;
    mo_checkpoint *model = NULL;
    mo_gpu *gpu = NULL;
    mo_pool *pool = NULL;
    const mo_kernels *kernels = NULL;
    mo_event *from, *to;
    mo_state state;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_gpu MODEL [DEVICE] [TOKENS] [POSITION | ram]\n");
        return 2;
    }
    const int64_t tokens = argc > 3 ? atoll(argv[3]) : 1, position = argc > 4 ? atoll(argv[4]) : 0;
    const int64_t end = tokens + position;
    check(mo_device_choose(argc > 2 ? argv[2] : "auto", &device, NULL, 0, &err), &err);
    if (!device) {
        fprintf(stderr, "no device\n");
        return 1;
    }
    check(mo_pool_create(0, &pool, &err), &err);
    check(mo_kernels_select(NULL, &kernels, &err), &err);
    const mo_load_options layout = {.leave_table = true, .pool = pool, .interleave = kernels->interleave};
    check(mo_checkpoint_load(argv[1], &layout, &model, &err), &err);
    mo_device_info info;
    mo_choice choice;
    mo_resources resources = {.rates = mo_rates_here(),
                              .limits = {.ram_bytes = INT64_MAX,
                                         .ram_keeps = true,
                                         .cpu_moe = argc > 4 && strcmp(argv[4], "ram") == 0}};
    const mo_model_options asked = {0};
    const mo_requirements_options requirements = {.asked = &asked,
                                                  .batch = tokens > 8 ? tokens : 8,
                                                  .context = end > 512 ? end : 512,
                                                  .threads = mo_pool_threads(pool),
                                                  .interleave = kernels->interleave};
    mo_device_describe(device, &info);
    mo_plan_limits_device(0, info.free_bytes, MO_PLAN_VRAM_RESERVE_MIB, &resources.limits);
    check(mo_opened_plan(argv[1], &requirements, &resources, &choice, &err), &err);
    const mo_gpu_options options = {.device = device,
                                    .batch = requirements.batch,
                                    .context = requirements.context,
                                    .placement = mo_choice_view(&choice)};
    check(mo_gpu_open(model, &options, &gpu, &err), &err);
    mo_choice_drop(&choice);
    if (tokens > GPU_SMALL) {
        watch_batch(model, gpu, pool, tokens);
        mo_gpu_close(gpu);
        mo_checkpoint_free(model);
        mo_device_close(device);
        mo_pool_destroy(pool);
        return 0;
    }
    check(mo_state_init(&state, gpu->core.spec, MO_KV_I16, options.context, 8, &err), &err);
    check(mo_gpu_session_open(gpu, &state, &err), &err);
    mo_slice slice = {.state = &state, .count = end};
    const mo_forward step = {.slices = &slice, .slice_count = 1};
    check(mo_gpu_session_own(gpu, &step, &err), &err);
    check(mo_gpu_session_send(gpu, &step, &err), &err);
    check(mo_event_create(device, &from, &err), &err);
    check(mo_event_create(device, &to, &err), &err);
    const int limit = gpu->core.spec->layer_count * GPU_OPS + GPU_OPS;
    const int64_t chunks = (end + MO_CHUNK - 1) / MO_CHUNK;
    mo_gpu_ops p = {.core = &gpu->core,
                    .scratch = &gpu->scratch,
                    .vram = gpu->experts.where.vram,
                    .tokens = tokens,
                    .chunks = chunks,
                    .slices = 1,
                    .limit = limit};
    p.ops = malloc(sizeof *p.ops * (size_t)limit);
    list_ops(gpu, &p);
    send_step(gpu, &state, tokens, position);
    check(mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, &err), &err);
    check(mo_dstream_wait(gpu->link.main, &err), &err);
    double total[MO_OP_KINDS] = {0}, all = 0;
    int count[MO_OP_KINDS] = {0};
    for (int i = 0; i < p.count; i++) {
        total[p.ops[i].kind] += time_op(gpu, &p.ops[i], from, to);
        count[p.ops[i].kind]++;
    }
    printf("%-14s %6s %10s %10s\n", "op", "count", "us each", "ms in all");
    for (int k = 0; k < MO_OP_KINDS; k++) {
        if (count[k]) {
            printf("%-14s %6d %10.2f %10.3f\n", names[k], count[k], total[k] * 1e6 / count[k],
                   total[k] * 1e3);
            all += total[k];
        }
    }
    printf("%-14s %6d %10s %10.3f\n", "sum", p.count, "", all * 1e3);
    print_programs(gpu, &p);
    free(p.ops);
    mo_event_destroy(from);
    mo_event_destroy(to);
    mo_gpu_session_close(&state);
    mo_state_drop(&state);
    mo_gpu_close(gpu);
    mo_checkpoint_free(model);
    mo_device_close(device);
    mo_pool_destroy(pool);
    return 0;
}
