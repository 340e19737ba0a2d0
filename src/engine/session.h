/* Session: one conversation. The caller hands over the whole token sequence each time; the session works out
 * what is new, because only it knows what its state can still serve. */
#ifndef MO_ENGINE_SESSION_H
#define MO_ENGINE_SESSION_H

#include "engine/step.h"

/* context: positions the session can hold, at most the engine's. The engine outlives it. */
mo_status mo_engine_session_open(mo_engine *engine, mo_kv_type kv, int64_t context, mo_session **out,
                                 mo_error *err);
void mo_session_close(mo_session *session); /* NULL is allowed */

/* Bytes of a session besides its state: logits of one position, or, once a feed has asked for them, of every
 * position of a step. */
int64_t mo_session_logits_bytes(const mo_model_spec *spec, int64_t batch, bool all);

/* Feeding, logits, cancelling, discovery and snapshots are as moraine.h says: mo_session_feed(),
 * mo_session_feed_all(), mo_session_discover(),
 * mo_session_logits(), mo_session_length(), mo_session_computed(), mo_session_cancel(), mo_snapshot_open(),
 * mo_session_restore(), mo_snapshot_*(). */

#endif
