/* Post-Fetch: after routing, down matrices (or whole experts) that are not on the device are copied while the
 * CPU computes gate and up; then the device computes down. Nothing is cached. Each transfer is CPU_ONLY, then
 * COPY_IN_FLIGHT, then GPU_READY, and ends with the layer. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gpu/lanes.h"
#include "gpu/requirements.h"

bool mo_gpu_postfetch_on(const mo_gpu_lanes *lanes)
{
    const mo_postfetch_mode mode = lanes->postfetch.mode;
    return (mode == MO_POSTFETCH_DOWN || mode == MO_POSTFETCH_EXPERT) && !lanes->postfetch.force_cpu &&
           lanes->transfers_most > 0;
}

mo_status mo_gpu_postfetch_size(mo_gpu_lanes *lanes, int64_t free_bytes, mo_error *err)
{
    if (lanes->experts->stage_count == 0) {
        return MO_OK;
    }
    const int layouts = mo_gpu_core_any_interleaved(lanes->core) ? 2 : 1;
    const mo_postfetch_facts facts = {.vram_free_bytes = free_bytes,
                                      .down_bytes = layouts * mo_gpu_largest_down(lanes->core->spec),
                                      .expert_bytes = layouts * lanes->experts->stage_bytes,
                                      .scratch_bytes = lanes->scratch_bytes,
                                      .used = (int)lanes->core->extent.used};
    mo_postfetch_capacity capacity = {0};
    mo_postfetch_notes notes = {.count = 0};
    mo_status status = mo_postfetch_size(&lanes->postfetch, &facts, &capacity, &notes, err);
    for (int i = 0; i < notes.count; i++) {
        mo_log(MO_LOG_WARN, "device", "%s", notes.line[i]);
    }
    lanes->transfers_most = capacity.transfers;
    const int64_t most = mo_gpu_postfetch_on(lanes) ? GPU_SMALL * lanes->core->extent.used : 0;
    for (int i = 0; i < GPU_STAGES && i < most && status == MO_OK; i++) {
        status = mo_event_create(lanes->link->device, &lanes->arrived[i], err);
        lanes->transfer_count += status == MO_OK;
    }
    return status;
}

static mo_dstream *copies(const mo_gpu_lanes *lanes)
{
    return lanes->postfetch.dedicated_streams ? lanes->link->fetch : lanes->link->lane;
}

/* ---- The scratch memory ------------------------------------------------------------------------ */

/* True if the layer's next expert is copied as a whole. If the scratch memory is too small for that, only
 * down matrices are copied. */
static bool crosses_whole(const mo_gpu_lanes *lanes, int layer, int by_cpu)
{
    const int64_t bytes = lanes->core->layers[layer].expert_bytes;
    const bool interleaved = mo_gpu_core_interleaved(lanes->core, layer);
    return (lanes->postfetch.mode == MO_POSTFETCH_EXPERT || by_cpu >= lanes->postfetch.cpu_limit) &&
           (interleaved ? 2 * bytes : bytes) <= lanes->scratch_bytes;
}

/* Places a transfer after the layer's previous ones, with space for its data, and again for the file's layout
 * if RAM has another. False: no space from *at on. */
static bool place(const mo_gpu_lanes *lanes, int layer, mo_transfer *t, int64_t *at)
{
    const mo_gpu_layer *l = &lanes->core->layers[layer];
    const bool interleaved = mo_gpu_core_interleaved(lanes->core, layer);
    const int64_t before = t->whole ? 0 : l->down_at; /* bytes of the expert that are not copied */
    const int64_t bytes = l->expert_bytes - before, both = interleaved ? 2 * bytes : bytes;
    if (*at + both > lanes->scratch_bytes) {
        return false;
    }
    t->memory = lanes->experts->stages[0].memory + (mo_daddr)*at - (mo_daddr)before;
    t->plain = interleaved ? t->memory + (mo_daddr)bytes : t->memory;
    *at += both;
    return true;
}

/* ---- After routing ---------------------------------------------------------------------------- */

