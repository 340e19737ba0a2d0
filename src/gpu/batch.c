/* Experts of a batch on the device, expert by expert: those in slots first, the others as they arrive over
 * the link, each at most once, window by window; windows are refilled while earlier ones compute. A large
 * batch uses nearly all experts, so windows prefetch the next layer's experts before its choice is known. */
#include "gpu/batch.h"

#include <string.h>

#include "base/status.h"
#include "gpu/share.h"

/* ---- The order of a layer --------------------------------------------------------------------- */

/* Lists experts in slots. */
static void list_hot(const mo_gpu *gpu, int layer, int experts, int32_t *left, mo_gpu_order *o)
{
    for (int e = 0; e < experts; e++) {
        if (left[e] > 0 && mo_where_address(&gpu->experts.where, layer, e)) {
            o->expert[o->count++] = e;
            left[e] = 0;
        }
    }
    o->hot = o->count;
}

/* Lists experts that were prefetched before the choice. */
static void list_sent(mo_gpu *gpu, int layer, int32_t *left, mo_gpu_order *o)
{
    for (uint64_t at = gpu->experts.window_tail; at < gpu->experts.window_head; at++) {
        const mo_gpu_window *w = mo_gpu_window_at(&gpu->experts, at);
        mo_gpu_portion p = {.window = at, .first = o->count};
        for (int i = 0; w->layer == layer && i < w->count; i++) {
            if (left[w->expert[i]] > 0) {
                o->expert[o->count++] = w->expert[i];
                left[w->expert[i]] = 0;
            }
        }
        p.count = o->count - p.first;
        if (p.count > 0) {
            o->portion[o->portions++] = p;
        }
    }
    o->sent = o->portions;
}

/* Assigns the rest to the next windows. */
static void list_rest(const mo_gpu *gpu, int experts, int32_t *left, mo_gpu_order *o)
{
    mo_gpu_portion *p = NULL;
    for (int e = 0; e < experts; e++) {
        if (left[e] <= 0 || o->by_cpu[e]) {
            continue;
        }
        if (!p || p->count == gpu->experts.window_size) {
            const uint64_t window = gpu->experts.window_head + (uint64_t)(o->portions - o->sent);
            p = &o->portion[o->portions++];
            *p = (mo_gpu_portion){.window = window, .first = o->count};
        }
        o->expert[o->count++] = e;
        p->count++;
    }
}

/* Lists the CPU's experts after all others, so that their rows are contiguous. */
static void list_shared(int experts, mo_gpu_order *o)
{
    o->cpu_first = o->count;
    for (int e = 0; e < experts; e++) {
        if (o->by_cpu[e]) {
            o->expert[o->count++] = e;
        }
    }
}

/* Then lists the workers' experts, worker by worker: they answer row by row, expert by expert. */
static void list_claimed(const mo_gpu *gpu, int experts, mo_gpu_order *o)
{
    o->claimed_first = o->count;
    for (int i = 0; i < MO_WORKERS_MAX && gpu->lanes.claimed > 0; i++) {
        for (int e = 0; e < experts; e++) {
            if (gpu->lanes.work.who[e] == MO_BY_WORKER + i) {
                o->expert[o->count++] = e;
            }
        }
    }
}

/* Lists skipped experts at the end: they have no rows. */
static void list_skipped(int experts, const int32_t *left, mo_gpu_order *o)
{
    o->skipped = 0;
    for (int e = 0; e < experts; e++) {
        if (left[e] < 0) {
            o->expert[o->count + o->skipped++] = e;
        }
    }
}

/* Skips experts that are neither in RAM nor in VRAM, and reports the kept picks to the device. The skipped
 * ones' left is then -1. */
static void skip_missing(mo_gpu *gpu, mo_forward *forward, int32_t *left)
{
    const mo_gpu_pinned *pinned = &gpu->scratch.pinned;
    const mo_picks *p = &forward->w->picks;
    const size_t rows = (size_t)mo_picks_rows(p);
    int count = 0;
    for (int e = 0; e < p->experts; e++) {
        if (left[e] > 0) {
            forward->w->needs[count++] = (mo_need){.expert = e};
        }
    }
    for (int i = mo_forward_skip(forward, count); i < count; i++) {
        left[forward->w->needs[i].expert] = -1;
    }
    memcpy(pinned->ids, p->ids, sizeof *p->ids * rows);
    memcpy(pinned->weights, p->weights, sizeof *p->weights * rows);
}

