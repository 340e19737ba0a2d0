/* The public API of reports on open models.
 *
 * Counters are written by the running step under the engine's lock. A report reads them if the lock is free.
 * Otherwise it uses the last published copy: steps publish the counters when they end, at most every
 * PUBLISH_NS, so that reports never wait for a step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/clock.h"
#include "base/growing.h"
#include "base/status.h"
#include "plan/text.h"
#include "profile/tally.h"

#define PUBLISH_NS   ((int64_t)20 * 1000 * 1000)
#define LOCATIONS_NS ((int64_t)200 * 1000 * 1000)

struct mo_reports {
    pthread_mutex_t lock; /* held only to copy; protects everything below */
    int64_t published_ns;
    mo_counter_report counters;
    mo_tier_report tiers;
    mo_split_report split;
    /* Locations of experts are collected only while reports request them, since that visits every expert. */
    bool locations_wanted;
    int64_t locations_ns;
    uint8_t *locations; /* mo_expert_place, [experts of all layers] */
    /* likewise; constant, because a monitoring page requests all of them four times a second */
    int64_t *bytes;
};

/* ---- Reading the counters, under the engine's lock ---- */

static void report_disk(const mo_model *m, const mo_disk *disk, mo_tier_report *out)
{
    const mo_disk_counters c = mo_disk_count(disk);
    out->disk_reads += c.reads;
    out->disk_bytes += c.bytes;
    out->disk_busy_ns += c.busy_ns;
    out->disk_method = m->disk_method;
}

static mo_tier_phase phase_of(const mo_store_phase_counters *c)
{
    return (mo_tier_phase){
        .passes = c->passes, .asked = c->asked, .hits = c->hits, .bytes = c->bytes, .wait_ns = c->wait_ns};
}

static void report_store(const mo_model *m, const mo_store *store, mo_tier_report *out)
{
    const mo_store_counters c = mo_store_count(store);
    mo_store_slots(store, &out->slots, &out->filled, &out->slot_bytes);
    out->policy = mo_store_policy(store)->name;
    out->prompt = phase_of(&c.phase[MO_STORE_PROMPT]);
    out->generation = phase_of(&c.phase[MO_STORE_GENERATION]);
    out->guessed = c.guessed;
    out->useful = c.useful;
    out->late = c.late;
    out->wasted = c.wasted;
    out->known = c.known;
    out->guessed_bytes = c.guessed_bytes;
    out->evictions = c.evictions;
    out->start_bytes = c.ahead_bytes;
    out->yielded = c.yielded;
    out->taken = c.taken;
    report_disk(m, mo_store_disk(store), out);
}

/* Layers read from disk for every step, without those on a device that is not lost. */
static int streamed_layers(const mo_model *m)
{
    const mo_plan_model *requirements = &m->opened.choice.model;
    const mo_run_plan *plan = &m->opened.choice.plan;
    const bool device = m->gpu && m->engine && atomic_load(&m->engine->accelerator);
    return device ? mo_placement_sum(requirements, mo_placement_counts_of(requirements, plan)).from_disk
                  : requirements->dense_layers - plan->dense_resident;
}

/* Number of experts of all layers in this process. */
static int64_t experts_here(const mo_model_spec *spec)
{
    int64_t count = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        for (int e = 0; spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
            count += mo_spec_has_expert(spec, e);
        }
    }
    return count;
}

static void report_tiers(const mo_model *model, mo_tier_report *out)
{
    const mo_tiers *tiers = model->opened.tiers;
    const mo_run_plan *plan = &model->opened.choice.plan;
    *out = (mo_tier_report){.mode = model->mapped ? "mapped" : mo_plan_mode_text(plan),
                            .policy = "",
                            .disk_method = "",
                            .ceiling_bytes = plan->ceiling,
                            .planned_bytes = plan->used,
                            .expert_bytes = plan->expert_bytes,
                            .experts = experts_here(model->engine->spec),
                            .layers = model->engine->spec->layer_count};
    if (tiers && tiers->store) {
        report_store(model, tiers->store, out);
    }
    if (tiers && tiers->layers) {
        const mo_layer_buffer_counters c = mo_layer_buffer_count(tiers->layers);
        out->streamed_layers = streamed_layers(model);
        out->layer_buffer = plan->layer_buffers;
        out->layers_streamed = c.layers;
        out->layer_bytes = c.bytes;
        out->layer_wait_ns = c.wait_ns;
        report_disk(model, mo_layer_buffer_disk(tiers->layers), out);
    }
    out->skipped = tiers ? tiers->skipped : 0;
    out->disk_probed_bytes_s = model->opened.probed_disk_bytes_s;
    out->ram_probed_bytes_s = model->opened.probed_ram_bytes_s;
}

static mo_expert_place location_of(const mo_model *m, int layer, int expert)
{
    const mo_where *on_device = mo_model_where(m, layer);
    const mo_where ram = {.spec = m->engine->spec, .store = mo_engine_store(m->engine)};
    return mo_where_is(on_device ? on_device : &ram, layer, expert);
}

