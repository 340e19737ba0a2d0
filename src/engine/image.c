#include "engine/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void mo_image_hold(mo_image *image)
{
    atomic_fetch_add(&image->holders, 1);
}

void mo_image_release(mo_image *image)
{
    if (image && atomic_fetch_sub(&image->holders, 1) == 1) {
        image->drop(image);
    }
}

static mo_status check_image(const mo_model_spec *spec, const mo_image *image, mo_error *err)
{
    const mo_picture_rule *rule = &spec->pictures;
    if (!rule->accepted) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "this model reads no pictures; choose one that does, or leave them out");
    }
    if (image->width != spec->width || image->features != rule->features) {
        return mo_fail(err, MO_EINVAL,
                       "the picture was prepared for another model; prepare it with this one");
    }
    return MO_OK;
}

/* The index of the next image at or after `at`; count if there is none. */
static int64_t next_of(const int32_t *tokens, int64_t at, int64_t count)
{
    while (at < count && tokens[at] >= 0) {
        at++;
    }
    return at;
}

static mo_status place_image(mo_image_list *list, mo_image *image, const int32_t *tokens, int64_t at,
                             int64_t count, mo_error *err)
{
    const mo_image_place *before = list->count ? &list->place[list->count - 1] : NULL;
    const int64_t rows = mo_image_rows(image);
    const int64_t first = before ? before->next + at - (before->at + mo_image_rows(before->image)) : at;
    const int64_t longest = image->columns > image->lines ? image->columns : image->lines;
    if (count - at < rows || memcmp(tokens + at, image->tokens, sizeof *tokens * (size_t)rows) != 0) {
        return mo_fail(err, MO_EINVAL,
                       "picture %d of the sequence is another one than was given, or the sequence ends "
                       "within it; give the pictures in their order, and the sequence whole",
                       list->count + 1);
    }
    list->place[list->count++] =
        (mo_image_place){.image = image, .at = at, .next = first + (list->rule->grid ? longest : rows)};
    return MO_OK;
}

mo_status mo_image_list_make(mo_image_list *list, const mo_model_spec *spec, mo_image *const *images,
                             int count, const int32_t *tokens, int64_t token_count, mo_error *err)
{
    mo_status status = MO_OK;
    int64_t at = next_of(tokens, 0, token_count);
    list->count = 0;
    list->rule = &spec->pictures;
    if (count > list->space) {
        mo_image_place *more = realloc(list->place, sizeof *more * (size_t)count);
        if (!more) {
            return mo_fail(err, MO_ENOMEM, "out of memory for the places of %d pictures", count);
        }
        list->place = more;
        list->space = count;
    }
    for (int i = 0; i < count && at < token_count && status == MO_OK; i++) {
        status = check_image(spec, images[i], err);
        if (status == MO_OK) {
            status = place_image(list, images[i], tokens, at, token_count, err);
        }
        at = status == MO_OK ? next_of(tokens, at + mo_image_rows(images[i]), token_count) : at;
    }
    if (status == MO_OK && (at < token_count || list->count < count)) {
        status = mo_fail(err, MO_EINVAL, "the sequence has %s pictures than the %d that were given",
                         at < token_count ? "more" : "fewer", count);
    }
    list->count = status == MO_OK ? list->count : 0;
    return status;
}

void mo_image_list_drop(mo_image_list *list)
{
    free(list->place);
    *list = (mo_image_list){0};
}

/* The last image that begins at or before `at`. */
static const mo_image_place *last_before(const mo_image_list *list, int64_t at)
{
    int low = 0, high = list->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (list->place[middle].at <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low ? &list->place[low - 1] : NULL;
}

static bool holds(const mo_image_place *p, int64_t at)
{
    return p && at >= p->at && at < p->at + mo_image_rows(p->image);
}

const mo_image_place *mo_image_list_find(const mo_image_list *list, int64_t at)
{
    const mo_image_place *p = last_before(list, at);
    return holds(p, at) ? p : NULL;
}

void mo_image_list_position(const mo_image_list *list, int64_t at, int64_t position[3])
{
    const mo_image_place *p = last_before(list, at);
    const int64_t row = p ? at - p->at : 0;
    position[0] = position[1] = position[2] = at;
    if (!p || !list->rule->grid) {
        return;
    }
    if (holds(p, at)) {
        const int64_t side = p->image->columns > p->image->lines ? p->image->columns : p->image->lines;
        position[0] = p->next - side;
        position[1] = position[0] + row / p->image->columns;
        position[2] = position[0] + row % p->image->columns;
    } else {
        position[0] = position[1] = position[2] = p->next + row - mo_image_rows(p->image);
    }
}

int64_t mo_image_list_whole(const mo_image_list *list, int64_t length)
{
    const mo_image_place *p = mo_image_list_find(list, length);
    return p ? p->at : length;
}

static bool goes_on(void *cancel, int64_t done, int64_t total)
{
    (void)done;
    (void)total;
    return !atomic_load((const atomic_bool *)cancel);
}

mo_status mo_image_list_fill(const mo_image_list *list, int64_t from, const atomic_bool *cancel,
                             mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < list->count && status == MO_OK; i++) {
        mo_image *image = list->place[i].image;
        if (list->place[i].at >= from && !atomic_load(&image->values)) {
            status = image->make(image, goes_on, (void *)cancel, err);
        }
    }
    return status;
}
