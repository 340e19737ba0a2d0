/* Fingerprint: a number that tells models apart, for what is learned about them (profiles, traces). */
#ifndef MO_GGUF_FINGERPRINT_H
#define MO_GGUF_FINGERPRINT_H

#include "gguf/read.h"

/* The fingerprint of an opened model, never 0. The same on every machine, for a model in one file or split
 * into many, and whatever the order, alignment and place of its tensors in the files.
 *
 * Over: the architecture and all its keys ("qwen3moe.*": every hyperparameter); the model's own names
 * (general.name, .basename, .finetune, .version, .size_label); every tensor's name, format, sizes and
 * bytes. Not over: the vocabulary and the chat template, which are fixed without the weights changing (a
 * vocabulary of another size shows in the embedding), and offsets, which splitting changes.
 *
 * No tensor data are read. So two models with the same names, keys and sizes but other weights share a
 * fingerprint: good enough for what only guides speed, not for copies of weights. Any thread; cannot fail. */
uint64_t mo_gguf_fingerprint(const mo_gguf *g);

#endif
