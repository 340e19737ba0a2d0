/* The host side of the CUDA device, against a driver that is played here: it counts calls, and any of them can be
 * made to fail. Nothing is computed; tests/cuda_emulation and a real GPU do that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/choice.h"
#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"
#include "device/cuda/images.h"
#include "device/cuda/launch.h"
#include "numeric/format.h"

/* ---- The driver that is played ---- */

static struct {
    char calls[16384];       /* every call since the last look, as "cuInit cuDeviceGet ..." */
    const char *fails;       /* the call that fails, */
    int result;              /* with this, */
    int after;               /* after so many that went well */
    int devices, compute;    /* what it says it has */
    const void *refused;     /* an image that it has no binary for */
    const void *first_image; /* that was loaded */
    int loaded;              /* modules now */
    int objects;             /* streams, events, graphs, pinned and device memory now */
} play;

static int answer(const char *symbol)
{
    const size_t used = strlen(play.calls);
    snprintf(play.calls + used, sizeof play.calls - used, "%s ", symbol);
    if (play.fails && strcmp(play.fails, symbol) == 0 && play.after-- <= 0) {
        return play.result;
    }
    return MO_CUDA_OK;
}

/* How often the call was made since the last look at it; a look at NULL forgets everything. */
static int seen(const char *symbol)
{
    int count = 0;
    if (!symbol) {
        play.calls[0] = 0;
        return 0;
    }
    const size_t length = strlen(symbol);
    for (const char *p = play.calls; (p = strstr(p, symbol)); p += length) {
        count += (p == play.calls || p[-1] == ' ') && (p[length] == ' ' || p[length] == '_');
    }
    return count;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define PLAY(member, symbol, parameters)                                                                     \
    static int play_##member parameters                                                                      \
    {                                                                                                        \
        return answer(symbol);                                                                               \
    }
MO_CUDA_CALLS(PLAY)
#undef PLAY
#pragma GCC diagnostic pop

static int play_error_name(int error, const char **name)
{
    *name = error == MO_CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_PLAY";
    return MO_CUDA_OK;
}

static int play_error_string(int error, const char **text)
{
    (void)error;
    *text = "as it was told";
    return MO_CUDA_OK;
}

static int play_count(int *count)
{
    *count = play.devices;
    return answer("cuDeviceGetCount");
}

static int play_name(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Toy %d", device);
    return answer("cuDeviceGetName");
}

static int play_attribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case MO_CUDA_DEVICE_CAPABILITY_MAJOR: *value = play.compute / 10; break;
    case MO_CUDA_DEVICE_CAPABILITY_MINOR: *value = play.compute % 10; break;
    case MO_CUDA_DEVICE_MULTIPROCESSORS: *value = 4; break;
    case MO_CUDA_DEVICE_MEMORY_CLOCK_KHZ: *value = 1000000; break;
    case MO_CUDA_DEVICE_MEMORY_BUS_BITS: *value = 512; break;
    default: *value = 0; break;
    }
    return answer("cuDeviceGetAttribute");
}

static int play_retain(void **context, int device)
{
    static char contexts[4];
    *context = &contexts[device];
    return answer("cuDevicePrimaryCtxRetain");
}

static int play_info(size_t *left, size_t *total)
{
    *left = 3u << 20;
    *total = 8u << 20;
    return answer("cuMemGetInfo_v2");
}

static int made(const char *symbol)
{
    const int result = answer(symbol);
    play.objects += result == MO_CUDA_OK;
    return result;
}

static int unmade(const char *symbol)
{
    const int result = answer(symbol);
    play.objects -= result == MO_CUDA_OK;
    return result;
}

static char thing; /* what handles point to */

#define MAKES(member, symbol, parameters)                                                                    \
    static int makes_##member parameters                                                                     \
    {                                                                                                        \
        const int result = made(symbol);                                                                     \
        *out = result == MO_CUDA_OK ? &thing : NULL;                                                         \
        return result;                                                                                       \
    }
#define UNMAKES(member, symbol, parameters)                                                                  \
    static int unmakes_##member parameters                                                                   \
    {                                                                                                        \
        (void)handle;                                                                                        \
        return unmade(symbol);                                                                               \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
MAKES(stream_create, "cuStreamCreate", (void **out, unsigned flags))
MAKES(event_create, "cuEventCreate", (void **out, unsigned flags))
MAKES(stream_end_capture, "cuStreamEndCapture", (void *stream, void **out))
MAKES(graph_instantiate, "cuGraphInstantiateWithFlags", (void **out, void *graph, unsigned long long flags))
MAKES(mem_host_alloc, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))
#pragma GCC diagnostic pop
UNMAKES(stream_destroy, "cuStreamDestroy_v2", (void *handle))
UNMAKES(event_destroy, "cuEventDestroy_v2", (void *handle))
UNMAKES(graph_exec_destroy, "cuGraphExecDestroy", (void *handle))
UNMAKES(graph_destroy, "cuGraphDestroy", (void *handle))
UNMAKES(mem_free_host, "cuMemFreeHost", (void *handle))
UNMAKES(mem_free, "cuMemFree_v2", (uint64_t handle))

