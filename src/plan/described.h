/* Described: GPUs, memories and disks by their names, for plans on machines that are not here. The figures are those that
 * makers publish; what of them our programs get was measured where that could be (plan/described.c). Constant data; any thread. */
#ifndef MO_PLAN_DESCRIBED_H
#define MO_PLAN_DESCRIBED_H

#include "plan/rates.h"

typedef struct mo_gpu_facts {
    const char *name, *title; /* "rtx-4070", "RTX 4070" */
    int memory_gib;
    int memory_gb_s; /* published */
    int pcie, lanes; /* generation and width of its slot */
    int tops;        /* 8-bit products on matrix units, 10^12 operations per second without sparsity */
} mo_gpu_facts;

/* By number, smallest memory first; NULL past the last. */
const mo_gpu_facts *mo_gpu_facts_at(int index);

/* Names of the presets for --cpu and --disk, by number; NULL past the last. */
const char *mo_described_cpu(int index);
const char *mo_described_disk(int index);

/* Parts of a machine, as typed; NULL: not given. */
typedef struct mo_described {
    const char *gpu;  /* a name */
    const char *cpu;  /* a preset, or the rate at which all threads read memory, such as "60GB/s" */
    const char *disk; /* a preset, or a rate */
    int64_t
        ram_bytes; /* of a PC, and what is not given is a common one's; 0: it is this machine's, if that was measured */
} mo_described;

/* Reads "rtx-3060, 32G, ddr5, nvme-4", in any order: a PC's GPU, its RAM, which must be there, memory and disk. The parts point into
 * words, which has size bytes. */
mo_status mo_described_read(const char *text, char *words, size_t size, mo_described *out, mo_error *err);

/* The smallest GPU of a common PC that has this many bytes; the largest of all if none has. */
const mo_gpu_facts *mo_described_gpu_with(int64_t bytes);

/* Enters the rates of the parts and writes one sentence about the machine. rates: this machine's. MO_EINVAL names the nearest
 * name, and says what is expected. */
mo_status mo_described_apply(const mo_described *parts, mo_rates *rates, char *sentence, size_t size,
                             mo_error *err);

#endif
