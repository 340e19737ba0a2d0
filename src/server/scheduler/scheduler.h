/* Scheduler: the thread of an engine, in parts. All of them run on that thread, without the engine's lock unless they say
 * otherwise. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "server/scheduler/engine.h"

enum {
    SRV_WORTHWHILE = 32, /* tokens: less is not worth a snapshot, or waiting for another prompt */
};

/* Of a sequence that is not free. */
static inline mo_generation *srv_sequence_generation(const srv_sequence *s)
{
    return s->task->generations[s->choice];
}

/* Below 0: the first one's turn is before the other's. */
int srv_sequence_order(const srv_sequence *a, const srv_sequence *b);

/* ---- Pictures (encoding.c) -------------------------------------------------------------------- */

/* Before it is chosen what a step reads: marks the sequences that wait for rows, and asks for a picture of the one whose turn it is. */
void srv_encoding_ask(srv_engine *engine);

/* ---- Messages (ends.c) ------------------------------------------------------------------------ */

void srv_raw_events_add(srv_engine *engine, const srv_raw_event *message);
void srv_raw_events_send(srv_engine *engine);

/* ---- Memory (kept.c) -------------------------------------------------------------------------- */

/* Keeps the first tokens that the sequence holds, for others that begin alike; nothing where that is not worth it. */
void srv_memory_keep(srv_engine *engine, srv_sequence *sequence, int64_t count);
/* Before a step of this many parts. */
void srv_memory_make_room(srv_engine *engine, int count);
/* Frees this many bytes of blocks, as far as cached sessions can be evicted. */
void srv_memory_make_room_for(srv_engine *engine, uint64_t bytes);
/* Drops all that is kept. False: there was nothing. */
bool srv_memory_drop_kept(srv_engine *engine);

/* ---- Ends (ends.c) ---------------------------------------------------------------------------- */

/* Ends the task and what is left of its choices; error: NULL: well. */
void srv_end_job(srv_engine *engine, srv_job *task, const mo_error *error);
/* Its generation has ended, or (stopped) the emitter has found a stop string. The last one ends the task. */
void srv_end_choice(srv_engine *engine, srv_sequence *sequence, bool stopped);
/* What was cancelled or stopped since the last round; when all is over, also what waits. */
void srv_end_what_is_over(srv_engine *engine);

/* ---- Places (admission.c) --------------------------------------------------------------------- */

/* Gives free sequences to the tasks whose turn it is. False: none has begun. */
bool srv_admission_admit(srv_engine *engine);
/* Ends a task whose client does not read while others wait. False: there is none. */
bool srv_admission_end_stalled(srv_engine *engine);
/* If that fails, the sequence is empty, or its state is unknown (`dirty`). */
void srv_sequence_restore(srv_engine *engine, srv_sequence *sequence, const mo_snapshot *snapshot);

#endif
