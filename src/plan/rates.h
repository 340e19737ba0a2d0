/* Rates: what a machine was measured to do: sizes and speeds of its memory, disk and links. Found by
 * `moraine probe`, kept as JSON in the user's cache directory, or given as a file for another machine. */
#ifndef MO_PLAN_RATES_H
#define MO_PLAN_RATES_H

#include "moraine.h"

/* What experts of one size get, in bytes a second: the CPU's products while nothing crosses, the same while some cross, and those. */
typedef struct mo_rates_expert {
    double bytes, cpu_bytes_s, both_cpu_bytes_s, both_link_bytes_s;
} mo_rates_expert;

enum { MO_RATES_EXPERTS = 8 };

typedef struct mo_rates {
    int64_t ram_bytes;  /* that a process may use, a reserve not yet taken off; 0: not known */
    int64_t vram_bytes; /* of the device that a process may use, a reserve not yet taken off; 0: no device */
    int threads;        /* that compute; 0: not known */
    int cores;          /* that could be used when that was measured; 0: not known */
    double ram_bytes_s; /* read rate of those threads together */
    double compute_share; /* of that rate which products reach, 0..1 */
    double slot_share;    /* the same of experts that stay as the file has them; 0: as compute_share */
    double disk_bytes_s;  /* reads as the store makes them */
    double link_bytes_s;  /* host to device, from pinned memory; 0: not known, or no device */
    double link_pageable_bytes_s; /* the same from ordinary memory */
    double vram_bytes_s;          /* products reading the device's memory */
    double host_bytes_s;          /* of memory, threads and copies reading it at once; 0: as ram_bytes_s */
    double round_trip_s;          /* the device asks and the host answers; 0: not known */
    double link_copy_s;           /* fixed cost of each copy to the device; 0: negligible */
    double vram_reuse; /* tokens whose products take a device as long as reading the weights; 0: not known */
    mo_rates_expert expert[MO_RATES_EXPERTS]; /* sizes in ascending order */
    int expert_count;                         /* 0: not measured */
    bool old; /* from a file with a link and without `experts`: of an earlier version, or written by hand */
    char device[128]; /* the name of the device that was measured; "": none */
    bool measured;    /* false: modest defaults, and the plan says so */
} mo_rates;

/* Defaults of plans for a device that was not measured: a small GPU in a slot of eight old lanes. */
#define MO_RATES_LINK_GUESS 6e9
#define MO_RATES_VRAM_GUESS 200e9
/* Copies in which an expert crosses: gate, up, down. */
#define MO_RATES_EXPERT_COPIES 3

/* Bytes a second of products: with weights that stay in RAM, and with experts that stay as the file has them. */
static inline double mo_rates_products(const mo_rates *r)
{
    return r->ram_bytes_s * r->compute_share;
}
static inline double mo_rates_slots(const mo_rates *r)
{
    const double share =
        r->slot_share > 0 && r->slot_share < r->compute_share ? r->slot_share : r->compute_share;
    return r->ram_bytes_s * share;
}

/* Default number of threads: one per usable core, or fewer if those were measured faster with exactly this
 * many cores. */
static inline int mo_rates_threads(const mo_rates *r, int cores)
{
    return r->cores == cores && r->threads > 0 && r->threads < cores ? r->threads : cores;
}

/* Bytes a second over the link, of a transfer in this many copies. Small ones use it less. */
static inline double mo_rates_link(const mo_rates *r, double bytes, double copies)
{
    const double rate = r->link_bytes_s > 0 ? r->link_bytes_s : MO_RATES_LINK_GUESS;
    return bytes > 0 && r->link_copy_s > 0 ? bytes / (bytes / rate + copies * r->link_copy_s) : rate;
}

/* Seconds of a layer's experts, of which some are read while others are multiplied. A quarter of the shorter part is not
 * hidden behind the longer one: reads begin when the experts are chosen, and the last one to come is computed alone. */
static inline double mo_rates_layer(double computing, double reading)
{
    return computing > reading ? computing + reading / 4 : reading + computing / 4;
}

/* What experts of this size get, between the sizes that were measured; of smaller and larger ones as the nearest. False: none were. */
bool mo_rates_expert_of(const mo_rates *rates, double bytes, mo_rates_expert *out);

/* Conservative defaults for a machine that was not measured. */
mo_rates mo_rates_default(void);
/* Reads {"ram_bytes": ..., "disk_bytes_s": ..., ...}; every field may be left out and is then the default's,
 * unknown ones are refused by name. Sizes may be texts with a unit, such as "32G". They count as measured when the file gives the rates of memory and disk.
 * MO_ENOENT when there is no file; on failure *out is untouched. */
mo_status mo_rates_load(const char *path, mo_rates *out, mo_error *err);
/* Fits the rates to a device: those measured on another one are dropped, and what is not known is what the device says
 * of itself (0: nothing), or the guess above. True when link and memory were measured on this very device. */
bool mo_rates_for_device(mo_rates *rates, const char *name, double link_bytes_s, double link_copy_s,
                         double memory_bytes_s);
/* Makes the directories above the file; an older file stays until the new one is complete. */
mo_status mo_rates_save(const char *path, const mo_rates *rates, mo_error *err);
/* Where this machine's rates are kept; fails as mo_cachedir_path() does. */
mo_status mo_rates_path(char *path, size_t size, mo_error *err);

/* Those kept for this machine, or the defaults. A file that cannot be read is mentioned once in the log. */
mo_rates mo_rates_here(void);

#endif
