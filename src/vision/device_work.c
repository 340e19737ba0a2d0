/* Device work: see device_work.h. */
#include "vision/device_work.h"

#include "device/dacts.h"
#include "numeric/acts.h"
#include "numeric/format.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

typedef struct cutter {
    mo_daddr base;
    int64_t used;
} cutter;

static mo_daddr cut(cutter *c, int64_t bytes)
{
    const mo_daddr at = c->base + (mo_daddr)c->used;
    c->used += (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    return at;
}

static mo_daddr cut_floats(cutter *c, int64_t count)
{
    return cut(c, count * (int64_t)sizeof(float));
}

/* Joined patches are as many times fewer as they are wider. */
static int64_t acts_bytes(const mo_vision_device_work *w, int64_t cols)
{
    const int64_t block = w->spec->merge * w->spec->merge;
    return larger((int64_t)mo_acts_bytes(w->batch, cols),
                  (int64_t)mo_acts_bytes(w->batch / block, w->spec->width * block));
}

mo_kv_shape mo_vision_device_cache(const mo_vision_spec *s)
{
    return (mo_kv_shape){
        .type = MO_KV_F32, .heads = (int)s->heads, .k_len = (int)s->head_len, .v_len = (int)s->head_len};
}

int64_t mo_vision_device_lay(mo_vision_device_work *w, mo_daddr base)
{
    const mo_vision_spec *s = w->spec;
    const int64_t inner = s->heads * s->head_len, patch = 3 * s->patch * s->patch;
    const int64_t chunks = (w->patches + MO_CHUNK - 1) / MO_CHUNK;
    cutter c = {.base = base};
    w->block_count = chunks * (MO_CHUNK / MO_KV_BLOCK);
    w->x = cut_floats(&c, w->patches * s->width);
    w->q = cut_floats(&c, w->patches * inner);
    w->k = cut_floats(&c, w->batch * inner);
    w->v = cut_floats(&c, w->batch * inner);
    w->blocks = cut(&c, w->block_count * mo_kv_block_bytes(mo_vision_device_cache(s)));
    w->table = cut(&c, w->block_count * (int64_t)sizeof(mo_daddr));
    w->state = cut(&c, (int64_t)sizeof(mo_dstate));
    w->places = cut(&c, w->patches * (int64_t)sizeof(mo_dplace));
    w->rope = cut_floats(&c, w->patches * s->head_len);
    w->pixels = cut_floats(&c, w->patches * patch);
    w->positions = cut_floats(&c, w->patches * s->width);
    w->in = cut(&c, acts_bytes(w, larger(s->width, patch)));
    w->mixed = cut(&c, acts_bytes(w, inner));
    w->hidden = cut(&c, acts_bytes(w, s->ffn));
    w->up = cut_floats(&c, w->batch * larger(s->ffn, s->width));
    w->y = cut_floats(&c, w->batch * s->width);
    w->ones = cut_floats(&c, w->batch * larger(s->ffn, s->width));
    w->partial = cut_floats(&c, MO_OP_SMALL * chunks * s->heads * mo_kv_partial(MO_KV_F32, (int)s->head_len));
    w->out = cut_floats(&c, w->rows * mo_vision_row(s));
    w->weights = cut(&c, 0);
    return c.used;
}

mo_daddr mo_vision_upload_bytes(mo_vision_upload *u, const void *from, int64_t bytes)
{
    const mo_daddr at = u->base + (mo_daddr)u->used;
    if (!from) {
        return 0;
    }
    u->used += (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    if (u->stream && u->status == MO_OK) {
        u->status = mo_copy_in(u->stream, at, from, (size_t)bytes, u->err);
    }
    return at;
}

mo_daddr mo_vision_upload_floats(mo_vision_upload *u, const float *from, int64_t count)
{
    return mo_vision_upload_bytes(u, from, count * (int64_t)sizeof *from);
}

mo_dmatrix mo_vision_upload_linear(mo_vision_upload *u, const mo_vision_linear *l)
{
    const int64_t bytes = l->w.rows * mo_format_row_bytes(mo_format_of(l->w.type), l->w.cols);
    mo_dmatrix m = {.type = l->w.type, .rows = (int32_t)l->w.rows, .cols = (int32_t)l->w.cols};
    m.data = mo_vision_upload_bytes(u, l->w.data, bytes);
    m.bias = mo_vision_upload_floats(u, l->bias, l->w.rows);
    return m;
}
