/* The public API of images: converts image files to rows for a model with the model's encoder. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/array.h"
#include "base/digest.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/session.h"
#include "moraine_pictures.h"
#include "open/requirements.h"
#include "picture/decode.h"
#include "vision/device_run.h"
#include "vision/encoder.h"

struct mo_model_encoder {
    mo_encoder *encoder;
    mo_resize_rule rule;
    uint64_t identity; /* of its weights */
    bool told;         /* why the CPU encodes; under the engine's lock */
};

/* An image, before and after its rows are computed. */
typedef struct prepared {
    mo_image image; /* first member: the engine's view */
    mo_model *model;
    pthread_mutex_t lock; /* for computing the rows */
    mo_picture picture;   /* resized */
    int64_t file_width, file_height, width, height;
    int32_t *tokens;
    float *values;
} prepared;

/* ---- The model's encoder ---- */

mo_status mo_model_open_encoder(mo_model *m, const mo_model_options *o, mo_error *err)
{
    if (!o->mmproj || m->experts.alone || m->range.first > 0) { /* the first of several ranks has it */
        return MO_OK;
    }
    mo_model_encoder *e = calloc(1, sizeof *e);
    if (!e) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory while opening it", o->mmproj);
    }
    m->encoder = e;
    mo_status status = mo_encoder_open(o->mmproj, false, &e->encoder, err);
    if (status == MO_OK) {
        status = mo_requirements_fit_encoder(e->encoder, o->mmproj, m->engine->spec, err);
    }
    if (status == MO_OK) {
        status = mo_encoder_rule(e->encoder, o->image_min_tokens, o->image_max_tokens, &e->rule, err);
        e->identity = mo_encoder_hash(e->encoder);
    }
    return status;
}

void mo_model_close_encoder(mo_model *m)
{
    if (m->encoder) {
        mo_encoder_close(m->encoder->encoder);
        free(m->encoder);
    }
}

const char *mo_model_projector(const mo_model *m)
{
    return m->encoder ? mo_encoder_spec(m->encoder->encoder)->projector_name : NULL;
}

uint64_t mo_model_encoder_identity(const mo_model *m)
{
    return m->encoder ? m->encoder->identity : 0;
}

bool mo_model_reads_pictures(const mo_model *model)
{
    return model->encoder != NULL;
}

const char *mo_image_formats(void)
{
    return mo_picture_formats();
}

/* ---- Computing the rows ---- */

static void drop(mo_image *image)
{
    prepared *p = (prepared *)image;
    mo_picture_free(&p->picture);
    pthread_mutex_destroy(&p->lock);
    free(p->tokens);
    free(p->values);
    free(p);
}

/* The engine that encodes, the device if it does, and the progress callback. */
typedef struct encoding {
    mo_engine *engine;
    mo_gpu *gpu;
    mo_progress_fn progress;
    void *user;
} encoding;

/* Lets a waiting step run between two layers. */
static bool on_layer(void *user, int64_t done, int64_t total)
{
    const encoding *e = user;
    if (e->gpu) {
        mo_gpu_leave(e->gpu);
    }
    pthread_mutex_unlock(&e->engine->lock);
    const bool goes_on = !e->progress || e->progress(e->user, done, total);
    mo_engine_take_turn(e->engine);
    if (e->gpu) {
        mo_gpu_enter(e->gpu);
    }
    return goes_on;
}

/* Says once why a device does not encode. */
static void tell(mo_model_encoder *e, const char *why)
{
    if (!e->told) {
        e->told = true;
        mo_log(MO_LOG_WARN, "pictures", "the CPU encodes pictures, which takes longer: %s", why);
    }
}

/* On the model's first device, in memory that it has left. False: the CPU has to. */
static bool encode_there(prepared *p, encoding *own, const mo_encoder_work *work, float *values,
                         mo_status *status, mo_error *err)
{
    mo_model_encoder *m = p->model->encoder;
    mo_gpu *gpu = mo_model_gpu(p->model);
    const char *refusal = mo_encoder_device_refusal(m->encoder);
    const int64_t bytes = refusal ? 0 : mo_encoder_device_bytes(m->encoder, p->width, p->height);
    mo_device *device;
    mo_daddr memory = 0;
    mo_error why = {0};
    if (!gpu) {
        return false;
    }
    if (refusal) {
        tell(m, refusal);
        return false;
    }
    own->gpu = gpu;
    mo_gpu_enter(gpu);
    *status = mo_gpu_lend(gpu, bytes, "a picture", &device, &memory, &why);
    if (*status == MO_OK) {
        *status = mo_encoder_device_run(m->encoder, device, memory, work, &p->picture, values, &why);
        mo_gpu_take_back(gpu, memory, bytes);
    }
    mo_gpu_leave(gpu);
    own->gpu = NULL;
    if (*status != MO_OK && *status != MO_ECANCELLED && *status != MO_EFORMAT) {
        tell(m, why.detail);
        return false;
    }
    *err = why;
    return true;
}