/* Begins the copy of a transfer. If the copy fails, the CPU computes it. */
static mo_status begin(mo_gpu_lanes *lanes, int layer, int number, int64_t *sent, mo_error *err)
{
    const mo_gpu_layer *l = &lanes->core->layers[layer];
    mo_transfer *t = &lanes->transfers[number];
    int64_t bytes = 0;
    mo_status status;
    t->queued = false;
    t->bytes = 0;
    if (t->whole) {
        status = mo_gpu_core_copy_expert(lanes->core, lanes->link, copies(lanes), layer, t->expert, t->memory,
                                         &bytes, err);
    } else {
        const mo_weights *w = &lanes->core->spec->layers[layer].moe.expert[t->expert].down.w;
        bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
        status =
            mo_gpu_link_copy_matrix(lanes->link, copies(lanes), w, t->memory + (mo_daddr)l->down_at, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(lanes->arrived[number], copies(lanes), err);
    }
    if (status == MO_OK) {
        t->state = MO_COPY_IN_FLIGHT;
        t->bytes = bytes;
        *sent += bytes;
        if (!mo_gpu_core_expert_pinned(lanes->core, lanes->link, layer, t->expert)) {
            mo_gpu_clock_fall(lanes->clock, layer, MO_FALLBACK_UNPINNED);
        }
    } else if (status != MO_EDEVICE) {
        lanes->link->failed++;
        mo_gpu_clock_fall(lanes->clock, layer, MO_FALLBACK_FAILED);
        t->failed = true;
        status = MO_OK;
    }
    return status;
}

/* LLAMA_POSTFETCH_DEBUG: logs what was sent. */
static void tell_sent(const mo_gpu_lanes *lanes, const mo_gpu_service *s, int64_t bytes)
{
    mo_log_asked(MO_LOG_INFO, "postfetch", "layer %d: transferring %d of %d missing experts, %.2f MiB%s",
                 s->layer, s->sent, s->count, (double)bytes / (1 << 20),
                 s->way == MO_LATE_WAIT ? "" : "; late ones are the CPU's");
    for (int i = 0; i < s->sent; i++) {
        const mo_transfer *t = &lanes->transfers[i];
        const mo_daddr at = t->memory + (mo_daddr)(t->whole ? 0 : lanes->core->layers[s->layer].down_at);
        if (t->queued) {
            mo_log_asked(MO_LOG_INFO, "postfetch", "layer %d: expert %d: %s, queues for a place", s->layer,
                         t->expert, t->whole ? "whole" : "down");
        } else {
            mo_log_asked(MO_LOG_INFO, "postfetch", "layer %d: expert %d: %s, %lld bytes at offset %lld%s",
                         s->layer, t->expert, t->whole ? "whole" : "down", (long long)t->bytes,
                         (long long)(at - lanes->experts->stages[0].memory),
                         t->failed ? ": failed, computed by the CPU" : "");
        }
    }
}

static bool landed(const mo_gpu_service *s, const mo_need *n)
{
    return !s->stored || (n->in && n->down);
}

/* True if transfers without space may be queued. Not if others wait for slots in RAM, because a queued one
 * holds such a slot. */
static bool may_queue(const mo_forward *forward, const mo_gpu_service *s)
{
    bool all = true;
    for (int i = 0; i < s->count; i++) {
        all &= landed(s, &forward->w->needs[i]);
    }
    return all && s->way == MO_LATE_WAIT;
}

/* Number of experts in RAM that are likely to arrive in time; *copy_s: link time of all, 0: unknown. */
static int likely(const mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                  double *copy_s)
{
    const mo_gpu_layer *l = &lanes->core->layers[s->layer];
    const double in_share = (double)l->down_at / (double)l->expert_bytes;
    double each[GPU_STAGES], saved[GPU_STAGES];
    int count = 0, down = 0;
    *copy_s = 0;
    for (int i = 0; i < s->count && count < GPU_STAGES; i++) {
        if (landed(s, &forward->w->needs[i])) {
            const bool whole = crosses_whole(lanes, s->layer, down);
            down += !whole;
            each[count] =
                (double)(whole ? l->expert_bytes : l->expert_bytes - l->down_at) * lanes->copy_s_per_byte;
            saved[count] = whole ? 1 : 1 - in_share;
            *copy_s += each[count++];
        }
    }
    return lanes->copy_s_per_byte > 0 ? mo_late_fit(&lanes->late_of[s->layer], each, saved, count) : count;
}

/* Chooses how to handle late copies, and the maximum number to send. Copies already on the link delay
 * others. */
static int choose(mo_gpu_lanes *lanes, const mo_forward *forward, mo_gpu_service *s)
{
    const mo_postfetch *p = &lanes->postfetch;
    mo_late *late = &lanes->late_of[s->layer];
    const bool allowed[MO_LATE_WAYS] = {[MO_LATE_WAIT] = p->block_on_miss || !p->block_given,
                                        [MO_LATE_LEAVE] = !p->block_on_miss || !p->block_given,
                                        [MO_LATE_NONE] = !p->block_on_miss || !p->block_given};
    double copy_s = 0;
    s->way = MO_LATE_WAIT;
    if (!allowed[MO_LATE_LEAVE]) {
        return GPU_STAGES;
    }
    if (lanes->unmeasured) {
        s->way = MO_LATE_NONE;
        return 0;
    }
    const int in_time = likely(lanes, forward, s, &copy_s);
    const double cpu = late->cpu_seconds, one = copy_s / s->count;
    const double expected[MO_LATE_WAYS] = {[MO_LATE_WAIT] = one > cpu ? one : cpu,
                                           [MO_LATE_LEAVE] = in_time ? cpu : cpu + one,
                                           [MO_LATE_NONE] = cpu};
    s->way = mo_late_choose(late, allowed, expected);
    return s->way == MO_LATE_WAIT ? GPU_STAGES : s->way == MO_LATE_NONE ? 0 : in_time ? in_time : 1;
}

mo_status mo_gpu_postfetch_send(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    const mo_postfetch *p = &lanes->postfetch;
    const int most = choose(lanes, forward, s);
    const bool queues = may_queue(forward, s);
    mo_status status = most > 0 ? mo_event_record(lanes->fetch_from, copies(lanes), err) : MO_OK;
    int by_cpu = 0;
    int64_t at = 0;
    bool full = false;
    if (most > 0) {
        mo_gpu_clock_fetch(lanes->clock, s->layer, mo_clock_ns());
    }
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &forward->w->needs[i];
        if (!landed(s, n)) { /* still on disk: the CPU computes it when it lands */
            mo_gpu_clock_fall(lanes->clock, s->layer, MO_FALLBACK_ON_DISK);
            continue;
        }
        if (s->sent >= most) { /* it would be late */
            lanes->late++;
            lanes->unsent++;
            mo_gpu_clock_fall(lanes->clock, s->layer, MO_FALLBACK_LATE);
            continue;
        }
        mo_transfer t = {.expert = n->expert, .need = i};
        t.whole = crosses_whole(lanes, s->layer, by_cpu);
        full = full || !place(lanes, s->layer, &t, &at);
        t.queued = full;
        if (s->sent == lanes->transfer_count || (full && !queues)) {
            mo_gpu_clock_fall(lanes->clock, s->layer, MO_FALLBACK_NO_STAGE);
            continue;
        }
        by_cpu += !t.whole;
        n->in_done = t.whole;
        n->down_done = true;
        lanes->transfers[s->sent] = t;
        if (!full &&
            /* it is queued until the one that many before it has arrived */
            s->sent >= lanes->transfers_most) {
            status = mo_dstream_after(copies(lanes), lanes->arrived[s->sent - lanes->transfers_most], err);
        }
        if (status == MO_OK && !full) {
            status = begin(lanes, s->layer, s->sent, &s->fetched_bytes, err);
        }
        s->sent++;
    }
    if (p->debug) {
        tell_sent(lanes, s, s->fetched_bytes);
    }
    lanes->experts->crossing = s->sent ? lanes->fetch_to : lanes->experts->crossing;
    return status == MO_OK && s->sent ? mo_event_record(lanes->fetch_to, copies(lanes), err) : status;
}