/* Both locks are held. */
static void publish_locations(mo_model *m)
{
    mo_reports *r = m->reports;
    const int64_t now = mo_clock_ns();
    size_t at = 0;
    if (!r->locations_wanted || !r->locations || (r->locations_ns && now - r->locations_ns < LOCATIONS_NS)) {
        return;
    }
    for (int layer = 0; layer < m->engine->spec->layer_count; layer++) {
        for (int expert = 0, count = mo_model_layer_experts(m, layer); expert < count; expert++) {
            r->locations[at++] = (uint8_t)location_of(m, layer, expert);
        }
    }
    r->locations_ns = now;
    r->locations_wanted = false;
}

static void publish(mo_model *m)
{
    mo_reports *r = m->reports;
    const mo_engine_counters c = m->engine->counters;
    pthread_mutex_lock(&r->lock);
    r->published_ns = mo_clock_ns();
    r->counters = (mo_counter_report){.steps = c.steps,
                                      .tokens = c.tokens,
                                      .drafted = c.drafted,
                                      .accepted = c.accepted,
                                      .checked = c.checked,
                                      .expert_picks = c.expert_picks,
                                      .experts_run = c.experts_run,
                                      .single_steps = c.single_steps,
                                      .single_ns = c.single_ns,
                                      .prompt_tokens = c.prompt_tokens,
                                      .prompt_ns = c.prompt_ns};
    report_tiers(m, &r->tiers);
    r->split = mo_split_report_of(&m->engine->split);
    publish_locations(m);
    pthread_mutex_unlock(&r->lock);
}

static void after_step(void *user)
{
    mo_model *m = user;
    pthread_mutex_lock(&m->reports->lock);
    const bool due = mo_clock_ns() - m->reports->published_ns >= PUBLISH_NS;
    pthread_mutex_unlock(&m->reports->lock);
    if (due) {
        publish(m);
    }
}

/* ---- Opening ---- */

static int64_t matrix_bytes(const mo_linear *l)
{
    return mo_linear_present(l) ? l->w.rows * mo_format_row_bytes(mo_format_of(l->w.type), l->w.cols) : 0;
}

static int64_t expert_bytes(const mo_model *model, int layer, int expert)
{
    const mo_expert *b = &model->engine->spec->layers[layer].moe.expert[expert];
    return matrix_bytes(&b->gate) + matrix_bytes(&b->up) + matrix_bytes(&b->down);
}

static void name_disk(mo_model *m)
{
    const mo_tiers *tiers = m->opened.tiers;
    const mo_disk *disk = tiers && tiers->layers  ? mo_layer_buffer_disk(tiers->layers)
                          : tiers && tiers->store ? mo_store_disk(tiers->store)
                                                  : NULL;
    if (disk) {
        snprintf(m->disk_method, sizeof m->disk_method, "%s reads, %s of %d",
                 mo_disk_io(disk) == MO_IO_DIRECT ? "direct" : "cached",
                 mo_disk_chosen(disk) == MO_DISK_URING ? "io_uring" : "threads", mo_disk_readers(disk));
    }
}

mo_status mo_reports_open(mo_model *m, mo_error *err)
{
    mo_reports *r = calloc(1, sizeof *r);
    if (!r) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the counters of %s",
                       mo_checkpoint_path(m->checkpoint));
    }
    size_t experts = 1;
    for (int layer = 0; layer < m->engine->spec->layer_count; layer++) {
        experts += (size_t)mo_model_layer_experts(m, layer);
    }
    r->locations = calloc(experts, 1);
    r->bytes = calloc(experts, sizeof *r->bytes);
    if (!r->locations || !r->bytes) {
        free(r->locations);
        free(r->bytes);
        free(r);
        return mo_fail(err, MO_ENOMEM, "out of memory for the counters of %s",
                       mo_checkpoint_path(m->checkpoint));
    }
    experts = 0;
    for (int layer = 0; layer < m->engine->spec->layer_count; layer++) {
        for (int e = 0, count = mo_model_layer_experts(m, layer); e < count; e++) {
            r->bytes[experts++] = expert_bytes(m, layer, e);
        }
    }
    pthread_mutex_init(&r->lock, NULL);
    r->locations_wanted = true;
    m->reports = r;
    name_disk(m);
    publish(m);
    m->engine->after_step_user = m;
    m->engine->after_step = after_step;
    return MO_OK;
}

void mo_reports_close(mo_reports *r)
{
    if (r) {
        pthread_mutex_destroy(&r->lock);
        free(r->locations);
        free(r->bytes);
        free(r);
    }
}

/* ---- Queries ---- */

/* The newest reports available without waiting; the caller unlocks them. */
static const mo_reports *look(mo_model *m)
{
    if (pthread_mutex_trylock(&m->engine->lock) == 0) {
        publish(m);
        pthread_mutex_unlock(&m->engine->lock);
    }
    pthread_mutex_lock(&m->reports->lock);
    return m->reports;
}

static void unlock(mo_model *m)
{
    pthread_mutex_unlock(&m->reports->lock);
}

