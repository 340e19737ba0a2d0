/* Moraine: pictures as input. A model that was opened with the file of an encoder (mo_model_options.mmproj) reads pictures in the place of
 * tokens (docs/pictures.md). The conventions are those of moraine.h.
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

/* A picture for one model. Any thread may use it, several at once. */
typedef struct mo_image mo_image;

/* Decodes an image file in memory, of any of the formats that mo_image_formats() lists, and resizes it for the model's encoder; its rows are
 * computed later, when they are first needed. Any thread. MO_EUNSUPPORTED: the model was opened without an encoder, or this build does
 * not read the format; MO_EFORMAT: no picture, or a damaged one; MO_ENOSPC: larger than 20 MB, 16384 pixels on a side or 64 Mi pixels. */
MO_API mo_status mo_image_open(mo_model *model, const void *bytes, size_t size, mo_image **out,
                               mo_error *err);
MO_API void mo_image_close(mo_image *image); /* generations that have it keep it; before the model */
MO_API const char *mo_image_formats(void);   /* such as "PNG, JPEG and BMP": a constant */

typedef struct mo_image_info {
    int64_t file_width, file_height; /* pixels */
    int64_t width, height;           /* of what the encoder reads */
    int64_t tokens;                  /* that it takes the place of in a sequence */
    bool encoded;                    /* its rows are computed */
} mo_image_info;
MO_API void mo_image_describe(const mo_image *image, mo_image_info *out, size_t size);

/* Computes its rows now, if they are not there yet; feeds do it by themselves. progress: layers done, and all of them; NULL: none. It
 * and steps of the model take turns: each waits for the other's layer, or step. */
MO_API mo_status mo_image_encode(mo_image *image, mo_progress_fn progress, void *user, mo_error *err);

/* Does the model read pictures: was it opened with an encoder? */
MO_API bool mo_model_reads_pictures(const mo_model *model);

/* What stands for a picture in a text. */
#define MO_IMAGE_MARK "<__media__>"
/* Token ids of a text, as mo_tokenize() makes them, in which every MO_IMAGE_MARK becomes a number below 0 between the tokens with which the
 * model's pictures begin and end. mo_free() *ids. Such numbers also stand for the pictures of a prompt of mo_prompt_open(), which are parts of type
 * "image", "image_url" or "input_image" of a message's content; what else these parts say is not looked at. */
MO_API mo_status mo_images_tokenize(const mo_model *model, const char *text, size_t length, int flags,
                                    int32_t **ids, size_t *count, mo_error *err);
/* Such ids with the pictures, in their order, in the places of the numbers below 0. mo_free() *out. MO_EINVAL: there are more or fewer. */
MO_API mo_status mo_images_place(mo_image *const *images, int image_count, const int32_t *ids, size_t count,
                                 int32_t **out, size_t *out_count, mo_error *err);
/* The pictures of the sequences with which the generation is prompted from now on, in their order; 0: none. Not while it is stepped. */
MO_API mo_status mo_generation_images(mo_generation *generation, mo_image *const *images, int count,
                                      mo_error *err);

#ifdef __cplusplus
}
#endif
#endif
