/* What every device promises: memory, streams, events, copies, programs, and ops with the bits of the scalar
 * definition. Runs on the host device and the simulated one; on a GPU when MO_TEST_CUDA is set (0, or 75 or 80 for
 * the PTX of that architecture); on an emulated one when the program brings it. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device_case.h"
#include "sanitized.h"

#define GOOD(call)                                                                                           \
    do {                                                                                                     \
        mo_error err_ = {0};                                                                                 \
        mo_error *err = &err_;                                                                               \
        if ((call) != MO_OK) {                                                                               \
            fail_msg("%s: %s", #call, err_.detail);                                                          \
        }                                                                                                    \
    } while (0)

/* ---- Memory and copies ------------------------------------------------------------------------ */

static void fill_bytes(uint8_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)random_next(&seed);
    }
}

static void check_allocation(mo_device *device)
{
    enum { COUNT = 40 };
    mo_daddr at[COUNT];
    size_t bytes[COUNT];
    mo_error why = {0};
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = (size_t)i * 777 + 1;
        GOOD(mo_device_alloc(device, bytes[i], &at[i], err));
        assert_int_equal(at[i] % MO_OP_ALIGN, 0);
        for (int j = 0; j < i; j++) {
            assert_true(at[i] + bytes[i] <= at[j] || at[j] + bytes[j] <= at[i]);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        mo_device_free(device, at[i * 7 % COUNT]);
    }
    mo_device_free(device, 0);
    mo_daddr none = 1;
    assert_int_equal(mo_device_alloc(device, (size_t)1 << 50, &none, &why), MO_ENOMEM);
    assert_int_equal(none, 0);
    assert_true(why.detail[0] != '\0');
}

/* Through the device and back, from `host` memory of any kind. */
static void check_copies(mo_device *device, mo_dstream *stream, uint8_t *host, size_t bytes)
{
    mo_daddr a, b;
    GOOD(mo_device_alloc(device, bytes, &a, err));
    GOOD(mo_device_alloc(device, bytes, &b, err));
    uint8_t *expected = malloc(bytes);
    static const size_t sizes[] = {1, 3, 4, 17, 255, 4096, 4097, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i], shift = i * 5 % 13;
        fill_bytes(host, bytes, i);
        memcpy(expected, host + shift, n);
        GOOD(mo_device_clear(stream, a, bytes, err));
        GOOD(mo_copy_in(stream, a + shift, host + shift, n, err));
        GOOD(mo_copy_within(stream, b, a, shift + n, err));
        GOOD(mo_dstream_wait(stream, err));
        memset(host, 0xEE, bytes);
        GOOD(mo_copy_out(stream, host, b, shift + n, err));
        GOOD(mo_dstream_wait(stream, err));
        for (size_t j = 0; j < shift; j++) {
            assert_int_equal(host[j], 0);
        }
        assert_memory_equal(host + shift, expected, n);
        assert_int_equal(host[shift + n], 0xEE);
    }
    GOOD(mo_copy_in(stream, 0, NULL, 0, err)); /* nothing is allowed */
    free(expected);
    mo_device_free(device, a);
    mo_device_free(device, b);
}

