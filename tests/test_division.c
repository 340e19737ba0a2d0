/* A model divided among ranks: which layers or experts each gets, what tokens and prompts cost then, and which way is chosen. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "plan/division.h"
#include "plan/spread.h"

#define GB 1000000000LL
#define US 1e-6

enum { LAYERS = 48, RANKS = 64 };

static mo_division_layer layers[LAYERS];

/* Shaped like Qwen3-30B: 128 experts of 2 MB in each layer, of which a token picks 8. */
static mo_division_model model(void)
{
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (mo_division_layer){.bytes = 30000000 + 128 * 2000000LL,
                                        .token_bytes = 20000000 + 8 * 2000000LL,
                                        .expert_bytes = 128 * 2000000LL,
                                        .expert_token_bytes = 8 * 2000000LL,
                                        .experts = 128,
                                        .used = 8};
    }
    return (mo_division_model){.layers = layers,
                               .count = LAYERS,
                               .end_bytes = 250000000,
                               .stream_bytes = 8192,
                               .input_bytes = 2304,
                               .output_bytes = 8192,
                               .piece = 256,
                               .prompt = 8192};
}

static mo_network_wire wire(double latency, double gbit)
{
    return (mo_network_wire){.latency_s = latency, .bytes_s = gbit * 1e9 / 8, .message_s = 1 * US};
}

static void set_wires(mo_division_rank *ranks, int count, mo_network_wire w)
{
    for (int r = 0; r < count; r++) {
        ranks[r].lead = ranks[r].next = w;
    }
}

static void make_ranks(mo_division_rank *ranks, int count, int64_t ram, mo_network_wire w)
{
    for (int r = 0; r < count; r++) {
        ranks[r] = (mo_division_rank){
            .ram_bytes = ram, .other_bytes = GB / 2, .ram_bytes_s = 30e9, .disk_bytes_s = 1e9};
    }
    set_wires(ranks, count, w);
}

static void check_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-15)) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

static mo_division_choice choose(const mo_division_model *m, const mo_division_rank *ranks, int count,
                                 mo_divide asked, int *first, double *upto)
{
    mo_error err = {0};
    mo_division_choice c;
    check_status(mo_division_choose(m, ranks, count, asked, first, upto, &c, &err), &err);
    return c;
}

/* ---- Spread ---- */

/* By looking at every way to pick. */
static double longest_of_all(const mo_spread_rank *ranks, int count, int used, int asked_rank, double *asked)
{
    int experts = 0, owner[16];
    double sum = 0, ways = 0, with = 0;
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < ranks[r].experts; i++) {
            owner[experts++] = r;
        }
    }
    for (unsigned set = 0; set < 1u << experts; set++) {
        int picks[16] = {0}, all = 0;
        for (int e = 0; e < experts; e++) {
            picks[owner[e]] += (set >> e) & 1;
            all += (set >> e) & 1;
        }
        double longest = 0;
        for (int r = 0; r < count; r++) {
            longest = fmax(longest, picks[r] ? ranks[r].fixed + picks[r] * ranks[r].each : 0);
        }
        if (all == used) {
            sum += longest;
            ways++;
            with += picks[asked_rank] > 0;
        }
    }
    *asked = with / ways;
    return sum / ways;
}

static void test_the_longest_of_all_ways_to_pick(void **state)
{
    (void)state;
    const mo_spread_rank cases[][4] = {
        {{0, 1, 4}, {0, 1, 4}, {0, 1, 4}},
        {{0, 2, 5}, {3, 1, 4}, {3.5, 0.25, 3}},
        {{0, 1, 10}, {100, 1, 1}, {0, 0, 1}},
        {{0, 1, 0}, {1, 1, 6}, {2, 3, 6}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int used = 1; used <= 12; used++) {
            double asked;
            const double want = longest_of_all(cases[i], 3, used, 2, &asked);
            check_near(mo_spread_longest(cases[i], 3, used), want);
            check_near(mo_spread_asked(cases[i][2].experts, 12, used), asked);
        }
    }
}

