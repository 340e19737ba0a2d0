/* Plans: places and speeds by hand-made and random models, ceilings from made-up machines, rates from
 * JSON. */
#include "plan/limits.h"
#include "plan/rates.h"
#include "plan/text.h"
#include "plan_case.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"

static mo_status refused(const mo_plan_model *m, int64_t ceiling, mo_error *err)
{
    mo_run_plan p;
    const mo_plan_limits l = ceiling_of(ceiling);
    memset(&p, 0x5A, sizeof p);
    const mo_run_plan before = p;
    err->detail[0] = 0;
    const mo_status status = mo_plan_make(m, &l, &fast, &p, err);
    assert_int_not_equal(status, MO_OK);
    assert_int_equal(err->status, status);
    assert_true(strlen(err->detail) > 20);
    assert_memory_equal(&p, &before, sizeof p);
    return status;
}

/* ---- Places ---- */

static void resident_when_it_fits(void **state)
{
    (void)state;
    const mo_plan_model m = qwen();
    const int64_t experts = 768 * ((int64_t)3023872 + 2654208);
    const int64_t rest = (int64_t)(390 + 13 + 100 + 60 + 20) * 1000000 + 65536;
    mo_run_plan p = planned(&m, 100 * GIB, &fast);
    assert_int_equal(p.mode, MO_PLAN_RESIDENT);
    assert_int_equal(p.whole, experts + rest);
    assert_int_equal(p.used, p.whole);
    assert_int_equal(p.expert_bytes, experts);
    assert_int_equal(p.expert_resident, experts);
    assert_int_equal(p.table, 0);
    assert_int_equal(p.token_disk_bytes, 0);
    assert_true(p.hit_rate == 1 && p.disk_seconds == 0);
    assert_int_equal(planned(&m, p.whole, &fast).mode, MO_PLAN_RESIDENT);
    assert_int_equal(planned(&m, p.whole - 1, &fast).mode, MO_PLAN_SLOTS);
    mo_plan_model tied = m; /* the embedding is the output matrix: it is in RAM and is read */
    tied.tied = true;
    tied.core_bytes -= tied.output_bytes;
    tied.output_bytes = tied.table_bytes;
    p = planned(&tied, 100 * GIB, &fast);
    assert_int_equal(p.table, tied.table_bytes);
    assert_true(p.core_seconds == (double)(tied.core_bytes + tied.table_bytes) / 40e9);
}

static void one_class_fills_what_is_left(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    const mo_run_plan p = planned(&m, 24 * GIB, &fast);
    const int64_t rest = p.ceiling - (p.used - p.slots);
    assert_int_equal(p.mode, MO_PLAN_SLOTS);
    assert_int_equal(p.class_slots[0], rest / m.classes[0].slot_bytes);
    assert_int_equal(p.slots, p.class_slots[0] * m.classes[0].slot_bytes);
    assert_int_equal(p.core, m.core_bytes);
    assert_int_equal(p.layer_buffers, 0);
    assert_int_equal(p.dense_resident, 36);
}

static void classes_share_by_what_is_read(void **state)
{
    (void)state;
    mo_plan_model m = qwen();
    mo_run_plan p = planned(&m, 3 * GB, &fast);
    const double a = (double)p.class_slots[0] / 768, b = (double)p.class_slots[1] / 768;
    assert_int_equal(p.mode, MO_PLAN_SLOTS);
    assert_true(fabs(a - b) < 0.01); /* every layer has the same share of its experts */
    assert_true(p.used <= p.ceiling &&
                p.ceiling - p.used < m.classes[0].slot_bytes + m.classes[1].slot_bytes);
    /* A token reads twice as many of the first: bytes follow. */
    m.classes[0].used_per_token = 96;
    p = planned(&m, 2 * GB, &fast);
    const double ratio = (double)p.class_slots[0] * 3035136 / ((double)p.class_slots[1] * 2678784);
    assert_true(fabs(ratio / (96.0 * 3023872 / (48.0 * 2654208)) - 1) < 0.02);
    /* A class that is whole leaves the rest to the other. */
    m.classes[0].experts = 40;
    p = planned(&m, 2 * GB, &fast);
    assert_int_equal(p.class_slots[0], 40);
    assert_true(p.class_slots[1] > 400);
    assert_true(p.ceiling - p.used < m.classes[1].slot_bytes);
    /* What no token reads gets the fewest. */
    m.classes[0].experts = 768;
    m.classes[0].used_per_token = 0;
    p = planned(&m, 2 * GB, &fast);
    assert_int_equal(p.class_slots[0], 8 + MO_PLAN_IN_FLIGHT);
}

static void classes_keep_the_fewest(void **state)
{
    (void)state;
    mo_plan_model m = qwen();
    m.classes[1].used = 3;
    m.in_flight = 2;
    m.classes[2] =
        (mo_plan_class){.bytes = 5000, .slot_bytes = 8192, .experts = 5, .used_per_token = 1, .used = 8};
    m.class_count = 3;
    m.dense_layers = 0;
    mo_run_plan p = planned(&m, GB, &fast);
    p = planned(&m, p.least, &fast);
    assert_int_equal(p.used, p.least);
    assert_int_equal(p.class_slots[0], 10);
    assert_int_equal(p.class_slots[1], 5);
    assert_int_equal(p.class_slots[2], 5); /* it has no more experts */
}

