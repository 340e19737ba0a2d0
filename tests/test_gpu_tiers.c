/* Three tiers: experts in VRAM, in RAM and on disk. What lies in VRAM leaves its place in RAM, and both are filled beside the
 * first steps. */
#include <math.h>

#include "tier_case.h"

static void read_prompt(mo_session *session)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = PROMPT};
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

static void decode(mo_session *session, int64_t from, int64_t to)
{
    mo_error err = {.detail = ""};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = to, .step = 1};
    assert_int_equal(mo_session_length(session), from);
    if (mo_session_feed(&f, 1, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
}

/* ---- The first start --------------------------------------------------------------------------- */

static void a_first_start_fills_both_tiers(void **state)
{
    (void)state;
    const setting cases[] = {tiers_of(0.12, 0.2), tiers_of(0.3, 0.3), tiers_of(0.5, 0.1)};
    for (int i = 0; i < 3; i++) {
        mo_model *model = open_model(MO_TEST_MODEL, &cases[i]);
        mo_session *session = open_session(model, MO_KV_I16);
        read_prompt(session);
        const counts c = count(model);
        assert_true(c.vram.slots > 0 && c.ram.slots > 0);
        assert_int_equal(c.vram.filled, c.vram.slots);
        assert_true(10 * c.ram.filled >= 7 * c.ram.slots);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* The start alone, until it has come to its end: nobody computes meanwhile. */
static void run_start(rig *r)
{
    mo_ahead *a = &r->gpu->ahead;
    const mo_first_fill *s = &a->fill;
    for (int i = 0; i < 100000 && (s->to_device < s->count || s->to_ram < s->count || a->under_way > 0);
         i++) {
        mo_store_settle(r->gpu->experts.where.store);
        check_status(mo_ahead_continue_fill(a, &r->err), &r->err);
    }
    mo_store_settle(r->gpu->experts.where.store);
    assert_true(s->to_device == s->count && s->to_ram == s->count && a->under_way == 0);
}

/* Where the order's expert is: 2 in VRAM, 1 in RAM, 0 in neither. */
static int tier_of(const rig *r, const mo_ahead_expert *b)
{
    return (mo_where_address(mo_gpu_where(r->gpu, b->layer), b->layer, b->expert) != 0) ? 2
           : mo_store_resident(r->gpu->experts.where.store, b->layer, b->expert)        ? 1
                                                                                        : 0;
}

/* By a profile the hottest experts are in VRAM, the next in RAM, and on disk are the coldest. */
static void a_start_takes_the_hottest_first(void **state)
{
    (void)state;
    const double shares[][2] = {{0.3, 0.3}, {0.2, 0.5}, {0.5, 0.1}};
    for (int i = 0; i < 3; i++) {
        rig r;
        rig_open(&r, &(rigged){.set = tiers_of(shares[i][0], shares[i][1]), .known = true});
        const mo_first_fill *s = &r.gpu->ahead.fill;
        run_start(&r);
        int last = 2, tiers[3] = {0};
        assert_int_equal(s->count, EXPERTS);
        for (int32_t n = 0; n < s->count; n++) {
            const int tier = tier_of(&r, &s->order[n]);
            if (tier > last) {
                fail_msg("%d of %d is in tier %d, the one before it in %d", n, s->count, tier, last);
            }
            assert_true(n == 0 ||
                        s->order[n].expert <= s->order[n - 1].expert); /* the last are the hottest */
            last = tier;
            tiers[tier]++;
        }
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(r.gpu->experts.where.vram, &slots, &filled, &bytes);
        assert_int_equal(tiers[2], slots);
        mo_store_slots(r.gpu->experts.where.store, &slots, &filled, &bytes);
        assert_true(10 * tiers[1] >= 7 * slots && tiers[0] > 0);
        rig_close(&r);
    }
}

/* Without a profile every layer gets alike of both. */
static void a_start_without_a_profile_is_even(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.3, 0.3)});
    const mo_model_spec *spec = mo_checkpoint_spec(r.opened.model);
    run_start(&r);
    for (int tier = 1; tier <= 2; tier++) {
        int least = EXPERTS, most = 0;
        for (int i = 0; i < spec->layer_count; i++) {
            int held = 0;
            for (int e = 0; spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
                held += tier_of(&r, &(mo_ahead_expert){.layer = i, .expert = e}) == tier;
            }
            least = spec->layers[i].routed && held < least ? held : least;
            most = held > most ? held : most;
        }
        assert_true(least > 10);
        assert_in_range(most - least, 0, 1);
    }
    rig_close(&r);
}

