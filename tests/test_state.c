/* The memory of a session: where keys and values are in their blocks, states that share blocks and copy them before they
 * write, what a saved state brings back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kv/state.h"
#include "random.h"

/* ---- Blocks ------------------------------------------------------------------------------------ */

/* Every byte of a block belongs to one vector of one head and position. */
static void a_block_holds_each_vector_once(void **test)
{
    (void)test;
    static const mo_kv_shape shapes[] = {{MO_KV_F32, 1, 64, 64, 0, 0, false},
                                         {MO_KV_F32, 3, 5, 7, 0, 0, false},
                                         {MO_KV_F32, 2, 128, 96, 0, 0, false},
                                         {MO_KV_F32, 4, 20, 33, 0, 0, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const mo_kv_shape s = shapes[i];
        const int64_t bytes = mo_kv_block_bytes(s);
        uint8_t *block = calloc(1, (size_t)bytes);
        for (int h = 0; h < s.heads; h++) {
            const mo_kv_head kv = mo_kv_head_of(s, h, &block, 1);
            assert_int_equal((mo_kv_key(&kv, 0) - block) % 128, 0);
            assert_int_equal((mo_kv_value(&kv, 0) - block) % 128, 0);
            for (int64_t u = 0; u < MO_KV_BLOCK; u++) {
                for (int64_t j = 0; j < kv.k_bytes; j++) {
                    mo_kv_key(&kv, u)[j]++;
                }
                for (int64_t j = 0; j < kv.v_bytes; j++) {
                    mo_kv_value(&kv, u)[j]++;
                }
            }
        }
        for (int64_t j = 0; j < bytes; j++) {
            assert_int_equal(block[j], 1);
        }
        free(block);
    }
}

/* ---- A model without weights ------------------------------------------------------------------- */

enum { LAYERS = 3, CONTEXT = 1000, BATCH = 60 };

/* All positions, a window, a window with other heads; or the delta rule in place of the last. */
static void fill_spec(mo_model_spec *spec, mo_layer layers[LAYERS], bool recurrent)
{
    memset(layers, 0, LAYERS * sizeof *layers);
    layers[0].attention = (mo_attention){.heads = 4, .kv_heads = 2, .k_len = 8, .v_len = 6};
    layers[1].attention = (mo_attention){.heads = 4, .kv_heads = 2, .k_len = 8, .v_len = 6, .window = 100};
    layers[2].attention = (mo_attention){.heads = 2, .kv_heads = 1, .k_len = 32, .v_len = 32, .window = 130};
    if (recurrent) {
        layers[2].mixer = MO_MIXER_DELTA;
        layers[2].delta = (mo_delta){.k_heads = 1, .v_heads = 2, .head = 8, .taps = 4};
    }
    *spec = (mo_model_spec){.layer_count = LAYERS, .layers = layers};
}

static void write_vector(const mo_kv_head *kv, int64_t u, bool value, uint64_t *seed)
{
    const int64_t bytes = value ? kv->v_bytes : kv->k_bytes;
    uint8_t row[256];
    assert_true(bytes <= (int64_t)sizeof row);
    for (int64_t j = 0; j < bytes; j++) {
        row[j] = (uint8_t)random_next(seed);
    }
    mo_kv_codes_in(kv, u, value, row);
}

/* What a step leaves: `count` positions more, of bytes that depend on the text so far. */
static void grow(mo_state *s, int64_t count, uint64_t text)
{
    assert_int_equal(mo_state_own(s, s->length, s->length + count, NULL, NULL), MO_OK);
    for (int i = 0; i < LAYERS; i++) {
        const mo_state_layer *l = &s->layers[i];
        uint64_t seed = text * 31 + (uint64_t)i;
        for (int64_t j = 0; l->recurrent && j < l->conv_values; j++) {
            l->conv[j] = (float)random_below(&seed, 1000);
        }
        for (int64_t j = 0; l->recurrent && j < l->delta_values; j++) {
            l->delta[j] = (float)random_below(&seed, 1000);
        }
        for (int h = 0; !l->recurrent && h < l->kv.heads; h++) {
            const mo_kv_head kv = mo_state_head(s, i, h);
            for (int64_t u = s->length; u < s->length + count; u++) {
                write_vector(&kv, u, false, &seed);
                write_vector(&kv, u, true, &seed);
            }
        }
    }
    s->length += count;
    s->written = s->length > s->written ? s->length : s->written;
}

static uint8_t *saved(const mo_state *s)
{
    uint8_t *bytes = malloc(mo_state_saved_bytes(s));
    mo_state_save(s, bytes);
    return bytes;
}

static void assert_holds(const mo_state *s, const uint8_t *want)
{
    uint8_t *got = saved(s);
    assert_memory_equal(got, want, mo_state_saved_bytes(s));
    free(got);
}

static mo_block_pool *open_pool(const mo_model_spec *spec, const mo_state_size *more)
{
    mo_state_size size = *more;
    mo_block_pool *pool;
    size.context = CONTEXT;
    size.batch = BATCH;
    assert_int_equal(mo_state_pool(spec, &size, true, &mo_block_source_ram, &pool, NULL), MO_OK);
    return pool;
}

static void share(mo_state *to, mo_state *from)
{
    mo_state_adopt(to, &from->here, mo_state_mark_of(from));
}

static void open_state(mo_state *s, mo_block_pool *pool, const mo_model_spec *spec)
{
    assert_int_equal(mo_state_init_in(s, pool, spec, MO_KV_I16, CONTEXT, BATCH, NULL), MO_OK);
}

/* ---- Sharing ----------------------------------------------------------------------------------- */

static int shared_blocks(const mo_state *a, const mo_state *b)
{
    int count = 0;
    for (int i = 0; i < LAYERS; i++) {
        for (int64_t e = 0; e < a->layers[i].length; e++) {
            count += a->layers[i].blocks[e] && a->layers[i].blocks[e] == b->layers[i].blocks[e];
        }
    }
    return count;
}

/* Three states with a common beginning go on in turn, each with a text of its own, around their circular tables: none
 * sees what another writes, and blocks that nobody writes stay shared. */
static void forks_do_not_see_each_other(void **test)
{
    (void)test;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        mo_model_spec spec;
        mo_layer layers[LAYERS];
        mo_state s[3], alone[3];
        fill_spec(&spec, layers, recurrent);
        mo_block_pool *pool = open_pool(&spec, &(mo_state_size){.sessions = 3});
        for (int i = 0; i < 3; i++) {
            open_state(&s[i], pool, &spec);
            assert_int_equal(mo_state_init(&alone[i], &spec, MO_KV_I16, CONTEXT, BATCH, NULL), MO_OK);
        }
        for (int i = 0; i < 5; i++) {
            grow(&s[0], BATCH, (uint64_t)i);
            for (int j = 0; j < 3; j++) {
                grow(&alone[j], BATCH, (uint64_t)i);
            }
        }
        grow(&s[1], 40, 99); /* forgotten by sharing */
        share(&s[1], &s[0]);
        share(&s[2], &s[1]);
        assert_true(shared_blocks(&s[0], &s[1]) > 0);
        for (int i = 0; i < 36; i++) {
            const int who = i * 7 % 3;
            const int64_t count = 1 + i * 13 % 30;
            grow(&s[who], count, 100 + (uint64_t)i);
            grow(&alone[who], count, 100 + (uint64_t)i);
            for (int j = 0; j < 3; j++) {
                uint8_t *want = saved(&alone[j]);
                assert_int_equal(s[j].length, alone[j].length);
                assert_holds(&s[j], want);
                free(want);
            }
        }
        /* 300 positions are two whole blocks of the layer that keeps all, and part of a third, which each has now. */
        assert_ptr_equal(s[0].layers[0].blocks[1], s[2].layers[0].blocks[1]);
        assert_ptr_not_equal(s[0].layers[0].blocks[2], s[2].layers[0].blocks[2]);
        for (int i = 0; i < 3; i++) { /* every block comes back: the pool has enough for three anew */
            mo_state_drop(&s[i]);
            mo_state_drop(&alone[i]);
        }
        for (int i = 0; i < 3; i++) {
            open_state(&s[i], pool, &spec);
            grow(&s[i], BATCH, 7);
        }
        assert_int_equal(shared_blocks(&s[0], &s[1]), 0);
        for (int i = 0; i < 3; i++) {
            mo_state_drop(&s[i]);
        }
        mo_block_pool_close(pool, false);
    }
}

