#include "gpu/start.h"

#include <stdlib.h>

#include "base/status.h"

/* Experts in the order that are looked at together; and for RAM in one turn, when all had theirs. */
enum { LOOK_AHEAD = 64, AGAIN = 256 };

/* ---- The order --------------------------------------------------------------------------------- */

static void add(mo_gpu_start *s, bool *listed, int64_t most, int layer, int expert)
{
    bool *seen = &listed[layer * most + expert];
    if (!*seen) {
        *seen = true;
        s->order[s->count++] = (mo_gpu_start_expert){.layer = layer, .expert = expert};
    }
}

static void list(mo_gpu_start *s, const mo_store_request *requests, int32_t count, bool *listed)
{
    const mo_model_spec *spec = s->experts->core->spec;
    const int64_t most = s->experts->core->extent.experts;
    for (int32_t i = 0; i < count; i++) {
        const mo_store_request *r = &requests[i];
        if (!mo_gpu_core_routed(s->experts->core, r->layer) || r->expert < 0 ||
            r->expert >= spec->layers[r->layer].moe.experts) {
            continue;
        }
        add(s, listed, most, r->layer, r->expert);
        mo_store_seed(s->experts->where.store, r->layer, r->expert, r->hits, requests[0].hits);
        mo_vram_seed(s->experts->where.vram, r->layer, r->expert, r->hits, requests[0].hits);
    }
    s->known = s->count > 0;
    for (int64_t e = 0; e < most; e++) {
        for (int i = s->experts->core->first; i < s->experts->core->end; i++) {
            if (spec->layers[i].routed && e < spec->layers[i].moe.experts &&
                mo_where_here(&s->experts->where, (int)e)) {
                add(s, listed, most, i, (int)e);
            }
        }
    }
}

mo_status mo_gpu_start_open(mo_gpu_start *s, const mo_store_request *requests, int32_t count, mo_error *err)
{
    const mo_gpu_core *core = s->experts->core;
    const size_t cells = (size_t)core->spec->layer_count * (size_t)core->extent.experts;
    if (!s->experts->where.store) {
        return MO_OK;
    }
    bool *listed = calloc(cells + 1, sizeof *listed);
    s->order = calloc(cells + 1, sizeof *s->order);
    if (!listed || !s->order) {
        free(listed);
        return mo_fail(err, MO_ENOMEM,
                       "out of memory for the read order of experts; free some and try again");
    }
    list(s, requests, count, listed);
    free(listed);
    mo_status status = mo_dstream_create(s->experts->link->device, &s->stream, err);
    for (int i = 0; i < GPU_START_MOVES && status == MO_OK; i++) {
        status = mo_event_create(s->experts->link->device, &s->moves[i].arrived, err);
    }
    return status == MO_OK ? mo_gpu_start_turn(s, err) : status;
}

void mo_gpu_start_close(mo_gpu_start *s)
{
    mo_gpu_start_abort(s); /* what was lent is given back: the store may go on without the device */
    mo_dstream_destroy(s->stream);
    for (int i = 0; i < GPU_START_MOVES; i++) {
        mo_event_destroy(s->moves[i].arrived);
    }
    free(s->order);
}

bool mo_gpu_start_leaves(const mo_gpu_start *s)
{
    return s->order && s->experts->admits && (!s->known || s->again || s->to_device == s->count);
}

/* ---- To the device ----------------------------------------------------------------------------- */

static mo_status look(mo_gpu_start *s, mo_error *err)
{
    mo_gpu_experts *x = s->experts;
    mo_status status = MO_OK;
    for (int i = 0; i < GPU_START_MOVES && status == MO_OK; i++) {
        mo_gpu_start_move *m = &s->moves[i];
        bool arrived = false;
        if (m->busy) {
            status = mo_event_query(m->arrived, &arrived, err);
        }
        if (arrived) {
            mo_vram_landed(x->where.vram, m->expert.layer, m->expert.expert);
            mo_store_return(x->where.store, m->expert.layer, m->expert.expert);
            mo_store_yield(x->where.store, m->expert.layer, m->expert.expert);
            m->busy = false;
            s->under_way--;
        }
    }
    return status;
}

static bool moves(const mo_gpu_start *s, const mo_gpu_start_expert *b)
{
    for (int i = 0; s->under_way > 0 && i < GPU_START_MOVES; i++) {
        const mo_gpu_start_move *m = &s->moves[i];
        if (m->busy && m->expert.layer == b->layer && m->expert.expert == b->expert) {
            return true;
        }
    }
    return false;
}

/* It is lent. A copy that fails without losing the device may be partial: the slot is not reused before that
 * has ended. */
static mo_status send(mo_gpu_start *s, mo_gpu_start_move *m, const mo_gpu_start_expert *b, mo_error *err)
{
    mo_gpu_experts *x = s->experts;
    const mo_daddr to = mo_vram_acquire_free(x->where.vram, b->layer, b->expert);
    int64_t bytes = 0;
    mo_status status =
        mo_gpu_core_copy_expert(x->core, x->link, s->stream, b->layer, b->expert, to, &bytes, err);
    if (status == MO_OK) {
        status = mo_event_record(m->arrived, s->stream, err);
    }
    if (status == MO_OK) {
        *m = (mo_gpu_start_move){.expert = *b, .arrived = m->arrived, .busy = true};
        s->under_way++;
        x->fetched_bytes += (uint64_t)bytes;
        return MO_OK;
    }
    mo_error ignored = {0};
    if (status != MO_EDEVICE) {
        mo_dstream_wait(s->stream, &ignored);
    }
    mo_vram_drop(x->where.vram, b->layer, b->expert);
    mo_store_return(x->where.store, b->layer, b->expert);
    x->link->failed++;
    return status == MO_EDEVICE ? status : MO_OK;
}

