#include "api/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/growing.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/adapter.h"
#include "gguf/fingerprint.h"
#include "numeric/version.h"
#include "plan/device.h"

_Static_assert((int)MO_RANKS_TOKENS == (int)MO_LEADER_TOKENS, "as mo_leader_group() takes them");

/* ---- Open and close ---- */

static const mo_cluster_options defaults = {.size = sizeof(mo_cluster_options), .timeout_s = 10.0};

void mo_cluster_options_init(mo_cluster_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

const char *mo_cluster_library(void)
{
    return mo_mpi_library();
}

mo_status mo_cluster_open_on(const mo_link_options *link, int local_ranks, mo_cluster **out, mo_error *err)
{
    mo_cluster *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c) {
        c->parts.first = calloc((size_t)link->data->ranks + 1, sizeof *c->parts.first);
    }
    if (!c || !c->parts.first) {
        free(c);
        return mo_fail(err, MO_ENOMEM, "out of memory for a run with several ranks");
    }
    pthread_mutex_init(&c->lock, NULL);
    c->local_ranks = local_ranks;
    const mo_status status = mo_link_open(link, &c->link, err);
    if (status != MO_OK) {
        mo_cluster_close(c);
        return status;
    }
    *out = c;
    return MO_OK;
}

static mo_status check_timeout(double timeout_s, mo_error *err)
{
    return timeout_s >= 0.1 && timeout_s <= 3600.0
               ? MO_OK
               : mo_fail(err, MO_EINVAL, "`timeout_s` must be 0.1 to 3600 seconds, not %g", timeout_s);
}

