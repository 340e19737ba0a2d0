#include "device_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/cuda/cuda.h"
#include "device/sim/sim.h"

/* ---- Devices ---------------------------------------------------------------------------------- */

const char *device_names[8];

static void add(const char *name)
{
    const char *only = getenv("MO_TEST_DEVICE");
    int i = 0;
    if (only && strcmp(only, name) != 0) {
        return;
    }
    while (device_names[i]) {
        i++;
    }
    device_names[i] = name;
}

void devices_list(void)
{
    if (device_open_emulated) {
        add("emulated");
        return;
    }
    add("scalar");
    add("sim");
    if (getenv("MO_TEST_CUDA")) {
        add("cuda");
    }
}

mo_device *device_open(const char *name)
{
    mo_error err = {0};
    mo_device *device = NULL;
    mo_status status;
    if (strcmp(name, "scalar") == 0) { /* the definition */
        status = mo_sim_open(&(mo_sim_options){.memory_bytes = 256 << 20, .kernels = &mo_kernels_scalar},
                             &device, &err);
    } else if (strcmp(name, "sim") == 0) {
        status = mo_sim_open(&(mo_sim_options){.memory_bytes = 256 << 20}, &device, &err);
    } else if (strcmp(name, "cuda") == 0) {
        const char *code = getenv("MO_TEST_CUDA");
        status = mo_cuda_open(0, code ? atoi(code) : 0, &device, &err);
    } else {
        status = device_open_emulated(&device, &err);
    }
    if (status != MO_OK) {
        fail_msg("%s: %s", name, err.detail);
    }
    return device;
}

static bool is_small(const char *name)
{
    return getenv("MO_TEST_SMALL") || (strcmp(name, "emulated") == 0 && !getenv("MO_TEST_FULL"));
}

/* ---- The box ---------------------------------------------------------------------------------- */

enum { BOX_BYTES = 48 << 20, PATTERN = 0x5A, GUARD = 64 };

void box_open(box *b, const char *device)
{
    mo_error err = {0};
    *b = (box){.device = device_open(device), .small = is_small(device), .bytes = BOX_BYTES};
    b->want = malloc(BOX_BYTES);
    b->got = malloc(BOX_BYTES);
    assert_true(b->want && b->got);
    assert_int_equal(mo_dstream_create(b->device, &b->stream, &err), MO_OK);
    assert_int_equal(mo_device_alloc(b->device, BOX_BYTES, &b->base, &err), MO_OK);
}

void box_close(box *b)
{
    mo_dstream_destroy(b->stream);
    mo_device_free(b->device, b->base);
    mo_device_close(b->device);
    free(b->want);
    free(b->got);
}

void box_clear(box *b, uint64_t seed)
{
    b->used = 0;
    b->ignored_count = 0;
    b->random = seed;
}

