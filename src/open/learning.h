/* Learning: what is counted about an open model, where it is kept, and what it is used for: warming the store when
 * the model is opened, exchanging experts of the hot cache between requests, and telling the user. Nothing here can change
 * a result, and nothing but options that make no sense can keep a model from running: what is unusable gives one line
 * in the log.
 *
 * One thread at a time, and none while a step runs: the caller holds the engine's lock. */
#ifndef MO_OPEN_LEARNING_H
#define MO_OPEN_LEARNING_H

#include "hotcache/update.h"
#include "open/open.h"
#include "profile/json.h"
#include "profile/tally.h"

typedef struct mo_learning mo_learning;

/* "full", "update" or "off"; NULL: full. MO_EINVAL lists them. */
mo_status mo_learning_mode_find(const char *name, mo_profile_mode *out, mo_error *err);

/* Begins to count, reads the model's profile, and warms its store from the hot set, or the warm-start file and the
 * profile, with progress in bytes or experts. What was opened outlives it. MO_ECANCELLED when progress said so;
 * MO_EINVAL for options that make no sense together. */
mo_status mo_learning_open(const mo_opened *opened, const mo_learning_options *options,
                           const mo_hot_request *hot, mo_progress_fn progress, void *user, mo_learning **out,
                           mo_error *err);

/* Warms the store with the profile's experts that `where` does not have on the device: for a device that is filled once, when that has been
 * done. As mo_learning_open(). */
mo_status mo_learning_warm_rest(mo_learning *l, const mo_where *(*where)(void *owner, int layer), void *owner,
                                mo_progress_fn progress, void *user, mo_error *err);

/* Saves: the counts to the profile, what is resident to the warm-start file, the live counts to the perf file. NULL
 * is allowed. */
void mo_learning_close(mo_learning *l);
/* Is a warm-start file written then? For it: the experts that only devices hold, before those are closed; takes the list. */
bool mo_learning_saves_warm(const mo_learning *l);
void mo_learning_note_vram(mo_learning *l, mo_store_request *list, int32_t count);

/* For the engine: NULL while the mode is off. */
mo_tally *mo_learning_tally(const mo_learning *l);
bool mo_learning_times(const mo_learning *l); /* are layers timed? */
mo_profile_mode mo_learning_mode(const mo_learning *l);

/* The experts that the model's profile knew when the model was opened, hottest first; NULL: there was none. */
const mo_store_request *mo_learning_requests(const mo_learning *l, int32_t *count);

/* What was counted since the model was opened, or a reset, as JSON; free() *text. */
mo_status mo_learning_json(const mo_learning *l, char **text, size_t *length, mo_error *err);

/* The hot caches of a model's devices. The functions below take them; none: RAM's, which is learning's own. */
typedef struct mo_hot_caches {
    mo_hot_update *of[MO_PLAN_DEVICES];
    int count;
} mo_hot_caches;

/* Counts begin at 0 again, in this mode. What was counted before is still saved. */
mo_status mo_learning_reset(mo_learning *l, const mo_hot_caches *hot, mo_profile_mode mode, mo_error *err);

/* Exchanges what a profile (JSON, any text in its schema) ranks higher for what it ranks lower, as mo_hot_update_apply(). */
mo_status mo_learning_apply_json(mo_learning *l, const mo_hot_caches *hot, const char *json, size_t length,
                                 mo_exchange_stats *stats, mo_error *err);

/* A request has ended: the hot cache is updated by its rate, and the perf file written. */
mo_status mo_learning_request_done(mo_learning *l, const mo_hot_caches *hot, mo_error *err);

#endif
