/* Kernels: loading the code that suits the GPU, finding kernels in it by name, and starting them. */
#include "device/cuda/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "device/cuda/blas.h"
#include "device/cuda/images.h"

/* ---- Loading ---- */

/* Loads a module's code now: left to a kernel's first launch, the driver may wait for everything that runs, and a
 * kernel that itself waits for the host would never end. Drivers before 12.4 cannot do that. */
static mo_status load_functions(mo_cuda_device *d, void *module, mo_error *err)
{
    const mo_cuda_driver *driver = d->driver;
    if (!driver->module_get_function_count || !driver->module_enumerate_functions || !driver->func_load) {
        return MO_OK;
    }
    unsigned count = 0;
    mo_status status =
        mo_cuda_check(d, driver->module_get_function_count(&count, module), "cuModuleGetFunctionCount", err);
    if (status != MO_OK || count == 0) {
        return status;
    }
    void **functions = calloc(count, sizeof *functions);
    if (!functions) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a list of %u kernels", count);
    }
    status = mo_cuda_check(d, driver->module_enumerate_functions(functions, count, module),
                           "cuModuleEnumerateFunctions", err);
    for (unsigned i = 0; i < count && status == MO_OK; i++) {
        status = mo_cuda_check(d, driver->func_load(functions[i]), "cuFuncLoad", err);
    }
    free(functions);
    return status;
}

static mo_status explain_load(mo_cuda_device *d, int result, mo_status status, mo_error *err)
{
    int version = 0;
    d->driver->driver_get_version(&version);
    switch (result) {
    case MO_CUDA_NO_BINARY_FOR_GPU:
    case MO_CUDA_INVALID_IMAGE:
    case MO_CUDA_INVALID_PTX:
        return mo_fail(
            err, MO_EDEVICE,
            "%s (cuda %d, capability %d.%d) cannot run the kernels of this build with driver %d.%d; build "
            "with `make CUDA=%d.%d`, or update the driver",
            d->name, d->index, d->compute / 10, d->compute % 10, version / 1000, version % 1000 / 10,
            d->compute / 10, d->compute % 10);
    case MO_CUDA_UNSUPPORTED_PTX_VERSION:
        return mo_fail(
            err, MO_EDEVICE,
            "the NVIDIA driver (%d.%d) is older than the nvcc that compiled the kernels of this build; "
            "update the driver, or build with an older nvcc",
            version / 1000, version % 1000 / 10);
    case MO_CUDA_JIT_COMPILER_NOT_FOUND:
        return mo_fail(
            err, MO_EDEVICE,
            "the NVIDIA driver cannot compile PTX (its libnvidia-ptxjitcompiler is missing), and this "
            "build has no machine code for %s; install that part of the driver, or build with "
            "`make CUDA=%d.%d`",
            d->name, d->compute / 10, d->compute % 10);
    default: return mo_fail_prefix(err, status, "kernels");
    }
}

/* The newest PTX of this build that the GPU can run; 0: there is none. */
static int best_ptx(int compute)
{
    int best = 0;
    for (const mo_cuda_image *image = mo_cuda_images; image->file; image++) {
        if (image->ptx <= compute && image->ptx > best) {
            best = image->ptx;
        }
    }
    return best;
}

static bool has_ptx(int ptx)
{
    for (const mo_cuda_image *image = mo_cuda_images; image->file; image++) {
        if (image->ptx == ptx) {
            return true;
        }
    }
    return false;
}

static mo_status load_module(mo_cuda_device *d, const void *data, int *result, mo_error *err)
{
    if (d->module_count == MO_CUDA_MODULES) {
        return mo_fail(err, MO_EUNSUPPORTED, "this build has more than %d kernel files", MO_CUDA_MODULES);
    }
    void *module = NULL;
    *result = d->driver->module_load_data(&module, data);
    mo_status status = mo_cuda_check(d, *result, "cuModuleLoadData", err);
    if (status == MO_OK) {
        d->modules[d->module_count++] = module;
        status = load_functions(d, module, err);
    }
    return status;
}

