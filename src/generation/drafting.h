/* Drafting: what a generation guesses to follow: by an MTP head of the model, by its own text, by a text that the caller predicts, by what its client's answers said
 * lately, or by a source that the caller gives. How many of these tokens are worth a step's time is decided for all generations of the
 * step: speculate/depth.h. One thread at a time. */
#ifndef MO_GENERATION_DRAFTING_H
#define MO_GENERATION_DRAFTING_H

#include "moraine_server.h"
#include "speculate/depth.h"

typedef struct mo_drafting mo_drafting;

/* What is asked for; what it points to stays as long as the drafting. */
typedef struct mo_drafting_options {
    int64_t most, least;       /* drafts of a step; fewer than `least` are none */
    float p_min;               /* drafts that are accepted less probably than this are left out */
    const int32_t *prediction; /* [prediction_count] what the answer probably contains; may be NULL */
    size_t prediction_count;
    const mo_recent *recent; /* what its client's answers said lately; NULL: nothing is known */
    uint64_t client;
    bool text;                     /* by text at all; otherwise by an MTP head alone */
    const mo_draft_source *source; /* instead of all others; NULL: none */
} mo_drafting_options;

mo_status mo_drafting_open(const mo_drafting_options *options, mo_drafting **out, mo_error *err);
void mo_drafting_close(mo_drafting *drafting); /* NULL is allowed */

/* May an MTP head guess? */
bool mo_drafting_asks_head(const mo_drafting *drafting);
/* An answer to this prompt begins, in a session of this many tokens. */
mo_status mo_drafting_begin(mo_drafting *drafting, const int32_t *tokens, int64_t count, int64_t context,
                            mo_error *err);
/* Looks for at most `most` drafts that follow these tokens. Behind them is space for as many. head: an MTP head can guess
 * them, which the wish then says, with the match in a text that could instead. False: none are known. */
bool mo_drafting_look(mo_drafting *drafting, mo_step_times *times, int32_t *tokens, int64_t count,
                      int64_t most, bool head, mo_depth_wish *out);
/* Puts as many as were decided on behind the tokens, if they were found in a text, and returns how many there are: guesses end before a picture. The
 * caller lets the head do what is its business. */
int64_t mo_drafting_put(mo_drafting *drafting, int32_t *tokens, int64_t count, const mo_depth_wish *wish);
/* How many of these were computed, and how many accepted. */
void mo_drafting_learn(mo_drafting *drafting, mo_step_times *times, int64_t drafted, int64_t accepted);
void mo_drafting_count(const mo_drafting *drafting, int64_t *drafted, int64_t *accepted);
/* Were the last drafts found in the prediction? */
bool mo_drafting_predicted(const mo_drafting *drafting);

#endif
