#include "device/sim/work.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/sim/memory.h"

enum { COPY_IN, COPY_OUT, COPY_WITHIN, COPY_ACROSS, CLEAR, OP, PROGRAM }; /* kinds of commands */

typedef struct mo_sim_program {
    mo_program base;
    int refs; /* the owner's, and one per run under way */
    int count;
    mo_op ops[];
} mo_sim_program;

/* ---- The link --------------------------------------------------------------------------------- */

/*
 * Reserves the link for this many bytes: transfers of one direction follow each other. Returns when this one is over.
 *
 * It begins when it could have, not when its thread came to it: a link goes on by itself while the processors are busy.
 */
static int64_t reserve_link(mo_sim *sim, int direction, size_t bytes, int64_t ready_ns)
{
    const double rate = sim->options.link_bytes_s, each = sim->options.link_copy_s;
    if (rate <= 0.0 && each <= 0.0) {
        return 0;
    }
    const double seconds = each + (rate > 0.0 ? (double)bytes / rate : 0.0);
    pthread_mutex_lock(&sim->lock);
    int64_t *free_ns = &sim->link_free_ns[direction];
    *free_ns = (*free_ns > ready_ns ? *free_ns : ready_ns) + (int64_t)(seconds * 1e9);
    const int64_t end = *free_ns;
    pthread_mutex_unlock(&sim->lock);
    return end;
}

/* Until the transfer is over, or the device lost: sleeps, and spins for the last bit that a sleep would miss. */
static void cross_link(mo_sim *sim, int64_t end)
{
    enum { SPIN_NS = 100000 };
    const int64_t wake = end - SPIN_NS;
    if (mo_clock_ns() < wake) {
        pthread_mutex_lock(&sim->lock);
        while (sim->failure.status == MO_OK && mo_clock_ns() < wake) {
            mo_cond_wait(&sim->changed, &sim->lock, wake);
        }
        pthread_mutex_unlock(&sim->lock);
    }
    while (mo_clock_ns() < end && !atomic_load(&sim->lost)) {
        sched_yield();
    }
}

/* ---- Doing ------------------------------------------------------------------------------------ */

static const char *const kind_names[] = {
    [COPY_IN] = "a copy to the device",
    [COPY_OUT] = "a copy from the device",
    [COPY_WITHIN] = "a copy within the device",
    [COPY_ACROSS] = "a copy from another device",
    [CLEAR] = "clearing memory",
};

/* The pointer behind the device's side of a copy. */
static void *side(mo_sim *sim, const mo_sim_command *c, const char *name, mo_daddr address, mo_error *err)
{
    void *memory = mo_sim_memory_find(&sim->memory, address, (int64_t)c->copy.bytes);
    if (!memory) {
        mo_fail(err, MO_EDEVICE,
                "%s was given 0x%" PRIx64 " as %s, where the simulated GPU does not have %zu bytes",
                kind_names[c->kind], address, name, c->copy.bytes);
    }
    return memory;
}

/* Both sides as pointers; false when one is not what it should be. */
static bool sides(mo_sim *sim, const mo_sim_command *c, void **to, const void **from, mo_error *err)
{
    const bool in = c->kind == COPY_IN, out = c->kind == COPY_OUT;
    *to = out ? c->copy.host_to : side(sim, c, "target", c->copy.to, err);
    if (!*to) {
        return false;
    }
    mo_sim *source = c->kind == COPY_ACROSS ? c->copy.other : sim;
    *from = in ? c->copy.host_from : c->kind == CLEAR ? *to : side(source, c, "source", c->copy.from, err);
    if (!*from) {
        return false;
    }
    const void *host = in ? *from : *to;
    if ((in || out) && mo_sim_memory_is_address(host)) {
        mo_fail(err, MO_EDEVICE,
                "%s was given 0x%" PRIxPTR " as host memory, but it is an address of the simulated GPU",
                kind_names[c->kind], (uintptr_t)host);
        return false;
    }
    return true;
}

/* Says of the device's sides of a copy that it is asked for, or over. */
static void count_copy(mo_sim *sim, const mo_sim_command *c, int copies)
{
    if (c->kind != COPY_OUT) {
        mo_sim_memory_count(&sim->memory, c->copy.to, copies);
    }
    if (c->kind == COPY_OUT || c->kind == COPY_WITHIN || c->kind == COPY_ACROSS) {
        mo_sim_memory_count(c->kind == COPY_ACROSS ? &c->copy.other->memory : &sim->memory, c->copy.from,
                            copies);
    }
}

