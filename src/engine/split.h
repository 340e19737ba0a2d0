/* Split: the time of large steps by part, on request. The phases of the CPU's regions then run one by one
 * between clock readings; for a device the meter of its stream measures (gpu/split.c). No result changes. */
#ifndef MO_ENGINE_SPLIT_H
#define MO_ENGINE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mo_part {
    MO_PART_OTHER,     /* norms, sums, logits' soft cap */
    MO_PART_ATTENTION, /* attention and recurrent mixers, without their products */
    MO_PART_PRODUCTS,  /* products of matrices that every token uses */
    MO_PART_EXPERTS,   /* gate, up, activation and down of routed experts */
    MO_PART_ROUTING,   /* the router and its choice */
    MO_PART_COPIES,    /* over the link or from disk, while nothing was computed */
    MO_PARTS
} mo_part;

typedef struct mo_split {
    uint64_t steps, tokens;
    int64_t total_ns; /* at least the sum of the parts; the excess is host time */
    int64_t part_ns[MO_PARTS];
} mo_split;

/* Adds a successful step. */
static inline void mo_split_add(mo_split *sum, const mo_split *step)
{
    int64_t parts = 0;
    for (int i = 0; i < MO_PARTS; i++) {
        sum->part_ns[i] += step->part_ns[i];
        parts += step->part_ns[i];
    }
    sum->steps += step->steps;
    sum->tokens += step->tokens;
    sum->total_ns += step->total_ns > parts ? step->total_ns : parts; /* a device has another clock */
}

#endif