static void dense_layers_stream(void **state)
{
    (void)state;
    const mo_plan_model m = dense_70b(512);
    const int64_t layer = m.dense_layer_bytes, buffer = m.dense_buffer_bytes;
    mo_run_plan p = planned(&m, 100 * GB, &fast);
    assert_int_equal(p.mode, MO_PLAN_RESIDENT);
    const int64_t least = p.least;
    p = planned(&m, least, &fast);
    assert_int_equal(p.mode, MO_PLAN_STREAMED);
    assert_int_equal(p.layer_buffers, 2);
    assert_int_equal(p.dense_resident, 0);
    assert_int_equal(p.core, m.output_bytes);
    assert_int_equal(p.staging, 2 * buffer);
    assert_int_equal(p.used, least);
    p = planned(&m, least + buffer - 1, &fast);
    assert_int_equal(p.layer_buffers, 2);
    p = planned(&m, least + buffer, &fast);
    assert_int_equal(p.layer_buffers, 3);
    assert_int_equal(p.dense_resident, 0);
    p = planned(&m, least + buffer + 40 * layer, &fast);
    assert_int_equal(p.layer_buffers, 3);
    assert_int_equal(p.dense_resident, 40);
    assert_int_equal(p.core, m.output_bytes + 40 * layer);
    assert_int_equal(p.token_disk_bytes, 40 * layer);
    assert_int_equal(p.token_ram_bytes, m.core_bytes - 40 * layer);
    /* Layer by layer the longer of both: 40 at 40 GB/s, 40 at 4 GB/s. */
    const double seconds = (double)(m.output_bytes + 40 * layer) / 40e9 + 40 * (double)layer / 4e9;
    assert_true(fabs(p.tokens_per_second * seconds - 1) < 1e-9);
    mo_rates quick = fast; /* a disk that outruns the products costs nothing */
    quick.disk_bytes_s = 100e9;
    p = planned(&m, least, &quick);
    assert_true(fabs(p.tokens_per_second * ((double)m.core_bytes / 40e9) - 1) < 1e-9);
    assert_int_equal(planned(&m, p.whole, &fast).mode, MO_PLAN_RESIDENT);
    assert_int_equal(planned(&m, p.whole - 1, &fast).mode, MO_PLAN_STREAMED);
}

static void a_routed_core_streams_when_it_must(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    const mo_run_plan big = planned(&m, 100 * GB, &fast);
    const mo_run_plan p = planned(&m, big.least, &fast);
    assert_int_equal(p.mode, MO_PLAN_STREAMED);
    assert_int_equal(p.class_slots[0], 4 + MO_PLAN_IN_FLIGHT);
    assert_int_equal(p.used, big.least);
    /* All of the core and the fewest slots: nothing streams any more. */
    const int64_t slotted = p.used - 2 * m.dense_buffer_bytes + m.dense_bytes;
    assert_int_equal(planned(&m, slotted, &fast).mode, MO_PLAN_SLOTS);
    const mo_run_plan below = planned(&m, slotted - 1, &fast);
    assert_int_equal(below.mode, MO_PLAN_STREAMED);
    assert_int_equal(below.dense_resident, 32);
    assert_int_equal(below.layer_buffers, 3);
}

/* ---- Refusals ---- */

static void refuses_with_the_number(void **state)
{
    (void)state;
    const mo_plan_model models[] = {qwen(), dense_70b(4096), gpt_oss_120b(131072)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        mo_error err;
        char number[64];
        const int64_t least = planned(&models[i], 200 * GB, &fast).least;
        planned(&models[i], least, &fast);
        assert_int_equal(refused(&models[i], least - 1, &err), MO_ENOMEM);
        snprintf(number, sizeof number, "(%lld bytes)", (long long)least);
        assert_says(&err, number);
        assert_says(&err, "`ram_bytes`");
        assert_int_equal(refused(&models[i], 1, &err), MO_ENOMEM);
        assert_says(&err, number);
        assert_says(&err, "is not enough");
        assert_true(strlen(err.detail) < 480); /* so that the model's name can stand before it */
    }
    mo_error err;
    mo_plan_model m = qwen();
    const int64_t least = planned(&m, 200 * GB, &fast).least;
    refused(&m, least - 99 * 1000000, &err); /* less than keys and values, more than working memory */
    assert_says(&err, "reduce `context`");
    refused(&m, least - 59 * 1000000, &err);
    assert_says(&err, "reduce `context` or `batch`");
    refused(&m, least - 120 * 1000000, &err);
    assert_says(&err, "reduce `context` and `batch`");
    m.kv_bytes = 0;
    refused(&m, least - 159 * 1000000, &err);
    assert_says(&err, "reduce `batch`");
}

/* ---- Speed ---- */

static void the_serial_bound(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    const mo_run_plan p = planned(&m, 24 * GIB, &fast);
    const double experts = 144 * 13219200.0, share = (double)p.class_slots[0] / 4608;
    const double reads = experts * (1 - share) / 4e9;
    assert_true(fabs(p.hit_rate - share) < 1e-12);
    assert_true(fabs(p.core_seconds - 1640e6 / 40e9) < 1e-12);
    assert_true(fabs(p.expert_seconds - experts / 40e9) < 1e-12);
    assert_true(fabs(p.disk_seconds - reads) < 1e-12);
    const double layers = fmax(experts / 40e9, reads) + fmin(experts / 40e9, reads) / 4;
    assert_true(fabs(1 / p.tokens_per_second - (1640e6 / 40e9 + layers)) < 1e-9);
    assert_true(llabs(p.token_disk_bytes - (int64_t)(experts * (1 - share))) <= 1);
    assert_true(llabs(p.token_ram_bytes + p.token_disk_bytes - (int64_t)(1640e6 + experts)) <= 2);
}

