/* Sampling: what a file recommends. */
#ifndef MO_API_SAMPLING_H
#define MO_API_SAMPLING_H

#include "gguf/read.h"
#include "moraine_server.h"

/* Puts what general.sampling.* says over the options; keys that are absent, of another type or make no sense change nothing. */
void mo_sampling_recommended(const mo_gguf *g, mo_sampler_options *options);

#endif
