/* Synth: a GGUF file of a published model's true shape with random weights. */
#ifndef MO_SYNTH_SYNTH_H
#define MO_SYNTH_SYNTH_H

#include "synth/like.h"

/* Checks the options and says what the file would be, without writing it. like: the model whose header says what the file has; NULL: the shape
 * alone does. Of a model the options type, experts and vocabulary are as the header says. */
mo_status mo_synth_plan(const mo_shape *shape, const mo_like *like, const mo_synth_options *options,
                        mo_synth_info *out, mo_error *err);

/* Makes the file; see mo_synth() of moraine.h. */
mo_status mo_synth_write(const mo_shape *shape, const mo_like *like, const char *path,
                         const mo_synth_options *options, mo_progress_fn progress, void *user, mo_error *err);

/* Writes the header alone into an empty file; weights are a hole behind it. */
mo_status mo_synth_write_header(const mo_shape *shape, const mo_synth_options *options, int fd,
                                mo_error *err);

/* By what each of `experts` router rows is multiplied: exp(skew * z) for z from -1 to 1 in an order that
 * seed and name shuffle, divided so that the mean square is 1. */
void mo_synth_skew(uint64_t seed, const char *name, float skew, int experts, float *out);

#endif