/* Lets workers claim experts that are neither in slots nor prefetched. */
static void claim(mo_gpu *gpu, mo_forward *forward, int layer, int32_t *left)
{
    mo_expert_work *work = &gpu->lanes.work;
    const mo_picks *p = &forward->w->picks;
    *work = (mo_expert_work){
        .forward = forward, .layer = layer, .picks = p, .out = gpu->scratch.pinned.shared_rows};
    for (int e = 0; e < p->experts; e++) {
        const bool gone = left[e] <= 0 && mo_where_here(&gpu->experts.where, e);
        work->who[e] = p->count[e] > 0 && gone ? MO_BY_DEVICE : MO_BY_CPU;
    }
    gpu->lanes.claimed = mo_workers_claim(&forward->engine->workers, work);
    for (int e = 0; e < p->experts && gpu->lanes.claimed > 0; e++) {
        left[e] = work->who[e] == MO_BY_CPU ? left[e] : 0;
    }
}

/* Sorts the rows in the order in which experts are computed. */
static void arrange(mo_gpu *gpu, mo_forward *forward, int layer, bool shared, bool divided, mo_gpu_order *o)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    mo_picks *p = &w->picks;
    int32_t *left = o->left;
    o->count = o->portions = 0;
    mo_picks_begin(p, moe->experts, moe->used, forward->tokens);
    mo_picks_count(p);
    for (int e = 0; e < moe->experts; e++) {
        left[e] = mo_where_here(&gpu->experts.where, e) ? p->count[e] : 0;
    }
    list_hot(gpu, layer, moe->experts, left, o);
    list_sent(gpu, layer, left, o);
    memset(o->by_cpu, 0, sizeof o->by_cpu);
    gpu->lanes.claimed = 0;
    const uint32_t *drafted = mo_forward_note_drafts(forward); /* before picks are skipped */
    if (gpu->experts.skips) {
        skip_missing(gpu, forward, left);
    }
    if (divided) {
        claim(gpu, forward, layer, left);
    }
    if (shared) {
        mo_gpu_share_choose(gpu, forward, layer, left, o);
    }
    list_rest(gpu, moe->experts, left, o);
    list_shared(moe->experts, o);
    list_claimed(gpu, moe->experts, o);
    list_skipped(moe->experts, left, o);
    for (int i = 0; i < o->count + o->skipped; i++) {
        const int e = o->expert[i];
        w->needs[i] =
            (mo_need){.expert = e, .picks = (uint32_t)p->count[e], .drafted = drafted ? drafted[e] : 0};
    }
    mo_picks sorted = *p; /* the device's arrays: pieces share row_of of the workspace */
    sorted.row_of = gpu->scratch.pinned.row_of;
    sorted.token_of = gpu->scratch.pinned.picks;
    mo_picks_sort_in(&sorted, o->expert, o->count);
    if (o->cpu_first < o->count) { /* the CPU and workers read the workspace's arrays */
        memcpy(p->token_of, sorted.token_of, sizeof *p->token_of * (size_t)mo_picks_rows(p));
    }
}

/* ---- Groups ----------------------------------------------------------------------------------- */

/* Sets the matrix addresses of group i's expert. */
static void put_group(mo_gpu *gpu, const mo_forward *forward, int i, const mo_daddr *part)
{
    const mo_need *n = &forward->w->needs[i];
    for (int j = 0; j < 3; j++) {
        gpu->scratch.pinned.groups[j * gpu->scratch.group_limit + i] =
            (mo_dgroup){.data = part[j],
                        .expert = n->expert,
                        .first = forward->w->picks.first[n->expert],
                        .count = (int32_t)n->picks};
    }
}

static void put_hot(mo_gpu *gpu, const mo_forward *forward, int layer, const mo_gpu_order *o)
{
    const mo_gpu_layer *l = &gpu->core.layers[layer];
    for (int i = 0; i < o->hot; i++) {
        const mo_daddr at = mo_where_address(&gpu->experts.where, layer, o->expert[i]);
        put_group(gpu, forward, i, (mo_daddr[]){at, at + (mo_daddr)l->up_at, at + (mo_daddr)l->down_at});
    }
}

/* Sets the addresses of expert i in the order, which is or will be at `place` of a window. */
static void put_crossing(mo_gpu *gpu, const mo_forward *forward, int layer, int i, uint64_t window, int place)
{
    const mo_gpu_window *w = mo_gpu_window_at(&gpu->experts, window);
    mo_daddr part[3];
    for (int j = 0; j < 3; j++) {
        const mo_gpu_window_part part_of = mo_gpu_window_part_of(&gpu->experts, layer, j);
        part[j] = (mo_gpu_core_interleaved(&gpu->core, layer) ? w->plain : w->memory) +
                  (mo_daddr)(part_of.at + place * part_of.stride);
    }
    put_group(gpu, forward, i, part);
}