/* Uses the model's threads between its steps. */
static mo_status encode(prepared *p, mo_progress_fn progress, void *user, mo_error *err)
{
    const mo_encoder *e = p->model->encoder->encoder;
    encoding own = {.engine = p->model->engine, .progress = progress, .user = user};
    const mo_encoder_work work = {
        .pool = p->model->pool, .kernels = own.engine->kernels, .progress = on_layer, .user = &own};
    const size_t floats = (size_t)(mo_image_rows(&p->image) * mo_vision_row(mo_encoder_spec(e)));
    float *values = malloc(floats * sizeof *values);
    if (!values) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the rows of a picture");
    }
    mo_engine_take_turn(own.engine);
    mo_status status = MO_OK;
    if (!encode_there(p, &own, &work, values, &status, err)) {
        status = mo_encoder_run(e, &work, &p->picture, values, err);
    }
    pthread_mutex_unlock(&own.engine->lock);
    if (status != MO_OK) {
        free(values);
        return status;
    }
    p->values = values;
    atomic_store(&p->image.values, values);
    return MO_OK;
}

static mo_status make(mo_image *image, mo_progress_fn progress, void *user, mo_error *err)
{
    prepared *p = (prepared *)image;
    mo_status status = mo_engine_check_process(p->model->engine, err);
    if (status != MO_OK) {
        return status;
    }
    pthread_mutex_lock(&p->lock);
    if (!atomic_load(&image->values)) {
        status = encode(p, progress, user, err);
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* ---- Opening ---- */

/* Chooses row ids below 0 that depend on the image, its size and the encoder, so that no other image has
 * them. */
static void name_rows(prepared *p)
{
    const uint64_t facts[] = {p->model->encoder->identity, (uint64_t)p->width, (uint64_t)p->height};
    uint8_t whole[MO_DIGEST_BYTES], some[MO_DIGEST_BYTES];
    mo_digest d;
    mo_digest_begin(&d);
    mo_digest_add(&d, facts, sizeof facts);
    mo_digest_add(&d, p->picture.rgb, (size_t)(p->width * p->height * 3));
    mo_digest_end(&d, whole);
    for (int64_t i = 0; i < mo_image_rows(&p->image); i++) {
        const size_t place = (size_t)(i * 4) % sizeof some;
        uint32_t number;
        if (place == 0) {
            mo_digest_begin(&d);
            mo_digest_add(&d, whole, sizeof whole);
            mo_digest_add(&d, &i, sizeof i);
            mo_digest_end(&d, some);
        }
        memcpy(&number, some + place, sizeof number);
        p->tokens[i] = (int32_t)(number % INT32_MAX) + INT32_MIN; /* -1 is reserved for whole images */
    }
}

/* Fills everything but the rows from the encoder's input pixels. */
static mo_status describe(prepared *p, mo_error *err)
{
    const mo_encoder *e = p->model->encoder->encoder;
    const mo_vision_spec *spec = mo_encoder_spec(e);
    const int64_t side = spec->patch * spec->merge;
    const mo_status status = mo_encoder_check(e, p->picture.width, p->picture.height, err);
    if (status != MO_OK) {
        return status;
    }
    p->width = p->picture.width;
    p->height = p->picture.height;
    p->image.columns = p->width / side;
    p->image.lines = p->height / side;
    p->image.width = spec->out;
    p->image.features = spec->features;
    p->image.tokens = p->tokens = malloc(sizeof *p->tokens * (size_t)mo_image_rows(&p->image));
    if (!p->tokens) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a picture");
    }
    name_rows(p);
    return mo_engine_check_image(p->model->engine, &p->image, false, err);
}

static mo_status decode(prepared *p, const void *bytes, size_t size, mo_error *err)
{
    const mo_model_encoder *e = p->model->encoder;
    mo_picture file;
    mo_status status = mo_picture_decode(bytes, size, NULL, &file, err);
    if (status != MO_OK) {
        return status;
    }
    const mo_resize_size to = mo_resize_find(&e->rule, file.width, file.height);
    const bool thin = to.width == e->rule.align || to.height == e->rule.align;
    status =
        thin && to.width * to.height > e->rule.max_pixels
            ? mo_fail(err, MO_EUNSUPPORTED,
                      "a picture of %lld x %lld pixels is too long and thin for the number of tokens that a "
                      "picture may have; cut it into parts",
                      (long long)file.width, (long long)file.height)
            : mo_resize_run(&file, &to, &p->picture, err);
    p->file_width = file.width;
    p->file_height = file.height;
    mo_picture_free(&file);
    return status;
}

/* Allocates an image without pixels. */
static mo_status begin(mo_model *model, prepared **out, mo_error *err)
{
    if (!model->encoder) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "the model reads no pictures without an encoder; open it with the encoder's file "
                       "(`mmproj`)");
    }
    prepared *p = *out = calloc(1, sizeof *p);
    if (!p) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a picture");
    }
    p->model = model;
    p->image.holders = 1;
    p->image.make = make;
    p->image.drop = drop;
    pthread_mutex_init(&p->lock, NULL);
    return MO_OK;
}

