/* The pace of the server's scheduler, on machines that are formulas: how long running answers wait for their tokens while a prompt
 * of 4096 tokens passes, and how many steps the prompt takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "server/scheduler/pace.h"

enum { BATCH = 512, PROMPT = 4096 };

/* Seconds of a step of so many tokens. */
typedef double (*machine)(double tokens);

static double dense(double tokens)
{
    return 0.001 + 0.0002 * tokens;
}

static double slow(double tokens)
{
    return 0.1 + 0.01 * tokens;
}

/* Of 128 experts a token uses 8: the first tokens of a step bring most of what there is to read. */
static double experts(double tokens)
{
    return 0.002 + 0.002 * 128.0 * (1.0 - pow(1.0 - 8.0 / 128.0, tokens)) + 0.0003 * tokens;
}

/* A device has another way for steps of more than a few tokens. */
static double device(double tokens)
{
    return 0.003 + (tokens > 8.0 ? 0.01 : 0.0) + 0.00005 * tokens;
}

static const machine machines[] = {dense, slow, experts, device};
enum { MACHINES = sizeof machines / sizeof *machines };

typedef struct passing {
    double longest, second; /* seconds between two tokens of an answer */
    int steps, over;        /* steps; of them longer than the bound */
} passing;

static double fraction(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)*seed / 4294967296.0;
}

/* A prompt passes beside the answers, on a machine whose steps take up to `noise` more than they should. */
static passing pass(srv_pace *p, machine m, int answers, double noise, uint32_t *seed)
{
    passing out = {0};
    for (int64_t done = 0; done < PROMPT; out.steps++) {
        const int64_t rest = PROMPT - done, fits = srv_pace_piece(p, answers);
        const int64_t piece = fits < rest ? fits : rest;
        assert_true(piece >= 1 && piece + answers <= BATCH);
        const double seconds = m((double)(piece + answers)) * (1.0 + noise * fraction(seed));
        srv_pace_learn(p, answers, piece, seconds);
        out.second = seconds > out.longest ? out.longest : seconds > out.second ? seconds : out.second;
        out.longest = seconds > out.longest ? seconds : out.longest;
        out.over += seconds > p->bound_s;
        done += piece;
    }
    return out;
}

static void decode(srv_pace *p, machine m, int answers, int steps, double noise, uint32_t *seed)
{
    for (int i = 0; i < steps; i++) {
        srv_pace_learn(p, answers, 0, m(answers) * (1.0 + noise * fraction(seed)));
    }
}

/* What an answer must bear: the bound; where a token alone takes as long, twice that; pieces that cannot be smaller; and up to half
 * a second where less would make the prompt pass at less than two thirds of the rate that it has alone. */
static double bearable(const srv_pace *p, machine m, int answers)
{
    const double least = m(16.0 + answers), alone = 2.0 * m(answers);
    double most = least > alone ? least : alone;
    most = most > p->bound_s ? most : p->bound_s;
    const double rate = BATCH / m(BATCH);
    for (double piece = 16.0; most < 0.5 && piece + answers <= BATCH; piece += 1.0) {
        const double seconds = m(piece + answers);
        if (seconds > 0.5 || (seconds > most && piece / seconds > 0.7 * rate)) {
            break;
        }
        most = seconds > most ? seconds : most;
    }
    return most;
}

static void answers_wait_no_longer_than_the_bound(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        for (int answers = 1; answers <= 16; answers *= 4) {
            uint32_t seed = 1;
            srv_pace p;
            srv_pace_init(&p, BATCH, 0.05);
            srv_pace_learn(&p, 0, BATCH, machines[i](BATCH)); /* somebody's prompt came before */
            decode(&p, machines[i], answers, 20, 0.0, &seed);
            const passing first = pass(&p, machines[i], answers, 0.0, &seed);
            assert_true(first.second <=
                        1.01 * bearable(&p, machines[i], answers)); /* one step may be a guess */
            assert_true(first.longest <= 2.0 * bearable(&p, machines[i], answers));
            const passing next = pass(&p, machines[i], answers, 0.0, &seed);
            assert_true(next.longest <= 1.01 * bearable(&p, machines[i], answers));
        }
    }
}

