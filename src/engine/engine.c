#include "engine/engine.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

/* Layers share few ropes; each is computed once per token of a step. */
static int collect_ropes(const mo_model_spec *spec, const mo_rope **out, int limit)
{
    int count = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_rope *rope = spec->layers[i].attention.rope;
        bool known = rope == NULL;
        for (int r = 0; r < count; r++) {
            known |= out[r] == rope;
        }
        if (!known) {
            if (count == limit) {
                return -1;
            }
            out[count++] = rope;
        }
    }
    return count;
}

size_t mo_engine_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads)
{
    const mo_rope *ropes[8];
    const int count = collect_ropes(spec, ropes, 8);
    return mo_workspace_bytes(spec, batch, context, threads, count < 0 ? 8 : count);
}

mo_status mo_engine_check_process(const mo_engine *e, mo_error *err)
{
    return e->process == getpid() ? MO_OK
                                  : mo_fail(err, MO_EINVAL,
                                            "the model was opened before fork() and its threads are in the "
                                            "parent; open it in the child");
}

mo_status mo_engine_create(const mo_checkpoint *model, const mo_engine_options *options, mo_engine **out,
                           mo_error *err)
{
    *out = NULL;
    mo_engine *e = calloc(1, sizeof *e);
    if (!e) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the engine");
    }
    e->spec = mo_checkpoint_spec(model);
    e->mapped = mo_checkpoint_mapped(model) ? model : NULL;
    e->process = getpid();
    e->fingerprint = options->fingerprint;
    e->kernels = options->kernels;
    e->pool = options->pool;
    e->tiers = options->tiers;
    e->tally = options->tally;
    atomic_init(&e->accelerator, options->accelerator);
    e->precision = options->accelerator ? options->accelerator->precision : MO_PRECISION_EXACT;
    e->adapter_limit = -1;
    e->batch = options->batch;
    e->context = options->context;
    e->states = options->states;
    e->states.batch = options->batch;
    e->states.context = options->context;
    e->rope_count = collect_ropes(e->spec, e->ropes, 8);
    if (e->rope_count < 0) {
        free(e);
        return mo_fail(err, MO_EUNSUPPORTED, "the model has more than 8 RoPE configurations");
    }
    mo_status status = mo_workspace_init(&e->space, e->spec, e->kernels, e->batch, e->context,
                                         mo_pool_threads(e->pool), e->rope_count, err);
    if (status == MO_OK) {
        status = mo_drafts_init(&e->drafts, e->spec, options->draft_max, mo_pool_threads(e->pool), err);
    }
    if (status != MO_OK) {
        mo_workspace_drop(&e->space);
        free(e);
        return status;
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->turn, NULL);
    pthread_mutex_init(&e->pools_lock, NULL);
    *out = e;
    return MO_OK;
}

void mo_engine_destroy(mo_engine *engine)
{
    if (engine) {
        for (int i = 0; i < MO_KV_TYPES; i++) {
            mo_block_pool_close(engine->pools[i], true);
        }
        pthread_mutex_destroy(&engine->pools_lock);
        pthread_mutex_destroy(&engine->turn);
        pthread_mutex_destroy(&engine->lock);
        mo_drafts_drop(&engine->drafts);
        mo_workspace_drop(&engine->space);
        free(engine);
    }
}

void mo_engine_take_turn(mo_engine *engine)
{
    pthread_mutex_lock(&engine->turn);
    pthread_mutex_lock(&engine->lock);
    pthread_mutex_unlock(&engine->turn);
}

mo_status mo_engine_pool(mo_engine *engine, mo_kv_type kv, mo_block_pool **out, mo_error *err)
{
    mo_state_size size = engine->states;
    mo_status status = MO_OK;
    size.kv = kv;
    pthread_mutex_lock(&engine->pools_lock);
    if (!engine->pools[kv]) {
        status = mo_state_pool(engine->spec, &size, kv == engine->states.kv, &mo_block_source_ram,
                               &engine->pools[kv], err);
    }
    *out = engine->pools[kv];
    pthread_mutex_unlock(&engine->pools_lock);
    return status;
}

void mo_engine_trim(mo_engine *engine)
{
    pthread_mutex_lock(&engine->pools_lock);
    for (int i = 0; i < MO_KV_TYPES; i++) {
        if (engine->pools[i]) {
            mo_block_pool_trim(engine->pools[i]);
        }
    }
    pthread_mutex_unlock(&engine->pools_lock);
}

static mo_block_counts count_pool(mo_engine *engine, mo_block_pool *pool)
{
    mo_block_counts c = {0};
    if (pool) {
        c = mo_block_pool_count(pool);
    }
    if (c.total == 0) { /* no pool was opened so far */
        c.total = c.free = mo_state_pool_bytes(engine->spec, &engine->states);
    }
    return c;
}

void mo_engine_count_blocks(mo_engine *engine, mo_block_counts *out, mo_block_counts *ram, bool *on_device)
{
    const mo_accelerator *accelerator = atomic_load(&engine->accelerator);
    const mo_kv_type kv = engine->states.kv;
    pthread_mutex_lock(&engine->pools_lock);
    *ram = count_pool(engine, engine->pools[kv]);
    pthread_mutex_unlock(&engine->pools_lock);
    *on_device = accelerator != NULL;
    *out = accelerator ? count_pool(engine, accelerator->pool(accelerator->owner, kv)) : *ram;
}

void mo_engine_lose_accelerator(mo_engine *engine, const mo_error *why)
{
    const mo_accelerator *accelerator = atomic_load(&engine->accelerator);
    if (accelerator && accelerator->lose(accelerator->owner, why)) {
        atomic_fetch_add(&engine->losses, 1);
    } else if (accelerator) {
        mo_log(
            MO_LOG_WARN, "device",
            "%s; the CPU takes over, more slowly, and the state on the device is recomputed from the tokens",
            why->detail);
        atomic_store(&engine->accelerator, NULL); /* its opener closes it */
    }
}
