#include "plan/arrange.h"

#include "plan/device.h"

/* ---- Slots ---- */

/* Minimum slots of a class: the experts a token uses in one layer, and those in transit. */
static int64_t fewest(const mo_plan_model *m, const mo_plan_class *c)
{
    const int64_t in_flight = m->in_flight ? m->in_flight : MO_PLAN_IN_FLIGHT;
    const int64_t slots = mo_plan_sum(c->used ? c->used : m->used, in_flight);
    return slots < c->experts ? slots : c->experts;
}

/* The slots that each class wants in RAM. Experts in VRAM need no slot, unless RAM keeps everything. */
static void want_slots(const mo_plan_model *m, const mo_plan_device *d, mo_plan_share *s)
{
    for (int i = 0; i < m->class_count; i++) {
        const mo_plan_class *c = &m->classes[i];
        const int64_t held = d ? d->class_slots[i] : 0, least = held < c->experts ? fewest(m, c) : 0;
        const int64_t most = c->experts - held > least ? c->experts - held : least;
        s[i] = (mo_plan_share){.slot_bytes = c->slot_bytes,
                               .weight = c->used_per_token * (double)c->bytes,
                               .least = least,
                               .most = most,
                               .held = held};
    }
}

mo_wanted mo_plan_want(const mo_plan_model *model, bool device, const mo_plan_device *first)
{
    mo_wanted w = {.model = *model, .whole = model, .counts = {.streamed = model->dense_layers}};
    if (first) {
        w.model = mo_plan_device_rest(model, first);
        w.beside = w.counts.alone = true;
        w.counts.streamed = first->streamed;
    }
    if (device) {
        w.model.work_bytes = mo_plan_sum(w.model.work_bytes, model->device_host_bytes);
    }
    want_slots(model, first, w.shares);
    return w;
}

/* ---- Places ---- */

static int64_t expert_bytes(const mo_plan_model *m)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->class_count; i++) {
        bytes = mo_plan_sum(bytes, mo_plan_times(m->classes[i].experts, m->classes[i].bytes));
    }
    return bytes;
}

static int64_t total(const mo_run_plan *p)
{
    const int64_t parts[] = {p->core, p->vectors, p->table, p->kv, p->work, p->other, p->staging, p->slots};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bytes = mo_plan_sum(bytes, parts[i]);
    }
    return bytes;
}

/* The parts that are the same in every mode, without the core and the slots. */
static void fixed_parts(const mo_plan_model *m, mo_run_plan *p)
{
    *p = (mo_run_plan){
        .vectors = m->vector_bytes,
        .table = m->tied ? m->table_bytes : 0,
        .kv = m->kv_bytes,
        .work = m->work_bytes,
        .other = m->other_bytes,
        .staging = m->staging_bytes,
        .expert_bytes = expert_bytes(m),
        .dense_resident = m->dense_layers,
    };
}

/* Only embedding rows may still be read and staged. */
static void resident_parts(const mo_wanted *w, mo_run_plan *p)
{
    const mo_plan_model *m = &w->model;
    fixed_parts(m, p);
    p->mode = MO_PLAN_RESIDENT;
    p->core = m->core_bytes;
    p->staging = m->tied ? 0 : m->staging_bytes;
    p->slots = m->resident_bytes ? m->resident_bytes : p->expert_bytes;
    p->expert_resident = p->expert_bytes;
    if (w->beside) {
        p->slots = mo_plan_share_most(w->shares, m->class_count);
        p->expert_resident = 0; /* already counted with the slots */
        p->mode = p->slots > 0 ? MO_PLAN_SLOTS : MO_PLAN_RESIDENT;
        for (int i = 0; i < m->class_count; i++) {
            p->class_slots[i] = (int32_t)w->shares[i].most;
        }
    }
    p->used = total(p);
}

static void slotted_parts(const mo_wanted *w, mo_run_plan *p)
{
    fixed_parts(&w->model, p);
    p->mode = MO_PLAN_SLOTS;
    p->core = w->model.core_bytes;
    p->slots = mo_plan_share_least(w->shares, w->model.class_count);
    p->used = total(p);
}

int64_t mo_plan_pass_bytes(const mo_wanted *w, int64_t layer_buffer_bytes)
{
    const int64_t grain = (int64_t)64 << 10, later = mo_plan_sum(w->model.kv_bytes, w->whole->work_bytes);
    int64_t bytes = (int64_t)16 << 20;
    bytes = later < bytes ? later / grain * grain : bytes;
    bytes = bytes > grain ? bytes : grain;
    return layer_buffer_bytes < bytes ? layer_buffer_bytes : bytes;
}

/* No layer stays in RAM; the minimum number of buffers. */
static void streamed_parts(const mo_wanted *w, mo_run_plan *p)
{
    const mo_plan_model *m = &w->model;
    fixed_parts(m, p);
    mo_placement_counts counts = w->counts;
    counts.on_disk = m->dense_layers;
    const int64_t buffer = mo_placement_sum(w->whole, counts).ram_buffer_bytes;
    p->mode = MO_PLAN_STREAMED;
    p->core = m->core_bytes - m->dense_bytes;
    p->layer_buffers = w->unbuffered ? 0 : MO_PLAN_LAYER_BUFFERS_LEAST;
    p->layer_pass = w->unbuffered ? mo_plan_pass_bytes(w, buffer) : 0;
    p->dense_resident = 0;
    p->staging = mo_plan_sum(p->staging, mo_plan_times(p->layer_buffers, buffer));
    p->slots = mo_plan_share_least(w->shares, m->class_count);
    p->used = total(p);
}