static int makes_mem_alloc(uint64_t *address, size_t bytes)
{
    (void)bytes;
    *address = 0x10000;
    return made("cuMemAlloc_v2");
}

static int play_load(void **module, const void *image)
{
    *module = &thing;
    if (image == play.refused) {
        answer("cuModuleLoadData");
        return MO_CUDA_NO_BINARY_FOR_GPU;
    }
    if (play.loaded++ == 0) {
        play.first_image = image;
    }
    return answer("cuModuleLoadData");
}

static int play_unload(void *module)
{
    (void)module;
    play.loaded--;
    return answer("cuModuleUnload");
}

static int play_function(void **function, void *module, const char *name)
{
    (void)module;
    *function = (void *)(uintptr_t)name;
    return answer("cuModuleGetFunction");
}

static int play_limit(int *value, int attribute, void *function)
{
    (void)attribute;
    (void)function;
    *value = 48 * 1024;
    return answer("cuFuncGetAttribute");
}

static mo_cuda_driver driver;

static int begin(void **state)
{
    (void)state;
    driver = (mo_cuda_driver){0};
#define SET(member, symbol, parameters) driver.member = play_##member;
    MO_CUDA_CALLS(SET)
#undef SET
    driver.get_error_name = play_error_name;
    driver.get_error_string = play_error_string;
    driver.device_get_count = play_count;
    driver.device_get_name = play_name;
    driver.device_get_attribute = play_attribute;
    driver.primary_ctx_retain = play_retain;
    driver.mem_get_info = play_info;
    driver.mem_alloc = makes_mem_alloc;
    driver.mem_free = unmakes_mem_free;
    driver.mem_host_alloc = makes_mem_host_alloc;
    driver.mem_free_host = unmakes_mem_free_host;
    driver.stream_create = makes_stream_create;
    driver.stream_destroy = unmakes_stream_destroy;
    driver.event_create = makes_event_create;
    driver.event_destroy = unmakes_event_destroy;
    driver.stream_end_capture = makes_stream_end_capture;
    driver.graph_instantiate = makes_graph_instantiate;
    driver.graph_exec_destroy = unmakes_graph_exec_destroy;
    driver.graph_destroy = unmakes_graph_destroy;
    driver.module_load_data = play_load;
    driver.module_unload = play_unload;
    driver.module_get_function = play_function;
    driver.func_get_attribute = play_limit;
    memset(&play, 0, sizeof play);
    play.devices = 1;
    play.compute = 90;
    play.refused = &play;
    mo_cuda_driver_use(&driver);
    return 0;
}

static int end(void **state)
{
    (void)state;
    mo_cuda_driver_use(NULL);
    return 0;
}

static void fail_at(const char *symbol, int result)
{
    play.fails = symbol;
    play.result = result;
    play.after = 0;
    seen(NULL);
}

static mo_device *open_toy(void)
{
    mo_device *device = NULL;
    mo_error err;
    if (mo_cuda_open(0, 0, &device, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    seen(NULL);
    return device;
}

#define assert_says(err, text)                                                                               \
    if (!strstr((err).detail, text)) {                                                                       \
        fail_msg("\"%s\" does not say \"%s\"", (err).detail, text);                                          \
    }

/* ---- Tests ---- */

static void no_driver(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        dlclose(library);
        print_message("skipped: this machine has a driver\n");
        skip();
    }
    assert_int_equal(mo_cuda_count(&err), 0);
    assert_int_equal(err.status, MO_EDEVICE);
    assert_says(err, "install the driver");
    assert_int_equal(mo_cuda_open(0, 0, &device, &err), MO_EDEVICE);
    assert_null(device);
    assert_says(err, "install the driver");
}

static void no_device(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device;
    fail_at("cuInit", MO_CUDA_NO_DEVICE);
    assert_int_equal(mo_cuda_count(&err), 0);
    assert_says(err, "CUDA_VISIBLE_DEVICES");
    fail_at("cuInit", MO_CUDA_DRIVER_MISMATCH);
    assert_int_equal(mo_cuda_open(0, 0, &device, &err), MO_EDEVICE);
    assert_says(err, "restart the machine");
    fail_at(NULL, 0);
    play.devices = 0;
    assert_int_equal(mo_cuda_count(&err), 0);
    assert_says(err, "CUDA_VISIBLE_DEVICES");
    play.devices = 2;
    assert_int_equal(mo_cuda_count(&err), 2);
    assert_int_equal(mo_cuda_open(2, 0, &device, &err), MO_EDEVICE);
    assert_says(err, "there is no CUDA device 2; the driver reports 2");
    assert_int_equal(mo_cuda_open(-1, 0, &device, &err), MO_EDEVICE);
    play.compute = 61;
    assert_int_equal(mo_cuda_open(1, 0, &device, &err), MO_EDEVICE);
    assert_says(err, "Toy 0 (cuda 1) has compute capability 6.1");
}

/* Every call that opening makes fails once, in both manners: nothing is left behind. */
static void opening_fails(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuDeviceGet",     "cuDeviceGetName",  "cuDevicePrimaryCtxRetain",
                                        "cuCtxSetCurrent", "cuModuleLoadData", "cuStreamCreate"};
    static const int results[] = {MO_CUDA_INVALID_VALUE, MO_CUDA_OUT_OF_MEMORY, 719};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (size_t j = 0; j < sizeof results / sizeof *results; j++) {
            mo_error err;
            mo_device *device;
            fail_at(calls[i], results[j]);
            assert_int_equal(mo_cuda_open(0, 0, &device, &err),
                             results[j] == MO_CUDA_OUT_OF_MEMORY ? MO_ENOMEM : MO_EDEVICE);
            assert_null(device);
            assert_says(err, calls[i]);
            assert_int_equal(play.objects, 0);
            assert_int_equal(seen("cuDevicePrimaryCtxRelease"), i > 2);
        }
    }
}

