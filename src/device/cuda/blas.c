#include "device/cuda/blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Its interface: a cublasStatus_t is an int (0: success), a handle a void *. */
enum {
    OP_N = 0,
    OP_T = 1,
    R_32F = 0,
    R_16BF = 14,
    COMPUTE_32F = 68,
    ALGO_DEFAULT = -1,
    POINTERS_ON_DEVICE = 1
};

/* Factors on the device: it reads a matrix's scale from there. */
static const float factors[2] = {1.0f, 0.0f};

struct mo_cuda_blas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_pointer_mode)(void *handle, int mode);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm);
    void *handle;
    uint64_t factors; /* float[2] on the device */
};

static bool find(void *library, const char *symbol, void *member)
{
    void *found = dlsym(library, symbol);
    memcpy(member, &found, sizeof found);
    return found != NULL;
}

static void *open_library(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL); /* never closed, as the driver */
    }
    return library;
}

/* What it lacks; NULL: it is ready. */
static const char *prepare(mo_cuda_device *d, mo_cuda_blas *b)
{
    void *library = open_library();
    if (!library) {
        return "libcublas.so.13 or .12 is not installed";
    }
    if (!find(library, "cublasCreate_v2", &b->create) || !find(library, "cublasDestroy_v2", &b->destroy) ||
        !find(library, "cublasSetStream_v2", &b->set_stream) ||
        !find(library, "cublasSetPointerMode_v2", &b->set_pointer_mode) ||
        !find(library, "cublasGemmEx", &b->gemm)) {
        return "the cuBLAS of this machine is too old";
    }
    if (b->create(&b->handle) != 0) {
        b->handle = NULL;
        return "cannot start cuBLAS; the device may have too little free memory";
    }
    if (b->set_pointer_mode(b->handle, POINTERS_ON_DEVICE) != 0 ||
        d->driver->mem_alloc(&b->factors, sizeof factors) != MO_CUDA_OK) {
        return "cannot initialize cuBLAS";
    }
    return d->driver->memcpy_htod_async(b->factors, factors, sizeof factors, NULL) == MO_CUDA_OK &&
                   d->driver->stream_synchronize(NULL) == MO_CUDA_OK
               ? NULL
               : "cannot initialize cuBLAS";
}

static void give_up(mo_cuda_device *d, const char *why)
{
    mo_log(MO_LOG_INFO, "device", "%s; bf16 products use the kernels of this program", why);
    mo_cuda_blas_close(d);
}

static void open_blas(mo_cuda_device *d)
{
    d->blas_tried = true;
    if (mo_cuda_driver_replaced()) {
        return;
    }
    d->blas = calloc(1, sizeof *d->blas);
    const char *lacks = d->blas ? prepare(d, d->blas) : "out of memory for cuBLAS";
    if (lacks) {
        give_up(d, lacks);
    }
}

bool mo_cuda_blas_multiply(mo_cuda_device *d, void *stream, const mo_op_bf16 *o)
{
    if (o->groups || o->pick || o->matrix.bias || o->rows == 0 || o->stride > INT32_MAX) {
        return false;
    }
    if (!d->blas_tried) {
        open_blas(d);
    }
    const mo_cuda_blas *b = d->blas;
    if (!b) {
        return false;
    }
    const uint64_t scale = o->matrix.scale ? o->matrix.scale : b->factors;
    const int m = o->matrix.rows, k = o->matrix.cols;
    int result = b->set_stream(b->handle, stream);
    if (result == 0) {
        result = b->gemm(b->handle, OP_T, OP_N, m, o->rows, k, (const void *)(uintptr_t)scale,
                         (const void *)(uintptr_t)o->bf16, R_16BF, k, (const void *)(uintptr_t)o->in, R_16BF,
                         k, (const void *)(uintptr_t)(b->factors + sizeof(float)), (void *)(uintptr_t)o->y,
                         R_32F, (int)o->stride, COMPUTE_32F, ALGO_DEFAULT);
    }
    if (result != 0) {
        give_up(d, "cuBLAS rejected a product");
    }
    return result == 0;
}

void mo_cuda_blas_close(mo_cuda_device *d)
{
    if (d->blas && d->blas->handle) {
        d->blas->destroy(d->blas->handle);
    }
    if (d->blas && d->blas->factors) {
        d->driver->mem_free(d->blas->factors);
    }
    free(d->blas);
    d->blas = NULL;
}
