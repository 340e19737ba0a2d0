#include "plan/described.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "base/status.h"
#include "plan/prompt_cost.h"
#include "plan/quantity.h"

/* Shares of the published figures reached on an H200 in a PCIe 5.0 x16 slot: 3,097 of 4,800 GB/s for
 * products, 55.3 of 63.0 over the link in large copies and 46.8 in copies of 1 MiB. The last is how many
 * bytes the matrix units multiply for each byte read from memory. */
#define VRAM_SHARE      0.645
#define LINK_SHARE      0.878
#define LINK_COPY_S     3.4e-6
#define H200_OPS_A_BYTE (1979.0 / 4.8)
/* Products reached 0.81 of the memory rate there. The share of the published rate that threads reach was not
 * measured on any machine; 0.8 is usual. */
#define RAM_SHARE     0.8
#define PRODUCT_SHARE 0.8

/* VRAM of the driver's context and the desktop. */
#define VRAM_OTHERS ((int64_t)512 << 20)

/* Sorted by memory, then by rate: with equal memory the slowest is taken. */
static const mo_gpu_facts gpus[] = {
    {"rtx-3060-laptop", "RTX 3060 Laptop", 6, 336, 4, 16, 102},
    {"rtx-2060", "RTX 2060", 6, 336, 3, 16, 103},
    {"rtx-3050", "RTX 3050", 8, 224, 4, 8, 73},
    {"rtx-4060-laptop", "RTX 4060 Laptop", 8, 256, 4, 8, 116},
    {"rtx-4060", "RTX 4060", 8, 272, 4, 8, 121},
    {"rtx-4060-ti", "RTX 4060 Ti", 8, 288, 4, 8, 177},
    {"rtx-2070", "RTX 2070", 8, 448, 3, 16, 120},
    {"rtx-3060-ti", "RTX 3060 Ti", 8, 448, 4, 16, 130},
    {"rtx-3070", "RTX 3070", 8, 448, 4, 16, 163},
    {"rtx-5060", "RTX 5060", 8, 448, 5, 8, 154},
    {"rtx-3080", "RTX 3080", 10, 760, 4, 16, 238},
    {"rtx-2080-ti", "RTX 2080 Ti", 11, 616, 3, 16, 215},
    {"rtx-3060", "RTX 3060", 12, 360, 4, 16, 102},
    {"rtx-4070", "RTX 4070", 12, 504, 4, 16, 233},
    {"rtx-4070-super", "RTX 4070 Super", 12, 504, 4, 16, 284},
    {"rtx-4070-ti", "RTX 4070 Ti", 12, 504, 4, 16, 321},
    {"rtx-5070", "RTX 5070", 12, 672, 5, 16, 247},
    {"rtx-4060-ti-16g", "RTX 4060 Ti 16 GB", 16, 288, 4, 8, 177},
    {"t4", "Tesla T4", 16, 320, 3, 16, 130},
    {"rtx-5060-ti", "RTX 5060 Ti 16 GB", 16, 448, 5, 8, 190},
    {"rtx-4070-ti-super", "RTX 4070 Ti Super", 16, 672, 4, 16, 353},
    {"rtx-4080", "RTX 4080", 16, 717, 4, 16, 390},
    {"rtx-5070-ti", "RTX 5070 Ti", 16, 896, 5, 16, 352},
    {"rtx-5080", "RTX 5080", 16, 960, 5, 16, 450},
    {"l4", "L4", 24, 300, 4, 16, 242},
    {"a10", "A10", 24, 600, 4, 16, 250},
    {"rtx-3090", "RTX 3090", 24, 936, 4, 16, 284},
    {"rtx-4090", "RTX 4090", 24, 1008, 4, 16, 661},
    {"rtx-5090", "RTX 5090", 32, 1792, 5, 16, 838},
    {"a100-40g", "A100 40 GB", 40, 1555, 4, 16, 624},
    {"rtx-a6000", "RTX A6000", 48, 768, 4, 16, 309},
    {"l40s", "L40S", 48, 864, 4, 16, 733},
    {"rtx-6000-ada", "RTX 6000 Ada", 48, 960, 4, 16, 728},
    {"a100-80g", "A100 80 GB", 80, 2039, 4, 16, 624},
    {"h100", "H100", 80, 3350, 5, 16, 1979},
    {"rtx-pro-6000", "RTX PRO 6000 Blackwell", 96, 1792, 5, 16, 1000},
    {"h200", "H200", 140, 4800, 5, 16, 1979},
};
enum { GPUS = sizeof gpus / sizeof *gpus };

/* Memory of a machine with its usual number of cores, or a disk. */
typedef struct preset {
    const char *name, *title;
    double gb_s; /* memory: published; disk: rate of large reads */
    int threads;
} preset;

