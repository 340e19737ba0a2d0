/* Warm-start files: a copy of what was in RAM when a model was closed, one slot behind the other, so that the next
 * start reads it in one sequential pass; and the list of what only a device had, which the next start reads from the model. A copy holds weights, and a fingerprint does not cover those: it belongs to
 * files of the same sizes and times of change, and every slot has its own checksum. It is replaced whole or not at
 * all, and never needed for a right result. */
#ifndef MO_EXPERTS_WARM_H
#define MO_EXPERTS_WARM_H

#include "experts/store.h"

typedef struct mo_warm_report {
    int32_t experts; /* brought in, or written */
    int64_t bytes;   /* of their slots */
    int64_t time_ns;
} mo_warm_report;

/* Copies the resident experts to `path`, and the list of those in VRAM (count 0: none). Their files must not have changed since the store was opened. Between
 * passes. On failure an older file is untouched. */
mo_status mo_warm_save(mo_store *store, uint64_t fingerprint, const char *path, const mo_store_request *vram,
                       int32_t count, mo_warm_report *report, mo_error *err);

/* Brings in what the file holds, as far as there are free slots. Where it lists experts of VRAM, *order gets these (hits 2) and then
 * RAM's (hits 1), to be freed, and a quarter of the slots stays free for their way; otherwise NULL. MO_ENOENT: there is none. MO_EFORMAT: it is
 * damaged, stale or of another model; what was good so far stays in its slots. MO_ECANCELLED when progress said so. */
mo_status mo_warm_load(mo_store *store, uint64_t fingerprint, const char *path, mo_progress_fn progress,
                       void *user, mo_store_request **order, int32_t *count, mo_warm_report *report,
                       mo_error *err);

#endif