/* ---- Before down ------------------------------------------------------------------------------ */

/* Decides whether the transfer has arrived or is worth waiting for. */
static mo_status settle(mo_gpu_lanes *lanes, int layer, mo_late_way way, int number, mo_error *err)
{
    mo_transfer *t = &lanes->transfers[number];
    bool done = false;
    if (t->state != MO_COPY_IN_FLIGHT) {
        return MO_OK;
    }
    const mo_status status = mo_event_query(lanes->arrived[number], &done, err);
    if (status == MO_OK && (done || way == MO_LATE_WAIT)) {
        t->state = MO_GPU_READY; /* the device waits for the rest */
    } else if (status == MO_OK) {
        lanes->late++;
        mo_gpu_clock_fall(lanes->clock, layer, MO_FALLBACK_LATE);
        t->state = MO_CPU_ONLY;
    }
    return status;
}

/* Launches the transfer's ops; its list is on the device. */
static mo_status launch(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s, int number,
                        mo_error *err)
{
    mo_op ops[3];
    mo_gpu_ops p = mo_gpu_lanes_ops(lanes, forward, ops, 3);
    const mo_transfer *t = &lanes->transfers[number];
    const mo_daddr work = lanes->scratch->fetched + (mo_daddr)(number * lanes->scratch->pinned.work_bytes);
    const int64_t items = forward->w->needs[t->need].picks;
    const mo_status status = mo_dstream_after(lanes->link->lane, lanes->arrived[number], err);
    if (t->plain != t->memory) {
        ops[p.count++] =
            mo_gpu_core_restore(lanes->core, s->layer, t->memory, t->plain, 1, 0, t->whole ? -1 : 2);
    }
    if (t->whole) {
        mo_gpu_ops_expert(&p, s->layer, work, items);
    } else {
        mo_gpu_ops_down(&p, s->layer, work, items);
    }
    return status == MO_OK ? mo_gpu_ops_launch(&p, lanes->link, lanes->link->lane, err) : status;
}