static const preset cpus[] = {
    {"ddr4", "two channels of DDR4-3200", 51.2, 8},
    {"ddr3", "two channels of DDR3-1600", 25.6, 4},
    {"ddr5", "two channels of DDR5-5600", 89.6, 8},
    {"lpddr5x", "256 bits of LPDDR5X-8000", 256.0, 16},
    {"ddr4-quad", "four channels of DDR4-3200", 102.4, 16},
    {"ddr5-quad", "four channels of DDR5-5200", 166.4, 24},
    {"ddr4-server", "eight channels of DDR4-3200", 204.8, 32},
    {"ddr5-server", "twelve channels of DDR5-4800", 460.8, 64},
};
static const preset disks[] = {
    {"nvme-3", "NVMe over PCIe 3.0", 3.0, 0},  {"nvme-4", "NVMe over PCIe 4.0", 6.0, 0},
    {"nvme-5", "NVMe over PCIe 5.0", 11.0, 0}, {"sata", "a SATA SSD", 0.5, 0},
    {"hdd", "a hard disk", 0.15, 0},
};
enum { CPUS = sizeof cpus / sizeof *cpus, DISKS = sizeof disks / sizeof *disks };

const mo_gpu_facts *mo_gpu_facts_at(int index)
{
    return index >= 0 && index < GPUS ? &gpus[index] : NULL;
}

/* A common GPU is a desktop one: not a laptop's, and not a server's. */
static bool common(const mo_gpu_facts *g)
{
    return strncmp(g->name, "rtx-", 4) == 0 && !strstr(g->name, "laptop");
}

const mo_gpu_facts *mo_described_gpu_with(int64_t bytes)
{
    for (int i = 0; i < GPUS; i++) {
        if (common(&gpus[i]) && (int64_t)gpus[i].memory_gib << 30 >= bytes) {
            return &gpus[i];
        }
    }
    return &gpus[GPUS - 1];
}

/* ---- Names ---- */

/* The GPU that was probably meant, or NULL. */
static const char *nearest_gpu(const char *word)
{
    char name[64];
    const bool number = strspn(word, "0123456789") == 4; /* a GeForce's, as in 4070 */
    snprintf(name, sizeof name, "%s%s", number ? "rtx-" : "", word);
    mo_nearest nearest = {.word = name, .length = strlen(name)};
    for (int i = 0; i < GPUS; i++) {
        mo_nearest_offer(&nearest, gpus[i].name);
    }
    return nearest.best;
}

/* What follows an unknown word: the word that was meant (NULL: nobody knows), or a full stop. */
static const char *hint(const char *meant, char out[64])
{
    snprintf(out, 64, "%s%s%s", meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : ".");
    return out;
}

static mo_status find_gpu(const char *name, const mo_gpu_facts **out, mo_error *err)
{
    for (int i = 0; i < GPUS; i++) {
        if (strcasecmp(gpus[i].name, name) == 0 || strcasecmp(gpus[i].title, name) == 0) {
            *out = &gpus[i];
            return MO_OK;
        }
    }
    const char *meant = nearest_gpu(name);
    if (meant) {
        return mo_fail(err, MO_EINVAL,
                       "unknown `gpu` \"%.40s\"; did you mean %s? A machine file can describe others", name,
                       meant);
    }
    char names[640] = "";
    for (int i = 0; i < GPUS; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", gpus[i].name);
    }
    return mo_fail(err, MO_EINVAL,
                   "unknown `gpu` \"%.40s\"; these are known: %s; a machine file can describe others", name,
                   names);
}

/* A preset, or a rate; *out then has no name. */
static mo_status find_preset(const char *what, const char *name, const preset *list, int count, preset *out,
                             mo_error *err)
{
    char names[256] = "", after[64];
    double rate;
    mo_nearest nearest = {.word = name, .length = strlen(name)};
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(names);
        if (strcasecmp(list[i].name, name) == 0) {
            *out = list[i];
            return MO_OK;
        }
        mo_nearest_offer(&nearest, list[i].name);
        snprintf(names + used, sizeof names - used, "%s, ", list[i].name);
    }
    if (mo_quantity_read(MO_QUANTITY_RATE, name, &rate)) {
        *out = (preset){.gb_s = rate / 1e9};
        return MO_OK;
    }
    return mo_fail(err, MO_EINVAL, "unknown %s \"%.40s\"%s Choose one of %sor a rate such as %s", what, name,
                   hint(nearest.best, after), names, mo_quantity_example(MO_QUANTITY_RATE));
}

