/* The table of the fake driver, its one device, its memory and its kernels. */
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
mo_fake_gpu fake_gpu;
int fake_held;
int fake_broken;

enum { MULTIPROCESSORS = 4, DEVICE_ALIGN = 256, PAGE = 4096, FUNCTION_SHARED = 48 * 1024 };

/* A piece of memory that the device may use. */
typedef struct fake_memory {
    struct fake_memory *next;
    uint8_t *begin;
    size_t bytes;
    enum { ON_DEVICE, PINNED, REGISTERED } kind;
} fake_memory;

static fake_memory *memories;
static size_t used[3]; /* bytes, by kind */
static fake_function *functions;
static bool initialized; /* cuInit was called */
static int contexts;     /* times the primary context was retained */
static int modules;
static char context_handle, module_handle;
static _Thread_local void *current; /* context of this thread */

int fake_enter(void)
{
    pthread_mutex_lock(&fake_lock);
    const int result = fake_broken                               ? fake_broken
                       : !contexts || current != &context_handle ? FAKE_INVALID_CONTEXT
                                                                 : MO_CUDA_OK;
    if (result != MO_CUDA_OK) {
        pthread_mutex_unlock(&fake_lock);
    }
    return result;
}

int fake_leave(int result)
{
    pthread_mutex_unlock(&fake_lock);
    return result;
}

/* ---- The device ---- */

static int init(unsigned flags)
{
    initialized = true;
    return fake_broken ? fake_broken : flags != 0 ? MO_CUDA_INVALID_VALUE : MO_CUDA_OK;
}

static int driver_get_version(int *version)
{
    *version = 12040;
    return MO_CUDA_OK;
}

static int get_error_name(int error, const char **name)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "FAKE_ERROR_%d", error);
    *name = text;
    return MO_CUDA_OK;
}

static int get_error_string(int error, const char **text)
{
    *text = error == MO_CUDA_OUT_OF_MEMORY ? "out of memory" : "an error of the fake driver";
    return MO_CUDA_OK;
}

static int device_get_count(int *count)
{
    *count = 1;
    return initialized ? MO_CUDA_OK : 3; /* not initialized */
}

static int device_get(int *device, int index)
{
    *device = 7; /* not its index, which is something else */
    return index == 0 ? MO_CUDA_OK : 101;
}

static int device_get_name(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "emulated GPU");
    return device == 7 ? MO_CUDA_OK : 101;
}

static int device_get_attribute(int *value, int attribute, int device)
{
    *value = 0;
    switch (attribute) {
    case MO_CUDA_DEVICE_MULTIPROCESSORS: *value = MULTIPROCESSORS; break;
    case MO_CUDA_DEVICE_CAPABILITY_MAJOR: *value = fake_gpu.compute / 10; break;
    case MO_CUDA_DEVICE_CAPABILITY_MINOR: *value = fake_gpu.compute % 10; break;
    case MO_CUDA_DEVICE_MEMORY_CLOCK_KHZ: *value = 1000000; break;
    case MO_CUDA_DEVICE_MEMORY_BUS_BITS: *value = 64; break;
    default: return MO_CUDA_INVALID_VALUE;
    }
    return device == 7 ? MO_CUDA_OK : 101;
}

static void drop_device_memory(void);

static int primary_ctx_retain(void **context, int device)
{
    pthread_mutex_lock(&fake_lock);
    contexts++;
    *context = &context_handle;
    return fake_leave(fake_broken ? fake_broken : device == 7 ? MO_CUDA_OK : 101);
}

static int primary_ctx_release(int device)
{
    pthread_mutex_lock(&fake_lock);
    const bool last = --contexts == 0;
    if (last) {
        fake_held -= modules;
        modules = 0;
    }
    pthread_mutex_unlock(&fake_lock);
    if (last) { /* what was made in it goes with it; pinned memory is the host's */
        fake_drop_all();
        drop_device_memory();
    }
    return device == 7 ? MO_CUDA_OK : 101;
}

static int ctx_set_current(void *context)
{
    current = context;
    return context == NULL || context == &context_handle ? MO_CUDA_OK : FAKE_INVALID_CONTEXT;
}

/* ---- Memory ---- */

/* A host address is the device's own business: with one address space a kernel could not tell. */
bool fake_owns(uint64_t address, size_t bytes, bool pinned_too)
{
    for (const fake_memory *m = memories; m; m = m->next) {
        const uint64_t begin = (uintptr_t)m->begin;
        if ((m->kind == ON_DEVICE || pinned_too) && address >= begin && address - begin <= m->bytes &&
            bytes <= m->bytes - (address - begin) && (address != begin + m->bytes || bytes == 0)) {
            return true;
        }
    }
    return false;
}

/* Locked. */
static int add_memory(void *begin, size_t bytes, int kind)
{
    fake_memory *m = malloc(sizeof *m);
    if (!m) {
        return MO_CUDA_OUT_OF_MEMORY;
    }
    *m = (fake_memory){.next = memories, .begin = begin, .bytes = bytes, .kind = kind};
    memories = m;
    used[kind] += bytes;
    fake_held++;
    return MO_CUDA_OK;
}

