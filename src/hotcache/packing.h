/* Packing: which experts lie in the upper tier at the start: greedily down a ranking, into one device or
 * several. What does not fit is passed over and packing goes on with what does; room that is left is
 * filled with experts nobody has seen, in an order that is always the same. */
#ifndef MO_HOTCACHE_PACKING_H
#define MO_HOTCACHE_PACKING_H

#include "hotcache/weighting.h"

enum { MO_PACKING_LANES_MAX = 8, MO_PACKING_SEED = 0x6d6f65 };

/* How experts spread over several devices ("lanes"). */
typedef enum mo_spread {
    MO_SPREAD_WARM,       /* the first lane where it fits: the hottest lie together */
    MO_SPREAD_HOT_EVEN,   /* the lane with the fewest of this layer, then the least used */
    MO_SPREAD_EVEN_SPLIT, /* a band of layers for each lane, in proportion to its budget; in turns inside */
    MO_SPREADS
} mo_spread;

/* "warm", "hot-even", "even-split". MO_EINVAL lists them. */
mo_status mo_spread_find(const char *name, mo_spread *out, mo_error *err);
const char *mo_spread_name(mo_spread spread);

typedef struct mo_packing_layer {
    int32_t layer, experts;
    uint64_t bytes; /* of one expert with its scales and biases */
} mo_packing_layer;

typedef struct mo_packing_options {
    mo_spread spread;
    /* A layer's first expert in a lane costs twice, as in layouts that need a dummy expert beside the real
     * ones. Ours does not. */
    bool dummy;
    bool fill; /* use room that is left for experts without picks */
} mo_packing_options;

mo_packing_options mo_packing_options_default(void); /* warm, no dummy, fill */

typedef struct mo_packed {
    int32_t layer, expert, lane;
    bool filled; /* had no place in the ranking */
} mo_packed;

typedef struct mo_packing {
    mo_packed *entry; /* in the order of packing */
    size_t count;
    uint64_t used_bytes[MO_PACKING_LANES_MAX]; /* per lane, at most its budget */
} mo_packing;

/* Packs. Layers in ascending order of their numbers; entries of the ranking that name no expert of them,
 * or one twice, are passed over. No expert is in two lanes. Pure. Free with mo_packing_free(). MO_EINVAL
 * for lanes or layers that cannot be, MO_ENOMEM. */
mo_status mo_packing_make(const mo_ranked *ranking, size_t ranked, const mo_packing_layer *layers,
                          int32_t count, const uint64_t *budget_bytes, int lanes,
                          const mo_packing_options *options, mo_packing *out, mo_error *err);
void mo_packing_free(mo_packing *p); /* a zeroed one is allowed */

#endif
