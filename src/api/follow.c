/* A follower rank: opens its part of every model that rank 0 opens, and serves it. */
#include <stdio.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/status.h"
#include "cluster/experts.h"
#include "cluster/follower.h"
#include "engine/session.h"

typedef struct follow {
    mo_cluster *cluster;
    const char *path;
    mo_model_options options;
} follow;

/* Reports progress while loading. */
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
    mo_resources resources = {0};
    mo_wire_hello hello;
    mo_error why = {0};
    mo_model_options o = f->options;
    mo_status able = mo_cluster_check_options(&o, &why);
    if (able == MO_OK) {
        able = mo_model_find_resources(&o, 0, &resources, &why);
    }
    if (able == MO_OK) {
        mo_cluster_share_ram(f->cluster, &resources);
    }
    mo_cluster_hello(f->cluster, f->path, &resources, able, &why, &hello);
    if (able == MO_OK) {
        mo_resources_close(&resources); /* the rank's part opens its device again */
    }
    const mo_status status = mo_link_send(f->cluster->link, 0, &hello, sizeof hello, err);
    return status == MO_OK ? mo_link_flush(f->cluster->link, err) : status;
}

/* Experts read from disk. */
static uint64_t experts_read(const mo_model *model)
{
    const mo_tiers *t = model->opened.tiers;
    return t && t->store ? mo_disk_count(mo_store_disk(t->store)).bytes : 0;
}

/* Logs what the rank has read, since it has no reports. at_first: experts that filled its device when its
 * part was opened. */
static void tell_reads(const mo_model *model, uint64_t at_first)
{
    const mo_tiers *t = model->opened.tiers;
    uint64_t bytes = experts_read(model) - at_first;
    if (t && t->layers) {
        bytes += mo_disk_count(mo_layer_buffer_disk(t->layers)).bytes;
    }
    if (at_first > 0) {
        mo_log(MO_LOG_INFO, "cluster", "%.1f MiB were read from disk to fill the device",
               (double)at_first / (1 << 20));
    }
    mo_log(MO_LOG_INFO, "cluster", "%.1f MiB were read from disk for tokens", (double)bytes / (1 << 20));
}

/* Writes to out[MO_WIRE_TEXT] why the rank cannot have its part. Rank 0 decides the sizes of steps and
 * sessions, whatever this rank's options are. */
static void write_why(const mo_wire_share *share, const mo_error *why, char *out)
{
    char whose[96] = "";
    if (strstr(why->detail, "`batch`") && share->expert_count > 0) {
        snprintf(whose, sizeof whose, "with rank 0's `batch` of %lld: ", (long long)share->batch);
    } else if (strstr(why->detail, "`batch`") || strstr(why->detail, "`context`")) {
        snprintf(whose, sizeof whose,
                 "with rank 0's `batch` of %lld and `context` of %lld: ", (long long)share->batch,
                 (long long)share->context);
    }
    snprintf(out, MO_WIRE_TEXT, "%s%.*s", whose, MO_WIRE_TEXT - (int)sizeof whose, why->detail);
}

/* Opens this rank's layers or experts, reports the result and serves until rank 0 closes the model. */
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
    /* Rank 0 drafts; ranks with only experts hold no draft model. Speculative decoding that was not requested
     * is skipped if memory is short. */
    const bool drafts = share->drafts > 0 && !experts.divided;
    o.speculate = !drafts                                          ? MO_SPECULATE_OFF
                  : share->speculate == (int32_t)MO_SPECULATE_AUTO ? MO_SPECULATE_AUTO
                                                                   : MO_SPECULATE_NGRAM;
    o.draft_max = share->drafts == MO_DRAFTS_MAX ? 0 : share->drafts;
    o.draft_model = NULL;
    o.progress = on_load;
    o.user = f;
    result.status = (int32_t)mo_model_open_part(f->path, &o, (mo_layer_range){share->first, share->count},
                                                experts, &model, &why);
    write_why(share, &why, result.detail);
    const uint64_t at_first = model ? experts_read(model) : 0;
    result.rows = model ? (int64_t)mo_engine_adapters_identity(model->engine) : 0;
    result.draft_rows = model ? (int32_t)mo_feed_draft_rows(model->engine) : 0;
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
        status = mo_follower_head(link, &head, err); /* rank 0 closes a model that some rank could not open */
    }
    if (model) {
        tell_reads(model, at_first);
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
    MO_REQUIRE(err, cluster, path)
    mo_status status = mo_options_read(&f.options, sizeof f.options, options, "mo_model_options", err);
    if (status == MO_OK && mo_link_rank(cluster->link) == 0) {
        status = mo_fail(err, MO_EINVAL, "rank 0 is the leader and cannot follow");
    }
    f.options.cluster = NULL;
    while (status == MO_OK) {
        status = mo_follower_head(cluster->link, &head, err);
        if (status != MO_OK || head.kind == MO_WIRE_END) {
            return status;
        }
        if (head.kind != MO_WIRE_OPEN) {
            status = mo_fail(err, MO_EFORMAT, "rank 0 sent an unknown message (%u)", head.kind);
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
