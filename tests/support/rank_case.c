#include "rank_case.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "check.h"

static void *follow(void *ctx)
{
    rank *r = ctx;
    mo_cluster *c = NULL;
    const mo_link_options link = {.data = r->data, .beats = r->beats, .timeout_ns = r->timeout_ns};
    r->status = mo_cluster_open_on(&link, 1, &c, &r->err);
    if (r->status == MO_OK) {
        r->status = mo_cluster_follow(c, r->path, &r->options, &r->err);
    }
    mo_cluster_close(c);
    mo_transport_close(r->data);
    mo_transport_close(r->beats);
    return NULL;
}

void start_ranks(run *r, int ranks, const char *path, const mo_model_options *options, double timeout_s,
                 int missing, fault_fn fault, void *user)
{
    mo_error err;
    const mo_loopback_options data = {
        .ranks = ranks, .limit = RANK_LIMIT, .depth = RANK_DEPTH, .fault = fault, .user = user};
    const mo_loopback_options beats = {.ranks = ranks, .limit = 512, .depth = RANK_DEPTH};
    *r = (run){.ranks = ranks};
    check_status(mo_loopback_open(&data, &r->data, &err), &err);
    check_status(mo_loopback_open(&beats, &r->beats, &err), &err);
    for (int i = 0; i < ranks; i++) {
        r->rank[i] = (rank){.data = mo_loopback_rank(r->data, i),
                            .beats = mo_loopback_rank(r->beats, i),
                            .timeout_ns = (int64_t)(timeout_s * 1e9),
                            .path = path,
                            .options = *options};
    }
    for (int i = 1; i < ranks; i++) {
        if (i != missing) {
            assert_int_equal(pthread_create(&r->rank[i].thread, NULL, follow, &r->rank[i]), 0);
        }
    }
    const mo_link_options link = {
        .data = r->rank[0].data, .beats = r->rank[0].beats, .timeout_ns = r->rank[0].timeout_ns};
    check_status(mo_cluster_open_on(&link, 1, &r->leader, &err), &err);
}

void finish_ranks(run *r, int missing)
{
    mo_cluster_close(r->leader);
    mo_transport_close(r->rank[0].data);
    mo_transport_close(r->rank[0].beats);
    for (int i = 1; i < r->ranks; i++) {
        if (i != missing) {
            assert_int_equal(pthread_join(r->rank[i].thread, NULL), 0);
        }
    }
    mo_loopback_close(r->data);
    mo_loopback_close(r->beats);
}