static void fill_slots(const mo_wanted *w, int64_t ceiling, mo_run_plan *p)
{
    p->slots =
        mo_plan_share_out(w->shares, w->model.class_count, p->slots + (ceiling - p->used), p->class_slots);
    p->used = total(p);
}

/* Some layers must remain for the device alone. */
static void fill_unbuffered(const mo_wanted *w, int64_t ceiling, mo_run_plan *p)
{
    const mo_plan_model *m = &w->model;
    mo_plan_share_out(w->shares, m->class_count, p->slots, p->class_slots);
    int stay = mo_placement_fill_ram(w->whole, w->counts, 0, ceiling - p->used);
    stay = stay < m->dense_layers ? stay : m->dense_layers - 1;
    if (stay > 0) {
        mo_placement_counts counts = w->counts;
        counts.on_disk = m->dense_layers - stay;
        p->dense_resident = stay;
        p->core = mo_plan_sum(p->core, mo_placement_sum(w->whole, counts).ram_bytes);
        p->used = total(p);
    }
}

/* A third buffer takes precedence over permanent layers: it keeps the disk busy. */
static void fill_layers(const mo_wanted *w, int64_t ceiling, mo_run_plan *p)
{
    const mo_plan_model *m = &w->model;
    /* The minimum slots: every token reads core bytes. */
    mo_plan_share_out(w->shares, m->class_count, p->slots, p->class_slots);
    const int64_t buffers = p->staging - m->staging_bytes;
    const int stay =
        mo_placement_fill_ram(w->whole, w->counts, MO_PLAN_LAYER_BUFFERS, ceiling - p->used + buffers);
    if (stay >= 0) {
        mo_placement_counts counts = w->counts;
        counts.on_disk = m->dense_layers - stay;
        const mo_placement_sums s = mo_placement_sum(w->whole, counts);
        p->layer_buffers = MO_PLAN_LAYER_BUFFERS;
        p->staging = mo_plan_sum(m->staging_bytes, mo_plan_times(p->layer_buffers, s.ram_buffer_bytes));
        p->dense_resident = stay;
        p->core = mo_plan_sum(p->core, s.ram_bytes);
        p->used = total(p);
    }
}

bool mo_plan_arrange_least(const mo_wanted *w, mo_plan_mode mode, mo_run_plan *p)
{
    switch (mode) {
    case MO_PLAN_RESIDENT: resident_parts(w, p); return true;
    case MO_PLAN_SLOTS: slotted_parts(w, p); return w->model.class_count > 0;
    case MO_PLAN_STREAMED: break;
    }
    if (w->model.dense_layers == 0) {
        return false;
    }
    streamed_parts(w, p);
    return true;
}

/* Places everything; on failure *p is the smallest arrangement. One candidate at a time, because callers may
 * have small stacks. */
static bool place(const mo_wanted *w, int64_t ceiling, mo_run_plan *p)
{
    mo_plan_mode mode = MO_PLAN_RESIDENT;
    resident_parts(w, p);
    const int64_t whole = p->used;
    int64_t least = whole;
    for (mo_plan_mode next = MO_PLAN_SLOTS; next <= MO_PLAN_STREAMED; next++) {
        mo_run_plan q;
        if (mo_plan_arrange_least(w, next, &q)) {
            least = q.used < least ? q.used : least;
            if (p->used > ceiling && q.used < p->used) {
                *p = q;
                mode = next;
            }
        }
    }
    const bool fits = p->used <= ceiling;
    if (fits && mode == MO_PLAN_SLOTS) {
        fill_slots(w, ceiling, p);
    } else if (fits && mode == MO_PLAN_STREAMED) {
        (w->unbuffered ? fill_unbuffered : fill_layers)(w, ceiling, p);
    }
    p->ceiling = ceiling;
    p->least = least;
    p->whole = whole;
    return p->used <= ceiling;
}

bool mo_plan_arrange(const mo_wanted *w, mo_arrangement how, int64_t ceiling, mo_run_plan *p)
{
    mo_run_plan first, other;
    if (how == MO_ARRANGE_AS_FITS) {
        return place(w, ceiling, p);
    }
    if (!mo_plan_arrange_least(w, how == MO_ARRANGE_SLOTS ? MO_PLAN_SLOTS : MO_PLAN_STREAMED, &other) ||
        other.used > ceiling) {
        return false;
    }
    place(w, ceiling, &first);
    fill_slots(w, ceiling, &other);
    other.ceiling = first.ceiling;
    other.least = first.least;
    other.whole = first.whole;
    *p = other;
    return true;
}

bool mo_plan_slots_take_less(const mo_wanted *w)
{
    mo_run_plan slots, all;
    return mo_plan_arrange_least(w, MO_PLAN_SLOTS, &slots) &&
           mo_plan_arrange_least(w, MO_PLAN_RESIDENT, &all) && slots.used <= all.used;
}