/* Experts that stay as the file has them may be slower to multiply; the core is not. */
static void slots_at_their_own_rate(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    mo_rates slower = fast;
    slower.slot_share = fast.compute_share / 2;
    const mo_run_plan p = planned(&m, 24 * GIB, &slower);
    assert_true(fabs(p.core_seconds - 1640e6 / 40e9) < 1e-12);
    assert_true(fabs(p.expert_seconds - 144 * 13219200.0 / 20e9) < 1e-12);
    const mo_run_plan all = planned(&m, 100 * GIB, &slower), same = planned(&m, 100 * GIB, &fast);
    assert_int_equal(all.mode, MO_PLAN_RESIDENT);
    assert_true(all.tokens_per_second == same.tokens_per_second);
}

/* What shared measurements say the wires allow: Qwen3-30B, 12 layers, 2 GB, 4.6 GB/s: about 22 tokens/s. */
static void qwen_in_two_gigabytes(void **state)
{
    (void)state;
    const mo_rates r = {.ram_bytes_s = 54e9, .compute_share = 0.8, .disk_bytes_s = 4.6e9};
    const mo_plan_model m = qwen();
    const mo_run_plan p = planned(&m, 2 * GB, &r);
    assert_int_equal(p.mode, MO_PLAN_SLOTS);
    assert_true(p.hit_rate > 0.3 && p.hit_rate < 0.36);
    assert_true(p.tokens_per_second > 19 && p.tokens_per_second < 23);
}

/* More memory is never slower, and a little more or less of it never matters much. */
static void sweep(const mo_plan_model *m, const mo_rates *r, int steps, double jump)
{
    const mo_run_plan big = planned(m, INT64_MAX, r);
    mo_run_plan last = planned(m, big.least, r);
    for (int i = 1; i <= steps; i++) {
        const int64_t step = (big.whole - big.least) / steps;
        const mo_run_plan p = planned(m, i < steps ? big.least + i * step : big.whole, r);
        assert_true(p.used <= p.ceiling);
        assert_true(p.tokens_per_second >= last.tokens_per_second);
        assert_true(p.token_disk_bytes <= last.token_disk_bytes);
        assert_true(p.mode <= last.mode);
        assert_true(p.tokens_per_second <= last.tokens_per_second * jump);
        for (int c = 0; c < m->class_count && p.mode != MO_PLAN_RESIDENT; c++) {
            assert_true(p.class_slots[c] >= last.class_slots[c]);
        }
        last = p;
    }
    assert_int_equal(last.mode, MO_PLAN_RESIDENT);
}

static void degrades_without_a_cliff(void **state)
{
    (void)state;
    const mo_plan_model routed = qwen(), large = gpt_oss_120b(8192), dense = dense_70b(4096);
    /* The last layer that stays makes the layer buffers needless, through which four are streamed: of 12 and 36 small
     * ones, and of 80 that are all there is. */
    sweep(&routed, &fast, 4096, 1.15);
    sweep(&large, &fast, 4096, 1.1);
    sweep(&dense, &fast, 4096, 1.5);
    /* From one byte to the next as well, around the borders between modes. */
    const mo_run_plan p = planned(&routed, 100 * GB, &fast);
    for (int64_t c = p.whole - 3; c < p.whole; c++) {
        assert_true(planned(&routed, c, &fast).tokens_per_second <= p.tokens_per_second);
        assert_true(planned(&routed, c, &fast).tokens_per_second > 0.9 * p.tokens_per_second);
    }
}

/* ---- Properties over random models ---- */

static void check_plan(const mo_plan_model *m, const mo_run_plan *p)
{
    assert_true(p->used <= p->ceiling);
    assert_true(p->least <= p->used && p->least <= p->whole);
    assert_int_equal(p->used,
                     p->core + p->vectors + p->table + p->kv + p->work + p->other + p->staging + p->slots);
    int64_t slots = 0;
    for (int i = 0; i < m->class_count; i++) {
        assert_true(p->class_slots[i] <= m->classes[i].experts);
        if (p->mode != MO_PLAN_RESIDENT) {
            assert_true(p->class_slots[i] >= fewest(m, &m->classes[i]));
        }
        slots += p->class_slots[i] * m->classes[i].slot_bytes;
    }
    assert_true(p->mode == MO_PLAN_RESIDENT || slots == p->slots);
    if (p->mode == MO_PLAN_STREAMED) {
        assert_true(p->layer_buffers == 2 || p->layer_buffers == 3);
        assert_true(p->dense_resident >= 0 && p->dense_resident + p->layer_buffers < m->dense_layers);
        assert_int_equal(p->staging, m->staging_bytes + p->layer_buffers * m->dense_buffer_bytes);
        assert_int_equal(p->core, m->core_bytes - m->dense_bytes + p->dense_resident * m->dense_layer_bytes);
    } else {
        assert_int_equal(p->core, m->core_bytes);
    }
    assert_true(p->expert_resident <= p->expert_bytes);
    assert_true(p->hit_rate >= 0 && p->hit_rate <= 1);
    assert_true(p->token_ram_bytes >= 0 && p->token_disk_bytes >= 0);
}