/* status: the result of reading the pixels. */
static mo_status finish(prepared *p, mo_status status, mo_image **out, mo_error *err)
{
    if (status == MO_OK) {
        status = describe(p, err);
    }
    if (status != MO_OK) {
        drop(&p->image);
        return status;
    }
    *out = &p->image;
    return MO_OK;
}

mo_status mo_image_open(mo_model *model, const void *bytes, size_t size, mo_image **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    prepared *p = NULL;
    if (size > 0) {
        MO_REQUIRE(err, bytes)
    }
    *out = NULL;
    const mo_status status = begin(model, &p, err);
    return p && status == MO_OK ? finish(p, decode(p, bytes, size, err), out, err) : status;
}

const uint8_t *mo_image_pixels(const mo_image *image)
{
    return ((const prepared *)image)->picture.rgb;
}

size_t mo_image_pixel_bytes(const mo_image_info *info)
{
    mo_error err;
    return mo_picture_check(info->width, info->height, &mo_picture_limits_default, &err) == MO_OK
               ? (size_t)(info->width * info->height * 3)
               : 0;
}

mo_status mo_image_open_pixels(mo_model *model, const mo_image_info *info, const uint8_t *pixels,
                               mo_image **out, mo_error *err)
{
    prepared *p = NULL;
    *out = NULL;
    mo_status status = begin(model, &p, err);
    if (!p || status != MO_OK) {
        return status;
    }
    p->file_width = info->file_width;
    p->file_height = info->file_height;
    if (info->width * info->height > model->encoder->rule.max_pixels) {
        status =
            mo_fail(err, MO_EINVAL,
                    "a picture of %lld x %lld pixels has more tokens than pictures may have here; open the "
                    "model with a larger `image_max_tokens`",
                    (long long)info->width, (long long)info->height);
        return finish(p, status, out, err);
    }
    status = mo_picture_make(info->width, info->height, &p->picture, err);
    if (status == MO_OK) {
        memcpy(p->picture.rgb, pixels, mo_image_pixel_bytes(info));
    }
    return finish(p, status, out, err);
}

void mo_image_close(mo_image *image)
{
    mo_image_release(image);
}

void mo_image_describe(const mo_image *image, mo_image_info *out, size_t size)
{
    const prepared *p = (const prepared *)image;
    const mo_image_info info = {.file_width = p->file_width,
                                .file_height = p->file_height,
                                .width = p->width,
                                .height = p->height,
                                .tokens = mo_image_rows(image),
                                .encoded = atomic_load(&image->values) != NULL};
    mo_report_write(out, size, &info, sizeof info);
}

mo_status mo_image_encode(mo_image *image, mo_progress_fn progress, void *user, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, image)
    return image->make(image, progress, user, err);
}

/* ---- Sequences ---- */

mo_status mo_images_place(mo_image *const *images, int image_count, const int32_t *ids, size_t count,
                          int32_t **out, size_t *out_count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out, out_count)
    size_t all = count, marks = 0;
    *out = NULL;
    if (count > 0) {
        MO_REQUIRE(err, ids)
    }
    if (image_count < 0) {
        return MO_REFUSE(err, "image_count", "must be 0 or more, not %d", image_count);
    }
    if (image_count > 0) {
        MO_REQUIRE(err, images)
    }
    for (int i = 0; i < image_count; i++) {
        if (!images[i]) {
            return MO_REFUSE(err, "images", "has NULL as picture %d; it must be given", i + 1);
        }
        all += (size_t)mo_image_rows(images[i]) - 1;
    }
    for (size_t i = 0; i < count; i++) {
        marks += ids[i] < 0;
    }
    if (marks != (size_t)image_count) {
        return mo_fail(err, MO_EINVAL, "the text has places for %zu pictures, but %d are given", marks,
                       image_count);
    }
    int32_t *made = malloc(sizeof *made * (all ? all : 1));
    if (!made) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a sequence of %zu tokens", all);
    }
    size_t to = 0;
    int used = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= 0) {
            made[to++] = ids[i];
            continue;
        }
        const mo_image *image = images[used++];
        memcpy(made + to, image->tokens, sizeof *made * (size_t)mo_image_rows(image));
        to += (size_t)mo_image_rows(image);
    }
    *out = made;
    *out_count = to;
    return MO_OK;
}

