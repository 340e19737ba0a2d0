/* Slot file: saves the contents of a free sequence to a file with a client-chosen name, and restores them,
 * for llama-server's slot endpoints. Any thread; all functions wait for the running step.
 *
 * Slots count from 0. MO_EINVAL: no such slot, it is empty, or the restored contents do not fit.
 * MO_ECANCELLED: busy, retryable. MO_EUNSUPPORTED: the engine has no cache, or is lossy. MO_ENOENT: the
 * contents belong to another client. */
#ifndef SRV_SLOT_FILE_H
#define SRV_SLOT_FILE_H

#include "server/common/caller.h"
#include "server/scheduler/job.h"

typedef struct srv_slot_file_report {
    int64_t tokens, bytes; /* in the slot; of the file */
} srv_slot_file_report;

/* name: a file name in the existing directory, without a path. An existing file is replaced. */
mo_status srv_slot_save(srv_engine *engine, int slot, const srv_caller *caller, const char *directory,
                        const char *name, srv_slot_file_report *out, mo_error *err);
/* MO_EFORMAT: no such file, or it is damaged or of another model. The slot's previous contents are lost. */
mo_status srv_slot_restore(srv_engine *engine, int slot, const srv_caller *caller, const char *directory,
                           const char *name, srv_slot_file_report *out, mo_error *err);
mo_status srv_slot_erase(srv_engine *engine, int slot, const srv_caller *caller, int64_t *tokens,
                         mo_error *err);

#endif