static void put_portion(mo_gpu *gpu, const mo_forward *forward, int layer, const mo_gpu_order *o, int number)
{
    const mo_gpu_portion *p = &o->portion[number];
    const mo_gpu_window *w = mo_gpu_window_at(&gpu->experts, p->window);
    for (int i = 0, place = 0; i < p->count; i++, place++) {
        while (number < o->sent && w->expert[place] != o->expert[p->first + i]) {
            place++; /* prefetched, but not chosen */
        }
        put_crossing(gpu, forward, layer, p->first + i, p->window, place);
    }
}

/* Sends the owners of the rows, and all groups if they are known: contiguous. The device reads them itself,
 * because a copy would wait behind megabytes of expert data. */
static mo_status send_order(mo_gpu *gpu, mo_gpu_ops *p, int layer, int64_t rows, bool groups, mo_error *err)
{
    const mo_gpu_pinned *pinned = &gpu->scratch.pinned;
    const uint8_t *from = groups ? (const uint8_t *)pinned->groups : (const uint8_t *)pinned->picks;
    p->count = 0;
    const int64_t bytes = (const uint8_t *)(pinned->row_of + rows) - from; /* both ends are word-aligned */
    mo_gpu_ops_receive(p, layer, from, groups ? gpu->scratch.groups : gpu->scratch.picks,
                       (bytes + 15) / 16 * 16);
    if (gpu->order.skipped > 0) {
        mo_gpu_ops_receive_also(p, pinned->ids, mo_gpu_ids_of(p, layer), rows * 4);
        mo_gpu_ops_receive_also(p, pinned->weights, mo_gpu_weights_of(p, layer), rows * 4);
    }
    const mo_status status = mo_gpu_ops_launch(p, &gpu->link, gpu->link.main, err);
    p->count = 0;
    return status;
}

/* Sends groups that become known later. */
static mo_status send_groups(mo_gpu *gpu, int first, int count, mo_error *err)
{
    mo_status status = MO_OK;
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        const int64_t at = part * gpu->scratch.group_limit + first;
        status = mo_gpu_link_put(&gpu->link, gpu->link.main,
                                 gpu->scratch.groups + (mo_daddr)at * sizeof(mo_dgroup),
                                 &gpu->scratch.pinned.groups[at], (size_t)count * sizeof(mo_dgroup), err);
    }
    return status;
}

static mo_status compute(mo_gpu *gpu, const mo_forward *forward, mo_gpu_ops *p, int layer, int first,
                         int count, mo_error *err)
{
    const mo_need *needs = forward->w->needs;
    mo_gpu_span span = {
        .group = first, .groups = count, .first_row = forward->w->picks.first[needs[first].expert]};
    const mo_moe *moe = &gpu->core.spec->layers[layer].moe;
    for (int i = first; i < first + count; i++) {
        span.rows += needs[i].picks;
        span.most = needs[i].picks > span.most ? needs[i].picks : span.most;
    }
    /* In steps that the CPU may share, rates decide who computes an expert, and must not affect the
     * result. */
    span.lossy = p->bf16 && forward->tokens > GPU_SHARED &&
                 mo_precision_experts(&p->bf16->rule, p->whole, moe->used, moe->experts);
    mo_gpu_ops_groups(p, layer, &span);
    const mo_status status = mo_gpu_ops_launch(p, &gpu->link, gpu->link.main, err);
    p->count = 0;
    return status;
}

/* The same for experts of a window, when it has arrived. */
static mo_status compute_window(mo_gpu *gpu, const mo_forward *forward, mo_gpu_ops *p,
                                const mo_gpu_portion *part, mo_error *err)
{
    mo_gpu_window *w = mo_gpu_window_at(&gpu->experts, part->window);
    const mo_status status = mo_dstream_after(gpu->link.main, w->ready, err);
    w->awaited = status == MO_OK;
    p->count = 0;
    return status == MO_OK ? compute(gpu, forward, p, w->layer, part->first, part->count, err) : status;
}

/* ---- Copied experts ---------------------------------------------------------------------------- */

/* On an H200 with 32 tokens, 0.2 to 0.3 ms pass from the end of a layer's copies until experts of the next
 * choice are sent. If the CPU shares the step, prefetching is limited to what is copied in that time. More
 * would copy experts that the CPU could compute, and it is unknown how much is still in flight when the rest
 * is divided. */
#define AHEAD_S 250e-6

/* Number of experts in a prefetched window. */
static int window_size_ahead(const mo_gpu *gpu, const mo_forward *forward, int layer)
{
    const double seconds = (double)gpu->core.layers[layer].expert_bytes * gpu->lanes.rates.link.s_per_byte;
    const int size = gpu->experts.window_size;
    if (!mo_gpu_share_may(gpu, forward) || seconds * size <= AHEAD_S) {
        return size;
    }
    return seconds < AHEAD_S ? (int)(AHEAD_S / seconds) : 1;
}

