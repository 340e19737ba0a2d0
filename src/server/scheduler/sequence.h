/* Sequence: one of the sessions an engine decodes side by side, and what it holds. It serves a choice of a task, or is free and
 * keeps what it holds for a task that continues it. */
#ifndef SRV_SEQUENCE_H
#define SRV_SEQUENCE_H

#include "server/scheduler/masks.h"
#include "server/scheduler/task.h"

typedef struct srv_sequence {
    /* The scheduler's: */
    mo_session *session;
    mo_sampler *sampler;
    mo_constraint *constraint; /* NULL: none */
    srv_masks *masks;
    srv_mask mask;   /* of the constraint, for the next token */
    bool wants_mask; /* it is to be made anew */
    bool late;       /* the session holds everything; the mask was not there when its token was to be drawn */
    mo_feed_report report;
    int32_t *tokens; /* [context] prompt and answer; of a free one what the session holds */
    int64_t mark;    /* the prompt is computed up to here first, and a snapshot kept; 0: none */
    int64_t piece;   /* tokens of the step that runs */
    bool kept;       /* what it holds is in the prefix cache */
    bool dirty;      /* a failure left it with nobody knows what */

    /* The scheduler's, written under the engine's lock: */
    srv_task *task; /* NULL: free */
    int choice;
    int64_t count; /* of tokens */
    int64_t held;  /* of them held by the session */
    int64_t prompt, cached;
    int64_t generated;
    bool waits; /* for the first choice, whose prompt it will share */
    uint64_t last_job;
    uint64_t used; /* counts up: when it was last used */
} srv_sequence;

#endif