static void test_many_ranks_with_many_picks_are_counted_in_bounded_time(void **state)
{
    (void)state;
    mo_spread_rank ranks[MO_SPREAD_RANKS];
    double mean = 0;
    for (int r = 0; r < MO_SPREAD_RANKS; r++) {
        ranks[r] = (mo_spread_rank){.fixed = 1 + 0.001 * r, .each = 1 + 0.0007 * r, .experts = 2 + r % 3};
    }
    const double longest = mo_spread_longest(ranks, MO_SPREAD_RANKS, 8);
    for (int r = 0; r < MO_SPREAD_RANKS; r++) {
        mean = fmax(mean, ranks[r].fixed + ranks[r].each);
    }
    assert_true(longest > 2 && longest < 1.5 + 4 * 1.2 && mean > 2);
    assert_true(mo_spread_longest(ranks, MO_SPREAD_RANKS, 200) > 0); /* the mean of so many */
    assert_true(mo_spread_longest(ranks, 1, 9) == 0);                /* more than there are */
}

/* ---- What is where ---- */

static void test_equal_ranks_get_equal_shares_of_experts(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[4];
    double upto[4];
    mo_error err = {0};
    make_ranks(ranks, 4, 64 * GB, wire(0, 1e6));
    check_status(mo_division_make_experts(&m, ranks, 4, upto, &err), &err);
    for (int r = 0; r <= 4; r++) {
        assert_int_equal(mo_division_first_expert(upto, r, 128), 32 * r);
    }
    /* With a slow network the one that needs none gets more. */
    set_wires(ranks, 4, wire(200 * US, 1));
    check_status(mo_division_make_experts(&m, ranks, 4, upto, &err), &err);
    assert_true(upto[0] > 0.3 && upto[3] == 1);
    /* Over one on which no expert is worth asking for, each of the others has one all the same, and that is counted. */
    set_wires(ranks, 4, wire(0.1, 1));
    check_status(mo_division_make_experts(&m, ranks, 4, upto, &err), &err);
    for (int r = 1; r <= 4; r++) {
        assert_int_equal(mo_division_first_expert(upto, r, 128), 124 + r);
    }
    assert_true(mo_division_cost_experts(&m, ranks, 4, upto).latency_seconds > 0.1);
}

static void test_experts_fill_no_more_than_a_ranks_memory(void **state)
{
    (void)state;
    const mo_division_model m = model();
    const double experts = LAYERS * 128 * 2e6, cores = LAYERS * 30e6;
    mo_division_rank ranks[3];
    double upto[3];
    mo_error err = {0};
    make_ranks(ranks, 3, 64 * GB, wire(20 * US, 10));
    ranks[0].ram_bytes = 4 * GB;
    ranks[1].ram_bytes = 3 * GB;
    check_status(mo_division_make_experts(&m, ranks, 3, upto, &err), &err);
    assert_true(upto[0] * experts <= 4e9 - 0.5e9 - cores);
    assert_true((upto[1] - upto[0]) * experts <= 3e9 - 0.5e9);
    assert_true(upto[1] > 0.3 && upto[1] < 0.5);
}

static void test_vram_is_used_before_ram(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[2];
    int first[3];
    mo_error err = {0};
    make_ranks(ranks, 2, 64 * GB, wire(20 * US, 10));
    ranks[1].vram_bytes = 8 * GB;
    ranks[1].vram_bytes_s = 500e9;
    check_status(mo_division_make(m.layers, m.count, ranks, 2, first, &err), &err);
    assert_true(first[1] < LAYERS / 2); /* the fast one has more */
    double products, disk;
    mo_division_seconds(&ranks[1], &(mo_division_held){.bytes = 16e9, .core = 2e9}, 1e9, &products, &disk);
    check_near(products, 0.5e9 / 500e9 + 0.5e9 / 30e9);
    check_near(disk, 0);
}

