/* Moraine: what only our own programs need: the server, its scheduler, and commands that generate in their own way. Not installed,
 * and no promise. */
#ifndef MORAINE_SERVER_H
#define MORAINE_SERVER_H

#include "moraine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Generations that are stepped by one thread and drained by another ------------------------- */

/* What our own programs add to the options. */
typedef struct mo_generation_extra {
    mo_grammar
        *grammar; /* compiled, in the place of a text; stays open as long as the generation. NULL: none */
    const mo_reply_options
        *reply; /* how the answer is parsed, with in_thought; its tools stay. NULL: as the options say */
    int choice; /* which of several answers to one prompt: it draws with the options' seed + choice */
} mo_generation_extra;

/* Overrides sampling with what the model's file recommends (model NULL: nothing); what is unset then has the usual value. */
void mo_generation_options_recommend(const mo_model *model, mo_generation_options *options);

/* As mo_generation_open(). extra may be NULL. */
mo_status mo_generation_open_with(mo_model *model, const mo_generation_options *options,
                                  const mo_generation_extra *extra, mo_generation **out, mo_error *err);

/* What of a generation a step computes. */
typedef struct mo_generation_part {
    mo_generation *generation;
    int64_t piece; /* most tokens of its prompt; 0: all that are left */
    bool logits;   /* its state will be kept afterwards, with its logits, although the prompt goes on */
    mo_routing_observer routes; /* NULL: not needed */
    void *user;
    /* The result: */
    mo_error
        error; /* status MO_OK: none. Unless that has ended the generation: step it again, or mo_generation_fail() */
    int64_t computed; /* tokens */
    bool sampled;     /* a token */
    bool late;        /* its mask was not ready: nothing was sampled */
} mo_generation_part;

/* One step of all of them; unlike mo_generation_step() it never looks at their texts. feeds: space for as many. */
mo_status mo_generation_step_parts(mo_generation_part *parts, mo_feed *feeds, int count, mo_error *err);

/* May it be stepped? False: its mask is not ready. */
bool mo_generation_is_ready(mo_generation *generation);
/* From now on fn is called, by a thread of the model, when a mask is ready that a step could not wait for. */
void mo_generation_on_mask(mo_generation *generation, void (*fn)(void *user), void *user);
/* Ends it, if it has not ended. */
void mo_generation_fail(mo_generation *generation, mo_end end, const mo_error *err);
/* The stepping thread's: why it has ended; tokens held by the session. */
mo_end mo_generation_ended(const mo_generation *generation);
int64_t mo_generation_held(const mo_generation *generation);
/* The session was changed from outside, and holds this many tokens of the sequence. */
void mo_generation_set_held(mo_generation *generation, int64_t held);
/* If it has thought as long as it may: appends the tokens that end its thought. All that was sampled must have been parsed. */
void mo_generation_end_thought(mo_generation *generation);

/* The draining thread's: turns one sampled token, or the end, into events. False: there is none. */
bool mo_generation_parse(mo_generation *generation);
/* The next event that is there. */
bool mo_generation_take_event(mo_generation *generation, mo_generation_event *out, size_t size);
/* Tokens parsed so far, and of them in thoughts; was a stop string met? Ids of its calls; NULL: it made fewer. */
void mo_generation_count(const mo_generation *generation, int64_t *tokens, int64_t *thoughts);
/* The whole sequence, up to the last token that was parsed. */
const int32_t *mo_generation_parsed(const mo_generation *generation, int64_t *count);
bool mo_generation_stopped(const mo_generation *generation);
const char *mo_generation_call_id(const mo_generation *generation, int index);

#ifdef __cplusplus
}
#endif
#endif
