#include "plan/divide.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "plan/device.h"
#include "plan/prompt.h"
#include "plan/share.h"

#define LACKING 1e6 /* minimum seconds of a token if something does not fit */

/* ---- A range of layers as a model ---- */

/* Requirements of layers [first, end). */
typedef struct layer_sums {
    int dense, routed, of_class[MO_PLAN_CLASSES];
    int64_t resident, largest, buffer, core, state;
} layer_sums;

static layer_sums sum_layers(const mo_plan_model *m, int first, int end)
{
    layer_sums s = {0};
    for (int i = first; i < end; i++) {
        const mo_plan_layer *l = &m->layer[i];
        s.dense += l->bytes > 0;
        s.resident = mo_plan_sum(s.resident, l->bytes > 0 ? l->resident : 0);
        s.largest = l->resident > s.largest ? l->resident : s.largest;
        s.buffer = l->buffer_bytes > s.buffer ? l->buffer_bytes : s.buffer;
        s.core = mo_plan_sum(s.core, l->core_bytes);
        s.state = mo_plan_sum(s.state, l->state_bytes);
        if (l->size_class >= 0 && l->size_class < m->class_count) {
            s.routed++;
            s.of_class[l->size_class]++;
        }
    }
    return s;
}

/* Every layer of a class has the same number of experts. */
static void scale_classes(const mo_plan_model *m, const layer_sums *all, const layer_sums *s,
                          mo_plan_model *out)
{
    for (int i = 0; i < m->class_count; i++) {
        const double share = all->of_class[i] ? (double)s->of_class[i] / all->of_class[i] : 0;
        out->classes[i].experts =
            all->of_class[i] ? m->classes[i].experts / all->of_class[i] * s->of_class[i] : 0;
        out->classes[i].used_per_token = m->classes[i].used_per_token * share;
    }
}

/* KV memory that belongs to no layer: tables on every device, and each layer's share for snapshots. */
static int64_t state_bytes(const mo_plan_model *m, const layer_sums *all, const layer_sums *s)
{
    const int64_t rest = m->device_kv_bytes > all->state ? m->device_kv_bytes - all->state : 0;
    const int64_t kept = m->device_kept_bytes < rest ? m->device_kept_bytes : rest;
    const double share = all->state > 0 ? (double)s->state / (double)all->state : 1;
    return mo_plan_sum(mo_plan_sum(s->state, (int64_t)((double)kept * share)), rest - kept);
}

static void take_run(const mo_plan_model *m, const layer_sums *all, int first, int end, mo_plan_model *out)
{
    const layer_sums s = sum_layers(m, first, end);
    const bool last = end == m->layers;
    const int64_t output = m->device_core_bytes > all->core ? m->device_core_bytes - all->core : 0;
    *out = *m;
    out->layers = end - first;
    out->layer = m->layer + first;
    out->routed_layers = s.routed;
    out->dense_layers = s.dense;
    out->dense_bytes = s.resident;
    out->dense_layer_bytes = s.largest;
    out->dense_buffer_bytes = s.buffer;
    out->core_bytes = mo_plan_sum(s.resident, last ? m->core_bytes - m->dense_bytes : 0);
    out->vector_bytes = m->layers ? m->vector_bytes / m->layers * out->layers : 0;
    out->tied = m->tied && last;
    out->output_bytes = last ? m->output_bytes : 0;
    out->device_core_bytes = mo_plan_sum(s.core, last ? output : 0);
    out->device_kv_bytes = state_bytes(m, all, &s);
    out->batch_count = 0;
    scale_classes(m, all, &s, out);
}

/* ---- One division ---- */

typedef struct dividing {
    const mo_plan_model *model;
    const mo_plan_device_limits *devices;
    const mo_run_plan *ram;
    layer_sums all;
    int device[MO_PLAN_DEVICES]; /* devices in use */
    int count;
    int end[MO_PLAN_DEVICES]; /* of their ranges */
    mo_plan_model part;       /* too large for the stack */
    mo_run_plan plan;
} dividing;