/* Locked. False when there is no such piece. */
static bool forget_memory(const void *begin, int kind)
{
    for (fake_memory **place = &memories; *place; place = &(*place)->next) {
        fake_memory *m = *place;
        if (m->begin == begin && (int)m->kind == kind) {
            *place = m->next;
            used[kind] -= m->bytes;
            fake_held--;
            free(m);
            return true;
        }
    }
    return false;
}

static void drop_device_memory(void)
{
    pthread_mutex_lock(&fake_lock);
    for (fake_memory *m = memories; m;) {
        uint8_t *begin = m->begin;
        m = m->next;
        if (forget_memory(begin, ON_DEVICE)) {
            free(begin);
        }
    }
    pthread_mutex_unlock(&fake_lock);
}

static int make_memory(void **begin, size_t bytes, int kind, size_t align, size_t limit)
{
    const size_t taken = kind == ON_DEVICE ? used[ON_DEVICE] : used[PINNED] + used[REGISTERED];
    if (bytes == 0) {
        return MO_CUDA_INVALID_VALUE;
    }
    if (bytes > limit || taken > limit - bytes || posix_memalign(begin, align, bytes) != 0) {
        return MO_CUDA_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        memcpy((uint8_t *)*begin + i, &(uint32_t){MO_EMULATED_POISON}, 4);
    }
    return add_memory(*begin, bytes, kind);
}

static int mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    *free_bytes = fake_gpu.total_bytes - used[ON_DEVICE];
    *total_bytes = fake_gpu.total_bytes;
    return fake_leave(MO_CUDA_OK);
}

static int mem_alloc(uint64_t *address, size_t bytes)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    void *begin = NULL;
    const int result = make_memory(&begin, bytes, ON_DEVICE, DEVICE_ALIGN, fake_gpu.total_bytes);
    *address = (uintptr_t)begin;
    return fake_leave(result);
}

static int mem_free(uint64_t address)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    void *begin = (void *)(uintptr_t)address;
    if (!forget_memory(begin, ON_DEVICE)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    free(begin);
    return fake_leave(MO_CUDA_OK);
}

static int mem_host_alloc(void **memory, size_t bytes, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    return fake_leave(make_memory(memory, bytes, PINNED, PAGE, fake_gpu.pinned_bytes));
}

/* Works after a loss too: it is memory of the host. */
static int mem_free_host(void *memory)
{
    pthread_mutex_lock(&fake_lock);
    if (!forget_memory(memory, PINNED)) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    free(memory);
    return fake_leave(fake_broken);
}

static int mem_host_register(void *memory, size_t bytes, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    const size_t taken = used[PINNED] + used[REGISTERED];
    if (bytes == 0 || (uintptr_t)memory % PAGE) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    if (fake_owns((uintptr_t)memory, 1, true)) {
        return fake_leave(712); /* registered already */
    }
    if (bytes > fake_gpu.pinned_bytes || taken > fake_gpu.pinned_bytes - bytes) {
        return fake_leave(MO_CUDA_OUT_OF_MEMORY);
    }
    return fake_leave(add_memory(memory, bytes, REGISTERED));
}

static int mem_host_unregister(void *memory)
{
    pthread_mutex_lock(&fake_lock);
    return fake_leave(!forget_memory(memory, REGISTERED) ? 713 : fake_broken);
}

static int mem_host_get_device_pointer(uint64_t *address, void *memory, unsigned flags)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    (void)flags;
    *address = (uintptr_t)memory;
    return fake_leave(fake_owns(*address, 1, true) ? MO_CUDA_OK : MO_CUDA_INVALID_VALUE);
}

/* ---- Kernels ---- */

static int module_load_data(void **module, const void *image)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    *module = &module_handle; /* every kernel of this program is in every module */
    modules++;
    fake_held++;
    return fake_leave(image ? MO_CUDA_OK : MO_CUDA_INVALID_VALUE);
}

static int module_unload(void *module)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    modules--;
    fake_held--;
    return fake_leave(module == &module_handle ? MO_CUDA_OK : FAKE_INVALID_HANDLE);
}

static int module_get_function(void **function, void *module, const char *name)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    fake_function *f = functions;
    while (f && strcmp(f->name, name) != 0) {
        f = f->next;
    }
    if (!f) {
        size_t bytes;
        mo_emulated_entry entry = module == &module_handle ? mo_emulated_find(name, &bytes) : NULL;
        f = entry ? malloc(sizeof *f) : NULL;
        if (!f) {
            return fake_leave(MO_CUDA_NOT_FOUND);
        }
        *f = (fake_function){.name = name, .entry = entry, .args_bytes = bytes, .next = functions};
        f->shared_limit = FUNCTION_SHARED;
        functions = f;
    }
    *function = f;
    return fake_leave(MO_CUDA_OK);
}

