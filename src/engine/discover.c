#include "engine/discover.h"

#include <stdlib.h>

#include "base/growing.h"
#include "base/status.h"

/* Number of times the routers of each layer chose each expert. */
typedef struct choices {
    int experts;     /* maximum of all layers */
    uint32_t *count; /* [layers][experts] */
} choices;

static void note(void *user, int layer, int64_t token, const int32_t *ids, const float *weights, int used)
{
    const choices *c = user;
    (void)token;
    (void)weights;
    for (int i = 0; i < used; i++) {
        c->count[(int64_t)layer * c->experts + ids[i]]++;
    }
}

/* Lists the chosen experts of a layer, the most chosen first; ties: the lower number. */
static int list_chosen(const uint32_t *count, int experts, int32_t *out)
{
    int n = 0;
    for (int32_t e = 0; e < experts; e++) {
        if (count[e] == 0) {
            continue;
        }
        int at = n++;
        for (; at > 0 && count[out[at - 1]] < count[e]; at--) {
            out[at] = out[at - 1];
        }
        out[at] = e;
    }
    return n;
}

static int count_resident(const mo_store *store, int layer, const int32_t *ids, int count)
{
    int resident = 0;
    for (int i = 0; i < count; i++) {
        resident += mo_store_resident(store, layer, ids[i]);
    }
    return resident;
}

/* Reads these experts of a layer and waits for them. The engine's lock protects the store. It is released
 * while the disk reads, so that steps of other sessions continue; they may cancel wrong predictions. Returns
 * how many were read. */
static int fetch_layer(mo_engine *engine, int layer, const int32_t *ids, int count, int64_t max_bytes)
{
    mo_store *store = engine->tiers->store;
    uint64_t seen;
    mo_engine_take_turn(engine);
    const int before = count_resident(store, layer, ids, count);
    mo_store_guess(store, layer, ids, count, 0, max_bytes);
    while (mo_store_guessing(store, layer, ids, count, &seen)) {
        pthread_mutex_unlock(&engine->lock);
        mo_store_wait(store, seen);
        mo_engine_take_turn(engine);
    }
    const int after = count_resident(store, layer, ids, count);
    pthread_mutex_unlock(&engine->lock);
    return after > before ? after - before : 0;
}

/* Seeds experts that the policy has not seen yet with the counts of the discovery, as with a profile. */
static void seed(mo_engine *engine, const choices *c, int layers)
{
    uint64_t most = 1;
    for (int64_t i = 0; i < (int64_t)layers * c->experts; i++) {
        most = (uint64_t)c->count[i] > most ? (uint64_t)c->count[i] : most;
    }
    mo_engine_take_turn(engine);
    for (int i = 0; i < layers; i++) {
        for (int e = 0; engine->spec->layers[i].routed && e < engine->spec->layers[i].moe.experts; e++) {
            const uint64_t hits = (uint64_t)c->count[(int64_t)i * c->experts + e];
            if (hits > 0) {
                mo_store_seed(engine->tiers->store, i, e, hits, most);
            }
        }
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Reads layer by layer, so that the earliest needed experts come first, until cancelled. */
static int64_t fetch(mo_engine *engine, const choices *c, const atomic_bool *cancel)
{
    const mo_expert_table *b = mo_store_experts(engine->tiers->store);
    int32_t slots, filled, ids[MO_EXPERTS_MAX];
    int64_t bytes, read = 0;
    mo_engine_take_turn(engine);
    mo_store_slots(engine->tiers->store, &slots, &filled, &bytes);
    pthread_mutex_unlock(&engine->lock);
    const int64_t share = bytes / 2 / (b->layers ? b->layers : 1);
    seed(engine, c, b->layers);
    for (int i = 0; i < b->layers && !atomic_load(cancel); i++) {
        const int n = list_chosen(c->count + (int64_t)i * c->experts, c->experts, ids);
        read += fetch_layer(engine, i, ids, n, share);
    }
    return read;
}

mo_status mo_discover(mo_engine *engine, mo_state *state, const int32_t *tokens, int64_t count,
                      const atomic_bool *cancel, int64_t *read, mo_error *err)
{
    mo_tiers *tiers = engine->tiers;
    *read = 0;
    if (state->length != 0) {
        return mo_refuse(err, "session", "mo_session_discover", "must be empty");
    }
    if (engine->remote_layers) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "discovery is not supported when a model's layers are divided among ranks");
    }
    if (!tiers || !tiers->store) {
        return MO_OK;
    }
    choices c = {.experts = mo_store_experts(tiers->store)->experts};
    c.count = calloc((size_t)engine->spec->layer_count * (size_t)c.experts + 1, sizeof *c.count);
    if (!c.count) {
        return mo_fail(err, MO_ENOMEM, "out of memory for discovery; free some and try again");
    }
    const mo_slice slice = {.state = state,
                            .tokens = tokens,
                            .count = count < engine->batch ? count : engine->batch,
                            .prompt = true,
                            .routes = note,
                            .user = &c,
                            .routers_only = true,
                            .cancel = cancel};
    mo_status status = mo_step(engine, &slice, 1, err);
    mo_state_reset(state);
    if (status == MO_OK) {
        *read = fetch(engine, &c, cancel);
        status = atomic_load(cancel) ? mo_fail(err, MO_ECANCELLED, "cancelled") : MO_OK;
    }
    free(c.count);
    return status;
}
