#include "plan/least.h"

#include "plan/arrange.h"
#include "plan/batch.h"
#include "plan/device.h"

static mo_plan_model smallest(const mo_plan_model *m)
{
    return m->smallest.batch > 0 ? mo_plan_with_batch(m, &m->smallest)
           : m->batch_count > 0  ? mo_plan_with_batch(m, &m->batches[0])
                                 : *m;
}

/* Number of layers whose KV cache can move to RAM with this RAM plan. */
static int kv_movable(const mo_plan_model *m, const mo_plan_limits *l, const mo_run_plan *ram)
{
    mo_plan_device hot;
    mo_plan_device_place(m, l, ram, &hot);
    return mo_plan_device_kv_movable(m, &hot);
}

/* Lowest VRAM ceiling with this RAM plan and the KV cache of this many layers in RAM. */
static int64_t needed_beside(const mo_plan_model *m, const mo_plan_limits *l, int kv_in_ram,
                             const mo_run_plan *ram)
{
    const mo_plan_model model = mo_plan_device_kv_to_ram(m, mo_plan_device_kv_of_last(m, kv_in_ram));
    mo_plan_device d;
    mo_plan_device_place(&model, l, ram, &d);
    return d.least;
}

/* Moves the KV cache of this many more layers to RAM. */
static mo_wanted with_kv_in_ram(const mo_wanted *w, int kv_in_ram)
{
    mo_wanted more = *w;
    more.model.kv_bytes = mo_plan_sum(more.model.kv_bytes, mo_plan_device_kv_of_last(w->whole, kv_in_ram));
    return more;
}

/* Minimum number of layers whose KV cache must be in RAM; -1: not enough even with all. VRAM needs decrease
 * with each. */
static int fewest_kv_in_ram(const mo_plan_model *m, const mo_plan_limits *l, int64_t vram,
                            const mo_run_plan *ram)
{
    int low = 0, high = kv_movable(m, l, ram);
    if (needed_beside(m, l, high, ram) > vram) {
        return -1;
    }
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (needed_beside(m, l, middle, ram) <= vram) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

int64_t mo_plan_least_ram(const mo_plan_model *model, const mo_plan_limits *limits)
{
    const mo_plan_model m = smallest(model);
    const bool device = limits->vram_bytes > 0;
    const mo_wanted w = mo_plan_want(&m, device, NULL);
    const int64_t vram = limits->vram_bytes - mo_plan_vram_held(limits);
    int64_t best = 0;
    for (mo_plan_mode mode = MO_PLAN_RESIDENT; mode <= MO_PLAN_STREAMED; mode++) {
        mo_run_plan p;
        if (!mo_plan_arrange_least(&w, mode, &p)) {
            continue;
        }
        const int kv_in_ram = device ? fewest_kv_in_ram(&m, limits, vram, &p) : 0;
        if (kv_in_ram >= 0) {
            const mo_wanted more = with_kv_in_ram(&w, kv_in_ram);
            mo_plan_arrange_least(&more, mode, &p);
            best = best == 0 || p.used < best ? p.used : best;
        }
    }
    return best;
}

/* Lowest VRAM ceiling with this arrangement of RAM; 0: RAM cannot be arranged so. */
static int64_t least_vram_as(const mo_wanted *w, mo_arrangement how, const mo_plan_limits *limits,
                             int64_t ram)
{
    mo_run_plan p;
    if (!mo_plan_arrange(w, how, ram, &p)) {
        return 0;
    }
    int low = 0, high = kv_movable(w->whole, limits, &p); /* maximum that RAM has space for */
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        const mo_wanted more = with_kv_in_ram(w, middle);
        if (mo_plan_arrange(&more, how, ram, &p)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const mo_wanted more = with_kv_in_ram(w, low);
    mo_plan_arrange(&more, how, ram, &p);
    return needed_beside(w->whole, limits, low, &p);
}

int64_t mo_plan_least_vram(const mo_plan_model *model, const mo_plan_limits *limits)
{
    const mo_plan_model m = smallest(model);
    const mo_wanted w = mo_plan_want(&m, true, NULL);
    const int64_t ram = limits->ram_bytes - limits->ram_held;
    mo_run_plan first;
    const bool streamed =
        mo_plan_arrange(&w, MO_ARRANGE_AS_FITS, ram, &first) && first.mode == MO_PLAN_STREAMED;
    const bool tried[MO_ARRANGEMENTS] = {[MO_ARRANGE_AS_FITS] = true,
                                         [MO_ARRANGE_SLOTS] = mo_plan_slots_take_less(&w),
                                         [MO_ARRANGE_DISK] = streamed};
    int64_t best = 0;
    for (mo_arrangement how = MO_ARRANGE_AS_FITS; how < MO_ARRANGEMENTS; how++) {
        const int64_t least = tried[how] ? least_vram_as(&w, how, limits, ram) : 0;
        best = least > 0 && (best == 0 || least < best) ? least : best;
    }
    return best;
}