/* A state is restored where its blocks were shared: the other keeps what it has. */
static void restoring_leaves_the_others_alone(void **test)
{
    (void)test;
    mo_model_spec spec;
    mo_layer layers[LAYERS];
    mo_state a, b;
    fill_spec(&spec, layers, false);
    mo_block_pool *pool = open_pool(&spec, &(mo_state_size){.sessions = 2});
    open_state(&a, pool, &spec);
    open_state(&b, pool, &spec);
    grow(&a, BATCH, 1);
    uint8_t *first = saved(&a);
    const size_t bytes = mo_state_saved_bytes(&a);
    mo_state_reset(&a);
    grow(&a, BATCH, 2);
    share(&b, &a);
    uint8_t *second = saved(&b);
    assert_int_equal(mo_state_restore(&a, first, bytes, BATCH, BATCH, NULL), MO_OK);
    assert_holds(&a, first);
    assert_holds(&b, second);
    free(first);
    free(second);
    mo_state_drop(&a);
    mo_state_drop(&b);
    mo_block_pool_close(pool, false);
}

/* ---- The pool ---------------------------------------------------------------------------------- */

typedef struct held {
    int32_t number;
    int64_t bytes;
    uint64_t address;
    int holders, keepers;
} held;

/* What the pool counts is what its blocks are, and no two of them overlap. */
static void compare_pool(mo_block_pool *pool, const held *list, int count)
{
    int64_t states = 0, snapshots = 0;
    for (int i = 0; i < count; i++) {
        states += list[i].holders ? list[i].bytes : 0;
        snapshots += list[i].holders ? 0 : list[i].bytes;
        for (int j = 0; j < i; j++) {
            assert_true(list[i].address + (uint64_t)list[i].bytes <= list[j].address ||
                        list[j].address + (uint64_t)list[j].bytes <= list[i].address);
        }
    }
    const mo_block_counts c = mo_block_pool_count(pool);
    assert_int_equal(c.held, states);
    assert_int_equal(c.kept, snapshots);
    assert_int_equal(c.free, c.total - states - snapshots);
}

