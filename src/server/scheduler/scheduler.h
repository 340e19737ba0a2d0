/* Scheduler: the thread of an engine, in parts. All of them run on that thread, without the engine's lock unless they say
 * otherwise. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "server/scheduler/engine.h"

enum {
    SRV_WORTHWHILE = 32, /* tokens: less is not worth a snapshot, or waiting for another prompt */
};

/* ---- Messages (messages.c) -------------------------------------------------------------------- */

void srv_raw_events_add(srv_engine *engine, const srv_raw_event *message);
void srv_raw_events_send(srv_engine *engine);

/* ---- Memory (memory.c) ------------------------------------------------------------------------ */

/* Keeps the first tokens that the sequence holds, for others that begin alike; nothing where that is not worth it. */
void srv_memory_keep(srv_engine *engine, srv_sequence *sequence, int64_t count);
/* Before a step of this many feeds. */
void srv_memory_make_room(srv_engine *engine, int count);
/* Frees this many bytes of blocks, as far as cached sessions can be evicted. */
void srv_memory_make_room_for(srv_engine *engine, uint64_t bytes);
/* Drops all that is kept. False: there was nothing. */
bool srv_memory_drop_kept(srv_engine *engine);

/* ---- Ends (ends.c) ---------------------------------------------------------------------------- */

/* Ends the task and what is left of its choices; error: NULL: well. */
void srv_end_job(srv_engine *engine, srv_job *task, const mo_error *error);
/* SRV_FINISH_NONE: the emitter knows already. The last one ends the task. */
void srv_end_choice(srv_engine *engine, srv_sequence *sequence, srv_finish finish);
/* What was cancelled or stopped since the last round; when all is over, also what waits. */
void srv_end_what_is_over(srv_engine *engine);

/* ---- Places (places.c) ------------------------------------------------------------------------ */

/* Gives free sequences to the tasks whose turn it is. False: none has begun. */
bool srv_admission_admit(srv_engine *engine);
/* Ends a task whose client does not read while others wait. False: there is none. */
bool srv_admission_end_stalled(srv_engine *engine);
/* If that fails, the sequence is empty, or its state is unknown (`dirty`). */
void srv_sequence_restore(srv_engine *engine, srv_sequence *sequence, const mo_snapshot *snapshot);

/* ---- Steps (steps.c) -------------------------------------------------------------------------- */

bool srv_sequence_in_prompt(const srv_sequence *sequence);
/* Does it draw its first token after the step that ends its prompt? */
bool srv_sequence_draws_later(const srv_sequence *sequence);
/* Asks for the masks that are to be made anew. */
void srv_steps_want_masks(srv_engine *engine);
/* Fills the engine's feeds and returns how many there are: of answers, and then of this many prompt tokens. Under the lock. */
int srv_steps_build(srv_engine *engine, int *answers, int64_t *prompt);

/* ---- Outcome (outcome.c) ---------------------------------------------------------------------- */

/* After a step with the sequence in it, which ended at that time. */
void srv_outcome_take(srv_engine *engine, srv_sequence *sequence, double now);
/* Ends the thoughts of those who have thought as long as they may. */
void srv_outcome_end_thoughts(srv_engine *engine);

#endif