/* All files, as machine code (ptx 0) or as that PTX. */
static mo_status load_all(mo_cuda_device *d, int ptx, int *result, mo_error *err)
{
    for (const mo_cuda_image *image = mo_cuda_images; image->file; image++) {
        if (image->ptx != ptx) {
            continue;
        }
        mo_status status = load_module(d, image->data, result, err);
        if (status != MO_OK) {
            return status;
        }
    }
    return MO_OK;
}

mo_status mo_cuda_load(mo_cuda_device *d, int ptx, mo_error *err)
{
    int result = MO_CUDA_OK;
    mo_status status;
    d->code = ptx ? ptx : d->compute;
    if (!mo_cuda_images[0].file) { /* a build without nvcc, and a test's own driver */
        return load_module(d, "", &result, err);
    }
    if (ptx == 0 && has_ptx(0)) {
        status = load_all(d, 0, &result, err);
        if (status == MO_OK || result != MO_CUDA_NO_BINARY_FOR_GPU || best_ptx(d->compute) == 0) {
            return status == MO_OK ? MO_OK : explain_load(d, result, status, err);
        }
        mo_cuda_unload(d);
    }
    if (ptx == 0) {
        ptx = best_ptx(d->compute);
        mo_log(MO_LOG_INFO, "cuda",
               "%s: this build has no machine code for "
               "capability %d.%d; the driver compiles the "
               "kernels from PTX %d now and caches the result",
               d->name, d->compute / 10, d->compute % 10, ptx);
    }
    if (!has_ptx(ptx) || ptx > d->compute) {
        return mo_fail(err, MO_EDEVICE,
                       "this build has no kernels that %s (capability %d.%d) can run%s; build with "
                       "`make CUDA=%d.%d`",
                       d->name, d->compute / 10, d->compute % 10, ptx ? " as the requested PTX" : "",
                       d->compute / 10, d->compute % 10);
    }
    d->code = ptx;
    status = load_all(d, ptx, &result, err);
    return status == MO_OK ? MO_OK : explain_load(d, result, status, err);
}

void mo_cuda_unload(mo_cuda_device *d)
{
    for (int i = 0; i < d->module_count; i++) {
        mo_cuda_check_quietly(d, d->driver->module_unload(d->modules[i]), "cuModuleUnload");
    }
    d->module_count = 0;
}

/* ---- Finding ---- */

static mo_status look_up(mo_cuda_device *d, const char *name, mo_cuda_kernel *out, mo_error *err)
{
    for (int i = 0; i < d->module_count; i++) {
        void *function = NULL;
        const int result = d->driver->module_get_function(&function, d->modules[i], name);
        if (result == MO_CUDA_NOT_FOUND) {
            continue;
        }
        mo_status status = mo_cuda_check(d, result, "cuModuleGetFunction", err);
        int limit = 0;
        if (status == MO_OK) {
            status = mo_cuda_check(
                d, d->driver->func_get_attribute(&limit, MO_CUDA_FUNC_MAX_DYNAMIC_SHARED, function),
                "cuFuncGetAttribute", err);
        }
        if (status == MO_OK) {
            *out = (mo_cuda_kernel){.name = name, .function = function, .shared_limit = (uint32_t)limit};
        }
        return status;
    }
    return mo_fail(err, MO_EUNSUPPORTED, "kernel %s is not in this build; its kernel files are incomplete",
                   name);
}

/* The place of a name, or the free one where it would be. A quarter of the places stays free, so there is an end. */
static mo_cuda_kernel *place_of(mo_cuda_device *d, const char *name)
{
    size_t at = (size_t)(((uint64_t)(uintptr_t)name * 0x9E3779B97F4A7C15u) >> 32);
    for (;; at++) {
        mo_cuda_kernel *kernel = &d->kernels[at % MO_CUDA_KERNELS];
        if (kernel->name == name || !kernel->name) {
            return kernel;
        }
    }
}

