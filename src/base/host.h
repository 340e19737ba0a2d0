/* Host: what machine this is: cores, instruction sets, caches, memory, huge pages, cgroup limits. */
#ifndef MO_BASE_HOST_H
#define MO_BASE_HOST_H

#include "moraine.h"

/* Instruction-set features the kernels ask for. The operating system's support (xgetbv) is included. */
typedef struct mo_cpu {
    bool avx2;        /* AVX2, FMA, F16C, BMI2 */
    bool avx_vnni;    /* AVX2 and the dpbusd of 256 bits without AVX-512 */
    bool avx512_vnni; /* AVX-512 F, BW, DQ, VL, VBMI and VNNI */
    bool amx_int8;    /* AMX-TILE and AMX-INT8, and the kernel lets us use them */
    bool dotprod;     /* aarch64 sdot/udot */
    bool i8mm;        /* aarch64 smmla */
} mo_cpu;

/* Read once, then constant. Any thread. */
const mo_cpu *mo_host_cpu(void);

/* Sets this thread's floating-point mode: round to nearest even, subnormals kept. Every thread that
 * computes calls it first (the pool does it for its own). */
void mo_host_float_mode(void);

/* Bytes of the processor's last-level cache; 0 where the system does not say. */
int64_t mo_host_cache_bytes(void);

/* Memory for weights and caches: aligned to 2 MiB, huge pages asked for, zeroed. NULL when out. */
void *mo_host_alloc_huge(size_t bytes);
/* Has the system make all of its pages now, and not when they are used first. What is there stays. */
void mo_host_touch(void *memory, size_t bytes);
/* Gives the whole pages of a part of it back to the system; they are zero when they are used again. */
void mo_host_discard(void *memory, size_t bytes);
void mo_host_free_huge(void *memory, size_t bytes);

#endif