static mo_status copy(mo_sim *sim, const mo_sim_command *c, int64_t *over_ns, mo_error *err)
{
    void *to;
    const void *from;
    if (!sides(sim, c, &to, &from, err)) {
        return MO_EDEVICE;
    }
    if (c->kind == CLEAR) {
        memset(to, 0, c->copy.bytes);
        return MO_OK;
    }
    if (c->kind == COPY_WITHIN) {
        memcpy(to, from, c->copy.bytes);
        return MO_OK;
    }
    const int64_t end = reserve_link(sim, c->kind == COPY_OUT ? MO_SIM_TO_HOST : MO_SIM_TO_DEVICE,
                                     c->copy.bytes, c->ready_ns);
    memcpy(to, from, c->copy.bytes);
    cross_link(sim, end);
    *over_ns = end;
    return MO_OK;
}

/* Without the lock. *over_ns is when it was over. */
static mo_status execute(mo_sim *sim, const mo_sim_stream *stream, const mo_sim_command *command,
                         int64_t *over_ns, mo_error *err)
{
    mo_status status = MO_OK;
    int64_t link_ns = 0;
    if (command->kind == OP) {
        status = mo_op_run(&sim->runner, &command->op, stream->scratch, err);
    } else if (command->kind == PROGRAM) {
        const mo_sim_program *program = command->on.object;
        for (int i = 0; i < program->count && status == MO_OK && !atomic_load(&sim->lost); i++) {
            status = mo_op_run(&sim->runner, &program->ops[i], stream->scratch, err);
        }
    } else {
        status = copy(sim, command, &link_ns, err);
    }
    *over_ns = link_ns ? link_ns : mo_clock_ns();
    return status;
}

/* With the lock held. */
static void drop(mo_sim *sim, mo_sim_program *program)
{
    if (--program->refs == 0) {
        sim->programs--;
        free(program);
    }
}

static void work(mo_sim *sim, mo_sim_stream *stream, const mo_sim_command *command)
{
    if (sim->failure.status == MO_OK) {
        mo_error err = {0};
        int64_t over_ns = 0;
        sim->executing++;
        pthread_mutex_unlock(&sim->lock);
        const mo_status status = execute(sim, stream, command, &over_ns, &err);
        pthread_mutex_lock(&sim->lock);
        sim->executing--;
        stream->over_ns = over_ns;
        if (status != MO_OK) {
            mo_sim_lose(sim, &err);
        }
    }
    if (command->kind == PROGRAM) {
        drop(sim, command->on.object);
    } else if (command->kind != OP) {
        count_copy(sim, command, -1);
    }
}

/* ---- Asking for it ---------------------------------------------------------------------------- */

static mo_status lose(mo_sim *sim, const mo_error *why, mo_error *err)
{
    mo_sim_lose(sim, why);
    return mo_sim_state(sim, err);
}

/* With the lock held: appends work of `steps` ops or copies, unless the device is lost or is lost by this call. */
static mo_status push_work(mo_sim_stream *stream, const mo_sim_command *command, int64_t steps, mo_error *err)
{
    mo_sim *sim = mo_sim_of(stream->base.device);
    const mo_status status = mo_sim_state(sim, err);
    if (status != MO_OK) {
        return status;
    }
    if (mo_sim_hits(sim, MO_SIM_LOST, steps)) {
        mo_error why;
        mo_fail(&why, MO_EDEVICE, "the simulated GPU was lost, as configured");
        return lose(sim, &why, err);
    }
    return mo_sim_push(stream, command, err);
}

/* With no lock held. */
static void keep_caller(const mo_sim *sim)
{
    const int64_t end = sim->options.call_s > 0 ? mo_clock_ns() + (int64_t)(sim->options.call_s * 1e9) : 0;
    while (end && mo_clock_ns() < end) {
    }
}