/* Makes the device itself read hidden rows and lists: copies would wait behind those of experts, including
 * late ones. */
static mo_status receive_rows(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                              mo_error *err)
{
    mo_op op;
    mo_gpu_ops p = mo_gpu_lanes_ops(lanes, forward, &op, 1);
    const mo_moe *moe = &forward->layer->moe;
    const mo_gpu_pinned *pinned = &lanes->scratch->pinned;
    mo_gpu_ops_receive(&p, s->layer, pinned->hidden, lanes->scratch->sent,
                       (int64_t)mo_acts_bytes(forward->tokens * moe->used, moe->width));
    mo_gpu_ops_receive_also(&p, pinned->works, lanes->scratch->fetched, s->sent * pinned->work_bytes);
    return mo_gpu_ops_launch(&p, lanes->link, lanes->link->lane, err);
}

static mo_status launch_all(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s, mo_error *err)
{
    int ready = 0;
    for (int i = 0; i < s->sent; i++) {
        const mo_transfer *t = &lanes->transfers[i];
        if (t->state == MO_GPU_READY) {
            mo_gpu_worklist_one(lanes, &forward->w->picks, i, t->expert, t->plain);
            ready++;
        }
    }
    mo_status status = ready ? receive_rows(lanes, forward, s, err) : MO_OK;
    for (int i = 0; i < s->sent && status == MO_OK; i++) {
        if (lanes->transfers[i].state == MO_GPU_READY) {
            status = launch(lanes, forward, s, i, err);
        }
    }
    return status;
}

/* Copies queued transfers: as many as fit when the device has computed the earlier ones, repeatedly. */
static mo_status run_queue(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    int next = 0;
    int64_t bytes = 0; /* not part of the measured transfers */
    mo_status status = MO_OK;
    while (next < s->sent && !lanes->transfers[next].queued) {
        next++;
    }
    while (next < s->sent && status == MO_OK) {
        const int first = next;
        int64_t at = 0;
        status = mo_event_record(lanes->lane_done, lanes->link->lane, err);
        if (status == MO_OK) {
            status = mo_dstream_after(copies(lanes), lanes->lane_done, err);
        }
        for (; next < s->sent && status == MO_OK && place(lanes, s->layer, &lanes->transfers[next], &at);
             next++) {
            status = begin(lanes, s->layer, next, &bytes, err);
        }
        for (int i = first; i < next && status == MO_OK; i++) {
            if (lanes->transfers[i].state == MO_COPY_IN_FLIGHT) {
                lanes->transfers[i].state = MO_GPU_READY;
                mo_gpu_worklist_one(lanes, &forward->w->picks, i, lanes->transfers[i].expert,
                                    lanes->transfers[i].plain);
                status = mo_gpu_worklist_send(lanes, i, err);
                status = status == MO_OK ? launch(lanes, forward, s, i, err) : status;
            }
        }
    }
    lanes->experts->fetched_bytes += (uint64_t)bytes;
    return status;
}