/* RAM for this range alone: experts on disk are spread evenly over layers. */
static void take_ram(dividing *d)
{
    d->plan = *d->ram;
    d->plan.device = (mo_plan_device){0};
    d->plan.dense_resident = d->part.dense_layers;
    for (int i = 0; i < d->part.class_count; i++) {
        const int64_t experts = d->model->classes[i].experts;
        d->plan.class_slots[i] =
            experts ? (int32_t)(d->ram->class_slots[i] * d->part.classes[i].experts / experts) : 0;
    }
}

/* A range that does not fit costs more than any that fits, growing with the missing bytes, so that the search
 * converges. */
static double cost_of_lack(int64_t bytes)
{
    return LACKING + (double)bytes * 1e-3;
}

/* Seconds of a token in the range; *out: the device's plan if it fits. */
static double try_run(dividing *d, int device, int first, int end, mo_plan_device *out)
{
    const mo_plan_device_limits *c = &d->devices[device];
    take_run(d->model, &d->all, first, end, &d->part);
    take_ram(d);
    mo_plan_device place = {0};
    const bool fits = mo_plan_device_place(&d->part, &c->limits, &d->plan, &place);
    const int64_t whole_core = mo_plan_sum(d->part.device_core_bytes, d->part.device_kv_bytes);
    if (!fits || place.streamed > 0) {
        const int64_t lack = mo_plan_sum(whole_core, place.work) + place.staging - place.ceiling;
        return cost_of_lack(lack > 0 ? lack : 1);
    }
    d->plan.device = place;
    mo_plan_device_estimate(&d->part, &c->limits, &c->rates, NULL, &d->plan);
    *out = d->plan.device;
    return d->plan.tokens_per_second > 0 ? 1 / d->plan.tokens_per_second : 0;
}

static double try_division(dividing *d)
{
    double seconds = (d->count - 1) * MO_PLAN_HOP_SECONDS;
    mo_plan_device ignored;
    for (int i = 0; i < d->count; i++) {
        seconds += try_run(d, d->device[i], i ? d->end[i - 1] : 0, d->end[i], &ignored);
    }
    return seconds;
}

/* ---- Which one ---- */

static int64_t layer_weight(const mo_plan_model *m, const layer_sums *all, int layer)
{
    const mo_plan_layer *l = &m->layer[layer];
    const int c = l->size_class;
    int64_t bytes = mo_plan_sum(l->core_bytes, l->state_bytes);
    if (c >= 0 && c < m->class_count && all->of_class[c]) {
        const int64_t slot = m->device_slot_bytes[c] ? m->device_slot_bytes[c] : m->classes[c].slot_bytes;
        bytes = mo_plan_sum(bytes, mo_plan_times(m->classes[c].experts / all->of_class[c], slot));
    }
    return bytes;
}

static double capacity_of(const dividing *d, int device)
{
    const mo_plan_limits *l = &d->devices[device].limits;
    const int64_t fixed = mo_plan_sum(d->model->device_work_bytes, d->model->device_map_bytes);
    return l->vram_bytes > fixed ? (double)(l->vram_bytes - fixed) : 1.0;
}

/* Starting point: layers by device capacity, at least one each. */
static void begin_by_size(dividing *d)
{
    const int layers = d->model->layers;
    double capacity = 0, weight = 0, before = 0, seen = 0;
    for (int i = 0; i < d->count; i++) {
        capacity += capacity_of(d, d->device[i]);
    }
    for (int i = 0; i < layers; i++) {
        weight += (double)layer_weight(d->model, &d->all, i);
    }
    int layer = 0;
    for (int i = 0; i < d->count; i++) {
        before += capacity_of(d, d->device[i]);
        const int least = (i ? d->end[i - 1] : 0) + 1, most = layers - (d->count - 1 - i);
        while (layer < layers && (layer < least || seen < weight * before / capacity)) {
            seen += (double)layer_weight(d->model, &d->all, layer++);
        }
        d->end[i] = layer > most ? most : layer;
    }
    d->end[d->count - 1] = layers;
}

