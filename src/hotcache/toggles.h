/* Hot toggles: what the environment says about the hot cache, under the names of llama.cpp's hot cache. */
#ifndef MO_HOTCACHE_TOGGLES_H
#define MO_HOTCACHE_TOGGLES_H

#include <stdbool.h>

#include "hotcache/weighting.h"

enum { MO_HOT_TOGGLE_LINES = 8 };

/* _WEIGHTING and _LAYER_CURVE: for all models, for Qwen and for Gemma 4. */
enum { MO_HOT_ANY, MO_HOT_QWEN, MO_HOT_GEMMA4, MO_HOT_FAMILIES };
typedef struct mo_hot_words {
    bool mode_given, curve_given;
    mo_weighting mode;
    double curve;
} mo_hot_words;

typedef struct mo_hot_toggles {
    bool
        serial; /* LLAMA_MOE_HOT_CACHE_PARALLEL=off: lanes one after the other. auto and force: side by side, always,
                     because the hot lane is queued before that is known */
    bool no_fill; /* LLAMA_MOE_HOT_CACHE_FILL_RANDOM=off: memory that the profile does not fill stays empty */
    mo_hot_words words[MO_HOT_FAMILIES];
    char line[MO_HOT_TOGGLE_LINES][320]; /* what the user should hear once */
    int lines;
} mo_hot_toggles;

/* Reads a list of NAME=VALUE that ends with NULL, such as environ. Values that cannot be used, names that mean something
 * only inside ggml, and unknown names log one line each, and have no effect. */
void mo_hot_toggles_read(char *const *environment, mo_hot_toggles *out);

#endif