/* What is in VRAM when each token of a prompt is done. */
typedef struct progress {
    const mo_gpu *gpu;
    int32_t slots, first, last;
    int told;
} progress;

static void watch(void *user, int64_t position, const float *row)
{
    progress *p = user;
    int64_t bytes;
    (void)position;
    (void)row;
    mo_vram_slots(p->gpu->experts.where.vram, &p->slots, &p->last, &bytes);
    p->first = p->told++ ? p->first : p->last;
}

/* The prompt does not wait for the start: its first tokens are done when few slots are filled, its last when all are. */
static void a_prompt_runs_while_tiers_are_filled(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        rig r;
        rig_open(&r, &(rigged){.set = tiers_of(0.4, 0.3), .known = known});
        progress p = {.gpu = r.gpu};
        const mo_feed f = {.size = sizeof f,
                           .session = r.session,
                           .tokens = tokens,
                           .count = PROMPT,
                           .step = 4,
                           .logits = watch,
                           .user = &p};
        check_status(mo_session_feed(&f, 1, &r.err), &r.err);
        assert_int_equal(p.told, PROMPT);
        assert_true(2 * p.first < p.slots);
        assert_int_equal(p.last, p.slots);
        rig_close(&r);
    }
}

/* Nobody reads a prompt: tokens alone bring it in, too, up to the few places that misses pass through. */
static void tokens_fill_both_tiers(void **state)
{
    (void)state;
    const setting set = tiers_of(0.3, 0.3);
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_session *session = open_session(model, MO_KV_I16);
    counts c = count(model);
    for (int i = 0; i < 256 && (10 * c.vram.filled < 7 * c.vram.slots || 10 * c.ram.filled < 7 * c.ram.slots);
         i += 16) { /* some tens, but the disk may have others to serve */
        decode(session, i, i + 16);
        c = count(model);
    }
    assert_true(10 * c.vram.filled >= 7 * c.vram.slots);
    assert_true(10 * c.ram.filled >= 7 * c.ram.slots);
    mo_session_close(session);
    mo_model_close(model);
}

/* RAM has slots for what one token needs and for nothing else: nothing can cross from there while steps run, but what a
 * prompt computes stays where there is a slot in VRAM, also with a profile that names others. */
static void prompts_fill_vram_where_ram_is_tiny(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.3, 0), .known = true, .least_slots = true});
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = tokens, .count = PROMPT};
    check_status(mo_session_feed(&f, 1, &r.err), &r.err);
    int32_t slots, filled;
    int64_t bytes;
    mo_vram_slots(r.gpu->experts.where.vram, &slots, &filled, &bytes);
    assert_true(slots > 100);
    assert_true(10 * filled >= 7 * slots);
    rig_close(&r);
}

/* Of one step the first layers leave as much in free slots as the last ones, and what more tokens chose. */
static void prompts_leave_as_much_in_every_layer(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.3, 0), .least_slots = true});
    const mo_model_spec *spec = mo_checkpoint_spec(r.opened.model);
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = tokens, .count = 64};
    check_status(mo_session_feed(&f, 1, &r.err), &r.err);
    int least = EXPERTS, most = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        int held = 0;
        for (int e = 0; spec->layers[i].routed && e < spec->layers[i].moe.experts; e++) {
            held += (mo_where_address(mo_gpu_where(r.gpu, i), i, e) != 0);
        }
        least = spec->layers[i].routed && held < least ? held : least;
        most = held > most ? held : most;
    }
    assert_true(least > 10);
    assert_in_range(most - least, 0, 1);
    rig_close(&r);
}

