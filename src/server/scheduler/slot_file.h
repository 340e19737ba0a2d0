/* Slot file: what a free sequence holds, written to a file by a name that a client chose, and brought back; llama-server's slots
 * are saved, restored and erased so. Any thread; all wait for the step that runs.
 *
 * Slots count from 0. MO_EINVAL: there is no such slot, it holds nothing, or what comes back does not fit; MO_ECANCELLED: it is
 * busy, and can be asked again; MO_EUNSUPPORTED: the engine keeps nothing, or is lossy; MO_ENOENT: it holds what is another client's. */
#ifndef SRV_SLOT_FILE_H
#define SRV_SLOT_FILE_H

#include "server/common/caller.h"
#include "server/scheduler/job.h"

typedef struct srv_slot_file_report {
    int64_t tokens, bytes; /* in the slot; of the file */
} srv_slot_file_report;

/* name: of a file in the directory, which is there; no path. One that is there is replaced. */
mo_status srv_slot_save(srv_engine *engine, int slot, const srv_caller *caller, const char *directory,
                        const char *name, srv_slot_file_report *out, mo_error *err);
/* MO_EFORMAT: there is no such file, it is damaged or of another model. What the slot held is forgotten. */
mo_status srv_slot_restore(srv_engine *engine, int slot, const srv_caller *caller, const char *directory,
                           const char *name, srv_slot_file_report *out, mo_error *err);
mo_status srv_slot_erase(srv_engine *engine, int slot, const srv_caller *caller, int64_t *tokens,
                         mo_error *err);

#endif