static void random_models(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int n = 0; n < 400; n++) {
        const mo_plan_model m = random_model(&seed);
        const mo_rates r = {.ram_bytes_s = 1e9 + (double)random_below(&seed, 400) * 1e9,
                            .compute_share = 0.1 + (double)random_below(&seed, 90) / 100,
                            .disk_bytes_s = 1e8 + (double)random_below(&seed, 100) * 1e8};
        const mo_run_plan big = planned(&m, INT64_MAX, &r);
        mo_error err;
        mo_run_plan last = planned(&m, big.least, &r);
        check_plan(&m, &last);
        if (big.least > 1) {
            assert_int_equal(refused(&m, big.least - 1, &err), MO_ENOMEM);
        }
        for (int i = 0; i < 60; i++) {
            const int64_t more = random_below(&seed, (big.whole - big.least) / 40 + 2);
            const mo_run_plan p = planned(&m, last.ceiling + more, &r);
            check_plan(&m, &p);
            assert_true(p.tokens_per_second >= last.tokens_per_second);
            last = p;
        }
    }
}

/* ---- The machine of the three tiers' design ---- */

static void machine_002(void **state)
{
    (void)state;
    mo_rates r;
    mo_error err;
    mo_plan_limits l = {.reserve_bytes = -1};
    assert_int_equal(mo_rates_load(MO_TEST_DATA "/machine-three-tiers.json", &r, &err), MO_OK);
    assert_true(r.measured && r.vram_bytes == 24 * GB && r.link_bytes_s == 6.5e9);
    assert_int_equal(mo_plan_limits_find(NULL, &r, &l, &err), MO_OK);
    assert_int_equal(l.ram_bytes, 42 * GB - 42 * GB / 100 * 6);
    const mo_plan_model near = dense_70b(512), far = dense_70b(4096), farther = dense_70b(32768);
    const mo_run_plan a = planned(&near, l.ram_bytes, &r), b = planned(&far, l.ram_bytes, &r);
    const mo_run_plan c = planned(&farther, l.ram_bytes, &r);
    assert_int_equal(a.mode, MO_PLAN_STREAMED);
    assert_int_equal(a.layer_buffers, 3);
    /* A longer context moves layers down, as the document's table shows. */
    assert_true(a.dense_resident > 50 && a.dense_resident > b.dense_resident);
    assert_true(b.dense_resident > c.dense_resident);
    assert_true(a.tokens_per_second > b.tokens_per_second && b.tokens_per_second > c.tokens_per_second);
    assert_true(a.tokens_per_second > 0.1 && a.tokens_per_second < 0.5); /* it measured 0.2 */
    const mo_plan_model brief = gpt_oss_120b(4096), lengthy = gpt_oss_120b(131072);
    const mo_run_plan d = planned(&brief, l.ram_bytes, &r), e = planned(&lengthy, l.ram_bytes, &r);
    assert_int_equal(d.mode, MO_PLAN_SLOTS);
    assert_true(d.class_slots[0] > e.class_slots[0] && d.tokens_per_second > e.tokens_per_second);
    /* A faster disk raises the speed, of both. */
    mo_rates twice = r;
    twice.disk_bytes_s *= 2;
    assert_true(planned(&near, l.ram_bytes, &twice).tokens_per_second > 1.3 * a.tokens_per_second);
    assert_true(planned(&brief, l.ram_bytes, &twice).tokens_per_second > 1.1 * d.tokens_per_second);
}

/* ---- Absurd models ---- */

static void absurd_models(void **state)
{
    (void)state;
    mo_error err;
    mo_plan_model m = {0};
    mo_run_plan p = planned(&m, 1, &fast); /* nothing fits anywhere */
    assert_int_equal(p.mode, MO_PLAN_RESIDENT);
    assert_true(p.used == 0 && p.tokens_per_second == 0 && p.hit_rate == 1);
    /* As large as a model may say: sums do not overflow, and do not fit. */
    m = qwen();
    m.core_bytes = m.table_bytes = m.kv_bytes = m.work_bytes = m.vector_bytes = (int64_t)1 << 60;
    m.other_bytes = m.staging_bytes = (int64_t)1 << 60;
    m.tied = true;
    for (int i = 0; i < MO_PLAN_CLASSES; i++) {
        m.classes[i] = (mo_plan_class){(int64_t)1 << 60, (int64_t)1 << 60, INT32_MAX, 1e9, INT32_MAX};
    }
    m.class_count = MO_PLAN_CLASSES;
    assert_int_equal(refused(&m, INT64_MAX - 1, &err), MO_ENOMEM);
    assert_int_equal(refused(&m, 1, &err), MO_ENOMEM);
    assert_true(strlen(err.detail) < 480);
    /* One class with slots far larger than its bytes, another the other way round. */
    m = qwen();
    m.classes[0] = (mo_plan_class){1, (int64_t)1 << 40, INT32_MAX, 1e-6, 1};
    m.classes[1] = (mo_plan_class){1, 1, 1, 1e9, 1};
    p = planned(&m, (int64_t)1 << 62, &fast);
    check_plan(&m, &p);
    p = planned(&m, (int64_t)1 << 50, &fast);
    check_plan(&m, &p);
    p = planned(&m, INT64_MAX, &fast);
    check_plan(&m, &p);
}

