/* Hot toggles: environment variables of the hot cache, named as in llama.cpp's hot cache. */
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
    /* LLAMA_MOE_HOT_CACHE_PARALLEL=off: run lanes one after the other. auto and force: always in
       parallel, because the hot lane is queued before the mode is known. */
    bool serial;
    bool no_fill; /* LLAMA_MOE_HOT_CACHE_FILL_RANDOM=off: memory without experts of the profile stays empty */
    mo_hot_words words[MO_HOT_FAMILIES];
    char line[MO_HOT_TOGGLE_LINES][320]; /* lines for the log, to print once */
    int lines;
} mo_hot_toggles;

/* Reads a list of NAME=VALUE that ends with NULL, such as environ. Invalid values, names that only have a
   meaning in ggml, and unknown names have no effect and add one log line each. */
void mo_hot_toggles_read(char *const *environment, mo_hot_toggles *out);

#endif
