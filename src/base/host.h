/* Host: instruction sets, floating-point mode, and memory in huge pages. */
#ifndef MO_BASE_HOST_H
#define MO_BASE_HOST_H

#include "moraine.h"

/* Instruction-set features used by kernels, if the operating system supports them too (xgetbv). */
typedef struct mo_cpu {
    bool avx2;        /* AVX2, FMA, F16C, BMI2 */
    bool avx_vnni;    /* AVX2 and the dpbusd of 256 bits without AVX-512 */
    bool avx512_vnni; /* AVX-512 F, BW, DQ, VL, VBMI and VNNI */
    bool amx_int8;    /* AMX-TILE and AMX-INT8, if the kernel permits them */
    bool dotprod;     /* aarch64 sdot/udot */
    bool i8mm;        /* aarch64 smmla */
} mo_cpu;

/* Read once, then constant. Any thread. */
const mo_cpu *mo_host_cpu(void);

/* Sets this thread's floating-point mode: round to nearest even, keep subnormals. Every computing thread must
   call it first (the pool does for its own). */
void mo_host_float_mode(void);

/* Bytes of all last-level caches together; 0 where the system does not say. */
int64_t mo_host_cache_bytes(void);

/* Memory for weights and caches: zeroed, aligned to 2 MiB, huge pages requested. NULL when out of memory. */
void *mo_host_alloc_huge(size_t bytes);
/* Maps all its pages now instead of on first use. The contents are kept. */
void mo_host_touch(void *memory, size_t bytes);
/* Returns the whole pages of a range to the system; they are zero when used again. */
void mo_host_discard(void *memory, size_t bytes);
void mo_host_free_huge(void *memory, size_t bytes);

#endif
