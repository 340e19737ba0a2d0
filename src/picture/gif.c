/* GIF, by giflib: the first frame on the background color. Transparent pixels are black. */
#include <gif_lib.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "picture/decoder.h"

enum { GRAPHICS_CONTROL = 0xf9, TRANSPARENT_FLAG = 1 };

typedef struct reading {
    const uint8_t *at, *end;
    GifFileType *gif;
    int transparent; /* an index, or -1 */
} reading;

static int take(GifFileType *gif, GifByteType *out, int bytes)
{
    reading *r = gif->UserData;
    const int64_t left = r->end - r->at;
    const int got = bytes < left ? bytes : (int)left;
    memcpy(out, r->at, (size_t)got);
    r->at += got;
    return got;
}

static mo_status damaged(int code, mo_error *err)
{
    const char *why = GifErrorString(code);
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM) {
        return mo_fail(err, MO_ENOMEM, "no memory to decode the GIF picture");
    }
    return mo_fail(err, MO_EFORMAT, "the GIF picture is damaged%s%s", why ? ": " : "", why ? why : "");
}

static mo_status read_extension(reading *r, mo_error *err)
{
    GifByteType *block;
    int code;
    if (DGifGetExtension(r->gif, &code, &block) != GIF_OK) {
        return damaged(r->gif->Error, err);
    }
    if (code == GRAPHICS_CONTROL && block && block[0] >= 4) {
        r->transparent = block[1] & TRANSPARENT_FLAG ? block[4] : -1;
    }
    while (block) {
        if (DGifGetExtensionNext(r->gif, &block) != GIF_OK) {
            return damaged(r->gif->Error, err);
        }
    }
    return MO_OK;
}

/* Reads up to the description of the first frame. */
static mo_status find_frame(reading *r, mo_error *err)
{
    GifRecordType kind;
    for (;;) {
        if (DGifGetRecordType(r->gif, &kind) != GIF_OK) {
            return damaged(r->gif->Error, err);
        }
        if (kind == IMAGE_DESC_RECORD_TYPE) {
            return DGifGetImageDesc(r->gif) == GIF_OK ? MO_OK : damaged(r->gif->Error, err);
        }
        if (kind != EXTENSION_RECORD_TYPE) {
            return mo_fail(err, MO_EFORMAT, "the GIF picture is damaged: it has no frame");
        }
        mo_status status = read_extension(r, err);
        if (status != MO_OK) {
            return status;
        }
    }
}

static void colour(const ColorMapObject *map, int index, uint8_t *rgb)
{
    if (index < map->ColorCount) {
        const GifColorType c = map->Colors[index];
        memcpy(rgb, (uint8_t[]){c.Red, c.Green, c.Blue}, 3);
    }
}

/* Fills the screen with the background color; the frame may not cover it all. Index 0 means black. */
static void fill_background(const reading *r, const mo_picture *out)
{
    const GifImageDesc *frame = &r->gif->Image;
    const ColorMapObject *map = r->gif->SColorMap;
    if (!map || r->gif->SBackGroundColor == 0) {
        return;
    }
    for (int64_t y = 0; y < out->height; y++) {
        const bool beside = y < frame->Top || y >= frame->Top + frame->Height;
        for (int64_t x = 0; x < out->width; x++) {
            if (beside || x < frame->Left || x >= frame->Left + frame->Width) {
                colour(map, r->gif->SBackGroundColor, mo_picture_row(out, y) + x * 3);
            }
        }
    }
}

static mo_status read_row(const reading *r, const ColorMapObject *map, GifPixelType *line, uint8_t *row,
                          mo_error *err)
{
    const int width = r->gif->Image.Width;
    if (mo_interrupted((size_t)width)) {
        return mo_interrupt_fail(err);
    }
    if (DGifGetLine(r->gif, line, width) != GIF_OK) {
        return damaged(r->gif->Error, err);
    }
    for (int x = 0; x < width; x++) {
        if (line[x] != r->transparent) {
            colour(map, line[x], row + (int64_t)x * 3);
        }
    }
    return MO_OK;
}

static mo_status read_rows(const reading *r, const mo_picture *out, GifPixelType *line, mo_error *err)
{
    static const int first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2}; /* interlaced rows */
    const GifImageDesc *frame = &r->gif->Image;
    const ColorMapObject *map = frame->ColorMap ? frame->ColorMap : r->gif->SColorMap;
    if (!map) {
        return mo_fail(err, MO_EFORMAT, "the GIF picture is damaged: it has no colours");
    }
    for (int pass = 0; pass < (frame->Interlace ? 4 : 1); pass++) {
        const int by = frame->Interlace ? step[pass] : 1;
        for (int y = frame->Interlace ? first[pass] : 0; y < frame->Height; y += by) {
            uint8_t *row = mo_picture_row(out, frame->Top + y) + (int64_t)frame->Left * 3;
            mo_status status = read_row(r, map, line, row, err);
            if (status != MO_OK) {
                return status;
            }
        }
    }
    return MO_OK;
}

static mo_status decode_frame(reading *r, const mo_picture *out, mo_error *err)
{
    const GifImageDesc *frame = &r->gif->Image;
    mo_status status = find_frame(r, err);
    if (status != MO_OK) {
        return status;
    }
    if (frame->Width <= 0 || frame->Height <= 0 || frame->Left < 0 || frame->Top < 0 ||
        frame->Left + frame->Width > out->width || frame->Top + frame->Height > out->height) {
        return mo_fail(err, MO_EFORMAT,
                       "the GIF picture is damaged: its first frame does not fit its screen");
    }
    GifPixelType *line = malloc((size_t)frame->Width);
    if (!line) {
        return mo_fail(err, MO_ENOMEM, "no memory to decode the GIF picture");
    }
    status = read_rows(r, out, line, err);
    free(line);
    if (status == MO_OK) {
        fill_background(r, out);
    }
    return status;
}

mo_status mo_gif_decode(const mo_picture_file *file, mo_picture *out, int *orientation, mo_error *err)
{
    reading r = {file->data, file->data + file->bytes, NULL, -1};
    int code = 0;
    (void)orientation; /* the format has no orientation */
    r.gif = DGifOpen(&r, take, &code);
    if (!r.gif) {
        return damaged(code, err);
    }
    mo_status status = mo_picture_begin(file, r.gif->SWidth, r.gif->SHeight, out, err);
    if (status == MO_OK) {
        status = decode_frame(&r, out, err);
    }
    DGifCloseFile(r.gif, &code);
    return status;
}