mo_status mo_cluster_open(const mo_cluster_options *options, mo_cluster **out, mo_error *err)
{
    mo_cluster_options o = defaults;
    mo_mpi *mpi = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_cluster_options", err);
    if (status == MO_OK) {
        status = check_timeout(o.timeout_s, err);
    }
    if (status == MO_OK) {
        status = mo_mpi_open(&mpi, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const mo_link_options link = {.data = mo_mpi_data(mpi),
                                  .beats = mo_mpi_beats(mpi),
                                  .timeout_ns = (int64_t)(o.timeout_s * 1e9),
                                  .on_lost = o.lost,
                                  .user = o.user};
    status = mo_cluster_open_on(&link, mo_mpi_local_ranks(mpi), out, err);
    if (status == MO_OK && *out) {
        (*out)->mpi = mpi;
    } else {
        mo_mpi_close(mpi, false);
    }
    return status;
}

mo_status mo_cluster_set_timeout(mo_cluster *c, double timeout_s, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "cluster", c)
    const mo_status status = check_timeout(timeout_s, err);
    if (status == MO_OK) {
        mo_link_set_timeout(c->link, (int64_t)(timeout_s * 1e9));
    }
    return status;
}

static mo_status send_head(mo_cluster *c, mo_wire_kind kind, mo_error *err)
{
    const mo_wire_head head = {
        .order = MO_WIRE_ORDER, .kind = (uint32_t)kind, .serial = mo_link_next_serial(c->link)};
    const mo_status status = mo_link_send(c->link, 1, &head, sizeof head, err);
    return status == MO_OK ? mo_link_flush(c->link, err) : status;
}

/* Announces the end of the run and waits for every rank's confirmation. A rank without one is reported and
 * not waited for. */
static mo_status end_run(mo_cluster *c, mo_error *err)
{
    mo_link_leave(c->link);
    mo_status status = send_head(c, MO_WIRE_END, err);
    for (int r = 1; r < mo_link_ranks(c->link) && status == MO_OK; r++) {
        mo_wire_result known;
        status = mo_link_receive(c->link, r, &known, sizeof known, false, err);
    }
    return status;
}

void mo_cluster_close(mo_cluster *c)
{
    mo_error err;
    if (c) {
        bool orderly = c->link && mo_link_status(c->link, &err) == MO_OK;
        if (orderly && mo_link_rank(c->link) == 0 && mo_link_ranks(c->link) > 1) {
            orderly = end_run(c, &err) == MO_OK;
        }
        mo_link_close(c->link);
        mo_mpi_close(c->mpi, orderly);
        free(c->said);
        free(c->said_of);
        free(c->parts.first);
        pthread_mutex_destroy(&c->lock);
        free(c);
    }
}

int mo_cluster_rank(const mo_cluster *c)
{
    return mo_link_rank(c->link);
}

int mo_cluster_ranks(const mo_cluster *c)
{
    return mo_link_ranks(c->link);
}

void mo_cluster_describe(const mo_cluster *cluster, mo_cluster_info *out, size_t size)
{
    const mo_cluster_info info = {.rank = mo_cluster_rank(cluster), .ranks = mo_cluster_ranks(cluster)};
    mo_report_write(out, size, &info, sizeof info);
}

/* ---- Options ---- */

mo_status mo_cluster_check_options(mo_model_options *o, mo_error *err)
{
    const mo_learning_options *l = &o->learning;
    const char *what = NULL;
    o->device = mo_ranks_device(o->device);
    if (strcmp(o->device, "none") == 0 && o->vram_bytes) {
        what = "`vram_bytes` without a named `device`";
    } else if (o->map) {
        what = "`map`";
    } else if (o->skip_missing && o->divide == MO_DIVIDE_EXPERTS) {
        what = "`skip_missing`";
    } else if (o->adapter_bytes) {
        what = "`adapter_bytes`";
    } else if (l->hot_cache.file) {
        what = "`hot_cache.file`";
    } else if (l->perf_out) {
        what = "`perf_out`";
    } else if (l->warm_file) {
        what = "`warm_file`";
    } else if (l->profile && strcmp(l->profile, "off") != 0 && strcmp(l->profile, "auto") != 0) {
        what = "`profile`";
    }
    if (what) {
        return mo_fail(err, MO_EUNSUPPORTED, "a model divided among ranks does not support %s; omit it",
                       what);
    }
    o->learning.profile = "off";
    return MO_OK;
}

void mo_cluster_share_ram(const mo_cluster *c, mo_resources *resources)
{
    if (!resources->ram_given && c->local_ranks > 1) {
        resources->limits.ram_bytes /= c->local_ranks;
    }
}

/* ---- Hellos ---- */

static mo_status describe_file(const char *path, mo_wire_hello *h, mo_error *err)
{
    mo_checkpoint *model = NULL;
    const mo_status status = mo_checkpoint_load(path, &(mo_load_options){.describe = true}, &model, err);
    if (status == MO_OK) {
        const mo_gguf *g = mo_checkpoint_gguf(model);
        h->fingerprint = mo_gguf_fingerprint(g);
        h->layers = mo_checkpoint_spec(model)->layer_count;
        for (int i = 0; i < mo_gguf_parts(g); i++) {
            h->file_bytes += (uint64_t)mo_gguf_part_bytes(g, i);
        }
    }
    mo_checkpoint_free(model);
    return status;
}

static void describe_resources(const mo_resources *resources, mo_wire_hello *h)
{
    const mo_plan_limits *l = &resources->limits;
    h->devices = resources->device != NULL;
    h->ram_bytes = l->ram_bytes > l->ram_held ? l->ram_bytes - l->ram_held : 0;
    h->vram_bytes = resources->device ? l->vram_bytes - mo_plan_vram_held(l) : 0;
    h->vram_bytes_s = resources->rates.vram_bytes_s;
    h->ram_bytes_s = mo_rates_products(&resources->rates);
    h->disk_bytes_s = resources->rates.disk_bytes_s;
}

void mo_cluster_hello(const mo_cluster *c, const char *path, const mo_resources *resources, mo_status status,
                      const mo_error *why, mo_wire_hello *h)
{
    mo_error err = {0};
    memset(h, 0, sizeof *h);
    memcpy(h->magic, "MORAINE", 8);
    h->order = MO_WIRE_ORDER;
    h->protocol = MO_WIRE_PROTOCOL;
    h->numerics = MO_NUMERICS;
    snprintf(h->version, sizeof h->version, "%s", mo_version());
    if (gethostname(h->host, sizeof h->host - 1) != 0) {
        h->host[0] = 0; /* matches no stored name */
    }
    h->local_ranks = c->local_ranks;
    describe_resources(resources, h);
    if (status == MO_OK) {
        status = describe_file(path, h, &err);
        why = &err;
    }
    h->status = (int32_t)status;
    snprintf(h->detail, sizeof h->detail, "%.*s", MO_WIRE_TEXT - 1, status == MO_OK ? "" : why->detail);
}

static mo_status check_hello(const mo_wire_hello *own, const mo_wire_hello *h, int rank, mo_error *err)
{
    if (memcmp(h->magic, own->magic, sizeof h->magic) != 0 || h->order != own->order) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "rank %d uses another byte order; all ranks of a run must use the same", rank);
    }
    if (h->protocol != own->protocol || h->numerics != own->numerics ||
        strncmp(h->version, own->version, sizeof h->version) != 0) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "rank %d has moraine %.31s (numerics %d, messages %u), rank 0 has %s (%d, %u); install the "
            "same version on every machine",
            rank, h->version, h->numerics, h->protocol, own->version, own->numerics, own->protocol);
    }
    if (h->status != MO_OK) {
        return mo_fail(err, (mo_status)h->status, "rank %d: %.*s", rank, MO_WIRE_TEXT, h->detail);
    }
    if (h->fingerprint != own->fingerprint || h->file_bytes != own->file_bytes || h->layers != own->layers) {
        return mo_fail(err, MO_EINVAL,
                       "rank %d has a different model under that name (%llu bytes, rank 0's has %llu); copy "
                       "rank 0's to it",
                       rank, (unsigned long long)h->file_bytes, (unsigned long long)own->file_bytes);
    }
    return MO_OK;
}