static void nonsense_is_named(void **state)
{
    (void)state;
    mo_error err;
    mo_run_plan p;
    mo_plan_model m = qwen();
    m.kv_bytes = -1;
    assert_int_equal(refused(&m, GB, &err), MO_EINVAL);
    assert_says(&err, "KV cache");
    m = qwen();
    m.core_bytes = ((int64_t)1 << 60) + 1;
    assert_int_equal(refused(&m, GB, &err), MO_EINVAL);
    m = qwen();
    m.class_count = MO_PLAN_CLASSES + 1;
    assert_int_equal(refused(&m, GB, &err), MO_EINVAL);
    m = qwen();
    m.dense_bytes = m.core_bytes + 1;
    assert_int_equal(refused(&m, GB, &err), MO_EINVAL);
    const mo_plan_class bad[] = {{10, 9, 5, 1, 1},       {-1, 9, 5, 1, 1}, {1, 9, -5, 1, 1},
                                 {0, 0, 5, 1, 1},        {1, 9, 5, -1, 1}, {1, 9, 5, NAN, 1},
                                 {1, 9, 5, INFINITY, 1}, {1, 9, 5, 1, -1}, {1, 9, (int64_t)1 << 40, 1, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        m = qwen();
        m.classes[1] = bad[i];
        assert_int_equal(refused(&m, GB, &err), MO_EINVAL);
        assert_says(&err, "class 1");
    }
    m = qwen();
    assert_int_equal(refused(&m, 0, &err), MO_EINVAL);
    assert_int_equal(refused(&m, -5, &err), MO_EINVAL);
    mo_plan_limits l = {.ram_bytes = GB, .vram_bytes = -1};
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_EINVAL);
    assert_says(&err, "`vram_bytes`");
    l.vram_bytes = 0;
    l.vram_expert_bytes = -1;
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_EINVAL);
    l.vram_expert_bytes = 0;
    const mo_rates rates[] = {{.ram_bytes_s = 0, .compute_share = 1, .disk_bytes_s = 1},
                              {.ram_bytes_s = NAN, .compute_share = 1, .disk_bytes_s = 1},
                              {.ram_bytes_s = 1, .compute_share = 1, .disk_bytes_s = -1},
                              {.ram_bytes_s = 1, .compute_share = INFINITY, .disk_bytes_s = 1}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        assert_int_equal(mo_plan_make(&m, &l, &rates[i], &p, &err), MO_EINVAL);
        assert_says(&err, "rates");
    }
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, NULL), MO_OK);
}

static void sizes_in_words(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(mo_plan_size_text(0, text), "0 B");
    assert_string_equal(mo_plan_size_text(1536 * MIB, text), "1.50 GiB");
    assert_string_equal(mo_plan_size_text(512 * MIB, text), "512 MiB");
    assert_string_equal(mo_plan_size_text(INT64_MAX, text), "8.00 EiB");
    assert_string_equal(mo_plan_mode_text(&(mo_run_plan){.mode = MO_PLAN_SLOTS}), "slots");
}

/* ---- Ceilings of made-up machines ---- */

static void put(const char *path, const char *text)
{
    assert_int_equal(folder_put(path, text), 0);
}

static mo_plan_limits found(int64_t ram, int64_t reserve)
{
    mo_error err;
    const mo_rates r = mo_rates_default();
    mo_plan_limits l = {.ram_bytes = ram, .reserve_bytes = reserve};
    const mo_status status = mo_plan_limits_find(folder, &r, &l, &err);
    if (status != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return l;
}

/* The ceiling is the process's: with what this model needs and what others use it is compared, whatever theirs was. */
static void refused_beside_other_models(void **state)
{
    (void)state;
    static const int64_t held[] = {256 << 20, (int64_t)40 << 30}; /* below the ceiling, and above it */
    const mo_plan_model m = gpt_oss_120b(4096);
    mo_run_plan p;
    mo_error err;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        mo_plan_limits l = {.ram_bytes = (int64_t)1 << 30, .ram_held = held[i]};
        char words[200], others[32];
        assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_ENOMEM);
        const char *raised = strstr(err.detail, "raise `ram_bytes` to ");
        assert_non_null(raised);
        const long long enough = strtoll(strchr(raised, '(') + 1, NULL, 10);
        snprintf(words, sizeof words,
                 "(%lld bytes) are needed beside %s of other models, but the ceiling is 1.00 GiB; raise",
                 enough - (long long)held[i], mo_plan_size_text(held[i], others));
        if (!strstr(err.detail, words)) {
            fail_msg("expected %s: %s", words, err.detail);
        }
        l.ram_bytes = enough;
        assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_OK);
        l.ram_bytes = enough - 1;
        assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_ENOMEM);
    }
}

