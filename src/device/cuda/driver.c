#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static const mo_cuda_driver *replaced; /* written only while no other thread is in here */

static pthread_once_t opened = PTHREAD_ONCE_INIT; /* guards the three below: constant afterwards */
static mo_cuda_driver system_driver;
static bool system_usable;
static char system_reason[256];

/* Data and function pointers have the same form wherever there is dlsym(). */
static bool find(void *library, const char *symbol, void *member)
{
    void *found = dlsym(library, symbol);
    memcpy(member, &found, sizeof found);
    return found != NULL;
}

static void open_system(void)
{
    void *library =
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* never closed: the driver keeps threads */
    if (!library) {
        snprintf(
            system_reason, sizeof system_reason,
            "no NVIDIA driver on this machine: libcuda.so.1 could not be opened; install the driver, or run "
            "without a GPU (`device` none)");
        return;
    }
#define FIND(member, symbol, parameters)                                                                     \
    if (!find(library, symbol, &system_driver.member)) {                                                     \
        snprintf(system_reason, sizeof system_reason,                                                        \
                 "the NVIDIA driver of this machine has no %s and is too old; update it to version 12 or "   \
                 "newer",                                                                                    \
                 symbol);                                                                                    \
        return;                                                                                              \
    }
    MO_CUDA_CALLS(FIND)
#undef FIND
#define FIND(member, symbol, parameters) find(library, symbol, &system_driver.member);
    MO_CUDA_CALLS_LATER(FIND)
#undef FIND
    system_usable = true;
}

const mo_cuda_driver *mo_cuda_driver_open(mo_error *err)
{
    if (replaced) {
        return replaced;
    }
    pthread_once(&opened, open_system);
    if (!system_usable) {
        mo_fail(err, MO_EDEVICE, "%s", system_reason);
        return NULL;
    }
    return &system_driver;
}

void mo_cuda_driver_use(const mo_cuda_driver *driver)
{
    replaced = driver;
}

int mo_cuda_driver_replaced(void)
{
    return replaced != NULL;
}
