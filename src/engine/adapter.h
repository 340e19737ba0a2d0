/* Adapter: an open LoRA adapter of an engine's model, as sessions refer to it (the public type of moraine.h). Each holder,
 * its opener and every session that has it, counts; with the last it is freed. */
#ifndef MO_ENGINE_ADAPTER_H
#define MO_ENGINE_ADAPTER_H

#include "engine/engine.h"

struct mo_adapter {
    mo_engine *engine;
    mo_lora lora;
    atomic_int holders;
};

/* The adapters of a session, those whose scale is not 0, in the order in which they add. */
typedef struct mo_adapter_list {
    mo_adapter_use use[MO_ADAPTERS_USED];
    int count;
    uint64_t identity; /* of all adapters with their scales; 0: there are none */
} mo_adapter_list;

/* MO_ENOMEM: it is more than what was planned for adapters leaves. */
mo_status mo_engine_adapter_fits(mo_engine *engine, const mo_lora *lora, mo_error *err);

/* Bytes of all that are open, with what steps with them work in. */
int64_t mo_engine_adapter_bytes(mo_engine *engine);

/* Takes the adapter over, also when it fails. The engine counts it among those that are open, and has space for steps with it. */
mo_status mo_engine_adapter_open(mo_engine *engine, mo_lora *lora, mo_adapter **out, mo_error *err);
void mo_adapter_hold(mo_adapter *adapter);
void mo_adapter_release(mo_adapter *adapter);

/* The number of an open adapter among the engine's, by which other ranks know it: theirs were opened in the same order. -1: it is not there. Of
 * all of them what they are, as a number; 0: there are none. Under lock, or where none is opened or closed meanwhile. */
int mo_engine_adapter_number(const mo_engine *engine, const mo_lora *lora);
uint64_t mo_engine_adapters_identity(const mo_engine *engine);

/* MO_EINVAL: too many, of another model, one twice, or a scale that is none. Holds none of them. */
mo_status mo_adapter_list_make(const mo_engine *engine, const mo_adapter_use *uses, int count,
                               mo_adapter_list *out, mo_error *err);

#endif
