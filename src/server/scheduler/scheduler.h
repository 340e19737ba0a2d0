/* Scheduler: the parts of an engine's thread. They run on that thread, without the engine's lock unless
 * stated. */
#ifndef SRV_SCHEDULER_H
#define SRV_SCHEDULER_H

#include "server/scheduler/engine.h"

enum {
    SRV_WORTHWHILE = 32, /* tokens: fewer are not worth a snapshot, or waiting for another prompt */
};

/* The sequence must not be free. */
static inline mo_generation *srv_sequence_generation(const srv_sequence *s)
{
    return s->task->generations[s->choice];
}

/* Below 0: the first goes before the second. */
int srv_sequence_order(const srv_sequence *a, const srv_sequence *b);

/* ---- Images (encoding.c) ----------------------------------------------------------------------- */

/* Called before the tokens of a step are chosen: marks the sequences that wait for rows, and requests an
 * image for the next one in turn. */
void srv_encoding_ask(srv_engine *engine);

/* ---- Events (ends.c) --------------------------------------------------------------------------- */

void srv_raw_events_add(srv_engine *engine, const srv_raw_event *message);
void srv_raw_events_send(srv_engine *engine);

/* ---- Memory (kept.c) -------------------------------------------------------------------------- */

/* Caches the first `count` tokens of the sequence for others with the same prefix, if that is worthwhile. */
void srv_memory_keep(srv_engine *engine, srv_sequence *sequence, int64_t count);
/* Called before a step of this many parts. */
void srv_memory_make_room(srv_engine *engine, int count);
/* Frees this many bytes of blocks, as far as cached sessions can be evicted. */
void srv_memory_make_room_for(srv_engine *engine, uint64_t bytes);
/* Drops all cached sessions. Returns false if there were none. */
bool srv_memory_drop_kept(srv_engine *engine);

/* ---- Ends (ends.c) ---------------------------------------------------------------------------- */

/* Ends the task and its remaining choices; error NULL: success. */
void srv_end_job(srv_engine *engine, srv_job *task, const mo_error *error);
/* Ends a choice whose generation has ended, or (stopped) for which the emitter has found a stop string. The
 * last one ends the task. */
void srv_end_choice(srv_engine *engine, srv_sequence *sequence, bool stopped);
/* Ends cancelled and stopped tasks; on shutdown also the waiting ones. */
void srv_end_what_is_over(srv_engine *engine);

/* ---- Admission (admission.c) -------------------------------------------------------------------- */

/* Assigns free sequences to the next tasks. Returns false if none was started. */
bool srv_admission_admit(srv_engine *engine);
/* Ends a task whose client does not read while others wait. Returns false if there is none. */
bool srv_admission_end_stalled(srv_engine *engine);
/* On failure the sequence is empty, or its state is unknown (`dirty`). */
void srv_sequence_restore(srv_engine *engine, srv_sequence *sequence, const mo_snapshot *snapshot);

#endif
