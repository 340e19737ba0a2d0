/* Rates: measured sizes and speeds of a machine's memory, disk and links. Measured by `moraine probe` and
 * stored as JSON in the user's cache directory, or given as a file for another machine. */
#ifndef MO_PLAN_RATES_H
#define MO_PLAN_RATES_H

#include "moraine.h"

/* Rates in bytes per second for experts of one size: the CPU's products while nothing is copied, the products
 * while some experts are copied, and these copies. */
typedef struct mo_rates_expert {
    double bytes, cpu_bytes_s, both_cpu_bytes_s, both_link_bytes_s;
} mo_rates_expert;

enum { MO_RATES_EXPERTS = 8 };

typedef struct mo_rates {
    int64_t ram_bytes;            /* available to a process, before any reserve; 0: not known */
    int64_t vram_bytes;           /* device memory available to a process, before any reserve; 0: no device */
    int threads;                  /* compute threads; 0: not known */
    int cores;                    /* usable cores when threads was measured; 0: not known */
    double ram_bytes_s;           /* read rate of all these threads together */
    double compute_share;         /* share of that rate that products reach, 0..1 */
    double slot_share;            /* the same for experts kept in the file's layout; 0: as compute_share */
    double disk_bytes_s;          /* reads as the engine makes them */
    double link_bytes_s;          /* host to device, from pinned memory; 0: not known, or no device */
    double link_pageable_bytes_s; /* the same from ordinary memory */
    double vram_bytes_s;          /* products reading the device's memory */
    double host_bytes_s;          /* memory read by threads and copies at once; 0: as ram_bytes_s */
    double round_trip_s;          /* a request of the device and the host's answer; 0: not known */
    double link_copy_s;           /* fixed cost of each copy to the device; 0: negligible */
    double vram_reuse; /* tokens whose products take a device as long as reading the weights; 0: not known */
    mo_rates_expert expert[MO_RATES_EXPERTS]; /* sizes in ascending order */
    int expert_count;                         /* 0: not measured */
    bool old; /* from a file with a link but without `experts`: an earlier version, or written by hand */
    char device[128]; /* name of the measured device; "": none */
    bool measured;    /* false: modest defaults, and the plan says so */
} mo_rates;

/* Defaults for a device that was not measured: a small GPU in an old x8 slot. */
#define MO_RATES_LINK_GUESS 6e9
#define MO_RATES_VRAM_GUESS 200e9
/* Copies per expert: gate, up, down. */
#define MO_RATES_EXPERT_COPIES 3

/* Rate of products in bytes per second: with weights that stay in RAM, and with experts kept in the file's
 * layout. */
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

/* Default number of threads: one per usable core, or fewer if fewer were measured to be faster with exactly
 * this many cores. */
static inline int mo_rates_threads(const mo_rates *r, int cores)
{
    return r->cores == cores && r->threads > 0 && r->threads < cores ? r->threads : cores;
}

/* Link rate in bytes per second for a transfer in this many copies. Small copies are slower. */
static inline double mo_rates_link(const mo_rates *r, double bytes, double copies)
{
    const double rate = r->link_bytes_s > 0 ? r->link_bytes_s : MO_RATES_LINK_GUESS;
    return bytes > 0 && r->link_copy_s > 0 ? bytes / (bytes / rate + copies * r->link_copy_s) : rate;
}

/* Seconds of a layer's experts when some are read while others are multiplied. A quarter of the shorter part
 * is not hidden: reads start only when the experts are chosen, and the last arrival is computed alone. */
static inline double mo_rates_layer(double computing, double reading)
{
    return computing > reading ? computing + reading / 4 : reading + computing / 4;
}

/* Interpolates the rates for experts of this size. Beyond the measured sizes the nearest one counts. Returns
 * false if none was measured. */
bool mo_rates_expert_of(const mo_rates *rates, double bytes, mo_rates_expert *out);

/* Conservative defaults for a machine that was not measured. */
mo_rates mo_rates_default(void);
/* Reads {"ram_bytes": ..., "disk_bytes_s": ..., ...}. Missing fields keep their defaults; unknown fields are
 * rejected by name. Sizes may be strings with a unit, such as "32G". The rates count as measured if the file
 * has the rates of memory and disk. MO_ENOENT: no such file. On failure *out is unchanged. */
mo_status mo_rates_load(const char *path, mo_rates *out, mo_error *err);
/* Adapts the rates to a device: rates measured on another device are dropped and unknown ones are taken from
 * the arguments, which the device reports (0: unknown), or else the defaults above. Returns true if link and
 * memory were measured on this device. */
bool mo_rates_for_device(mo_rates *rates, const char *name, double link_bytes_s, double link_copy_s,
                         double memory_bytes_s);
/* Creates the parent directories. An existing file is replaced only when the new one is complete. */
mo_status mo_rates_save(const char *path, const mo_rates *rates, mo_error *err);
/* Path of this machine's rates; fails as mo_cachedir_path() does. */
mo_status mo_rates_path(char *path, size_t size, mo_error *err);

/* The stored rates of this machine, or the defaults. An unreadable file is logged once. */
mo_rates mo_rates_here(void);

#endif
