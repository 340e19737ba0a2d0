/* Described: GPUs, memories and disks by name, for plans of other machines. The figures are the published
 * ones. The share that Moraine reaches was measured where possible (plan/described.c). Constant data; any
 * thread. */
#ifndef MO_PLAN_DESCRIBED_H
#define MO_PLAN_DESCRIBED_H

#include "plan/rates.h"

typedef struct mo_gpu_facts {
    const char *name, *title; /* "rtx-4070", "RTX 4070" */
    int memory_gib;
    int memory_gb_s; /* published */
    int pcie, lanes; /* PCIe generation and lanes */
    int tops;        /* 8-bit operations on matrix units, 10^12 per second, without sparsity */
} mo_gpu_facts;

/* The GPU with this index, smallest memory first; NULL past the last. */
const mo_gpu_facts *mo_gpu_facts_at(int index);

/* Parts of a machine as typed; NULL: not given. */
typedef struct mo_described {
    const char *gpu;  /* a GPU name */
    const char *cpu;  /* a preset, or the rate at which all threads together read memory, such as "60GB/s" */
    const char *disk; /* a preset, or a rate */
    /* RAM of a PC whose other parts default to common ones; 0: parts default to this machine's, if
     * measured */
    int64_t ram_bytes;
} mo_described;

/* Reads "rtx-3060, 32G, ddr5, nvme-4" in any order: a PC's GPU, RAM, memory and disk. RAM is required. The
 * parts point into words, which has size bytes. */
mo_status mo_described_read(const char *text, char *words, size_t size, mo_described *out, mo_error *err);

/* The smallest GPU of a common PC with this many bytes; the largest if none has enough. */
const mo_gpu_facts *mo_described_gpu_with(int64_t bytes);

/* Enters the rates of the parts into rates, which holds this machine's, and writes one sentence about the
 * machine. MO_EINVAL names the nearest known name and the expected form. */
mo_status mo_described_apply(const mo_described *parts, mo_rates *rates, char *sentence, size_t size,
                             mo_error *err);

#endif