/* ---- Rank 0 ---- */

static mo_status gather(mo_cluster *c, const char *path, const mo_resources *resources, mo_wire_hello *all,
                        mo_error *err)
{
    mo_status status = send_head(c, MO_WIRE_OPEN, err);
    c->told = status == MO_OK;
    mo_cluster_hello(c, path, resources, MO_OK, NULL, &all[0]);
    if (status == MO_OK && all[0].status != MO_OK) {
        status = mo_fail(err, (mo_status)all[0].status, "%s", all[0].detail);
    }
    mo_status first = status;
    /* receive from all of them, so that no message remains */
    for (int r = 1; r < mo_link_ranks(c->link) && c->told; r++) {
        mo_error own = {0};
        mo_status one = mo_link_receive(c->link, r, &all[r], sizeof all[r], false, &own);
        if (one == MO_OK && first == MO_OK) {
            one = check_hello(&all[0], &all[r], r, &own);
        }
        if (one != MO_OK && first == MO_OK) {
            first = one;
            *err = own;
        }
    }
    return first;
}

/* Decides the parts of all ranks in the way that *parts says, and rank 0's part of the requirements. */
static mo_status divide_model(const char *path, const mo_wire_hello *all, int ranks,
                              mo_requirements_options *asked, mo_ranks_parts *parts, mo_error *err)
{
    mo_plan_model whole;
    mo_status status = mo_requirements_of(path, asked, &whole, err);
    if (status != MO_OK) {
        return status;
    }
    mo_division_rank *machines = calloc((size_t)ranks, sizeof *machines);
    const char **names = calloc((size_t)ranks, sizeof *names);
    for (int r = 0; r < ranks && machines && names; r++) {
        names[r] = all[r].host;
        machines[r] = (mo_division_rank){.ram_bytes = all[r].ram_bytes,
                                         .vram_bytes = all[r].vram_bytes,
                                         .vram_bytes_s = all[r].vram_bytes_s > 0 ? all[r].vram_bytes_s
                                                                                 : MO_RATES_VRAM_GUESS,
                                         .ram_bytes_s = all[r].ram_bytes_s,
                                         .disk_bytes_s = all[r].disk_bytes_s};
    }
    status = machines && names ? mo_ranks_divide(&whole, machines, names, ranks, parts, err)
                               : mo_fail(err, MO_ENOMEM, "out of memory while dividing a model");
    if (status == MO_OK && parts->way == MO_DIVIDE_EXPERTS) {
        asked->range = (mo_layer_range){0, whole.layers};
        asked->experts = (mo_expert_range){.divided = true, .first = 0, .end = parts->first[1]};
    } else if (status == MO_OK) {
        asked->range = (mo_layer_range){0, parts->first[1]};
    }
    free(machines);
    free(names);
    mo_requirements_drop(&whole);
    return status;
}

