/* The public plan for several machines: divides a model's requirements among a file of hosts in both ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "moraine_server.h"
#include "numeric/kernels.h"
#include "open/requirements.h"
#include "plan/hosts.h"
#include "plan/ranks.h"

_Static_assert((int)MO_PLAN_HOSTS == (int)MO_DIVISION_RANKS, "every division can be reported");
_Static_assert(sizeof(((mo_plan_report_host *)0)->name) == MO_HOST_NAME, "names fit");

/* All working data; too large for a stack. */
typedef struct work {
    mo_hosts hosts;
    mo_division_rank ranks[MO_DIVISION_RANKS];
    int first[MO_DIVISION_RANKS + 1];
    double upto[MO_DIVISION_RANKS];
    mo_division_choice choice;
    mo_plan_hosts_report report;
} work;

static mo_status load_hosts(const char *file, mo_hosts *out, mo_error *err)
{
    char path[4096];
    if (strcmp(file, "probed") != 0) {
        return mo_hosts_load(file, out, err);
    }
    mo_status status = mo_hosts_path(path, sizeof path, err);
    status = status == MO_OK ? mo_hosts_load(path, out, err) : status;
    return status == MO_ENOENT
               ? mo_fail(err, MO_ENOENT,
                         "no hosts have been measured yet; run moraine probe on them with mpirun")
               : status;
}

static mo_status read_way(const char *divide, mo_divide *out, mo_error *err)
{
    static const char *const names[] = {"auto", "layers", "experts"};
    *out = MO_DIVIDE_AUTO;
    for (int i = 0; divide && i < 3; i++) {
        if (strcmp(divide, names[i]) == 0) {
            *out = (mo_divide)i;
            return MO_OK;
        }
    }
    return divide ? mo_fail(err, MO_EINVAL, "a model can be divided by layers, experts or auto, not by %.40s",
                            divide)
                  : MO_OK;
}

/* ---- The report ---- */

static void report_way(const mo_division_cost *c, const mo_division_model *m, mo_plan_report_way *out)
{
    out->possible = c->possible;
    if (!c->possible) {
        return;
    }
    out->token_seconds = c->token_seconds;
    out->core_seconds = c->core_seconds;
    out->expert_seconds = c->expert_seconds;
    out->disk_seconds = c->disk_seconds;
    out->latency_seconds = c->latency_seconds;
    out->wire_seconds = c->wire_seconds;
    out->token_messages = c->token_messages;
    out->token_bytes = c->token_bytes;
    out->tokens_per_second = c->token_seconds > 0 ? 1 / c->token_seconds : 0;
    out->prompt_tokens_per_second = c->prompt_seconds > 0 ? (double)m->prompt / c->prompt_seconds : 0;
    out->bound = c->bound;
    out->prompt_bound = c->prompt_bound;
}

static void report_host(const work *w, const mo_division_model *m, int r, mo_plan_report_host *out)
{
    const mo_division_rank *rank = &w->ranks[r];
    memcpy(out->name, w->hosts.host[r].name, sizeof out->name);
    out->ram_bytes = rank->ram_bytes;
    out->vram_bytes = w->hosts.host[r].vram_bytes;
    if (w->choice.layers.possible) {
        out->first_layer = w->first[r];
        out->layers = w->first[r + 1] - w->first[r];
        mo_division_held held = {0};
        for (int i = w->first[r]; i < w->first[r + 1]; i++) {
            mo_division_hold_core(&m->layers[i], &held);
            mo_division_hold_experts(&m->layers[i], m->layers[i].experts, &held);
        }
        out->layers_bytes = rank->other_bytes + (int64_t)held.bytes;
        out->layers_disk_bytes = (int64_t)mo_division_beyond(rank, &held);
    }
    if (w->choice.experts.possible) {
        const int experts = w->report.experts;
        out->first_expert = mo_division_first_expert(w->upto, r, experts);
        out->experts = mo_division_first_expert(w->upto, r + 1, experts) - out->first_expert;
        mo_division_held cores = {0}, own = {0};
        for (int i = 0; i < m->count; i++) {
            const mo_division_layer *l = &m->layers[i];
            const int first = mo_division_first_expert(w->upto, r, l->experts);
            const int end = mo_division_first_expert(w->upto, r + 1, l->experts);
            if (r == 0) {
                mo_division_hold_core(l, &cores);
            }
            mo_division_hold_experts(l, end - first, &own);
        }
        const mo_division_rank rest = mo_division_rest(rank, r, &cores);
        out->experts_bytes = rank->other_bytes + (int64_t)(cores.bytes + own.bytes);
        out->experts_disk_bytes =
            (int64_t)(mo_division_beyond(&rest, &own) + mo_division_beyond(rank, &cores));
    }
}

