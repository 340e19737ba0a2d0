/* Latent attention on the host, around the scores. */
#include <inttypes.h>

#include "device/host/cache.h"
#include "device/host/ops.h"
#include "numeric/heads.h"

typedef struct latent_parts {
    const mo_op_latent *o;
    const float *q, *norm, *rope, *q_factor;
    float *k, *query;
    mo_acts plain;
    mo_dgroup *groups;
    uint32_t *bad;
} latent_parts;

static void prepare_token(mo_op_job *job, const latent_parts *p, int64_t t, const mo_kv_head *kv,
                          int64_t position)
{
    const mo_op_latent *o = p->o;
    const int64_t plain = o->plain.cols, k_len = o->v_len + o->n_rot;
    const float *c = p->rope ? p->rope + t * o->rope_stride : NULL;
    const float *s = p->rope ? c + o->rope_rows * o->rope_stride : NULL;
    for (int64_t h = 0; h < o->heads; h++) {
        const int64_t row = h * o->tokens + t;
        mo_latent_query(job->k, p->q + (t * o->heads + h) * (plain + o->n_rot), plain, o->n_rot, c, s,
                        p->q_factor ? p->q_factor + t : NULL, p->plain.x + row * plain,
                        p->query + row * k_len + o->v_len);
        mo_op_quantize(job->k, &p->plain, row);
    }
    if (!mo_latent_key(job->k, p->norm, o->eps, p->k + t * k_len, c, s, kv, position)) {
        mo_op_set_bad(p->bad, 1);
    }
}

static void write_groups(const latent_parts *p)
{
    const mo_op_latent *o = p->o;
    for (int i = 0; i < 2 * o->heads; i++) {
        const int which = i / o->heads, h = i % o->heads;
        p->groups[i] = (mo_dgroup){.data = o->data[which] + (mo_daddr)(h * o->part_bytes[which]),
                                   .first = h * o->tokens,
                                   .count = o->tokens};
    }
}

mo_status mo_op_host_latent(mo_op_job *job, const mo_op_latent *o)
{
    const int64_t n = o->tokens, rows = n * o->heads, k_len = o->v_len + o->n_rot;
    const mo_kv_shape shape = {
        .type = o->kv, .heads = 1, .k_len = (int)k_len, .v_len = o->v_len, .tail = o->n_rot};
    latent_parts p = {.o = o};
    if (n == 0) {
        return MO_OK;
    }
    p.q = mo_op_floats(job, "q", o->q, rows * (o->plain.cols + o->n_rot));
    p.k = mo_op_floats(job, "k", o->k, n * k_len);
    p.norm = mo_op_floats(job, "norm", o->norm, o->v_len);
    p.rope = mo_op_floats_or_none(job, "rope", o->rope, 2 * o->rope_rows * o->rope_stride);
    p.q_factor = mo_op_floats_or_none(job, "q_factor", o->q_factor, n);
    p.plain = mo_op_acts(job, "plain", &o->plain, rows, true, true);
    p.query = mo_op_floats(job, "query", o->query, rows * k_len);
    p.groups = mo_op_part(job, "groups", o->groups, 2 * o->heads * (int64_t)sizeof *p.groups);
    p.bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    const mo_dplace *places = mo_op_part(job, "places", o->places, n * (int64_t)sizeof *places);
    if ((p.rope && (o->rope_rows < n || 2 * o->rope_stride < o->n_rot)) || k_len > MO_KV_LONGEST) {
        mo_op_refuse(job, "rotates %d values of %" PRId64 " tokens by %" PRId64 " rows of %" PRId64, o->n_rot,
                     n, o->rope_rows, o->rope_stride);
    }
    for (int64_t t = 0; job->status == MO_OK && t < n; t++) {
        const mo_op_cache c = mo_op_cache_of(job, &places[t], o->layer, shape);
        uint8_t *block = mo_op_block_of(job, &c, places[t].position);
        if (job->status == MO_OK) {
            const mo_kv_head kv = mo_kv_head_of(shape, 0, &block, 1);
            prepare_token(job, &p, t, &kv, places[t].position);
        }
    }
    if (job->status == MO_OK) {
        write_groups(&p);
    }
    return job->status;
}

mo_status mo_op_host_collect(mo_op_job *job, const mo_op_collect *o)
{
    if (o->tokens == 0) {
        return MO_OK;
    }
    const float *from = mo_op_floats(job, "from", o->from, (int64_t)o->heads * o->tokens * o->n);
    const int64_t gates = o->each ? o->n : 1;
    const float *gate =
        o->gate ? mo_op_floats(job, "gate", o->gate, (int64_t)o->heads * o->tokens * gates) : NULL;
    const mo_acts out = mo_op_acts(job, "out", &o->out, o->tokens, true, true);
    for (int64_t t = 0; job->status == MO_OK && t < o->tokens; t++) {
        for (int64_t h = 0; h < o->heads; h++) {
            const int64_t at = t * o->heads + h;
            memmove(out.x + at * o->n, from + (o->by_token ? at : h * o->tokens + t) * o->n,
                    sizeof *from * (size_t)o->n);
            if (gate) {
                mo_heads_gate(job->k, (mo_gate_kind)o->kind, gate + at * gates, o->each, o->n,
                              out.x + at * o->n);
            }
        }
        mo_op_quantize(job->k, &out, t);
    }
    return job->status;
}