/* ---- The sum ----------------------------------------------------------------------------------- */

/* Every expert has a slot, and none of them is still on its way: slots count as filled from the beginning of a read. */
static bool is_settled(const counts *before, const counts *after)
{
    return after->ram.filled + after->vram.filled == EXPERTS &&
           after->ram.disk_bytes == before->ram.disk_bytes;
}

static void both_tiers_together_need_no_disk(void **state)
{
    (void)state;
    const setting cases[] = {tiers_of(0.6, 0.45), tiers_of(0.51, 0.53), tiers_of(0.8, 0.26)};
    for (int i = 0; i < 6; i++) {
        const bool swaps = i >= 3; /* experts that cross take the places of others */
        mo_model *model = open_model(MO_TEST_MODEL, &cases[i % 3]);
        mo_session *session = open_session(model, MO_KV_I16);
        if (swaps) {
            slow_cpu(model);
        }
        read_prompt(session);
        int64_t length = PROMPT;
        counts before = count(model);
        for (bool settled = false; length < PROMPT + 32 && !settled; length += 4) {
            const counts last = before;
            decode(session, length, length + 4); /* what nobody has needed yet is still being read */
            before = count(model);
            settled = is_settled(&last, &before);
        }
        decode(session, length, length + 48);
        const counts after = count(model);
        assert_int_equal(before.ram.filled + before.vram.filled, EXPERTS);
        assert_int_equal(after.ram.filled + after.vram.filled, EXPERTS);
        assert_int_equal(after.ram.disk_bytes, before.ram.disk_bytes);
        assert_true(!swaps || after.ram.taken > before.ram.taken);
        assert_int_equal(after.ram.generation.hits - before.ram.generation.hits,
                         after.ram.generation.asked - before.ram.generation.asked);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Slots for every expert and for no one more, and tokens that drive out of RAM what was read for the device: in the end each
 * has its place, and the disk has nothing to do. */
static void an_exact_fit_leaves_no_slot_empty(void **state)
{
    (void)state;
    setting set = tiers_of(0.7, 0);
    for (int64_t places = 0; places < EXPERTS; set.ram += places < EXPERTS ? 1 << 14 : 0) { /* half a slot */
        const mo_plan_report p = plan_of(set.ram, set.vram);
        places = p.classes[0].slots + p.classes[0].device_slots;
    }
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_session *session = open_session(model, MO_KV_I16);
    counts before = count(model);
    assert_int_equal(before.ram.slots + before.vram.slots, EXPERTS);
    int64_t length = 0;
    for (bool settled = false; length < 400 && !settled; length += 16) {
        const counts last = before;
        decode(session, length, length + 16);
        before = count(model);
        settled = is_settled(&last, &before);
    }
    decode(session, length, length + 16);
    const counts after = count(model);
    assert_int_equal(before.ram.filled + before.vram.filled, EXPERTS);
    assert_int_equal(after.ram.disk_bytes, before.ram.disk_bytes);
    mo_session_close(session);
    mo_model_close(model);
}

/* By the cost model, whichever ceiling rises, from nothing to everything: the model that is built in. Another arrangement has to be
 * better by 2 % to be taken. */
static void no_ceiling_that_rises_costs_speed(void **state)
{
    (void)state;
    enum { STEPS = 16 };
    const mo_plan_report whole = plan_of((int64_t)64 << 20, (int64_t)64 << 20);
    const int64_t vram = whole.device.least_bytes, ram = whole.least_bytes;
    double before[STEPS + 1] = {0};
    for (int i = 0; i <= STEPS; i++) {
        double left = 0;
        for (int j = 0; j <= STEPS; j++) {
            const double now = plan_of(ram + (whole.whole_bytes - ram) * j / STEPS,
                                       vram + (whole.device.whole_bytes - vram) * i / STEPS)
                                   .tokens_per_second;
            assert_true(now >= 0.98 * left && now >= 0.98 * before[j]);
            left = before[j] = now;
        }
    }
}

/* With a link so slow that the start is still sending while tokens ask for the same experts. */
static void no_expert_lies_in_both_tiers(void **state)
{
    (void)state;
    const double shares[][2] = {{0.2, 0.3}, {0.5, 0.3}};
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, &(rigged){.set = tiers_of(shares[i][0], shares[i][1]),
                               .link_bytes_s = simulated() ? 2e8 : 0});
        start_cpu(r.gpu, 2e6);
        for (int64_t n = 4; n <= 48; n += 4) {
            const mo_feed f = {
                .size = sizeof f, .session = r.session, .tokens = tokens, .count = n, .step = 1};
            check_status(mo_session_feed(&f, 1, &r.err), &r.err);
            assert_int_equal(in_vram(r.gpu, r.engine->spec, true), 0);
        }
        assert_true(in_vram(r.gpu, r.engine->spec, false) > 0);
        rig_close(&r);
    }
}