static bool preset_named(const char *name, const preset *list, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcasecmp(list[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_gpu(const char *word)
{
    const mo_gpu_facts *ignored;
    return find_gpu(word, &ignored, NULL) == MO_OK;
}

/* Parses one word. Returns false if it is unknown, or the second of its kind. */
static bool read_part(char *word, mo_described *out)
{
    double bytes;
    const bool size = mo_quantity_read(MO_QUANTITY_SIZE, word, &bytes) && bytes >= 1 << 20;
    if (size) {
        const bool first = out->ram_bytes == 0;
        out->ram_bytes = (int64_t)bytes;
        return first;
    }
    const char **part = is_gpu(word)                       ? &out->gpu
                        : preset_named(word, cpus, CPUS)   ? &out->cpu
                        : preset_named(word, disks, DISKS) ? &out->disk
                                                           : NULL;
    if (!part || *part) {
        return false;
    }
    *part = word;
    return true;
}

static mo_status refuse_part(const char *word, mo_error *err)
{
    char size[16], after[64];
    const size_t length = strlen(word);
    const bool number = length > 0 && length < 4 && strspn(word, "0123456789") == length;
    snprintf(size, sizeof size, "%.3sG", word);
    return mo_fail(err, MO_EINVAL,
                   "\"%.40s\" is not a part of a PC%s Expected a GPU, the size of RAM, a memory and a disk, "
                   "each once, as in \"rtx-3060, 32G, ddr4, nvme-3\"",
                   word, hint(number ? size : nearest_gpu(word), after));
}

mo_status mo_described_read(const char *text, char *words, size_t size, mo_described *out, mo_error *err)
{
    char *rest;
    *out = (mo_described){.ram_bytes = 0};
    snprintf(words, size, "%s", text);
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        word += strspn(word, " \t");
        for (size_t n = strlen(word); n > 0 && strchr(" \t", word[n - 1]); n--) {
            word[n - 1] = '\0';
        }
        if (!read_part(word, out)) {
            return refuse_part(word, err);
        }
    }
    return out->ram_bytes > 0
               ? MO_OK
               : mo_fail(err, MO_EINVAL,
                         "\"%.60s\" does not say how much RAM the PC has; expected a size with its "
                         "unit, as in \"rtx-3060, 32G\"",
                         text);
}

/* ---- Rates ---- */

static void enter_gpu(const mo_gpu_facts *g, mo_rates *r)
{
    static const double lane_gb_s[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938};
    const double ops_a_byte = g->tops * 1e12 / (g->memory_gb_s * 1e9);
    r->vram_bytes = ((int64_t)g->memory_gib << 30) - VRAM_OTHERS;
    r->vram_bytes_s = VRAM_SHARE * g->memory_gb_s * 1e9;
    r->link_bytes_s = LINK_SHARE * lane_gb_s[g->pcie] * g->lanes * 1e9;
    r->link_pageable_bytes_s = 0;
    r->link_copy_s = LINK_COPY_S;
    r->expert_count = 0;
    r->old = false;
    r->host_bytes_s = r->round_trip_s = 0;
    r->vram_reuse = MO_PLAN_DEVICE_REUSE * ops_a_byte / H200_OPS_A_BYTE;
    snprintf(r->device, sizeof r->device, "%s", g->title);
}

static void enter_cpu(const preset *p, mo_rates *r)
{
    /* A given rate is already the rate that threads reach. */
    r->ram_bytes_s = (p->name ? RAM_SHARE : 1) * p->gb_s * 1e9;
    r->compute_share = PRODUCT_SHARE;
    r->expert_count = 0;
    r->old = false;
    r->slot_share = r->host_bytes_s = 0;
    r->threads = p->name ? p->threads : r->threads;
    r->cores = 0;
}

static void append(char *text, size_t size, const char *more, const char *title, double gb_s,
                   const char *unit)
{
    const size_t used = strlen(text);
    if (title) {
        snprintf(text + used, size - used, "%s%s", more, title);
    } else {
        snprintf(text + used, size - used, "%s%s at %.3g GB/s", more, unit, gb_s);
    }
}

mo_status mo_described_apply(const mo_described *d, mo_rates *rates, char *sentence, size_t size,
                             mo_error *err)
{
    const bool own = !d->ram_bytes && rates->measured;
    const mo_gpu_facts *gpu = NULL;
    preset cpu = {.name = NULL}, disk = {.name = NULL};
    mo_rates r = *rates;
    mo_status status = d->gpu ? find_gpu(d->gpu, &gpu, err) : MO_OK;
    if (status == MO_OK && (d->cpu || !own)) {
        status = find_preset("`cpu`", d->cpu ? d->cpu : cpus[0].name, cpus, CPUS, &cpu, err);
    }
    if (status == MO_OK && (d->disk || !own)) {
        status = find_preset("`disk`", d->disk ? d->disk : disks[0].name, disks, DISKS, &disk, err);
    }
    if (status != MO_OK) {
        return status;
    }
    sentence[0] = '\0';
    if (gpu) {
        enter_gpu(gpu, &r);
        snprintf(sentence, size, "%s (%d GiB at %d GB/s, PCIe %d.0 x%d), ", gpu->title, gpu->memory_gib,
                 gpu->memory_gb_s, gpu->pcie, gpu->lanes);
    }
    if (cpu.gb_s > 0) {
        enter_cpu(&cpu, &r);
        append(sentence, size, "", cpu.title, cpu.gb_s, "memory");
    } else {
        append(sentence, size, "", "this machine's memory", 0, "");
    }
    if (disk.gb_s > 0) {
        r.disk_bytes_s = disk.gb_s * 1e9;
        append(sentence, size, ", ", disk.title, disk.gb_s, "a disk");
    } else {
        append(sentence, size, ", ", "this machine's disk", 0, "");
    }
    if (d->ram_bytes) {
        r.ram_bytes = d->ram_bytes;
        r.vram_bytes = gpu ? r.vram_bytes : 0;
    }
    r.measured = false;
    *rates = r;
    return MO_OK;
}