static void ceiling_from_the_machine(void **state)
{
    (void)state;
    mo_error err;
    const mo_rates r = mo_rates_default();
    mo_plan_limits l = {.reserve_bytes = -1};
    assert_int_equal(mo_plan_limits_find(folder, &r, &l, &err), MO_EUNSUPPORTED);
    assert_says(&err, "`ram_bytes`");
    l = found(GIB, -1); /* what was asked for needs no machine */
    assert_int_equal(l.ram_bytes, GIB);
    assert_int_equal(l.available_bytes, 0);
    assert_string_equal(l.why, "a RAM ceiling of 1.00 GiB was given");
    put("/proc/meminfo", "MemTotal:  50000000 kB\nMemAvailable:   16777216 kB\n");
    l = found(0, -1);
    assert_int_equal(l.available_bytes, 16 * GIB);
    assert_int_equal(l.ram_bytes, 16 * GIB - 16 * GIB / 100 * 6);
    assert_non_null(strstr(l.why, "MemAvailable has 16.0 GiB"));
    assert_non_null(strstr(l.why, "983 MiB of it left for other programs"));
    assert_int_equal(found(0, 5 * GIB).ram_bytes, 11 * GIB);
    assert_int_equal(found(0, 0).ram_bytes, 16 * GIB);
    l = (mo_plan_limits){.reserve_bytes = 16 * GIB};
    assert_int_equal(mo_plan_limits_find(folder, &r, &l, &err), MO_ENOMEM);
    put("/proc/meminfo", "MemAvailable:   4194304 kB\n");
    assert_int_equal(found(0, -1).ram_bytes, 4 * GIB - 512 * MIB);
    put("/proc/meminfo", "MemAvailable:   1048576 kB\n");
    assert_int_equal(found(0, -1).ram_bytes, 768 * MIB); /* a quarter at most */
    l = found(2 * GIB, -1);
    assert_int_equal(l.ram_bytes, 2 * GIB);
    assert_int_equal(l.available_bytes, GIB);
    assert_non_null(strstr(l.why, "only 1.00 GiB"));
    put("/proc/meminfo", "MemAvailable:   99999999999999999999 apples\n");
    l = (mo_plan_limits){.reserve_bytes = -1};
    assert_int_equal(mo_plan_limits_find(folder, &r, &l, &err), MO_EUNSUPPORTED);
}

static void ceiling_from_a_cgroup_v2(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   16777216 kB\n");
    put("/proc/self/cgroup", "0::/job\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/job/memory.max", "3221225472\n");
    put("/sys/fs/cgroup/job/memory.current", "2147483648\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 536870912\n");
    mo_plan_limits l = found(0, -1); /* 3 GiB less the half that cannot be reclaimed */
    assert_int_equal(l.available_bytes, 2560 * MIB);
    assert_int_equal(l.ram_bytes, 2560 * MIB - 2560 * MIB / 100 * 6);
    assert_non_null(strstr(l.why, "the memory cgroup has 2.50 GiB"));
    put("/sys/fs/cgroup/job/memory.high", "1610612736\n");
    l = found(0, -1);
    assert_int_equal(l.ram_bytes, GIB - 128 * MIB);
    assert_int_equal(found(2 * GIB, -1).ram_bytes, 2 * GIB);
    put("/sys/fs/cgroup/job/memory.high", "max\n");
    put("/sys/fs/cgroup/job/memory.max", "max\n");
    assert_int_equal(found(0, -1).available_bytes, 16 * GIB);
    /* Both bind: the smaller ceiling counts, not the smaller sum. */
    put("/proc/meminfo", "MemAvailable:   3145728 kB\n");
    put("/sys/fs/cgroup/job/memory.max", "3489660928\n"); /* 3.25 GiB, 2.75 left */
    l = found(0, -1);
    assert_int_equal(l.ram_bytes, 3 * GIB - 512 * MIB);
    assert_int_equal(l.available_bytes, 3 * GIB);
    assert_non_null(strstr(l.why, "MemAvailable"));
    put("/proc/meminfo", "nothing\n");
    assert_int_equal(found(0, -1).available_bytes, 2816 * MIB);
}

/* 80 MB, of which the program has taken 8. */
static void a_small_cgroup_leaves_three_quarters(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   16777216 kB\n");
    put("/proc/self/cgroup", "0::/job\n");
    put("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/job/memory.max", "80000000\n");
    put("/sys/fs/cgroup/job/memory.current", "8000000\n");
    assert_int_equal(found(0, -1).ram_bytes, 54000000);
}

static void ceiling_from_a_cgroup_v1(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:   16777216 kB\n");
    put("/proc/self/cgroup", "4:memory:/box/a\n");
    put("/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/sys/fs/cgroup/memory/box/a/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(found(0, -1).available_bytes, 16 * GIB);
    put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/box/memory.stat",
        "total_inactive_file 268435456\ntotal_active_file 268435456\n");
    const mo_plan_limits l = found(0, -1);
    assert_int_equal(l.available_bytes, 1536 * MIB);
    assert_int_equal(l.ram_bytes, 1536 * MIB - 128 * MIB);
    assert_non_null(strstr(l.why, "cgroup"));
}

static void ceiling_of_another_machine(void **state)
{
    (void)state;
    mo_error err;
    mo_rates r = mo_rates_default();
    mo_plan_limits l = {.reserve_bytes = -1};
    assert_int_equal(mo_plan_limits_find(NULL, &r, &l, &err), MO_EUNSUPPORTED);
    assert_says(&err, "ram_bytes");
    r.ram_bytes = 64 * GIB;
    assert_int_equal(mo_plan_limits_find(NULL, &r, &l, &err), MO_OK);
    assert_int_equal(l.ram_bytes, 64 * GIB - 64 * GIB / 100 * 6);
    l = (mo_plan_limits){.ram_bytes = 65 * GIB};
    assert_int_equal(mo_plan_limits_find(NULL, &r, &l, &err), MO_OK);
    assert_int_equal(l.ram_bytes, 65 * GIB);
    assert_non_null(strstr(l.why, "only 64.0 GiB"));
    const mo_plan_model m = qwen();
    mo_run_plan p;
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_OK);
    assert_string_equal(p.why, l.why);
}

