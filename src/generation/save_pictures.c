#include "generation/save_pictures.h"

#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/status.h"
#include "moraine_pictures.h"

static mo_image_info info_of(const mo_image *image)
{
    mo_image_info info;
    mo_image_describe(image, &info, sizeof info);
    return info;
}

/* ---- Writing ---------------------------------------------------------------------------------- */

static json_t *picture_json(const mo_image *image)
{
    const mo_image_info info = info_of(image);
    return json_pack("[I,I,I,I]", (json_int_t)info.width, (json_int_t)info.height,
                     (json_int_t)info.file_width, (json_int_t)info.file_height);
}

json_t *mo_saved_pictures_json(const mo_generation *g)
{
    json_t *list = g->image_count ? json_array() : NULL;
    if (!g->image_count) {
        return json_null();
    }
    for (int i = 0; list && i < g->image_count; i++) {
        if (json_array_append_new(list, picture_json(g->images[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list ? json_pack("{s:I,s:o}", "encoder", (json_int_t)mo_model_encoder_identity(g->model), "list",
                            list)
                : NULL;
}

size_t mo_saved_pictures_bytes(const mo_generation *g)
{
    size_t bytes = 0;
    for (int i = 0; i < g->image_count; i++) {
        const mo_image_info info = info_of(g->images[i]);
        bytes += mo_image_pixel_bytes(&info);
    }
    return bytes;
}

void mo_saved_pictures_write(const mo_generation *g, uint8_t *out)
{
    for (int i = 0; i < g->image_count; i++) {
        const mo_image_info info = info_of(g->images[i]);
        memcpy(out, mo_image_pixels(g->images[i]), mo_image_pixel_bytes(&info));
        out += mo_image_pixel_bytes(&info);
    }
}

/* ---- Reading ---------------------------------------------------------------------------------- */

static mo_image_info saved_info(const json_t *list, size_t which)
{
    const json_t *p = json_array_get(list, which);
    return (mo_image_info){.width = json_integer_value(json_array_get(p, 0)),
                           .height = json_integer_value(json_array_get(p, 1)),
                           .file_width = json_integer_value(json_array_get(p, 2)),
                           .file_height = json_integer_value(json_array_get(p, 3))};
}

mo_status mo_saved_pictures_size(const json_t *pictures, size_t most, size_t *bytes, mo_error *err)
{
    const json_t *list = json_object_get(pictures, "list");
    *bytes = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const mo_image_info info = saved_info(list, i);
        const size_t one = mo_image_pixel_bytes(&info);
        if (one == 0 || one > most - *bytes) {
            return mo_fail(err, MO_EFORMAT, "the saved generation is damaged: its pictures are not there");
        }
        *bytes += one;
    }
    return MO_OK;
}

static mo_status open_all(mo_generation *g, const json_t *list, const uint8_t *pixels, mo_image **images,
                          mo_error *err)
{
    mo_status status = MO_OK;
    for (size_t i = 0; i < json_array_size(list) && status == MO_OK; i++) {
        const mo_image_info info = saved_info(list, i);
        status = mo_image_open_pixels(g->model, &info, pixels, &images[i], err);
        pixels += mo_image_pixel_bytes(&info);
    }
    return status == MO_OK ? mo_generation_images(g, images, (int)json_array_size(list), err) : status;
}

mo_status mo_saved_pictures_open(mo_generation *g, const json_t *pictures, const uint8_t *pixels,
                                 mo_error *err)
{
    const json_t *list = json_object_get(pictures, "list");
    const uint64_t encoder = (uint64_t)json_integer_value(json_object_get(pictures, "encoder"));
    const size_t count = json_array_size(list);
    if (count == 0) {
        return MO_OK;
    }
    if (!mo_model_reads_pictures(g->model)) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "the saved generation has pictures; open the model with the encoder that it was saved "
                       "with (`mmproj`)");
    }
    if (encoder != mo_model_encoder_identity(g->model)) {
        return mo_fail(err, MO_EINVAL, "the generation was saved with another encoder");
    }
    mo_image **images = calloc(count, sizeof *images); /* NOLINT(bugprone-sizeof-expression) */
    if (!images) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %zu pictures", count);
    }
    const mo_status status = open_all(g, list, pixels, images, err);
    for (size_t i = 0; i < count; i++) {
        mo_image_close(images[i]);
    }
    free(images);
    return status;
}
