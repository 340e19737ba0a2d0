/* Faults on command, on the device that a test runs on: the simulated one has them; before a GPU's driver a test puts one
 * that refuses a copy, or says that the GPU is gone, when it is told to. */
#ifndef MO_TEST_DEVICE_FAULTS_H
#define MO_TEST_DEVICE_FAULTS_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "device/cuda/driver.h"
#include "device/sim/sim.h"

enum { FAULTS_GONE = 700 }; /* what a driver says after a kernel went astray */

static struct {
    pthread_mutex_t lock;
    const mo_cuda_driver *honest; /* NULL: there is no GPU in the test */
    mo_cuda_driver driver;
    mo_sim_fault kind;
    int64_t after, count;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What the driver answers to this call; 0: it does what it is asked for. */
static inline int faults_answer(bool copy)
{
    int answer = MO_CUDA_OK;
    pthread_mutex_lock(&faults.lock);
    if (faults.kind == MO_SIM_LOST || (faults.kind == MO_SIM_COPY && copy)) {
        if (faults.after > 0) {
            faults.after--;
        } else {
            answer = copy && faults.kind == MO_SIM_COPY ? MO_CUDA_INVALID_VALUE : FAULTS_GONE;
            faults.kind = --faults.count > 0 || faults.kind == MO_SIM_LOST ? faults.kind : MO_SIM_NONE;
        }
    }
    pthread_mutex_unlock(&faults.lock);
    return answer;
}

static int faults_htod(uint64_t to, const void *from, size_t bytes, void *stream)
{
    const int answer = faults_answer(true);
    return answer ? answer : faults.honest->memcpy_htod_async(to, from, bytes, stream);
}

static int faults_dtoh(void *to, uint64_t from, size_t bytes, void *stream)
{
    const int answer = faults_answer(true);
    return answer ? answer : faults.honest->memcpy_dtoh_async(to, from, bytes, stream);
}

static int faults_dtod(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    const int answer = faults_answer(true);
    return answer ? answer : faults.honest->memcpy_dtod_async(to, from, bytes, stream);
}

static int faults_graph(void *exec, void *stream)
{
    const int answer = faults_answer(false);
    return answer ? answer : faults.honest->graph_launch(exec, stream);
}

/* Before models are opened; device: the name that they are opened with. */
static inline void faults_begin(const char *device)
{
    mo_error err;
    if (strcmp(device, "cuda") != 0 || !(faults.honest = mo_cuda_driver_open(&err))) {
        return;
    }
    faults.driver = *faults.honest;
    faults.driver.memcpy_htod_async = faults_htod;
    faults.driver.memcpy_dtoh_async = faults_dtoh;
    faults.driver.memcpy_dtod_async = faults_dtod;
    faults.driver.graph_launch = faults_graph;
    mo_cuda_driver_use(&faults.driver);
}

/* From now on: after so many copies (LOST: or programs as well) so many in a row. NONE: no more. */
static inline void faults_arm(mo_device *device, mo_sim_fault kind, int64_t after, int64_t count)
{
    if (!faults.honest) {
        mo_sim_arm_row(device, kind, after, count);
        return;
    }
    pthread_mutex_lock(&faults.lock);
    faults.kind = kind;
    faults.after = after;
    faults.count = count;
    pthread_mutex_unlock(&faults.lock);
}

#endif