/* Moves range borders while that helps, large steps first. */
static double improve(dividing *d)
{
    double best = try_division(d);
    for (int step = d->model->layers / 4 > 1 ? d->model->layers / 4 : 1; step > 0; step /= 2) {
        for (int tries = 0, moved = 1; moved && tries < 2 * d->count + 4; tries++) {
            moved = 0;
            for (int i = 0; i + 1 < d->count; i++) {
                for (int way = -step; way <= step; way += 2 * step) {
                    const int was = d->end[i], now = was + way;
                    if (now <= (i ? d->end[i - 1] : 0) || now >= d->end[i + 1]) {
                        continue;
                    }
                    d->end[i] = now;
                    const double seconds = try_division(d);
                    moved |= seconds < best * (1 - 1e-9);
                    d->end[i] = seconds < best * (1 - 1e-9) ? now : was;
                    best = seconds < best * (1 - 1e-9) ? seconds : best;
                }
            }
        }
    }
    return best;
}

static double divide_among(dividing *d)
{
    if (d->count > d->model->layers) {
        return INFINITY;
    }
    begin_by_size(d);
    return improve(d);
}

static void leave_out(const dividing *d, int which, dividing *out)
{
    *out = *d;
    out->count--;
    memmove(out->device + which, out->device + which + 1, sizeof *out->device * (size_t)(out->count - which));
}

/* Removes one device at a time while that is faster, or until the model fits. */
static double choose_devices(dividing *d, dividing *other, dividing *best_other, bool named)
{
    double best = divide_among(d);
    while (d->count > 1 && !(named && best < LACKING)) {
        double found = INFINITY;
        for (int i = 0; i < d->count; i++) {
            leave_out(d, i, other);
            const double seconds = divide_among(other);
            if (seconds < found) {
                found = seconds;
                *best_other = *other;
            }
        }
        if (!(found < best)) {
            break;
        }
        *d = *best_other;
        best = found;
    }
    return best;
}

/* ---- Together ---- */

mo_plan_device_limits mo_plan_devices_sum(const mo_plan_model *m, const mo_plan_device_limits *devices,
                                          int count)
{
    mo_plan_device_limits sum = devices[0];
    const int64_t each = mo_plan_sum(m->device_work_bytes, m->device_map_bytes);
    double seconds = 0;
    sum.limits.vram_bytes = sum.limits.vram_held = sum.limits.vram_lacking = 0;
    for (int i = 0; i < count; i++) {
        const mo_plan_limits *l = &devices[i].limits;
        const int64_t twice = i && l->vram_bytes > each ? each : 0;
        sum.limits.vram_bytes = mo_plan_sum(sum.limits.vram_bytes, l->vram_bytes - twice);
        sum.limits.vram_held = mo_plan_sum(sum.limits.vram_held, l->vram_held);
        sum.limits.vram_lacking = mo_plan_sum(sum.limits.vram_lacking, l->vram_lacking);
        seconds += (double)l->vram_bytes /
                   (devices[i].rates.vram_bytes_s > 0 ? devices[i].rates.vram_bytes_s : MO_RATES_VRAM_GUESS);
        sum.rates.link_bytes_s = fmin(sum.rates.link_bytes_s, devices[i].rates.link_bytes_s);
        sum.rates.link_copy_s = fmax(sum.rates.link_copy_s, devices[i].rates.link_copy_s);
    }
    sum.rates.vram_bytes_s = seconds > 0 ? (double)sum.limits.vram_bytes / seconds : 0;
    snprintf(sum.limits.vram_why, sizeof sum.limits.vram_why, "%d devices share the layers", count);
    return sum;
}

