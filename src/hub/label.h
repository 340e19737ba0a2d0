/* Label: what the names of model files say: which quantization it is, and which part of how many. */
#ifndef HUB_LABEL_H
#define HUB_LABEL_H

#include <stdbool.h>
#include <stddef.h>

/* Is this "PREFIX-00001-of-00003.gguf"? Then its number, the count, and the length of PREFIX. */
bool hub_label_split(const char *path, int *no, int *count, size_t *prefix);

/* "Q4_K_M" of "Model-Q4_K_M-00001-of-00002.gguf"; where the name has no such word, the name without .gguf and part. */
void hub_label_of(const char *path, char *label, size_t size);

/* Are these the same label? Case does not matter, nor do - and _. */
bool hub_label_same(const char *a, const char *b);

#endif