/* All ranks use the context and batch that rank 0's plan of its own part chooses. */
static mo_status decide_sizes(const char *path, mo_model_options *o, mo_resources *resources,
                              mo_requirements_options *requirements, mo_error *err)
{
    mo_choice choice;
    mo_requirements_options own = *requirements;
    const mo_status status = mo_opened_plan_guesses(path, &own, resources, &choice, err);
    if (status == MO_OK) {
        o->context = requirements->context = choice.model.context;
        o->batch = requirements->batch = choice.model.batch;
        mo_choice_drop(&choice);
    }
    return status;
}

/* If experts are divided, sessions are on rank 0; the others only need working memory for a step. */
static mo_wire_share share_of_experts(const mo_cluster *c, const mo_model_options *o, int layers, int rank)
{
    return (mo_wire_share){.count = layers,
                           .kv = (int32_t)o->kv,
                           .sessions = 1,
                           .first_expert = c->parts.first[rank],
                           .expert_count = c->parts.first[rank + 1] - c->parts.first[rank],
                           .context = 1,
                           .batch = o->batch};
}

static mo_status send_shares(mo_cluster *c, const mo_model_options *o, int layers, mo_error *err)
{
    mo_status status = MO_OK;
    for (int r = 1; r < mo_link_ranks(c->link) && status == MO_OK; r++) {
        mo_wire_share share = {0};
        if (o && c->parts.way == MO_DIVIDE_EXPERTS) {
            share = share_of_experts(c, o, layers, r);
        } else if (o) {
            share = (mo_wire_share){.first = c->parts.first[r],
                                    .count = c->parts.first[r + 1] - c->parts.first[r],
                                    .kv = (int32_t)o->kv,
                                    .sessions = o->sessions,
                                    .context = o->context,
                                    .batch = o->batch,
                                    .positions = o->positions,
                                    .drafts = (int32_t)mo_requirements_drafts(o),
                                    .speculate = (int32_t)o->speculate,
                                    .kept_bytes =
                                        mo_ranks_part(&c->parts, mo_link_ranks(c->link), r, o->kept_bytes)};
        }
        status = mo_link_send(c->link, r, &share, sizeof share, err);
        if (status == MO_OK) {
            status = mo_link_flush(c->link, err);
        }
    }
    return status;
}

static void tell_division(const mo_cluster *c)
{
    if (c->parts.why[0]) {
        mo_log(MO_LOG_INFO, "cluster", "divided by %s: %s",
               c->parts.way == MO_DIVIDE_EXPERTS ? "experts" : "layers", c->parts.why);
    }
    for (int r = 0; r < mo_link_ranks(c->link); r++) {
        const bool some = c->parts.first[r + 1] > c->parts.first[r];
        mo_log(MO_LOG_INFO, "cluster", some ? "rank %d has %s %d to %d" : "rank %d has no %s", r,
               c->parts.way == MO_DIVIDE_EXPERTS ? "experts" : "layers", c->parts.first[r],
               c->parts.first[r + 1] - 1);
    }
}

/* Stores the hellos for later plans. all: [ranks], takes ownership. */
static void keep_said(mo_cluster *c, const char *path, mo_wire_hello *all)
{
    char *of = strdup(path);
    if (!of) { /* the ranks are asked again */
        free(all);
        all = NULL;
    }
    pthread_mutex_lock(&c->lock);
    free(c->said);
    free(c->said_of);
    c->said = all;
    c->said_of = of;
    pthread_mutex_unlock(&c->lock);
}

/* Returns false if no hellos are stored. */
static bool recall_said(mo_cluster *c, const char *path, mo_wire_hello *all)
{
    pthread_mutex_lock(&c->lock);
    const bool known = c->said && strcmp(c->said_of, path) == 0;
    if (known) {
        memcpy(all, c->said, sizeof *all * (size_t)mo_link_ranks(c->link));
    }
    pthread_mutex_unlock(&c->lock);
    return known;
}