static mo_gpu_start_move *idle_move(mo_gpu_start *s)
{
    for (int i = 0; i < GPU_START_MOVES; i++) {
        if (!s->moves[i].busy) {
            return &s->moves[i];
        }
    }
    return NULL;
}

/* Does the device need it, not have it, and could it get it from RAM, after those before it? Where RAM has hardly
 * more slots than one token needs nothing is lent: prompts leave their experts on the device instead. */
static bool wanted(const mo_gpu_start *s, const mo_gpu_start_expert *b, int32_t before)
{
    const mo_gpu_experts *x = s->experts;
    return x->admits && mo_store_lends(x->where.store, b->layer) &&
           mo_vram_free(x->where.vram, b->layer) > before &&
           !mo_where_address(&x->where, b->layer, b->expert) && !moves(s, b);
}

/* How many may wait in RAM, or be on their way there, until they are sent: so few that none drives another out. */
static int32_t coming_most(const mo_gpu_start *s)
{
    int32_t slots, filled;
    int64_t bytes;
    mo_store_slots(s->experts->where.store, &slots, &filled, &bytes);
    return slots / 4 < LOOK_AHEAD ? slots / 4 + 1 : LOOK_AHEAD;
}

/* Sends what is in RAM, and begins to read the others, as far as LOOK_AHEAD in the order; those that are on their way into RAM keep
 * slots for themselves, so that none that is less hot has the last ones. One whose read was begun and that is gone again (it failed, or
 * a layer needed its place) is left until it is needed. */
static mo_status fill_device(mo_gpu_start *s, mo_error *err)
{
    mo_gpu_experts *x = s->experts;
    const int32_t most = coming_most(s);
    mo_status status = MO_OK;
    int32_t coming = 0;
    bool settled = true; /* all up to here have their place, or never will */
    for (int32_t i = s->to_device;
         i < s->count && i < s->to_device + LOOK_AHEAD && coming < most && status == MO_OK; i++) {
        mo_gpu_start_expert *b = &s->order[i];
        mo_gpu_start_move *m = wanted(s, b, coming) ? idle_move(s) : NULL;
        if (m && mo_store_lend(x->where.store, b->layer, b->expert)) {
            status = send(s, m, b, err);
        } else if (wanted(s, b, coming)) {
            const bool there = mo_where_arriving(&x->where, b->layer, b->expert);
            const bool ask = !there && !b->read && !s->again;
            const mo_store_begun begun =
                ask ? mo_store_ahead(x->where.store, b->layer, b->expert, true) : MO_STORE_FULL;
            b->read |= begun == MO_STORE_BEGUN;
            coming += there || begun != MO_STORE_FULL;
            settled = settled && !there && !ask;
        }
        s->to_device = settled ? i + 1 : s->to_device;
    }
    return status;
}

/* ---- Into RAM ---------------------------------------------------------------------------------- */

/* What RAM has no free slot for is left out when the device needs none of its slots any more. */
static void fill_ram(mo_gpu_start *s)
{
    mo_gpu_experts *x = s->experts;
    const int32_t end = s->again && s->to_ram + AGAIN < s->count ? s->to_ram + AGAIN : s->count;
    while (s->to_ram < end) {
        const mo_gpu_start_expert *b = &s->order[s->to_ram];
        if (!mo_where_address(&x->where, b->layer, b->expert) && !moves(s, b)) {
            const mo_store_begun begun = mo_store_ahead(x->where.store, b->layer, b->expert, false);
            const bool more = s->to_device < s->count || s->under_way > 0;
            if (begun == MO_STORE_BUSY || (begun == MO_STORE_FULL && more)) {
                return;
            }
        }
        s->to_ram++;
    }
}

/* Both have come to the end of the order, but not every slot of the device is taken, or RAM has some for what is in neither: what
 * was driven out meanwhile by others on their way. */
static void begin_again(mo_gpu_start *s)
{
    const mo_gpu_experts *x = s->experts;
    int32_t slots, filled, ram_slots, ram_filled;
    int64_t bytes;
    mo_vram_slots(x->where.vram, &slots, &filled, &bytes);
    mo_store_slots(x->where.store, &ram_slots, &ram_filled, &bytes);
    if (x->admits && (filled < slots || (ram_filled < ram_slots && mo_store_absent(x->where.store)))) {
        s->to_device = s->to_ram = 0;
        s->again = true;
    }
}

mo_status mo_gpu_start_turn(mo_gpu_start *s, mo_error *err)
{
    if (!s->order) {
        return MO_OK;
    }
    if (s->to_device == s->count && s->to_ram == s->count && s->under_way == 0) {
        begin_again(s);
    }
    if (s->to_device == s->count && s->to_ram == s->count && s->under_way == 0) {
        return MO_OK;
    }
    mo_status status = look(s, err);
    if (status == MO_OK) {
        status = fill_device(s, err);
    }
    if (status == MO_OK) {
        fill_ram(s);
    }
    return status;
}

void mo_gpu_start_abort(mo_gpu_start *s)
{
    mo_gpu_experts *x = s->experts;
    mo_error ignored = {0};
    if (s->under_way == 0) {
        return;
    }
    mo_dstream_wait(s->stream, &ignored);
    for (int i = 0; i < GPU_START_MOVES; i++) {
        mo_gpu_start_move *m = &s->moves[i];
        if (m->busy) {
            mo_vram_drop(x->where.vram, m->expert.layer, m->expert.expert);
            mo_store_return(x->where.store, m->expert.layer, m->expert.expert);
            m->busy = false;
        }
    }
    s->under_way = 0;
    s->to_device = s->to_ram = 0;
}
