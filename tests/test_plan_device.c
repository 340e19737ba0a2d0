/* Plans with a device: what is in its memory, what that makes of a token's time, and refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/depth.h"
#include "plan/device.h"
#include "plan/kv_in_ram.h"
#include "plan/limits.h"
#include "plan/placement.h"
#include "plan/prompt.h"
#include "plan/share.h"
#include "plan_case.h"
#include "sanitized.h"

static const mo_rates gpu = {.ram_bytes_s = 60e9,
                             .compute_share = 0.75,
                             .disk_bytes_s = 4e9,
                             .link_bytes_s = 25e9,
                             .vram_bytes_s = 900e9,
                             .host_bytes_s = 70e9,
                             .measured = true};

static mo_status plan_both(const mo_plan_model *m, const mo_plan_limits *l, const mo_rates *r, mo_run_plan *p,
                           mo_error *err)
{
    memset(p, 0x5A, sizeof *p);
    const mo_run_plan before = *p;
    const mo_status status = mo_plan_make(m, l, r, p, err);
    if (status != MO_OK) {
        assert_memory_equal(p, &before, sizeof *p);
    }
    return status;
}

static mo_run_plan planned_with(const mo_plan_model *m, int64_t ram, int64_t vram, const mo_rates *r)
{
    mo_run_plan p;
    mo_error err;
    const mo_plan_limits l = {.ram_bytes = ram, .vram_bytes = vram};
    if (plan_both(m, &l, r, &p, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    return p;
}

static void check_device(const mo_plan_model *m, const mo_run_plan *p)
{
    const mo_plan_device *d = &p->device;
    int64_t slots = 0;
    assert_true(d->used <= d->ceiling && p->used <= p->ceiling);
    assert_true(d->least <= d->used && d->least <= d->whole);
    assert_int_equal(d->used,
                     d->core + d->vectors + d->kv + d->work + d->staging + d->layer_buffer_bytes + d->slots);
    assert_int_equal(p->used,
                     p->core + p->vectors + p->table + p->kv + p->work + p->other + p->staging + p->slots);
    assert_int_equal(d->layers + d->streamed, m->layers);
    assert_true(d->streamed ? d->layer_buffers == MO_PLAN_DEVICE_LAYER_BUFFERS ||
                                  d->layer_buffers == MO_PLAN_DEVICE_LAYER_BUFFERS_LEAST
                            : d->layer_buffers == 0);
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        assert_true(d->class_slots[i] >= 0 && d->class_slots[i] <= c->experts);
        assert_true(d->streamed == 0 || d->class_slots[i] == 0);
        /* Every expert has a place in RAM, in VRAM, or passes through slots from disk. */
        assert_true(p->class_slots[i] >= (d->class_slots[i] == c->experts ? 0 : fewest(m, c)));
        assert_true(p->class_slots[i] <= c->experts);
        slots += d->class_slots[i] * (m->device_slot_bytes[i] ? m->device_slot_bytes[i] : c->slot_bytes);
    }
    assert_int_equal(slots, d->slots);
    assert_true(d->hit_rate >= 0 && d->hit_rate <= p->hit_rate && p->hit_rate <= 1);
    assert_true(d->fetch_share >= 0 && d->fetch_share <= 1);
    assert_true(p->token_ram_bytes >= 0 && p->token_disk_bytes >= 0);
    assert_true(strlen(d->lane) > 3);
    assert_int_equal(p->kv, 0);
    assert_int_equal(p->table, 0);
}

static void all_of_it_in_vram(void **state)
{
    (void)state;
    mo_plan_model m = qwen();
    m.device_work_bytes = 70 * 1000000;
    mo_run_plan p = planned_with(&m, GB, 100 * GIB, &gpu);
    const mo_plan_device *d = &p.device;
    check_device(&m, &p);
    assert_int_equal(p.mode, MO_PLAN_RESIDENT);
    assert_true(p.slots == 0 && p.core == 0 && p.token_ram_bytes == 0 && p.token_disk_bytes == 0);
    assert_int_equal(p.used, m.vector_bytes + m.work_bytes + m.other_bytes + m.staging_bytes);
    assert_int_equal(d->class_slots[0] + d->class_slots[1], 1536);
    assert_int_equal(d->staging, 0);
    assert_int_equal(d->used, d->whole);
    assert_int_equal(d->core, m.core_bytes + 12 * 49152); /* each layer with its padding */
    assert_int_equal(d->kv, m.kv_bytes);
    assert_int_equal(d->work, 70 * 1000000);
    assert_true(d->hit_rate == 1 && d->miss_seconds == 0 && !d->fetch);
    const double bytes = 390e6 + 48.0 * (3023872 + 2654208);
    assert_true(fabs(1 / p.tokens_per_second - (bytes / 900e9 + 12 * MO_PLAN_JOINED_SECONDS)) < 1e-9);
    assert_int_equal(d->token_bytes, (int64_t)bytes);
    /* One byte less, and a few experts pass. */
    p = planned_with(&m, 10 * GB, d->whole - 1, &gpu);
    check_device(&m, &p);
    assert_int_equal(p.mode, MO_PLAN_SLOTS);
    assert_int_equal(d->staging, 4 * m.classes[0].slot_bytes);
    assert_true(d->hit_rate > 0.98 && d->hit_rate < 1 && p.token_disk_bytes == 0);
    /* Figures of the device's own. */
    m.device_core_bytes = 500 * 1000000;
    m.device_stage_bytes = 5 * 1000000;
    m.device_map_bytes = 1000;
    m.device_slot_bytes[0] = m.device_slot_bytes[1] = 3023872 + 256;
    p = planned_with(&m, 10 * GB, 3 * GB, &gpu);
    check_device(&m, &p);
    assert_int_equal(d->core + d->vectors, 500 * 1000000);
    assert_int_equal(d->staging,
                     3 * GB / 16 / MO_PLAN_GRAIN * MO_PLAN_GRAIN); /* as many as keep a link busy */
    assert_int_equal(d->work, 70 * 1000000 + 1000);
    m.tied = true; /* the embedding is the output matrix, and is there */
    m.device_core_bytes = 0;
    p = planned_with(&m, 10 * GB, 100 * GB, &gpu);
    assert_int_equal(p.device.core, m.core_bytes + m.table_bytes + 12 * 49152);
    assert_int_equal(p.table, 0);
}

static void experts_fill_what_is_left(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    const mo_run_plan p = planned_with(&m, 80 * GB, 8 * GIB, &gpu);
    const mo_plan_device *d = &p.device;
    check_device(&m, &p);
    assert_int_equal(d->class_slots[0], (d->ceiling - (d->used - d->slots)) / m.classes[0].slot_bytes);
    assert_int_equal(d->streamed, 0);
    assert_int_equal(p.core, 0);
    assert_int_equal(p.class_slots[0], 4608 - d->class_slots[0]); /* RAM has the others, and no more */
    assert_int_equal(p.token_disk_bytes, 0);
    assert_true(p.hit_rate == 1);
    /* RAM for a third of them: the rest comes from disk. */
    const mo_run_plan q = planned_with(&m, 20 * GB, 8 * GIB, &gpu);
    check_device(&m, &q);
    const double there = (double)(q.class_slots[0] + q.device.class_slots[0]) / 4608;
    assert_true(fabs(q.hit_rate - there) < 1e-12);
    assert_true(q.disk_seconds > 0 && q.tokens_per_second < p.tokens_per_second);
    assert_true(q.tokens_per_second > planned(&m, 20 * GB, &gpu).tokens_per_second); /* with than without */
}