void mo_model_traffic(mo_model *model, mo_traffic_report *out, size_t size)
{
    mo_traffic_report r = {.ranks = 1};
    if (model->leader) {
        mo_leader_traffic(model->leader, &r);
    } else if (model->asker) {
        mo_experts_traffic(model->asker, &r);
    }
    mo_report_write(out, size, &r, sizeof r);
}

void mo_reports_look(mo_model *model, mo_counter_report *counters, mo_tier_report *tiers,
                     mo_split_report *split)
{
    const mo_reports *r = look(model);
    *counters = r->counters;
    *tiers = r->tiers;
    *split = r->split;
    unlock(model);
}

void mo_model_counters(mo_model *model, mo_counter_report *out, size_t size)
{
    const mo_reports *r = look(model);
    mo_report_write(out, size, &r->counters, sizeof r->counters);
    unlock(model);
}

void mo_model_uncount_accepted(mo_model *model, int64_t count)
{
    atomic_fetch_add(&model->unaccepted, count);
}

void mo_model_speculation(mo_model *model, mo_speculation_report *out, size_t size)
{
    mo_counter_report c = look(model)->counters;
    unlock(model);
    c.accepted -= (uint64_t)atomic_load(&model->unaccepted);
    const mo_speculation_report r = {
        .draft_max = model->engine->drafts.most,
        .drafted = c.drafted,
        .accepted = c.accepted,
        .checked = c.checked,
        .tokens_per_step = c.checked ? 1.0 + (double)c.accepted / (double)c.checked : 0.0,
        .gain = mo_step_times_gain(&model->times),
    };
    mo_report_write(out, size, &r, sizeof r);
}

void mo_model_tiers(mo_model *model, mo_tier_report *out, size_t size)
{
    const mo_reports *r = look(model);
    mo_report_write(out, size, &r->tiers, sizeof r->tiers);
    unlock(model);
}

/* The device's counters are published by the device's own steps. */
void mo_model_device(mo_model *model, mo_device_report *out, size_t size)
{
    mo_device_report report = {0};
    if (model->gpu) {
        mo_gpu_report(model->gpu, &report);
        report.name = model->device_name;
        report.link_probed_bytes_s = model->probed_link_bytes_s;
        report.host_probed_bytes_s = model->probed_host_bytes_s;
        report.experts_probed_bytes_s = model->probed_experts_bytes_s;
        report.lost = atomic_load(&model->engine->accelerator) == NULL;
    } else if (model->expert_device && !model->experts.alone) {
        mo_gpu_expert_device_report(model->expert_device, &report);
        report.name = model->device_name;
        report.link_probed_bytes_s = model->probed_link_bytes_s;
        report.host_probed_bytes_s = model->probed_host_bytes_s;
        report.experts_probed_bytes_s = model->probed_experts_bytes_s;
    }
    mo_report_write(out, size, &report, sizeof report);
}

int mo_model_device_layers(mo_model *model, mo_device_layer *out, size_t size, int count)
{
    mo_device_layer *layers = malloc(sizeof *layers * (size_t)(count > 0 ? count : 1));
    if (!layers) {
        return -1;
    }
    const int found = model->gpu ? mo_gpu_report_layers(model->gpu, layers, count) : 0;
    for (int i = 0; i < found && i < count; i++) {
        mo_report_write((char *)out + (size_t)i * size, size, &layers[i], sizeof layers[i]);
    }
    free(layers);
    return found;
}

/* Picks that found an expert at this location, over all phases. Under the profile's lock. */
static uint64_t picks_of(const mo_tally_layer *l, mo_found found, int expert)
{
    uint64_t sum = 0;
    for (int phase = 0; l && expert < l->experts && phase < MO_PROFILE_PHASES; phase++) {
        sum += atomic_load_explicit(&l->hits[phase][found][expert], memory_order_relaxed);
    }
    return sum;
}

int mo_model_experts(mo_model *model, int layer, mo_expert_report *out, size_t size, int count)
{
    const int experts = mo_model_layer_experts(model, layer);
    size_t first = 0;
    for (int i = 0; i < layer && experts; i++) {
        first += (size_t)mo_model_layer_experts(model, i);
    }
    pthread_mutex_lock(&model->reports->lock);
    model->reports->locations_wanted = true;
    pthread_mutex_unlock(&model->reports->lock);
    pthread_mutex_lock(&model->profile_lock);
    const mo_tally *tally = mo_learning_tally(model->learning);
    const mo_tally_layer *counts = tally ? mo_tally_find(tally, layer) : NULL;
    const mo_reports *r = look(model);
    for (int e = 0; e < experts && e < count; e++) {
        const uint64_t hits = picks_of(counts, MO_FOUND_HOT, e);
        const mo_expert_report one = {.place = (mo_expert_place)r->locations[first + (size_t)e],
                                      .picks = hits + picks_of(counts, MO_FOUND_COLD, e),
                                      .hits = hits,
                                      .bytes = r->bytes[first + (size_t)e]};
        mo_report_write((char *)out + (size_t)e * size, size, &one, sizeof one);
    }
    unlock(model);
    pthread_mutex_unlock(&model->profile_lock);
    return experts;
}