mo_status mo_cluster_divide(mo_cluster *c, const char *path, mo_model_options *o, mo_resources *resources,
                            mo_requirements_options *requirements, mo_error *err)
{
    const int ranks = mo_link_ranks(c->link);
    mo_ranks_parts *parts = &c->parts;
    mo_wire_hello *all = calloc((size_t)ranks, sizeof *all);
    if (!all) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the reports of the ranks");
    }
    mo_cluster_share_ram(c, resources);
    requirements->batch = requirements->batch ? requirements->batch : MO_RANKS_BATCH;
    parts->way = mo_ranks_way(o->divide, o->skip_missing);
    mo_status status = gather(c, path, resources, all, err);
    if (status == MO_OK) {
        status = divide_model(path, all, ranks, requirements, parts, err);
    }
    if (status == MO_OK) {
        requirements->kept_bytes = mo_ranks_part(parts, ranks, 0, o->kept_bytes);
        status = decide_sizes(path, o, resources, requirements, err);
    }
    if (status == MO_OK) {
        keep_said(c, path, all);
        status = send_shares(c, o, requirements->range.count, err);
        o->kept_bytes = requirements->kept_bytes;
        tell_division(c);
        return status;
    }
    free(all);
    if (c->told) {
        mo_error ignored;
        send_shares(c, NULL, 0, &ignored);
        c->told = false;
    }
    return status;
}

/* Asks all ranks for their hellos; they open nothing. */
static mo_status ask_ranks(mo_cluster *c, const char *path, const mo_resources *resources, mo_error *err)
{
    mo_wire_hello *all = calloc((size_t)mo_link_ranks(c->link), sizeof *all);
    if (!all) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the reports of the ranks");
    }
    mo_status status = gather(c, path, resources, all, err);
    if (c->told) {
        mo_error later = {0};
        const mo_status heard = send_shares(c, NULL, 0, &later);
        if (status == MO_OK && heard != MO_OK) {
            status = heard;
            *err = later;
        }
        c->told = false;
    }
    if (status == MO_OK) {
        keep_said(c, path, all);
    } else {
        free(all);
    }
    return status;
}

/* The ranks' hellos [ranks], stored or asked for now. This rank's resources are those of the question. */
static mo_status hear_ranks(mo_cluster *c, const char *path, const mo_resources *resources,
                            mo_wire_hello *all, mo_error *err)
{
    mo_status status = MO_OK;
    if (!recall_said(c, path, all)) {
        if (atomic_exchange(&c->used, true)) {
            return mo_fail(err, MO_EUNSUPPORTED,
                           "ranks share one model at a time; close the other one first");
        }
        status = ask_ranks(c, path, resources, err);
        atomic_store(&c->used, false);
        if (status == MO_OK && !recall_said(c, path, all)) {
            status = mo_fail(err, MO_ENOMEM, "out of memory for the reports of the ranks");
        }
    }
    describe_resources(resources, &all[0]);
    return status;
}

/* Fails if another rank would refuse its layers. */
static mo_status check_layers(const mo_ranks_parts *parts, const char *path, const mo_resources *resources,
                              const mo_requirements_options *asked, const mo_wire_hello *said, int rank,
                              mo_error *err)
{
    mo_requirements_options o = *asked;
    mo_plan_model requirements;
    o.range = (mo_layer_range){parts->first[rank], parts->first[rank + 1] - parts->first[rank]};
    o.kept_bytes = mo_ranks_part(parts, asked->peers + 1, rank, asked->kept_bytes);
    mo_status status = mo_requirements_of(path, &o, &requirements, err);
    if (status == MO_OK) {
        status = mo_ranks_check(&requirements, &resources->rates, said->ram_bytes, said->devices != 0, err);
        mo_requirements_drop(&requirements);
    }
    return status == MO_OK ? MO_OK : mo_fail_prefix(err, status, "rank %d", rank);
}

static mo_status plan_parts(mo_cluster *c, const char *path, const mo_resources *resources,
                            mo_wire_hello *all, mo_requirements_options *requirements, mo_ranks_parts *parts,
                            mo_error *err)
{
    const int ranks = requirements->peers + 1;
    mo_status status = hear_ranks(c, path, resources, all, err);
    if (status == MO_OK) {
        status = divide_model(path, all, ranks, requirements, parts, err);
    }
    for (int r = 1; r < ranks && status == MO_OK && parts->way == MO_DIVIDE_LAYERS; r++) {
        status = check_layers(parts, path, resources, requirements, &all[r], r, err);
    }
    requirements->kept_bytes = status == MO_OK ? mo_ranks_part(parts, ranks, 0, requirements->kept_bytes) : 0;
    return status;
}