static void experts_stay_out_when_told(void **state)
{
    (void)state;
    const mo_plan_model m = gpt_oss_120b(8192);
    mo_run_plan p;
    mo_error err;
    mo_plan_limits l = {.ram_bytes = 80 * GB, .vram_bytes = 100 * GIB, .cpu_moe = true};
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    check_device(&m, &p);
    assert_int_equal(p.device.slots, 0);
    assert_int_equal(p.class_slots[0], 4608);
    l.vram_expert_bytes = 2 * GIB; /* a hot cache beside it */
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    check_device(&m, &p);
    assert_int_equal(p.device.class_slots[0], 2 * GIB / m.classes[0].slot_bytes);
    l.cpu_moe = false;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    assert_int_equal(p.device.class_slots[0], 2 * GIB / m.classes[0].slot_bytes);
}

/* RAM can do without the device: it has what it has without it, or holds experts instead of the cores that the device
 * has, and buffers through which those come if it is lost. */
static void ram_can_do_without_the_device(void **state)
{
    (void)state;
    const mo_plan_model m = qwen();
    mo_error err;
    mo_run_plan p;
    for (int64_t ram = GB; ram < 8 * GB; ram += GB) {
        const mo_plan_limits l = {.ram_bytes = ram, .vram_bytes = 2 * GB, .ram_keeps = true};
        const mo_run_plan alone = planned(&m, ram, &gpu);
        assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
        assert_int_equal(p.kv, alone.kv);
        assert_int_equal(p.least, alone.least);
        if (p.mode == alone.mode) {
            assert_int_equal(p.used, alone.used);
            assert_int_equal(p.expert_resident, alone.expert_resident);
            assert_memory_equal(p.class_slots, alone.class_slots, sizeof p.class_slots);
        } else {
            assert_true(p.mode != MO_PLAN_STREAMED || (p.layer_buffers == 0 && p.layer_pass > 0 &&
                                                       p.device.streamed == 0 && p.slots > alone.slots));
        }
        assert_true(p.tokens_per_second > alone.tokens_per_second);
        assert_true(p.hit_rate >= alone.hit_rate && p.device.used <= 2 * GB);
    }
}

/* Whichever ceiling rises, by the cost model nothing becomes slower, but for the 2 % that another arrangement of RAM has to be
 * worth; and where both together have a place for every expert a
 * token takes none from disk. */
static void sweep_both(const mo_plan_model *m, const mo_rates *r, int steps)
{
    enum { MOST = 25 };
    const double worth = 1.0201;
    mo_run_plan grid[MOST][MOST];
    mo_error err;
    mo_plan_limits l = {
        .ram_bytes = 1000 * GB, .vram_bytes = 1000 * GB, .ram_keeps = true, .cpu_layers = true};
    assert_true(steps <= MOST);
    const mo_run_plan big = planned(m, 1000 * GB, r);
    assert_int_equal(plan_both(m, &l, r, &grid[0][0], &err), MO_OK);
    const mo_plan_device whole = grid[0][0].device;
    int sums = 0;
    for (int i = 0; i < steps; i++) {
        for (int j = 0; j < steps; j++) {
            l.ram_bytes = big.least + m->device_host_bytes + (big.whole - big.least) / (steps - 2) * i;
            l.vram_bytes = whole.least + (whole.whole - whole.least) / (steps - 2) * j;
            mo_run_plan *p = &grid[i][j];
            assert_int_equal(plan_both(m, &l, r, p, &err), MO_OK);
            if (i > 0 && p->tokens_per_second < grid[i - 1][j].tokens_per_second / worth) {
                fail_msg("RAM %lld, VRAM %lld: %f tokens/s, with less RAM %f", (long long)l.ram_bytes,
                         (long long)l.vram_bytes, p->tokens_per_second, grid[i - 1][j].tokens_per_second);
            }
            if (j > 0 && p->tokens_per_second < grid[i][j - 1].tokens_per_second / worth) {
                fail_msg("RAM %lld, VRAM %lld: %f tokens/s, with less VRAM %f", (long long)l.ram_bytes,
                         (long long)l.vram_bytes, p->tokens_per_second, grid[i][j - 1].tokens_per_second);
            }
            bool all = m->class_count > 0 && p->mode != MO_PLAN_RESIDENT && p->device.streamed == 0;
            for (int c = 0; c < m->class_count; c++) {
                all = all && p->class_slots[c] + p->device.class_slots[c] >= m->classes[c].experts;
            }
            sums += all;
            assert_true(!all || p->token_disk_bytes == 0);
        }
    }
    assert_true(m->class_count == 0 || sums > steps);
}

static void no_ceiling_that_rises_costs_speed(void **state)
{
    (void)state;
    mo_plan_model routed = qwen(), large = gpt_oss_120b(8192);
    const mo_plan_model dense = dense_70b(4096);
    const mo_rates slow = {.ram_bytes_s = 60e9,
                           .compute_share = 0.7,
                           .disk_bytes_s = 2e9,
                           .link_bytes_s = 12e9,
                           .host_bytes_s = 60e9,
                           .vram_bytes_s = 400e9,
                           .round_trip_s = 12e-6};
    routed.device_stage_plain = 3100000; /* an expert on its way takes twice that where RAM interleaves */
    routed.device_stage_bytes = 6200000;
    large.device_stage_plain = 13300000;
    large.device_stage_bytes = 26600000;
    sweep_both(&routed, &gpu, 25);
    sweep_both(&dense, &slow, 25);
    if (!SANITIZED) { /* arithmetic, which is the same in every build */
        sweep_both(&large, &gpu, 25);
        sweep_both(&dense, &gpu, 25);
        sweep_both(&routed, &slow, 25);
        sweep_both(&large, &slow, 25);
    }
}

/* A dense model over three tiers: RAM and device share the layers so that few are in neither, and a token takes these from
 * disk, and no others. */
static void three_tiers_add_up(void **state)
{
    (void)state;
    const mo_plan_model m = dense_70b(4096);
    int some = 0;
    for (int64_t ram = 4 * GB; ram < 60 * GB; ram += GB) {
        mo_run_plan p;
        mo_error err;
        mo_layer_location layers[80];
        const mo_plan_limits l = {
            .ram_bytes = ram, .vram_bytes = 24 * GB, .ram_keeps = true, .cpu_layers = ram % (2 * GB) == 0};
        assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
        mo_placement_list(&m, &p, layers);
        int in_ram = 0, in_vram = 0, nowhere = 0;
        for (int i = 0; i < m.layers; i++) {
            const bool here = mo_layer_kept(&layers[i], MO_AT_RAM),
                       there = mo_layer_kept(&layers[i], MO_AT_VRAM);
            in_ram += here;
            in_vram += there;
            nowhere += !here && !there;
        }
        assert_int_equal(in_vram, p.device.layers);
        assert_int_equal(in_ram, p.mode == MO_PLAN_STREAMED ? p.dense_resident : m.layers);
        assert_int_equal(nowhere, in_ram + in_vram < m.layers ? m.layers - in_ram - in_vram : 0);
        assert_int_equal(p.token_disk_bytes, nowhere * m.dense_layer_bytes);
        assert_int_equal(p.device.token_link_bytes,
                         (p.device.streamed - p.device.by_cpu) * m.dense_layer_bytes);
        some += nowhere > 0;
    }
    assert_true(some > 5);
}

/* Layers that pass leave places for experts of prompts, which pass for every batch: no ceiling has the fewest stages only because
 * it has one layer more. */
