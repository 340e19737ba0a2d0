/* Warm-start files: a copy of the slots that were in RAM when a model was closed, stored consecutively so
 * that the next start reads it in one sequential pass; and a list of the experts that only a device had,
 * which the next start reads from the model. The copy holds weights, which a fingerprint does not cover. So
 * the file is valid only for model files with the same sizes and modification times, and every slot has a
 * checksum. It is replaced atomically, and results never depend on it. */
#ifndef MO_EXPERTS_WARM_H
#define MO_EXPERTS_WARM_H

#include "experts/store.h"

typedef struct mo_warm_report {
    int32_t experts; /* loaded or written */
    int64_t bytes;   /* total size of their slots */
    int64_t time_ns;
} mo_warm_report;

/* Writes the resident experts to `path`, and the list of those in VRAM (count 0: none). The model files must
 * be unchanged since the store was opened. Call it between passes. On failure an older file is unchanged. */
mo_status mo_warm_save(mo_store *store, uint64_t fingerprint, const char *path, const mo_store_request *vram,
                       int32_t count, mo_warm_report *report, mo_error *err);

/* Loads the file's experts as far as slots are free. If it lists experts of VRAM, *order gets these (hits 2)
 * and then RAM's (hits 1), to be freed, and a quarter of the slots stays free for loading them; otherwise
 * *order is NULL. MO_ENOENT: no file. MO_EFORMAT: damaged, stale or of another model; valid slots before the
 * error are kept. MO_ECANCELLED: progress cancelled. */
mo_status mo_warm_load(mo_store *store, uint64_t fingerprint, const char *path, mo_progress_fn progress,
                       void *user, mo_store_request **order, int32_t *count, mo_warm_report *report,
                       mo_error *err);

#endif
