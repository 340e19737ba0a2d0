/* A session that holds what another one holds: a snapshot, opened, restored and closed. */
#ifndef MO_TESTS_FORK_H
#define MO_TESTS_FORK_H

#include "moraine.h"

static inline mo_status fork_session(mo_session *session, const mo_session *from, mo_error *err)
{
    mo_snapshot *snapshot = NULL;
    mo_status status = mo_snapshot_open(from, &snapshot, err);
    if (status == MO_OK) {
        status = mo_session_restore(session, snapshot, -1, err);
        mo_snapshot_close(snapshot);
    }
    return status;
}

#endif
