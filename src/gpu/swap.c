/* Swap: where experts are on disk too, one that crosses to the device and stays leaves its place in RAM, and the one
 * whose slot it takes goes back to RAM instead of being lost: what one tier gains the other does not lose. At most one a
 * layer, so that the way back costs the fetches of a layer at most one expert's time. */
#include "gpu/lanes.h"

/* The way back takes the link as long as one miss does, so the new expert must save one within this many tokens (chosen,
 * not fitted). Where all experts are as likely, nearly every layer exchanged one: of gpt-oss-120b 13 MB, 240 us at an H200's
 * link in layers of some 700 us, by calculation. */
#define SWAP_TOKENS 16.0

bool mo_gpu_swap_absent(const mo_gpu_experts *x)
{
    int32_t slots, present;
    int64_t bytes;
    mo_store_slots(x->where.store, &slots, &present, &bytes);
    for (const mo_gpu_experts *part = x->first; part; part = part->next) {
        int32_t filled;
        mo_vram_slots(part->where.vram, &slots, &filled, &bytes);
        present += part->lost ? 0 : filled;
    }
    return present < mo_store_experts(x->where.store)->expert_count;
}

/* RAM gets the bytes of an expert that will leave its slot; false when it cannot. It evicts another only as long as some
 * expert is in neither tier: otherwise that would bring the disk into play again. */
static bool take_back(mo_gpu_lanes *lanes, mo_gpu_service *s, int layer, int expert)
{
    mo_gpu_experts *x = lanes->experts;
    const mo_gpu_layer *l = &lanes->core->layers[layer];
    const mo_expert *b = &lanes->core->spec->layers[layer].moe.expert[expert];
    const mo_weights *matrix[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, l->up_at, l->down_at};
    const mo_daddr from = mo_where_address(&x->where, layer, expert);
    uint8_t *parts[3];
    mo_error ignored = {0};
    mo_status status = MO_OK;
    if (s->back.busy || !mo_store_take(x->where.store, layer, expert, mo_gpu_swap_absent(x), parts)) {
        return false;
    }
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        const int64_t bytes =
            matrix[i]->rows * mo_format_row_bytes(mo_format_of(matrix[i]->type), matrix[i]->cols);
        status = mo_gpu_link_copy_back(lanes->link, lanes->link->fetch, from + (mo_daddr)at[i], (size_t)bytes,
                                       parts[i], &ignored);
    }
    if (status == MO_OK) {
        s->back.busy = true;
        s->back.layer = layer;
        s->back.expert = expert;
        return true;
    }
    lanes->link->failed++;
    status = status == MO_EDEVICE ? status : mo_dstream_wait(lanes->link->fetch, &ignored);
    mo_store_taken(x->where.store, layer, expert, status == MO_OK ? MO_STORE_FAILED : MO_STORE_UNSURE);
    return false;
}

static bool pays(const mo_gpu_experts *x, int layer, int expert, int victim_layer, int victim)
{
    const double comes = mo_vram_chance(x->where.vram, layer, expert),
                 goes = mo_vram_chance(x->where.vram, victim_layer, victim);
    return comes < 0 || (comes - goes) * SWAP_TOKENS >= 1.0; /* below 0: the policy has its own reasons */
}

mo_daddr mo_gpu_swap_slot(mo_gpu_lanes *lanes, mo_gpu_service *s, int expert)
{
    mo_gpu_experts *x = lanes->experts;
    int layer, victim;
    if (mo_where_placed(&x->where, s->layer,
                        expert)) { /* it is on its way there; until then it passes through */
        return 0;
    }
    if (mo_vram_free(x->where.vram, s->layer) == 0) {
        if (!mo_vram_victim(x->where.vram, s->layer, &layer, &victim) ||
            (!mo_where_resident(&x->where, layer, victim) &&
             (!pays(x, s->layer, expert, layer, victim) || !take_back(lanes, s, layer, victim)))) {
            return 0;
        }
    }
    return mo_vram_acquire(x->where.vram, s->layer, expert);
}

void mo_gpu_swap_settle(mo_gpu_lanes *lanes, mo_gpu_service *s, mo_status status)
{
    mo_error ignored = {0};
    if (!s->back.busy) {
        return;
    }
    s->back.busy = false;
    mo_store_arrival arrival = MO_STORE_ARRIVED;
    if (status != MO_OK) { /* the step ends: its progress is unknown */
        arrival = status != MO_EDEVICE && mo_dstream_wait(lanes->link->fetch, &ignored) == MO_OK
                      ? MO_STORE_FAILED
                      : MO_STORE_UNSURE;
    }
    mo_store_taken(lanes->experts->where.store, s->back.layer, s->back.expert, arrival);
}

void mo_gpu_swap_yield(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s)
{
    for (int i = 0; i < s->fetched; i++) {
        const int expert = forward->w->needs[s->need[i]].expert;
        if (mo_where_address(&lanes->experts->where, s->layer, expert)) {
            mo_store_yield(lanes->experts->where.store, s->layer, expert);
        }
    }
}
