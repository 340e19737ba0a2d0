/* Division: which of a model's layers every rank has. A token goes through the ranks one after the other, so what counts for it is
 * the sum of their times; prompts pass them like a pipeline, where the slowest counts. Both are served by the smallest sum of
 * squares: equal ranks get equal parts, a rank that reads memory faster gets more, and one whose memory is full gets no more as long as
 * another has some, since what is beyond comes from disk. */
#ifndef MO_PLAN_DIVISION_H
#define MO_PLAN_DIVISION_H

#include "moraine.h"

typedef struct mo_division_layer {
    int64_t bytes;       /* in memory, with its keys and values */
    int64_t token_bytes; /* that a token reads of them */
} mo_division_layer;

typedef struct mo_division_rank {
    int64_t ram_bytes;                /* its ceiling, */
    int64_t other_bytes;              /* and what it holds besides layers */
    double ram_bytes_s, disk_bytes_s; /* as products read; as it reads files */
} mo_division_rank;

/* Every rank gets at least one layer: rank r those from first[r] to first[r + 1] - 1. MO_EINVAL: there are more ranks than layers. Any
 * thread. */
mo_status mo_division_make(const mo_division_layer *layers, int count, const mo_division_rank *ranks,
                           int rank_count, int *first, mo_error *err);

#endif