/* Copies that each take a while beside their bytes: what the lane finds is what plans count with. */
static void small_copies_cross_as_planned(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a link of just that rate */
    }
    const mo_rates rates = {.link_bytes_s = 5e7, .link_copy_s = 300e-6};
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.1, 1),
                           .link_bytes_s = rates.link_bytes_s,
                           .link_copy_s = rates.link_copy_s});
    mo_gpu_lanes *lanes = &r.gpu->lanes;
    const double bytes = (double)lanes->core->layers[lanes->core->spec->layer_count - 1].expert_bytes;
    const double planned = mo_rates_link(&rates, bytes, MO_RATES_EXPERT_COPIES);
    double found = 0;
    assert_true(planned < 0.9 * rates.link_bytes_s);
    lanes->rates.link = mo_lane_rate_of(rates.link_bytes_s);
    for (int i = 0; i < PROMPT && fabs(found / planned - 1) > 0.05; i++) {
        start_cpu(r.gpu, 1e6); /* everything crosses */
        decode(r.session, i, i + 1);
        found = 1 / lanes->rates.link.s_per_byte; /* a machine that stands still now and then is found slow */
    }
    assert_true(fabs(found / planned - 1) <= 0.05);
    rig_close(&r);
}

/* Does the rate of the CPU become what it does, after a guess that is 20 times too low or too high? */
static bool cpu_is_observed(bool high)
{
    enum { FEW = 16 };
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.15, 0.3)});
    mo_gpu_lanes *lanes = &r.gpu->lanes;
    lanes->postfetch.mode = MO_POSTFETCH_OFF; /* all that is missing is the CPU's */
    double wrong = 0;
    bool observed = false;
    for (int64_t n = 0; n < PROMPT && !observed; n += FEW) {
        const uint64_t bytes = lanes->cpu_bytes, ns = lanes->cpu_ns;
        decode(r.session, n, n + FEW);
        const double did = (double)(lanes->cpu_bytes - bytes) / ((double)(lanes->cpu_ns - ns) * 1e-9);
        if (n == 0) {
            wrong = high ? 20 * did : did / 20;
            start_cpu(r.gpu, wrong);
        }
        const double found = 1 / lanes->rates.alone.s_per_byte;
        observed = n > 0 && fabs(log(found / did)) <= log(3) && fabs(log(found / wrong)) > log(3);
    }
    assert_true(mo_store_count(r.gpu->experts.where.store).disk.bytes > 0);
    rig_close(&r);
    return observed;
}

/* What the CPU is believed to do becomes what it does, also where experts come from disk: after a guess that is far too high the
 * link would stay idle, after one that is far too low the CPU. On a busy machine it may have become what was guessed: one of a few
 * tries will do. */
static void the_cpu_is_observed_beside_a_disk(void **state)
{
    (void)state;
    for (int high = 0; high < 2; high++) {
        bool observed = false;
        for (int i = 0; i < 6 && !observed; i++) {
            observed = cpu_is_observed(high);
        }
        assert_true(observed);
    }
}