mo_status mo_cluster_plan(mo_cluster *c, const char *path, mo_divide divide, mo_resources *resources,
                          mo_requirements_options *requirements, mo_error *err)
{
    const size_t ranks = (size_t)mo_link_ranks(c->link);
    mo_wire_hello *all = calloc(ranks, sizeof *all);
    mo_ranks_parts parts = {.way = divide, .first = calloc(ranks + 1, sizeof *parts.first)};
    mo_cluster_share_ram(c, resources);
    mo_resources_count_held(resources);
    requirements->batch = requirements->batch ? requirements->batch : MO_RANKS_BATCH;
    requirements->peers = (int)ranks - 1;
    mo_status status = MO_ENOMEM;
    if (all && parts.first) {
        status = plan_parts(c, path, resources, all, requirements, &parts, err);
    } else {
        mo_fail(err, status, "out of memory while dividing a model");
    }
    free(parts.first);
    free(all);
    return status;
}

/* Receives every rank's answer to its share and returns the first failure. adapters:
 * mo_engine_adapters_identity() of this rank, or NULL. *draft_rows: the minimum of the ranks. */
static mo_status receive_answers(mo_cluster *c, const uint64_t *adapters, int64_t *draft_rows, mo_error *err)
{
    mo_status status = MO_OK;
    *draft_rows = INT64_MAX;
    for (int r = 1; r < mo_link_ranks(c->link); r++) {
        mo_wire_result result;
        mo_error own = {0};
        mo_status one = mo_link_receive(c->link, r, &result, sizeof result, false, &own);
        if (one == MO_OK && result.status != MO_OK) {
            one = mo_fail(&own, (mo_status)result.status, "rank %d: %.*s", r, MO_WIRE_TEXT, result.detail);
        } else if (one == MO_OK && adapters && (uint64_t)result.rows != *adapters) {
            one = mo_fail(&own, MO_EINVAL,
                          "rank %d has different `adapters` than rank 0; give all ranks the same ones in the "
                          "same order",
                          r);
        }
        if (one != MO_OK && status == MO_OK) {
            status = one;
            *err = own;
        }
        *draft_rows = one == MO_OK && result.draft_rows < *draft_rows ? result.draft_rows : *draft_rows;
    }
    return status;
}

static void close_all(mo_cluster *c)
{
    mo_error ignored;
    if (c->parts.way == MO_DIVIDE_EXPERTS) {
        mo_experts_close(c->link);
    } else {
        send_head(c, MO_WIRE_CLOSE, &ignored);
    }
}

mo_status mo_cluster_join(mo_cluster *c, mo_engine *engine, mo_leader **leader, mo_experts_leader **asker,
                          mo_error *err)
{
    const uint64_t adapters = mo_engine_adapters_identity(engine);
    int64_t draft_rows;
    mo_status status = receive_answers(c, &adapters, &draft_rows, err);
    c->told = false;
    if (status == MO_OK && c->parts.way != MO_DIVIDE_EXPERTS) {
        const bool guessed = engine->drafts.most > 0;
        mo_drafts_limit(&engine->drafts, draft_rows);
        if (guessed && !engine->drafts.most) {
            mo_log(
                MO_LOG_WARN, "speculate",
                "speculative decoding is off: not all ranks have memory for guesses, or devices that support "
                "them; every token is computed by a step of its own");
        }
    }
    if (status == MO_OK) {
        status = c->parts.way == MO_DIVIDE_EXPERTS
                     ? mo_experts_lead(c->link, engine, c->parts.first, asker, err)
                     : mo_leader_open(c->link, engine, c->parts.first, leader, err);
    }
    if (status == MO_OK && *leader) {
        mo_leader_group(*leader, c->parts.groups);
    }
    if (status != MO_OK) {
        close_all(c);
    }
    return status;
}

void mo_cluster_give_up(mo_cluster *c)
{
    mo_error ignored;
    int64_t rows;
    if (c->told) {
        receive_answers(c, NULL, &rows, &ignored);
        close_all(c);
        c->told = false;
    }
}
