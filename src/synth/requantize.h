/* Requantize: writes a model in other formats, by pieces, so that memory does not grow with the model. */
#ifndef MO_SYNTH_REQUANTIZE_H
#define MO_SYNTH_REQUANTIZE_H

#include "gguf/read.h"
#include "moraine_server.h"

/* Writes the model to path; see mo_quantize() in moraine.h. The caller keeps g. */
mo_status mo_requantize(const mo_gguf *g, const char *path, const mo_quantize_options *options,
                        mo_progress_fn progress, void *user, mo_quantize_report *report, mo_error *err);

/* The class of a tensor by its name and sizes. */
mo_tensor_class mo_requantize_class(const mo_gguf_tensor *tensor);

#endif
