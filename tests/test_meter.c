/* The network between ranks, measured by ranks that are threads here: what is reported and kept, messages that are late, lost or cut short, ranks
 * that are not there. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cluster.h"
#include "check.h"
#include "loopback.h"
#include "moraine_server.h"
#include "plan/hosts.h"
#include "sanitized.h"

enum { RANKS = 3, LIMIT = 1 << 16, PATIENT = 600 };

typedef void (*fault_fn)(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault);

typedef struct rank {
    mo_transport *data, *beats;
    double timeout_s;
    mo_status status;
    mo_error err;
    pthread_t thread;
    mo_probe_ranks_report report;
} rank;

static rank ranks[RANKS];

/* Every rank, rank 0 too, does this. */
static void *probe(void *ctx)
{
    rank *r = ctx;
    mo_cluster *c = NULL;
    const mo_link_options link = {
        .data = r->data, .beats = r->beats, .timeout_ns = (int64_t)(r->timeout_s * 1e9)};
    r->status = mo_cluster_open_on(&link, 1, &c, &r->err);
    if (r->status == MO_OK) {
        r->status = mo_probe_ranks(c, NULL, 0, &r->report, sizeof r->report, &r->err);
    }
    mo_cluster_close(c);
    mo_transport_close(r->data);
    mo_transport_close(r->beats);
    return NULL;
}

/* missing: a rank that does not come; -1: all come. */
static void measure(double timeout_s, int missing, fault_fn fault, void *user)
{
    const mo_loopback_options data = {
        .ranks = RANKS, .limit = LIMIT, .depth = 4, .fault = fault, .user = user};
    const mo_loopback_options beats = {.ranks = RANKS, .limit = 512, .depth = 4};
    mo_loopback *on[2] = {NULL, NULL};
    mo_error err = {0};
    check_status(mo_loopback_open(&data, &on[0], &err), &err);
    check_status(mo_loopback_open(&beats, &on[1], &err), &err);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){
            .data = mo_loopback_rank(on[0], i), .beats = mo_loopback_rank(on[1], i), .timeout_s = timeout_s};
        if (i != missing) {
            assert_int_equal(pthread_create(&ranks[i].thread, NULL, probe, &ranks[i]), 0);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        if (i != missing) {
            assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        }
    }
    mo_loopback_close(on[0]);
    mo_loopback_close(on[1]);
}

static void test_rank_0_knows_how_far_all_are(void **state)
{
    (void)state;
    measure(PATIENT, -1, NULL, NULL);
    const mo_probe_ranks_report *r = &ranks[0].report;
    for (int i = 0; i < RANKS; i++) {
        check_status(ranks[i].status, &ranks[i].err);
        assert_int_equal(ranks[i].report.count, i == 0 ? RANKS : 0);
        assert_true(r->ranks[i].ram_bytes > 0 && r->ranks[i].product_bytes_s > 0 && r->ranks[i].host[0]);
        assert_true(r->ranks[i].next_latency_s > 0 && r->ranks[i].next_bytes_s > 0);
        assert_true(i == 0 ? r->ranks[i].bytes_s == 0 : r->ranks[i].latency_s > 0 && r->ranks[i].bytes_s > 0);
    }
    /* The ways from rank 0 to the next, and from the last, were measured already. */
    assert_true(r->ranks[0].next_latency_s == r->ranks[1].latency_s);
    assert_true(r->ranks[2].next_bytes_s == r->ranks[2].bytes_s);
}

