/* Programs: ops recorded once as a graph, which then starts with one call. */
#include "device/cuda/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

typedef struct mo_cuda_program {
    mo_program base;
    void *graph; /* ready to run; NULL: the steps are started one by one */
    int step_count;
    mo_cuda_step *steps;
    mo_op *ops;             /* own copy */
    mo_cuda_joined *joined; /* of ops that go together */
    mo_daddr counter;       /* of all routers and adapters: kernels of a program follow each other; 0: none */
    bool apart;             /* there was no counter */
} mo_cuda_program;

/* Whether the program has a counter; one that can have none joins nothing that needs it. */
static bool has_counter(mo_cuda_device *d, mo_cuda_program *p)
{
    if (!p->counter) {
        p->counter = mo_cuda_counter_acquire(d);
    }
    p->apart = p->counter == 0;
    return !p->apart;
}

/* Op i and the next as one kernel, where that is possible; otherwise *made is 0. */
static mo_status prepare_router(mo_cuda_device *d, mo_cuda_program *p, int i, int count,
                                mo_cuda_router *router, int *made, mo_error *err)
{
    *made = 0;
    if (p->apart || i + 1 >= count) {
        return MO_OK;
    }
    mo_status status =
        mo_cuda_prepare_router(d, &p->ops[i], &p->ops[i + 1], router, p->steps + p->step_count, made, err);
    if (status != MO_OK || *made == 0) {
        return status;
    }
    *made = has_counter(d, p);
    router->arrived = p->counter;
    return MO_OK;
}

/* Op i and the next two as one kernel, where that is possible; otherwise *made is 0. */
static mo_status prepare_routed(mo_cuda_device *d, mo_cuda_program *p, int i, int count,
                                mo_cuda_routed *routed, int *made, mo_error *err)
{
    *made = 0;
    if (p->apart) {
        return MO_OK;
    }
    mo_status status =
        mo_cuda_prepare_routed(d, p->ops + i, count - i, routed, p->steps + p->step_count, made, err);
    if (status != MO_OK || *made == 0) {
        return status;
    }
    *made = has_counter(d, p);
    routed->router.arrived = p->counter;
    return MO_OK;
}

/* *taken of the ops from i on as two kernels, where adapters add something to a product; otherwise 0. */
static mo_status prepare_adapted(mo_cuda_device *d, mo_cuda_program *p, int i, int count,
                                 mo_cuda_adapted *adapted, int *taken, mo_error *err)
{
    *taken = 0;
    if (p->apart || i + 1 >= count || p->ops[i + 1].kind != MO_OP_LOWER || !has_counter(d, p)) {
        return MO_OK;
    }
    const mo_cuda_place place = mo_cuda_place_of(d, p->counter);
    return place.sums ? mo_cuda_prepare_adapted(d, p->ops + i, count - i, &place, adapted,
                                                p->steps + p->step_count, taken, err)
                      : MO_OK;
}

/* *taken of the ops from i on as *made kernels, where some can go together; otherwise 0. */
static mo_status prepare_joined(mo_cuda_device *d, mo_cuda_program *p, int i, int count,
                                mo_cuda_joined *joined, int *made, int *taken, mo_error *err)
{
    *made = *taken = 0;
    if (d->apart) {
        return MO_OK;
    }
    mo_status status = prepare_routed(d, p, i, count, &joined->routed, made, err);
    *taken = *made ? 3 : 0;
    if (status == MO_OK && *taken == 0) {
        status = prepare_router(d, p, i, count, &joined->router, made, err);
        *taken = *made ? 2 : 0;
    }
    if (status == MO_OK && *taken == 0) {
        status = prepare_adapted(d, p, i, count, &joined->adapted, taken, err);
        *made = *taken ? 2 : 0;
    }
    if (status == MO_OK && *taken == 0 && i + 1 < count) {
        status = mo_cuda_prepare_fresh(d, &p->ops[i], &p->ops[i + 1], &joined->fresh,
                                       p->steps + p->step_count, made, err);
        *taken = *made ? 2 : 0;
    }
    if (status == MO_OK && *taken == 0) {
        status = mo_cuda_prepare_lowered(d, p->ops + i, count - i, &joined->lowered, p->steps + p->step_count,
                                         taken, err);
        *made = *taken ? 1 : 0;
    }
    return status;
}

/* Gate and up went through the same worklist right before: its maker had ended when they began. */
static bool list_stands(const mo_op *ops, int i)
{
    return i > 0 && ops[i - 1].kind == MO_OP_EXPERTS_IN && ops[i - 1].experts.work == ops[i].experts.work;
}

static mo_status prepare_steps(mo_cuda_device *d, mo_cuda_program *p, int count, mo_error *err)
{
    mo_cuda_joined *joined = p->joined;
    for (int i = 0; i < count; i++) {
        int made = 0, taken = 0;
        if (p->ops[i].kind == MO_OP_EXPERTS_DOWN) {
            p->ops[i].experts.list_stands = list_stands(p->ops, i);
        }
        mo_status status = prepare_joined(d, p, i, count, joined, &made, &taken, err);
        if (taken) {
            joined++;
            i += taken - 1;
        } else if (status == MO_OK) {
            status = mo_cuda_prepare(d, &p->ops[i], p->steps + p->step_count, &made, err);
        }
        if (status != MO_OK) {
            return mo_fail_prefix(err, status, "op %d of a program", i);
        }
        p->step_count += made;
    }
    return MO_OK;
}

