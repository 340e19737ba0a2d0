/* Generation: an answer on its way. Two sides that may be two threads: one steps it (session, sampler, constraint, tokens), the other
 * turns sampled tokens into events (answer); between them is a list of sampled tokens under a lock. */
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
    mo_grammar *grammar; /* the settings' compiled; NULL: the answer may be anything */
    bool grammar_in_thought;

    atomic_bool cancelled;
    _Atomic(mo_session *) session; /* of the last prompt; NULL: there was none */

    /* Who steps: */
    int64_t context; /* most tokens that the session holds */
    mo_sampler *sampler;
    mo_constraint *constraint; /* NULL: none */
    mo_mask_thread *masks;     /* of the model, where there is a constraint */
    mo_mask mask;
    bool wants_mask; /* it is to be computed anew */
    bool late; /* the session holds everything; the mask was not ready when the token was to be sampled */
    int32_t *tokens; /* prompt and answer */
    size_t space;
    mo_image **images; /* [image_count] held: of sequences from now on, */
    int image_count;
    mo_image_list places; /* and where they are in this one */
    int64_t count, prompt, held, computed, generated;
    mo_end end;
    mo_drafting *drafting; /* NULL: nothing is guessed */
    bool
        settles; /* in the step that runs who steps parses too, and looks at the text before the next token */
    int64_t drawn; /* tokens that the step which runs has taken already */
    mo_feed_report report;
    mo_generation_part *part;   /* of the step that runs */
    mo_mask_patience *patience; /* of the step that runs */
    mo_generation_part *parts;  /* [part_space] of a step whose first generation this is, with */
    mo_feed *feeds;             /* their feeds */
    size_t part_space, feed_space;

    /* Between both, under the lock: */
    pthread_mutex_t lock;
    mo_sampled *list;
    size_t list_count, list_space;
    mo_end list_end; /* what follows the last of them; MO_END_NONE: not known yet */
    mo_error error;  /* of the end */

    /* Who takes events: */
    mo_events *events;
    bool events_in_thought;
    mo_sampled *taken; /* sampled tokens that are being parsed, from `taken_first` on */
    size_t taken_first, taken_count, taken_space;
    mo_error failure; /* of parsing; then the end is told without more */
    bool end_told;
};

/* Ends the stepping side and tells the other; nothing happens when it has ended. */
void mo_generation_finish(mo_generation *g, mo_end end, const mo_error *why);
/* Adds a token to the sequence and tells the other side. False: out of memory. */
bool mo_generation_append(mo_generation *g, const mo_sampled *token);

#endif
