/* Synth: writes a GGUF file with the shape of a published model and random weights. */
#ifndef MO_SYNTH_SYNTH_H
#define MO_SYNTH_SYNTH_H

#include "synth/like.h"

/* Checks the options and describes the file without writing it. like: a model whose header gives the
   contents; NULL: the shape does. With a model the options type, experts and vocabulary follow its header. */
mo_status mo_synth_plan(const mo_shape *shape, const mo_like *like, const mo_synth_options *options,
                        mo_synth_info *out, mo_error *err);

/* Writes the file; see mo_synth() in moraine.h. */
mo_status mo_synth_write(const mo_shape *shape, const mo_like *like, const char *path,
                         const mo_synth_options *options, mo_progress_fn progress, void *user, mo_error *err);

/* Writes only the header into an empty file; the weights are a hole. */
mo_status mo_synth_write_header(const mo_shape *shape, const mo_synth_options *options, int fd,
                                mo_error *err);

/* Writes the factor of each of `experts` router rows: exp(skew * z) for z from -1 to 1 in an order given by
   seed and name, scaled so that the mean square is 1. */
void mo_synth_skew(uint64_t seed, const char *name, float skew, int experts, float *out);

#endif