void *box_alloc(box *b, int64_t bytes)
{
    uint8_t *part = b->want + b->used;
    const size_t whole = ((size_t)bytes + GUARD + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    assert_true(b->used + whole <= b->bytes);
    memset(part, PATTERN, whole);
    b->used += whole;
    return part;
}

float *box_floats(box *b, int64_t count)
{
    return box_alloc(b, count * (int64_t)sizeof(float));
}

void box_ignore(box *b, const void *part, int64_t bytes)
{
    assert_true(b->ignored_count < IGNORED_MAX);
    b->ignored[b->ignored_count].at = (size_t)((const uint8_t *)part - b->want);
    b->ignored[b->ignored_count++].bytes = (size_t)bytes;
}

mo_daddr box_address(const box *b, const void *part)
{
    return part ? b->base + (mo_daddr)((const uint8_t *)part - b->want) : 0;
}

void *box_at(const box *b, mo_daddr address)
{
    return address ? b->want + (address - b->base) : NULL;
}

/* ---- Data ------------------------------------------------------------------------------------- */

int64_t box_pick(box *b, int64_t low, int64_t high)
{
    return low + random_below(&b->random, high - low + 1);
}

bool box_chance(box *b, int percent)
{
    return random_below(&b->random, 100) < percent;
}

void box_fill(box *b, float *x, int64_t count, int flavour)
{
    for (int64_t i = 0; i < count; i++) {
        const float plain = random_normal(&b->random);
        const int64_t r = random_below(&b->random, 52);
        switch (flavour % VALUE_FLAVOURS) {
        case 0: x[i] = plain; break;
        case 1: x[i] = ldexpf(plain, (int)r - 40); break;             /* wide */
        case 2: x[i] = r < 26 ? 0.0f : r < 48 ? -0.0f : plain; break; /* zeros */
        case 3: x[i] = plain * (r < 26 ? 0x1p-130f : 0x1p-98f); break;
        default: x[i] = r == 0 ? plain * 0x1p+14f : r == 1 ? -0x1p-149f : rintf(plain * 4.0f); break;
        }
    }
}

float *box_filled(box *b, int64_t count, int flavour)
{
    float *x = box_floats(b, count);
    box_fill(b, x, count, flavour);
    return x;
}

mo_dacts box_acts(box *b, int64_t rows, int64_t cols)
{
    mo_dacts a = {.cols = (int32_t)cols};
    const int64_t blocks = rows * (cols / 32);
    a.x = box_address(b, box_floats(b, rows * cols));
    if (cols % 32 == 0) {
        a.q = box_address(b, box_alloc(b, rows * cols));
        a.d = box_address(b, box_floats(b, blocks));
        a.s = box_address(b, box_floats(b, blocks));
        a.sum = box_address(b, box_alloc(b, blocks * 4));
        a.half_sum = box_address(b, box_alloc(b, blocks * 4));
    }
    return a;
}

mo_acts box_acts_at(const box *b, const mo_dacts *a)
{
    return (mo_acts){.cols = a->cols,
                     .x = box_at(b, a->x),
                     .q = box_at(b, a->q),
                     .d = box_at(b, a->d),
                     .s = box_at(b, a->s),
                     .sum = box_at(b, a->sum),
                     .half_sum = box_at(b, a->half_sum)};
}

void box_quantize(const mo_acts *a, int64_t row)
{
    const int64_t blocks = a->cols / 32;
    if (a->cols % 32 == 0) {
        mo_kernels_scalar.quantize(a->x + row * a->cols, a->cols, a->q + row * a->cols, a->d + row * blocks,
                                   a->s + row * blocks, a->sum + row * blocks,
                                   a->half_sum + 2 * row * blocks);
    }
}

mo_dacts box_acts_filled(box *b, int64_t rows, int64_t cols, int flavour)
{
    const mo_dacts d = box_acts(b, rows, cols);
    const mo_acts a = box_acts_at(b, &d);
    box_fill(b, a.x, rows * cols, flavour);
    for (int64_t i = 0; i < rows; i++) {
        box_quantize(&a, i);
    }
    return d;
}

int64_t box_matrix_bytes(const mo_dmatrix *m)
{
    return m->rows * mo_format_row_bytes(mo_format_of((uint32_t)m->type), m->cols);
}

mo_dmatrix box_matrix(box *b, mo_type type, int64_t rows, int64_t cols, int experts, block_flavour kind)
{
    mo_dmatrix m = {.type = type, .rows = (int32_t)rows, .cols = (int32_t)cols};
    const int64_t each = experts > 0 ? experts : 1;
    if (experts == 0) {
        uint8_t *data = box_alloc(b, box_matrix_bytes(&m));
        blocks_fill(type, data, box_matrix_bytes(&m), &b->random, kind);
        m.data = box_address(b, data);
    }
    m.scale = box_chance(b, 40) ? box_address(b, box_filled(b, each, 0)) : 0;
    m.bias = box_chance(b, 40) ? box_address(b, box_filled(b, each * rows, 0)) : 0;
    return m;
}

void box_multiply(const box *b, const mo_dmatrix *m, mo_daddr data, int expert, const mo_acts *acts,
                  int32_t row, float *y)
{
    const mo_weights w = {
        .data = box_at(b, data), .type = (mo_type)m->type, .rows = m->rows, .cols = m->cols};
    const float *scale = box_at(b, m->scale), *bias = box_at(b, m->bias);
    mo_kernels_scalar.product(&w, 0, m->rows, acts, &row, 1, y, m->rows, NULL);
    for (int64_t r = 0; r < m->rows; r++) {
        y[r] = scale ? y[r] * scale[expert] : y[r];
        y[r] = bias ? y[r] + bias[(int64_t)expert * m->rows + r] : y[r];
        assert_true(isfinite(y[r])); /* the bits of a NaN differ between machines */
    }
}

/* ---- Running ---------------------------------------------------------------------------------- */

static mo_status run_program(box *b, const mo_op *op, mo_error *err)
{
    mo_program *program;
    mo_status status = mo_program_create(b->device, op, 1, &program, err);
    if (status == MO_OK) {
        status = mo_program_run(program, b->stream, err);
        if (status == MO_OK) {
            status = mo_dstream_wait(b->stream, err);
        }
        mo_program_destroy(program);
    }
    return status;
}

mo_status box_run(box *b, const mo_op *op, bool as_program, mo_error *err)
{
    mo_status status = mo_copy_in(b->stream, b->base, b->want, b->used, err);
    if (status == MO_OK) {
        status = as_program ? run_program(b, op, err) : mo_op_launch(b->stream, op, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(b->stream, err);
    }
    if (status == MO_OK) {
        status = mo_copy_out(b->stream, b->got, b->base, b->used, err);
    }
    return status == MO_OK ? mo_dstream_wait(b->stream, err) : status;
}

static bool is_ignored(const box *b, size_t at)
{
    for (int i = 0; i < b->ignored_count; i++) {
        if (at >= b->ignored[i].at && at < b->ignored[i].at + b->ignored[i].bytes) {
            return true;
        }
    }
    return false;
}

void box_check(const box *b, const char *what, int variant)
{
    for (size_t at = 0; at < b->used; at += MO_OP_ALIGN) {
        const size_t count = b->used - at < MO_OP_ALIGN ? b->used - at : MO_OP_ALIGN;
        if (memcmp(b->want + at, b->got + at, count) == 0) {
            continue;
        }
        for (size_t i = at; i < at + count; i++) {
            if (b->want[i] != b->got[i] && !is_ignored(b, i)) {
                float want, got;
                const size_t word = i / 4 * 4;
                memcpy(&want, b->want + word, 4);
                memcpy(&got, b->got + word, 4);
                mo_device_info info;
                mo_device_describe(b->device, &info);
                fail_msg("%s: %s, variant %d: byte %zu of the image is %02x, not %02x (as float %a, not %a)",
                         info.kind, what, variant, i, b->got[i], b->want[i], (double)got, (double)want);
            }
        }
    }
}