static void add_device(const mo_plan_device *d, int classes, mo_plan_device *sum)
{
    sum->ceiling = mo_plan_sum(sum->ceiling, d->ceiling);
    sum->core = mo_plan_sum(sum->core, d->core);
    sum->vectors = mo_plan_sum(sum->vectors, d->vectors);
    sum->kv = mo_plan_sum(sum->kv, d->kv);
    sum->work = mo_plan_sum(sum->work, d->work);
    sum->staging = mo_plan_sum(sum->staging, d->staging);
    sum->slots = mo_plan_sum(sum->slots, d->slots);
    sum->used = mo_plan_sum(sum->used, d->used);
    sum->least = mo_plan_sum(sum->least, d->least);
    sum->whole = mo_plan_sum(sum->whole, d->whole);
    for (int i = 0; i < classes; i++) {
        sum->class_slots[i] += d->class_slots[i];
    }
    sum->expert_resident = mo_plan_sum(sum->expert_resident, d->expert_resident);
    sum->layers += d->layers;
    sum->fetch |= d->fetch;
    sum->token_bytes = mo_plan_sum(sum->token_bytes, d->token_bytes);
    sum->token_link_bytes = mo_plan_sum(sum->token_link_bytes, d->token_link_bytes);
    sum->core_seconds += d->core_seconds;
    sum->hit_seconds += d->hit_seconds;
    sum->miss_seconds += d->miss_seconds;
    sum->link_seconds += d->link_seconds;
    sum->overhead_seconds += d->overhead_seconds;
}

/* ---- Prompts ---- */

/* Seconds of a batch of this many tokens: all devices, and the slowest. */
static void time_batch(dividing *d, double tokens, double *all, double *longest)
{
    *all = *longest = 0;
    for (int i = 0; i < d->count; i++) {
        const mo_plan_device_limits *c = &d->devices[d->device[i]];
        mo_plan_device place = {0};
        try_run(d, d->device[i], i ? d->end[i - 1] : 0, d->end[i], &place); /* fills part and plan */
        const double seconds = mo_plan_batch_seconds(&d->part, &c->rates, &d->plan, tokens);
        *all += seconds;
        *longest = fmax(*longest, seconds);
    }
}

/* If a device is listed twice, pieces cannot run in parallel on it. */
static bool are_apart(const dividing *d)
{
    for (int i = 0; i < d->count; i++) {
        for (int j = 0; j < i; j++) {
            const mo_location_id a = d->devices[d->device[i]].limits.vram_location,
                                 b = d->devices[d->device[j]].limits.vram_location;
            if (a.machine == b.machine && a.device == b.device) {
                return false;
            }
        }
    }
    return true;
}

/* Number of pieces per batch. Small pieces fill the pipeline sooner, but read all weights again and copy
 * missing experts again. More pieces must save at least 2 %. *seconds: of a batch in these pieces. */
static int64_t choose_piece(dividing *d, int64_t batch, double *seconds)
{
    double of[MO_PLAN_PIECES + 1], best = INFINITY;
    const int most =
        batch / MO_PLAN_PIECE_LEAST < MO_PLAN_PIECES ? (int)(batch / MO_PLAN_PIECE_LEAST) : MO_PLAN_PIECES;
    int count = 1;
    for (int i = 1; i == 1 || i <= most; i++) {
        double all, longest;
        time_batch(d, (double)batch / i, &all, &longest);
        of[i] = all + (i - 1) * longest + (d->count - 1) * MO_PLAN_HOP_SECONDS;
        best = fmin(best, of[i]);
    }
    while (count < most && of[count] > best * 1.02) {
        count++;
    }
    *seconds = of[count];
    return count > 1 ? (batch + count - 1) / count : 0;
}

/* All devices share the disk for experts, so batches of models with experts on disk are not split. */
static void plan_prompts(dividing *d, mo_run_plan *plan, mo_plan_division *out)
{
    const int64_t batch = d->model->batch;
    out->piece = 0;
    if (d->count < 2 || batch < 1 || plan->prompt_tokens < 1) {
        return;
    }
    double seconds = 0, all, longest;
    time_batch(d, (double)batch, &all, &longest);
    seconds = all;
    if (plan->mode == MO_PLAN_RESIDENT && are_apart(d)) {
        out->piece = choose_piece(d, batch, &seconds);
    }
    plan->prompt_seconds = seconds * (double)plan->prompt_tokens / (double)batch;
}

