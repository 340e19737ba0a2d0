/* The simulated device's memory: addresses of its own, translated by a table. An address is not given out again
 * until all others were, so that one which was freed is caught. */
#include "device/sim/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/status.h"

/* Two ranges in which no system puts a program's own memory: the device's, and pinned memory as the device sees it. */
#define SPAN   (UINT64_C(1) << 41)
#define BEGIN  UINT64_C(0x510000000000)
#define BEFORE 4096 /* unused bytes between two allocations */

enum { OWN, PINNED };

/* Fresh memory is filled up to here with a pattern that is no number, so that what was never written shows. */
enum { PATTERN = 0xFF, PATTERN_BYTES = 1 << 20 };

static mo_daddr range_begin(int range)
{
    return BEGIN + (mo_daddr)range * SPAN;
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

void mo_sim_memory_open(mo_sim_memory *m, int64_t limit)
{
    *m = (mo_sim_memory){.limit = limit, .next = {range_begin(OWN), range_begin(PINNED)}};
    pthread_mutex_init(&m->lock, NULL);
}

void mo_sim_memory_close(mo_sim_memory *m)
{
    assert(m->count == 0 && m->adopted_count == 0);
    free(m->regions);
    free(m->adopted);
    pthread_mutex_destroy(&m->lock);
}

/* ---- The table; with memory.lock held --------------------------------------------------------- */

/* How many regions begin at or before the address. */
static int upto(const mo_sim_memory *m, mo_daddr address)
{
    int low = 0, high = m->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (m->regions[middle].at <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first place from `from` on that is free; 0 when there is none before the end of the range. */
static mo_daddr place_from(const mo_sim_memory *m, int range, mo_daddr from, int64_t bytes)
{
    const mo_daddr end = range_begin(range) + SPAN;
    int i = upto(m, from);
    mo_daddr at = from;
    if (i > 0 && m->regions[i - 1].at + (mo_daddr)m->regions[i - 1].bytes + BEFORE > at) {
        at = m->regions[i - 1].at + (mo_daddr)m->regions[i - 1].bytes + BEFORE;
    }
    at = (mo_daddr)round_up((int64_t)at, BEFORE);
    for (; i < m->count && m->regions[i].at < at + (mo_daddr)bytes + BEFORE; i++) {
        if (m->regions[i].at >= end) {
            break;
        }
        at = (mo_daddr)round_up((int64_t)(m->regions[i].at + (mo_daddr)m->regions[i].bytes + BEFORE), BEFORE);
    }
    return at >= range_begin(range) && at + (mo_daddr)bytes + BEFORE <= end ? at : 0;
}

/* Enters memory into the table; 0 when there is no place. */
static mo_daddr enter(mo_sim_memory *m, int range, uint8_t *memory, int64_t bytes)
{
    if (!mo_array_reserve(&m->regions, &m->region_limit, (size_t)m->count + 1, sizeof *m->regions)) {
        return 0;
    }
    mo_daddr at = place_from(m, range, m->next[range], bytes);
    at = at ? at : place_from(m, range, range_begin(range), bytes);
    if (at) {
        const int i = upto(m, at);
        memmove(&m->regions[i + 1], &m->regions[i], sizeof *m->regions * (size_t)(m->count - i));
        m->regions[i] =
            (mo_sim_region){.at = at, .bytes = bytes, .memory = memory, .pinned = range == PINNED};
        m->count++;
        m->next[range] = at + (mo_daddr)bytes + BEFORE;
    }
    return at;
}

static void leave(mo_sim_memory *m, int i)
{
    m->count--;
    memmove(&m->regions[i], &m->regions[i + 1], sizeof *m->regions * (size_t)(m->count - i));
}

/* ---- Looking up ------------------------------------------------------------------------------- */

void *mo_sim_memory_find(mo_sim_memory *m, mo_daddr address, int64_t bytes)
{
    void *found = NULL;
    pthread_mutex_lock(&m->lock);
    const int i = upto(m, address) - 1;
    if (i >= 0 && bytes >= 0 && address - m->regions[i].at <= (mo_daddr)m->regions[i].bytes &&
        (mo_daddr)bytes <= (mo_daddr)m->regions[i].bytes - (address - m->regions[i].at)) {
        found = m->regions[i].memory + (address - m->regions[i].at);
    }
    pthread_mutex_unlock(&m->lock);
    return found;
}

void mo_sim_memory_count(mo_sim_memory *m, mo_daddr address, int copies)
{
    pthread_mutex_lock(&m->lock);
    const int i = upto(m, address) - 1;
    if (i >= 0 && address - m->regions[i].at <= (mo_daddr)m->regions[i].bytes) {
        m->regions[i].copies += copies;
    }
    pthread_mutex_unlock(&m->lock);
}

static bool inside(const uint8_t *memory, int64_t size, const void *part, size_t bytes)
{
    const uintptr_t at = (uintptr_t)part, begin = (uintptr_t)memory;
    return at >= begin && at - begin <= (uintptr_t)size && bytes <= (uintptr_t)size - (at - begin);
}

bool mo_sim_memory_pinned(mo_sim_memory *m, const void *memory, size_t bytes)
{
    bool pinned = false;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->count && !pinned; i++) {
        const mo_sim_region *r = &m->regions[i];
        pinned = r->pinned && inside(r->memory, r->bytes, memory, bytes);
    }
    for (int i = 0; i < m->adopted_count && !pinned; i++) {
        pinned = inside(m->adopted[i].memory, m->adopted[i].bytes, memory, bytes);
    }
    pthread_mutex_unlock(&m->lock);
    return pinned;
}

bool mo_sim_memory_is_address(const void *pointer)
{
    const uintptr_t at = (uintptr_t)pointer;
    return at >= BEGIN && at < BEGIN + 2 * SPAN;
}

/* ---- The device's calls ----------------------------------------------------------------------- */

/* Counts a call of this kind: MO_ENOMEM when the fault hits it, the failure when the device is lost. */
static mo_status begin(mo_sim *sim, mo_sim_fault kind, const char *what, mo_error *err)
{
    pthread_mutex_lock(&sim->lock);
    mo_status status = mo_sim_state(sim, err);
    if (status == MO_OK && mo_sim_hits(sim, kind, 1)) {
        status = mo_fail(err, MO_ENOMEM, "the simulated GPU is configured to refuse %s", what);
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* Memory that a stream of a lost device still uses is not freed. */
static void settle(mo_sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    if (sim->failure.status != MO_OK) {
        mo_sim_quiet(sim);
    }
    pthread_mutex_unlock(&sim->lock);
}

static mo_status no_memory(mo_sim_memory *m, size_t bytes, mo_error *err)
{
    return mo_fail(
        err, MO_ENOMEM, "the simulated GPU has %.1f MiB, of which %.1f are free; %.1f were requested",
        (double)m->limit / (1 << 20), (double)(m->limit - m->used) / (1 << 20), (double)bytes / (1 << 20));
}

mo_status mo_sim_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    mo_status status = begin(sim, MO_SIM_ALLOC, "memory", err);
    if (status != MO_OK) {
        return status;
    }
    const int64_t cost = bytes < SPAN ? round_up((int64_t)bytes, MO_OP_ALIGN) : INT64_MAX;
    void *memory = NULL;
    pthread_mutex_lock(&m->lock);
    if (cost > m->limit - m->used || posix_memalign(&memory, MO_OP_ALIGN, bytes) != 0) {
        status = no_memory(m, bytes, err);
    } else {
        memset(memory, PATTERN, bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES);
        *out = enter(m, OWN, memory, (int64_t)bytes);
        if (!*out) {
            free(memory);
            status = mo_fail(err, MO_ENOMEM, "out of memory for the table of a simulated GPU");
        }
    }
    if (status == MO_OK) {
        m->used += cost;
        m->peak = m->used > m->peak ? m->used : m->peak;
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

void mo_sim_free(mo_device *device, mo_daddr address)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    settle(sim);
    pthread_mutex_lock(&m->lock);
    const int i = upto(m, address) - 1;
    assert(i >= 0 && m->regions[i].at == address && !m->regions[i].pinned);
    assert(m->regions[i].copies == 0 || atomic_load(&sim->lost)); /* waiting is the caller's part */
    uint8_t *memory = m->regions[i].memory;
    m->used -= round_up(m->regions[i].bytes, MO_OP_ALIGN);
    leave(m, i);
    pthread_mutex_unlock(&m->lock);
    free(memory);
}

mo_status mo_sim_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    mo_status status = begin(sim, MO_SIM_PIN, "to pin memory", err);
    void *memory = NULL;
    if (status != MO_OK) {
        return status;
    }
    if (bytes >= SPAN || posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), bytes) != 0) {
        return mo_fail(err, MO_ENOMEM, "%.1f MiB of pinned memory are not available",
                       (double)bytes / (1 << 20));
    }
    pthread_mutex_lock(&m->lock);
    *seen = enter(m, PINNED, memory, (int64_t)bytes);
    pthread_mutex_unlock(&m->lock);
    if (!*seen) {
        free(memory);
        return mo_fail(err, MO_ENOMEM, "no address for %.1f MiB of pinned memory", (double)bytes / (1 << 20));
    }
    *out = memory;
    return MO_OK;
}

void mo_sim_unpin(mo_device *device, void *memory)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    settle(sim);
    pthread_mutex_lock(&m->lock);
    int i = 0;
    while (i < m->count && (!m->regions[i].pinned || m->regions[i].memory != memory)) {
        i++;
    }
    assert(i < m->count);
    leave(m, i);
    pthread_mutex_unlock(&m->lock);
    free(memory);
}

mo_status mo_sim_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    const mo_status status = begin(sim, MO_SIM_PIN, "to pin memory", err);
    if (status != MO_OK) {
        return status;
    }
    pthread_mutex_lock(&m->lock);
    const bool good =
        mo_array_reserve(&m->adopted, &m->adopted_limit, (size_t)m->adopted_count + 1, sizeof *m->adopted);
    if (good) {
        m->adopted[m->adopted_count++] = (mo_sim_range){.memory = memory, .bytes = (int64_t)bytes};
    }
    pthread_mutex_unlock(&m->lock);
    return good ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for a list of pinned memory");
}

void mo_sim_release(mo_device *device, void *memory)
{
    mo_sim *sim = mo_sim_of(device);
    mo_sim_memory *m = &sim->memory;
    settle(sim);
    pthread_mutex_lock(&m->lock);
    int i = 0;
    while (i < m->adopted_count && m->adopted[i].memory != memory) {
        i++;
    }
    assert(i < m->adopted_count);
    m->adopted[i] = m->adopted[--m->adopted_count];
    pthread_mutex_unlock(&m->lock);
}