static void prompts_keep_stages_where_layers_pass(void **state)
{
    (void)state;
    mo_plan_model m = qwen();
    int streamed = 0;
    m.device_stage_plain = 3100000;
    m.device_stage_bytes = 6200000;
    const int64_t ahead = MO_PLAN_STAGES_AHEAD * m.device_stage_bytes;
    mo_run_plan p = planned_with(&m, 80 * GB, 100 * GB, &gpu);
    const int64_t least = p.device.least, whole = p.device.whole;
    for (int64_t ceiling = least + least / 32; ceiling < whole; ceiling += least / 50) {
        p = planned_with(&m, 80 * GB, ceiling, &gpu);
        const int64_t part = ceiling / 32 / MO_PLAN_GRAIN * MO_PLAN_GRAIN;
        assert_true(p.device.staging >= (part < ahead ? part : ahead) || p.device.staging >= ceiling / 16);
        streamed += p.device.streamed > 0;
    }
    assert_true(streamed > 3);
    /* What somebody asks for is not exceeded. */
    const mo_plan_limits l = {
        .ram_bytes = 80 * GB, .vram_bytes = least + least / 4, .staging_bytes = 13000000, .ram_keeps = true};
    mo_error err;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    assert_true(p.device.streamed > 0 && p.device.staging <= 13000000);
    /* One expert in both layouts is enough; less is refused, with the least that would do. */
    mo_plan_limits small = l;
    small.vram_bytes = whole - 1;
    small.staging_bytes = 7000000;
    assert_int_equal(plan_both(&m, &small, &gpu, &p, &err), MO_OK);
    assert_in_range(p.device.staging, 6200000, 7000000);
    small.staging_bytes = 2 << 20;
    assert_int_equal(plan_both(&m, &small, &gpu, &p, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "LLAMA_POSTFETCH_SCRATCHPAD_MB=2: too small; the minimum is"));
    /* Of a mode that copies down matrices, one of these: its part of the staging, which holds an expert for prompts. */
    mo_plan_model known = m;
    known.device_down_bytes = 1100000;
    small.postfetch = MO_POSTFETCH_DOWN;
    assert_int_equal(plan_both(&known, &small, &gpu, &p, &err), MO_OK);
    assert_int_equal(p.device.scratch, 2 << 20);
    assert_int_equal(p.device.staging, p.device.stage_bytes);
    small.staging_bytes = 1 << 20;
    assert_int_equal(plan_both(&known, &small, &gpu, &p, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "the minimum is 2, for one down matrix"));
}

/* Of every number of missing experts a run would send some; the mean of all cases, by what each takes alone. */
static void check_division_of(const mo_plan_device *d, int layers, int used, double alone_s, double cpu_s,
                              double link_s)
{
    double seconds = 0, sent = 0;
    for (int mask = 0; mask < 1 << used; mask++) {
        const int missing = __builtin_popcount((unsigned)mask);
        const double p = pow(1 - d->hit_rate, missing) * pow(d->hit_rate, used - missing);
        double best = missing * alone_s;
        int chosen = 0;
        for (int f = 1; f <= missing; f++) {
            const double both = fmax(45e-6 + f * link_s, (missing - f) * cpu_s) + 20e-6;
            chosen = both < best ? f : chosen;
            best = fmin(best, both);
        }
        seconds += p * best;
        sent += p * chosen;
    }
    assert_true(fabs(d->miss_seconds - layers * seconds) < 1e-9);
    assert_true(fabs(d->fetch_share - sent / (used * (1 - d->hit_rate))) < 1e-9);
}

/* By a CPU that copies do not slow down. */
static void check_division(const mo_plan_device *d, int layers, int used, double cpu_s, double link_s)
{
    check_division_of(d, layers, used, cpu_s, cpu_s, link_s);
}

static void fetch_lane_by_cost(void **state)
{
    (void)state;
    mo_plan_model m = gpt_oss_120b(8192);
    mo_run_plan p =
        planned_with(&m, 80 * GB, 34 * GB, &gpu); /* half of the experts: 26 MB missing in a layer */
    const mo_plan_device *d = &p.device;
    assert_true(d->hit_rate > 0.48 && d->hit_rate < 0.56);
    assert_true(d->fetch);
    assert_true(strncmp(d->lane, "on: ", 4) == 0);
    const double missing = (1 - d->hit_rate) * 144 * 13219200;
    check_division(d, 36, 4, 13219200 / 45e9, 13219200 / 25e9);
    assert_true(fabs((double)d->token_link_bytes - missing * d->fetch_share) < 2);
    assert_true(fabs((double)p.token_ram_bytes - missing) < 2);
    /* Small experts, most of which are there: 3.5 MB missing, 28 us saved at most. */
    m.classes[0] = (mo_plan_class){
        .bytes = 1769472, .slot_bytes = 1781760, .experts = 24576, .used_per_token = 480, .used = 10};
    m.layers = m.routed_layers = m.dense_layers = 48;
    m.dense_bytes = 48 * (int64_t)20000000;
    p = planned_with(&m, 80 * GB, 43 * GB, &gpu);
    assert_true(d->hit_rate > 0.88 && d->hit_rate < 1);
    assert_true(!d->fetch && d->fetch_share < 0.05);
    assert_true(strncmp(d->lane, "off: for the", 12) == 0);
    check_division(d, 48, 10, 1769472 / 45e9, 1769472 / 25e9);
    /* As asked for, whatever it costs. */
    mo_error err;
    mo_plan_limits l = {.ram_bytes = 80 * GB, .vram_bytes = 43 * GB, .postfetch = MO_POSTFETCH_EXPERT};
    const double alone = p.tokens_per_second, bytes = (1 - d->hit_rate) * 480 * 1769472;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    assert_true(d->fetch && p.tokens_per_second < alone);
    l.postfetch = MO_POSTFETCH_DOWN;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    assert_true(d->fetch && fabs(d->fetch_share - 1.0 / 3) < 1e-9 && p.tokens_per_second < alone);
    assert_true(fabs(d->miss_seconds - (bytes / 3 / 25e9 + bytes / 3 / 900e9 + 48 * (45e-6 + 20e-6))) < 1e-9);
    l.postfetch = MO_POSTFETCH_OFF;
    l.vram_bytes = 4 * GB;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    assert_true(!d->fetch && strstr(d->lane, "set by `postfetch`"));
    /* A CPU that takes all the memory gives: nothing is won. */
    mo_rates r = gpu;
    r.compute_share = 1;
    r.host_bytes_s = 60e9;
    p = planned_with(&m, 80 * GB, 8 * GB, &r);
    assert_true(!d->fetch && strstr(d->lane, "CPU alone"));
    /* A device that nobody measured. */
    r = gpu;
    r.link_bytes_s = r.vram_bytes_s = r.host_bytes_s = 0;
    p = planned_with(&m, 80 * GB, 8 * GB, &r);
    assert_true(p.tokens_per_second > 0);
}

/* An expert crosses in three copies. Of 1.9 MB with 5 us for each of them, that is 37 GB/s of a link that has 53 (Qwen3-Next on an
 * H200); one of 13 MB hardly notices. */