/* The tokens around an image. */
static void marks_of(const mo_model *m, const char **begin, const char **end)
{
    const bool gemma = mo_encoder_spec(m->encoder->encoder)->projector == MO_PROJECTOR_GEMMA4V;
    *begin = gemma ? "<|image>" : "<|vision_start|>";
    *end = gemma ? "<image|>" : "<|vision_end|>";
}

/* A growing list of ids. */
typedef struct ids {
    int32_t *list;
    size_t count, space, most;
} ids;

static mo_status add_ids(ids *to, const int32_t *from, size_t count, mo_error *err)
{
    if (to->most && count > to->most - to->count) {
        count = to->most - to->count;
    }
    if (!mo_array_reserve(&to->list, &to->space, to->count + count + 1, sizeof *to->list)) {
        return mo_fail(err, MO_ENOMEM, "out of memory while tokenizing");
    }
    if (count) {
        memcpy(to->list + to->count, from, sizeof *from * count);
    }
    to->count += count;
    return MO_OK;
}

static mo_status add_text(const mo_model *m, ids *to, const char *text, size_t length, unsigned flags,
                          const uint8_t *input, mo_error *err)
{
    int32_t *some = NULL;
    size_t count = 0;
    mo_status status =
        mo_tokenizer_encode_marked(m->tokenizer, text, length, flags, input, 0, &some, &count, err);
    if (status == MO_OK) {
        status = add_ids(to, some, count, err);
    }
    free(some);
    return status;
}

static mo_status add_picture(const mo_model *m, ids *to, mo_error *err)
{
    static const int32_t place = -1;
    const char *begin, *end;
    marks_of(m, &begin, &end);
    mo_status status = add_text(m, to, begin, strlen(begin), MO_TOKENIZE_SPECIAL, NULL, err);
    if (status == MO_OK) {
        status = add_ids(to, &place, 1, err);
    }
    return status == MO_OK ? add_text(m, to, end, strlen(end), MO_TOKENIZE_SPECIAL, NULL, err) : status;
}

/* The next mark outside user input; NULL: none. */
static const char *next_mark(const char *text, size_t length, const uint8_t *input, size_t from)
{
    const size_t n = sizeof MO_IMAGE_MARK - 1;
    for (const char *at = text + from; (size_t)(at - text) + n <= length; at++) {
        at = memmem(at, length - (size_t)(at - text), MO_IMAGE_MARK, n);
        if (!at) {
            return NULL;
        }
        if (!input || !memchr(input + (at - text), 1, n)) {
            return at;
        }
    }
    return NULL;
}

mo_status mo_model_tokenize_pictures(const mo_model *m, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **out, size_t *count,
                                     mo_error *err)
{
    ids to = {.most = most};
    const unsigned rest = flags & MO_TOKENIZE_SPECIAL;
    mo_status status = MO_OK;
    size_t from = 0;
    const char *mark = next_mark(text, length, input, 0);
    const int32_t end = mo_tokenizer_id(m->tokenizer, MO_TOKEN_EOS);
    const bool ends = flags & MO_TOKENIZE_ENDS && mo_tokenizer_adds_end(m->tokenizer);
    *out = NULL;
    if (!mark) {
        return mo_tokenizer_encode_marked(m->tokenizer, text, length, flags, input, most, out, count, err);
    }
    for (; mark && status == MO_OK; mark = next_mark(text, length, input, from)) {
        const size_t n = (size_t)(mark - text) - from;
        status = add_text(m, &to, text + from, n, from == 0 ? flags : rest, input ? input + from : NULL, err);
        if (from == 0 && ends) { /* it follows the last part */
            to.count--;
        }
        if (status == MO_OK) {
            status = add_picture(m, &to, err);
        }
        from += n + sizeof MO_IMAGE_MARK - 1;
    }
    if (status == MO_OK) {
        status = add_text(m, &to, text + from, length - from, rest, input ? input + from : NULL, err);
    }
    if (status == MO_OK && ends) {
        status = add_ids(&to, &end, 1, err);
    }
    if (status != MO_OK) {
        free(to.list);
        return status;
    }
    *out = to.list;
    *count = to.count;
    return MO_OK;
}

mo_status mo_images_tokenize(const mo_model *model, const char *text, size_t length, int flags,
                             int32_t **list, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, list, count)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    const mo_status status = mo_model_check_flags(flags, __func__, err);
    if (status != MO_OK) {
        return status;
    }
    if (!model->encoder || !model->tokenizer) {
        return mo_tokenize(model, text, length, flags, list, count, err);
    }
    return mo_model_tokenize_pictures(model, text ? text : "", length, mo_model_token_flags(flags), NULL, 0,
                                      list, count, err);
}
