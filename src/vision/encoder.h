/* Encoder: a clip file (mmproj) in memory: it makes rows of embeddings of a picture, which a text model reads in place of
 * tokens. Constant once it is open: any thread may use it. docs/numerics.md defines every value. */
#ifndef MO_VISION_ENCODER_H
#define MO_VISION_ENCODER_H

#include "base/pool.h"
#include "numeric/kernels.h"
#include "picture/picture.h"
#include "vision/spec.h"

typedef struct mo_encoder mo_encoder;

/* MO_EUNSUPPORTED names a projector or a format that is not read; MO_EFORMAT the key or tensor that is missing or does not fit.
 * describe: reads no weights, for reports and plans; such an encoder cannot run. */
mo_status mo_encoder_open(const char *path, bool describe, mo_encoder **out, mo_error *err);
void mo_encoder_close(mo_encoder *e); /* NULL is allowed */

const mo_vision_spec *mo_encoder_spec(const mo_encoder *e);
int64_t mo_encoder_weight_bytes(const mo_encoder *e); /* that it holds, or would */

/* The sizes that it reads. 0: its own limits. MO_EINVAL: min is above max. */
mo_status mo_encoder_rule(const mo_encoder *e, int64_t min_rows, int64_t max_rows, mo_resize_rule *out,
                          mo_error *err);

/* Rows of a picture of a size that the rule allows. */
int64_t mo_encoder_rows(const mo_encoder *e, int64_t width, int64_t height);

/* Is a picture of that size one that it can read, once a rule has resized it? */
mo_status mo_encoder_check(const mo_encoder *e, int64_t width, int64_t height, mo_error *err);

/* A number that tells encoders apart, by their description and their weights. */
uint64_t mo_encoder_hash(const mo_encoder *e);

/* Who computes. Nothing of it changes a bit of the result. */
typedef struct mo_encoder_work {
    mo_pool *pool;
    const mo_kernels *kernels;
    int64_t batch; /* patches that go through a product together; 0: a good number */
    mo_progress_fn
        progress; /* layers done and in all, from the calling thread; false cancels (MO_ECANCELLED). NULL: none */
    void *user;
} mo_encoder_work;

/* Bytes that mo_encoder_run() takes for a picture of this size while it runs. */
int64_t mo_encoder_work_bytes(const mo_encoder *e, const mo_encoder_work *work, int64_t width,
                              int64_t height);

/* The same for the largest picture that a rule allows, with this number of threads. */
int64_t mo_encoder_most_bytes(const mo_encoder *e, const mo_resize_rule *rule, int threads);

/* out[rows][mo_vision_row()]. The picture has a size that the rule allows. MO_EFORMAT: a value of the result is not finite. */
mo_status mo_encoder_run(const mo_encoder *e, const mo_encoder_work *work, const mo_picture *picture,
                         float *out, mo_error *err);

/* The values of `count` patches from number `first` on, in the order in which the encoder reads them: out[count][3][patch][patch]. */
void mo_encoder_patches(const mo_encoder *e, const mo_picture *picture, int64_t first, int64_t count,
                        float *out);

#endif
