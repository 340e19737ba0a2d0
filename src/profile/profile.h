/* Profile: what was learned about one model: how often each expert was chosen, in which phase, where it
 * was found, how long the layers took, and how many prompts needed it. Plain data: made by a tally or
 * read from a file, merged over runs, never needed for a right result. One thread at a time; constant ones
 * may be shared.
 *
 * Old counts fade by halving (mo_profile_age): when the busiest layer has counted more than
 * MO_PROFILE_TOKENS_MAX tokens, all picks, calls and times of all layers are halved, rounding down, so
 * that layers stay comparable; what was learned then weighs half as much after each MO_PROFILE_TOKENS_MAX
 * / 2 further tokens. Prompts are rare and counted apart: when more than MO_PROFILE_PROMPTS_MAX are
 * recorded, their number and the experts' shares in it are halved, rounding up. */
#ifndef MO_PROFILE_PROFILE_H
#define MO_PROFILE_PROFILE_H

#include "moraine_server.h"
#include "profile/trace.h"

enum {
    MO_PROFILE_PHASES = MO_TRACE_GENERATION + 1, /* a phase is a mo_trace_phase */
    MO_PROFILE_TOKENS_MAX = 1 << 18,
    MO_PROFILE_PROMPTS_MAX = 512,
    MO_PROFILE_PROMPTS_MIN = 4, /* below it, no expert counts as universal */
    MO_PROFILE_ANSWER = 8,      /* this many picks of prompts count as one of generation */
    /* What a file may ask for: ids and numbers below the first, layers times experts up to the second. */
    MO_PROFILE_ID_MAX = 1 << 16,
    MO_PROFILE_CELLS_MAX = 1 << 20,
};

/* Where a routed expert was found. */
typedef enum mo_found {
    MO_FOUND_COLD, /* below the upper tier: in RAM or on disk */
    MO_FOUND_HOT,  /* in a slot of the upper tier */
    MO_FOUNDS
} mo_found;

/* What is timed in a layer. Lanes run side by side: the region is the time from their start to their end. */
typedef enum mo_layer_time {
    MO_TIME_MOE,      /* routing, experts and merge */
    MO_TIME_ROUTING,  /* up to the choice of experts */
    MO_TIME_HOT,      /* wall time of the hot lane */
    MO_TIME_COLD,     /* wall time of the cold lane */
    MO_TIME_JOIN,     /* the hot lane was done and waited for the cold one */
    MO_TIME_REGION,   /* wall time of both lanes */
    MO_TIME_WORKLIST, /* from the choice to lists of who computes what */
    MO_TIME_PRODUCTS, /* of the experts: of both lanes together */
    MO_TIME_MERGE,    /* adding what they gave, where that is apart */
    MO_TIME_GATHER,   /* rows on their way to who computes them and back, where that is apart */
    /* With a device, each lane's own part; these of the hot one as last measured (gpu/marks.h). */
    MO_TIME_HOT_BRANCH,  /* from the choice to the end of its products */
    MO_TIME_COLD_BRANCH, /* the same of the cold one, with its rows */
    MO_TIME_HOT_PRODUCTS,
    MO_TIME_COLD_PRODUCTS,
    MO_TIME_COLD_GATHER, /* the hot lane's rows do not leave the device */
    MO_TIMES
} mo_layer_time;

/* How often the lanes of a layer ran, or had nothing to do. */
typedef enum mo_lane_count {
    MO_LANE_HOT_RUNS,
    MO_LANE_COLD_RUNS,
    MO_LANE_HOT_SKIPS,
    MO_LANE_COLD_SKIPS,
    MO_LANE_COUNTS
} mo_lane_count;

typedef struct mo_profile_layer {
    int32_t layer;   /* number in the model */
    int32_t experts; /* that it has counts for: in a file's profile, up to the highest that was chosen */
    uint64_t calls[MO_PROFILE_PHASES];            /* passes through the layer */
    uint64_t *hits[MO_PROFILE_PHASES][MO_FOUNDS]; /* [experts] picks */
    uint64_t *prompts;                            /* [experts] recorded prompts that needed it */
    double cold_slots;                            /* picks that the cold lane computed */
    uint64_t timed;                               /* calls whose times were taken */
    uint64_t time_ns[MO_TIMES];                   /* sums over those */
    uint64_t lanes[MO_LANE_COUNTS];
    uint64_t fallbacks[MO_FALLBACKS];
} mo_profile_layer;

typedef struct mo_profile {
    uint64_t fingerprint; /* of the model; 0: not known */
    int32_t used;         /* experts a token takes; 0: not known */
    int32_t experts;      /* the most of any layer of the model; 0: not known */
    int32_t layers;
    uint64_t prompts;        /* recorded */
    mo_profile_layer *layer; /* [layers] the routed ones, ascending */
    void *memory;            /* private */
} mo_profile;

/* The routed layers of a model. The arrays belong to the caller. */
typedef struct mo_profile_shape {
    uint64_t fingerprint;
    int32_t used, layers;
    const int32_t *layer;   /* [layers] ascending numbers */
    const int32_t *experts; /* [layers] */
} mo_profile_shape;

/* An empty profile. MO_EINVAL when the shape is beyond the limits above. Free with mo_profile_free(). */
mo_status mo_profile_create(const mo_profile_shape *shape, mo_profile **out, mo_error *err);
void mo_profile_free(mo_profile *p); /* NULL is allowed */

/* The sum of two profiles of the same model, with the layers of both; counts stop at the largest number.
 * MO_EINVAL when both name a model and it is not the same one. */
mo_status mo_profile_merge(const mo_profile *a, const mo_profile *b, mo_profile **out, mo_error *err);

/* Takes an earlier snapshot of the same tally away, which leaves what was counted since. */
void mo_profile_subtract(mo_profile *p, const mo_profile *before);

/* Lets old counts fade by the rule above; says how often something was halved. */
int mo_profile_age(mo_profile *p);

/* The profile in a model's shape. MO_EFORMAT, with a sentence, when it was recorded with another model:
 * another fingerprint, another number of experts, or a layer the model does not route. */
mo_status mo_profile_fit(const mo_profile *p, const mo_profile_shape *shape, mo_profile **out, mo_error *err);

/* ---- Asking ---- */

/* The layer with this number in the model, or NULL. */
mo_profile_layer *mo_profile_find(const mo_profile *p, int32_t layer);

/* Picks of an expert, of both phases or of generation alone. */
uint64_t mo_profile_hits(const mo_profile_layer *l, int32_t expert, bool generation_only);
uint64_t mo_profile_hits_at(const mo_profile_layer *l, int32_t expert, mo_found place, bool generation_only);

/* How much an expert would be missed: MO_PROFILE_ANSWER for each pick of generation, 1 for each of a prompt, whose
 * tokens share what they bring. Stops at the largest number. */
uint64_t mo_profile_heat(const mo_profile_layer *l, int32_t expert);

/* Picks of the whole layer that were found there. */
uint64_t mo_profile_slots(const mo_profile_layer *l, mo_found place);
uint64_t mo_profile_calls(const mo_profile_layer *l);

/* Nanoseconds per timed call; 0: not timed. */
double mo_profile_time(const mo_profile_layer *l, mo_layer_time time);

/* Does it know any pick? */
bool mo_profile_usable(const mo_profile *p);

/* More than half of the recorded prompts needed the expert more than others of its layer, and enough were recorded to say so. */
bool mo_profile_universal(const mo_profile *p, const mo_profile_layer *l, int32_t expert);

/* a + b, at most the largest number. */
static inline uint64_t mo_profile_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
