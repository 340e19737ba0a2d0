/* Encoder: the file for reading pictures (clip, mmproj), and which one belongs to a model, by its name. */
#ifndef HUB_ENCODER_H
#define HUB_ENCODER_H

#include <stdbool.h>
#include <stddef.h>

/* Is the file an encoder by its name: contains "mmproj" and ends in .gguf? Folders are ignored. */
bool hub_encoder_named(const char *path);

/* Is `a` better for the model? The name that shares more words with the model's; then F16 before BF16, Q8_0
   and F32. */
bool hub_encoder_better(const char *a, const char *b, const char *model);

/* A model's encoder is searched in its folder and, if the folder's name is part of the model's
   (Q8_0/M-Q8_0.gguf), in the folder above. *length: of the path of the folder above, with its slash. False:
   there is none. */
bool hub_encoder_above(const char *model, size_t *length);

/* Is the encoder in one of these folders? */
bool hub_encoder_beside(const char *path, const char *model);

#endif