static mo_status send_ahead(mo_gpu *gpu, const mo_forward *forward, int layer, int ahead, mo_error *err)
{
    return layer < gpu->core.end
               ? mo_gpu_window_ahead(&gpu->experts, layer, ahead, window_size_ahead(gpu, forward, layer), err)
               : MO_OK;
}

/* Fills windows: first with what this layer still needs, then with predictions. */
static mo_status fill(mo_gpu *gpu, const mo_forward *forward, int layer, mo_gpu_order *o, int ahead,
                      mo_error *err)
{
    mo_status status = MO_OK;
    while (status == MO_OK && o->sent < o->portions && mo_gpu_window_capacity(&gpu->experts)) {
        const mo_gpu_portion *p = &o->portion[o->sent++];
        status = mo_gpu_window_send(&gpu->experts, layer, &o->expert[p->first], p->count, err);
    }
    return status == MO_OK && o->sent == o->portions ? send_ahead(gpu, forward, layer + 1, ahead, err)
                                                     : status;
}

static mo_status compute_crossing(mo_gpu *gpu, const mo_forward *forward, mo_gpu_ops *p, int layer,
                                  mo_gpu_order *o, int ahead, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < o->portions && status == MO_OK; i++) {
        const mo_gpu_portion *part = &o->portion[i];
        while (status == MO_OK && gpu->experts.window_tail < part->window &&
               gpu->experts.window_tail < gpu->experts.window_head) {
            status = mo_gpu_window_retire(&gpu->experts, err); /* computed, or a wrong prediction */
        }
        if (status == MO_OK) {
            status = fill(gpu, forward, layer, o, ahead, err);
        }
        if (status == MO_OK) {
            status = compute_window(gpu, forward, p, part, err);
        }
    }
    while (status == MO_OK && gpu->experts.window_tail < gpu->experts.window_head &&
           mo_gpu_window_at(&gpu->experts, gpu->experts.window_tail)->layer <= layer) {
        status = mo_gpu_window_retire(&gpu->experts, err);
    }
    return status == MO_OK ? fill(gpu, forward, layer, o, ahead, err) : status;
}

/* The same, by one of the CPU's threads while it computes its share. */
typedef struct crossing {
    mo_gpu *gpu;
    const mo_forward *forward;
    mo_gpu_ops *p;
    int layer, ahead;
    mo_status status;
    mo_error error;
} crossing;

static void run_crossing(void *ctx)
{
    crossing *c = ctx;
    c->status = compute_crossing(c->gpu, c->forward, c->p, c->layer, &c->gpu->order, c->ahead, &c->error);
}

static mo_status compute_shared(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, int ahead,
                                mo_error *err)
{
    crossing c = {.gpu = gpu, .forward = forward, .p = p, .layer = layer, .ahead = ahead};
    mo_gpu_share_begin(gpu, forward);
    mo_gpu_share_round(gpu, forward, layer, &gpu->order, NULL, (mo_side_task){.fn = run_crossing, .ctx = &c});
    return c.status == MO_OK ? mo_gpu_share_end(gpu, forward, &gpu->order, err)
                             : mo_fail(err, c.status, "%s", c.error.detail);
}

/* Sends an expert that has landed in RAM through a window: expert `number` of the order. When this returns,
 * its slot in RAM may be refilled. */
static mo_status compute_passing(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer,
                                 const mo_gpu_order *o, int number, mo_error *err)
{
    const mo_gpu_portion part = {.window = gpu->experts.window_head, .first = number, .count = 1};
    put_crossing(gpu, forward, layer, number, part.window, 0);
    mo_status status = mo_gpu_window_send(&gpu->experts, layer, &o->expert[number], 1, err);
    if (status == MO_OK) {
        status = send_groups(gpu, number, 1, err);
    }
    if (status == MO_OK) {
        status = compute_window(gpu, forward, p, &part, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_window_retire(&gpu->experts, err);
    }
    return status == MO_OK ? mo_event_wait(mo_gpu_window_at(&gpu->experts, part.window)->ready, err) : status;
}

/* Copies to a slot, in main stream order. The source is the store, which has the file's layout. */
static mo_status send_staying(mo_gpu_experts *x, int layer, int expert, mo_daddr to, int64_t *bytes,
                              mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_gpu_core_copy_expert(x->core, x->link, x->link->fetch, layer, expert, to, bytes, err);
    } while (mo_gpu_link_again(x->link, x->link->fetch, &tries, &status, err));
    if (status == MO_OK) {
        status = mo_event_record(x->stages[0].ready, x->link->fetch, err);
    }
    return status == MO_OK ? mo_dstream_after(x->link->main, x->stages[0].ready, err) : status;
}

