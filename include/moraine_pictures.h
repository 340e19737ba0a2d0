/* Moraine: pictures as input. A model opened with an encoder file (mo_model_options.mmproj) reads pictures in
 * place of tokens (docs/pictures.md). The conventions of moraine.h apply.
 *
 *     mo_image *image = NULL;
 *     int32_t *tokens = NULL;
 *     size_t count;
 *     const char *chat = "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"What is it?\"}]}]";
 *     (open a model with `mmproj`, a session, a prompt of `chat` and a generation, as in moraine.h)
 *     const int32_t *plain = mo_prompt_tokens(prompt, &count);
 *     if (mo_image_open(model, file, file_size, &image, &err) != MO_OK ||
 *         mo_images_place(&image, 1, plain, count, &tokens, &count, &err) != MO_OK ||
 *         mo_generation_images(generation, &image, 1, &err) != MO_OK ||
 *         mo_generation_prompt(generation, session, tokens, (int64_t)count, &err) != MO_OK) {
 *         return fail(&err);
 *     } (then step as usual, mo_free(tokens), and close the image) */
#ifndef MORAINE_PICTURES_H
#define MORAINE_PICTURES_H

#include "moraine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A picture for one model. Any number of threads may use it at once. */
typedef struct mo_image mo_image;

/* Decodes an image file in memory, in a format that mo_image_formats() lists, and resizes it for the model's
 * encoder. The encoder computes its rows when they are first needed. Any thread. MO_EUNSUPPORTED: the model
 * was opened without an encoder, or this build does not read the format. MO_EFORMAT: not a picture, or
 * damaged. MO_ENOSPC: more than 20 MB, 16384 pixels per side or 64 Mi pixels. */
MO_API mo_status mo_image_open(mo_model *model, const void *bytes, size_t size, mo_image **out,
                               mo_error *err);
MO_API void mo_image_close(mo_image *image); /* close it before the model; generations that use it keep it */
MO_API const char *mo_image_formats(void);   /* such as "PNG, JPEG and BMP": a constant */

typedef struct mo_image_info {
    int64_t file_width, file_height; /* pixels */
    int64_t width, height;           /* size that the encoder reads */
    int64_t tokens;                  /* number of tokens it replaces in a sequence */
    bool encoded;                    /* the encoder has computed its rows */
} mo_image_info;
MO_API void mo_image_describe(const mo_image *image, mo_image_info *out, size_t size);

/* Computes the picture's rows now, if they are not computed yet; feeds do so by themselves. progress: layers
 * done and in total; may be NULL. Encoding and steps of the model alternate: the encoder waits for a step, a
 * step for one layer of the encoder. */
MO_API mo_status mo_image_encode(mo_image *image, mo_progress_fn progress, void *user, mo_error *err);

/* True if the model was opened with an encoder. */
MO_API bool mo_model_reads_pictures(const mo_model *model);

/* Placeholder for a picture in a text. */
#define MO_IMAGE_MARK "<__media__>"
/* Token ids of a text, like mo_tokenize(). Each MO_IMAGE_MARK becomes a negative number between the model's
 * begin and end tokens of a picture. mo_free() *ids. Negative numbers also stand for the pictures in a prompt
 * of mo_prompt_open(): content parts of type "image", "image_url" or "input_image", whose other members are
 * ignored. */
MO_API mo_status mo_images_tokenize(const mo_model *model, const char *text, size_t length, int flags,
                                    int32_t **ids, size_t *count, mo_error *err);
/* Replaces the negative numbers in such ids by the pictures, in order. mo_free() *out. MO_EINVAL: the counts
 * differ. */
MO_API mo_status mo_images_place(mo_image *const *images, int image_count, const int32_t *ids, size_t count,
                                 int32_t **out, size_t *out_count, mo_error *err);
/* Sets the pictures of the sequences that the generation is prompted with from now on, in order; 0: none. Do
 * not call it during a step. */
MO_API mo_status mo_generation_images(mo_generation *generation, mo_image *const *images, int count,
                                      mo_error *err);

#ifdef __cplusplus
}
#endif
#endif
