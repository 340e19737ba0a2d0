/* Commit: the end of a step with drafts on a device, like engine/commit.c on the CPU. Private to gpu/. */
#ifndef MO_GPU_COMMIT_H
#define MO_GPU_COMMIT_H

#include "gpu/ops.h"

/* Applies drafts->accepted[count] to the states of the device's recurrent layers, except those in
 * skip[layers] (NULL: none). Does not wait. */
mo_status mo_gpu_commit(mo_gpu_drafts *drafts, mo_gpu_link *link, int count, const bool *skip, mo_error *err);

#endif