/* ---- All of it ---- */

/* Fills the ranges and their sums. */
static void take_division(dividing *d, mo_run_plan *plan, mo_plan_division *out)
{
    const mo_plan_device was = plan->device;
    mo_plan_device sum = {.stage_bytes = was.stage_bytes, .staged = was.staged, .margin = was.margin};
    double seconds = (d->count - 1) * MO_PLAN_HOP_SECONDS, hits = 0, in_ram = 0, share = 0;
    mo_run_plan speed = {0};
    out->count = d->count;
    for (int i = 0; i < d->count; i++) {
        mo_plan_run *r = &out->run[i];
        *r = (mo_plan_run){.device = d->device[i], .first = i ? d->end[i - 1] : 0, .end = d->end[i]};
        r->seconds = try_run(d, r->device, r->first, r->end, &r->plan);
        seconds += r->seconds;
        add_device(&r->plan, d->model->class_count, &sum);
        const double routed = d->part.routed_layers;
        hits += r->plan.hit_rate * routed;
        in_ram += d->plan.hit_rate * routed;
        share += r->plan.fetch_share * routed;
        speed.core_seconds += d->plan.core_seconds;
        speed.expert_seconds += d->plan.expert_seconds;
        speed.disk_seconds += d->plan.disk_seconds;
        speed.token_disk_bytes = mo_plan_sum(speed.token_disk_bytes, d->plan.token_disk_bytes);
        speed.token_ram_bytes = mo_plan_sum(speed.token_ram_bytes, d->plan.token_ram_bytes);
    }
    const double routed = d->all.routed;
    sum.hit_rate = routed > 0 ? hits / routed : 1;
    sum.fetch_share = routed > 0 ? share / routed : 0;
    sum.overhead_seconds += (d->count - 1) * MO_PLAN_HOP_SECONDS;
    memcpy(sum.lane, out->run[0].plan.lane, sizeof sum.lane);
    snprintf(sum.why, sizeof sum.why, "%d devices share the layers", d->count);
    plan->device = sum;
    plan->core_seconds = speed.core_seconds;
    plan->expert_seconds = speed.expert_seconds;
    plan->disk_seconds = speed.disk_seconds;
    plan->token_disk_bytes = speed.token_disk_bytes;
    plan->token_ram_bytes = speed.token_ram_bytes;
    plan->hit_rate = routed > 0 ? in_ram / routed : 1;
    plan->tokens_per_second = seconds > 0 ? 1 / seconds : 0;
    plan_prompts(d, plan, out);
}

mo_status mo_plan_divide(const mo_plan_model *model, const mo_plan_device_limits *devices, int count,
                         bool named, mo_run_plan *plan, mo_plan_division *out, mo_error *err)
{
    if (!model->layer || count < 1 || count > MO_PLAN_DEVICES) {
        return mo_fail(err, MO_EDEVICE, "this model cannot be divided among %d devices", count);
    }
    dividing *d = calloc(3, sizeof *d);
    if (!d) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    const mo_run_plan ram = *plan;
    *d = (dividing){.model = model, .devices = devices, .ram = &ram, .count = count};
    d->all = sum_layers(model, 0, model->layers);
    for (int i = 0; i < count; i++) {
        d->device[i] = i;
    }
    const double seconds = choose_devices(d, d + 1, d + 2, named);
    mo_status status = MO_OK;
    if (seconds < LACKING) {
        take_division(d, plan, out);
    } else {
        status = mo_fail(err, MO_EDEVICE,
                         "the cores of all layers and the session state do not fit into the memory "
                         "of %d devices together; raise `vram_bytes`, or reduce `context` or `batch`",
                         count);
    }
    free(d);
    return status;
}