static void small_experts_cross_more_slowly(void **state)
{
    (void)state;
    mo_rates r = gpu;
    mo_plan_model m = gpt_oss_120b(8192);
    r.link_bytes_s = 53e9;
    r.host_bytes_s = 200e9;
    const mo_run_plan large = planned_with(&m, 80 * GB, 34 * GB, &r);
    r.link_copy_s = 5.1e-6;
    const mo_run_plan later = planned_with(&m, 80 * GB, 34 * GB, &r);
    assert_true(later.tokens_per_second < large.tokens_per_second);
    assert_true(later.tokens_per_second > 0.97 * large.tokens_per_second);
    m.classes[0] = (mo_plan_class){
        .bytes = 1900000, .slot_bytes = 1900544, .experts = 24576, .used_per_token = 480, .used = 10};
    m.layers = m.routed_layers = m.dense_layers = 48;
    m.dense_bytes = 48 * (int64_t)20000000;
    const mo_run_plan p = planned_with(&m, 80 * GB, 12 * GB, &r);
    const double link = 1.9e6 / (1.9e6 / 53e9 + 3 * 5.1e-6);
    assert_true(link > 37e9 && link < 37.3e9);
    assert_true(p.device.fetch);
    check_division(&p.device, 48, 10, 1.9e6 / 45e9, 1.9e6 / link);
    assert_non_null(strstr(p.device.lane, "is copied at 37."));
}

/* What the CPU and the link do with experts of the model's size decides who computes them, and the lanes of a run begin with just that:
 * on an H200 experts of 1.9 MB crossed at 30 GB/s beside a CPU with 86, where 55 and 119 were measured with large ones. */
static void rates_of_small_experts_divide_them(void **state)
{
    (void)state;
    mo_rates r = gpu;
    mo_plan_model m = gpt_oss_120b(8192);
    m.classes[0] = (mo_plan_class){
        .bytes = 1900000, .slot_bytes = 1900544, .experts = 10240, .used_per_token = 320, .used = 8};
    m.layers = m.routed_layers = m.dense_layers = 40;
    m.dense_bytes = 40 * (int64_t)20000000;
    r.link_bytes_s = 55e9;
    r.ram_bytes_s = 130e9;
    r.compute_share = 119.0 / 130;
    r.host_bytes_s = 150e9;
    const mo_run_plan large = planned_with(&m, 80 * GB, 6 * GB, &r);
    r.expert_count = 2;
    r.expert[0] = (mo_rates_expert){1e6, 70e9, 60e9, 25e9};
    r.expert[1] = (mo_rates_expert){4e6, 100e9, 80e9, 45e9};
    const mo_run_plan small = planned_with(&m, 80 * GB, 6 * GB, &r);
    mo_rates_expert e;
    assert_true(mo_rates_expert_of(&r, 1.9e6, &e));
    check_division_of(&small.device, 40, 8, 1.9e6 / e.cpu_bytes_s, 1.9e6 / e.both_cpu_bytes_s,
                      1.9e6 / e.both_link_bytes_s);
    assert_true(small.tokens_per_second < large.tokens_per_second);
    double alone, cpu, link;
    mo_plan_device_lanes(&m, &r, &small, &alone, &cpu, &link);
    assert_true(fabs(alone / e.cpu_bytes_s - 1) < 1e-9 && fabs(cpu / e.both_cpu_bytes_s - 1) < 1e-9 &&
                fabs(link / e.both_link_bytes_s - 1) < 1e-9);
    /* A CPU that copies slow down more than they help computes everything. */
    r.expert[0] = r.expert[1] = (mo_rates_expert){1e6, 110e9, 50e9, 10e9};
    r.expert_count = 1;
    assert_false(planned_with(&m, 80 * GB, 6 * GB, &r).device.fetch);
}

static void refuses_a_small_device(void **state)
{
    (void)state;
    const mo_plan_model models[] = {qwen(), dense_70b(4096), gpt_oss_120b(131072)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const mo_plan_model *m = &models[i];
        mo_error err;
        mo_run_plan p;
        char number[64];
        const mo_plan_device big = planned_with(m, 200 * GB, 200 * GB, &gpu).device;
        const mo_run_plan at_least = planned_with(m, 200 * GB, big.least, &gpu);
        check_device(m, &at_least);
        assert_int_equal(at_least.device.used, big.least);
        assert_int_equal(at_least.device.streamed, m->dense_layers);
        mo_plan_limits l = {.ram_bytes = 200 * GB, .vram_bytes = big.least - 1};
        assert_int_equal(plan_both(m, &l, &gpu, &p, &err), MO_EDEVICE);
        snprintf(number, sizeof number, "(%lld bytes)", (long long)big.least);
        assert_says(&err, number);
        assert_says(&err, "raise `vram_bytes` to that");
        assert_says(&err, "run with `device` none");
        assert_true(strlen(err.detail) < 600);
        l = (mo_plan_limits){.ram_bytes = 1, .vram_bytes = 200 * GB}; /* RAM is refused as before */
        assert_int_equal(plan_both(m, &l, &gpu, &p, &err), MO_ENOMEM);
        assert_says(&err, "raise `ram_bytes` to that");
    }
}

/* More VRAM is never slower, and a little of it never matters much. */
static void sweep_device(const mo_plan_model *m, const mo_rates *r, int64_t ram, int steps, double jump)
{
    const mo_plan_device big = planned_with(m, ram, INT64_MAX, r).device;
    mo_run_plan last = planned_with(m, ram, big.least, r);
    for (int i = 1; i <= steps; i++) {
        const int64_t step = (big.whole - big.least) / steps;
        const mo_run_plan p = planned_with(m, ram, i < steps ? big.least + i * step : big.whole, r);
        check_device(m, &p);
        assert_true(p.tokens_per_second >= last.tokens_per_second);
        assert_true(p.tokens_per_second <= last.tokens_per_second * jump);
        assert_true(p.device.layers >= last.device.layers);
        assert_true(p.device.hit_rate >= last.device.hit_rate && p.hit_rate >= last.hit_rate);
        last = p;
    }
    assert_true(last.device.hit_rate == 1 && last.device.streamed == 0);
}

static void device_degrades_without_a_cliff(void **state)
{
    (void)state;
    const mo_plan_model routed = qwen(), large = gpt_oss_120b(8192), dense = dense_70b(4096);
    sweep_device(&routed, &gpu, 20 * GB, 4096,
                 1.7); /* three of twelve layers pass, or none, and the link is free */
    if (SANITIZED) {   /* arithmetic, which is the same in every build */
        return;
    }
    sweep_device(&routed, &gpu, GB, 4096, 1.4);
    sweep_device(&large, &gpu, 80 * GB, 4096, 1.1);
    sweep_device(&large, &gpu, 20 * GB, 4096, 1.1);
    /* The last layer that stays makes the layer buffers needless, through which three are streamed, at 27 ms each. */
    sweep_device(&dense, &gpu, 80 * GB, 4096, 2.3);
    sweep_device(&dense, &gpu, 20 * GB, 4096, 4); /* from disk */
}

static void random_devices(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int n = 0; n < (SANITIZED ? 50 : 300); n++) {
        mo_plan_model m = random_model(&seed);
        m.device_work_bytes = random_below(&seed, 64 * MIB);
        m.device_stage_bytes = random_below(&seed, 2) ? 0 : random_below(&seed, 32 * MIB) + 1;
        m.device_map_bytes = random_below(&seed, MIB);
        for (int i = 0; i < m.class_count; i++) {
            m.device_slot_bytes[i] = random_below(&seed, 2) ? 0 : m.classes[i].bytes + 700;
        }
        mo_rates r = {.ram_bytes_s = 1e9 + (double)random_below(&seed, 100) * 1e9,
                      .compute_share = 0.1 + (double)random_below(&seed, 90) / 100,
                      .disk_bytes_s = 1e8 + (double)random_below(&seed, 100) * 1e8,
                      .link_bytes_s = 1e9 + (double)random_below(&seed, 60) * 1e9};
        r.host_bytes_s = random_below(&seed, 2) ? 0 : r.ram_bytes_s * 1.2;
        r.vram_bytes_s = r.ram_bytes_s + r.link_bytes_s + (double)random_below(&seed, 3000) * 1e9;
        const mo_run_plan all = planned_with(&m, INT64_MAX, INT64_MAX, &r);
        const int64_t ram = planned(&m, INT64_MAX, &r).least + random_below(&seed, 4 * GIB);
        mo_run_plan last = planned_with(&m, ram, all.device.least ? all.device.least : 1, &r);
        check_device(&m, &last);
        for (int i = 0; i < 40; i++) {
            const int64_t more = random_below(&seed, (all.device.whole - all.device.least) / 30 + 2);
            const mo_run_plan p = planned_with(&m, ram, last.device.ceiling + more, &r);
            check_device(&m, &p);
            /* Rounding apart: hits and misses are sums of their own. */
            assert_true(p.tokens_per_second >= last.tokens_per_second * (1 - 1e-12));
            const mo_run_plan wide = planned_with(&m, ram + random_below(&seed, GIB), p.device.ceiling, &r);
            assert_true(wide.tokens_per_second >= p.tokens_per_second * (1 - 1e-12));
            last = p;
        }
    }
}

