/* Answer: the text side of one choice. Tokens go in; what they complete comes out as events: text, thoughts and calls, up to
 * a stop string. Sampled tokens ride along with the event that completes their text.
 *
 * One thread at a time. */
#ifndef SRV_ANSWER_H
#define SRV_ANSWER_H

#include "server/scheduler/job.h"

typedef struct srv_answer srv_answer;

/* Hears the events of one answer; kind, text, call, call_id and tokens are filled. */
typedef void (*srv_answer_fn)(void *user, const srv_event *event);

/* Of the options raw, reply, stop, logprobs and reasoning_budget count. */
mo_status srv_answer_open(const mo_model *model, const srv_job_options *options, srv_answer **out,
                          mo_error *err);
void srv_answer_close(srv_answer *answer); /* NULL is allowed */

/* The next token. `quiet`: it ends the answer and has no text, but is counted. */
mo_status srv_answer_put(srv_answer *answer, const srv_token *token, bool quiet, srv_answer_fn fn, void *user,
                         mo_error *err);
/* No more tokens come, other than by a stop string: what waited comes out. `cut`: a limit ended it, not the model. */
mo_status srv_answer_end(srv_answer *answer, bool cut, srv_answer_fn fn, void *user, mo_error *err);

/* The stop string that was met; -1: none. After it nothing comes out. */
int srv_answer_stop(const srv_answer *answer);
int64_t srv_answer_tokens(const srv_answer *answer);   /* put so far, none after a stop string */
int64_t srv_answer_thoughts(const srv_answer *answer); /* of them in thoughts */
/* The tokens that no event has carried; they are forgotten by this. */
size_t srv_answer_rest(srv_answer *answer, const srv_token **tokens);
/* The tokens that end the thought it is in, once the model has thought as long as it may; otherwise 0. */
size_t srv_answer_thought_end(srv_answer *answer, const int32_t **tokens);

enum { SRV_CALL_ID = 64 };
/* The id of a call it made; NULL: it made fewer. */
const char *srv_answer_call(const srv_answer *answer, int index);
/* All its tokens. */
const int32_t *srv_answer_all(const srv_answer *answer);

#endif
