/* Learning: the counters of an open model, their storage, and their uses: warming the store when the model is
 * opened, exchanging experts of the hot cache between requests, and reports. It never changes a result. Only
 * invalid options can keep a model from running: unusable files cost one line in the log.
 *
 * One thread at a time, and none while a step runs: the caller holds the engine's lock. */
#ifndef MO_OPEN_LEARNING_H
#define MO_OPEN_LEARNING_H

#include "hotcache/update.h"
#include "open/open.h"
#include "profile/json.h"
#include "profile/tally.h"

typedef struct mo_learning mo_learning;

/* "full", "update" or "off"; NULL: full. MO_EINVAL lists the valid names. */
mo_status mo_learning_mode_find(const char *name, mo_profile_mode *out, mo_error *err);

/* Starts counting, reads the model's profile, and warms the store from the hot set, or from the warm-start
 * file and the profile; progress is in bytes or experts. `opened` must outlive it. MO_ECANCELLED: progress
 * returned false. MO_EINVAL: invalid combination of options. */
mo_status mo_learning_open(const mo_opened *opened, const mo_learning_options *options,
                           const mo_hot_request *hot, mo_progress_fn progress, void *user, mo_learning **out,
                           mo_error *err);

/* Warms the store with the profile's experts that are not on the device according to `where`. For a device
 * that is filled once, after it has been filled. Errors as mo_learning_open(). */
mo_status mo_learning_warm_rest(mo_learning *l, const mo_where *(*where)(void *owner, int layer), void *owner,
                                mo_progress_fn progress, void *user, mo_error *err);

/* Saves the counts to the profile, the resident experts to the warm-start file and the live counts to the
 * perf file. Accepts NULL. */
void mo_learning_close(mo_learning *l);
/* True if closing writes a warm-start file; and records the experts that only devices hold, before the
 * devices are closed. Takes ownership of the list. */
bool mo_learning_saves_warm(const mo_learning *l);
void mo_learning_note_vram(mo_learning *l, mo_store_request *list, int32_t count);

/* For the engine; NULL while the mode is off. */
mo_tally *mo_learning_tally(const mo_learning *l);
bool mo_learning_times(const mo_learning *l); /* true if layers are timed */
mo_profile_mode mo_learning_mode(const mo_learning *l);

/* The experts in the model's profile when the model was opened, hottest first; NULL: no profile. */
const mo_store_request *mo_learning_requests(const mo_learning *l, int32_t *count);

/* Counts since the model was opened or reset, as JSON; the caller frees *text. */
mo_status mo_learning_json(const mo_learning *l, char **text, size_t *length, mo_error *err);

/* Hot caches of a model's devices, for the functions below. None: they use the hot cache in RAM, which
 * belongs to learning. */
typedef struct mo_hot_caches {
    mo_hot_update *of[MO_PLAN_DEVICES];
    int count;
} mo_hot_caches;

/* Restarts the counts at 0 in this mode. Earlier counts are still saved. */
mo_status mo_learning_reset(mo_learning *l, const mo_hot_caches *hot, mo_profile_mode mode, mo_error *err);

/* Exchanges experts according to a profile (JSON, any text in its schema), as mo_hot_update_apply(). */
mo_status mo_learning_apply_json(mo_learning *l, const mo_hot_caches *hot, const char *json, size_t length,
                                 mo_exchange_stats *stats, mo_error *err);

/* Called after each request: updates the hot cache by its rate and writes the perf file. */
mo_status mo_learning_request_done(mo_learning *l, const mo_hot_caches *hot, mo_error *err);

#endif