/* Layers that do not fit: the CPU computes some while others cross, and the more there are the longer it takes. */
static void the_cpu_takes_layers(void **state)
{
    (void)state;
    uint64_t seed = 21;
    for (int n = 0; n < 200; n++) {
        const double cpu = 1e-3 * (double)(1 + random_below(&seed, 50)),
                     link = 1e-3 * (double)random_below(&seed, 50);
        double last = 0;
        for (int count = 0; count < 40; count++) {
            double seconds;
            const int candidates = (int)random_below(&seed, count + 1);
            const int share = mo_plan_split_layers(count, candidates, cpu, link, &seconds);
            assert_true(share >= 0 && share <= candidates);
            assert_true(seconds == fmax(share * cpu, (count - share) * link) && seconds <= count * link);
            mo_plan_split_layers(count, count, cpu, link, &seconds);
            assert_true(seconds >= last);
            last = seconds;
        }
    }
    mo_run_plan p;
    mo_error err;
    const mo_plan_model m = dense_70b(4096);
    mo_plan_limits l = {.ram_bytes = 80 * GB, .vram_bytes = 24 * GB};
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    const double alone = p.tokens_per_second;
    const int64_t crossing = p.device.token_link_bytes;
    assert_int_equal(p.device.by_cpu, 0);
    l.cpu_layers = true;
    assert_int_equal(plan_both(&m, &l, &gpu, &p, &err), MO_OK);
    check_device(&m, &p);
    assert_true(p.device.by_cpu > 0 && p.device.by_cpu < p.device.streamed);
    assert_true(p.tokens_per_second > 1.5 * alone && p.device.token_link_bytes < crossing);
    assert_int_equal(p.device.token_link_bytes, (p.device.streamed - p.device.by_cpu) * m.dense_layer_bytes);
}

static void vram_ceilings(void **state)
{
    (void)state;
    mo_plan_limits l = {0};
    mo_plan_limits_device(0, 24 * GIB, MO_PLAN_VRAM_RESERVE_MIB, &l);
    assert_int_equal(l.vram_bytes, 24 * GIB - 256 * MIB);
    assert_non_null(strstr(l.vram_why, "24.0 GiB free"));
    mo_plan_limits_device(4 * GIB, 24 * GIB, MO_PLAN_VRAM_RESERVE_MIB, &l);
    assert_int_equal(l.vram_bytes, 4 * GIB);
    assert_string_equal(l.vram_why, "a ceiling of 4.00 GiB was given");
    mo_plan_limits_device(32 * GIB, 24 * GIB, MO_PLAN_VRAM_RESERVE_MIB, &l);
    assert_int_equal(l.vram_bytes, 24 * GIB);
    assert_non_null(strstr(l.vram_why, "only 24.0 GiB"));
    mo_plan_limits_device(0, 400 * MIB, MO_PLAN_VRAM_RESERVE_MIB, &l);
    assert_int_equal(l.vram_bytes, 300 * MIB);
    mo_plan_limits_device(0, 0, MO_PLAN_VRAM_RESERVE_MIB, &l);
    assert_int_equal(l.vram_bytes, 1);
}

/* The ceiling is what one that was given leaves beside other models, or what is free, whichever is smaller: what is free
 * already lacks what the others hold. */
static void vram_ceilings_beside_other_models(void **state)
{
    (void)state;
    static const struct {
        int64_t asked, held, free, ceiling;
    } cases[] = {{30 * GIB, 0, 32 * GIB, 30 * GIB},        {30 * GIB, 10 * GIB, 22 * GIB, 20 * GIB},
                 {30 * GIB, 20 * GIB, 12 * GIB, 10 * GIB}, {30 * GIB, 20 * GIB, 4 * GIB, 4 * GIB},
                 {30 * GIB, 20 * GIB, 10 * GIB, 10 * GIB}, {30 * GIB, 5 * GIB, 24 * GIB, 24 * GIB},
                 {30 * GIB, 30 * GIB, 8 * GIB, 1},         {30 * GIB, 40 * GIB, 8 * GIB, 1},
                 {30 * GIB, 40 * GIB, 64 * GIB, 1}};
    const mo_plan_model m = gpt_oss_120b(4096);
    mo_run_plan p;
    mo_error err;
    assert_int_equal(mo_plan_make(&m, &(mo_plan_limits){.ram_bytes = 200 * GB}, &gpu, &p, &err), MO_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_plan_limits l = {.ram_bytes = 200 * GB, .ram_keeps = true, .vram_held = cases[i].held};
        mo_plan_device d = {0};
        mo_plan_limits_device(cases[i].asked, cases[i].free, MO_PLAN_VRAM_RESERVE_MIB, &l);
        const bool fits = mo_plan_device_place(&m, &l, &p, &d);
        assert_int_equal(fits, d.least <= cases[i].ceiling);
        assert_int_equal(d.ceiling, cases[i].ceiling);
    }
}

/* The tables of the three tiers' design: 29 layers in VRAM at a context of 512, 24 at 4096 (its keys and values are F32, and its
 * workspace grows with the context); 0.2 tokens/s over eight lanes, 0.4 over sixteen. */