/* The same into the free slot at `to`, where the expert stays. */
static mo_status compute_staying(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer,
                                 const mo_gpu_order *o, int number, mo_daddr to, mo_error *err)
{
    mo_gpu_experts *x = &gpu->experts;
    const mo_gpu_layer *l = &gpu->core.layers[layer];
    const int expert = o->expert[number];
    int64_t bytes = 0;
    mo_status status = send_staying(x, layer, expert, to, &bytes, err);
    if (status == MO_OK) {
        put_group(gpu, forward, number, (mo_daddr[]){to, to + (mo_daddr)l->up_at, to + (mo_daddr)l->down_at});
        status = send_groups(gpu, number, 1, err);
    }
    if (status == MO_OK) {
        p->count = 0;
        status = compute(gpu, forward, p, layer, number, 1, err);
    }
    if (status == MO_OK) {
        status = mo_event_wait(x->stages[0].ready, err);
    }
    if (status == MO_OK) {
        mo_vram_landed(x->where.vram, layer, expert);
        x->fetched++;
        x->fetched_bytes += (uint64_t)bytes;
    } else {
        mo_error ignored = {0};
        mo_dstream_wait(gpu->link.fetch, &ignored); /* before the slot is released */
        mo_vram_drop(x->where.vram, layer, expert);
    }
    return status;
}

/* Selects the experts from number o->hot on that may stay on the device: the layer's share of the free slots,
 * if every later layer gets the same, for the experts chosen by most tokens. Slots that a layer leaves are
 * for others, in this step or the next. */
static void choose_staying(const mo_gpu *gpu, const mo_forward *forward, int layer, const mo_gpu_order *o,
                           bool *stays)
{
    const mo_vram *vram = gpu->experts.where.vram;
    const mo_need *needs = forward->w->needs + o->hot;
    const int count = o->cpu_first - o->hot;
    memset(stays, 0, MO_EXPERTS_MAX * sizeof *stays);
    if (!mo_ahead_leaves(&gpu->ahead) || !mo_vram_has(vram, layer)) {
        return;
    }
    const int32_t sharers = mo_vram_sharers(vram, layer, gpu->core.end);
    const int32_t share = (mo_vram_free(vram, layer) + sharers - 1) / sharers;
    for (int32_t left = share < count ? share : count; left > 0; left--) {
        int best = -1;
        for (int i = 0; i < count; i++) {
            best = !stays[i] && (best < 0 || needs[i].picks > needs[best].picks) ? i : best;
        }
        stays[best] = true;
    }
}

/* Experts that have landed in RAM and are not the CPU's. */
typedef struct landing {
    mo_gpu *gpu;
    mo_forward *forward;
    mo_gpu_ops *p;
    int layer;
    const mo_gpu_order *o;
    bool stays[MO_EXPERTS_MAX]; /* by number from o->hot on: may take a slot */
    bool ready[MO_EXPERTS_MAX]; /* by number: has landed now */
    bool kept[MO_EXPERTS_MAX];  /* by number: is in a slot */
    int by_cpu;                 /* number of ready experts for the CPU */
    mo_status status;
    mo_error error;
} landing;

/* Copies the ready experts. An expert for which a slot is free stays on the device. */
static void run_landing(void *ctx)
{
    landing *l = ctx;
    mo_gpu *gpu = l->gpu;
    for (int i = l->o->hot; i < l->o->cpu_first && l->status == MO_OK; i++) {
        if (!l->ready[i]) {
            continue;
        }
        const mo_daddr to = l->stays[i - l->o->hot] ? mo_vram_acquire_free(gpu->experts.where.vram, l->layer,
                                                                           l->forward->w->needs[i].expert)
                                                    : 0;
        l->status = to ? compute_staying(gpu, l->forward, l->p, l->layer, l->o, i, to, &l->error)
                       : compute_passing(gpu, l->forward, l->p, l->layer, l->o, i, &l->error);
        l->kept[i] = to && l->status == MO_OK;
    }
}

static void begin_landing(void *owner)
{
    landing *l = owner;
    memset(l->ready, 0, sizeof l->ready);
    l->by_cpu = 0;
}

/* An expert is copied, or computed by the CPU, when all of it has landed. */
static void add_landed(void *owner, const mo_need *n, bool down)
{
    landing *l = owner;
    const int i = (int)(n - l->forward->w->needs);
    l->ready[i] = down;
    l->by_cpu += down && i >= l->o->cpu_first;
}

static void run_landed(void *owner, bool last)
{
    landing *l = owner;
    (void)last;
    if (l->by_cpu > 0) {
        mo_gpu_share_round(l->gpu, l->forward, l->layer, l->o, l->ready,
                           (mo_side_task){.fn = run_landing, .ctx = l});
    } else {
        run_landing(l);
    }
}

