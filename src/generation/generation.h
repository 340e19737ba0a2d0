/* Generation: an answer in progress. Two sides may be two threads: one steps it (session, sampler,
 * constraint, tokens), the other turns sampled tokens into events. A list of sampled tokens under a lock
 * connects them. */
#ifndef MO_GENERATION_GENERATION_H
#define MO_GENERATION_GENERATION_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/image.h"
#include "generation/drafting.h"
#include "generation/events.h"
#include "generation/settings.h"
#include "grammar/mask_thread.h"

struct mo_generation {
    mo_model *model;
    mo_generation_settings set;
    mo_grammar *grammar; /* compiled from the settings; NULL: the answer is free */
    bool grammar_in_thought;

    atomic_bool cancelled;
    atomic_bool ended; /* a cancel then leaves the session alone: another generation may have it */
    _Atomic(mo_session *) session; /* of the last prompt; NULL: none */

    /* The stepping side: */
    int64_t context; /* maximum tokens of the session */
    mo_sampler *sampler;
    mo_constraint *constraint; /* NULL: none */
    mo_mask_thread *masks;     /* the model's, if there is a constraint */
    mo_mask mask;
    bool wants_mask; /* the mask must be computed again */
    bool late;       /* the session is complete, but the mask was not ready for sampling */
    int32_t *tokens; /* prompt and answer */
    size_t space;
    mo_image **images; /* [image_count] held; for the next sequences */
    int image_count;
    mo_image_list places; /* their positions in the current sequence */
    int64_t count, prompt, held, computed, generated;
    mo_end end;
    mo_drafting *drafting; /* NULL: no drafts */
    /* in the running step the stepping side also parses, and checks the text before the next token */
    bool settles;
    int64_t drawn; /* tokens that the running step has taken already */
    mo_feed_report report;
    mo_generation_part *part;   /* of the running step */
    mo_mask_patience *patience; /* of the running step */
    mo_generation_part *parts;  /* [part_space] parts of a step whose first generation is this one */
    mo_feed *feeds;             /* feeds of the parts */
    size_t part_space, feed_space;

    /* Shared by both sides, under the lock: */
    pthread_mutex_t lock;
    mo_sampled *list;
    size_t list_count, list_space;
    mo_end list_end; /* what follows the last token; MO_END_NONE: unknown */
    mo_error error;  /* error of the end */

    /* The event side: */
    mo_events *events;
    bool events_in_thought;
    mo_sampled *taken; /* sampled tokens being parsed, from `taken_first` on */
    size_t taken_first, taken_count, taken_space;
    mo_error failure; /* error of parsing; the end is then reported without further events */
    bool end_told;
};

/* Ends the stepping side and notifies the other; no effect after the end. */
void mo_generation_finish(mo_generation *g, mo_end end, const mo_error *why);
/* Adds a token to the sequence and notifies the other side. False: out of memory. */
bool mo_generation_append(mo_generation *g, const mo_sampled *token);

#endif
