#include "device/meter.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"
#include "device/backend.h"

/* Pieces of work between two readings; one that is longer has what it takes added up on the way. */
enum { PIECES_MAX = 16384, PARTS_MAX = 16 };

typedef struct piece {
    mo_event *from, *to;
    int part;
} piece;

struct mo_meter {
    mo_watcher base;
    mo_device *device;
    mo_meter_part part;
    const void *user;
    piece *pieces; /* [limit], the first `made` with events */
    int count, made;
    size_t limit;
    int64_t ns[PARTS_MAX]; /* of pieces that are no more */
};

/* Adds up the pieces and forgets them. */
static mo_status settle(mo_meter *m, mo_error *err)
{
    mo_status status = m->count ? mo_event_wait(m->pieces[m->count - 1].to, err) : MO_OK;
    for (int i = 0; i < m->count && status == MO_OK; i++) {
        double seconds = 0.0;
        status = mo_event_seconds(m->pieces[i].from, m->pieces[i].to, &seconds, err);
        m->ns[m->pieces[i].part] += seconds > 0.0 ? (int64_t)(seconds * 1e9) : 0;
    }
    m->count = 0;
    return status;
}

/* Space for one more piece, with its events. */
static mo_status make_piece(mo_meter *m, mo_error *err)
{
    if (m->count < m->made) {
        return MO_OK;
    }
    if (!mo_array_reserve(&m->pieces, &m->limit, m->made + 1, sizeof *m->pieces)) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring");
    }
    piece p = {0};
    mo_status status = mo_event_create(m->device, &p.from, err);
    if (status == MO_OK) {
        status = mo_event_create(m->device, &p.to, err);
    }
    if (status == MO_OK) {
        m->pieces[m->made++] = p;
    } else {
        mo_event_destroy(p.from);
    }
    return status;
}

static mo_status begin_piece(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    mo_meter *m = (mo_meter *)stream->watcher;
    mo_status status = m->count == PIECES_MAX ? settle(m, err) : MO_OK;
    if (status == MO_OK) {
        status = make_piece(m, err);
    }
    if (status != MO_OK) {
        return status;
    }
    m->pieces[m->count].part = m->part(m->user, op);
    assert(m->pieces[m->count].part >= 0 && m->pieces[m->count].part < PARTS_MAX);
    return mo_event_record(m->pieces[m->count].from, stream, err);
}

static mo_status end_piece(mo_dstream *stream, mo_error *err)
{
    mo_meter *m = (mo_meter *)stream->watcher;
    const mo_status status = mo_event_record(m->pieces[m->count].to, stream, err);
    m->count += status == MO_OK;
    return status;
}

mo_status mo_meter_open(mo_device *device, mo_meter_part part, const void *user, mo_meter **out,
                        mo_error *err)
{
    mo_meter *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "out of memory while measuring");
    }
    *m = (mo_meter){.base = {begin_piece, end_piece}, .device = device, .part = part, .user = user};
    return MO_OK;
}

void mo_meter_close(mo_meter *m)
{
    for (int i = 0; m && i < m->made; i++) {
        mo_event_destroy(m->pieces[i].from);
        mo_event_destroy(m->pieces[i].to);
    }
    if (m) {
        free(m->pieces);
    }
    free(m);
}

void mo_meter_attach(mo_dstream *stream, mo_meter *meter)
{
    assert(stream && (!meter || meter->device == stream->device));
    stream->watcher = meter ? &meter->base : NULL;
}

mo_status mo_meter_read(mo_meter *m, int64_t *ns, mo_error *err)
{
    const mo_status status = settle(m, err);
    for (int i = 0; i < PARTS_MAX; i++) {
        if (m->ns[i] && status == MO_OK) {
            ns[i] += m->ns[i];
        }
        m->ns[i] = 0;
    }
    return status;
}
