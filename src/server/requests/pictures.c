#include "server/requests/pictures.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/status.h"

#define PICTURE_S     10.0               /* to fetch one */
#define REQUEST_S     30.0               /* to fetch all of a request */
#define REQUEST_BYTES ((size_t)64 << 20) /* of all pictures that are fetched for a request */

void srv_pictures_free(srv_pictures *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->list[i].bytes);
        mo_image_close(p->list[i].image);
    }
    free(p->list);
    free(p->images);
    *p = (srv_pictures){0};
}

/* ---- Base64 ---- */

/* 0 to 63; -1: no character of base64. */
static int value_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+' || c == '-' ? 62
           : c == '/' || c == '_' ? 63
                                  : -1;
}

/* The bytes, which have space for three quarters of the text. False: it is not base64. */
static bool decode(mo_text text, uint8_t *out, size_t *size)
{
    uint32_t bits = 0;
    size_t n = 0, length = text.length;
    for (int i = 0; i < 2 && length > 0 && text.data[length - 1] == '='; i++) {
        length--;
    }
    if (length % 4 == 1) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        const int v = value_of(text.data[i]);
        if (v < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)v;
        if (i % 4 == 3) {
            out[n++] = (uint8_t)(bits >> 16);
            out[n++] = (uint8_t)(bits >> 8);
            out[n++] = (uint8_t)bits;
        }
    }
    if (length % 4 == 2) {
        out[n++] = (uint8_t)(bits >> 4);
    } else if (length % 4 == 3) {
        out[n++] = (uint8_t)(bits >> 10);
        out[n++] = (uint8_t)(bits >> 2);
    }
    *size = n;
    return true;
}

/* ---- Reading ---- */

static bool no_memory(srv_fault *fault)
{
    return srv_fault_set(fault, SRV_FAULT_SERVER, NULL, "out of memory");
}

/* May there be one more? */
static bool begin(srv_pictures *p, const srv_field *part, srv_picture *picture)
{
    *picture = (srv_picture){.size = 0};
    srv_field_path(part, picture->path, sizeof picture->path);
    if (!p->accepted) {
        return srv_wrong(part, "image input is not supported");
    }
    if (p->count == SRV_PICTURES_MAX) {
        return srv_wrong(part, "is one picture more than the %d that a request may have", SRV_PICTURES_MAX);
    }
    return mo_array_reserve(&p->list, &p->space, p->count + 1, sizeof *p->list) || no_memory(part->fault);
}

/* The bytes, within the limits of one and of all of the request. */
static mo_status fetch_bytes(srv_pictures *p, mo_text url, srv_picture *out, bool *busy, mo_error *err)
{
    const double now = mo_clock_s();
    p->fetch_until = p->fetch_until > 0 ? p->fetch_until : now + REQUEST_S;
    const double left = p->fetch_until - now;
    const size_t bytes_left = REQUEST_BYTES - p->fetched_bytes;
    const bool last = bytes_left < SRV_PICTURE_BYTES;
    const srv_fetch_options o = {.allowed = p->fetched,
                                 .bytes_most = last ? bytes_left : SRV_PICTURE_BYTES,
                                 .seconds = left < PICTURE_S ? left : PICTURE_S};
    if (left <= 0) {
        return mo_fail(err, MO_EIO, "all pictures of the request took longer than %.0f seconds", REQUEST_S);
    }
    const mo_status status =
        bytes_left ? srv_fetch(url.data, url.length, &o, &out->bytes, &out->size, busy, err) : MO_ENOSPC;
    if (status == MO_ENOSPC && last) {
        return mo_fail(err, MO_ENOSPC, "all that are fetched for the request are larger than %zu MB",
                       REQUEST_BYTES >> 20);
    }
    p->fetched_bytes += out->size;
    return status;
}

/* What the client is told of a fetch that failed. */
static bool fetch_fault(const srv_field *part, const char *path, const mo_error *err, bool busy)
{
    const srv_fault_kind kind = busy                       ? SRV_FAULT_QUEUE
                                : err->status == MO_ENOSPC ? SRV_FAULT_TOO_LARGE
                                                           : SRV_FAULT_REQUEST;
    switch (err->status) {
    case MO_ENOMEM: return no_memory(part->fault);
    case MO_ECANCELLED: return srv_fault_status(part->fault, err, NULL);
    default:
        return srv_fault_set(part->fault, kind, path, "the picture could not be fetched: %s", err->detail);
    }
}

/* From another server, where that is switched on. */
static bool fetch(srv_pictures *p, const srv_field *part, mo_text url)
{
    srv_picture picture;
    mo_error err = {0};
    bool busy = false;
    if (!p->fetched) {
        return srv_wrong(
            part, "is a remote picture, and pictures are not fetched by this server; send it as a data URL");
    }
    if (!begin(p, part, &picture)) {
        return false;
    }
    const mo_status status = fetch_bytes(p, url, &picture, &busy, &err);
    if (status != MO_OK) {
        return fetch_fault(part, picture.path, &err, busy);
    }
    if (picture.size == 0) {
        free(picture.bytes);
        return srv_wrong(part, "the picture could not be fetched: it is empty");
    }
    p->list[p->count++] = picture;
    return true;
}