/* A copy or a clearing: its addresses are looked at now, so that the call that is wrong fails. */
static mo_status push_copy(mo_dstream *base, const mo_sim_command *command, mo_error *err)
{
    mo_sim_stream *stream = (mo_sim_stream *)base;
    mo_sim *sim = mo_sim_of(base->device);
    const bool in = command->kind == COPY_IN, out = command->kind == COPY_OUT;
    const bool across = command->kind == COPY_ACROSS;
    mo_error why;
    void *to;
    const void *from;
    if (across && atomic_load(&command->copy.other->lost)) {
        return mo_fail(err, MO_EDEVICE, "the simulated GPU %d, the source of a copy, is lost",
                       command->copy.other->options.index);
    }
    keep_caller(sim);
    const bool sound = sides(sim, command, &to, &from, &why);
    const bool pageable =
        sound && (in || out) && !mo_sim_memory_pinned(&sim->memory, in ? from : to, command->copy.bytes);
    mo_status status;
    pthread_mutex_lock(&sim->lock);
    if (!sound) {
        status = lose(sim, &why, err);
    } else if ((status = mo_sim_state(sim, err)) == MO_OK && command->kind != CLEAR &&
               (mo_sim_hits(sim, MO_SIM_COPY, 1) || (across && mo_sim_hits(sim, MO_SIM_PEER, 1)))) {
        status = mo_fail(err, MO_EIO, "%s failed, as the simulated GPU is configured; the device continues",
                         kind_names[command->kind]);
    } else if (status == MO_OK) {
        count_copy(sim, command, 1);
        status = push_work(stream, command, 1, err);
        if (status != MO_OK) {
            count_copy(sim, command, -1);
        } else if (pageable) {
            status = mo_sim_wait_number(stream, stream->enqueued, err);
        }
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

mo_status mo_sim_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    return push_copy(stream,
                     &(mo_sim_command){
                         .run = work, .kind = COPY_IN, .copy = {.to = to, .host_from = from, .bytes = bytes}},
                     err);
}

mo_status mo_sim_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    return push_copy(stream,
                     &(mo_sim_command){.run = work,
                                       .kind = COPY_OUT,
                                       .copy = {.host_to = to, .from = from, .bytes = bytes}},
                     err);
}

mo_status mo_sim_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err)
{
    return push_copy(
        stream,
        &(mo_sim_command){.run = work, .kind = COPY_WITHIN, .copy = {.to = to, .from = from, .bytes = bytes}},
        err);
}

bool mo_sim_reaches(mo_device *device, mo_device *other)
{
    return !mo_sim_of(device)->options.alone && !mo_sim_of(other)->options.alone;
}

mo_status mo_sim_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                             mo_error *err)
{
    return push_copy(
        stream,
        &(mo_sim_command){.run = work,
                          .kind = COPY_ACROSS,
                          .copy = {.to = to, .from = from, .other = mo_sim_of(other), .bytes = bytes}},
        err);
}

mo_status mo_sim_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err)
{
    return push_copy(stream,
                     &(mo_sim_command){.run = work, .kind = CLEAR, .copy = {.to = to, .bytes = bytes}}, err);
}

mo_status mo_sim_launch(mo_dstream *base, const mo_op *op, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    const mo_sim_command command = {.run = work, .kind = OP, .op = *op};
    keep_caller(sim);
    pthread_mutex_lock(&sim->lock);
    const mo_status status = push_work((mo_sim_stream *)base, &command, 1, err);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* ---- Programs --------------------------------------------------------------------------------- */

mo_status mo_sim_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_program *program = malloc(sizeof *program + sizeof *ops * (size_t)count);
    if (!program) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a program of %d ops", count);
    }
    program->base.device = device;
    program->refs = 1;
    program->count = count;
    if (count > 0) {
        memcpy(program->ops, ops, sizeof *ops * (size_t)count);
    }
    pthread_mutex_lock(&sim->lock);
    mo_status status = mo_sim_state(sim, err);
    if (status == MO_OK && mo_sim_hits(sim, MO_SIM_MAKE, 1)) {
        status =
            mo_fail(err, MO_ENOMEM, "the simulated GPU is configured to refuse a program of %d ops", count);
    }
    sim->programs += status == MO_OK;
    pthread_mutex_unlock(&sim->lock);
    if (status == MO_OK) {
        *out = &program->base;
    } else {
        free(program);
    }
    return status;
}

void mo_sim_program_destroy(mo_program *base)
{
    mo_sim *sim = mo_sim_of(base->device);
    pthread_mutex_lock(&sim->lock);
    drop(sim, (mo_sim_program *)base);
    pthread_mutex_unlock(&sim->lock);
}

mo_status mo_sim_program_run(mo_program *base, mo_dstream *stream, mo_error *err)
{
    mo_sim *sim = mo_sim_of(base->device);
    mo_sim_program *program = (mo_sim_program *)base;
    const mo_sim_command command = {.run = work, .kind = PROGRAM, .on = {.object = program}};
    pthread_mutex_lock(&sim->lock);
    const mo_status status = push_work((mo_sim_stream *)stream, &command, program->count, err);
    program->refs += status == MO_OK;
    pthread_mutex_unlock(&sim->lock);
    return status;
}
