/* Settings: the numbers that a caller chooses, for opening a model and for planning one. One check serves both. */
#ifndef MO_OPEN_SETTINGS_H
#define MO_OPEN_SETTINGS_H

#include "moraine.h"

/* As in mo_model_options; 0 is the default of each. */
typedef struct mo_settings {
    int threads, sessions, readers;
    int64_t context, batch, ram_bytes, vram_bytes;
    const int64_t *vram_each; /* [MO_DEVICES_MAX]; NULL: none */
    int64_t positions, kept_bytes, kept_device_bytes;
    int adapter_count;
    int64_t adapter_bytes;
    mo_kv_type kv;
    mo_io io;
    mo_postfetch_mode postfetch;
    mo_precision prompt_precision;
    mo_divide divide;
} mo_settings;

/* MO_EINVAL names the first that makes no sense. Any thread. */
mo_status mo_settings_check(const mo_settings *settings, mo_error *err);

#endif
