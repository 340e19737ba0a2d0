/* The ops on the host, and what several of them do. Private to their files. */
#ifndef MO_DEVICE_HOST_OPS_H
#define MO_DEVICE_HOST_OPS_H

#include "device/host/operands.h"

/* ---- Matrices ---- */

typedef struct mo_op_matrix {
    mo_weights w;
    const float *scale, *bias; /* or NULL */
} mo_op_matrix;

/* The matrix at `data` with expert's scale and bias (0 for a core matrix). */
mo_op_matrix mo_op_matrix_at(mo_op_job *job, const char *operand, const mo_dmatrix *m, mo_daddr data,
                             int64_t expert);

/* The activations that the matrix reads: values or codes, as its type wants. */
mo_acts mo_op_acts_for(mo_op_job *job, const char *operand, const mo_dacts *a, int64_t rows,
                       const mo_dmatrix *m);

/* y[t * stride + r - begin] for rows [begin, end) of the matrix, scaled and with bias. */
void mo_op_multiply(const mo_op_job *job, const mo_op_matrix *m, int64_t begin, int64_t end,
                    const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t stride);

/* ---- The ops; each returns job->status ---- */

mo_status mo_op_host_stream(mo_op_job *job, const mo_op_stream *o);
mo_status mo_op_host_logits(mo_op_job *job, const mo_op_logits *o);
mo_status mo_op_host_product(mo_op_job *job, const mo_op_product *o);
mo_status mo_op_host_grouped(mo_op_job *job, const mo_op_grouped *o);
mo_status mo_op_host_round(mo_op_job *job, const mo_op_round *o);
mo_status mo_op_host_to_bf16(mo_op_job *job, const mo_op_to_bf16 *o);
mo_status mo_op_host_bf16(mo_op_job *job, const mo_op_bf16 *o);
mo_status mo_op_host_activate(mo_op_job *job, const mo_op_activate *o);
mo_status mo_op_host_heads(mo_op_job *job, const mo_op_heads *o);
mo_status mo_op_host_latent(mo_op_job *job, const mo_op_latent *o);
mo_status mo_op_host_index(mo_op_job *job, const mo_op_index *o);
mo_status mo_op_host_keep(mo_op_job *job, const mo_op_keep *o);
mo_status mo_op_host_gather(mo_op_job *job, const mo_op_gather *o);
mo_status mo_op_host_collect(mo_op_job *job, const mo_op_collect *o);
mo_status mo_op_host_attend(mo_op_job *job, const mo_op_attend *o);
mo_status mo_op_host_convolve(mo_op_job *job, const mo_op_convolve *o);
mo_status mo_op_host_recur(mo_op_job *job, const mo_op_recur *o);
mo_status mo_op_host_short_conv(mo_op_job *job, const mo_op_short_conv *o);
mo_status mo_op_host_ssm_convolve(mo_op_job *job, const mo_op_ssm_convolve *o);
mo_status mo_op_host_ssm_parts(mo_op_job *job, const mo_op_ssm_parts *o);
mo_status mo_op_host_ssm_scan(mo_op_job *job, const mo_op_ssm_scan *o);
mo_status mo_op_host_choose(mo_op_job *job, const mo_op_choose *o);
mo_status mo_op_host_arrange(mo_op_job *job, const mo_op_arrange *o);
mo_status mo_op_host_experts_in(mo_op_job *job, const mo_op_experts *o);
mo_status mo_op_host_experts_down(mo_op_job *job, const mo_op_experts *o);
mo_status mo_op_host_publish(mo_op_job *job, const mo_op_publish *o);
mo_status mo_op_host_await(mo_op_job *job, const mo_op_await *o, int64_t limit_ns);
mo_status mo_op_host_lower(mo_op_job *job, const mo_op_adapt *o);
mo_status mo_op_host_adapt(mo_op_job *job, const mo_op_adapt *o);
mo_status mo_op_host_restore(mo_op_job *job, const mo_op_restore *o);

#endif
