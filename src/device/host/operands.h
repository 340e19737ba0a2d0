/* Operands of ops on the host: what they run on, and how addresses become memory. */
#ifndef MO_DEVICE_HOST_OPERANDS_H
#define MO_DEVICE_HOST_OPERANDS_H

#include <stdbool.h>

#include "device/op.h"
#include "numeric/kernels.h"

/* Turns a device address into a pointer to `bytes` readable and writable bytes, or NULL when it is not one (then the
 * op fails). Not called for address 0. */
typedef void *(*mo_op_resolve)(void *user, mo_daddr address, int64_t bytes);

typedef struct mo_op_host {
    const mo_kernels *kernels;
    mo_op_resolve resolve;
    bool (*stopped)(void *user); /* NULL, or: MO_OP_AWAIT asks whether it should give up, as for an abort */
    void *user;
} mo_op_host;

/* One op under way. Finding an operand that is not there fails the job and gives NULL; an op finds all its operands,
 * looks at `status` once, and computes only then. */
typedef struct mo_op_job {
    const mo_op_host *host;
    const mo_kernels *k;
    mo_scratch *scratch;
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

/* Memory for a state of that many floats, to be freed, if it has to stay; NULL if it moves on, or if memory ran out, which fails the job. */
float *mo_op_state_copy(mo_op_job *job, int32_t state, int64_t count);

/* Are the slice's tokens among the step's? Fails the job otherwise. */
bool mo_op_slice_fits(mo_op_job *job, const mo_dslice *slice, int tokens);

/* Sets a flag of op.h's `bad` kind; NULL is allowed. */
void mo_op_set_bad(uint32_t *bad, uint32_t value);

#endif
