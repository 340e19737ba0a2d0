/* The whole CUDA device, host side and kernels, on an emulated GPU: what needs streams that really run beside the
 * host. That its ops give the right bits is the business of test_device.c, of its calls that of test_cuda_host.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda_emulation/emulated.h"
#include "cuda_emulation/fake_driver.h"
#include "device/cuda/cuda.h"

enum { N = 64, ROWS = 4, ROUNDS = 5, MIB = 1024 * 1024 };

static mo_device *open_gpu(int compute)
{
    mo_fake_gpu_use(&(mo_fake_gpu){.compute = compute, .total_bytes = 8 * MIB, .pinned_bytes = 4 * MIB});
    mo_device *device = NULL;
    mo_error err;
    assert_int_equal(mo_cuda_open(0, 0, &device, &err), MO_OK);
    return device;
}

static void close_gpu(mo_device *device)
{
    mo_device_close(device);
    assert_int_equal(mo_fake_gpu_holds(), 0);
    mo_fake_gpu_use(NULL);
}

static void says_what_it_is(void **state)
{
    (void)state;
    mo_device *device = open_gpu(80);
    mo_device_info info;
    mo_device_describe(device, &info);
    assert_string_equal(info.kind, "cuda");
    assert_int_equal(info.compute, 80);
    assert_int_equal(info.total_bytes, 8 * MIB);
    assert_int_equal(info.free_bytes, 8 * MIB);
    mo_daddr a = 0;
    mo_error err;
    assert_int_equal(mo_device_alloc(device, 5 * MIB, &a, &err), MO_OK);
    mo_daddr b = 0;
    assert_int_equal(mo_device_alloc(device, 5 * MIB, &b, &err), MO_ENOMEM);
    void *memory = NULL;
    mo_daddr seen = 0;
    assert_int_equal(mo_device_pin(device, 5 * MIB, &memory, &seen, &err), MO_ENOMEM);
    mo_device_describe(device, &info);
    assert_int_equal(info.free_bytes, 3 * MIB);
    mo_device_free(device, a);
    close_gpu(device);
}

/* What both sides of the round trip know. */
typedef struct trip {
    mo_device *device;
    mo_dstream *stream;
    mo_daddr values, sequence, rows, bad; /* on the device */
    float *sent;                          /* pinned, from here on: [ROWS][N] that the device publishes */
    uint32_t *flag;
    mo_dreply *reply;
    float *answer; /* [ROWS][N] */
    mo_daddr seen_sent, seen_flag, seen_reply, seen_answer;
    mo_program *program;
} trip;

static void pin(trip *t, size_t bytes, void *out, mo_daddr *seen)
{
    void *memory = NULL;
    mo_error err;
    assert_int_equal(mo_device_pin(t->device, bytes, &memory, seen, &err), MO_OK);
    memset(memory, 0, bytes);
    memcpy(out, &memory, sizeof memory);
}

static mo_daddr on_device(trip *t, size_t bytes)
{
    mo_daddr address = 0;
    mo_error err;
    assert_int_equal(mo_device_alloc(t->device, bytes, &address, &err), MO_OK);
    assert_int_equal(mo_device_clear(t->stream, address, bytes, &err), MO_OK);
    return address;
}

/* The program: publish the values; wait for the host's rows; publish those as the next values to see. */
static void prepare(trip *t, int compute)
{
    mo_error err;
    memset(t, 0, sizeof *t);
    t->device = open_gpu(compute);
    assert_int_equal(mo_dstream_create(t->device, &t->stream, &err), MO_OK);
    t->values = on_device(t, ROWS * N * sizeof(float));
    t->sequence = on_device(t, sizeof(uint32_t));
    t->bad = on_device(t, 2 * sizeof(uint32_t)); /* and behind it, what the kernel waited */
    pin(t, ROWS * N * sizeof(float), &t->sent, &t->seen_sent);
    pin(t, sizeof(uint32_t), &t->flag, &t->seen_flag);
    pin(t, sizeof(mo_dreply) + ROWS * sizeof(int32_t), &t->reply, &t->seen_reply);
    pin(t, ROWS * N * sizeof(float), &t->answer, &t->seen_answer);
    const mo_op ops[] = {
        {.kind = MO_OP_PUBLISH,
         .publish = {.from = {t->values},
                     .to = {t->seen_sent},
                     .bytes = {ROWS * N * sizeof(float)},
                     .ranges = 1,
                     .sequence = t->sequence,
                     .flag = t->seen_flag}},
        {.kind = MO_OP_AWAIT,
         .await = {.reply = t->seen_reply,
                   .sequence = t->sequence,
                   .from = t->seen_answer,
                   .to = t->values,
                   .n = N,
                   .most = ROWS,
                   .bad = t->bad,
                   .waited = t->bad + sizeof(uint32_t)}},
    };
    assert_int_equal(mo_program_create(t->device, ops, 2, &t->program, &err), MO_OK);
}

