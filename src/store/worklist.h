/* Worklist: one layer's routed experts, split into what the hot lane and what the cold lane computes.
 * Whole numbers and exact counts: no padding, no dummy expert, and nothing is dropped: every routed
 * (token, expert) is in one lane, once. Whatever the order, an entry knows its place in router order,
 * where its output goes. Nothing allocates after creation; one thread at a time. */
#ifndef MO_STORE_WORKLIST_H
#define MO_STORE_WORKLIST_H

#include "profile/profile.h"

typedef enum mo_work_order {
    MO_WORK_BY_TOKEN,  /* as routed: for decoding */
    MO_WORK_BY_EXPERT, /* all tokens of an expert together, in their order: each expert is read once */
} mo_work_order;

typedef struct mo_work {
    int32_t expert;
    int32_t slot;  /* where it lies in the upper tier; -1 in the cold lane */
    int32_t token; /* row of the input */
    int32_t at;    /* token * used + position in router order: row of the output */
    float weight;
} mo_work;

/* Entries of one expert, next to each other; made by MO_WORK_BY_EXPERT. */
typedef struct mo_work_run {
    int32_t expert, slot;
    int32_t first, count;
} mo_work_run;

typedef struct mo_work_lane {
    mo_work *work; /* [count] */
    int32_t count;
    mo_work_run *run; /* [runs] ascending experts */
    int32_t runs;     /* 0 by token */
} mo_work_lane;

typedef struct mo_worklist {
    mo_work_lane lane[MO_FOUNDS]; /* cold and hot */
    int32_t capacity, experts;
    int32_t *next; /* [experts] private */
} mo_worklist;

/* Room for `capacity` picks (tokens times experts used) among so many experts. */
mo_status mo_worklist_create(int32_t capacity, int32_t experts, mo_worklist *out, mo_error *err);
void mo_worklist_destroy(mo_worklist *w); /* a zeroed one is allowed */

/* Makes the lists of one layer. ids and weights are [tokens][used]; slot_of[expert] is the expert's slot
 * in the upper tier or negative, NULL: all are cold. The map must not change until the lanes have started.
 * tokens * used must be within the capacity and ids within the experts. */
void mo_worklist_build(mo_worklist *w, const int32_t *ids, const float *weights, int32_t tokens, int32_t used,
                       const int32_t *slot_of, mo_work_order order);

#endif