/* A computed expert frees its slot in RAM, for any other expert if it stays on the device. */
static mo_status release_landed(void *owner, mo_error *err)
{
    const landing *l = owner;
    mo_store *store = l->forward->engine->tiers->store;
    for (int i = l->o->hot; i < l->o->claimed_first && l->status == MO_OK; i++) {
        mo_need *n = &l->forward->w->needs[i];
        if (!l->ready[i] || n->released) {
            continue;
        }
        n->released = true;
        mo_store_release(store, n);
        if (l->kept[i]) {
            mo_store_yield(store, l->layer, n->expert);
        }
    }
    return l->status == MO_OK ? MO_OK : mo_fail(err, l->status, "%s", l->error.detail);
}

static const mo_round_ops landing_rounds = {.begin_round = begin_landing,
                                            .add_expert = add_landed,
                                            .run_round = run_landed,
                                            .release_done = release_landed};

/* Computes experts from disk: those that have landed in RAM are copied, or computed by the CPU, round by
 * round. */
static mo_status compute_landing(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer,
                                 const mo_gpu_order *o, mo_error *err)
{
    landing l = {.gpu = gpu, .forward = forward, .p = p, .layer = layer, .o = o};
    mo_rounds r = {.ops = &landing_rounds,
                   .owner = &l,
                   .store = forward->engine->tiers->store,
                   .needs = forward->w->needs + o->hot,
                   .count = o->claimed_first - o->hot};
    const bool shared = o->cpu_first < o->claimed_first;
    choose_staying(gpu, forward, layer, o, l.stays);
    if (shared) {
        mo_gpu_share_begin(gpu, forward);
    }
    mo_store_want(r.store, layer, r.needs, r.count + o->skipped);
    mo_forward_bring_skipped(forward, r.needs + r.count, o->skipped);
    mo_status status = mo_rounds_run(&r, err);
    if (status == MO_OK) {
        status = release_landed(&l, err);
    }
    mo_store_leave(r.store);
    return status == MO_OK && shared ? mo_gpu_share_end(gpu, forward, o, err) : status;
}

/* ---- The layer -------------------------------------------------------------------------------- */

static void tally(const mo_forward *forward, int layer, const mo_gpu_order *o)
{
    mo_tally_layer *counts = mo_forward_tally(forward, layer);
    for (int i = 0; i < o->count + o->skipped; i++) {
        const mo_need *n = &forward->w->needs[i];
        if (i < o->claimed_first || i >= o->count) {
            mo_forward_tally_expert(forward, counts, i < o->hot ? MO_FOUND_HOT : MO_FOUND_COLD, n->expert,
                                    n->picks - n->drafted);
            mo_forward_found(forward, layer, n->expert, i >= o->hot);
        }
    }
}

static bool is_stored(const mo_forward *forward)
{
    return forward->engine->tiers && forward->engine->tiers->store;
}

/* Number of windows that may be filled before the layer's choice is known. With three picks per expert, few
 * are unused. If the CPU shares the step, the choice decides who gets which, but the link would idle until it
 * is known: then one window, if seven of eight experts will be chosen. */
static int windows_ahead(const mo_gpu *gpu, const mo_forward *forward, int layer, bool experts)
{
    const mo_moe *moe = &gpu->core.spec->layers[layer].moe;
    const int64_t picks = forward->tokens * moe->used;
    if (!experts || is_stored(forward)) {
        return 0;
    }
    if (mo_gpu_share_may(gpu, forward)) {
        return picks >= 2 * (int64_t)moe->experts ? 1 : 0;
    }
    return picks >= 3 * (int64_t)moe->experts ? gpu->experts.window_count : 0;
}

bool mo_gpu_batch_stays(const mo_gpu *gpu, const mo_forward *forward, int layer, bool experts)
{
    return experts && !gpu->core.spec->experts.divided && !is_stored(forward) &&
           !mo_forward_listens(forward) && mo_gpu_core_routed(&gpu->core, layer) &&
           mo_where_whole(&gpu->experts.where, layer);
}

mo_status mo_gpu_batch_begin(mo_gpu *gpu, const mo_forward *forward, bool experts, mo_error *err)
{
    int first = gpu->core.first;
    mo_status status = MO_OK;
    while (gpu->experts.window_tail < gpu->experts.window_head &&
           status == MO_OK) { /* small steps may have used its memory */
        status = mo_gpu_window_retire(&gpu->experts, err);
    }
    if (status != MO_OK) {
        return status;
    }
    while (first < gpu->core.end && !gpu->core.spec->layers[first].routed) {
        first++;
    }
    return first < gpu->core.end
               ? send_ahead(gpu, forward, first, windows_ahead(gpu, forward, first, experts), err)
               : MO_OK;
}