/* What the CPU takes here for an expert: ten times as long under sanitizers, and longer on a busy machine. */
static double cpu_takes(void)
{
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.1, 1)});
    r.gpu->lanes.postfetch.mode = MO_POSTFETCH_OFF;
    decode(r.session, 0, 8);
    const double seconds = (double)r.gpu->lanes.cpu_ns * 1e-9 / (double)r.gpu->lanes.by_cpu;
    rig_close(&r);
    return seconds;
}

/* The share of the missing experts that crosses in some more tokens, with a link that takes this long for each. */
static double crossing_share(rig *r, int tokens_more, double link_s)
{
    mo_gpu_lanes *lanes = &r->gpu->lanes;
    const double bytes = (double)lanes->core->layers[lanes->core->spec->layer_count - 1].expert_bytes;
    const uint64_t sent = r->gpu->experts.fetched, computed = lanes->by_cpu;
    const int64_t from = mo_session_length(r->session);
    for (int64_t n = from; n < from + tokens_more; n++) {
        lanes->rates.link = mo_lane_rate_of(bytes / link_s);
        decode(r->session, n, n + 1);
    }
    const double crossed = (double)(r->gpu->experts.fetched - sent), own = (double)(lanes->by_cpu - computed);
    return crossed / (crossed + own);
}

/* What makes the CPU seem slow for a moment, a prompt or another program, must not leave most experts to the link for good. It computes
 * few of them then, in less time than one of its threads takes for the driver's calls for the others, and that thread is waited for. */
static void a_slow_moment_passes(void **state)
{
    (void)state;
    if (!simulated()) {
        skip(); /* a driver whose calls take just that long */
    }
    double before = 1, at_once = 0, after = 1;
    for (int i = 0; i < 4 && !(before < 0.1 && at_once > 0.5 && after < 0.1);
         i++) { /* another program may slow the CPU down at any time */
        const double link_s = 1.5 * cpu_takes();
        rig r;
        rig_open(&r, &(rigged){.set = tiers_of(0.1, 1), .link_bytes_s = 1e10, .call_s = 2 * link_s});
        const double bytes = (double)r.gpu->core.layers[r.engine->spec->layer_count - 1].expert_bytes;
        decode(r.session, 0, 1);
        start_cpu(r.gpu, bytes / (0.5 * link_s));
        before = crossing_share(&r, 20, link_s);
        slow_cpu_down(r.gpu, 10 * link_s / bytes);
        at_once = crossing_share(&r, 1, link_s);
        crossing_share(&r, 100, link_s);
        after = crossing_share(&r, 20, link_s);
        rig_close(&r);
    }
    assert_true(before < 0.1 && at_once > 0.5 && after < 0.1);
}

static void prediction_reads_ahead_beside_a_device(void **state)
{
    (void)state;
    const setting set = tiers_of(0.15, 0.15);
    mo_model *model = open_model(MO_TEST_MODEL, &set);
    mo_session *session = open_session(model, MO_KV_I16);
    decode(session, 0, 48);
    const counts c = count(model);
    assert_true(c.ram.guessed > 0 && c.ram.useful + c.ram.late > 0);
    mo_session_close(session);
    mo_model_close(model);
}

/* Steps of some tens of tokens, when VRAM is full: of what is in RAM or comes from disk, the CPU computes some while others
 * cross. */
static void cpu_and_device_share_what_comes_from_disk(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &(rigged){.set = tiers_of(0.3, 0.2)});
    mo_gpu_lanes *lanes = &r.gpu->lanes;
    const mo_feed f = {.size = sizeof f, .session = r.session, .tokens = tokens, .count = PROMPT};
    for (int i = 0; i < 2; i++) {
        const uint64_t by_cpu = lanes->by_cpu, read = mo_store_count(r.gpu->experts.where.store).disk.bytes;
        mo_feed part = f;
        part.count = (i + 1) * PROMPT / 2;
        /* A slow CPU leaves all to the device; one as fast as the link does not. */
        lanes->rates.link = mo_lane_rate_of(1e9);
        start_cpu(r.gpu, i ? 1e9 : 2e7);
        check_status(mo_session_feed(&part, 1, &r.err), &r.err);
        assert_true(mo_store_count(r.gpu->experts.where.store).disk.bytes > read);
        assert_int_equal(lanes->by_cpu > by_cpu, i);
    }
    rig_close(&r);
}