/* Blocks of three sizes are acquired, held, released in any order; a pool that is fixed gives at least what was planned for its
 * states, and for snapshots what its chunks hold. */
static void a_pool_against_a_list(void **test)
{
    (void)test;
    enum { HOMES = 2, MOST = 400 };
    static const mo_block_need needs[] = {{100, 4}, {640, 3}, {100, 2}, {2000, 1}};
    static const int64_t total[] = {10, 8, 5, 3};
    for (uint64_t seed = 1; seed < 12; seed++) {
        uint64_t random = seed;
        const mo_block_share planned = {
            .needs = needs, .layers = 4, .states = 3, .total = total, .kept_bytes = 20000, .fixed = true};
        mo_block_pool *pool = mo_block_pool_open(needs, 4, &mo_block_source_ram, &planned);
        held list[MOST];
        int count = 0, homes[3], refused = 0;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mo_block_pool_enter(pool, needs, &homes[i], NULL), MO_OK);
            assert_true(i < HOMES ? homes[i] >= 0 : homes[i] < 0); /* the third shares what is loose */
        }
        assert_int_equal(mo_block_pool_count(pool).total, mo_block_share_bytes(&planned));
        for (int step = 0; step < 1500; step++) {
            const int kind = (int)random_below(&random, step / 300 % 2 ? 5 : 4);
            mo_block_pool_lock(pool);
            if (kind < 2) {
                const int layer = (int)random_below(&random, 4);
                const mo_block_holder who = random_below(&random, 2) ? MO_HOLDS : MO_KEEPS;
                const int32_t number = mo_block_acquire(pool, layer, homes[random_below(&random, 3)],
                                                        random_below(&random, needs[layer].count), who);
                refused += number < 0;
                if (number >= 0) {
                    assert_true(count < MOST);
                    list[count++] = (held){.number = number,
                                           .bytes = mo_block_bytes(pool, number),
                                           .address = mo_block_address(pool, number),
                                           .holders = who == MO_HOLDS,
                                           .keepers = who == MO_KEEPS};
                    assert_true(list[count - 1].bytes >= needs[layer].bytes);
                }
            } else if (count > 0) {
                const int which = (int)random_below(&random, count);
                held *h = &list[which];
                const mo_block_holder who = h->holders ? MO_HOLDS : MO_KEEPS;
                assert_true(mo_block_is_shared(pool, h->number) == (h->holders + h->keepers > 1));
                if (kind == 2) {
                    mo_block_hold(pool, h->number, MO_KEEPS);
                    h->keepers++;
                } else {
                    mo_block_release(pool, h->number, who);
                    *(who == MO_HOLDS ? &h->holders : &h->keepers) -= 1;
                    if (h->holders + h->keepers == 0) {
                        *h = list[--count];
                    }
                }
            }
            mo_block_pool_unlock(pool);
            if (step % 20 == 0) {
                compare_pool(pool, list, count);
            }
        }
        assert_true(refused > 0);
        mo_block_pool_lock(pool);
        while (count > 0) {
            const held *h = &list[--count];
            for (int i = 0; i < h->holders + h->keepers; i++) {
                mo_block_release(pool, h->number, i < h->holders ? MO_HOLDS : MO_KEEPS);
            }
        }
        for (int layer = 0; layer < 4; layer++) { /* all that was planned can be had again */
            for (int64_t b = 0; b < total[layer]; b++) {
                assert_true(mo_block_acquire(pool, layer, -1, 0, MO_HOLDS) >= 0);
            }
        }
        mo_block_pool_unlock(pool);
        mo_block_pool_close(pool, false);
    }
}

