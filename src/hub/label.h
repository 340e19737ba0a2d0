/* Label: what the names of model files say: which quantization it is, and which part of how many. */
#ifndef HUB_LABEL_H
#define HUB_LABEL_H

#include <stdbool.h>
#include <stddef.h>

/* Is this "PREFIX-00001-of-00003.gguf"? Then its number, the count, and the length of PREFIX. */
bool hub_label_split(const char *path, int *no, int *count, size_t *prefix);

/* "Q4_K_M" of "Model-Q4_K_M-00001-of-00002.gguf"; where the name has no such word, the name without .gguf and part. */
void hub_label_of(const char *path, char *label, size_t size);

/* The name without folders, .gguf and part: it tells models of the same label apart. */
void hub_label_stem(const char *path, char *stem, size_t size);

/* Are these the same label? Case does not matter, nor do - and _. */
bool hub_label_same(const char *a, const char *b);

/* Does the model with this file fit? `file` names one of its own, all parts of a split model counting as the same; `quant` is its label or
 * its stem. Either may be "": then it is not asked for. */
bool hub_label_means(const char *path, const char *file, const char *quant);

enum { HUB_NONE = -1, HUB_SEVERAL = -2 };

/* Which of several models is meant, each given by its first file. Without file and quant it is the only one, or that of the first of these
 * labels that there is: Q4_K_M, UD-Q4_K_XL, MXFP4, MXFP4_MOE. */
int hub_label_choose(const char *const *paths, int count, const char *file, const char *quant);

#endif