/* Reads the layer's choice into the workspace, with the experts' input if the CPU may compute some. */
static mo_status read_choice(mo_gpu *gpu, mo_forward *forward, int layer, bool shared, mo_error *err)
{
    const size_t bytes = sizeof(int32_t) * (size_t)(forward->tokens * forward->layer->moe.used);
    mo_status status =
        mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.ids,
                        mo_gpu_choice(&gpu->scratch, gpu->scratch.ids, forward->tokens, layer), bytes, err);
    if (status == MO_OK && (mo_forward_listens(forward) || gpu->experts.skips)) {
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, forward->w->picks.weights,
                                 mo_gpu_choice(&gpu->scratch, gpu->scratch.weights, forward->tokens, layer),
                                 bytes, err);
    }
    if (status == MO_OK && shared) {
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.shared_in,
                                 mo_gpu_experts_rows(&gpu->scratch, layer),
                                 sizeof(float) * (size_t)(forward->tokens * forward->layer->moe.io), err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status == MO_OK) {
        memcpy(forward->w->picks.ids, gpu->scratch.pinned.ids, bytes);
        mo_forward_tell_routes(forward);
    }
    return status;
}

/* Threads of several devices may count concurrently (gpu/pieces.h). */
static void count_run(const mo_forward *forward, int64_t picks, int64_t experts)
{
    __atomic_fetch_add(&forward->engine->counters.expert_picks, (uint64_t)picks, __ATOMIC_RELAXED);
    __atomic_fetch_add(&forward->engine->counters.experts_run, (uint64_t)experts, __ATOMIC_RELAXED);
}

static void count(mo_gpu *gpu, mo_forward *forward, int layer, const mo_gpu_order *o)
{
    tally(forward, layer, o);
    count_run(forward, forward->tokens * forward->layer->moe.used, o->count + o->skipped);
    gpu->experts.asked += (uint64_t)(o->claimed_first + o->skipped);
    gpu->experts.hits += (uint64_t)o->hot;
}

/* Computes the experts of this rank. */
static mo_status compute_here(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, int ahead,
                              mo_error *err)
{
    mo_gpu_order *o = &gpu->order;
    const bool stored = is_stored(forward);
    mo_status status = stored && o->hot ? send_groups(gpu, 0, o->hot, err) : MO_OK;
    if (status == MO_OK && o->hot) {
        status = compute(gpu, forward, p, layer, 0, o->hot, err);
    }
    if (status != MO_OK || (stored && o->claimed_first == o->hot && o->skipped == 0)) {
        return status;
    }
    if (stored) {
        return compute_landing(gpu, forward, p, layer, o, err);
    }
    return o->cpu_first < o->claimed_first ? compute_shared(gpu, forward, p, layer, ahead, err)
                                           : compute_crossing(gpu, forward, p, layer, o, ahead, err);
}

/* The same while workers compute theirs. */
static mo_status compute_divided(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, int ahead,
                                 mo_error *err)
{
    const mo_gpu_order *o = &gpu->order;
    const int64_t rows = forward->tokens * forward->layer->moe.used;
    const bool claimed = o->claimed_first < o->count;
    if (claimed) {
        mo_gpu_share_input(gpu, forward);
    }
    mo_status status = mo_gpu_lanes_begin_workers(&gpu->lanes, forward, err);
    if (status == MO_OK) {
        status = compute_here(gpu, forward, p, layer, ahead, err);
    }
    status = mo_gpu_lanes_end_workers(&gpu->lanes, forward, status, err);
    const int64_t first = claimed ? forward->w->picks.first[o->expert[o->claimed_first]] : rows;
    return status == MO_OK && claimed ? mo_gpu_share_put(gpu, forward, first, rows, err) : status;
}

/* RAM has space for inputs and rows of large batches only if other ranks have experts. */
static bool asks_workers(const mo_gpu *gpu, const mo_forward *forward)
{
    return mo_workers_any(&forward->engine->workers) &&
           (forward->tokens <= GPU_SHARED || gpu->core.spec->experts.divided);
}

mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, bool experts,
                                    mo_error *err)
{
    const int64_t rows = forward->tokens * gpu->core.spec->layers[layer].moe.used;
    const bool stored = is_stored(forward), divided = experts && asks_workers(gpu, forward);
    const int ahead = windows_ahead(gpu, forward, layer, experts);
    const bool shared = experts && mo_gpu_share_may(gpu, forward);
    mo_gpu_order *o = &gpu->order;
    mo_forward_at(forward, layer);
    mo_status status = send_ahead(gpu, forward, layer, ahead, err); /* the link works during the wait */
    if (status == MO_OK) {
        status = read_choice(gpu, forward, layer, shared || divided, err);
    }
    if (status == MO_OK && experts) {
        status = mo_ahead_continue_fill(&gpu->ahead, err);
    }
    if (status != MO_OK || !experts) {
        return status;
    }
    arrange(gpu, forward, layer, shared, divided, o);
    count(gpu, forward, layer, o);
    put_hot(gpu, forward, layer, o);
    for (int i = 0; i < o->portions && !stored; i++) {
        put_portion(gpu, forward, layer, o, i);
    }
    status = send_order(gpu, p, layer, rows, !stored, err);
    if (status != MO_OK) {
        return status;
    }
    return divided ? compute_divided(gpu, forward, p, layer, ahead, err)
                   : compute_here(gpu, forward, p, layer, ahead, err);
}

