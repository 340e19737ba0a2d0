/* The public probe of several ranks: measures each rank and the network between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cluster.h"
#include "base/growing.h"
#include "base/status.h"
#include "cluster/follower.h"
#include "cluster/meter.h"
#include "moraine_server.h"
#include "plan/hosts.h"
#include "plan/probe/probe.h"

/* A rank's description of itself. */
typedef struct rank_hello {
    char magic[8]; /* "PROBING" */
    uint32_t order, reserved;
    char version[32];
    mo_probe_rank rank;
} rank_hello;

_Static_assert((int)MO_PLAN_HOSTS == (int)MO_DIVISION_RANKS, "every rank has a place");
_Static_assert(sizeof(((mo_probe_rank *)0)->host) == MO_HOST_NAME, "names fit");

static mo_status describe(mo_cluster *c, const mo_probe_report *own, rank_hello *out, mo_error *err)
{
    mo_resources resources = {0};
    mo_model_options usual = mo_model_options_default();
    usual.device = "none";
    const mo_status status = mo_resources_find(&(mo_resources_ask){.options = &usual}, &resources, err);
    if (status != MO_OK) {
        return status;
    }
    mo_cluster_share_ram(c, &resources);
    const mo_rates rates = own ? mo_probe_rates(own) : resources.rates;
    memset(out, 0, sizeof *out);
    memcpy(out->magic, "PROBING", 8);
    out->order = MO_WIRE_ORDER;
    snprintf(out->version, sizeof out->version, "%s", mo_version());
    out->rank = (mo_probe_rank){.ram_bytes = resources.limits.ram_bytes,
                                .product_bytes_s = mo_rates_products(&rates),
                                .disk_bytes_s = rates.disk_bytes_s,
                                .measured = rates.measured};
    if (gethostname(out->rank.host, sizeof out->rank.host - 1) != 0) {
        snprintf(out->rank.host, sizeof out->rank.host, "rank-%d", mo_link_rank(c->link));
    }
    mo_resources_close(&resources);
    return MO_OK;
}

static mo_status gather(mo_cluster *c, const rank_hello *own, mo_probe_ranks_report *out, mo_error *err)
{
    mo_status status = MO_OK;
    out->count = mo_link_ranks(c->link);
    out->ranks[0] = own->rank;
    for (int r = 1; r < out->count && status == MO_OK; r++) {
        rank_hello hello;
        status = mo_link_receive(c->link, r, &hello, sizeof hello, true, err);
        if (status == MO_OK &&
            (memcmp(hello.magic, own->magic, sizeof hello.magic) != 0 || hello.order != own->order ||
             memcmp(hello.version, own->version, sizeof hello.version) != 0)) {
            status = mo_fail(err, MO_EUNSUPPORTED,
                             "rank %d has another version of moraine or another byte order; install the same "
                             "version everywhere",
                             r);
        }
        if (status == MO_OK) {
            out->ranks[r] = hello.rank;
            out->ranks[r].host[sizeof hello.rank.host - 1] = '\0';
        }
    }
    return status;
}

static mo_status lead(mo_cluster *c, const rank_hello *own, mo_probe_ranks_report *out, mo_error *err)
{
    mo_meter_wire *to = calloc(MO_PLAN_HOSTS, sizeof *to), *next = calloc(MO_PLAN_HOSTS, sizeof *next);
    if (!to || !next) {
        free(to);
        free(next);
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring the network");
    }
    mo_status status = gather(c, own, out, err);
    status = status == MO_OK ? mo_meter_lead(c->link, to, next, err) : status;
    for (int r = 0; r < out->count && status == MO_OK; r++) {
        mo_probe_rank *rank = &out->ranks[r];
        rank->latency_s = to[r].latency_s;
        rank->bytes_s = to[r].bytes_s;
        rank->message_s = to[r].message_s;
        rank->next_latency_s = next[r].latency_s;
        rank->next_bytes_s = next[r].bytes_s;
    }
    free(to);
    free(next);
    return status;
}