/* The bound is made use of: steps take at least half of it, or are whole batches. */
static void prompts_pass_as_fast_as_the_bound_allows(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        uint32_t seed = 1;
        srv_pace p;
        srv_pace_init(&p, BATCH, 0.05);
        decode(&p, machines[i], 2, 20, 0.0, &seed);
        pass(&p, machines[i], 2, 0.0, &seed);
        const int64_t piece = srv_pace_piece(&p, 2);
        assert_true(piece + 2 == BATCH || machines[i]((double)piece + 2.0) >= 0.5 * p.bound_s);
        const passing next = pass(&p, machines[i], 2, 0.0, &seed);
        assert_true(next.steps <= 2 * (PROMPT / piece + 1));
    }
}

/* Where every step reads most of the experts, pieces are as large as it takes for that not to be most of what they cost. */
static void prompts_pass_at_a_useful_rate(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        for (int answers = 1; answers <= 8; answers *= 2) {
            uint32_t seed = 1;
            srv_pace p;
            srv_pace_init(&p, BATCH, 0.05);
            srv_pace_learn(&p, 0, BATCH, machines[i](BATCH));
            decode(&p, machines[i], answers, 20, 0.0, &seed);
            pass(&p, machines[i], answers, 0.0, &seed);
            const double piece = (double)srv_pace_piece(&p, answers), rate = BATCH / machines[i](BATCH);
            const double seconds = machines[i](piece + answers);
            assert_true(piece / seconds >= 0.6 * rate || seconds > 0.45);
        }
    }
}

/* Beside answers a token of a prompt may cost more than alone, as far into a context: that is no reason for larger pieces. */
static void tokens_that_cost_more_are_not_waited_for(void **state)
{
    (void)state;
    for (double cost = 1.5; cost <= 6.0; cost += 0.5) {
        srv_pace p;
        srv_pace_init(&p, BATCH, 0.05);
        srv_pace_learn(&p, 0, BATCH, 0.5); /* 1 ms each */
        srv_pace_learn(&p, 2, 0, 0.01);
        double seconds = 0.0;
        for (int i = 0; i < 40; i++) {
            const int64_t piece = srv_pace_piece(&p, 2);
            seconds = 0.01 + 0.001 * cost * (double)piece;
            srv_pace_learn(&p, 2, piece, seconds);
            assert_true(seconds <= 0.5);
        }
        assert_true(seconds <= 0.12); /* the bound, or the least piece */
    }
}

/* As the 4 layers of a Qwen3-30B were measured: a line through two small pieces, which bring ever more experts, is nearly as steep as one
 * from nothing. It is not taken for what a token costs: pieces grow. */
static void first_tokens_of_a_piece_do_not_say_what_the_others_cost(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, BATCH, 0.05);
    srv_pace_learn(&p, 0, 512, 1.0);
    srv_pace_learn(&p, 2, 0, 0.033);
    srv_pace_learn(&p, 2, 16, 0.169);
    srv_pace_learn(&p, 2, 30, 0.248);
    for (int i = 0; i < 20; i++) {
        const int64_t piece = srv_pace_piece(&p, 2);
        const double seconds =
            0.033 + 0.2 * (1.0 - pow(1.0 - 8.0 / 128.0, (double)piece)) + 0.0018 * (double)piece;
        assert_true(seconds <= 0.55);
        srv_pace_learn(&p, 2, piece, seconds);
    }
    assert_true(srv_pace_piece(&p, 2) >= 100);
}

/* What cost more once is tried again after a while. */
static void what_cost_more_is_tried_again(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, BATCH, 0.05);
    srv_pace_learn(&p, 0, BATCH, 0.5);
    srv_pace_learn(&p, 2, 0, 0.01);
    for (int i = 0; i < 200; i++) { /* a prompt far into its context, then others */
        const int64_t piece = srv_pace_piece(&p, 2);
        const double n = (double)piece;
        srv_pace_learn(&p, 2, piece, i < 40 ? 0.01 + 0.004 * n : experts(n + 2.0));
    }
    const double piece = (double)srv_pace_piece(&p, 2);
    assert_true(piece / experts(piece + 2.0) >= 0.6 * 1000.0 || experts(piece + 2.0) > 0.3);
}

/* Steps that take up to half as long again for no reason: few are over the bound, by no more than that. */
static void a_machine_that_wavers(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        uint32_t seed = 7;
        srv_pace p;
        srv_pace_init(&p, BATCH, 0.05);
        decode(&p, machines[i], 2, 20, 0.5, &seed);
        pass(&p, machines[i], 2, 0.5, &seed);
        const passing next = pass(&p, machines[i], 2, 0.5, &seed);
        assert_true(next.longest <= 2.0 * bearable(&p, machines[i], 2));
        assert_true(next.steps <= PROMPT / 16);
    }
}

