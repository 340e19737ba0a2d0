/* Events: the text side of a generation. It turns sampled tokens into events: text, thoughts and calls, up to
 * a stop string, and the end. Tokens are reported with the event that completes their text. One thread at a
 * time. */
#ifndef MO_GENERATION_EVENTS_H
#define MO_GENERATION_EVENTS_H

#include "generation/settings.h"

/* A sampled or forced token. */
typedef struct mo_sampled {
    int32_t id;
    bool ends; /* it ends the answer and has no text */
    float logprob;
    int top_count;
    mo_logprob top[MO_TOP_MAX];
    int64_t time_ns;
} mo_sampled;

typedef struct mo_events mo_events;

/* Parses the answer according to the settings; in_thought: the prompt ends inside a thought. */
mo_status mo_events_open(const mo_model *model, const mo_generation_settings *set, bool in_thought,
                         mo_events **out, mo_error *err);
void mo_events_close(mo_events *events); /* NULL is allowed */

/* Adds the next token. No effect after the end. */
mo_status mo_events_put(mo_events *events, const mo_sampled *token, mo_error *err);
/* Adds the end: pending text is flushed first. No effect if a stop string has ended the answer. */
mo_status mo_events_end(mo_events *events, mo_end end, const mo_error *why, mo_error *err);

/* Takes the next event, valid until the next call of any function here except the two below; false: none. */
bool mo_events_take(mo_events *events, mo_generation_event *out);

mo_end mo_events_ended(const mo_events *events);
int64_t mo_events_tokens(const mo_events *events);   /* tokens added so far, none after a stop string */
int64_t mo_events_thoughts(const mo_events *events); /* thought tokens among them */
/* The tokens that end the current thought when it has reached its limit; otherwise 0. */
size_t mo_events_thought_end(const mo_events *events, const int32_t **tokens);
/* The id of call `index`; NULL: there are fewer. */
const char *mo_events_call(const mo_events *events, int index);

/* For saving: the tokens that no event has reported yet, oldest first; they may be replaced. */
mo_sampled *mo_events_waiting(mo_events *events, size_t *count);
/* Drops all events, as if they had been taken. */
void mo_events_forget(mo_events *events);

#endif
