/* Profile: what was learned about a model: how often each expert was chosen, in which phase, where it was
   found, how long layers took, and how many prompts needed it. Plain data, made by a tally or read from a
   file, and merged over runs. It never affects results. One thread at a time; constant profiles may be
   shared.

   Old counts are aged by halving (mo_profile_age()): when the busiest layer has counted more than
   MO_PROFILE_TOKENS_MAX tokens, all picks, calls and times of all layers are halved, rounding down, so that
   layers stay comparable. So counts lose half their weight with every MO_PROFILE_TOKENS_MAX / 2 further
   tokens. Prompts are rare and counted separately: when more than MO_PROFILE_PROMPTS_MAX are recorded, their
   number and the experts' shares are halved, rounding up. */
#ifndef MO_PROFILE_PROFILE_H
#define MO_PROFILE_PROFILE_H

#include "moraine_server.h"
#include "profile/trace.h"

enum {
    MO_PROFILE_PHASES = MO_TRACE_GENERATION + 1, /* a phase is a mo_trace_phase */
    MO_PROFILE_TOKENS_MAX = 1 << 18,
    MO_PROFILE_PROMPTS_MAX = 512,
    MO_PROFILE_PROMPTS_MIN = 4, /* with fewer prompts no expert is universal */
    MO_PROFILE_ANSWER = 8,      /* weight of a generated token's pick relative to a prompt's */
    /* Limits of files: numbers are below the first, layers times experts at most the second. */
    MO_PROFILE_ID_MAX = 1 << 16,
    MO_PROFILE_CELLS_MAX = 1 << 20,
};

/* Where a routed expert was found. */
typedef enum mo_found {
    MO_FOUND_COLD, /* in RAM or on disk */
    MO_FOUND_HOT,  /* in a slot of the upper tier */
    MO_FOUNDS
} mo_found;

/* The timed parts of a layer. Lanes run in parallel; the region is from the first start to the last end. */
typedef enum mo_layer_time {
    MO_TIME_MOE,      /* routing, experts and merge */
    MO_TIME_ROUTING,  /* until the experts are chosen */
    MO_TIME_HOT,      /* wall time of the hot lane */
    MO_TIME_COLD,     /* wall time of the cold lane */
    MO_TIME_JOIN,     /* the hot lane waits for the cold one */
    MO_TIME_REGION,   /* wall time of both lanes */
    MO_TIME_WORKLIST, /* from the choice to the work lists */
    MO_TIME_PRODUCTS, /* of the experts, in both lanes together */
    MO_TIME_MERGE,    /* adding the outputs, if it is a separate step */
    MO_TIME_GATHER,   /* moving rows to and from the workers, if it is a separate step */
    /* With a device: the parts of each lane; the hot lane's as last measured (gpu/marks.h). */
    MO_TIME_HOT_BRANCH,  /* from the choice to the end of its products */
    MO_TIME_COLD_BRANCH, /* the same for the cold lane, with its rows */
    MO_TIME_HOT_PRODUCTS,
    MO_TIME_COLD_PRODUCTS,
    MO_TIME_COLD_GATHER, /* the hot lane's rows stay on the device */
    MO_TIMES
} mo_layer_time;

/* How often the lanes of a layer ran, or had no work. */
typedef enum mo_lane_count {
    MO_LANE_HOT_RUNS,
    MO_LANE_COLD_RUNS,
    MO_LANE_HOT_SKIPS,
    MO_LANE_COLD_SKIPS,
    MO_LANE_COUNTS
} mo_lane_count;

typedef struct mo_profile_layer {
    int32_t layer;   /* number in the model */
    int32_t experts; /* experts with counts: in a file's profile, up to the highest that was chosen */
    uint64_t calls[MO_PROFILE_PHASES];            /* passes through the layer */
    uint64_t *hits[MO_PROFILE_PHASES][MO_FOUNDS]; /* [experts] picks */
    uint64_t *prompts;                            /* [experts] recorded prompts that needed it */
    double cold_slots;                            /* picks that the cold lane computed */
    uint64_t timed;                               /* timed calls */
    uint64_t time_ns[MO_TIMES];                   /* sums over the timed calls */
    uint64_t lanes[MO_LANE_COUNTS];
    uint64_t fallbacks[MO_FALLBACKS];
} mo_profile_layer;

typedef struct mo_profile {
    uint64_t fingerprint; /* of the model; 0: unknown */
    int32_t used;         /* experts per token; 0: unknown */
    int32_t experts;      /* the maximum of all layers in the model; 0: unknown */
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

/* An empty profile. MO_EINVAL if the shape exceeds the limits above. Free with mo_profile_free(). */
mo_status mo_profile_create(const mo_profile_shape *shape, mo_profile **out, mo_error *err);
void mo_profile_free(mo_profile *p); /* NULL is allowed */

/* The sum of two profiles, with the layers of both. Counts saturate. MO_EINVAL: of different models. */
mo_status mo_profile_merge(const mo_profile *a, const mo_profile *b, mo_profile **out, mo_error *err);

/* Subtracts an earlier snapshot of the same tally. The rest is what was counted since. */
void mo_profile_subtract(mo_profile *p, const mo_profile *before);

/* Ages old counts by the rule above. Returns the number of halvings. */
int mo_profile_age(mo_profile *p);

/* The profile in a model's shape. MO_EFORMAT if it was recorded with another model: another fingerprint,
   another number of experts, or a layer that is not routed here. */
mo_status mo_profile_fit(const mo_profile *p, const mo_profile_shape *shape, mo_profile **out, mo_error *err);

/* ---- Reading ---- */

/* The layer with this number in the model, or NULL. */
mo_profile_layer *mo_profile_find(const mo_profile *p, int32_t layer);

/* Picks of an expert, in both phases or only in generation. */
uint64_t mo_profile_hits(const mo_profile_layer *l, int32_t expert, bool generation_only);
uint64_t mo_profile_hits_at(const mo_profile_layer *l, int32_t expert, mo_found place, bool generation_only);

/* The cost of not having an expert: MO_PROFILE_ANSWER for each pick of generation, 1 for each of a prompt,
   because the tokens of a prompt share a copy. Saturates. */
uint64_t mo_profile_heat(const mo_profile_layer *l, int32_t expert);

/* Picks of the whole layer found at this place. */
uint64_t mo_profile_slots(const mo_profile_layer *l, mo_found place);
uint64_t mo_profile_calls(const mo_profile_layer *l);

/* Nanoseconds per timed call. 0: not timed. */
double mo_profile_time(const mo_profile_layer *l, mo_layer_time time);

/* Does the profile have any picks? */
bool mo_profile_usable(const mo_profile *p);

/* Did more than half of the recorded prompts, if enough, need the expert more than an average one? */
bool mo_profile_universal(const mo_profile *p, const mo_profile_layer *l, int32_t expert);

/* a + b, saturating. */
static inline uint64_t mo_profile_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