/* A step that was held up once does not make prompts slow for long. */
static void one_bad_step_is_soon_forgotten(void **state)
{
    (void)state;
    uint32_t seed = 1;
    srv_pace p;
    srv_pace_init(&p, BATCH, 0.05);
    decode(&p, dense, 1, 20, 0.0, &seed);
    pass(&p, dense, 1, 0.0, &seed);
    const int64_t before = srv_pace_piece(&p, 1);
    srv_pace_learn(&p, 1, before, 3.0);
    assert_true(srv_pace_piece(&p, 1) < before);
    for (int i = 0; i < 6; i++) {
        const int64_t piece = srv_pace_piece(&p, 1);
        srv_pace_learn(&p, 1, piece, dense((double)piece + 1.0));
    }
    assert_true(srv_pace_piece(&p, 1) >= before * 9 / 10);
}

enum { LARGE_BATCH = 8192 };

/* Prompts without end, alone: tokens of a step after so many. */
static int64_t lone_piece(srv_pace *p, machine m, int steps)
{
    for (int i = 0; i < steps; i++) {
        const int64_t piece = srv_pace_piece(p, 0);
        srv_pace_learn(p, 0, piece, m((double)piece));
    }
    return srv_pace_piece(p, 0);
}

/* All experts are read from disk, whatever the number of tokens. */
static double disk(double tokens)
{
    return 20.0 + 0.001 * tokens;
}

/* Who comes while a long prompt passes alone waits for a step of a second, or for the least step that pays. */
static void whoever_comes_waits_for_no_long_step(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, LARGE_BATCH, 0.05);
    const int64_t piece = lone_piece(&p, dense, 12);
    assert_true(dense((double)piece) > 0.5 && dense((double)piece) <= 1.01);
    srv_pace_init(&p, LARGE_BATCH, 0.05);
    assert_int_equal(lone_piece(&p, slow, 2), 512); /* one larger step was tried */
    assert_int_equal(lone_piece(&p, slow, 20), 512);
}

static void steps_whose_tokens_cost_little_grow_to_the_batch(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, LARGE_BATCH, 0.05);
    assert_int_equal(lone_piece(&p, disk, 5), LARGE_BATCH);
    assert_int_equal(lone_piece(&p, disk, 20), LARGE_BATCH);
    srv_pace_learn(&p, 0, 700, disk(700.0)); /* the end of a prompt */
    assert_int_equal(srv_pace_piece(&p, 0), LARGE_BATCH);
}

/* Without answers that wait, a step is as large as it can be where that is not much. */
static void nobody_waits(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, BATCH, 0.05);
    assert_int_equal(srv_pace_piece(&p, 0), BATCH);
    srv_pace_learn(&p, 0, BATCH, 10.0);
    assert_int_equal(srv_pace_piece(&p, 0), BATCH);
    assert_int_equal(srv_pace_piece(&p, BATCH), 1);
}

/* Before a first step others are waited for: a hundredth of what it takes, and nothing where that is too short to come in. */
static void who_asks_at_the_same_time_is_waited_for(void **state)
{
    (void)state;
    srv_pace p;
    srv_pace_init(&p, BATCH, 0.1);
    assert_true(srv_pace_gathering(&p, PROMPT) == 0.0); /* nothing is known yet */
    srv_pace_learn(&p, 0, 256, 0.256);                  /* 1000 tokens/s */
    assert_true(fabs(srv_pace_gathering(&p, 100) - 0.001) < 1e-9);
    assert_true(srv_pace_gathering(&p, 10) == 0.0);
    assert_true(srv_pace_gathering(&p, PROMPT) <= 0.005);
    assert_true(srv_pace_gathering(&p, PROMPT) > 0.004);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_wait_no_longer_than_the_bound),
        cmocka_unit_test(prompts_pass_as_fast_as_the_bound_allows),
        cmocka_unit_test(prompts_pass_at_a_useful_rate),
        cmocka_unit_test(tokens_that_cost_more_are_not_waited_for),
        cmocka_unit_test(first_tokens_of_a_piece_do_not_say_what_the_others_cost),
        cmocka_unit_test(what_cost_more_is_tried_again),
        cmocka_unit_test(a_machine_that_wavers),
        cmocka_unit_test(one_bad_step_is_soon_forgotten),
        cmocka_unit_test(whoever_comes_waits_for_no_long_step),
        cmocka_unit_test(steps_whose_tokens_cost_little_grow_to_the_batch),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(who_asks_at_the_same_time_is_waited_for),
    };
    return cmocka_run_group_tests_name("server_pace", tests, NULL, NULL);
}