static void machine_002_with_its_gpu(void **state)
{
    (void)state;
    mo_rates r;
    mo_error err;
    mo_plan_limits l = {.reserve_bytes = -1};
    assert_int_equal(mo_rates_load(MO_TEST_DATA "/machine-three-tiers.json", &r, &err), MO_OK);
    assert_int_equal(mo_plan_limits_find(NULL, &r, &l, &err), MO_OK);
    mo_plan_limits_device(0, r.vram_bytes, MO_PLAN_VRAM_RESERVE_MIB, &l);
    mo_plan_model near = dense_70b(512), far = dense_70b(4096);
    near.kv_bytes *= 2;
    far.kv_bytes *= 2;
    near.device_work_bytes = 400 * 1000000;
    far.device_work_bytes = 400 * 1000000 + (int64_t)4096 * 300000;
    const mo_run_plan a = planned_with(&near, l.ram_bytes, l.vram_bytes, &r);
    const mo_run_plan b = planned_with(&far, l.ram_bytes, l.vram_bytes, &r);
    check_device(&near, &a);
    check_device(&far, &b);
    assert_true(abs(a.device.layers - 29) <= 2);
    assert_true(abs(b.device.layers - 24) <= 2);
    assert_true(a.device.streamed + a.device.layers == 80 &&
                a.device.layer_buffers == MO_PLAN_DEVICE_LAYER_BUFFERS);
    assert_int_equal(a.mode, MO_PLAN_RESIDENT); /* the other layers are in RAM */
    assert_int_equal(a.core, a.device.streamed * near.dense_layer_bytes);
    assert_int_equal(a.device.token_link_bytes, a.token_ram_bytes);
    assert_true(a.tokens_per_second > 0.17 && a.tokens_per_second < 0.22);
    assert_true(b.tokens_per_second < a.tokens_per_second);
    mo_rates wide = r;
    wide.link_bytes_s = 13e9;
    const mo_run_plan c = planned_with(&near, l.ram_bytes, l.vram_bytes, &wide);
    assert_true(c.tokens_per_second > 0.35 && c.tokens_per_second < 0.45);
    /* Experts move down as well, and a faster link raises the speed where it is used. */
    const mo_plan_model brief = gpt_oss_120b(4096), lengthy = gpt_oss_120b(131072);
    const mo_run_plan d = planned_with(&brief, l.ram_bytes, l.vram_bytes, &r);
    const mo_run_plan e = planned_with(&lengthy, l.ram_bytes, l.vram_bytes, &r);
    assert_true(d.device.class_slots[0] > e.device.class_slots[0]);
    assert_true(d.tokens_per_second > e.tokens_per_second);
    const mo_run_plan f = planned_with(&brief, 100 * GB, l.vram_bytes, &r);
    assert_false(f.device.fetch); /* one expert crosses in the time in which the CPU computes all */
    wide.link_bytes_s = 26e9;
    const mo_run_plan g = planned_with(&brief, 100 * GB, l.vram_bytes, &wide);
    assert_true(g.device.fetch && g.tokens_per_second > f.tokens_per_second);
}

/* How many layers of the plan are in VRAM, in RAM alone and on disk alone. */
static void count_locations(const mo_plan_model *m, const mo_run_plan *p, int counts[3])
{
    mo_layer_location at[128];
    assert_true(m->layers <= 128);
    mo_placement_list(m, p, at);
    memset(counts, 0, 3 * sizeof *counts);
    for (int i = 0; i < m->layers; i++) {
        counts[mo_layer_kept(&at[i], MO_AT_VRAM) ? 0 : mo_layer_kept(&at[i], MO_AT_RAM) ? 1 : 2]++;
    }
}

/* As when a model is opened, where RAM holds what the device does not: no buffers for layers without a layer that comes from disk, and on
 * the document's machine none does. More RAM never makes a token slower. */
static void buffers_for_layers_have_a_reader(void **state)
{
    (void)state;
    static const int64_t contexts[] = {512, 4096};
    mo_rates r;
    mo_error err;
    mo_plan_limits found = {.reserve_bytes = -1};
    assert_int_equal(mo_rates_load(MO_TEST_DATA "/machine-three-tiers.json", &r, &err), MO_OK);
    assert_int_equal(mo_plan_limits_find(NULL, &r, &found, &err), MO_OK);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        mo_plan_model m = dense_70b(contexts[i]);
        mo_plan_limits l = {.ram_keeps = true, .cpu_layers = true};
        int counts[3], unbuffered = 0;
        double before = 0;
        mo_run_plan p;
        m.device_work_bytes = 400 * 1000000 + (contexts[i] - 512) * 300000;
        mo_plan_limits_device(0, r.vram_bytes, MO_PLAN_VRAM_RESERVE_MIB, &l);
        for (l.ram_bytes = 4 * GIB; l.ram_bytes < 60 * GIB; l.ram_bytes += 256 * MIB) {
            assert_int_equal(plan_both(&m, &l, &r, &p, &err), MO_OK);
            count_locations(&m, &p, counts);
            const bool streamed = p.mode == MO_PLAN_STREAMED;
            assert_int_equal(p.layer_buffers > 0, counts[2] > 0);
            assert_int_equal(p.layer_pass > 0, streamed && counts[2] == 0);
            assert_true(p.used <= l.ram_bytes && p.tokens_per_second >= before);
            before = p.tokens_per_second;
            unbuffered += p.layer_pass > 0;
        }
        assert_true(unbuffered > 40);
        l.ram_bytes = found.ram_bytes;
        assert_int_equal(plan_both(&m, &l, &r, &p, &err), MO_OK);
        count_locations(&m, &p, counts);
        assert_int_equal(counts[0], i ? 26 : 30); /* 24 and 29 in the document */
        assert_int_equal(counts[1], i ? 54 : 50);
        assert_int_equal(counts[2], 0);
    }
}

/* In a mixture what such buffers would take holds experts, and nothing of the ceiling is left that an expert fits into. */
static void no_memory_is_left_beside_experts(void **state)
{
    (void)state;
    const mo_plan_model models[] = {qwen(), gpt_oss_120b(8192)};
    const int64_t vram[] = {2 * GB, 6 * GB}, most[] = {6 * GIB, 60 * GIB}, step[] = {128 * MIB, 2 * GIB};
    for (int i = 0; i < 2; i++) {
        const mo_plan_model *m = &models[i];
        mo_plan_limits l = {.vram_bytes = vram[i], .ram_keeps = true, .cpu_layers = true};
        int counts[3], unbuffered = 0;
        double before = 0;
        mo_run_plan p;
        mo_error err;
        for (l.ram_bytes = 2 * GIB; l.ram_bytes < most[i]; l.ram_bytes += step[i]) {
            if (plan_both(m, &l, &gpu, &p, &err) != MO_OK) {
                continue;
            }
            count_locations(m, &p, counts);
            assert_int_equal(p.layer_buffers > 0, counts[2] > 0);
            assert_true(p.used <= l.ram_bytes);
            if (p.tokens_per_second < before / 1.0201) {
                fail_msg("RAM %lld: %f after %f", (long long)l.ram_bytes, p.tokens_per_second, before);
            }
            before = p.tokens_per_second;
            if (p.layer_pass > 0) {
                int64_t left = 0, largest = 0;
                for (int c = 0; c < m->class_count; c++) {
                    left += m->classes[c].experts - p.class_slots[c];
                    largest = m->classes[c].slot_bytes > largest ? m->classes[c].slot_bytes : largest;
                }
                assert_true(left == 0 || l.ram_bytes - p.used < largest);
                unbuffered++;
            }
        }
        assert_true(before > 0 && unbuffered > 4);
    }
}