static void describes(void **state)
{
    (void)state;
    mo_device_info info;
    mo_device *device = open_toy();
    mo_device_describe(device, &info);
    assert_string_equal(info.name, "Toy 0");
    assert_string_equal(info.kind, "cuda");
    assert_int_equal(info.compute, 90);
    assert_true(info.total_bytes == 8 << 20 && info.free_bytes == 3 << 20);
    assert_true(info.memory_bytes_s == 2.0 * 1e9 * 64 && info.link_bytes_s == 0);
    assert_true(info.own_memory);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
    assert_int_equal(play.loaded, 0);
}

/* Images of this test's own, in the place of the build's, which may have none or not all of these. */
static const unsigned char toy_images[7];
const mo_cuda_image mo_cuda_images[] = {
    {"product", 0, &toy_images[0], &toy_images[1]},
    {"product", 75, &toy_images[1], &toy_images[2]},
    {"product", 80, &toy_images[2], &toy_images[3]},
    {"attention", 0, &toy_images[3], &toy_images[4]},
    {"attention", 75, &toy_images[4], &toy_images[5]},
    {"attention", 80, &toy_images[5], &toy_images[6]},
    {NULL, 0, NULL, NULL},
};

static const unsigned char *image_of(int ptx)
{
    for (const mo_cuda_image *image = mo_cuda_images; image->file; image++) {
        if (image->ptx == ptx) {
            return image->data;
        }
    }
    return NULL;
}

