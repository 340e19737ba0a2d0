/* Adapter: an open LoRA adapter of an engine's model, as sessions refer to it (the public type of moraine.h).
 * It counts its holders: its opener and every session that uses it. The last one frees it. */
#ifndef MO_ENGINE_ADAPTER_H
#define MO_ENGINE_ADAPTER_H

#include "engine/engine.h"

struct mo_adapter {
    mo_engine *engine;
    mo_lora lora;
    atomic_int holders;
};

/* The adapters of a session with a scale other than 0, in the order in which they are added. */
typedef struct mo_adapter_list {
    mo_adapter_use use[MO_ADAPTERS_USED];
    int count;
    uint64_t identity; /* of all adapters with their scales; 0: none */
} mo_adapter_list;

/* MO_ENOMEM: it exceeds the memory planned for adapters. */
mo_status mo_engine_adapter_fits(mo_engine *engine, const mo_lora *lora, mo_error *err);

/* Bytes of all open adapters, with the working memory of steps that use them. */
int64_t mo_engine_adapter_bytes(mo_engine *engine);

/* Takes ownership of the adapter, also on failure. The engine lists it as open and reserves the working
 * memory for it. */
mo_status mo_engine_adapter_open(mo_engine *engine, mo_lora *lora, mo_adapter **out, mo_error *err);
void mo_adapter_hold(mo_adapter *adapter);
void mo_adapter_release(mo_adapter *adapter);

/* The index of an open adapter in the engine, -1: not open. Other ranks use the same index, because they open
 * adapters in the same order. identity: a hash of all open adapters; 0: none. Under lock, or while none is
 * opened or closed. */
int mo_engine_adapter_number(const mo_engine *engine, const mo_lora *lora);
uint64_t mo_engine_adapters_identity(const mo_engine *engine);

/* MO_EINVAL: too many adapters, one of another model, one given twice, or an invalid scale. Does not hold the
 * adapters. */
mo_status mo_adapter_list_make(const mo_engine *engine, const mo_adapter_use *uses, int count,
                               mo_adapter_list *out, mo_error *err);

#endif