/* Four layers of 8 MiB with 20 MiB of keys and values each, beside an output matrix of 1 MiB. */
static void the_kv_cache_goes_to_ram_where_that_moves_less(void **state)
{
    (void)state;
    enum { LAYERS = 4 };
    mo_plan_layer layers[LAYERS] = {0};
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (mo_plan_layer){.bytes = 8 * MIB,
                                    .resident = 8 * MIB,
                                    .buffer_bytes = 8 * MIB,
                                    .device_bytes = 8 * MIB,
                                    .link_bytes = 8 * MIB,
                                    .size_class = -1,
                                    .kv_bytes = i ? 20 * MIB : 0};
    }
    const mo_plan_model m = {.layers = LAYERS,
                             .layer = layers,
                             .core_bytes = 33 * MIB,
                             .output_bytes = MIB,
                             .dense_layers = LAYERS,
                             .dense_bytes = 32 * MIB,
                             .dense_layer_bytes = 8 * MIB,
                             .dense_buffer_bytes = 8 * MIB,
                             .kv_bytes = 80 * MIB,
                             .device_kv_bytes = 80 * MIB};
    static const struct {
        int64_t vram, ram;
        int kv_in_ram, streamed;
    } cases[] = {
        {114 * MIB, GIB, 0, 0},       /* all of it */
        {104 * MIB, GIB, 1, 0},       /* half of 20 MiB are less than two layers */
        {60 * MIB, GIB, 3, 0},        /* hot, it would not fit at all */
        {104 * MIB, 114 * MIB, 0, 3}, /* RAM has no space for them */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_plan_limits l = {.ram_bytes = cases[i].ram, .vram_bytes = cases[i].vram, .ram_keeps = true};
        mo_run_plan p;
        mo_error err = {.detail = ""};
        if (mo_plan_make(&m, &l, &fast, &p, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        assert_int_equal(p.device.kv_in_ram_layers, cases[i].kv_in_ram);
        assert_int_equal(p.device.kv_in_ram_bytes, cases[i].kv_in_ram * 20 * MIB);
        assert_int_equal(p.device.kv, 80 * MIB - p.device.kv_in_ram_bytes);
        assert_int_equal(p.kv, 80 * MIB + p.device.kv_in_ram_bytes);
        assert_int_equal(p.device.streamed, cases[i].streamed);
        assert_true(p.device.used <= cases[i].vram && p.used <= cases[i].ram);
    }
}

/* What attention reads, where it is read: in RAM by the CPU, in VRAM, and over the link what is kept in RAM. */
static void a_full_context_costs_what_attention_reads(void **state)
{
    (void)state;
    enum { LAYERS = 4 };
    mo_plan_layer layers[LAYERS];
    mo_plan_model m = {.layers = LAYERS, .layer = layers};
    mo_run_plan p = {.tokens_per_second = 100};
    for (int i = 0; i < LAYERS; i++) { /* one of them has a window, which stays where it is */
        layers[i] = (mo_plan_layer){.read_bytes = i == 2 ? 9 * MIB : 90 * MIB, .kv_bytes = i > 0 && i != 2};
    }
    const double all = 279.0 * MIB;
    mo_plan_depth d = mo_plan_depth_of(&m, &gpu, &p);
    assert_true(fabs(d.attention_seconds - all / mo_rates_products(&gpu)) < 1e-12);
    assert_true(fabs(d.empty - 100) < 1e-9);
    assert_true(fabs(1 / d.full - 0.01 - d.attention_seconds) < 1e-12);
    p.device.ceiling = GIB;
    d = mo_plan_depth_of(&m, &gpu, &p);
    assert_true(fabs(d.attention_seconds - all / 900e9) < 1e-12);
    /* The last two that can be; of their bytes the plan's speed has half. */
    p.device.kv_in_ram_layers = 2;
    p.device.kv_in_ram_bytes = 180 * MIB;
    const double link = mo_rates_link(&gpu, 0, 0), crossing = 180.0 * MIB / link;
    p.tokens_per_second = 1 / (0.01 + crossing / 2);
    d = mo_plan_depth_of(&m, &gpu, &p);
    assert_true(fabs(d.empty - 100) < 1e-6);
    assert_true(fabs(1 / d.full - (0.01 + crossing + 99.0 * MIB / 900e9)) < 1e-9);
    assert_true(d.full < p.tokens_per_second && p.tokens_per_second < d.empty);
    p.tokens_per_second = 0;
    assert_true(mo_plan_depth_of(&m, &gpu, &p).full == 0);
}

/* Three layers of 8 queries per KV head and 128 KiB a block; a step of 64 tokens has 8 tiles. */
enum { KV_IN_RAM_LAYERS = 3, KV_IN_RAM_CONTEXT = 1024, KV_IN_RAM_BLOCK = 128 << 10 };

static mo_plan_model kv_in_ram_model(mo_plan_layer *layers)
{
    for (int i = 0; i < KV_IN_RAM_LAYERS; i++) {
        layers[i] = (mo_plan_layer){.bytes = 8 * MIB,
                                    .resident = 8 * MIB,
                                    .buffer_bytes = 8 * MIB,
                                    .device_bytes = 8 * MIB,
                                    .link_bytes = 8 * MIB,
                                    .size_class = -1,
                                    .kv_bytes = i ? KV_IN_RAM_CONTEXT / 128 * KV_IN_RAM_BLOCK : 0,
                                    .read_bytes = KV_IN_RAM_CONTEXT / 128 * KV_IN_RAM_BLOCK,
                                    .queries = 8};
    }
    return (mo_plan_model){.layers = KV_IN_RAM_LAYERS,
                           .layer = layers,
                           .context = KV_IN_RAM_CONTEXT,
                           .batch = 64,
                           .core_bytes = 25 * MIB,
                           .output_bytes = MIB,
                           .dense_layers = KV_IN_RAM_LAYERS,
                           .dense_bytes = 24 * MIB,
                           .dense_layer_bytes = 8 * MIB,
                           .dense_buffer_bytes = 8 * MIB,
                           .kv_bytes = KV_IN_RAM_LAYERS * MIB,
                           .device_kv_bytes = KV_IN_RAM_LAYERS * MIB};
}

/* Four sessions take four times the memory; a token reads keys and values of its own. */
static void tokens_read_those_of_their_session(void **state)
{
    (void)state;
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        const int64_t each = 32 * MIB, sessions = i ? 4 : 1;
        mo_plan_layer layers[KV_IN_RAM_LAYERS];
        mo_plan_model m = kv_in_ram_model(layers);
        mo_run_plan p;
        mo_error err = {.detail = ""};
        for (int k = 0; k < KV_IN_RAM_LAYERS; k++) {
            layers[k].read_bytes = each;
            layers[k].kv_bytes = k ? sessions * each : 0;
        }
        m.kv_bytes = m.device_kv_bytes = sessions * KV_IN_RAM_LAYERS * each;
        const mo_plan_limits l = {
            .ram_bytes = GIB, .vram_bytes = 25 * MIB + sessions * each, .ram_keeps = true};
        assert_int_equal(mo_plan_make(&m, &l, &gpu, &p, &err), MO_OK);
        assert_int_equal(p.device.kv_in_ram_layers, 2);
        assert_int_equal(p.device.kv_in_ram_bytes, sessions * 2 * each);
        assert_true(fabs(p.device.link_seconds - (double)each / mo_rates_link(&gpu, 0, 0)) < 1e-12);
        seconds[i] = 1 / mo_plan_depth_of(&m, &gpu, &p).empty;
    }
    assert_true(fabs(seconds[0] - seconds[1]) < 1e-12);
}