static int func_get_attribute(int *value, int attribute, void *function)
{
    *value = (int)((fake_function *)function)->shared_limit;
    return attribute == MO_CUDA_FUNC_MAX_DYNAMIC_SHARED ? MO_CUDA_OK : MO_CUDA_INVALID_VALUE;
}

static int func_set_attribute(void *function, int attribute, int value)
{
    const int most = 1024 * (fake_gpu.compute >= 90   ? 227
                             : fake_gpu.compute == 80 ? 163
                             : fake_gpu.compute > 80  ? 99
                                                      : 64);
    if (attribute != MO_CUDA_FUNC_MAX_DYNAMIC_SHARED || value < 0 || value > most) {
        return MO_CUDA_INVALID_VALUE;
    }
    ((fake_function *)function)->shared_limit = (unsigned)value;
    return MO_CUDA_OK;
}

static int launch_kernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                         void **parameters, void **extra)
{
    const int entered = fake_enter();
    if (entered != MO_CUDA_OK) {
        return entered;
    }
    const fake_function *f = function;
    const uint32_t grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    if (extra || shared_bytes > f->shared_limit) {
        return fake_leave(MO_CUDA_INVALID_VALUE);
    }
    return fake_leave(fake_enqueue_kernel(f, grid, block, shared_bytes, stream, parameters[0]));
}

/* Kernels come one after the other here, so that prelaunch is as good as in time. */
static int launch_kernel_ex(const mo_cuda_config *config, void *function, void **parameters, void **extra)
{
    if (config->attribute_count != 1 ||
        config->attributes[0].id != MO_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION ||
        config->attributes[0].value[0] != 1) {
        return MO_CUDA_INVALID_VALUE;
    }
    return launch_kernel(function, config->grid[0], config->grid[1], config->grid[2], config->block[0],
                         config->block[1], config->block[2], config->shared_bytes, config->stream, parameters,
                         extra);
}

/* ---- In place of the driver ---- */

static const mo_cuda_driver table = {
    .init = init,
    .driver_get_version = driver_get_version,
    .get_error_name = get_error_name,
    .get_error_string = get_error_string,
    .device_get_count = device_get_count,
    .device_get = device_get,
    .device_get_name = device_get_name,
    .device_get_attribute = device_get_attribute,
    .primary_ctx_retain = primary_ctx_retain,
    .primary_ctx_release = primary_ctx_release,
    .ctx_set_current = ctx_set_current,
    .ctx_synchronize = fake_ctx_synchronize,
    .mem_get_info = mem_get_info,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_host_alloc = mem_host_alloc,
    .mem_free_host = mem_free_host,
    .mem_host_register = mem_host_register,
    .mem_host_unregister = mem_host_unregister,
    .mem_host_get_device_pointer = mem_host_get_device_pointer,
    .memcpy_htod_async = fake_memcpy_htod,
    .memcpy_dtoh_async = fake_memcpy_dtoh,
    .memcpy_dtod_async = fake_memcpy_dtod,
    .memset_d8_async = fake_memset,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .stream_synchronize = fake_stream_synchronize,
    .stream_wait_event = fake_stream_wait_event,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_query = fake_event_query,
    .event_synchronize = fake_event_synchronize,
    .event_elapsed_time = fake_event_elapsed_time,
    .module_load_data = module_load_data,
    .module_unload = module_unload,
    .module_get_function = module_get_function,
    .func_get_attribute = func_get_attribute,
    .func_set_attribute = func_set_attribute,
    .launch_kernel = launch_kernel,
    .launch_kernel_ex = launch_kernel_ex,
    .stream_begin_capture = fake_begin_capture,
    .stream_end_capture = fake_end_capture,
    .graph_instantiate = fake_graph_instantiate,
    .graph_launch = fake_graph_launch,
    .graph_exec_destroy = fake_graph_destroy,
    .graph_destroy = fake_graph_destroy,
};

void mo_fake_gpu_use(const mo_fake_gpu *gpu)
{
    pthread_mutex_lock(&fake_lock);
    if (gpu) {
        fake_gpu = *gpu;
        mo_emulated_set_code(gpu->compute);
    }
    for (fake_function *f = functions; f; f = f->next) { /* kept: a test that failed may still run one */
        f->shared_limit = FUNCTION_SHARED;
    }
    pthread_mutex_unlock(&fake_lock);
    mo_cuda_driver_use(gpu ? &table : NULL);
}

void mo_fake_gpu_break(int result)
{
    pthread_mutex_lock(&fake_lock);
    fake_broken = result;
    pthread_cond_broadcast(&fake_changed);
    if (result) {
        mo_emulated_abandon(true);
        fake_wait_idle();
        mo_emulated_abandon(false);
    }
    pthread_mutex_unlock(&fake_lock);
}

int mo_fake_gpu_holds(void)
{
    pthread_mutex_lock(&fake_lock);
    const int held = fake_held;
    pthread_mutex_unlock(&fake_lock);
    return held;
}