static mo_status find_kernel(mo_cuda_device *d, const char *name, mo_cuda_kernel **out, mo_error *err)
{
    mo_cuda_kernel *kernel = place_of(d, name);
    *out = kernel;
    if (kernel->name) {
        return MO_OK;
    }
    if (d->kernel_count == MO_CUDA_KERNELS / 4 * 3) {
        return mo_fail(err, MO_EUNSUPPORTED, "more than %d kernels are in use", d->kernel_count);
    }
    mo_status status = look_up(d, name, kernel, err);
    d->kernel_count += status == MO_OK;
    return status;
}

/* More than 48 KiB of shared memory is given only to kernels that have asked for it. */
static mo_status allow_shared(mo_cuda_device *d, mo_cuda_kernel *kernel, uint32_t bytes, mo_error *err)
{
    if (bytes <= kernel->shared_limit) {
        return MO_OK;
    }
    mo_status status = mo_cuda_check(
        d, d->driver->func_set_attribute(kernel->function, MO_CUDA_FUNC_MAX_DYNAMIC_SHARED, (int)bytes),
        "cuFuncSetAttribute", err);
    if (status != MO_OK) {
        return mo_fail_prefix(err, status, "%u bytes of shared memory for kernel %s", bytes, kernel->name);
    }
    kernel->shared_limit = bytes;
    return MO_OK;
}

/* ---- Launching ---- */

static mo_status make_step(mo_cuda_device *d, const mo_cuda_launch *l, const void *parameter,
                           mo_cuda_step *out, mo_error *err)
{
    mo_cuda_kernel *kernel = NULL;
    mo_status status = find_kernel(d, l->kernel, &kernel, err);
    if (status == MO_OK) {
        status = allow_shared(d, kernel, l->shared, err);
    }
    if (status == MO_OK) {
        *out = (mo_cuda_step){.function = kernel->function,
                              .grid = {l->grid[0], l->grid[1], l->grid[2]},
                              .block = {l->block[0], l->block[1], l->block[2]},
                              .shared = l->shared,
                              .prelaunch = l->prelaunch,
                              .patient = l->prelaunch && l->patient,
                              .parameter = parameter};
    }
    return status;
}

mo_status mo_cuda_prepare(mo_cuda_device *d, const mo_op *op, mo_cuda_step *steps, int *count, mo_error *err)
{
    mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
    const int chosen = mo_cuda_launch_op(op, d->code, d->sms, launches, err);
    *count = 0;
    if (chosen < 0) {
        return err ? err->status : MO_EUNSUPPORTED;
    }
    for (int i = 0; i < chosen; i++) {
        /* All members of the union begin where `stream` does. */
        const mo_status status = make_step(d, &launches[i], &op->stream, &steps[i], err);
        if (status != MO_OK) {
            return status;
        }
    }
    *count = chosen;
    return MO_OK;
}

mo_status mo_cuda_prepare_router(mo_cuda_device *d, const mo_op *first, const mo_op *second,
                                 mo_cuda_router *router, mo_cuda_step *step, int *made, mo_error *err)
{
    mo_cuda_launch launch;
    *made = mo_cuda_launch_router(first, second, d->code, d->sms, &launch);
    if (*made == 0) {
        return MO_OK;
    }
    router->product = first->product;
    router->choose = second->choose;
    return make_step(d, &launch, router, step, err);
}

mo_status mo_cuda_prepare_routed(mo_cuda_device *d, const mo_op *ops, int count, mo_cuda_routed *routed,
                                 mo_cuda_step *step, int *made, mo_error *err)
{
    mo_cuda_launch launch;
    *made = mo_cuda_launch_routed(ops, count, d->code, d->sms, routed, &launch);
    return *made ? make_step(d, &launch, routed, step, err) : MO_OK;
}

mo_status mo_cuda_prepare_fresh(mo_cuda_device *d, const mo_op *first, const mo_op *second,
                                mo_cuda_fresh *fresh, mo_cuda_step steps[2], int *made, mo_error *err)
{
    mo_cuda_launch launch[2];
    *made = mo_cuda_launch_fresh(first, second, d->code, d->sms, fresh, launch);
    if (*made == 0) {
        return MO_OK;
    }
    const mo_status status = make_step(d, &launch[0], fresh, &steps[0], err);
    return status == MO_OK && *made == 2 ? make_step(d, &launch[1], &fresh->attend, &steps[1], err) : status;
}