/* ---- Bits -------------------------------------------------------------------------------------- */

static void wherever_experts_are_the_bits_are_the_same(void **state)
{
    (void)state;
    const size_t bytes = sizeof(float) * (size_t)(PROMPT / 4 * VOCAB);
    float *want = logits_of(MO_TEST_MODEL, tokens, PROMPT / 4, VOCAB, &(setting){.step = 1});
    const double shares[][2] = {{0.1, 0.1}, {0.4, 0.2}, {0.2, 0.5}, {0.7, 0.4}};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 2; j++) {
            setting set = tiers_of(shares[i][0], shares[i][1]);
            set.step = j ? 20 : 1;
            sink s = {.rows = calloc(1, bytes), .vocab = VOCAB};
            mo_model *model = open_model(MO_TEST_MODEL, &set);
            mo_session *session = open_session(model, MO_KV_I16);
            if (i % 2) {
                slow_cpu(model);
            }
            feed(session, tokens, PROMPT / 4, set.step, &s);
            assert_memory_equal(s.rows, want, bytes);
            free(s.rows);
            mo_session_close(session);
            mo_model_close(model);
        }
    }
    free(want);
}

/* Experts that a profile calls universal stay in VRAM whatever comes; without that word some of them leave. */
static void universal_experts_stay(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        int left[2] = {0};
        for (int kept = 0; kept < 2; kept++) {
            rig r;
            setting set = tiers_of(0.4, 0.3);
            set.ram = stored ? set.ram : (int64_t)64 << 20;
            rig_open(&r, &(rigged){.set = set,
                                   .known = true,
                                   .universal = kept ? 21 : 0,
                                   .policy = mo_policy_find("lru")});
            for (int64_t n = 1; n <= 160; n++) {
                start_cpu(r.gpu, 2e7); /* so that experts cross and look for slots */
                const mo_feed f = {
                    .size = sizeof f, .session = r.session, .tokens = tokens, .count = n, .step = 1};
                check_status(mo_session_feed(&f, 1, &r.err), &r.err);
            }
            for (int e = 61; e < 64; e++) { /* the first 21 of the profile: three of each of seven layers */
                for (int i = 0; i < 7; i++) {
                    left[kept] += mo_where_address(mo_gpu_where(r.gpu, i), i, e) == 0;
                }
            }
            rig_close(&r);
        }
        assert_true(left[0] > 0);
        assert_int_equal(left[1], 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(universal_experts_stay),
        cmocka_unit_test(a_first_start_fills_both_tiers),
        cmocka_unit_test(a_start_takes_the_hottest_first),
        cmocka_unit_test(a_start_without_a_profile_is_even),
        cmocka_unit_test(a_prompt_runs_while_tiers_are_filled),
        cmocka_unit_test(tokens_fill_both_tiers),
        cmocka_unit_test(prompts_fill_vram_where_ram_is_tiny),
        cmocka_unit_test(prompts_leave_as_much_in_every_layer),
        cmocka_unit_test(both_tiers_together_need_no_disk),
        cmocka_unit_test(an_exact_fit_leaves_no_slot_empty),
        cmocka_unit_test(no_ceiling_that_rises_costs_speed),
        cmocka_unit_test(no_expert_lies_in_both_tiers),
        cmocka_unit_test(small_copies_cross_as_planned),
        cmocka_unit_test(the_cpu_is_observed_beside_a_disk),
        cmocka_unit_test(a_slow_moment_passes),
        cmocka_unit_test(prediction_reads_ahead_beside_a_device),
        cmocka_unit_test(cpu_and_device_share_what_comes_from_disk),
        cmocka_unit_test(wherever_experts_are_the_bits_are_the_same),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, make_tokens, NULL);
}