/* ---- Rates ---- */

static const char *in_tree(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static mo_status load_text(const char *text, mo_rates *r, mo_error *err)
{
    put("/rates.json", text);
    memset(r, 0x5A, sizeof *r);
    err->detail[0] = 0;
    return mo_rates_load(in_tree("rates.json"), r, err);
}

static void rates_round_trip(void **state)
{
    (void)state;
    mo_error err;
    mo_rates back;
    const mo_rates r = {.ram_bytes = 24 * GIB + 1,
                        .vram_bytes = 3,
                        .threads = 2,
                        .cores = 8,
                        .ram_bytes_s = 54.25e9,
                        .compute_share = 0.75,
                        .disk_bytes_s = 4.5e9,
                        .link_bytes_s = 1,
                        .vram_bytes_s = 2,
                        .link_pageable_bytes_s = 4,
                        .host_bytes_s = 5,
                        .round_trip_s = 1e-5,
                        .link_copy_s = 5e-6,
                        .expert = {{1e6, 9, 8, 7}, {4e6, 19, 18, 17}},
                        .expert_count = 2,
                        .device = "a gpu",
                        .measured = true};
    char path[PATH_MAX];
    assert_int_equal(mo_rates_save(in_tree("typed/rates.json"), &r, &err), MO_ENOENT); /* may be mistyped */
    setenv("XDG_CACHE_HOME", in_tree("deep/er"), 1);
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_OK);
    assert_int_equal(mo_rates_save(path, &r, &err), MO_OK); /* makes the directories */
    assert_int_equal(mo_rates_load(path, &back, &err), MO_OK);
    assert_int_equal(back.ram_bytes, r.ram_bytes);
    assert_int_equal(back.vram_bytes, 3);
    assert_int_equal(back.threads, 2);
    assert_int_equal(mo_rates_threads(&back, 8), 2);
    assert_int_equal(mo_rates_threads(&back, 6), 6); /* of another number of cores nobody knows */
    back.threads = 0;
    assert_int_equal(mo_rates_threads(&back, 8), 8);
    assert_true(back.ram_bytes_s == r.ram_bytes_s && back.compute_share == 0.75 &&
                back.disk_bytes_s == 4.5e9);
    assert_true(back.link_bytes_s == 1 && back.vram_bytes_s == 2 && back.measured);
    assert_true(back.link_pageable_bytes_s == 4 && back.host_bytes_s == 5 && back.round_trip_s == 1e-5);
    assert_true(back.link_copy_s == 5e-6);
    assert_string_equal(back.device, "a gpu");
    mo_rates_expert e;
    assert_true(mo_rates_expert_of(&back, 2e6, &e)); /* in the middle, by the logarithm */
    assert_true(fabs(e.cpu_bytes_s - 14) < 1e-9 && fabs(e.both_cpu_bytes_s - 13) < 1e-9 &&
                fabs(e.both_link_bytes_s - 12) < 1e-9);
    assert_true(mo_rates_expert_of(&back, 1, &e) && e.cpu_bytes_s == 9);
    assert_true(mo_rates_expert_of(&back, 1e9, &e) && e.both_link_bytes_s == 17);
    assert_true(mo_rates_for_device(&back, "a gpu", 7, 0, 8)); /* as measured on this one */
    assert_true(back.link_bytes_s == 1 && back.vram_bytes_s == 2 && back.link_copy_s == 5e-6);
    assert_false(
        mo_rates_for_device(&back, "another gpu", 7, 3e-6, 0)); /* as it says itself, or as guessed */
    assert_true(back.link_bytes_s == 7 && back.vram_bytes_s == MO_RATES_VRAM_GUESS && back.host_bytes_s == 0);
    assert_true(back.link_copy_s == 3e-6);
    assert_string_equal(back.device, "another gpu");
    assert_false(mo_rates_expert_of(&back, 2e6, &e)); /* of the link that was measured */
    const mo_rates modest = mo_rates_default();
    assert_false(modest.measured);
    assert_int_equal(mo_rates_save(path, &modest, &err), MO_OK);
    assert_int_equal(mo_rates_load(path, &back, &err), MO_OK);
    assert_false(back.measured);
    mo_rates broken = r; /* the old file stays */
    broken.disk_bytes_s = NAN;
    assert_int_equal(mo_rates_save(path, &broken, &err), MO_EINVAL);
    assert_int_equal(mo_rates_load(path, &back, &err), MO_OK);
    put("/file", "x");
    assert_int_not_equal(mo_rates_save(in_tree("file/rates.json"), &r, &err), MO_OK);
    assert_true(strlen(err.detail) > 10);
    unsetenv("XDG_CACHE_HOME");
}