/* Keys and values cannot be on disk: a rank that has no memory for them would refuse its layers. */
static void test_layers_go_where_their_sessions_fit(void **state)
{
    (void)state;
    mo_division_model m = model();
    mo_division_rank ranks[2];
    int first[3];
    mo_error err = {0};
    for (int i = 0; i < LAYERS; i++) {
        layers[i].stay_bytes = GB;
        layers[i].bytes += GB;
    }
    make_ranks(ranks, 2, 29 * GB, wire(20 * US, 10));
    ranks[0].ram_bytes_s = ranks[0].disk_bytes_s = 300e9; /* it would have nearly all */
    ranks[0].ram_bytes = 21 * GB;
    check_status(mo_division_make(m.layers, m.count, ranks, 2, first, &err), &err);
    assert_in_range(first[1], LAYERS - 28, 20);
}

/* VRAM holds cores first; RAM holds them too, or buffers where VRAM has them all, since a device may be lost. */
static void test_cores_are_in_ram_beside_vram(void **state)
{
    (void)state;
    const mo_division_held held = {.bytes = 20e9, .core = 3e9, .stay = 1e9};
    mo_division_rank r = {.ram_bytes = 10 * GB, .other_bytes = GB, .ram_bytes_s = 30e9, .disk_bytes_s = 1e9};
    const double without = mo_division_beyond(&r, &held);
    check_near(without, 11e9);
    r.vram_bytes_s = 500e9;
    r.vram_bytes = 2 * GB; /* not even the cores: nothing else is there */
    check_near(mo_division_beyond(&r, &held), without);
    r.buffer_bytes = 5 * GB; /* more than the cores */
    r.vram_bytes = 5 * GB;
    check_near(mo_division_beyond(&r, &held), without - 2e9);
    r.buffer_bytes = GB / 2;
    check_near(mo_division_beyond(&r, &held), without - 2e9 - 1.5e9);
    r.vram_bytes = 24 * GB;
    check_near(mo_division_beyond(&r, &held), 0);
    /* In slots, where not all is in RAM, experts take more of it. */
    const mo_division_held padded = {.bytes = 20e9, .core = 3e9, .stay = 1e9, .slots = 34e9};
    r.vram_bytes = 0;
    check_near(mo_division_beyond(&r, &padded), 17e9 - 6e9 / 2);
    r.ram_bytes = 21 * GB;
    check_near(mo_division_beyond(&r, &padded), 0);
    r.ram_bytes = 10 * GB;
    double last = INFINITY, products, disk;
    for (int tenth = 0; tenth <= 240; tenth++) {
        r.vram_bytes = tenth * (GB / 10);
        mo_division_seconds(&r, &held, 1e9, &products, &disk);
        assert_true(products + disk <= last * (1 + 1e-9));
        last = products + disk;
    }
}

/* By experts rank 0's device has the output matrix as well. */
static void test_rank_0_leaves_room_for_cores_and_the_output(void **state)
{
    (void)state;
    const mo_division_held cores = {.bytes = 3e9, .core = 3e9, .stay = 1e9};
    const mo_division_rank r = {.ram_bytes = 10 * GB,
                                .other_bytes = GB,
                                .vram_bytes = 5 * GB,
                                .vram_end_bytes = GB,
                                .buffer_bytes = GB / 2};
    mo_division_rank rest = mo_division_rest(&r, 0, &cores);
    assert_int_equal(rest.vram_bytes, GB);
    assert_int_equal(rest.other_bytes, GB + GB + GB / 2);
    const mo_division_held experts = {.bytes = 7e9, .slots = 14e9};
    check_near(mo_division_beyond(&rest, &experts), 7e9 - 1e9 - 7.5e9 / 2); /* 6 GB are left beside cores */
    check_near(mo_division_beyond(&rest, &(mo_division_held){.bytes = 6e9, .slots = 12e9}), 0);
    rest = mo_division_rest(&r, 1, &cores);
    assert_int_equal(rest.vram_bytes, 5 * GB);
    assert_int_equal(rest.other_bytes, GB);
}

/* ---- Costs ---- */