static mo_status follow(mo_cluster *c, const rank_hello *own, mo_error *err)
{
    mo_wire_head head;
    mo_status status = mo_link_send(c->link, 0, own, sizeof *own, err);
    status = status == MO_OK ? mo_link_flush(c->link, err) : status;
    status = status == MO_OK ? mo_meter_follow(c->link, err) : status;
    return status == MO_OK ? mo_follower_head(c->link, &head, err) : status; /* the end */
}

mo_status mo_probe_ranks(mo_cluster *c, const mo_probe_report *own, size_t own_size,
                         mo_probe_ranks_report *out, size_t size, mo_error *err)
{
    rank_hello hello;
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "cluster, out", c, out)
    if (mo_link_ranks(c->link) > MO_PLAN_HOSTS) {
        return mo_fail(err, MO_EUNSUPPORTED, "at most %d ranks can be measured", MO_PLAN_HOSTS);
    }
    mo_probe_report *measured = own ? calloc(1, sizeof *measured) : NULL;
    mo_probe_ranks_report *report = calloc(1, sizeof *report);
    if (!report || (own && !measured)) {
        free(measured);
        free(report);
        return mo_fail(err, MO_ENOMEM, "out of memory for the reports of the ranks");
    }
    if (measured) {
        mo_report_write(measured, sizeof *measured, own, own_size);
    }
    mo_status status = describe(c, measured, &hello, err);
    if (status == MO_OK) {
        status = mo_link_rank(c->link) == 0 ? lead(c, &hello, report, err) : follow(c, &hello, err);
    }
    if (status == MO_OK) {
        mo_report_write(out, size, report, sizeof *report);
    }
    free(measured);
    free(report);
    return status;
}

/* ---- Storing ---- */

static void fill_hosts(const mo_probe_ranks_report *r, mo_hosts *out)
{
    out->count = r->count;
    for (int i = 0; i < r->count; i++) {
        const mo_probe_rank *rank = &r->ranks[i];
        mo_host *h = &out->host[i];
        *h = (mo_host){.ram_bytes = rank->ram_bytes,
                       .cpu_bytes_s = rank->product_bytes_s,
                       .disk_bytes_s = rank->disk_bytes_s,
                       .gpu_bytes_s = MO_RATES_VRAM_GUESS,
                       .lead = {rank->latency_s, rank->bytes_s, rank->message_s},
                       .next_latency_s = rank->next_latency_s,
                       .next_bytes_s = rank->next_bytes_s};
        memcpy(h->name, rank->host, sizeof h->name);
        /* rank 0's own end is at least as good as its best link */
        mo_network_wire *best = &out->host[0].lead;
        if (i == 1) {
            *best = h->lead;
        } else if (i > 1) {
            best->latency_s = h->lead.latency_s < best->latency_s ? h->lead.latency_s : best->latency_s;
            best->bytes_s = h->lead.bytes_s > best->bytes_s ? h->lead.bytes_s : best->bytes_s;
            best->message_s = h->lead.message_s < best->message_s ? h->lead.message_s : best->message_s;
        }
    }
    if (out->count == 1) {
        out->host[0].lead = mo_network_guess();
    }
}

mo_status mo_probe_ranks_save(const mo_probe_ranks_report *report, size_t report_size, const char *path,
                              char *saved, size_t size, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, report, saved)
    mo_probe_ranks_report *own = calloc(1, sizeof *own);
    mo_hosts *hosts = calloc(1, sizeof *hosts);
    if (!own || !hosts) {
        free(own);
        free(hosts);
        return mo_fail(err, MO_ENOMEM, "out of memory for a list of hosts");
    }
    if (path) {
        snprintf(saved, size, "%s", path);
    }
    mo_status status = path ? MO_OK : mo_hosts_path(saved, size, err);
    if (status == MO_OK) {
        mo_report_write(own, sizeof *own, report, report_size);
        fill_hosts(own, hosts);
        status = mo_hosts_save(saved, hosts, err);
    }
    free(own);
    free(hosts);
    return status;
}