/* Machine code where there is some, otherwise the newest PTX that the device can run, or the one asked for. */
static void chooses_code(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device;
    const struct {
        int compute, asked, expected;
        bool native;
    } cases[] = {{90, 0, 0, true},   {90, 75, 75, true},  {90, 80, 80, true}, {75, 0, 75, false},
                 {86, 0, 80, false}, {120, 0, 80, false}, {86, 75, 75, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        play.compute = cases[i].compute;
        play.refused = cases[i].native ? NULL : image_of(0);
        assert_int_equal(mo_cuda_open(0, cases[i].asked, &device, &err), MO_OK);
        assert_ptr_equal(play.first_image, image_of(cases[i].expected));
        mo_device_close(device);
        assert_int_equal(play.loaded, 0);
    }
    play.compute = 75;
    assert_int_equal(mo_cuda_open(0, 80, &device, &err), MO_EDEVICE);
    assert_says(err, "MO_CUDA_ARCHITECTURES");
    assert_int_equal(mo_cuda_open(0, 70, &device, &err), MO_EDEVICE);
    fail_at("cuModuleLoadData", MO_CUDA_UNSUPPORTED_PTX_VERSION);
    assert_int_equal(mo_cuda_open(0, 75, &device, &err), MO_EDEVICE);
    assert_says(err, "update the driver");
    assert_int_equal(play.objects, 0);
}

static void memory_refused(void **state)
{
    (void)state;
    mo_error err;
    mo_daddr address;
    void *memory;
    mo_device *device = open_toy();
    fail_at("cuMemAlloc_v2", MO_CUDA_OUT_OF_MEMORY);
    assert_int_equal(mo_device_alloc(device, 5 << 20, &address, &err), MO_ENOMEM);
    assert_says(err, "Toy 0 (cuda 0) cannot allocate 5.0 MiB: 3.0 of 8.0 MiB are free");
    fail_at("cuMemHostAlloc", MO_CUDA_OUT_OF_MEMORY);
    assert_int_equal(mo_device_pin(device, 1 << 20, &memory, &address, &err), MO_ENOMEM);
    assert_says(err, "refused to pin 1.0 MiB");
    fail_at("cuMemHostGetDevicePointer_v2", MO_CUDA_INVALID_VALUE);
    assert_int_equal(mo_device_pin(device, 1 << 20, &memory, &address, &err), MO_EINVAL);
    fail_at("cuMemHostRegister_v2", 801);
    assert_int_equal(mo_device_adopt(device, (void *)(uintptr_t)8192, 1 << 20, &err), MO_EUNSUPPORTED);
    fail_at(NULL, 0);
    assert_int_equal(mo_device_alloc(device, 1, &address, &err), MO_OK); /* refusals are not the end */
    mo_device_free(device, address);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

static const mo_op logits_op = {.kind = MO_OP_LOGITS,
                                .logits = {.x = 0x10000, .count = 4096, .bad = 0x20000}};

/* A name is looked up once; then a launch is one call of the driver. */
static void launches(void **state)
{
    (void)state;
    mo_error err;
    mo_dstream *stream;
    mo_device *device = open_toy();
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mo_op_launch(stream, &logits_op, &err), MO_OK);
    }
    const int kernels = seen("cuLaunchKernel") / 3;
    assert_true(kernels >= 1 && seen("cuLaunchKernel") == 3 * kernels);
    assert_int_equal(seen("cuModuleGetFunction"), kernels);
    assert_int_equal(seen("cuCtxSetCurrent"), 0);
    fail_at("cuLaunchKernel", 701);
    assert_int_equal(mo_op_launch(stream, &logits_op, &err), MO_EUNSUPPORTED);
    mo_dstream_destroy(stream);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

static void programs(void **state)
{
    (void)state;
    mo_error err;
    mo_dstream *stream;
    mo_program *program;
    const mo_op ops[] = {logits_op, logits_op};
    mo_device *device = open_toy();
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    assert_int_equal(mo_program_create(device, ops, 2, &program, &err), MO_OK);
    seen(NULL);
    assert_int_equal(mo_program_run(program, stream, &err), MO_OK);
    assert_string_equal(play.calls, "cuGraphLaunch ");
    mo_program_destroy(program);

    static const char *const refusing[] = {"cuStreamBeginCapture_v2", "cuLaunchKernel", "cuStreamEndCapture",
                                           "cuGraphInstantiateWithFlags"};
    for (size_t i = 0; i < sizeof refusing / sizeof *refusing;
         i++) { /* each on a device of its own: it remembers */
        mo_device *other = open_toy();
        mo_dstream *on;
        assert_int_equal(mo_dstream_create(other, &on, &err), MO_OK);
        fail_at(refusing[i], 801);
        assert_int_equal(mo_program_create(other, ops, 2, &program, &err), MO_OK);
        assert_int_equal(seen("cuStreamBeginCapture"), 1);
        assert_int_equal(seen("cuStreamEndCapture"), i > 0);
        fail_at(NULL, 0);
        assert_int_equal(mo_program_run(program, on, &err), MO_OK);
        assert_true(seen("cuLaunchKernel") >= 2 && seen("cuGraphLaunch") == 0);
        mo_program_destroy(program);
        assert_int_equal(mo_program_create(other, ops, 2, &program, &err), MO_OK);
        assert_int_equal(seen("cuStreamBeginCapture"), 0);
        mo_program_destroy(program);
        mo_dstream_destroy(on);
        mo_device_close(other);
    }
    assert_int_equal(mo_program_create(device, ops, 0, &program, &err), MO_OK);
    assert_int_equal(mo_program_run(program, stream, &err), MO_OK);
    mo_program_destroy(program);
    mo_dstream_destroy(stream);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

/* ---- Ops that go together ---- */

enum { WIDE = 512, CHOICES = 32, PICKED = 4 };

static mo_dacts acts_at(mo_daddr at, int cols)
{
    return (mo_dacts){at, at, at, at, at, at, cols, 0};
}

static mo_op a_product(int type, int rows)
{
    mo_op op = {.kind = MO_OP_PRODUCT, .product = {.in = acts_at(0x20000, WIDE), .tokens = 1, .count = 1}};
    op.product.matrix[0] = (mo_dmatrix){.data = 0x40000, .type = type, .rows = rows, .cols = WIDE};
    op.product.y[0] = 0x30000;
    op.product.stride[0] = rows;
    return op;
}

static mo_op a_choice(void)
{
    return (mo_op){.kind = MO_OP_CHOOSE,
                   .choose = {.scores = 0x30000,
                              .ids = 0x60000,
                              .weights = 0x61000,
                              .tokens = 1,
                              .experts = CHOICES,
                              .used = PICKED}};
}

/* How many kernels a program of these ops has. */
static int kernels_of(mo_device *device, const mo_op *ops, int count)
{
    mo_error err;
    mo_program *program;
    seen(NULL);
    if (mo_program_create(device, ops, count, &program, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const int kernels = seen("cuLaunchKernel");
    mo_program_destroy(program);
    return kernels;
}

/* Two ops, and whether they go together. */
static void expect(mo_device *device, mo_op first, mo_op second, bool together)
{
    const mo_op ops[] = {first, second};
    assert_int_equal(kernels_of(device, ops, 2), together ? 1 : 2);
}

static void routers(void **state)
{
    (void)state;
    mo_device *device = open_toy();
    const mo_op router = a_product(MO_F32, CHOICES), choice = a_choice();
    expect(device, router, choice, true);
    expect(device, a_product(MO_F16, CHOICES), choice, true);
    expect(device, a_product(MO_BF16, CHOICES), choice, true);
    expect(device, choice, router, false); /* the other way round */
    expect(device, router, router, false);
    expect(device, choice, choice, false);
    expect(device, a_product(MO_Q8_0, CHOICES), choice, false); /* no router of floats */
    mo_op op = choice, other = router;
    op.choose.tokens = 2; /* more tokens than one */
    expect(device, router, op, false);
    other.product.tokens = 2;
    expect(device, other, choice, false);
    expect(device, other, op, false);
    op = choice; /* more experts than such a block has threads */
    op.choose.experts = MO_OP_EXPERTS;
    expect(device, router, op, false);
    op = router; /* rows that cannot be copied 16 bytes at a time */
    op.product.matrix[0].data += 4;
    expect(device, op, choice, false);
    op = router;
    op.product.count = 2; /* two matrices */
    op.product.matrix[1] = op.product.matrix[0];
    op.product.y[1] = 0x38000;
    op.product.stride[1] = CHOICES;
    expect(device, op, choice, false);

    const mo_op layers[] = {router, choice, logits_op, router, logits_op, choice, router, choice, router};
    assert_int_equal(kernels_of(device, layers, 9), 7);
    mo_cuda_fuse(device, false);
    assert_int_equal(kernels_of(device, layers, 9), 9);
    mo_cuda_fuse(device, true);
    assert_int_equal(kernels_of(device, layers, 9), 7);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

/* A product of one token with what an adapter of rank 16 adds to it, and the stream that takes it. */
enum { RANK = 16, ADAPTED = 5 };

static void adapted_ops(mo_op *ops)
{
    const mo_op product = a_product(MO_Q8_0, WIDE);
    mo_op_adapt o = {.in = product.product.in.x,
                     .uses = 0x70000,
                     .u = 0x71000,
                     .y = product.product.y[0],
                     .stride = WIDE,
                     .u_stride = RANK,
                     .in_rows = 1,
                     .rows = 1,
                     .tokens = 1,
                     .cols = WIDE,
                     .n = WIDE};
    o.low[0] =
        (mo_dlow){.a = 0x80000, .b = 0x90000, .a_bytes = RANK * WIDE * 2, .rank = RANK, .type = MO_F16};
    ops[0] = product;
    ops[1] = (mo_op){.kind = MO_OP_LOWER, .adapt = o};
    ops[2] = (mo_op){.kind = MO_OP_ADAPT, .adapt = o};
    ops[3] = (mo_op){.kind = MO_OP_STREAM,
                     .stream = {.x = 0xA0000, .y = o.y, .tokens = 1, .n = WIDE, .eps = 1e-5f}};
    ops[4] = logits_op;
}

/* An adapter costs no kernel of its own where all of it can be joined; otherwise what cannot be is op by op. */
static void adapters(void **state)
{
    (void)state;
    mo_device *device = open_toy();
    mo_op ops[ADAPTED];
    adapted_ops(ops);
    assert_int_equal(kernels_of(device, ops, ADAPTED), 3);
    mo_cuda_fuse(device, false);
    assert_int_equal(kernels_of(device, ops, ADAPTED), 5);
    mo_cuda_fuse(device, true);
    ops[3].stream.y = 0xB0000; /* the stream takes another's rows */
    assert_int_equal(kernels_of(device, ops, ADAPTED), 4);
    adapted_ops(ops);
    ops[2].adapt.u += 0x100; /* what is added is not what was made */
    assert_int_equal(kernels_of(device, ops, ADAPTED), 4);
    adapted_ops(ops);
    ops[1].adapt.low[2] = ops[2].adapt.low[2] = ops[1].adapt.low[0]; /* more adapters than a part has */
    assert_int_equal(kernels_of(device, ops, ADAPTED), 5);
    adapted_ops(ops);
    ops[1].adapt.low[0].a += 2; /* rows of A that cannot be copied 16 bytes at a time */
    ops[2].adapt.low[0].a += 2;
    assert_int_equal(kernels_of(device, ops, ADAPTED), 5);
    adapted_ops(ops);
    ops[1].adapt.rows = ops[1].adapt.in_rows = ops[1].adapt.tokens = 2; /* more tokens than one */
    ops[2].adapt = ops[1].adapt;
    assert_int_equal(kernels_of(device, ops, ADAPTED), 5);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

/* The environment decides when a device is chosen by its name, and what it says must make sense. */
static void routers_by_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda", "auto"};
    const mo_op ops[] = {a_product(MO_F32, CHOICES), a_choice()};
    mo_error err;
    mo_device *device;
    for (int i = 0; i < 6; i++) {
        const bool fuse = i % 3 != 0;
        setenv("MORAINE_CUDA_FUSE", fuse ? "1" : "0", 1);
        if (i % 3 == 2) {
            unsetenv("MORAINE_CUDA_FUSE");
        }
        assert_int_equal(mo_device_choose(names[i / 3], &device, NULL, 0, &err), MO_OK);
        assert_int_equal(kernels_of(device, ops, 2), fuse ? 1 : 2);
        mo_device_close(device);
        setenv("MORAINE_CUDA_FUSE", "off", 1);
        assert_int_equal(mo_device_choose(names[i / 3], &device, NULL, 0, &err), MO_EINVAL);
        assert_null(device);
        assert_says(err, "MORAINE_CUDA_FUSE: cannot parse \"off\"");
    }
    unsetenv("MORAINE_CUDA_FUSE");
    assert_int_equal(play.objects, 0);
}

/* ---- Kernels that come prelaunch ---- */

static int told_version = 12030;

static int play_version(int *version)
{
    *version = told_version;
    return answer("cuDriverGetVersion");
}

static int play_launch_ex(const mo_cuda_config *config, void *function, void **parameters, void **extra)
{
    (void)function;
    assert_non_null(parameters[0]);
    assert_null(extra);
    assert_int_equal(config->attribute_count, 1);
    assert_int_equal(config->attributes[0].id, MO_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION);
    assert_int_equal(config->attributes[0].value[0], 1);
    assert_true(config->grid[0] > 0 && config->block[0] > 0);
    return answer("cuLaunchKernelEx");
}

/* Three kernels, of which so many are prelaunch. */
static void expect_prelaunch(mo_device *device, int prelaunch)
{
    const mo_op ops[] = {logits_op, a_choice(), logits_op};
    assert_int_equal(kernels_of(device, ops, 3), 3 - prelaunch);
    assert_int_equal(seen("cuLaunchKernelEx"), prelaunch);
}

static void prelaunch(void **state)
{
    (void)state;
    mo_error err;
    driver.driver_get_version = play_version;
    mo_device *device = open_toy(); /* the driver has no such call */
    expect_prelaunch(device, 0);
    mo_device_close(device);
    driver.launch_kernel_ex = play_launch_ex;
    device = open_toy();
    expect_prelaunch(device, 2); /* the first follows what is not of the program */
    mo_cuda_prelaunch(device, false);
    expect_prelaunch(device, 0);
    mo_cuda_prelaunch(device, true);
    expect_prelaunch(device, 2);
    mo_dstream *stream;
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    seen(NULL);
    assert_int_equal(mo_op_launch(stream, &logits_op, &err), MO_OK);
    assert_int_equal(seen("cuLaunchKernelEx"), 0);
    mo_dstream_destroy(stream);
    mo_device_close(device);

    told_version = 12020; /* graphs do not know of it */
    device = open_toy();
    mo_cuda_prelaunch(device, true);
    expect_prelaunch(device, 0);
    mo_device_close(device);
    told_version = 12030;
    play.compute = 89; /* the kernels do not */
    device = open_toy();
    mo_cuda_prelaunch(device, true);
    expect_prelaunch(device, 0);
    mo_device_close(device);
    play.compute = 90;
    assert_int_equal(play.objects, 0);
}

/* Refused once: the program is recorded again, and this and the next are graphs of punctual kernels. */
static void prelaunch_refused(void **state)
{
    (void)state;
    mo_error err;
    mo_program *program;
    mo_dstream *stream;
    const mo_op ops[] = {logits_op, logits_op};
    driver.driver_get_version = play_version;
    driver.launch_kernel_ex = play_launch_ex;
    mo_device *device = open_toy();
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    fail_at("cuLaunchKernelEx", 801);
    assert_int_equal(mo_program_create(device, ops, 2, &program, &err), MO_OK);
    assert_int_equal(seen("cuLaunchKernelEx"), 1);
    assert_int_equal(seen("cuStreamBeginCapture"), 2);
    fail_at(NULL, 0);
    assert_int_equal(mo_program_run(program, stream, &err), MO_OK);
    assert_int_equal(seen("cuGraphLaunch"), 1);
    mo_program_destroy(program);
    expect_prelaunch(device, 0);
    mo_dstream_destroy(stream);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

static void prelaunch_by_environment(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device;
    driver.driver_get_version = play_version;
    driver.launch_kernel_ex = play_launch_ex;
    static const char *const values[] = {"0", "1"};
    for (int i = 0; i < 2; i++) {
        setenv("MORAINE_CUDA_PRELAUNCH", values[i], 1);
        assert_int_equal(mo_device_choose("cuda", &device, NULL, 0, &err), MO_OK);
        expect_prelaunch(device, 2 * i);
        mo_device_close(device);
    }
    setenv("MORAINE_CUDA_PRELAUNCH", "soon", 1);
    assert_int_equal(mo_device_choose("cuda", &device, NULL, 0, &err), MO_EINVAL);
    assert_says(err, "MORAINE_CUDA_PRELAUNCH: cannot parse \"soon\"");
    unsetenv("MORAINE_CUDA_PRELAUNCH");
    assert_int_equal(play.objects, 0);
}

/* Without memory for their counters ops go alone; counters of programs that ended serve others. */
static void counters(void **state)
{
    (void)state;
    enum { MANY = 300 };
    const mo_op ops[] = {a_product(MO_F32, CHOICES), a_choice()};
    static const char *const refusing[] = {"cuMemAlloc_v2", "cuMemsetD8Async"};
    for (size_t i = 0; i < sizeof refusing / sizeof *refusing; i++) {
        mo_device *device = open_toy();
        fail_at(refusing[i], MO_CUDA_OUT_OF_MEMORY);
        assert_int_equal(kernels_of(device, ops, 2), 2);
        fail_at(NULL, 0);
        assert_int_equal(kernels_of(device, ops, 2), 2); /* it remembers */
        mo_device_close(device);
        assert_int_equal(play.objects, 0);
    }
    mo_device *device = open_toy();
    mo_program *programs[MANY];
    mo_error err;
    for (int i = 0; i < MANY; i++) {
        seen(NULL);
        assert_int_equal(mo_program_create(device, ops, 2, &programs[i], &err), MO_OK);
        assert_int_equal(seen("cuLaunchKernel"), i < 256 ? 1 : 2);
        assert_int_equal(seen("cuMemAlloc_v2"), i == 0);
    }
    for (int i = 0; i < MANY; i++) {
        mo_program_destroy(programs[i]);
    }
    assert_int_equal(kernels_of(device, ops, 2), 1);
    mo_device_close(device);
    assert_int_equal(play.objects, 0);
}

/* After the end of the context every call fails with the first reason, and the driver is left alone but for the
 * memory of the host and the context itself. */
static void lost(void **state)
{
    (void)state;
    mo_error err;
    mo_dstream *stream;
    mo_event *event;
    mo_program *program;
    mo_daddr address, seen_at;
    void *memory;
    bool done;
    mo_device *device = open_toy();
    assert_int_equal(mo_dstream_create(device, &stream, &err), MO_OK);
    assert_int_equal(mo_event_create(device, &event, &err), MO_OK);
    assert_int_equal(mo_program_create(device, &logits_op, 1, &program, &err), MO_OK);
    assert_int_equal(mo_device_alloc(device, 1, &address, &err), MO_OK);
    assert_int_equal(mo_device_pin(device, 4096, &memory, &seen_at, &err), MO_OK);
    fail_at("cuEventQuery", MO_CUDA_NOT_READY);
    assert_int_equal(mo_event_query(event, &done, &err), MO_OK);
    assert_false(done);
    fail_at("cuStreamSynchronize", 700);
    assert_int_equal(mo_dstream_wait(stream, &err), MO_EDEVICE);
    assert_says(
        err, "Toy 0 (cuda 0) is lost: cuStreamSynchronize returned CUDA_ERROR_OF_THE_PLAY (as it was told)");
    seen(NULL);
    char text[16];
    double seconds;
    assert_int_equal(mo_copy_in(stream, address, text, 1, &err), MO_EDEVICE);
    assert_says(err, "cuStreamSynchronize returned");
    assert_int_equal(mo_copy_out(stream, text, address, 1, &err), MO_EDEVICE);
    assert_int_equal(mo_copy_within(stream, address, address + 256, 1, &err), MO_EDEVICE);
    assert_int_equal(mo_device_clear(stream, address, 1, &err), MO_EDEVICE);
    assert_int_equal(mo_event_record(event, stream, &err), MO_EDEVICE);
    assert_int_equal(mo_dstream_after(stream, event, &err), MO_EDEVICE);
    assert_int_equal(mo_event_query(event, &done, &err), MO_EDEVICE);
    assert_int_equal(mo_event_wait(event, &err), MO_EDEVICE);
    assert_int_equal(mo_event_seconds(event, event, &seconds, &err), MO_EDEVICE);
    assert_int_equal(mo_op_launch(stream, &logits_op, &err), MO_EDEVICE);
    assert_int_equal(mo_program_run(program, stream, &err), MO_EDEVICE);
    mo_device_info info;
    mo_device_describe(device, &info);
    mo_program_destroy(program);
    mo_event_destroy(event);
    mo_dstream_destroy(stream);
    mo_device_free(device, address);
    assert_string_equal(play.calls, "");
    mo_device_unpin(device, memory);
    mo_device_close(device);
    assert_string_equal(play.calls, "cuMemFreeHost cuCtxSetCurrent cuDevicePrimaryCtxRelease_v2 ");
}

static void *query_on_thread(void *event)
{
    mo_error err;
    bool done = false;
    for (int i = 0; i < 2; i++) {
        if (mo_event_query(event, &done, &err) != MO_OK) {
            return NULL;
        }
    }
    return done ? event : NULL;
}

/* A thread makes the context its own at its first call, once; so it does for a device that was opened again. */
static void threads_and_contexts(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        mo_error err;
        mo_event *event;
        pthread_t thread;
        void *result = NULL;
        mo_device *device = NULL;
        seen(NULL);
        assert_int_equal(mo_cuda_open(0, 0, &device, &err), MO_OK);
        assert_int_equal(seen("cuCtxSetCurrent"), 1);
        assert_int_equal(mo_event_create(device, &event, &err), MO_OK);
        assert_int_equal(pthread_create(&thread, NULL, query_on_thread, event), 0);
        pthread_join(thread, &result);
        assert_ptr_equal(result, event);
        assert_int_equal(seen("cuCtxSetCurrent"), 2);
        mo_event_destroy(event);
        mo_device_close(device);
    }
    assert_int_equal(play.objects, 0);
}

/* ---- Copies between GPUs ---- */

static int play_device(int *device, int index)
{
    *device = index;
    return answer("cuDeviceGet");
}

static int reachable; /* what the driver says of two GPUs */

static int play_can(int *can, int device, int other)
{
    (void)device;
    (void)other;
    *can = reachable;
    return answer("cuDeviceCanAccessPeer");
}

static int play_enable(void *other, unsigned flags)
{
    (void)other;
    (void)flags;
    return answer("cuCtxEnablePeerAccess");
}

static int play_peer(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes,
                     void *stream)
{
    (void)to;
    (void)from;
    (void)bytes;
    (void)stream;
    assert_ptr_not_equal(to_context, from_context);
    return answer("cuMemcpyPeerAsync");
}

/* Straight where the driver allows it; within the memory of a GPU that is named twice; refusals lose nothing, nor does a loss
 * of the other one. */
static void copies_between_gpus(void **state)
{
    (void)state;
    mo_error err;
    mo_device *device[3] = {NULL};
    mo_dstream *stream;
    play.devices = 2;
    driver.device_get = play_device;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mo_cuda_open(i % 2, 0, &device[i], &err), MO_OK);
    }
    assert_int_equal(mo_dstream_create(device[0], &stream, &err), MO_OK);
    assert_true(mo_device_reaches(device[0], device[2]));
    seen(NULL);
    assert_int_equal(mo_copy_across(stream, 0x10000, device[2], 0x20000, 8, &err), MO_OK);
    assert_int_equal(seen("cuMemcpyDtoDAsync"), 1);
    assert_false(mo_device_reaches(device[0], device[1])); /* a driver without such calls */
    driver.device_can_access_peer = play_can;
    driver.ctx_enable_peer_access = play_enable;
    driver.memcpy_peer_async = play_peer;
    reachable = 0;
    assert_false(mo_device_reaches(device[0], device[1]));
    assert_int_equal(seen("cuCtxEnablePeerAccess"), 0);
    reachable = 1;
    fail_at("cuCtxEnablePeerAccess", 217); /* not supported */
    assert_false(mo_device_reaches(device[0], device[1]));
    fail_at("cuCtxEnablePeerAccess", MO_CUDA_PEER_ENABLED_ALREADY);
    assert_true(mo_device_reaches(device[0], device[1]));
    fail_at(NULL, MO_CUDA_OK);
    assert_true(mo_device_reaches(device[0], device[1]));
    assert_int_equal(mo_copy_across(stream, 0x10000, device[1], 0x20000, 8, &err), MO_OK);
    assert_int_equal(seen("cuMemcpyPeerAsync"), 1);
    fail_at("cuMemcpyPeerAsync", MO_CUDA_INVALID_VALUE);
    assert_int_equal(mo_copy_across(stream, 0x10000, device[1], 0x20000, 8, &err), MO_EIO);
    fail_at("cuMemcpyPeerAsync", 700); /* of whichever of the two */
    assert_int_equal(mo_copy_across(stream, 0x10000, device[1], 0x20000, 8, &err), MO_EIO);
    assert_says(err, "Toy 0 (cuda 0) cannot copy from Toy 1 (cuda 1): cuMemcpyPeerAsync returned");
    static const int refusals[] = {217, 704, 705, 711};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        fail_at("cuMemcpyDtoDAsync_v2", refusals[i]);
        assert_int_not_equal(mo_copy_across(stream, 0x10000, device[2], 0x20000, 8, &err), MO_EDEVICE);
        assert_says(err, "Toy 0 (cuda 0) failed");
    }
    fail_at("cuStreamSynchronize", 700);
    mo_dstream *other;
    assert_int_equal(mo_dstream_create(device[1], &other, &err), MO_OK);
    assert_int_equal(mo_dstream_wait(other, &err), MO_EDEVICE);
    fail_at(NULL, MO_CUDA_OK);
    assert_int_equal(mo_copy_across(stream, 0x10000, device[1], 0x20000, 8, &err), MO_EDEVICE);
    assert_says(err, "Toy 1 (cuda 1) is lost");
    assert_int_equal(seen("cuMemcpyPeerAsync"), 0);
    assert_int_equal(mo_dstream_wait(stream, &err), MO_OK);
    mo_dstream_destroy(other);
    play.objects -= 2; /* it and the one for programs: a lost GPU's streams are left alone */
    mo_dstream_destroy(stream);
    for (int i = 0; i < 3; i++) {
        mo_device_close(device[i]);
    }
    assert_int_equal(play.objects, 0);
}

#define PLAYED(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        PLAYED(no_device),
        PLAYED(opening_fails),
        PLAYED(describes),
        PLAYED(chooses_code),
        PLAYED(memory_refused),
        PLAYED(launches),
        PLAYED(programs),
        PLAYED(routers),
        PLAYED(adapters),
        PLAYED(routers_by_environment),
        PLAYED(prelaunch),
        PLAYED(prelaunch_refused),
        PLAYED(prelaunch_by_environment),
        PLAYED(counters),
        PLAYED(lost),
        PLAYED(threads_and_contexts),
        PLAYED(copies_between_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