static void test_what_was_measured_is_a_file_of_hosts(void **state)
{
    (void)state;
    static mo_hosts hosts;
    static mo_probe_ranks_report made;
    mo_division_rank divided[3];
    mo_error err = {0};
    char path[] = "/tmp/moraine-ranks-XXXXXX", saved[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    made =
        (mo_probe_ranks_report){.count = 3,
                                .ranks = {{"a", 64LL << 30, 25e9, 2e9, true, 0, 0, 0, 20e-6, 1e9},
                                          {"b", 32LL << 30, 20e9, 1e9, true, 20e-6, 1e9, 1e-6, 5e-6, 4e9},
                                          {"c", 32LL << 30, 20e9, 1e9, false, 60e-6, 2e9, 2e-6, 60e-6, 2e9}}};
    check_status(mo_probe_ranks_save(&made, sizeof made, path, saved, sizeof saved, &err), &err);
    assert_string_equal(saved, path);
    check_status(mo_hosts_load(path, &hosts, &err), &err);
    unlink(path);
    assert_int_equal(hosts.count, 3);
    mo_hosts_ranks(&hosts, divided);
    for (int i = 0; i < 3; i++) {
        const mo_probe_rank *r = &made.ranks[i];
        const mo_network_wire *lead = &divided[i].lead, *next = &divided[i].next;
        assert_int_equal(divided[i].ram_bytes, r->ram_bytes);
        assert_true(divided[i].ram_bytes_s > 0.999 * r->product_bytes_s);
        if (i > 0) {
            assert_true(lead->bytes_s > 0.999 * r->bytes_s && lead->bytes_s < 1.001 * r->bytes_s);
            assert_true(lead->latency_s > 0.99 * r->latency_s && lead->latency_s < 1.01 * r->latency_s);
        }
        assert_true(next->bytes_s > 0.999 * r->next_bytes_s && next->bytes_s < 1.001 * r->next_bytes_s);
        assert_true(next->latency_s > 0.99 * r->next_latency_s && next->latency_s < 1.01 * r->next_latency_s);
    }
}

static void delay(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault)
{
    (void)user;
    (void)number;
    fault->late_ns = from == 2 || to == 2 ? 1000000 : 0;
}

/* What a message of a token takes by these figures: of its time a busy machine finds more to be that of its bytes. */
static double message_seconds(double latency_s, double bytes_s)
{
    enum { TOKEN_BYTES = 8192 };
    return latency_s + TOKEN_BYTES / bytes_s;
}

static void test_a_rank_that_is_far_is_found_to_be_far(void **state)
{
    (void)state;
    measure(PATIENT, -1, delay, NULL);
    check_status(ranks[0].status, &ranks[0].err);
    const mo_probe_rank *of = ranks[0].report.ranks;
    assert_true(message_seconds(of[2].latency_s, of[2].bytes_s) >= 0.99e-3);
    assert_true(message_seconds(of[1].next_latency_s, of[1].next_bytes_s) >= 0.99e-3);
}

/* One message of those between two ranks is lost, or cut short. */
typedef struct harm {
    int from, to;
    uint64_t number;
    bool cut;
} harm;

static void do_harm(void *user, int from, int to, uint64_t number, mo_loopback_fault *fault)
{
    const harm *h = user;
    if (from == h->from && to == h->to && number == h->number) {
        fault->lost = !h->cut;
        fault->bytes = h->cut ? 1 : fault->bytes;
    }
}

static void test_a_lost_message_ends_it_with_a_sentence(void **state)
{
    (void)state;
    /* Orders, messages and answers with rank 0, then between the others, and what they found. Before it a rank may take its time. */
    const harm harms[] = {{0, 1, 0, false}, {0, 1, 20, false}, {1, 0, 5, true},
                          {0, 2, 1, true},  {1, 2, 3, false},  {2, 1, 2, true}};
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i += SANITIZED ? 3 : 1) {
        measure(0.5, -1, do_harm, (void *)&harms[i]);
        assert_int_not_equal(ranks[0].status, MO_OK);
        check_says(&ranks[0].err, "rank");
    }
}

static void test_a_rank_that_is_not_there_ends_it_with_a_sentence(void **state)
{
    (void)state;
    measure(0.5, 2, NULL, NULL);
    assert_int_not_equal(ranks[0].status, MO_OK);
    check_says(&ranks[0].err, "rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_0_knows_how_far_all_are),
        cmocka_unit_test(test_what_was_measured_is_a_file_of_hosts),
        cmocka_unit_test(test_a_rank_that_is_far_is_found_to_be_far),
        cmocka_unit_test(test_a_lost_message_ends_it_with_a_sentence),
        cmocka_unit_test(test_a_rank_that_is_not_there_ends_it_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
