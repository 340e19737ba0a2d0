/* Slots and policies: random sequences against a naive model, and what the learning policy promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/sim/sim.h"
#include "experts/slots.h"
#include "experts/vram.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static mo_error err;

/* ---- A naive model ------------------------------------------------------------------------------ */

enum { EXPERT_COUNT = 40, SLOTS = 48 }; /* limits */

typedef struct model {
    const mo_policy *policy;
    int32_t experts, slots;
    mo_policy_entry entry[EXPERT_COUNT];
    int32_t slot[EXPERT_COUNT]; /* or -1 */
    uint32_t pins[EXPERT_COUNT];
    bool kept[EXPERT_COUNT];
} model;

static int32_t resident_count(const model *m)
{
    int32_t count = 0;
    for (int32_t i = 0; i < m->experts; i++) {
        count += m->slot[i] >= 0;
    }
    return count;
}

static bool evictable(const model *m, int32_t i)
{
    return m->slot[i] >= 0 && m->pins[i] == 0 && !m->kept[i];
}

/* Who goes when a slot is taken: -1 when one is free, -2 when none can be had. */
static int32_t expected_victim(const model *m)
{
    int32_t best = -2;
    if (resident_count(m) < m->slots) {
        return -1;
    }
    for (int32_t i = 0; i < m->experts; i++) {
        if (evictable(m, i) && (best < 0 || m->entry[i].key < m->entry[best].key)) {
            best = i;
        }
    }
    return best;
}

static void check_all(const model *m, const mo_slots *s)
{
    for (int32_t i = 0; i < m->experts; i++) {
        assert_int_equal(mo_slots_find(s, i), m->slot[i]);
        if (m->slot[i] >= 0) {
            assert_int_equal(mo_slots_expert(s, m->slot[i]), i);
        }
    }
    assert_int_equal(mo_slots_free(s), m->slots - resident_count(m));
}

static void take(model *m, mo_slots *s, int32_t expert_id)
{
    int32_t evicted = -5;
    const int32_t victim = expected_victim(m);
    const int32_t slot = mo_slots_acquire(s, expert_id, &evicted);
    if (m->policy->learns && victim >= 0) { /* by its own mind */
        assert_in_range(evicted, 0, m->experts - 1);
        assert_true(evictable(m, evicted));
    } else {
        assert_int_equal(evicted, victim >= 0 ? victim : -1);
    }
    if (victim == -2) {
        assert_int_equal(slot, -1);
        return;
    }
    assert_in_range(slot, 0, m->slots - 1);
    for (int32_t i = 0; i < m->experts; i++) {
        assert_true(m->slot[i] != slot || i == evicted);
    }
    if (evicted >= 0) {
        m->slot[evicted] = -1;
        if (m->policy->forgets) {
            m->entry[evicted] = (mo_policy_entry){0};
        }
    }
    m->slot[expert_id] = slot;
    m->pins[expert_id] = 1;
    m->kept[expert_id] = false;
}

/* One random call that the contract allows. */
static void random_call(model *m, mo_slots *s, uint64_t *random, uint64_t *now)
{
    const int32_t expert_id = (int32_t)random_below(random, m->experts);
    const bool resident = m->slot[expert_id] >= 0;
    switch (random_below(random, 8)) {
    case 0:
    case 1: {
        const uint32_t picks = 1 + (uint32_t)(random_below(random, 4) ? 0 : random_below(random, 200));
        *now += random_below(random, 4) ? 0 : (uint64_t)random_below(random, 9);
        mo_slots_touch(s, expert_id, *now, picks);
        if (!m->policy->learns) {
            m->policy->touch(&m->entry[expert_id], *now, picks);
        }
        break;
    }
    case 2:
    case 3:
        if (!resident) {
            take(m, s, expert_id);
        }
        break;
    case 4:
        if (resident && random_below(random, 3) == 0) {
            mo_slots_pin(s, expert_id);
            m->pins[expert_id]++;
        }
        break;
    case 5:
    case 6:
        if (resident && m->pins[expert_id]) {
            mo_slots_unpin(s, expert_id);
            m->pins[expert_id]--;
        }
        break;
    default:
        if (resident && random_below(random, 4) == 0) {
            mo_slots_drop(s, expert_id);
            m->slot[expert_id] = -1;
        } else if (resident) {
            m->kept[expert_id] = random_below(random, 3) == 0;
            mo_slots_keep(s, expert_id, m->kept[expert_id]);
        }
    }
}