static void report_all(work *w, const mo_plan_model *p, const mo_division_model *m)
{
    mo_plan_hosts_report *out = &w->report;
    out->way = w->choice.way == MO_DIVIDE_EXPERTS ? "experts" : "layers";
    memcpy(out->why, w->choice.why, sizeof out->why);
    out->layers = p->layers;
    out->routed_layers = p->routed_layers;
    out->experts = p->experts;
    out->experts_used = p->used;
    out->context = p->context;
    out->batch = p->batch;
    out->prompt_tokens = m->prompt;
    out->host_count = w->hosts.count;
    report_way(&w->choice.layers, m, &out->by_layers);
    report_way(&w->choice.experts, m, &out->by_experts);
    snprintf(out->by_layers.why_not, sizeof out->by_layers.why_not, "%s",
             out->by_layers.possible ? "" : "there are more hosts than layers");
    snprintf(out->by_experts.why_not, sizeof out->by_experts.why_not, "%s",
             out->by_experts.possible ? "" : "the model has no experts to divide");
    for (int r = 0; r < out->host_count; r++) {
        report_host(w, m, r, &out->hosts[r]);
    }
}

/* ---- The plan ---- */

static mo_status divide(work *w, const mo_plan_model *requirements, mo_divide asked, mo_error *err)
{
    mo_division_model d;
    mo_status status = mo_ranks_model(requirements, &d, err);
    if (status != MO_OK) {
        return status;
    }
    mo_hosts_ranks(&w->hosts, w->ranks);
    for (int r = 0; r < w->hosts.count; r++) {
        mo_ranks_settle(requirements, r, &w->ranks[r]);
    }
    status = mo_division_choose(&d, w->ranks, w->hosts.count, asked, w->first, w->upto, &w->choice, err);
    if (status == MO_OK) {
        report_all(w, requirements, &d);
    }
    free((mo_division_layer *)d.layers);
    return status;
}

static mo_status plan_hosts(const char *path, const char *hosts, const char *how, const mo_model_options *o,
                            work *w, mo_error *err)
{
    enum { THREADS = 16 }; /* the hosts' thread counts are unknown; each thread takes a quarter of a MiB */
    mo_plan_model requirements = {0};
    mo_divide asked;
    const mo_kernels *kernels = NULL;
    mo_status status = load_hosts(hosts, &w->hosts, err);
    status = status == MO_OK ? read_way(how, &asked, err) : status;
    status = status == MO_OK ? mo_kernels_select(o->isa, &kernels, err) : status;
    if (status == MO_OK) {
        const mo_model_options model = {.kv = o->kv, .sessions = o->sessions};
        const mo_requirements_options ask = {.asked = &model,
                                             .batch = o->batch ? o->batch : MO_RANKS_BATCH,
                                             .context = o->context,
                                             .threads = THREADS,
                                             .peers = w->hosts.count - 1,
                                             .interleave = kernels->interleave};
        status = mo_requirements_of(path, &ask, &requirements, err);
    }
    if (status == MO_OK) {
        status = divide(w, &requirements, asked, err);
    }
    mo_requirements_drop(&requirements);
    return status;
}

mo_status mo_plan_hosts(const char *path, const char *hosts, const char *divide_by,
                        const mo_model_options *options, mo_plan_hosts_report *out, size_t size,
                        mo_error *err)
{
    mo_model_options o = mo_model_options_default();
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, hosts, out)
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_model_options", err);
    if (status == MO_OK && (o.batch < 0 || o.context < 0 || o.sessions < 0)) {
        status = mo_fail(err, MO_EINVAL, "`batch`, `context` and `sessions` must be 0 or above");
    }
    work *w = status == MO_OK ? calloc(1, sizeof *w) : NULL;
    if (status == MO_OK && !w) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a plan; free some and try again");
    }
    if (status == MO_OK && w) {
        status = plan_hosts(path, hosts, divide_by, &o, w, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, &w->report, sizeof w->report);
    }
    free(w);
    return status;
}
