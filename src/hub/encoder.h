/* Encoder: the file with which a model reads pictures (clip, mmproj): which one belongs to a model, by its name. */
#ifndef HUB_ENCODER_H
#define HUB_ENCODER_H

#include <stdbool.h>
#include <stddef.h>

/* Does the file's name say that it is one: has it "mmproj", and ends in .gguf? Folders do not count. */
bool hub_encoder_named(const char *path);

/* Is `a` the better one for the model? The one whose name has more words in common with the model's, then F16 before BF16, Q8_0 and F32. */
bool hub_encoder_better(const char *a, const char *b, const char *model);

/* Where a model's encoder is looked for: in its folder and, if that has its name from the model, as Q8_0/M-Q8_0.gguf, in the one above.
 * The length of the path of that one, with its slash; false: there is none. */
bool hub_encoder_above(const char *model, size_t *length);

/* Is the encoder where it is looked for? */
bool hub_encoder_beside(const char *path, const char *model);

#endif