static void random_run(const mo_policy *policy, uint64_t seed)
{
    uint64_t random = seed, now = 1;
    model m = {.policy = policy,
               .experts = 1 + (int32_t)random_below(&random, EXPERT_COUNT),
               .slots = (int32_t)random_below(&random, SLOTS)};
    mo_slots *s = NULL;
    assert_int_equal(mo_slots_create(policy, m.experts, m.slots, &s, &err), MO_OK);
    for (int32_t i = 0; i < m.experts; i++) {
        m.slot[i] = -1;
        mo_slots_place(s, i, i * 4 / m.experts);
    }
    if (seed % 3 == 0) {
        for (int32_t i = 0; i < m.experts; i++) {
            const uint64_t hits = (uint64_t)random_below(&random, 1000);
            mo_slots_seed(s, i, hits, 1000);
            if (!policy->learns) {
                policy->seed(&m.entry[i], hits, 1000);
            }
        }
    }
    for (int i = 0; i < 600; i++) {
        random_call(&m, s, &random, &now);
        check_all(&m, s);
    }
    mo_slots_destroy(s);
}

static void like_the_model(void **state)
{
    (void)state;
    for (int p = 0; mo_policy_at(p); p++) {
        for (uint64_t seed = 1; seed <= 600; seed++) {
            random_run(mo_policy_at(p), seed);
        }
    }
}

/* ---- Edges -------------------------------------------------------------------------------------- */

static void edges(void **state)
{
    (void)state;
    mo_slots *s = NULL;
    int32_t evicted;
    assert_int_equal(mo_slots_create(mo_policy_at(0), 0, 4, &s, &err), MO_EINVAL);
    assert_int_equal(mo_slots_create(mo_policy_at(0), 4, -1, &s, &err), MO_EINVAL);
    assert_null(s);
    mo_slots_destroy(NULL);
    for (int p = 0; mo_policy_at(p); p++) {
        assert_int_equal(mo_slots_create(mo_policy_at(p), 3, 0, &s, &err), MO_OK); /* no slot at all */
        mo_slots_touch(s, 2, 1, 1);
        assert_int_equal(mo_slots_acquire(s, 2, &evicted), -1);
        assert_int_equal(evicted, -1);
        mo_slots_destroy(s);
    }
    assert_ptr_equal(mo_policy_find("auto"), mo_policy_at(0));
    assert_ptr_equal(mo_policy_find("priority"), mo_policy_at(3));
    assert_null(mo_policy_find("none"));
    assert_null(mo_policy_at(-1));
    assert_null(mo_policy_at(4));
}

/* Who goes of three that came at the same moment, perhaps after one was touched again. */
static int32_t first_of_three(int32_t touched)
{
    mo_slots *s = NULL;
    int32_t evicted;
    assert_int_equal(mo_slots_create(mo_policy_find("lru"), 6, 3, &s, &err), MO_OK);
    for (int32_t i = 2; i >= 0; i--) {
        mo_slots_touch(s, i, 1, 1);
        mo_slots_acquire(s, i, &evicted);
        mo_slots_unpin(s, i);
    }
    if (touched >= 0) {
        mo_slots_touch(s, touched, 2, 1);
    }
    mo_slots_acquire(s, 3, &evicted);
    mo_slots_destroy(s);
    return evicted;
}

/* Ties go to the lower number; a touch saves. */
static void ties(void **state)
{
    (void)state;
    assert_int_equal(first_of_three(-1), 0);
    assert_int_equal(first_of_three(0), 1);
    assert_int_equal(first_of_three(1), 0);
}

