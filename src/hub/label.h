/* Label: the parts of a model file's name: quantization, and number of the part. */
#ifndef HUB_LABEL_H
#define HUB_LABEL_H

#include <stdbool.h>
#include <stddef.h>

/* Is this "PREFIX-00001-of-00003.gguf"? Returns the number, the count and the length of PREFIX. */
bool hub_label_split(const char *path, int *no, int *count, size_t *prefix);

/* "Q4_K_M" for "Model-Q4_K_M-00001-of-00002.gguf". Without such a word: the name without .gguf and part. */
void hub_label_of(const char *path, char *label, size_t size);

/* The name without folders, .gguf and part, which distinguishes models with the same label. */
void hub_label_stem(const char *path, char *stem, size_t size);

/* Are the labels equal, ignoring case and treating - and _ alike? */
bool hub_label_same(const char *a, const char *b);

/* Does the model with this file match? `file` names one of its files (any part of a split model); `quant` is
   its label or stem. "" matches all. */
bool hub_label_means(const char *path, const char *file, const char *quant);

enum { HUB_NONE = -1, HUB_SEVERAL = -2 };

/* Chooses one of several models, each given by its first file. Without file and quant: the only one, or the
   first existing label of Q4_K_M, UD-Q4_K_XL, MXFP4, MXFP4_MOE. */
int hub_label_choose(const char *const *paths, int count, const char *file, const char *quant);

#endif
