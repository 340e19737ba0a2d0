/* Image: a picture as sessions take it: rows of embeddings in the place of tokens. In a sequence of tokens the rows are numbers below 0, made
 * from a hash of the picture, so that sequences are compared like those of text. Who makes the rows stands above the engine. */
#ifndef MO_ENGINE_IMAGE_H
#define MO_ENGINE_IMAGE_H

#include <stdatomic.h>

#include "model/parts.h"
#include "moraine_pictures.h"

struct mo_image {
    atomic_int holders;     /* the last one frees it */
    int64_t columns, lines; /* of its rows, which are in order line by line */
    int64_t width;          /* of the text model; features of a row stand behind its first vector */
    int features;
    const int32_t *tokens;         /* [rows], below -1 */
    _Atomic(const float *) values; /* [rows][(1 + features) * width]; NULL: not made yet */
    /* Makes them, once; by any thread that holds it, and not while it has the engine's lock. */
    mo_status (*make)(struct mo_image *image, mo_progress_fn progress, void *user, mo_error *err);
    void (*drop)(struct mo_image *image);
};

static inline int64_t mo_image_rows(const mo_image *image)
{
    return image->columns * image->lines;
}

void mo_image_hold(mo_image *image);
void mo_image_release(mo_image *image); /* NULL is allowed */

/* Where an image stands in a sequence. */
typedef struct mo_image_place {
    mo_image *image;
    int64_t at;   /* the number of its first row in the sequence */
    int64_t next; /* the position of what stands behind it */
} mo_image_place;

/* What ranks with later layers are told of a token, in the place of images. */
typedef struct mo_row_place {
    int64_t position[3]; /* that its heads turn by */
    int32_t ahead;       /* rows behind it that it sees in layers with a window */
    int32_t added;       /* the number of its features among those that are told, from 1; 0: it has none */
} mo_row_place;

/* The images of a sequence, in their order, and as the model reads them. */
typedef struct mo_image_list {
    const mo_picture_rule *rule;
    mo_image_place *place;
    int count, space;
} mo_image_list;

/* Finds the images in a sequence, in which they stand in this order. MO_EINVAL: they do not, or it ends within one, or one is for
 * another model. Allocates only where the list has more of them than ever before. */
mo_status mo_image_list_make(mo_image_list *list, const mo_model_spec *spec, mo_image *const *images,
                             int count, const int32_t *tokens, int64_t token_count, mo_error *err);
void mo_image_list_drop(mo_image_list *list);

/* The image whose row stands at number `at` of the sequence, or NULL. */
const mo_image_place *mo_image_list_find(const mo_image_list *list, int64_t at);

/* The position of what stands there: of rows in a grid all three coordinates, else three times the same. */
void mo_image_list_position(const mo_image_list *list, int64_t at, int64_t position[3]);

/* A length that is not within an image, at most this one. */
int64_t mo_image_list_whole(const mo_image_list *list, int64_t length);

/* Makes the values of all images from number `from` of the sequence on, unless somebody sets *cancel: MO_ECANCELLED. */
mo_status mo_image_list_fill(const mo_image_list *list, int64_t from, const atomic_bool *cancel,
                             mo_error *err);

#endif