static void finish(trip *t)
{
    mo_program_destroy(t->program);
    mo_dstream_destroy(t->stream);
    mo_device_free(t->device, t->values);
    mo_device_free(t->device, t->sequence);
    mo_device_free(t->device, t->bad);
    mo_device_unpin(t->device, t->sent);
    mo_device_unpin(t->device, t->flag);
    mo_device_unpin(t->device, t->reply);
    mo_device_unpin(t->device, t->answer);
    close_gpu(t->device);
}

static void wait_for_flag(const uint32_t *flag, uint32_t sequence)
{
    for (int i = 0; __atomic_load_n(flag, __ATOMIC_ACQUIRE) != sequence; i++) {
        assert_true(i < 100000); /* ten seconds */
        usleep(100);
    }
}

/* The device shows its values, the host adds one to two of the rows while the kernel waits; again and again. */
static void round_trips(void **state)
{
    (void)state;
    for (int compute = 75; compute <= 90; compute += 15) {
        trip t;
        prepare(&t, compute);
        mo_error err;
        float values[ROWS * N] = {0};
        uint32_t longest = 0;
        for (uint32_t round = 1; round <= ROUNDS; round++) {
            const int64_t began = mo_clock_ns();
            assert_int_equal(mo_copy_in(t.stream, t.sequence, &round, sizeof round, &err), MO_OK);
            assert_int_equal(mo_program_run(t.program, t.stream, &err), MO_OK);
            wait_for_flag(t.flag, round);
            assert_memory_equal(t.sent, values, sizeof values);
            t.reply->count = 2;
            for (int i = 0; i < 2; i++) {
                const int row = (int)(round + (uint32_t)i * 2) % ROWS;
                t.reply->row[i] = row;
                for (int j = 0; j < N; j++) {
                    t.answer[row * N + j] = values[row * N + j] += 1.0f + (float)j;
                }
            }
            uint32_t told[2] = {1, 0}; /* bad, waited */
            usleep(500);
            __atomic_store_n(&t.reply->flag, round, __ATOMIC_RELEASE);
            assert_int_equal(mo_copy_out(t.stream, told, t.bad, sizeof told, &err), MO_OK);
            assert_int_equal(mo_dstream_wait(t.stream, &err), MO_OK);
            assert_int_equal(told[0], 0);
            assert_true(told[1] <= mo_clock_ns() - began);
            longest = told[1] > longest ? told[1] : longest;
        }
        float got[ROWS * N];
        assert_int_equal(mo_copy_out(t.stream, got, t.values, sizeof got, &err), MO_OK);
        assert_int_equal(mo_dstream_wait(t.stream, &err), MO_OK);
        assert_memory_equal(got, values, sizeof values);
        assert_true(longest > 0);
        finish(&t);
    }
}