static void test_a_token_by_layers_is_the_sum_of_ranks_and_messages(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[4];
    int first[5];
    double upto[4];
    make_ranks(ranks, 4, 64 * GB, wire(30 * US, 10));
    const mo_division_cost c = choose(&m, ranks, 4, MO_DIVIDE_LAYERS, first, upto).layers;
    check_near(c.core_seconds, (LAYERS * 20e6 + 250e6) / 30e9);
    check_near(c.expert_seconds, LAYERS * 16e6 / 30e9);
    check_near(c.disk_seconds, 0);
    /* Three hops of four messages, and two back. */
    check_near(c.latency_seconds, 4 * 30 * US + (3 * 3 + 1) * US);
    check_near(c.token_bytes, 4 * 8192 + 3 * 132 + 544);
    check_near(c.wire_seconds, c.token_bytes / 1.25e9);
    check_near(c.token_messages, 14);
    check_near(c.token_seconds, c.core_seconds + c.expert_seconds + c.latency_seconds + c.wire_seconds);
    assert_string_equal(c.bound, "memory bandwidth of the ranks, one after the other: core");
}

static void test_one_rank_sends_nothing(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank rank[1];
    int first[2];
    double upto[1];
    make_ranks(rank, 1, 64 * GB, wire(30 * US, 1));
    const mo_division_choice c = choose(&m, rank, 1, MO_DIVIDE_AUTO, first, upto);
    check_near(c.layers.token_seconds, (LAYERS * 36e6 + 250e6) / 30e9);
    check_near(c.layers.token_seconds, c.experts.token_seconds);
    check_near(c.layers.token_messages + c.experts.token_messages, 0);
    check_near(c.layers.token_bytes + c.experts.token_bytes, 0);
}

static void test_a_token_by_experts_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[2];
    double half[2] = {0.5, 1};
    make_ranks(ranks, 2, 64 * GB, wire(30 * US, 10));
    const mo_division_cost c = mo_division_cost_experts(&m, ranks, 2, half);
    check_near(c.core_seconds, (LAYERS * 20e6 + 250e6) / 30e9);
    check_near(c.token_seconds, c.core_seconds + c.expert_seconds + c.latency_seconds + c.wire_seconds);
    /* Half of eight picks are elsewhere; nearly always there is one. */
    const double asked = mo_spread_asked(64, 128, 8);
    check_near(c.token_messages, LAYERS * 4 * asked);
    check_near(c.token_bytes, LAYERS * (asked * (2304 + 2 * 48) + 4 * (8192 + 12)));
    /* The longer of two halves is more than a half and less than all. */
    assert_true(c.expert_seconds > LAYERS * 8e6 / 30e9 && c.expert_seconds < LAYERS * 12e6 / 30e9);
    assert_true(c.latency_seconds > 0 && c.latency_seconds <= LAYERS * 62 * US);
}

static void check_costs_grow(mo_division_rank *ranks, int count, const mo_network_wire *wires, int wire_count)
{
    const mo_division_model m = model();
    int first[RANKS + 1];
    double upto[RANKS], last[4] = {0};
    for (int i = 0; i < wire_count; i++) {
        set_wires(ranks, count, wires[i]);
        const mo_division_choice c = choose(&m, ranks, count, MO_DIVIDE_AUTO, first, upto);
        const double now[4] = {c.layers.token_seconds, c.layers.prompt_seconds, c.experts.token_seconds,
                               c.experts.prompt_seconds};
        for (int k = 0; k < 4; k++) {
            assert_true(isfinite(now[k]));
            assert_true(now[k] >= last[k]);
            last[k] = now[k];
        }
    }
}

static void test_costs_grow_with_latency_and_fall_with_the_rate(void **state)
{
    (void)state;
    mo_division_rank ranks[8];
    mo_network_wire wires[8];
    make_ranks(ranks, 8, 8 * GB, wire(0, 1));
    for (int i = 0; i < 8; i++) {
        wires[i] = wire(20 * US * i, 10);
    }
    check_costs_grow(ranks, 4, wires, 8);
    check_costs_grow(ranks, 8, wires, 8);
    for (int i = 0; i < 8; i++) {
        wires[i] = wire(20 * US, 100.0 / (1 << i));
    }
    check_costs_grow(ranks, 4, wires, 8);
    check_costs_grow(ranks, 8, wires, 8);
}