/* Bytes over the link, exactly: by every tile where there is no space, once where there is, and both. */
static void prompts_count_the_kv_cache_in_ram(void **state)
{
    (void)state;
    mo_plan_layer layers[KV_IN_RAM_LAYERS];
    mo_plan_model m = kv_in_ram_model(layers);
    const double position = KV_IN_RAM_BLOCK / 128.0;
    assert_int_equal(mo_plan_tiles(64, 8), 8);
    assert_int_equal(mo_plan_tiles(65, 8), 9);
    assert_int_equal(mo_plan_tiles(3, 128), 3);
    assert_false(mo_plan_brings(8, 8));
    assert_true(mo_plan_brings(9, 8));
    /* Eight tiles of eight tokens see 520, 528 ... 576 positions: 4384 in all. */
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) == 4384 * position);
    assert_true(mo_plan_kv_in_ram_crossing(&m, 2, 512, 64) == 2 * 4384 * position);
    assert_true(mo_plan_kv_in_ram_crossing(&m, 9, 512, 64) == 2 * 4384 * position); /* the first stays */
    assert_true(mo_plan_kv_in_ram_crossing(&m, 0, 512, 64) == 0);
    /* 128 heads of a token that read the same rows are two tiles: 64 tokens after 512 see 34,848 positions. */
    layers[2].queries = 128;
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) == 2 * 34848 * position);
    layers[2].queries = 8;
    /* One tile reads them once, whatever space there is; an incomplete one likewise. */
    m.device_idle_bytes = 100 * KV_IN_RAM_BLOCK;
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 8) == 520 * position);
    /* 576 positions are in five blocks. */
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) == 5 * KV_IN_RAM_BLOCK);
    /* Space for four: the tiles read 8, 16 ... 64 positions behind them; for three and a half, 128 more each. */
    m.device_idle_bytes = 4 * KV_IN_RAM_BLOCK;
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) == 4 * KV_IN_RAM_BLOCK + 288 * position);
    m.device_idle_bytes = 7 * KV_IN_RAM_BLOCK / 2;
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) ==
                3 * KV_IN_RAM_BLOCK + (288 + 8 * 128) * position);
    /* Some tiles end before what is not there: of 124 .. 187 the first block has 4; eight tiles end at 132, 140 ... 188. */
    m.device_idle_bytes = KV_IN_RAM_BLOCK;
    assert_true(mo_plan_kv_in_ram_crossing(&m, 1, 120, 60) ==
                KV_IN_RAM_BLOCK + (0 + 8 + 16 + 24 + 32 + 40 + 48 + 52) * position);
    /* A prompt: every step at its depth, the last one shorter. */
    m.device_idle_bytes = 100 * KV_IN_RAM_BLOCK;
    assert_true(mo_plan_kv_in_ram_prompt(&m, 1, 0, 150) == (1 + 1 + 2) * KV_IN_RAM_BLOCK);
    m.device_idle_bytes = 0;
    assert_true(mo_plan_kv_in_ram_prompt(&m, 1, 0, 72) ==
                ((8 + 16 + 24 + 32 + 40 + 48 + 56 + 64) + 72) * position);
    assert_true(mo_plan_kv_in_ram_prompt(&m, 1, 512, 72) == /* of steps of 64 */
                mo_plan_kv_in_ram_crossing(&m, 1, 512, 64) + mo_plan_kv_in_ram_crossing(&m, 1, 576, 8));
    /* The plan's speed has it, and that of the last step of a full context too. */
    mo_run_plan p = {.tokens_per_second = 100, .device = {.ceiling = GIB, .layers = KV_IN_RAM_LAYERS}};
    const double link = mo_rates_link(&gpu, 0, 0);
    const double hot = mo_plan_prompt_seconds(&m, &gpu, &p, 72);
    const double full = mo_plan_depth_of(&m, &gpu, &p).prompt_full;
    p.device.kv_in_ram_layers = 2;
    assert_true(fabs(mo_plan_prompt_seconds(&m, &gpu, &p, 72) - hot - 2 * 360 * position / link) < 1e-12);
    const double crossing = mo_plan_kv_in_ram_crossing(&m, 2, KV_IN_RAM_CONTEXT - 64, 64);
    assert_true(fabs(64 / mo_plan_depth_of(&m, &gpu, &p).prompt_full - 64 / full - crossing / link) < 1e-12);
    const double tiles = 8.0 * KV_IN_RAM_LAYERS * MIB / 900e9;
    assert_true(fabs(64 / full - mo_plan_batch_seconds(&m, &gpu, &p, 64) - tiles) < 1e-12);
    p.device.ceiling = 0;
    assert_true(mo_plan_depth_of(&m, &gpu, &p).prompt_full == 0);
}

/* Where the least that a token moves leaves a choice, prompts make it: one layer more is cold where its keys and values cross once for
 * a step, and one more is streamed where every tile would read them. And of two batches they take the one that has the space. */
static void prompts_have_a_say_in_what_kv_is_in_ram(void **state)
{
    (void)state;
    enum { LAYERS = 8 };
    mo_plan_layer layers[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (mo_plan_layer){.bytes = 8 * MIB,
                                    .resident = 8 * MIB,
                                    .buffer_bytes = 8 * MIB,
                                    .device_bytes = 8 * MIB,
                                    .link_bytes = 8 * MIB,
                                    .size_class = -1,
                                    .kv_bytes = i ? 8 * MIB : 0,
                                    .read_bytes = 8 * MIB,
                                    .queries = 16};
    }
    mo_plan_model m = {.layers = LAYERS,
                       .layer = layers,
                       .context = 1024,
                       .batch = 256,
                       .core_bytes = (8 * LAYERS + 1) * MIB,
                       .output_bytes = MIB,
                       .dense_layers = LAYERS,
                       .dense_bytes = 8 * LAYERS * MIB,
                       .dense_layer_bytes = 8 * MIB,
                       .dense_buffer_bytes = 8 * MIB,
                       .kv_bytes = 8 * LAYERS * MIB,
                       .device_kv_bytes = 8 * LAYERS * MIB};
    const mo_plan_limits l = {.ram_bytes = 4 * GIB, .vram_bytes = 60 * MIB, .ram_keeps = true};
    mo_error err = {.detail = ""};
    mo_run_plan p;
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_OK);
    assert_int_equal(p.device.kv_in_ram_layers, 6);
    assert_int_equal(p.device.streamed, 4);
    m.device_idle_bytes = 8 * MIB;
    assert_int_equal(mo_plan_make(&m, &l, &fast, &p, &err), MO_OK);
    assert_int_equal(p.device.kv_in_ram_layers, 7);
    assert_int_equal(p.device.streamed, 3);
    for (int space = 0; space < 2; space++) { /* without it more tiles than steps are saved */
        m.batches[0] = (mo_plan_batch){.batch = 64,
                                       .kv_bytes = m.kv_bytes,
                                       .device_kv_bytes = m.device_kv_bytes,
                                       .device_idle_bytes = 8 * MIB};
        m.batches[1] = m.batches[0];
        m.batches[1].batch = 128;
        m.batches[1].device_idle_bytes = space ? 8 * MIB : 0;
        m.batch_count = 2;
        assert_int_equal(mo_plan_choose(&m, &l, &fast, &p, &err), MO_OK);
        assert_int_equal(m.batch, space ? 128 : 64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_read_those_of_their_session),
        cmocka_unit_test(prompts_count_the_kv_cache_in_ram),
        cmocka_unit_test(prompts_have_a_say_in_what_kv_is_in_ram),
        cmocka_unit_test(the_kv_cache_goes_to_ram_where_that_moves_less),
        cmocka_unit_test(all_of_it_in_vram),
        cmocka_unit_test(experts_fill_what_is_left),
        cmocka_unit_test(experts_stay_out_when_told),
        cmocka_unit_test(ram_can_do_without_the_device),
        cmocka_unit_test(no_ceiling_that_rises_costs_speed),
        cmocka_unit_test(three_tiers_add_up),
        cmocka_unit_test(prompts_keep_stages_where_layers_pass),
        cmocka_unit_test(fetch_lane_by_cost),
        cmocka_unit_test(small_experts_cross_more_slowly),
        cmocka_unit_test(rates_of_small_experts_divide_them),
        cmocka_unit_test(refuses_a_small_device),
        cmocka_unit_test(device_degrades_without_a_cliff),
        cmocka_unit_test(random_devices),
        cmocka_unit_test(the_cpu_takes_layers),
        cmocka_unit_test(vram_ceilings),
        cmocka_unit_test(vram_ceilings_beside_other_models),
        cmocka_unit_test(machine_002_with_its_gpu),
        cmocka_unit_test(buffers_for_layers_have_a_reader),
        cmocka_unit_test(no_memory_is_left_beside_experts),
        cmocka_unit_test(a_full_context_costs_what_attention_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