/* A second stream goes on while a kernel of the first waits for the host; an event joins them. */
static void streams_run_beside(void **state)
{
    (void)state;
    trip t;
    prepare(&t, 90);
    mo_error err;
    mo_dstream *beside = NULL;
    mo_event *event = NULL;
    bool done = true;
    const uint32_t round = 1;
    uint32_t flag_after = 0;
    float rows[ROWS * N] = {0};
    assert_int_equal(mo_dstream_create(t.device, &beside, &err), MO_OK);
    assert_int_equal(mo_event_create(t.device, &event, &err), MO_OK);
    assert_int_equal(mo_copy_in(t.stream, t.sequence, &round, sizeof round, &err), MO_OK);
    assert_int_equal(mo_program_run(t.program, t.stream, &err), MO_OK);
    assert_int_equal(mo_event_record(event, t.stream, &err), MO_OK);
    wait_for_flag(t.flag, round);
    assert_int_equal(mo_copy_out(beside, rows, t.values, sizeof rows, &err), MO_OK);
    assert_int_equal(mo_dstream_wait(beside, &err), MO_OK); /* the other stream still waits */
    assert_int_equal(mo_event_query(event, &done, &err), MO_OK);
    assert_false(done);
    assert_int_equal(mo_dstream_after(beside, event, &err), MO_OK);
    assert_int_equal(mo_copy_out(beside, rows, t.values, sizeof rows, &err), MO_OK);
    t.reply->count = 1;
    t.reply->row[0] = 3;
    t.answer[3 * N + 7] = 2.5f;
    __atomic_store_n(&t.reply->flag, round, __ATOMIC_RELEASE);
    assert_int_equal(mo_dstream_wait(beside, &err), MO_OK);
    assert_true(rows[3 * N + 7] == 2.5f);
    assert_int_equal(mo_event_query(event, &done, &err), MO_OK);
    assert_true(done);
    assert_int_equal(mo_copy_out(beside, &flag_after, t.seen_flag, sizeof flag_after, &err), MO_OK);
    assert_int_equal(mo_dstream_wait(beside, &err), MO_OK);
    assert_int_equal(flag_after, round);
    mo_event_destroy(event);
    mo_dstream_destroy(beside);
    finish(&t);
}

/* Memory that the device was not given is refused, before anything is written. */
static void strange_addresses(void **state)
{
    (void)state;
    trip t;
    prepare(&t, 90);
    mo_error err;
    uint8_t here[64] = {0};
    assert_int_not_equal(mo_copy_in(t.stream, (uintptr_t)here, here, sizeof here, &err), MO_OK);
    assert_int_not_equal(mo_copy_out(t.stream, (void *)(uintptr_t)t.values, t.values, 4, &err), MO_OK);
    assert_int_not_equal(mo_copy_in(t.stream, t.values, here, ROWS * N * sizeof(float) + 1, &err), MO_OK);
    finish(&t);
}

/* The GPU dies while a kernel waits: every call says so, what is the host's goes back, the next opening works. */
static void lost_in_the_middle(void **state)
{
    (void)state;
    trip t;
    prepare(&t, 90);
    mo_error err;
    const uint32_t round = 1;
    assert_int_equal(mo_copy_in(t.stream, t.sequence, &round, sizeof round, &err), MO_OK);
    assert_int_equal(mo_program_run(t.program, t.stream, &err), MO_OK);
    wait_for_flag(t.flag, round);
    mo_fake_gpu_break(719);
    assert_int_equal(mo_dstream_wait(t.stream, &err), MO_EDEVICE);
    assert_int_equal(mo_program_run(t.program, t.stream, &err), MO_EDEVICE);
    mo_fake_gpu_break(0); /* a driver that has recovered: this device stays lost */
    mo_daddr address = 0;
    assert_int_equal(mo_device_alloc(t.device, 4, &address, &err), MO_EDEVICE);
    mo_program_destroy(t.program);
    mo_dstream_destroy(t.stream);
    mo_device_unpin(t.device, t.sent);
    mo_device_unpin(t.device, t.flag);
    mo_device_unpin(t.device, t.reply);
    mo_device_unpin(t.device, t.answer);
    close_gpu(t.device);
    close_gpu(open_gpu(90));
}

/* Two openings of a GPU, as where it is named twice: memory that both adopt is pinned once, and as long as one needs it. */
static void two_openings_adopt_the_same_memory(void **state)
{
    (void)state;
    mo_error err;
    mo_device *first = open_gpu(90), *second = NULL;
    assert_int_equal(mo_cuda_open(0, 0, &second, &err), MO_OK);
    void *memory = aligned_alloc(4096, MIB);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(mo_device_adopt(first, memory, MIB, &err), MO_OK);
        const int once = mo_fake_gpu_holds();
        assert_int_equal(mo_device_adopt(second, memory, MIB, &err), MO_OK);
        assert_int_equal(mo_fake_gpu_holds(), once);
        mo_device_release(round ? second : first, memory);
        assert_int_equal(mo_fake_gpu_holds(), once);
        mo_device_release(round ? first : second, memory);
        assert_true(mo_fake_gpu_holds() < once);
    }
    free(memory);
    mo_device_close(second);
    close_gpu(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),    cmocka_unit_test(round_trips),
        cmocka_unit_test(streams_run_beside), cmocka_unit_test(strange_addresses),
        cmocka_unit_test(lost_in_the_middle), cmocka_unit_test(two_openings_adopt_the_same_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
