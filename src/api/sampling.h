/* Sampling: the parameters that a model file recommends. */
#ifndef MO_API_SAMPLING_H
#define MO_API_SAMPLING_H

#include "gguf/read.h"
#include "moraine_server.h"

/* Copies general.sampling.* into the options. Missing, mistyped and invalid keys change nothing. */
void mo_sampling_recommended(const mo_gguf *g, mo_sampler_options *options);

#endif