/* States beyond the plan bring memory of their own and leave nothing behind, also after snapshots have held some of it. */
static void states_beyond_the_plan_bring_their_own(void **test)
{
    (void)test;
    mo_model_spec spec;
    mo_layer layers[LAYERS];
    fill_spec(&spec, layers, true);
    const mo_state_size size = {.context = CONTEXT, .batch = BATCH, .sessions = 2};
    mo_block_pool *pool = open_pool(&spec, &(mo_state_size){.sessions = 2});
    for (int round = 0; round < 40; round++) {
        mo_state s[5];
        mo_blocks kept;
        for (int i = 0; i < 5; i++) {
            const int64_t context = i < 2 ? CONTEXT : 200 + 150 * ((i + round) % 4);
            assert_int_equal(mo_state_init_in(&s[i], pool, &spec, MO_KV_I16, context, BATCH, NULL), MO_OK);
            grow(&s[i], BATCH, (uint64_t)i);
        }
        assert_true(mo_block_pool_count(pool).total > mo_state_pool_bytes(&spec, &size));
        assert_int_equal(mo_state_blocks(&s[4], pool, MO_KEEPS, BATCH, &kept, NULL), MO_OK);
        mo_blocks_share(&kept, &s[4].here, BATCH);
        for (int i = 0; i < 5; i++) {
            mo_state_drop(&s[i]);
        }
        mo_block_pool_sweep(pool);
        assert_true(mo_block_pool_count(pool).kept > 0);
        mo_blocks_drop(&kept);
        mo_block_pool_sweep(pool);
        assert_int_equal(mo_block_pool_count(pool).total, mo_state_pool_bytes(&spec, &size));
        assert_int_equal(mo_block_pool_count(pool).pieces, 1);
    }
    mo_block_pool_close(pool, false);
}