static void test_memory(void **state)
{
    (void)state;
    enum { BYTES = 70000 };
    for (const char **name = device_names; *name; name++) {
        mo_device *device = device_open(*name);
        mo_dstream *stream;
        mo_device_info info;
        mo_device_describe(device, &info);
        assert_true(info.name[0] && info.kind && info.total_bytes > 0);
        GOOD(mo_dstream_create(device, &stream, err));
        check_allocation(device);

        uint8_t *plain = malloc(BYTES);
        check_copies(device, stream, plain, BYTES);
        free(plain);

        void *pinned;
        mo_daddr seen;
        GOOD(mo_device_pin(device, BYTES, &pinned, &seen, err));
        assert_int_equal((uintptr_t)pinned % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
        assert_true(seen != 0);
        check_copies(device, stream, pinned, BYTES);
        mo_device_unpin(device, pinned);
        mo_device_unpin(device, NULL);

        uint8_t *adopted = aligned_alloc(65536, 131072);
        GOOD(mo_device_adopt(device, adopted, 131072, err));
        check_copies(device, stream, adopted, BYTES);
        mo_device_release(device, adopted);
        check_copies(device, stream, adopted, BYTES);
        free(adopted);
        mo_dstream_destroy(stream);
        mo_dstream_destroy(NULL);
        mo_device_close(device);
    }
    mo_device_close(NULL);
}

/* ---- Streams and events ----------------------------------------------------------------------- */

/* A value goes from stream to stream, each waiting for the one before: nobody may be prelaunch. */
static void test_order(void **state)
{
    (void)state;
    enum { STREAMS = 3, ROUNDS = 20, BYTES = 100000 };
    for (const char **name = device_names; *name; name++) {
        mo_device *device = device_open(*name);
        mo_dstream *stream[STREAMS];
        mo_event *event[STREAMS], *begin, *end;
        mo_daddr at[STREAMS + 1];
        uint8_t *pinned;
        mo_daddr seen;
        GOOD(mo_device_pin(device, 2 * BYTES, (void **)&pinned, &seen, err));
        GOOD(mo_event_create(device, &begin, err));
        GOOD(mo_event_create(device, &end, err));
        for (int i = 0; i < STREAMS; i++) {
            GOOD(mo_dstream_create(device, &stream[i], err));
            GOOD(mo_event_create(device, &event[i], err));
        }
        for (int i = 0; i <= STREAMS; i++) {
            GOOD(mo_device_alloc(device, BYTES, &at[i], err));
        }
        bool done = false;
        GOOD(mo_event_query(begin, &done, err));
        assert_true(done); /* never recorded: nothing to wait for */
        for (int round = 0; round < ROUNDS; round++) {
            memset(pinned, round + 1, BYTES);
            GOOD(mo_event_record(begin, stream[0], err));
            GOOD(mo_copy_in(stream[0], at[0], pinned, BYTES, err));
            for (int i = 0; i < STREAMS; i++) {
                GOOD(mo_copy_within(stream[i], at[i + 1], at[i], BYTES, err));
                GOOD(mo_event_record(event[i], stream[i], err));
                GOOD(mo_dstream_after(stream[(i + 1) % STREAMS], event[i], err));
            }
            GOOD(mo_copy_out(stream[0], pinned + BYTES, at[STREAMS], BYTES, err));
            GOOD(mo_event_record(end, stream[0], err));
            if (round % 2) {
                GOOD(mo_event_wait(end, err));
            } else {
                for (done = false; !done;) {
                    GOOD(mo_event_query(end, &done, err));
                }
            }
            assert_memory_equal(pinned, pinned + BYTES, BYTES);
            double seconds = -1.0;
            GOOD(mo_event_seconds(begin, end, &seconds, err));
            assert_true(seconds >= 0.0 && seconds < 60.0);
        }
        for (int i = 0; i < STREAMS; i++) {
            mo_dstream_destroy(stream[i]);
            mo_event_destroy(event[i]);
        }
        for (int i = 0; i <= STREAMS; i++) {
            mo_device_free(device, at[i]);
        }
        mo_event_destroy(begin);
        mo_event_destroy(end);
        mo_event_destroy(NULL);
        mo_device_unpin(device, pinned);
        mo_device_close(device);
    }
}

/* ---- Ops -------------------------------------------------------------------------------------- */

static void run_variant(box *b, const device_case *c, int variant, bool as_program)
{
    mo_op op;
    memset(&op, 0, sizeof op);
    box_clear(b, (uint64_t)variant * 1000003 + (uint64_t)c->variants);
    c->build(b, &op, variant);
    GOOD(box_run(b, &op, as_program, err));
    c->reference(b, &op);
    box_check(b, c->name, variant);
}

/* Thread sanitizer takes ten times as long, and looks at streams, not at sizes. */
#if defined(__SANITIZE_THREAD__)
enum { FEWER = 5 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { FEWER = 5 };
#else
enum { FEWER = 1 };
#endif
#else
enum { FEWER = 1 };
#endif

static bool has_bf16(mo_device *device)
{
    mo_device_info info;
    mo_device_describe(device, &info);
    return info.bf16;
}

/* What a case's variants have had so far. Builders take their choices from remainders of the variant, or of a half or a third of it, or of
 * how often the types of blocks came before. */
typedef struct sample {
    bool type[BLOCK_TYPES], had[4][13][12];
} sample;

/* Whether a variant has a type or a remainder that none before it had. */
static bool is_new(sample *s, int variant)
{
    static const int parts[4] = {1, 2, 3, BLOCK_TYPES};
    bool new = !s->type[variant % BLOCK_TYPES];
    s->type[variant % BLOCK_TYPES] = true;
    for (int i = 0; i < 4; i++) {
        for (int period = 2; period <= 12; period++) {
            bool *had = &s->had[i][period][variant / parts[i] % period];
            new |= !*had;
            *had = true;
        }
    }
    return new;
}

/* The host device shares its ops with the simulated one and takes every third variant. The address sanitizer takes of them those that are
 * new in something. */
static void test_case(void **state)
{
    const device_case *c = *state;
    for (const char **name = device_names; *name; name++) {
        box b;
        box_open(&b, *name);
        if (strcmp(c->name, "wide") == 0 && !has_bf16(b.device)) {
            print_message("left out: %s has no products in bfloat16\n", *name);
            box_close(&b);
            continue;
        }
        const int step = strcmp(*name, "scalar") == 0 ? 3 * FEWER : FEWER;
        sample s = {.type = {false}};
        for (int i = 0; i * step < c->variants; i++) {
            if (!SANITIZED_MEMORY || is_new(&s, i * step)) {
                run_variant(&b, c, i * step, i % 4 == 3);
            }
        }
        box_close(&b);
    }
}

/* Numbers that are none are told, whoever makes them. */
static void test_bad(void **state)
{
    (void)state;
    for (const char **name = device_names; *name; name++) {
        box b;
        box_open(&b, *name);
        for (int where = 0; where < 4; where++) { /* in the stream of token `where` */
            mo_op op;
            memset(&op, 0, sizeof op);
            box_clear(&b, 1);
            op.kind = MO_OP_STREAM;
            op.stream.tokens = 3;
            op.stream.n = 100;
            op.stream.eps = 1e-5f;
            float *x = box_filled(&b, 300, 0);
            if (where < 3) {
                x[100 * where + 99] = where == 1 ? INFINITY : NAN;
            }
            uint32_t *bad = memset(box_alloc(&b, 4), 0, 4);
            op.stream.x = box_address(&b, x);
            op.stream.bad = box_address(&b, bad);
            GOOD(box_run(&b, &op, false, err));
            assert_int_equal(*(const uint32_t *)(const void *)(b.got + ((uint8_t *)bad - b.want)), where < 3);
        }
        /* Floats hold what is finite, codes what can be added. */
        for (int kv = 0; kv < MO_KV_TYPES; kv++) {
            for (int much = 0; much < 2; much++) {
                mo_op op;
                memset(&op, 0, sizeof op);
                box_clear(&b, 2);
                mo_dstate *layer = box_alloc(&b, sizeof *layer);
                const mo_kv_shape shape = {.type = kv, .heads = 1, .k_len = 64, .v_len = 64};
                mo_daddr *table = box_alloc(&b, sizeof *table);
                *table = box_address(&b, box_alloc(&b, mo_kv_block_bytes(shape)));
                *layer = (mo_dstate){.blocks = box_address(&b, table), .length = 1};
                mo_dplace *place = box_alloc(&b, sizeof *place);
                *place = (mo_dplace){.layers = box_address(&b, layer), .position = 2};
                float *k = box_filled(&b, 64, 0), *v = box_filled(&b, 64, 0);
                (much ? k : v)[63] = much ? 1e9f : 1e5f;
                if (mo_kv_coded(kv) && much) {
                    k[62] = k[63] = 3e38f;
                }
                uint32_t *bad = memset(box_alloc(&b, 4), 0, 4);
                op.kind = MO_OP_HEADS;
                op.heads = (mo_op_heads){.q = box_address(&b, box_filled(&b, 64, 0)),
                                         .k = box_address(&b, k),
                                         .v = box_address(&b, v),
                                         .places = box_address(&b, place),
                                         .bad = box_address(&b, bad),
                                         .tokens = 1,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .k_len = 64,
                                         .v_len = 64,
                                         .kv = kv,
                                         .eps = 1e-6f};
                GOOD(box_run(&b, &op, false, err));
                const bool expected = mo_kv_coded(kv) && much;
                assert_int_equal(*(const uint32_t *)(const void *)(b.got + ((uint8_t *)bad - b.want)),
                                 expected);
            }
        }
        box_close(&b);
    }
}

/* ---- Programs --------------------------------------------------------------------------------- */

enum { CHAIN = 6, CHAIN_TOKENS = 3, CHAIN_N = 128, CHAIN_WIDTH = 96 };

/* A dense layer's feed-forward part, and a look at the result: each op reads what the one before wrote. */
static void build_chain(box *b, mo_op ops[CHAIN])
{
    memset(ops, 0, sizeof *ops * CHAIN);
    box_clear(b, 11);
    const mo_daddr x = box_address(b, box_filled(b, CHAIN_TOKENS * CHAIN_N, 0));
    const mo_dacts in = box_acts(b, CHAIN_TOKENS, CHAIN_N), hidden = box_acts(b, CHAIN_TOKENS, CHAIN_WIDTH);
    const mo_daddr gate = box_address(b, box_floats(b, CHAIN_TOKENS * CHAIN_WIDTH));
    const mo_daddr up = box_address(b, box_floats(b, CHAIN_TOKENS * CHAIN_WIDTH));
    const mo_daddr down = box_address(b, box_floats(b, CHAIN_TOKENS * CHAIN_N));
    const mo_daddr bad = box_address(b, memset(box_alloc(b, 4), 0, 4));
    ops[0].kind = MO_OP_STREAM;
    ops[0].stream = (mo_op_stream){.x = x, .tokens = CHAIN_TOKENS, .n = CHAIN_N, .eps = 1e-5f};
    ops[0].stream.norm[1] =
        (mo_op_norm){.weight = box_address(b, box_filled(b, CHAIN_N, 0)), .scale = 1.0f, .out = in};
    ops[1].kind = MO_OP_PRODUCT;
    ops[1].product = (mo_op_product){
        .in = in, .tokens = CHAIN_TOKENS, .count = 2, .y = {gate, up}, .stride = {CHAIN_WIDTH, CHAIN_WIDTH}};
    ops[1].product.matrix[0] = box_matrix(b, MO_Q8_0, CHAIN_WIDTH, CHAIN_N, 0, BLOCK_ORDINARY);
    ops[1].product.matrix[1] = box_matrix(b, MO_MXFP4, CHAIN_WIDTH, CHAIN_N, 0, BLOCK_ORDINARY);
    ops[2].kind = MO_OP_ACTIVATE;
    ops[2].activate =
        (mo_op_activate){.gate = gate, .up = up, .hidden = hidden, .rows = CHAIN_TOKENS, .n = CHAIN_WIDTH};
    ops[3].kind = MO_OP_PRODUCT;
    ops[3].product =
        (mo_op_product){.in = hidden, .tokens = CHAIN_TOKENS, .count = 1, .y = {down}, .stride = {CHAIN_N}};
    ops[3].product.matrix[0] = box_matrix(b, MO_Q4_0, CHAIN_N, CHAIN_WIDTH, 0, BLOCK_ORDINARY);
    ops[4].kind = MO_OP_STREAM;
    ops[4].stream = (mo_op_stream){.x = x,
                                   .tokens = CHAIN_TOKENS,
                                   .n = CHAIN_N,
                                   .eps = 1e-5f,
                                   .feed = 1,
                                   .dense = down,
                                   .post_norm = box_address(b, box_filled(b, CHAIN_N, 0)),
                                   .bad = bad};
    ops[5].kind = MO_OP_LOGITS;
    ops[5].logits = (mo_op_logits){.x = x, .count = CHAIN_TOKENS * CHAIN_N, .bad = bad, .cap = 50.0f};
}

static void test_programs(void **state)
{
    (void)state;
    enum { ROUNDS = 4 };
    for (const char **name = device_names; *name; name++) {
        box b;
        mo_op ops[CHAIN];
        mo_program *program, *empty;
        box_open(&b, *name);
        build_chain(&b, ops);
        GOOD(mo_copy_in(b.stream, b.base, b.want, b.used, err));
        for (int i = 0; i < ROUNDS * CHAIN; i++) {
            GOOD(mo_op_launch(b.stream, &ops[i % CHAIN], err));
        }
        GOOD(mo_copy_out(b.stream, b.got, b.base, b.used, err));
        GOOD(mo_dstream_wait(b.stream, err));
        GOOD(mo_program_create(b.device, ops, CHAIN, &program, err));
        GOOD(mo_program_create(b.device, NULL, 0, &empty, err));
        memset(ops, 0, sizeof ops); /* a program has its own copy */
        GOOD(mo_copy_in(b.stream, b.base, b.want, b.used, err));
        for (int i = 0; i < ROUNDS; i++) {
            GOOD(mo_program_run(program, b.stream, err));
            GOOD(mo_program_run(empty, b.stream, err));
        }
        GOOD(mo_copy_out(b.stream, b.want, b.base, b.used, err));
        GOOD(mo_dstream_wait(b.stream, err));
        box_check(&b, "a program", 0);
        mo_program_destroy(program);
        mo_program_destroy(empty);
        mo_program_destroy(NULL);
        box_close(&b);
    }
}

/* ---- What device and host say to each other --------------------------------------------------- */

enum { TALK_ROUNDS = 12, TALK_ROWS = 6, TALK_N = 40 };

typedef struct talk {
    uint32_t *flag;   /* pinned: the device's */
    float *published; /* pinned [TALK_ROWS][TALK_N] */
    float *rows;      /* pinned: the host's answer */
    mo_dreply *reply; /* pinned */
    bool late;        /* an order was wrong */
} talk;

/* The host's side: for every publication, every row but one comes back with each value plus 1. */
static void *answer(void *arg)
{
    talk *k = arg;
    for (uint32_t round = 1; round <= TALK_ROUNDS; round++) {
        while (__atomic_load_n(k->flag, __ATOMIC_ACQUIRE) != round) {
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
        k->reply->count = 0;
        for (int row = 0; row < TALK_ROWS; row++) {
            for (int i = 0; i < TALK_N; i++) {
                const float value = k->published[row * TALK_N + i];
                k->late |= value != (float)(round * 100 + (uint32_t)row);
                k->rows[row * TALK_N + i] = value + 1.0f;
            }
            if (row != (int)(round % TALK_ROWS)) {
                k->reply->row[k->reply->count++] = row;
            }
        }
        __atomic_store_n(&k->reply->flag, round, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void talk_once(mo_device *device, mo_dstream *stream, talk *k, uint8_t *pinned, mo_daddr seen)
{
    const size_t bytes = sizeof(float) * TALK_ROWS * TALK_N;
    mo_daddr memory;
    float *image = malloc(bytes);
    GOOD(mo_device_alloc(device, 4096 + 2 * bytes, &memory, err));
    const mo_daddr source = memory + 4096, target = source + bytes;
    GOOD(mo_device_clear(stream, memory, 4096 + 2 * bytes, err));
    mo_op publish = {.kind = MO_OP_PUBLISH}, await = {.kind = MO_OP_AWAIT};
    publish.publish = (mo_op_publish){.from = {source, source + bytes / 2},
                                      .to = {seen + (mo_daddr)((uint8_t *)k->published - pinned),
                                             seen + (mo_daddr)((uint8_t *)k->published - pinned) + bytes / 2},
                                      .bytes = {(int64_t)bytes / 2, (int64_t)bytes / 2},
                                      .ranges = 2,
                                      .sequence = memory,
                                      .flag = seen + (mo_daddr)((uint8_t *)k->flag - pinned)};
    await.await = (mo_op_await){.reply = seen + (mo_daddr)((uint8_t *)k->reply - pinned),
                                .sequence = memory,
                                .from = seen + (mo_daddr)((uint8_t *)k->rows - pinned),
                                .to = target,
                                .n = TALK_N,
                                .most = TALK_ROWS,
                                .bad = memory + 256,
                                .waited = memory + 512};
    uint32_t waited[2];
    for (uint32_t round = 1; round <= TALK_ROUNDS; round++) {
        const int64_t began = mo_clock_ns();
        for (int i = 0; i < TALK_ROWS * TALK_N; i++) {
            image[i] = (float)(round * 100 + (uint32_t)(i / TALK_N));
        }
        GOOD(mo_copy_in(stream, memory, &round, 4, err));
        GOOD(mo_copy_in(stream, source, image, bytes, err));
        GOOD(mo_copy_in(stream, target, image, bytes, err));
        GOOD(mo_op_launch(stream, &publish, err));
        GOOD(mo_op_launch(stream, &await, err));
        GOOD(mo_copy_out(stream, image, target, bytes, err));
        GOOD(mo_copy_out(stream, waited, memory + 512, sizeof waited, err));
        GOOD(mo_dstream_wait(stream, err));
        assert_true((int64_t)waited[0] <= mo_clock_ns() - began);
        assert_int_equal(waited[1], 0);
        for (int i = 0; i < TALK_ROWS * TALK_N; i++) {
            const uint32_t row = (uint32_t)(i / TALK_N);
            const float sent = (float)(round * 100 + row);
            assert_true(image[i] == (row == round % TALK_ROWS ? sent : sent + 1.0f));
        }
    }
    uint32_t bad[2] = {TALK_ROUNDS + 1, 9};
    GOOD(mo_copy_out(stream, &bad[1], memory + 256, 4, err));
    GOOD(mo_dstream_wait(stream, err));
    assert_int_equal(bad[1], 0);
    /* Nobody answers any more: the host says so. */
    __atomic_store_n(&k->reply->abort, 1, __ATOMIC_RELEASE);
    GOOD(mo_copy_in(stream, memory, bad, 4, err));
    GOOD(mo_op_launch(stream, &await, err));
    GOOD(mo_dstream_wait(stream, err));
    GOOD(mo_copy_out(stream, bad, memory + 256, 4, err));
    GOOD(mo_dstream_wait(stream, err));
    assert_int_equal(bad[0], 2);
    mo_device_free(device, memory);
    free(image);
}

static void test_exchange(void **state)
{
    (void)state;
    const size_t bytes = sizeof(float) * TALK_ROWS * TALK_N;
    for (const char **name = device_names; *name; name++) {
        mo_device *device = device_open(*name);
        mo_dstream *stream;
        void *memory;
        mo_daddr seen;
        pthread_t host;
        GOOD(mo_dstream_create(device, &stream, err));
        GOOD(mo_device_pin(device, 4096 + 2 * bytes, &memory, &seen, err));
        uint8_t *pinned = memset(memory, 0, 4096 + 2 * bytes);
        talk k = {.flag = (uint32_t *)(void *)pinned,
                  .reply = (mo_dreply *)(void *)(pinned + 1024),
                  .published = (float *)(void *)(pinned + 4096),
                  .rows = (float *)(void *)(pinned + 4096 + bytes)};
        assert_int_equal(pthread_create(&host, NULL, answer, &k), 0);
        talk_once(device, stream, &k, pinned, seen);
        pthread_join(host, NULL);
        assert_false(k.late);
        mo_dstream_destroy(stream);
        mo_device_unpin(device, pinned);
        mo_device_close(device);
    }
}

/* ---- All -------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    struct CMUnitTest tests[48] = {cmocka_unit_test(test_memory),
                                   cmocka_unit_test(test_order),
                                   cmocka_unit_test(test_bad),
                                   cmocka_unit_test(test_programs),
                                   cmocka_unit_test(test_exchange),
                                   cmocka_unit_test(test_layers),
                                   cmocka_unit_test(test_attention_layers),
                                   cmocka_unit_test(test_adapted_layers)};
    size_t count = 8;
    bool sim = false;
    devices_list();
    for (const device_case *lists[] = {op_cases, mixer_cases}, **list = lists; list < lists + 2; list++) {
        for (const device_case *c = *list; c->name; c++) {
            tests[count++] = (struct CMUnitTest){c->name, test_case, NULL, NULL, (void *)(uintptr_t)c};
        }
    }
    const char *only = argc > 1 ? argv[1] : getenv("MO_TEST_ONLY");
    if (only) { /* a test's name, or a pattern of names: test_* are all but the ops one by one */
        cmocka_set_test_filter(only);
    }
    printf("devices:");
    for (const char **name = device_names; *name; name++) {
        printf(" %s", *name);
        sim |= strcmp(*name, "sim") == 0;
    }
    printf("%s\n", getenv("MO_TEST_CUDA") ? "" : " (no GPU: MO_TEST_CUDA is not set)");
    fflush(stdout);
    const int failed = _cmocka_run_group_tests("device", tests, count, NULL, NULL);
    return failed + (sim ? sim_tests() : 0);
}
