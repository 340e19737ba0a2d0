/* Emulated: runs CUDA kernels on the CPU, from C. The kernels are the .cu files of src/device/cuda, compiled a second
 * time as C++ with MO_CUDA_EMULATED; addresses of an op are plain pointers of this process.
 *
 * Every CUDA thread is a fiber, and all fibers of a block run on the calling thread; several threads may emulate at
 * once. What a kernel does wrong (a lane that never comes to a shuffle, a barrier that not everybody reaches) ends
 * the process with a sentence that names kernel, block, thread and seed. */
#ifndef MO_EMULATED_H
#define MO_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What uninitialized shared memory holds, and what a shuffle gives that reads a lane outside its mask: a NaN as a
 * float, a large number as an integer. */
#define MO_EMULATED_POISON 0x7FD5A5C3u

/* The order in which threads and blocks run, for launches of this thread: 0 ascending, 1 descending, anything else
 * shuffled. Without this call every launch takes the next number, so that a test that repeats an op sees several
 * orders; MO_EMULATION_SEED in the environment fixes it, to look at one again. */
void mo_emulated_seed(uint64_t seed);

/* A kernel by its name, NULL when no .cu file of this program has it. *bytes: size of its parameter. */
typedef void (*mo_emulated_entry)(const void *args);
mo_emulated_entry mo_emulated_find(const char *kernel, size_t *bytes);

/* Runs all blocks; returns when they are done. */
void mo_emulated_launch(const char *kernel, mo_emulated_entry entry, const void *args, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared_bytes);

/* The capability that kernels take their code to be compiled for, where they cut their work by it: 90, or what mo_emulated_op()
 * and the driver that is played launch for. */
int mo_emulated_code(void);
void mo_emulated_set_code(int code);

/* Any thread: while it is true, kernels that wait for the host are given up where they stand, whole launches at once:
 * the device is lost. */
void mo_emulated_abandon(bool abandon);

/* The launches that launch.h wants for this op on a device of this capability (75, 80, 90), one after the other. Ends
 * the process when there are none that can do it, or when the program lacks the file that should know. */
void mo_emulated_op(const mo_op *op, int compute);

#ifdef __cplusplus
}
#endif

#endif
