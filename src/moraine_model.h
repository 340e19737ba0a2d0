/* What an open model is made of, for the files that implement the public API. */
#ifndef MO_MORAINE_MODEL_H
#define MO_MORAINE_MODEL_H

#include "engine/card.h"
#include "engine/engine.h"
#include "engine/learning.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct mo_model {
    mo_pool *pool;
    mo_opening opening;
    mo_checkpoint *checkpoint; /* the opening's */
    bool mapped;
    char disk_way[96];
    mo_device *device; /* NULL: none */
    mo_card *card;     /* the model on it; the engine stops using it when the device is lost */
    char device_name[128];
    mo_learning *learning; /* under the engine's lock */
    mo_engine *engine;
    mo_tokenizer *tokenizer; /* NULL: the file has no vocabulary */
    mo_chat_format chat;
    mo_error no_tokenizer; /* why not */
};

#endif