static void test_more_memory_is_never_slower(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[4];
    int first[5];
    double upto[4], layers_last = INFINITY, experts_last = INFINITY;
    for (int gb = 1; gb <= 12; gb++) {
        make_ranks(ranks, 4, gb * GB, wire(30 * US, 10));
        const mo_division_choice c = choose(&m, ranks, 4, MO_DIVIDE_AUTO, first, upto);
        assert_true(c.layers.token_seconds <= layers_last * (1 + 1e-9));
        assert_true(c.experts.token_seconds <= experts_last * (1 + 1e-9));
        layers_last = c.layers.token_seconds;
        experts_last = c.experts.token_seconds;
        if (gb == 1) {
            assert_string_equal(c.layers.bound, "disk reads");
        }
    }
}

/* Groups of a step read what they need each for themselves: experts that few tokens share pay, cores that all read do not. */
static void test_steps_go_in_groups_where_experts_are_most_of_them(void **state)
{
    (void)state;
    const mo_division_layer moe = {.bytes = 2000000,
                                   .token_bytes = 10000 + 80000,
                                   .expert_bytes = 1280000,
                                   .expert_token_bytes = 80000,
                                   .experts = 128,
                                   .used = 8},
                            dense = {.bytes = 100000, .token_bytes = 100000};
    const mo_division_model sparse = {.layers = &moe, .count = 1}, full = {.layers = &dense, .count = 1};
    assert_int_equal(mo_division_groups(&sparse, 2, 1), 1);
    assert_int_equal(mo_division_groups(&sparse, 2, 2), 2);
    assert_int_equal(mo_division_groups(&sparse, 2, 8), 2);
    assert_int_equal(mo_division_groups(&sparse, 4, 2), 2);
    assert_true(mo_division_groups(&sparse, 4, 8) > 2);
    assert_int_equal(mo_division_groups(&sparse, 1, 8), 1);
    assert_int_equal(mo_division_groups(&sparse, 2, 1000), 1); /* all experts in every group */
    for (int64_t tokens = 0; tokens <= 64; tokens++) {
        assert_int_equal(mo_division_groups(&full, 4, tokens), 1);
    }
}

static void test_prompts_pass_all_ranks_at_once(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[16];
    int first[17];
    double upto[16];
    make_ranks(ranks, 16, 64 * GB, wire(30 * US, 100));
    const double one = choose(&m, ranks, 1, MO_DIVIDE_LAYERS, first, upto).layers.prompt_seconds;
    const double four = choose(&m, ranks, 4, MO_DIVIDE_LAYERS, first, upto).layers.prompt_seconds;
    const double all = choose(&m, ranks, 16, MO_DIVIDE_LAYERS, first, upto).layers.prompt_seconds;
    assert_true(four < one / 3 && four > one / 4);
    assert_true(all < four / 2 && all > one / 16);
}

/* ---- The choice ---- */

static void test_the_network_decides_between_layers_and_experts(void **state)
{
    (void)state;
    const mo_division_model m = model();
    mo_division_rank ranks[4];
    int first[5];
    double upto[4];
    make_ranks(ranks, 4, 64 * GB, wire(2 * US, 400));
    const mo_division_choice fast = choose(&m, ranks, 4, MO_DIVIDE_AUTO, first, upto);
    assert_true(fast.experts.token_seconds < fast.layers.token_seconds);
    set_wires(ranks, 4, wire(200 * US, 1));
    const mo_division_choice slow = choose(&m, ranks, 4, MO_DIVIDE_AUTO, first, upto);
    assert_int_equal(slow.way, MO_DIVIDE_LAYERS);
    assert_true(slow.experts.token_seconds > slow.layers.token_seconds);
    assert_non_null(strstr(slow.why, "by layers and"));
    const double quarters[4] = {0.25, 0.5, 0.75, 1};
    set_wires(ranks, 4, wire(2000 * US, 10));
    assert_string_equal(mo_division_cost_experts(&m, ranks, 4, quarters).bound, "message latency");
    set_wires(ranks, 4, wire(20 * US, 0.1));
    assert_string_equal(mo_division_cost_experts(&m, ranks, 4, quarters).bound, "network bandwidth");
    const mo_division_choice asked = choose(&m, ranks, 4, MO_DIVIDE_EXPERTS, first, upto);
    assert_int_equal(asked.way, MO_DIVIDE_EXPERTS);
}