/* The key of "priority" orders experts as its formula does, at any later moment. */
static void priority_formula(void **state)
{
    (void)state;
    const mo_policy *p = mo_policy_find("priority");
    uint64_t random = 5;
    for (int round = 0; round < 2000; round++) {
        mo_policy_entry e[2] = {0};
        double value[2];
        uint64_t now = 1;
        for (int i = 0, touches = 1 + (int)random_below(&random, 30); i < touches; i++) {
            now += (uint64_t)random_below(&random, 40);
            p->touch(&e[random_below(&random, 2)], now, 1);
        }
        now += (uint64_t)random_below(&random, 500);
        if (!e[0].count || !e[1].count) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            value[i] = (double)e[i].count * pow(0.25, (double)(now - e[i].last) / 128.0);
        }
        if (fabs(value[0] - value[1]) > 1e-9 * (value[0] + value[1])) {
            assert_int_equal(e[0].key < e[1].key, value[0] < value[1]);
        }
    }
}

/* ---- What the default learns -------------------------------------------------------------------- */

/* Hits of one layer's experts, one per step, after the first half. */
static int hits_of(const mo_policy *policy, int32_t experts, int32_t slots, const int32_t *uses, int count)
{
    mo_slots *s = NULL;
    int hits = 0;
    int32_t evicted;
    assert_int_equal(mo_slots_create(policy, experts, slots, &s, &err), MO_OK);
    for (int i = 0; i < count; i++) {
        mo_slots_touch(s, uses[i], (uint64_t)i + 1, 1);
        if (mo_slots_find(s, uses[i]) >= 0) {
            hits += i >= count / 2;
            mo_slots_pin(s, uses[i]);
        } else {
            mo_slots_acquire(s, uses[i], &evicted);
        }
        mo_slots_unpin(s, uses[i]);
    }
    mo_slots_destroy(s);
    return hits;
}

enum { USES = 4000 };

/* A loop one expert longer than the slots: LRU never hits, and whoever keeps something does. */
static void loops(void **state)
{
    (void)state;
    int32_t uses[USES];
    for (int i = 0; i < USES; i++) {
        uses[i] = i % 11;
    }
    assert_int_equal(hits_of(mo_policy_find("lru"), 11, 10, uses, USES), 0);
    assert_in_range(hits_of(mo_policy_find("auto"), 11, 10, uses, USES), USES / 2 * 8 / 10, USES / 2);
}

/* Favourites that change every 400 steps: counting for ever fails, and the default follows. */
static void favourites_change(void **state)
{
    (void)state;
    int32_t uses[USES];
    uint64_t random = 3;
    for (int i = 0; i < USES; i++) {
        const int32_t first = 5 * (i / 400 % 8);
        uses[i] = random_below(&random, 10) < 8 ? first + (int32_t)random_below(&random, 5)
                                                : (int32_t)random_below(&random, 40);
    }
    const int ours = hits_of(mo_policy_find("auto"), 40, 8, uses, USES);
    assert_true(ours > hits_of(mo_policy_find("lfu"), 40, 8, uses, USES) + USES / 20);
    assert_true(ours >= hits_of(mo_policy_find("lru"), 40, 8, uses, USES));
}

/* Four of 128 experts a step. Where all are alike no exchange pays by their chances; where some are favourites, it does. */
static void chances_are_learned(void **state)
{
    (void)state;
    for (int favourites = 0; favourites < 2; favourites++) {
        mo_slots *s = NULL;
        uint64_t random = 5;
        double least = 1, most = 0;
        assert_int_equal(mo_slots_create(mo_policy_find("auto"), 128, 40, &s, &err), MO_OK);
        for (uint64_t now = 1; now <= 4000; now++) {
            for (int32_t i = 0; i < 4; i++) {
                const bool one = favourites && random_below(&random, 10) < 8;
                mo_slots_touch(s, one ? 2 * i : (int32_t)random_below(&random, 128), now, 1);
            }
        }
        for (int32_t i = 0; i < 128; i++) {
            const double chance = mo_slots_chance(s, i);
            assert_true(chance >= 0 && chance <= 1);
            least = chance < least ? chance : least;
            most = chance > most ? chance : most;
        }
        assert_true(favourites ? most - least > 0.3 : most - least < 1.0 / 16);
        assert_true(!favourites || mo_slots_chance(s, 4) - mo_slots_chance(s, 5) > 1.0 / 16);
        mo_slots_destroy(s);
    }
    mo_slots *s = NULL;
    assert_int_equal(mo_slots_create(mo_policy_find("lru"), 8, 4, &s, &err), MO_OK);
    assert_true(mo_slots_chance(s, 0) < 0);
    mo_slots_destroy(s);
}

