/* Stacks: sets of stacks that say where a machine continues when a rule or a loop's body ends. Each set is
   stored once and has a number. A set is a list of distinct frames, each on top of another set. So stacks
   share common parts, and two sets are equal if their numbers are. */
#ifndef MO_GRAMMAR_STACKS_H
#define MO_GRAMMAR_STACKS_H

#include "moraine.h"

enum {
    MO_STACKS_DEPTH = 2048, /* maximum frames on top of each other; limits recursion too */
    MO_STACKS_FRAMES = 1 << 20,
    MO_STACKS_WORK = 4 << 20, /* maximum work of one operation */
    MO_STACKS_BOTTOM = 0,     /* the set of the empty stack */
    MO_FRAME_CALL = -1,
};

#define MO_FRAME_END   UINT32_MAX /* node of the empty stack's frame: the match is complete */
#define MO_STACKS_NONE UINT32_MAX

typedef struct mo_frame {
    uint32_t node; /* where to continue; for a loop, the loop */
    int32_t count; /* MO_FRAME_CALL, or the number of finished rounds of the loop */
    uint32_t below;
} mo_frame;

typedef struct mo_stack_set {
    uint32_t at, count; /* frames, sorted by node and count */
    uint32_t hash;
    uint32_t depth;
    uint32_t image; /* number of a corresponding set; used while sets are traversed */
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
    } * united;        /* cache of recent unions */
    mo_frame *scratch; /* a stack of lists being built */
    size_t scratch_used, scratch_space;
    uint64_t work;    /* work done since the owner set it to 0 */
    mo_status failed; /* MO_ENOMEM, or MO_ENOSPC beyond a limit; never cleared here */
} mo_stacks;

bool mo_stacks_init(mo_stacks *s); /* false when out of memory */
void mo_stacks_free(mo_stacks *s);

/* The set of all stacks with one more frame on top. MO_STACKS_NONE if too deep, or after a failure. */
uint32_t mo_stacks_push(mo_stacks *s, uint32_t node, int32_t count, uint32_t below);

/* The union of two sets. 0 after a failure. */
uint32_t mo_stacks_unite(mo_stacks *s, uint32_t a, uint32_t b);

/* The set with these frames, which may repeat and are sorted here. 0 after a failure. */
uint32_t mo_stacks_make(mo_stacks *s, mo_frame *frames, uint32_t count);

/* The union of any number of sets: `begin` is scratch_used before the first call of mo_stacks_gather(). The
   time is proportional to the number of frames; uniting the sets one by one would take its square. 0 after a
   failure. */
void mo_stacks_gather(mo_stacks *s, uint32_t set);
uint32_t mo_stacks_gathered(mo_stacks *s, size_t begin);

#endif