/* ---- Layers arranged by the device -------------------------------------------------------------- */

/* Rows of each expert of a layer. */
static const int32_t *rows_of(const mo_gpu *gpu, int layer)
{
    return gpu->scratch.pinned.counts + layer * gpu->scratch.group_limit;
}

static void count_arranged(mo_gpu *gpu, mo_forward *forward, int layer)
{
    const mo_moe *moe = &gpu->core.spec->layers[layer].moe;
    const int32_t *rows = rows_of(gpu, layer);
    mo_tally_layer *counts = mo_forward_tally(forward, layer);
    uint64_t chosen = 0;
    for (int e = 0; e < moe->experts; e++) {
        chosen += rows[e] > 0;
        mo_forward_tally_expert(forward, counts, MO_FOUND_HOT, e, (uint64_t)rows[e]);
    }
    count_run(forward, forward->tokens * moe->used, (int64_t)chosen);
    gpu->experts.asked += chosen;
    gpu->experts.hits += chosen;
}

static bool marks_touched(const mo_forward *forward)
{
    bool any = false;
    for (int i = 0; i < forward->slice_count; i++) {
        any |= forward->tally && forward->slices[i].touch;
    }
    return any;
}

/* One session: the counts show the experts it has used. */
static void touch_counted(const mo_gpu *gpu, const mo_forward *forward, int layer)
{
    const mo_tally_layer *counts = mo_tally_find(forward->tally, layer);
    for (int e = 0; counts && e < gpu->core.spec->layers[layer].moe.experts; e++) {
        if (rows_of(gpu, layer)[e] > 0) {
            mo_touch_add(forward->slices[0].touch, counts, e, (uint32_t)rows_of(gpu, layer)[e]);
        }
    }
}

/* Several sessions: reads the choices of each, layer by layer from `first` on, as many as one wait
 * returns. */
static mo_status touch_chosen(mo_gpu *gpu, mo_forward *forward, int first, int *next, mo_error *err)
{
    const int64_t limit = gpu->scratch.batch * gpu->core.extent.used;
    int64_t held = 0;
    int last = first;
    mo_status status = MO_OK;
    for (; last < gpu->core.spec->layer_count && status == MO_OK; last++) {
        const int64_t rows = forward->tokens * gpu->core.spec->layers[last].moe.used;
        if (!mo_gpu_batch_stays(gpu, forward, last, true)) {
            continue;
        }
        if (held + rows > limit) {
            break;
        }
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.ids + held,
                                 mo_gpu_choice(&gpu->scratch, gpu->scratch.ids, forward->tokens, last),
                                 sizeof(int32_t) * (size_t)rows, err);
        held += rows;
    }
    *next = last;
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    const int32_t *ids = gpu->scratch.pinned.ids;
    for (int i = first; i < last && status == MO_OK; i++) {
        if (mo_gpu_batch_stays(gpu, forward, i, true)) {
            mo_forward_at(forward, i);
            const int64_t rows = forward->tokens * forward->layer->moe.used;
            memcpy(forward->w->picks.ids, ids, sizeof(int32_t) * (size_t)rows);
            mo_forward_tell_routes(forward);
            ids += rows;
        }
    }
    return status;
}

mo_status mo_gpu_batch_tell(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    const int layers = gpu->core.spec->layer_count;
    const bool touches = marks_touched(forward);
    bool any = false;
    for (int i = 0; i < layers; i++) {
        any |= mo_gpu_batch_stays(gpu, forward, i, !forward->slices[0].routers_only);
    }
    if (!any) {
        return MO_OK;
    }
    mo_status status =
        mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.counts, gpu->scratch.counts,
                        sizeof(int32_t) * (size_t)(layers * gpu->scratch.group_limit), err);
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    for (int i = 0; i < layers && status == MO_OK; i++) {
        if (!mo_gpu_batch_stays(gpu, forward, i, true)) {
            continue;
        }
        count_arranged(gpu, forward, i);
        if (touches && forward->slice_count == 1) {
            touch_counted(gpu, forward, i);
        }
    }
    for (int i = 0; touches && forward->slice_count > 1 && i < layers && status == MO_OK;) {
        status = touch_chosen(gpu, forward, i, &i, err);
    }
    return status;
}
