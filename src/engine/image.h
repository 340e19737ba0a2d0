/* Image: a picture in a session: rows of embeddings in place of tokens. In a token sequence the rows are
 * negative numbers made from a hash of the picture, so that sequences compare like those of text. The code
 * that computes the rows is above the engine. */
#ifndef MO_ENGINE_IMAGE_H
#define MO_ENGINE_IMAGE_H

#include <stdatomic.h>

#include "model/parts.h"
#include "moraine_pictures.h"

struct mo_image {
    atomic_int holders;     /* the last one frees it */
    int64_t columns, lines; /* of its rows, which are in line order */
    int64_t width;          /* width of the text model; a row's features follow its first vector */
    int features;
    const int32_t *tokens;         /* [rows], below -1 */
    _Atomic(const float *) values; /* [rows][(1 + features) * width]; NULL: not computed yet */
    /* Computes the values once. Any thread that holds the image may call it, without the engine's lock. */
    mo_status (*make)(struct mo_image *image, mo_progress_fn progress, void *user, mo_error *err);
    void (*drop)(struct mo_image *image);
};

static inline int64_t mo_image_rows(const mo_image *image)
{
    return image->columns * image->lines;
}

void mo_image_hold(mo_image *image);
void mo_image_release(mo_image *image); /* NULL is allowed */

/* Position of an image in a sequence. */
typedef struct mo_image_place {
    mo_image *image;
    int64_t at;   /* index of its first row in the sequence */
    int64_t next; /* position of the element after it */
} mo_image_place;

/* What ranks with later layers receive about a token, in place of images. */
typedef struct mo_row_place {
    int64_t position[3]; /* for the rotation in its attention heads */
    int32_t ahead;       /* later rows that it sees in layers with a window */
    int32_t added;       /* index of its features among those sent, from 1; 0: none */
} mo_row_place;

/* The images of a sequence in order, with the model's rule for reading them. */
typedef struct mo_image_list {
    const mo_picture_rule *rule;
    mo_image_place *place;
    int count, space;
} mo_image_list;

/* Finds the images in a sequence, which must contain them in this order. MO_EINVAL: it does not, or it ends
 * within an image, or an image is for another model. Allocates only if the list has more images than
 * before. */
mo_status mo_image_list_make(mo_image_list *list, const mo_model_spec *spec, mo_image *const *images,
                             int count, const int32_t *tokens, int64_t token_count, mo_error *err);
void mo_image_list_drop(mo_image_list *list);

/* The image that has a row at index `at` of the sequence, or NULL. */
const mo_image_place *mo_image_list_find(const mo_image_list *list, int64_t at);

/* The position at this index: the three coordinates of a row in its grid, otherwise three times the same
 * value. */
void mo_image_list_position(const mo_image_list *list, int64_t at, int64_t position[3]);

/* The largest length up to this one that does not end within an image. */
int64_t mo_image_list_whole(const mo_image_list *list, int64_t length);

/* Computes the values of all images from index `from` of the sequence on, unless *cancel is set:
 * MO_ECANCELLED. */
mo_status mo_image_list_fill(const mo_image_list *list, int64_t from, const atomic_bool *cancel,
                             mo_error *err);

#endif