/* ---- The map on a device ------------------------------------------------------------------------ */

/* Each switch sends the state of its moment, however long its copy waits in the stream and whatever changes meanwhile. */
static void switches_send_their_moment(void **state)
{
    (void)state;
    enum { EXPERTS = 64, BYTES = 1 << 20, ROUNDS = 6 };
    const mo_sim_options slow = {.memory_bytes = 8 << 20, .link_bytes_s = 20e6};
    const mo_vram_layer layer = {.bytes = 64, .experts = EXPERTS};
    const int32_t slots[MO_VRAM_CLASSES] = {EXPERTS};
    mo_device *device = NULL;
    mo_dstream *stream = NULL;
    mo_vram *v = NULL;
    mo_daddr block = 0, copies = 0;
    void *big = NULL;
    mo_daddr seen;
    assert_int_equal(mo_sim_open(&slow, &device, &err), MO_OK);
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    assert_int_equal(mo_device_alloc(device, BYTES, &block, &err), MO_OK);
    assert_int_equal(mo_device_alloc(device, ROUNDS * EXPERTS * sizeof(mo_daddr), &copies, &err), MO_OK);
    assert_int_equal(mo_device_pin(device, BYTES, &big, &seen, &err), MO_OK);
    assert_int_equal(mo_vram_open(device, &layer, 1, slots, NULL, &v, &err), MO_OK);
    assert_int_equal(mo_vram_switch(v, stream, &err), MO_OK);
    mo_daddr expected[ROUNDS][EXPERTS], found[ROUNDS][EXPERTS];
    for (int round = 0; round < ROUNDS; round++) {
        const int count = round % 2 ? 20 : 2; /* the whole map, and single entries */
        assert_int_equal(mo_copy_in(stream, block, big, BYTES, &err), MO_OK); /* 50 ms */
        for (int e = 0; e < count; e++) {
            if (mo_vram_find(v, 0, e)) {
                mo_vram_drop(v, 0, e);
            } else {
                assert_true(mo_vram_acquire(v, 0, e) != 0);
                mo_vram_landed(v, 0, e);
            }
        }
        for (int e = 0; e < EXPERTS; e++) {
            expected[round][e] = mo_vram_find(v, 0, e);
        }
        assert_int_equal(mo_vram_switch(v, stream, &err), MO_OK);
        assert_int_equal(mo_copy_within(stream, copies + (mo_daddr)round * sizeof *expected,
                                        mo_vram_table(v, 0), sizeof *expected, &err),
                         MO_OK);
    }
    assert_int_equal(mo_copy_out(stream, found, copies, sizeof found, &err), MO_OK);
    assert_int_equal(mo_dstream_wait(stream, &err), MO_OK);
    assert_memory_equal(found, expected, sizeof found);
    mo_vram_close(v);
    mo_device_unpin(device, big);
    mo_device_free(device, copies);
    mo_device_free(device, block);
    mo_dstream_destroy(stream);
    mo_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_the_model),
        cmocka_unit_test(edges),
        cmocka_unit_test(ties),
        cmocka_unit_test(priority_formula),
        cmocka_unit_test(loops),
        cmocka_unit_test(favourites_change),
        cmocka_unit_test(chances_are_learned),
        cmocka_unit_test(switches_send_their_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