/* Returns true if some transfers go back to the CPU. fetched[]: the expert was sent, until it is taken
 * back. */
static bool take_back(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s, bool *fetched)
{
    bool any = false;
    for (int i = 0; i < s->sent; i++) {
        const mo_transfer *t = &lanes->transfers[i];
        mo_need *n = &forward->w->needs[t->need];
        const bool here = t->state == MO_GPU_READY;
        if (t->queued || fetched[t->expert] == here) {
            continue;
        }
        fetched[t->expert] = here;
        n->in_done = !t->whole; /* its gate and up are computed */
        n->down_done = false;
        any = true;
    }
    return any;
}

static bool any_ready(const mo_gpu_lanes *lanes, const mo_gpu_service *s)
{
    bool any = false;
    for (int i = 0; i < s->sent; i++) {
        any |= lanes->transfers[i].state == MO_GPU_READY;
    }
    return any;
}

static mo_status await_lane(mo_gpu_lanes *lanes, int layer, mo_error *err)
{
    mo_status status = mo_event_record(lanes->lane_done, lanes->link->lane, err);
    const int64_t launched = mo_clock_ns();
    status = status == MO_OK ? mo_event_wait(lanes->lane_done, err) : status;
    mo_gpu_clock_waited(lanes->clock, layer, launched, mo_clock_ns());
    return status;
}

mo_status mo_gpu_postfetch_receive(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, bool *fetched,
                                   mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < s->sent && status == MO_OK; i++) {
        status = settle(lanes, s->layer, s->way, i, err);
    }
    if (status == MO_OK && take_back(lanes, forward, s, fetched)) {
        /* before the hidden rows are copied: a late whole expert adds to them */
        status = mo_gpu_cpu_lane_run(lanes, forward, s, err);
    }
    if (status == MO_OK) {
        status = launch_all(lanes, forward, s, err);
    }
    if (status == MO_OK) {
        status = run_queue(lanes, forward, s, err);
    }
    s->fetched = s->sent;
    if (status == MO_OK && (any_ready(lanes, s) || !lanes->postfetch.dedicated_streams)) {
        status = await_lane(lanes, s->layer, err);
    }
    if (status == MO_OK && take_back(lanes, forward, s, fetched)) { /* failed transfers of the queue */
        status = mo_gpu_cpu_lane_run(lanes, forward, s, err);
    }
    for (int i = 0; i < s->sent; i++) {
        lanes->experts->fetched += lanes->transfers[i].state == MO_GPU_READY;
    }
    lanes->experts->fetched_bytes += (uint64_t)s->fetched_bytes;
    return status;
}

/* ---- After the reply -------------------------------------------------------------------------- */

void mo_gpu_postfetch_measured(mo_gpu_lanes *lanes, double seconds, int64_t bytes)
{
    const double now = bytes > 0 ? seconds / (double)bytes : 0;
    if (now > 0) {
        const double before = lanes->copy_s_per_byte;
        lanes->copy_s_per_byte =
            before > 0 ? before + 0.25 * ((now < 2 * before ? now : 2 * before) - before) : now;
    }
}

void mo_gpu_postfetch_learn(mo_gpu_lanes *lanes, const mo_gpu_service *s, int64_t now)
{
    const mo_gpu_layer *l = &lanes->core->layers[s->layer];
    mo_late *late = &lanes->late_of[s->layer];
    double work = s->count; /* of the CPU, in experts */
    for (int i = 0; i < s->sent; i++) {
        work -= lanes->transfers[i].whole ? 1 : 1 - (double)l->down_at / (double)l->expert_bytes;
    }
    if (s->count > 0) {
        mo_late_observe(late, s->way, (double)(now - s->began) * 1e-9 / s->count);
    }
    if (work > 0) {
        mo_late_observe_cpu(late, (double)s->computed_ns * 1e-9 / work);
    }
}
