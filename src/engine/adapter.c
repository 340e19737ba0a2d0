#include "engine/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"

/* ---- Open adapters ----------------------------------------------------------------------------- */

static int64_t ranks_of(const mo_engine *e)
{
    int64_t ranks = 0;
    for (int i = 0; i < e->adapter_count; i++) {
        ranks += e->adapters[i]->lora.rank;
    }
    return ranks;
}

/* Allocates the working memory of steps for all open adapters. Under the engine's lock. */
static mo_status make_space(mo_engine *e, mo_error *err)
{
    return mo_workspace_lower(&e->space, e->spec, e->batch, e->adapter_count, ranks_of(e), err);
}

/* Bytes of all open adapters, and of `another` (NULL: none): weights, and the working memory of steps. */
static int64_t bytes_with(const mo_engine *e, const mo_lora *another)
{
    const size_t space = mo_workspace_low_bytes(e->spec, e->batch, e->adapter_count + (another != NULL),
                                                ranks_of(e) + (another ? another->rank : 0));
    return e->adapter_held + (another ? another->bytes : 0) + (int64_t)space;
}

int64_t mo_engine_adapter_bytes(mo_engine *engine)
{
    mo_engine_take_turn(engine);
    const int64_t bytes = bytes_with(engine, NULL);
    pthread_mutex_unlock(&engine->lock);
    return bytes;
}

static mo_status check_fits(const mo_engine *e, const mo_lora *lora, mo_error *err)
{
    if (e->adapter_count == MO_ADAPTERS_MAX) {
        return mo_fail(err, MO_EINVAL,
                       "a model can have at most %d adapters at once; close one before opening %s",
                       MO_ADAPTERS_MAX, lora->path);
    }
    const int64_t now = bytes_with(e, NULL), then = bytes_with(e, lora);
    if (e->adapter_limit >= 0 && then > e->adapter_limit) {
        return mo_fail(err, MO_ENOMEM,
                       "%s needs %.1f MiB including its working memory, but only %.1f MiB of the memory for "
                       "adapters are left; open the model with a larger `adapter_bytes` or a smaller `batch`",
                       lora->path, (double)(then - now) / (1 << 20),
                       (double)(e->adapter_limit - now) / (1 << 20));
    }
    return MO_OK;
}

mo_status mo_engine_adapter_fits(mo_engine *engine, const mo_lora *lora, mo_error *err)
{
    mo_engine_take_turn(engine);
    const mo_status status = check_fits(engine, lora, err);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static mo_status enlist(mo_adapter *a, mo_error *err)
{
    mo_engine *e = a->engine;
    mo_status status = check_fits(e, &a->lora, err);
    if (status != MO_OK) {
        return status;
    }
    e->adapters[e->adapter_count++] = a;
    status = make_space(e, err);
    const mo_accelerator *accelerator = atomic_load(&e->accelerator);
    while (status == MO_OK && accelerator) {
        status = accelerator->open_adapter(accelerator->owner, &a->lora, err);
        if (status != MO_EDEVICE) {
            break;
        }
        mo_engine_lose_accelerator(e, err); /* continue with the CPU or with the devices that are left */
        accelerator = atomic_load(&e->accelerator);
        status = MO_OK;
    }
    e->adapter_count -= status != MO_OK;
    e->adapter_held += status == MO_OK ? a->lora.bytes : 0;
    return status;
}

static void delist(const mo_adapter *a)
{
    mo_engine *e = a->engine;
    const mo_accelerator *accelerator = atomic_load(&e->accelerator);
    if (accelerator) {
        accelerator->close_adapter(accelerator->owner, &a->lora);
    }
    for (int i = 0; i < e->adapter_count; i++) {
        if (e->adapters[i] == a) {
            e->adapters[i] = e->adapters[--e->adapter_count];
            e->adapter_held -= a->lora.bytes;
        }
    }
    make_space(e, NULL); /* if the smaller memory cannot be allocated, the larger one stays */
}

static void free_adapter(mo_adapter *a)
{
    mo_lora_drop(&a->lora);
    free(a); /* NOLINT(clang-analyzer-unix.Malloc): allocated by calloc() */
}

mo_status mo_engine_adapter_open(mo_engine *engine, mo_lora *lora, mo_adapter **out, mo_error *err)
{
    mo_adapter *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a) {
        mo_lora_drop(lora);
        return mo_fail(err, MO_ENOMEM, "out of memory for an adapter");
    }
    a->engine = engine;
    a->lora = *lora;
    *lora = (mo_lora){0};
    atomic_init(&a->holders, 1); /* the opener */
    mo_engine_take_turn(engine);
    const mo_status status = enlist(a, err);
    pthread_mutex_unlock(&engine->lock);
    if (status == MO_OK) {
        *out = a;
    } else {
        free_adapter(a);
    }
    return status;
}

void mo_adapter_hold(mo_adapter *adapter)
{
    atomic_fetch_add(&adapter->holders, 1);
}

void mo_adapter_release(mo_adapter *adapter)
{
    if (adapter && atomic_fetch_sub(&adapter->holders, 1) == 1) {
        mo_engine_take_turn(adapter->engine);
        delist(adapter);
        pthread_mutex_unlock(&adapter->engine->lock);
        free_adapter(adapter);
    }
}

/* ---- Adapters of a session --------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

int mo_engine_adapter_number(const mo_engine *engine, const mo_lora *lora)
{
    for (int i = 0; i < engine->adapter_count; i++) {
        if (&engine->adapters[i]->lora == lora) {
            return i;
        }
    }
    return -1;
}

uint64_t mo_engine_adapters_identity(const mo_engine *engine)
{
    uint64_t all = 0;
    for (int i = 0; i < engine->adapter_count; i++) {
        all = mix(all, engine->adapters[i]->lora.identity);
    }
    return engine->adapter_count ? all + (all == 0) : 0;
}

mo_status mo_adapter_list_make(const mo_engine *engine, const mo_adapter_use *uses, int count,
                               mo_adapter_list *out, mo_error *err)
{
    *out = (mo_adapter_list){0};
    for (int i = 0; i < count; i++) {
        const mo_adapter_use *u = &uses[i];
        if (!u->adapter || (engine && u->adapter->engine != engine)) {
            return mo_refuse_member(err, "mo_adapter_use", "adapter", "%s",
                                    u->adapter ? "is for another model; open it for this one"
                                               : "is NULL; it must be given");
        }
        if (!isfinite(u->scale)) {
            return mo_refuse_member(err, "mo_adapter_use", "scale", "must be a finite number for %s, not %g",
                                    u->adapter->lora.path, (double)u->scale);
        }
        for (int j = 0; j < i; j++) {
            if (uses[j].adapter == u->adapter) {
                return mo_fail(err, MO_EINVAL, "the adapter %s is named twice", u->adapter->lora.path);
            }
        }
        if (u->scale == 0.0f) { /* no effect */
            continue;
        }
        if (out->count == MO_ADAPTERS_USED) {
            return mo_fail(err, MO_EINVAL, "a session can have at most %d adapters with a scale other than 0",
                           MO_ADAPTERS_USED);
        }
        uint32_t bits;
        memcpy(&bits, &u->scale, sizeof bits);
        out->use[out->count++] = *u;
        out->identity = mix(mix(out->identity, u->adapter->lora.identity), bits);
        out->identity += out->identity == 0;
    }
    return MO_OK;
}

uint64_t mo_adapters_identity(const mo_adapter_use *uses, int count)
{
    mo_adapter_list list;
    return mo_adapter_list_make(NULL, uses, count, &list, NULL) == MO_OK ? list.identity : 0;
}