mo_status mo_cuda_prepare_lowered(mo_cuda_device *d, const mo_op *ops, int count, mo_cuda_lowered *lowered,
                                  mo_cuda_step *step, int *taken, mo_error *err)
{
    mo_cuda_launch launch;
    *taken = mo_cuda_launch_lowered(ops, count, d->code, d->sms, lowered, &launch);
    return *taken ? make_step(d, &launch, lowered, step, err) : MO_OK;
}

mo_status mo_cuda_prepare_adapted(mo_cuda_device *d, const mo_op *ops, int count, const mo_cuda_place *place,
                                  mo_cuda_adapted *adapted, mo_cuda_step steps[2], int *taken, mo_error *err)
{
    mo_cuda_launch launch[2];
    *taken = mo_cuda_launch_adapted(ops, count, d->code, d->sms, place, adapted, launch);
    if (*taken == 0) {
        return MO_OK;
    }
    const mo_status status = make_step(d, &launch[0], &adapted->lowered, &steps[0], err);
    return status == MO_OK ? make_step(d, &launch[1], &adapted->raised, &steps[1], err) : status;
}

mo_status mo_cuda_start(mo_cuda_device *d, void *stream, const mo_cuda_step *step, bool prelaunch,
                        mo_error *err)
{
    /* The driver copies what the kernel takes. */
    void *parameters[] = {(void *)(uintptr_t)step->parameter};
    if (prelaunch) {
        mo_cuda_attribute serialization = {.id = MO_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION, .value = {1}};
        const mo_cuda_config config = {.grid = {step->grid[0], step->grid[1], step->grid[2]},
                                       .block = {step->block[0], step->block[1], step->block[2]},
                                       .shared_bytes = step->shared,
                                       .stream = stream,
                                       .attributes = &serialization,
                                       .attribute_count = 1};
        return mo_cuda_check(d, d->driver->launch_kernel_ex(&config, step->function, parameters, NULL),
                             "cuLaunchKernelEx", err);
    }
    const int result =
        d->driver->launch_kernel(step->function, step->grid[0], step->grid[1], step->grid[2], step->block[0],
                                 step->block[1], step->block[2], step->shared, stream, parameters, NULL);
    return mo_cuda_check(d, result, "cuLaunchKernel", err);
}

/* Not of a program. A driver that refuses to prelaunch is not asked again. */
static mo_status start_alone(mo_cuda_device *d, void *stream, const mo_cuda_step *step, mo_error *err)
{
    if (step->patient && !d->punctual) {
        mo_error why = {0};
        const mo_status status = mo_cuda_start(d, stream, step, true, &why);
        if (status == MO_OK || status == MO_EDEVICE) {
            return status == MO_OK ? MO_OK : mo_fail(err, status, "%s", why.detail);
        }
        d->punctual = true;
        mo_log(MO_LOG_WARN, "cuda",
               "%s; each kernel starts when the previous one has ended, which costs about 1 us each",
               why.detail);
    }
    return mo_cuda_start(d, stream, step, false, err);
}

mo_status mo_cuda_op_launch(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    mo_cuda_device *d = (mo_cuda_device *)stream->device;
    mo_cuda_step steps[MO_CUDA_KERNELS_PER_OP];
    int count = 0;
    mo_status status = mo_cuda_enter(d, err);
    if (status == MO_OK) {
        status = mo_cuda_prepare(d, op, steps, &count, err);
    }
    void *const on = ((mo_cuda_stream *)stream)->handle;
    if (status == MO_OK && op->kind == MO_OP_BF16 && mo_cuda_blas_multiply(d, on, &op->bf16)) {
        return MO_OK;
    }
    for (int i = 0; i < count && status == MO_OK; i++) {
        status = start_alone(d, on, &steps[i], err);
    }
    return status;
}
