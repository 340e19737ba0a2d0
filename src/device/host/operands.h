/* Parts of the host's ops: how operands are found, and what several ops do. Private to op_host*.c. */
#ifndef MO_DEVICE_HOST_OPERANDS_H
#define MO_DEVICE_HOST_OPERANDS_H

#include <stdbool.h>

#include "device/host/run.h"

/* One op under way. Finding an operand that is not there fails the job and gives NULL; an op finds all its operands,
 * looks at `status` once, and computes only then. */
typedef struct mo_op_job {
    const mo_op_host *host;
    const mo_kernels *k;
    const char *name; /* of the op */
    mo_status status;
    mo_error *err;
} mo_op_job;

/* Fails the job with a sentence; the first failure stays. */
void mo_op_refuse(mo_op_job *job, const char *fmt, ...) MO_PRINTF(2, 3);

/* The bytes behind an address; `operand` names it for people. */
void *mo_op_part(mo_op_job *job, const char *operand, mo_daddr address, int64_t bytes);
void *mo_op_part_or_none(mo_op_job *job, const char *operand, mo_daddr address,
                         int64_t bytes); /* address 0: NULL */
float *mo_op_floats(mo_op_job *job, const char *operand, mo_daddr address, int64_t count);
float *mo_op_floats_or_none(mo_op_job *job, const char *operand, mo_daddr address, int64_t count);

/* Activations of `rows` rows: the values where `values`, the codes where `codes` and the length allows them. */
mo_acts mo_op_acts(mo_op_job *job, const char *operand, const mo_dacts *a, int64_t rows, bool values,
                   bool codes);

/* Codes of one row, where its length allows them. */
void mo_op_quantize(const mo_kernels *k, const mo_acts *a, int64_t row);

/* A layer of a session's state, read from device memory. */
mo_dstate mo_op_layer(mo_op_job *job, mo_daddr layers, int layer);

/* Sets a flag of op.h's `bad` kind; NULL is allowed. */
void mo_op_set_bad(uint32_t *bad, uint32_t value);

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
void mo_op_multiply(const mo_kernels *k, const mo_op_matrix *m, int64_t begin, int64_t end,
                    const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t stride);

void mo_op_activate_row(const mo_kernels *k, int activation, float *y, const float *g, const float *u,
                        int64_t n);

/* ---- The ops; each returns job->status ---- */

mo_status mo_op_host_stream(mo_op_job *job, const mo_op_stream *o);
mo_status mo_op_host_logits(mo_op_job *job, const mo_op_logits *o);
mo_status mo_op_host_product(mo_op_job *job, const mo_op_product *o);
mo_status mo_op_host_grouped(mo_op_job *job, const mo_op_grouped *o);
mo_status mo_op_host_activate(mo_op_job *job, const mo_op_activate *o);
mo_status mo_op_host_heads(mo_op_job *job, const mo_op_heads *o);
mo_status mo_op_host_attend(mo_op_job *job, const mo_op_attend *o);
mo_status mo_op_host_convolve(mo_op_job *job, const mo_op_convolve *o);
mo_status mo_op_host_recur(mo_op_job *job, const mo_op_recur *o);
mo_status mo_op_host_choose(mo_op_job *job, const mo_op_choose *o);
mo_status mo_op_host_experts_in(mo_op_job *job, const mo_op_experts *o);
mo_status mo_op_host_experts_down(mo_op_job *job, const mo_op_experts *o);
mo_status mo_op_host_publish(mo_op_job *job, const mo_op_publish *o);
mo_status mo_op_host_await(mo_op_job *job, const mo_op_await *o, int64_t limit_ns);
mo_status mo_op_host_restore(mo_op_job *job, const mo_op_restore *o);

#endif
