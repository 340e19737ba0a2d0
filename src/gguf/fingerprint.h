/* Fingerprint: a number that identifies a model, for data learned about it (profiles, traces). */
#ifndef MO_GGUF_FINGERPRINT_H
#define MO_GGUF_FINGERPRINT_H

#include "gguf/read.h"

/* The fingerprint of an opened model, never 0. The same on every machine, for one file or many parts, and for
   any order, alignment and offset of tensors.

   It includes: the architecture and all its keys ("qwen3moe.*": every hyperparameter); the model's names
   (general.name, .basename, .finetune, .version, .size_label); each tensor's name, format, sizes and bytes.
   It excludes: vocabulary and chat template, which are corrected while the weights stay the same (another
   vocabulary size changes the embedding), and offsets, which splitting changes.

   No tensor data are read. So two models with the same names, keys and sizes but different weights have the
   same fingerprint. Use it only for data that affect speed, not for copies of weights. Any thread; cannot
   fail. */
uint64_t mo_gguf_fingerprint(const mo_gguf *g);

#endif