/* Where an answer counts as much as its prompt, the faster token decides. */
static void test_experts_are_chosen_where_they_are_faster(void **state)
{
    (void)state;
    mo_division_model m = model();
    mo_division_rank ranks[4];
    int first[5];
    double upto[4];
    make_ranks(ranks, 4, 64 * GB, wire(2 * US, 400));
    m.prompt = 16;
    const mo_division_choice c = choose(&m, ranks, 4, MO_DIVIDE_AUTO, first, upto);
    assert_int_equal(c.way, MO_DIVIDE_EXPERTS);
}

static void test_what_cannot_be_divided_one_way_is_divided_the_other(void **state)
{
    (void)state;
    mo_division_model m = model();
    mo_division_rank ranks[RANKS];
    int first[RANKS + 1];
    double upto[RANKS];
    mo_division_choice c;
    mo_error err = {0};
    make_ranks(ranks, RANKS, 64 * GB, wire(30 * US, 10));
    c = choose(&m, ranks, RANKS, MO_DIVIDE_AUTO, first, upto); /* more of them than layers */
    assert_int_equal(c.way, MO_DIVIDE_EXPERTS);
    assert_false(c.layers.possible);
    assert_string_equal(c.why, "layers cannot be divided among so many ranks");
    assert_int_equal(mo_division_choose(&m, ranks, RANKS, MO_DIVIDE_LAYERS, first, upto, &c, &err),
                     MO_EINVAL);
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (mo_division_layer){.bytes = 1000, .token_bytes = 1000};
    }
    c = choose(&m, ranks, 4, MO_DIVIDE_AUTO, first, upto);
    assert_int_equal(c.way, MO_DIVIDE_LAYERS);
    assert_string_equal(c.why, "the model has no experts to divide");
    assert_int_equal(mo_division_choose(&m, ranks, 4, MO_DIVIDE_EXPERTS, first, upto, &c, &err), MO_EINVAL);
    assert_int_equal(mo_division_choose(&m, ranks, 0, MO_DIVIDE_AUTO, first, upto, &c, &err), MO_EINVAL);
    assert_int_equal(mo_division_choose(&m, ranks, 257, MO_DIVIDE_AUTO, first, upto, &c, &err), MO_EINVAL);
    assert_int_equal(mo_division_choose(&m, ranks, RANKS, MO_DIVIDE_AUTO, first, upto, &c, &err), MO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_of_all_ways_to_pick),
        cmocka_unit_test(test_many_ranks_with_many_picks_are_counted_in_bounded_time),
        cmocka_unit_test(test_equal_ranks_get_equal_shares_of_experts),
        cmocka_unit_test(test_experts_fill_no_more_than_a_ranks_memory),
        cmocka_unit_test(test_vram_is_used_before_ram),
        cmocka_unit_test(test_layers_go_where_their_sessions_fit),
        cmocka_unit_test(test_cores_are_in_ram_beside_vram),
        cmocka_unit_test(test_rank_0_leaves_room_for_cores_and_the_output),
        cmocka_unit_test(test_a_token_by_layers_is_the_sum_of_ranks_and_messages),
        cmocka_unit_test(test_one_rank_sends_nothing),
        cmocka_unit_test(test_a_token_by_experts_is_the_sum_of_its_parts),
        cmocka_unit_test(test_costs_grow_with_latency_and_fall_with_the_rate),
        cmocka_unit_test(test_more_memory_is_never_slower),
        cmocka_unit_test(test_steps_go_in_groups_where_experts_are_most_of_them),
        cmocka_unit_test(test_prompts_pass_all_ranks_at_once),
        cmocka_unit_test(test_the_network_decides_between_layers_and_experts),
        cmocka_unit_test(test_experts_are_chosen_where_they_are_faster),
        cmocka_unit_test(test_what_cannot_be_divided_one_way_is_divided_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
