/* Stacks: sets of stacks that say where a machine goes on when a rule or a loop's body ends. Each set is kept once and known
 * by a number. A set is a list of frames, each above a set again, and frames of one list differ: so stacks that have
 * something in common share it, however many there are, and two sets are equal when their numbers are. */
#ifndef MO_GRAMMAR_STACKS_H
#define MO_GRAMMAR_STACKS_H

#include "moraine.h"

enum {
    MO_STACKS_DEPTH = 2048, /* frames above each other: C's stack too */
    MO_STACKS_FRAMES = 1 << 20,
    MO_STACKS_WORK = 4 << 20, /* of one operation */
    MO_STACKS_BOTTOM = 0,     /* the set of the empty stack */
    MO_FRAME_CALL = -1,
};

#define MO_FRAME_END   UINT32_MAX /* node of the empty stack's frame: what matched is whole */
#define MO_STACKS_NONE UINT32_MAX

typedef struct mo_frame {
    uint32_t node; /* where to go on; of a loop, the loop */
    int32_t count; /* MO_FRAME_CALL, or rounds of the loop that are done */
    uint32_t below;
} mo_frame;

typedef struct mo_stack_set {
    uint32_t at, count; /* frames, by node and count */
    uint32_t hash;
    uint32_t depth;
    uint32_t image; /* another number that belongs to it; used when walking through sets */
} mo_stack_set;

typedef struct mo_stacks {
    mo_frame *frames;
    uint32_t frame_count;
    size_t frame_space;
    mo_stack_set *sets;
    uint32_t set_count;
    size_t set_space;
    uint32_t *table; /* set numbers by hash; MO_STACKS_NONE: empty */
    uint32_t table_mask;
    struct {
        uint32_t a, b, both;
    } * united;        /* unions that were made lately */
    mo_frame *scratch; /* a stack of lists under construction */
    size_t scratch_used, scratch_space;
    uint64_t work;    /* done since the owner set it to 0 */
    mo_status failed; /* MO_ENOMEM, or MO_ENOSPC past a bound; stays so */
} mo_stacks;

bool mo_stacks_init(mo_stacks *s); /* false when out of memory */
void mo_stacks_free(mo_stacks *s);

/* The set of stacks with one more frame on top of each; MO_STACKS_NONE when that is too deep, or `failed`. */
uint32_t mo_stacks_push(mo_stacks *s, uint32_t node, int32_t count, uint32_t below);

/* The stacks of both; 0 when `failed`. */
uint32_t mo_stacks_unite(mo_stacks *s, uint32_t a, uint32_t b);

/* A set with these frames, of which some may be alike; 0 when `failed`. Sorts them. */
uint32_t mo_stacks_make(mo_stacks *s, mo_frame *frames, uint32_t count);

/* The stacks of any number of sets: `begin` is scratch_used before the first was gathered. Takes time by the number of frames,
 * where one union after the other would take its square. 0 when `failed`. */
void mo_stacks_gather(mo_stacks *s, uint32_t set);
uint32_t mo_stacks_gathered(mo_stacks *s, size_t begin);

#endif