static void rates_from_json(void **state)
{
    (void)state;
    mo_error err;
    mo_rates r;
    const mo_rates modest = mo_rates_default();
    assert_int_equal(mo_rates_load(in_tree("absent.json"), &r, &err), MO_ENOENT);
    assert_says(&err, "absent.json");
    assert_int_equal(load_text("{}", &r, &err), MO_OK);
    assert_true(r.disk_bytes_s == modest.disk_bytes_s && r.ram_bytes == 0 && !r.measured);
    assert_int_equal(load_text("{\"disk_bytes_s\": 7e9, \"ram_bytes\": 48e9}", &r, &err), MO_OK);
    assert_true(r.disk_bytes_s == 7e9 && r.ram_bytes == 48 * GB && r.ram_bytes_s == modest.ram_bytes_s);
    assert_false(r.measured); /* the memory's rate is a guess */
    assert_int_equal(load_text("{\"disk_bytes_s\": 7, \"ram_bytes_s\": 9}", &r, &err), MO_OK);
    assert_true(r.measured);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"disk_speed\": 5}", "disk_speed"},
        {"{\"disk_speed\": 5}", "disk_bytes_s"}, /* and what there is */
        {"{\"disk_bytes_s\": \"fast\"}", "disk_bytes_s must be a number"},
        {"{\"ram_bytes\": null}", "ram_bytes must be a number"},
        {"{\"measured\": 1}", "measured"},
        {"{\"disk_bytes_s\": -4e9}", "disk_bytes_s"},
        {"{\"disk_bytes_s\": 0}", "disk_bytes_s"},
        {"{\"disk_bytes_s\": 1e300}", "disk_bytes_s"},
        {"{\"ram_bytes\": -1}", "ram_bytes"},
        {"{\"ram_bytes\": 1.5}", "an integer"},
        {"{\"ram_bytes\": 1e19}", "ram_bytes"},
        {"{\"threads\": 1000000}", "threads"},
        {"{\"compute_share\": 1.01}", "compute_share"},
        {"{\"compute_share\": 0}", "compute_share"},
        {"{\"device\": 5}", "device must be a string"},
        {"{\"round_trip_s\": 2}", "round_trip_s"},
        {"{\"ram_bytes\": 1, \"ram_bytes\": 2}", "line 1"},
        {"{\"ram_bytes\": 99999999999999999999999}", "line 1"},
        {"[1, 2]", "object"},
        {"", "line"},
        {"{\"ram_bytes\": 1} x", "line 1"},
        {"{\n\"ram_bytes\" 1}", "line 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mo_rates before;
        memset(&before, 0x5A, sizeof before);
        assert_int_equal(load_text(bad[i].text, &r, &err), MO_EFORMAT);
        assert_says(&err, bad[i].says);
        assert_says(&err, "rates.json");
        assert_memory_equal(&r, &before, sizeof r);
    }
    mkdir(in_tree("directory"), 0777);
    assert_int_not_equal(mo_rates_load(in_tree("directory"), &r, &err), MO_OK);
}

/* Whatever was named by mistake: neither the stack nor memory suffers. */
static void rates_from_anything(void **state)
{
    (void)state;
    enum { DEEP = 60000 };
    static char text[DEEP + 2];
    mo_error err;
    mo_rates r;
    memset(text, '[', DEEP);
    assert_int_equal(load_text(text, &r, &err), MO_EFORMAT);
    assert_says(&err, "levels");
    assert_int_equal(load_text("{\"device\": [[[[[[[1]]]]]]]}", &r, &err), MO_EFORMAT);
    assert_says(&err, "device must be a string");
    assert_int_equal(mo_rates_load("/dev/zero", &r, &err), MO_EFORMAT);
    assert_says(&err, "larger than 64 KiB");
}

static void rates_path(void **state)
{
    (void)state;
    mo_error err;
    char path[256];
    setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_OK);
    assert_string_equal(path, "/var/cache/me/moraine/rates.json");
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/me", 1);
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_OK);
    assert_string_equal(path, "/home/me/.cache/moraine/rates.json");
    assert_int_equal(mo_rates_path(path, 20, &err), MO_EINVAL);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(mo_rates_path(path, sizeof path, &err), MO_ENOENT);
    assert_says(&err, "HOME");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resident_when_it_fits),
        cmocka_unit_test(one_class_fills_what_is_left),
        cmocka_unit_test(classes_share_by_what_is_read),
        cmocka_unit_test(classes_keep_the_fewest),
        cmocka_unit_test(dense_layers_stream),
        cmocka_unit_test(a_routed_core_streams_when_it_must),
        cmocka_unit_test(refuses_with_the_number),
        cmocka_unit_test(the_serial_bound),
        cmocka_unit_test(slots_at_their_own_rate),
        cmocka_unit_test(qwen_in_two_gigabytes),
        cmocka_unit_test(degrades_without_a_cliff),
        cmocka_unit_test(random_models),
        cmocka_unit_test(machine_002),
        cmocka_unit_test(absurd_models),
        cmocka_unit_test(nonsense_is_named),
        cmocka_unit_test(sizes_in_words),
        cmocka_unit_test(refused_beside_other_models),
        cmocka_unit_test_setup_teardown(ceiling_from_the_machine, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(ceiling_from_a_cgroup_v2, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(a_small_cgroup_leaves_three_quarters, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(ceiling_from_a_cgroup_v1, folder_make, folder_remove),
        cmocka_unit_test(ceiling_of_another_machine),
        cmocka_unit_test_setup_teardown(rates_round_trip, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(rates_from_json, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(rates_from_anything, folder_make, folder_remove),
        cmocka_unit_test(rates_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