/* ---- Memory that goes back -------------------------------------------------------------------- */

/* Bytes of the blocks' pages that are in RAM. */
static int64_t resident_bytes(const uint64_t *addresses, int count, int64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        for (uintptr_t at = addresses[i] / page * page; at < addresses[i] + (uintptr_t)bytes; at += page) {
            unsigned char there = 0;
            assert_int_equal(mincore((void *)at, (size_t)page, &there), 0);
            sum += there & 1 ? (int64_t)page : 0;
        }
    }
    return sum;
}

/* What nobody holds goes back to the system when the pool is trimmed, what somebody holds stays as it is, and a block that is taken
 * again can be written. Blocks of homes, loose ones and those of chunks; runs that are longer than what is given back at once. */
static void free_blocks_go_back_to_the_system(void **test)
{
    (void)test;
    enum { COUNT = 96, KEPT = COUNT / 8 };
    const int64_t bytes = 512 << 10;
    const mo_block_need need = {bytes, COUNT / 4};
    const int64_t total = COUNT / 2;
    const mo_block_share planned = {.needs = &need,
                                    .layers = 1,
                                    .states = 2,
                                    .total = &total,
                                    .kept_bytes = bytes * COUNT / 2,
                                    .fixed = true};
    mo_block_pool *pool = mo_block_pool_open(&need, 1, &mo_block_source_ram, &planned);
    int home;
    assert_int_equal(mo_block_pool_enter(pool, &need, &home, NULL), MO_OK);
    int32_t numbers[COUNT];
    uint64_t addresses[COUNT], gone[COUNT];
    int free_count = 0;
    mo_block_pool_lock(pool);
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = mo_block_acquire(pool, 0, home, i, MO_KEEPS);
        assert_true(numbers[i] >= 0);
        addresses[i] = mo_block_address(pool, numbers[i]);
        memset((void *)(uintptr_t)addresses[i], i + 1, (size_t)bytes);
    }
    mo_block_pool_unlock(pool);
    mo_block_pool_trim(pool); /* there is nothing to give */
    assert_true(resident_bytes(addresses, COUNT, bytes) >= bytes * COUNT);
    mo_block_pool_lock(pool);
    for (int i = 0; i < COUNT; i++) {
        if (i % (COUNT / KEPT) != 3) {
            mo_block_release(pool, numbers[i], MO_KEEPS);
            gone[free_count++] = addresses[i];
        }
    }
    mo_block_pool_unlock(pool);
    const int64_t before = resident_bytes(gone, free_count, bytes);
    mo_block_pool_trim(pool);
    assert_true(resident_bytes(gone, free_count, bytes) <= before / 20);
    for (int i = 3; i < COUNT; i += COUNT / KEPT) {
        const uint8_t *at = (const uint8_t *)(uintptr_t)addresses[i];
        assert_true(at[0] == i + 1 && memcmp(at, at + 1, (size_t)bytes - 1) == 0);
    }
    mo_block_pool_lock(pool);
    for (int i = 0; i < free_count; i++) {
        const int32_t number = mo_block_acquire(pool, 0, -1, 0, MO_HOLDS);
        assert_true(number >= 0);
        memset((void *)(uintptr_t)mo_block_address(pool, number), 255, (size_t)bytes);
    }
    mo_block_pool_unlock(pool);
    for (int i = 3; i < COUNT; i += COUNT / KEPT) {
        const uint8_t *at = (const uint8_t *)(uintptr_t)addresses[i];
        assert_true(at[0] == i + 1 && memcmp(at, at + 1, (size_t)bytes - 1) == 0);
    }
    mo_block_pool_close(pool, false);
}

