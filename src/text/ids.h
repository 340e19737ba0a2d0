/* Ids: a growing list of token ids. Private to the module. */
#ifndef MO_TEXT_IDS_H
#define MO_TEXT_IDS_H

#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"

typedef struct mo_ids {
    int32_t *data;
    size_t count, capacity;
    size_t most; /* one id more is MO_ENOSPC, without an error text; 0: no limit */
} mo_ids;

static inline mo_status mo_ids_add(mo_ids *ids, int32_t id, mo_error *err)
{
    if (ids->most && ids->count == ids->most) {
        return MO_ENOSPC;
    }
    if (!mo_array_reserve(&ids->data, &ids->capacity, ids->count + 1, sizeof *ids->data)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %zu tokens", ids->count + 1);
    }
    ids->data[ids->count++] = id;
    return MO_OK;
}

#endif
