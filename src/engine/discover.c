#include "engine/discover.h"

#include <stdlib.h>

#include "base/status.h"

/* How often the routers of each layer chose each expert. */
typedef struct choices {
    int experts;     /* most of any layer */
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

/* The chosen experts of a layer, those chosen most first; lower numbers first among equals. */
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

/* Layer by layer, so that what is needed first comes first, until it is not wanted any more. */
static int64_t fetch(mo_tiers *tiers, const choices *c, const atomic_bool *cancel)
{
    const mo_expert_table *b = mo_store_experts(tiers->store);
    const uint64_t before = mo_store_count(tiers->store).guessed;
    int32_t slots, filled, ids[MO_EXPERTS_MAX];
    int64_t bytes;
    mo_store_slots(tiers->store, &slots, &filled, &bytes);
    const int64_t share = bytes / 2 / (b->layers ? b->layers : 1);
    for (int i = 0; i < b->layers && !atomic_load(cancel); i++) {
        const int n = list_chosen(c->count + (int64_t)i * c->experts, c->experts, ids);
        mo_store_settle(tiers->store);
        mo_store_guess(tiers->store, i, ids, n, 0, share);
    }
    mo_store_settle(tiers->store);
    return (int64_t)(mo_store_count(tiers->store).guessed - before);
}

mo_status mo_discover(mo_engine *engine, mo_state *state, const int32_t *tokens, int64_t count,
                      const atomic_bool *cancel, int64_t *read, mo_error *err)
{
    mo_tiers *tiers = engine->tiers;
    *read = 0;
    if (state->length != 0 || count < 1) {
        return mo_fail(err, MO_EINVAL, "discovery requires tokens and an empty session");
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
        pthread_mutex_lock(&engine->lock);
        *read = fetch(tiers, &c, cancel);
        pthread_mutex_unlock(&engine->lock);
        status = atomic_load(cancel) ? mo_fail(err, MO_ECANCELLED, "cancelled") : MO_OK;
    }
    free(c.count);
    return status;
}