bool srv_pictures_add(srv_pictures *p, const srv_field *part, mo_text text)
{
    srv_picture picture;
    if (!begin(p, part, &picture)) {
        return false;
    }
    if (text.length == 0) {
        return srv_wrong(part, "has no data");
    }
    if (text.length / 4 * 3 > SRV_PICTURE_BYTES + 3) {
        return srv_fault_set(part->fault, SRV_FAULT_TOO_LARGE, picture.path, "has more than %d MB",
                             SRV_PICTURE_BYTES >> 20);
    }
    picture.bytes = malloc(text.length / 4 * 3 + 3);
    if (!picture.bytes) {
        return no_memory(part->fault);
    }
    if (!decode(text, picture.bytes, &picture.size)) {
        free(picture.bytes);
        return srv_wrong(part, "is not valid base64");
    }
    p->list[p->count++] = picture;
    p->text += text.length;
    return true;
}

/* Behind a beginning that the URL has; NULL: it has another. */
static const char *behind(mo_text url, const char *start)
{
    const size_t n = strlen(start);
    return url.length >= n && strncasecmp(url.data, start, n) == 0 ? url.data + n : NULL;
}

static bool is_remote(mo_text url)
{
    return behind(url, "http:") || behind(url, "https:");
}

bool srv_pictures_add_remote(srv_pictures *p, const srv_field *part, mo_text url)
{
    return is_remote(url) ? fetch(p, part, url) : srv_wrong(part, "its url must begin with http: or https:");
}

bool srv_pictures_add_url(srv_pictures *p, const srv_field *part, mo_text url)
{
    return p->accepted && is_remote(url) ? fetch(p, part, url) : srv_pictures_add_data(p, part, url);
}

bool srv_pictures_add_data(srv_pictures *p, const srv_field *part, mo_text url)
{
    const char *data = behind(url, "data:"), *end = url.data + url.length;
    if (!p->accepted) {
        return srv_wrong(part, "image input is not supported");
    }
    if (is_remote(url)) {
        return srv_wrong(part, "is a remote picture, which is not fetched here; send it as base64");
    }
    if (!data && memchr(url.data, ':', url.length)) {
        return srv_wrong(part, "must be a data URL, as in data:image/png;base64,...");
    }
    if (!data) {
        return srv_pictures_add(p, part, url);
    }
    const char *comma = memchr(data, ',', (size_t)(end - data));
    static const char kind[] = "image/", coding[] = ";base64";
    const size_t n = sizeof coding - 1;
    if (!comma || !behind((mo_text){data, (size_t)(end - data)}, kind) || comma - data < (ptrdiff_t)n ||
        strncasecmp(comma - n, coding, n) != 0) {
        return srv_wrong(part, "must be a data URL of a picture in base64, as in data:image/png;base64,...");
    }
    return srv_pictures_add(p, part, (mo_text){comma + 1, (size_t)(end - comma - 1)});
}

/* ---- Opening ---- */

/* Decoding takes up to 400 MB for a moment: one picture at a time. */
static mo_status open_picture(mo_model *model, srv_picture *picture, mo_error *err)
{
    static pthread_mutex_t decoding = PTHREAD_MUTEX_INITIALIZER;
    if (picture->image) {
        return MO_OK;
    }
    pthread_mutex_lock(&decoding);
    const mo_status status = mo_image_open(model, picture->bytes, picture->size, &picture->image, err);
    pthread_mutex_unlock(&decoding);
    return status;
}

bool srv_pictures_open(srv_pictures *p, size_t from, size_t count, mo_model *model, int64_t context,
                       srv_fault *fault)
{
    int64_t rows = 0;
    p->images = p->images ? p->images : calloc(p->count + 1, sizeof(mo_image *));
    if (!p->images) {
        return no_memory(fault);
    }
    for (size_t i = from; i < from + count; i++) {
        srv_picture *picture = &p->list[i];
        mo_error err;
        mo_image_info info;
        const mo_status status = open_picture(model, picture, &err);
        if (status == MO_ENOSPC) {
            return srv_fault_set(fault, SRV_FAULT_TOO_LARGE, picture->path, "%s", err.detail);
        }
        if (status != MO_OK) {
            return srv_fault_status(fault, &err, picture->path);
        }
        p->images[i] = picture->image;
        mo_image_describe(picture->image, &info, sizeof info);
        rows += info.tokens;
        if (rows >= context) { /* the others are not decoded */
            return srv_fault_context_more(fault, rows, context);
        }
        free(picture->bytes);
        picture->bytes = NULL;
    }
    return true;
}
