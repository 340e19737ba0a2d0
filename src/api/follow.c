/* A rank that follows: opens its part of every model that rank 0 opens, and serves with it. */
#include <stdio.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/status.h"
#include "cluster/experts.h"
#include "cluster/follower.h"

typedef struct follow {
    mo_cluster *cluster;
    const char *path;
    mo_model_options options;
} follow;

/* Loading is something that moves. */
static bool on_load(void *user, int64_t done, int64_t total)
{
    const follow *f = user;
    mo_error err;
    (void)done;
    (void)total;
    mo_link_moved(f->cluster->link);
    return mo_link_status(f->cluster->link, &err) == MO_OK;
}

static mo_status say_hello(const follow *f, mo_error *err)
{
    mo_means means = {0};
    mo_wire_hello hello;
    mo_error why = {0};
    mo_model_options o = f->options;
    mo_status able = mo_cluster_check_options(&o, &why);
    if (able == MO_OK) {
        able = mo_model_find_means(&o, 0, &means, &why);
    }
    if (able == MO_OK) {
        mo_cluster_share_ram(f->cluster, &means);
    }
    mo_cluster_hello(f->cluster, f->path, &means, able, &why, &hello);
    if (able == MO_OK) {
        mo_means_close(&means); /* a device is opened again with the rank's part */
    }
    const mo_status status = mo_link_send(f->cluster->link, 0, &hello, sizeof hello, err);
    return status == MO_OK ? mo_link_flush(f->cluster->link, err) : status;
}

/* What the rank has read since its part was open: it has no reports of its own. */
static void tell_reads(const mo_model *model)
{
    const mo_tiers *t = model->opened.tiers;
    double bytes = 0;
    if (t && t->store) {
        bytes += (double)mo_disk_count(mo_store_disk(t->store)).bytes;
    }
    if (t && t->layers) {
        bytes += (double)mo_disk_count(mo_layer_buffer_disk(t->layers)).bytes;
    }
    mo_log(MO_LOG_INFO, "cluster", "%.1f MiB were read from disk for tokens", bytes / (1 << 20));
}

/* Opens this rank's layers or experts, says what came of it and serves until rank 0 closes the model. */
static mo_status serve_model(follow *f, const mo_wire_share *share, mo_error *err)
{
    mo_link *link = f->cluster->link;
    mo_model *model = NULL;
    mo_error why = {0};
    mo_wire_result result = {.rank = mo_link_rank(link)};
    const mo_expert_range experts = {.divided = share->expert_count > 0,
                                     .first = share->first_expert,
                                     .end = share->first_expert + share->expert_count,
                                     .alone = share->expert_count > 0};
    mo_model_options o = f->options;
    o.kv = (mo_kv_type)share->kv;
    o.sessions = share->sessions;
    o.context = share->context;
    o.batch = share->batch;
    o.positions = share->positions;
    o.kept_bytes = share->kept_bytes;
    o.all_logits = false;
    o.progress = on_load;
    o.user = f;
    result.status = (int32_t)mo_model_open_part(f->path, &o, (mo_layer_range){share->first, share->count},
                                                experts, &model, &why);
    snprintf(result.detail, sizeof result.detail, "%.*s", MO_WIRE_TEXT - 1, why.detail);
    result.rows = model ? (int64_t)mo_engine_adapters_identity(model->engine) : 0;
    mo_status status = mo_link_send(link, 0, &result, sizeof result, err);
    if (status == MO_OK) {
        status = mo_link_flush(link, err);
    }
    if (status == MO_OK && experts.divided) {
        status = mo_experts_follow(link, model ? model->engine : NULL, err);
    } else if (status == MO_OK && model) {
        status = mo_follower_run(link, model->engine, err);
    } else if (status == MO_OK) {
        mo_wire_head head;
        status = mo_follower_head(link, &head, err); /* rank 0 closes what not all could open */
    }
    if (model) {
        tell_reads(model);
    }
    mo_model_close(model);
    return status;
}

mo_status mo_cluster_follow(mo_cluster *cluster, const char *path, const mo_model_options *options,
                            mo_error *err)
{
    follow f = {.cluster = cluster, .path = path, .options = mo_model_options_default()};
    mo_wire_head head = {0};
    mo_wire_share share;
    MO_OWN_ERROR(err)
    mo_status status = mo_options_read(&f.options, sizeof f.options, options, "mo_model_options", err);
    if (status == MO_OK && mo_link_rank(cluster->link) == 0) {
        status = mo_fail(err, MO_EINVAL, "rank 0 leads, and does not follow");
    }
    f.options.cluster = NULL;
    while (status == MO_OK) {
        status = mo_follower_head(cluster->link, &head, err);
        if (status != MO_OK || head.kind == MO_WIRE_END) {
            return status;
        }
        if (head.kind != MO_WIRE_OPEN) {
            status = mo_fail(err, MO_EFORMAT, "rank 0 sends what nobody knows (%u)", head.kind);
            mo_link_fail(cluster->link, err);
            return status;
        }
        status = say_hello(&f, err);
        if (status == MO_OK) {
            status = mo_link_receive(cluster->link, 0, &share, sizeof share, false, err);
        }
        if (status == MO_OK && share.count > 0) {
            status = serve_model(&f, &share, err);
        }
    }
    return status;
}
