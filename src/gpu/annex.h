/* Annex: the device of a rank that has experts of a model and nothing else of it (engine/annex.h). Its slots are filled once, with those of
 * the same number in every layer together; what is asked of these it computes, and the CPU the rest. RAM keeps what it would hold alone,
 * so that a device that is lost costs speed and nothing else. */
#ifndef MO_GPU_ANNEX_H
#define MO_GPU_ANNEX_H

#include "engine/annex.h"
#include "gpu/gpu.h"

typedef struct mo_gpu_annex mo_gpu_annex;

/* As mo_gpu_open(), of a model whose experts are alone here. Experts that are on disk are read and sent while it opens. */
mo_status mo_gpu_annex_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu_annex **out,
                            mo_error *err);
/* One device more, with the layers that follow; closed with the first. On failure that is as it was. */
mo_status mo_gpu_annex_join(mo_gpu_annex *first, const mo_checkpoint *model, const mo_gpu_options *options,
                            mo_error *err);
void mo_gpu_annex_close(mo_gpu_annex *annex); /* NULL is allowed */

/* What the engine calls; the annex's own. NULL of NULL. */
const mo_annex *mo_gpu_annex_of(const mo_gpu_annex *annex);

/* Slots of all its devices, and how many hold an expert. */
void mo_gpu_annex_slots(const mo_gpu_annex *annex, int32_t *slots, int32_t *filled);

#endif
