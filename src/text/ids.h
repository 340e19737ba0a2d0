/* Ids: a growing list of token ids. Private to the room. */
#ifndef MO_TEXT_IDS_H
#define MO_TEXT_IDS_H

#include <stdlib.h>

#include "base/status.h"

typedef struct mo_ids {
    int32_t *data;
    size_t count, room;
} mo_ids;

static inline mo_status mo_ids_add(mo_ids *ids, int32_t id, mo_error *err)
{
    if (ids->count == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 64;
        int32_t *data = realloc(ids->data, room * sizeof *data);
        if (!data) {
            return mo_fail(err, MO_ENOMEM, "no memory for %zu tokens", room);
        }
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->count++] = id;
    return MO_OK;
}

#endif