static mo_status start_steps(mo_cuda_device *d, const mo_cuda_program *p, void *stream, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < p->step_count && status == MO_OK; i++) {
        /* The first follows what is not of this program, and may have brought the weights. */
        const bool prelaunch = i > 0 && p->steps[i].prelaunch && !d->punctual;
        status = mo_cuda_start(d, stream, &p->steps[i], prelaunch, err);
    }
    return status;
}

static void drop_steps(mo_cuda_program *p)
{
    free(p->steps);
    free(p->ops);
    free(p->joined);
    p->steps = NULL;
    p->ops = NULL;
    p->joined = NULL;
}

/* Relaxed: what other threads do with the driver meanwhile is no business of the recording. */
static mo_status record(mo_cuda_device *d, mo_cuda_program *p, mo_error *err)
{
    void *graph = NULL;
    mo_status status = mo_cuda_check(d, d->driver->stream_begin_capture(d->capture, MO_CUDA_CAPTURE_RELAXED),
                                     "cuStreamBeginCapture", err);
    if (status != MO_OK) {
        return status;
    }
    status = start_steps(d, p, d->capture, err);
    mo_error ending;
    const int ended =
        d->driver->stream_end_capture(d->capture, &graph); /* also after a failure: it must end */
    const mo_status closed = mo_cuda_check(d, ended, "cuStreamEndCapture", &ending);
    if (status == MO_OK && closed != MO_OK) {
        status = mo_fail(err, closed, "%s", ending.detail);
    }
    void *ready = NULL;
    if (status == MO_OK) {
        status = mo_cuda_check(d, d->driver->graph_instantiate(&ready, graph, 0), "cuGraphInstantiate", err);
    }
    if (status == MO_OK) {
        p->graph = ready;
    }
    if (graph && !atomic_load(&d->lost)) {
        mo_cuda_check_quietly(d, d->driver->graph_destroy(graph), "cuGraphDestroy");
    }
    return status;
}

static mo_status make_graph(mo_cuda_device *d, mo_cuda_program *p, mo_error *err)
{
    if (p->step_count == 0 || d->no_graphs) {
        return MO_OK;
    }
    mo_error why;
    mo_status status = record(d, p, &why);
    if (status != MO_OK && status != MO_EDEVICE && status != MO_ENOMEM && !d->punctual) {
        d->punctual = true;
        mo_log(MO_LOG_WARN, "cuda",
               "%s; each kernel starts when the previous one has ended, which costs about 1 us each",
               why.detail);
        status = record(d, p, &why);
    }
    if (status == MO_OK) {
        drop_steps(p);
        return MO_OK;
    }
    if (status == MO_EDEVICE || status == MO_ENOMEM) {
        return mo_fail(err, status, "%s", why.detail);
    }
    d->no_graphs = true;
    mo_log(MO_LOG_WARN, "cuda",
           "%s; kernels are launched one by one instead of as graphs, which costs a few us each", why.detail);
    return MO_OK;
}

static mo_status fill(mo_cuda_device *d, mo_cuda_program *p, const mo_op *ops, int count, mo_error *err)
{
    const size_t most = count > 0 ? (size_t)count : 1;
    p->steps = calloc(most * MO_CUDA_KERNELS_PER_OP, sizeof *p->steps);
    p->ops = calloc(most, sizeof *p->ops);
    p->joined = calloc(most / 2 + 1, sizeof *p->joined);
    if (!p->steps || !p->ops || !p->joined) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a program of %d ops", count);
    }
    if (count > 0) {
        memcpy(p->ops, ops, (size_t)count * sizeof *ops);
    }
    mo_status status = prepare_steps(d, p, count, err);
    return status == MO_OK ? make_graph(d, p, err) : status;
}

mo_status mo_cuda_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                 mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)device;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    mo_cuda_program *p = calloc(1, sizeof *p);
    if (!p) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a program");
    }
    p->base.device = device;
    status = fill(d, p, ops, count, err);
    if (status != MO_OK) {
        mo_cuda_program_destroy(&p->base);
        return status;
    }
    *out = &p->base;
    return MO_OK;
}

void mo_cuda_program_destroy(mo_program *program)
{
    mo_cuda_program *p = (mo_cuda_program *)program;
    mo_cuda_device *d = (mo_cuda_device *)program->device;
    if (p->graph && mo_cuda_enter(d, NULL) == MO_OK) {
        mo_cuda_check_quietly(d, d->driver->graph_exec_destroy(p->graph), "cuGraphExecDestroy");
    }
    mo_cuda_counter_release(d, p->counter);
    drop_steps(p);
    free(p);
}

mo_status mo_cuda_program_run(mo_program *program, mo_dstream *stream, mo_error *err)
{
    mo_cuda_program *p = (mo_cuda_program *)program;
    mo_cuda_device *d = (mo_cuda_device *)program->device;
    void *on = ((mo_cuda_stream *)stream)->handle;
    mo_status status = mo_cuda_enter(d, err);
    if (status != MO_OK) {
        return status;
    }
    if (p->graph) {
        return mo_cuda_check(d, d->driver->graph_launch(p->graph, on), "cuGraphLaunch", err);
    }
    return start_steps(d, p, on, err);
}
