/* Device cases: one op with everything it reads and writes in one image of device memory. The test builds the image
 * on the host, runs the op on a device, computes the same on the host from the scalar kernels, and compares all
 * bytes: results, and everything that should have stayed. */
#ifndef MO_TESTS_DEVICE_CASE_H
#define MO_TESTS_DEVICE_CASE_H

#include "blocks.h"
#include "device/device.h"
#include "numeric/kernels.h"

enum { IGNORED_MAX = 16 };

typedef struct box {
    mo_device *device;
    mo_dstream *stream;
    bool small; /* the device is an emulation that takes long: smaller matrices, shorter texts */
    mo_daddr base;
    uint8_t *want, *got; /* [bytes] images of the memory at base */
    size_t bytes, used;
    struct {
        size_t at, bytes;
    } ignored[IGNORED_MAX]; /* an op's own scratch: what it leaves there is nobody's business */
    int ignored_count;
    uint64_t random;
} box;

/* ---- Devices ---- */

/* The devices of this run, by name; NULL ends. MO_TEST_CUDA=0, 75 or 80 adds a GPU; MO_TEST_DEVICE leaves one.
 * MO_TEST_SMALL and MO_TEST_FULL choose sizes against what the device suggests. */
extern const char *device_names[8];
void devices_list(void);
mo_device *device_open(const char *name);

/* For a test program that brings an emulated device with it: the only one that is tested then. */
mo_status device_open_emulated(mo_device **out, mo_error *err) __attribute__((weak));

/* ---- The box ---- */

void box_open(box *b, const char *device);
void box_close(box *b);
void box_clear(box *b, uint64_t seed);

/* Room in the image, at an address that is a multiple of MO_OP_ALIGN, filled with a pattern. */
void *box_alloc(box *b, int64_t bytes);
float *box_floats(box *b, int64_t count);
void box_ignore(box *b, const void *part, int64_t bytes);

mo_daddr box_address(const box *b, const void *part); /* NULL: 0 */
void *box_at(const box *b, mo_daddr address);         /* the image's side; 0: NULL */

/* Random data. Values: how wild, by the case's number. */
int64_t box_pick(box *b, int64_t low, int64_t high);
bool box_chance(box *b, int percent);
void box_fill(box *b, float *x, int64_t count, int flavour);
float *box_filled(box *b, int64_t count, int flavour);
enum { VALUE_FLAVOURS = 5 };

/* Activations: space for them, and rows of random values with their codes. */
mo_dacts box_acts(box *b, int64_t rows, int64_t cols);
mo_dacts box_acts_filled(box *b, int64_t rows, int64_t cols, int flavour);
mo_acts box_acts_at(const box *b, const mo_dacts *a);
void box_quantize(const mo_acts *a, int64_t row);

/* A matrix; experts > 0: scale and bias for so many, without data. */
mo_dmatrix box_matrix(box *b, mo_type type, int64_t rows, int64_t cols, int experts, block_flavour kind);
int64_t box_matrix_bytes(const mo_dmatrix *m);

/* The scalar product of one row of activations with a matrix, with scale and bias. */
void box_multiply(const box *b, const mo_dmatrix *m, mo_daddr data, int expert, const mo_acts *acts,
                  int32_t row, float *y);

/* Brings the image to the device, runs the op (as a program when asked), and brings it back. */
mo_status box_run(box *b, const mo_op *op, bool as_program, mo_error *err);

/* Everything that is not ignored has the same bytes. */
void box_check(const box *b, const char *what, int variant);

/* ---- Cases ---- */

typedef struct device_case {
    const char *name;
    int variants;
    void (*build)(box *b, mo_op *op, int variant);
    void (*reference)(box *b, const mo_op *op); /* computes in the image b->want */
} device_case;

extern const device_case op_cases[], mixer_cases[]; /* a NULL name ends */

/* Heads, and the attention of the same step; false: this variant of heads is nobody's. */
bool build_attention(box *b, mo_op ops[2], int variant);

/* Programs that are layers of a model, on every device. */
void test_layers(void **state);
void test_attention_layers(void **state);
void test_adapted_layers(void **state);

/* Tests of the simulated device alone: how many failed. */
int sim_tests(void);

#endif