/* ---- Saving and going back --------------------------------------------------------------------- */

/* A saved state does not depend on how much the session could hold; of a window it brings what is still seen, so going
 * back to where more would be seen is refused. */
static void saved_windows_go_back_as_far_as_they_see(void **test)
{
    (void)test;
    mo_model_spec spec;
    mo_layer layers[LAYERS];
    mo_state a, b;
    fill_spec(&spec, layers, false);
    assert_int_equal(mo_state_init(&a, &spec, MO_KV_I16, CONTEXT, BATCH, NULL), MO_OK);
    assert_int_equal(mo_state_init(&b, &spec, MO_KV_I16, 700, 300, NULL), MO_OK);
    for (int i = 0; i < 10; i++) {
        grow(&a, BATCH, (uint64_t)i);
    }
    uint8_t *want = saved(&a);
    const size_t bytes = mo_state_saved_bytes(&a);
    assert_int_equal(mo_state_restore(&b, want, bytes, 600, 600, NULL), MO_OK);
    assert_holds(&b, want);
    assert_false(mo_state_trim(&b, 599)); /* sees one position more than were saved */
    assert_int_equal(b.length, 600);
    assert_true(mo_state_trim(&a, 590)); /* has them still */
    grow(&b, 20, 77);
    assert_true(mo_state_trim(&b, 605));
    assert_false(mo_state_trim(&b, 599));
    assert_true(mo_state_trim(&b, 0));
    grow(&b, 50, 5);
    assert_true(mo_state_trim(&b, 20)); /* begun anew: everything is there */
    free(want);
    mo_state_drop(&a);
    mo_state_drop(&b);
}

/* What a plan counts is what the blocks take. */
static void planned_bytes_are_those_of_the_blocks(void **test)
{
    (void)test;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        for (int64_t context = 1; context < 1200; context += 97) {
            mo_model_spec spec;
            mo_layer layers[LAYERS];
            mo_state s;
            fill_spec(&spec, layers, recurrent);
            assert_int_equal(mo_state_init(&s, &spec, MO_KV_Q8_0, context, BATCH, NULL), MO_OK);
            assert_int_equal(mo_state_own(&s, 0, context, NULL, NULL), MO_OK);
            int64_t entries = 0;
            const uint8_t *at = s.layers[0].blocks[0];
            for (int i = 0; i < LAYERS; i++) {
                const mo_state_layer *l = &s.layers[i];
                entries += l->length;
                for (int64_t e = 0; e < l->length; e++) {
                    assert_ptr_equal(l->blocks[e], at);
                    at += ((l->recurrent ? (uint8_t *)(l->delta + l->delta_values) - l->blocks[0]
                                         : mo_kv_block_bytes(l->kv)) +
                           63) /
                          64 * 64;
                }
                assert_true(l->recurrent || l->circular || l->length * MO_KV_BLOCK >= context);
            }
            const mo_block_counts counts = mo_block_pool_count(s.here.pool);
            assert_int_equal(at - s.layers[0].blocks[0], mo_state_bytes(&spec, MO_KV_Q8_0, context, BATCH));
            assert_int_equal(counts.total, mo_state_bytes(&spec, MO_KV_Q8_0, context, BATCH));
            assert_int_equal(counts.held, counts.total);
            assert_int_equal(entries, mo_state_entries(&spec, context, BATCH));
            mo_state_drop(&s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_holds_each_vector_once),
        cmocka_unit_test(forks_do_not_see_each_other),
        cmocka_unit_test(restoring_leaves_the_others_alone),
        cmocka_unit_test(a_pool_against_a_list),
        cmocka_unit_test(states_beyond_the_plan_bring_their_own),
        cmocka_unit_test(free_blocks_go_back_to_the_system),
        cmocka_unit_test(saved_windows_go_back_as_far_as_they_see),
        cmocka_unit_test(planned_bytes_are_those_of_the_blocks),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
