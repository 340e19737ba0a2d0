/* Session: one conversation. The caller hands over the whole token sequence each time; the session works out
 * what is new, because only it knows what its state can still serve. Feeding is in feed.c, copies of the state in
 * snapshot.c, both under the public names of moraine.h. */
#ifndef MO_ENGINE_SESSION_H
#define MO_ENGINE_SESSION_H

#include "engine/adapter.h"
#include "engine/step.h"

struct mo_session {
    mo_engine *engine;
    mo_adapter_list adapters; /* which it holds */
    mo_state state;
    int32_t *tokens;              /* [context] what the state holds, state.length of them */
    float *logits;                /* [vocab] */
    struct mo_head_session *head; /* guesses what follows; NULL: nothing is guessed by a head */
    bool follows;                 /* it takes in what is computed */
    float *rows;                  /* [row_limit][vocab], made by the first feed that wants every position */
    int64_t row_limit;
    bool has_logits;
    mo_touch touch; /* experts of this conversation; empty when nothing is counted */
    int64_t computed, drafted, accepted;
    atomic_bool cancel; /* the caller sets and clears it */

    mo_image_list images; /* of the last feed; they are the caller's */

    /* For the running feed: */
    mo_feed feed;
    mo_pick pick;
    bool ended;
    bool stopped; /* by its progress function */
    bool prompt;  /* more than one token is new: a prompt, to its last token */
    int64_t
        alone_until; /* steps before this position are this session's only, because one with others failed */
    int64_t told;    /* positions that were reported: none is reported twice */
    /* [slice_limit] of a step of many sessions, the first of which is this one: kept, not on the caller's stack. */
    mo_slice *slices;
    int slice_limit;
};

/* context: positions the session can hold, at most the engine's. The engine outlives it. Any thread, also while others
 * feed. */
mo_status mo_engine_session_open(mo_engine *engine, mo_kv_type kv, int64_t context, mo_session **out,
                                 mo_error *err);

/* Can the rows of a picture be computed by this engine? all_logits: with those of every position. */
mo_status mo_engine_check_image(const mo_engine *engine, const mo_image *image, bool all_logits,
                                mo_error *err);

/* Bytes of a session without its state: logits of one position, or, once a feed has asked for them, of every
 * position of a step. */
int64_t mo_session_logits_bytes(const mo_model_spec *spec, int64_t batch, bool all);

/* How many of `count` positions a step may have that keeps the logits of all. */
int64_t mo_session_rows(const mo_model_spec *spec, int64_t count);

/* Most rows of slices with drafts in a step (docs/speculation.md). */
int64_t mo_feed_draft_rows(const mo_engine *engine);

/* wanted: from now on the engine's MTP head, if it has one, follows what the session computes, so that mo_head_draft() can guess what comes
 * next. Otherwise it does not, and forgets what it knew. Not while the session is fed. */
void mo_session_follow(mo_session *s, bool wanted);

/* Another text begins, or none: what this one touched is recorded as one prompt. */
void mo_session_end_conversation(mo_session *s);

/* Is what the state held on a device lost? Then it begins anew: in RAM, or with the devices that are left. */
bool mo_session_lost_device(const mo_session *s);
void mo_session_leave_lost_device(mo_session *s);

#endif
