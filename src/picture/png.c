/* PNG, by libpng. Apart from pixels libpng reads only the palette: profiles and texts are not decompressed.
   EXIF is found by our own code, because libpng would allocate the size that the chunk claims. */
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "picture/decoder.h"
#include "picture/orientation.h"

enum { HEADER = 24, CHUNK_BYTES_MAX = 8 << 20 };

typedef struct reading {
    const uint8_t *at, *end;
    mo_error *err;
    mo_status status;
    bool no_memory;
} reading;

static void failed(png_structp png, png_const_charp message)
{
    reading *r = png_get_error_ptr(png);
    if (r->no_memory) {
        r->status = mo_fail(r->err, MO_ENOMEM, "no memory to decode the PNG picture");
    } else {
        r->status = mo_fail(r->err, MO_EFORMAT, "the PNG picture is damaged: %s", message);
    }
    png_longjmp(png, 1);
}

static void warned(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static png_voidp allocate(png_structp png, png_alloc_size_t bytes)
{
    reading *r = png_get_mem_ptr(png);
    void *memory = malloc(bytes);
    r->no_memory |= !memory;
    return memory;
}

static void release(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void take(png_structp png, png_bytep out, size_t bytes)
{
    reading *r = png_get_io_ptr(png);
    if ((size_t)(r->end - r->at) < bytes) {
        png_error(png, "it ends early");
    }
    if (mo_interrupted(bytes << 4)) { /* little input may expand to much data, also after the last row */
        r->status = mo_interrupt_fail(r->err);
        png_longjmp(png, 1);
    }
    memcpy(out, r->at, bytes);
    r->at += bytes;
}

static void choose_rows(png_structp png)
{
    png_set_strip_16(png); /* keeps the upper byte */
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
}

static void leave_out_chunks(png_structp png)
{
    static const uint8_t chunks[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0"
                                    "sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, chunks, (int)(sizeof chunks / 5));
    png_set_chunk_malloc_max(png, CHUNK_BYTES_MAX);
}

/* Errors return by png_longjmp(). */
static mo_status read_rows(png_structp png, png_infop info, const mo_picture *out, mo_error *err)
{
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)out->width * 3) {
        png_error(png, "its rows are of an unknown kind");
    }
    for (int pass = 0; pass < passes; pass++) {
        for (int64_t y = 0; y < out->height; y++) {
            if (mo_interrupted((size_t)out->width)) {
                return mo_interrupt_fail(err);
            }
            png_read_row(png, mo_picture_row(out, y), NULL);
        }
    }
    return MO_OK;
}

static void read_all(png_structp png, png_infop info, reading *r, const mo_picture_file *file,
                     mo_picture *out)
{
    if (setjmp(png_jmpbuf(png)) != 0) {
        return;
    }
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    leave_out_chunks(png);
    png_set_read_fn(png, r, take);
    png_read_info(png, info);
    choose_rows(png);
    r->status =
        mo_picture_begin(file, png_get_image_width(png, info), png_get_image_height(png, info), out, r->err);
    if (r->status != MO_OK) {
        return;
    }
    r->status = read_rows(png, info, out, r->err);
    if (r->status != MO_OK) {
        return;
    }
    png_read_end(png, info);
}

static int64_t big_endian(const uint8_t *b)
{
    return (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]);
}

static int find_orientation(const mo_picture_file *file)
{
    enum { SIGNATURE = 8, BEFORE = 8, AROUND = 12 }; /* length and name of a chunk, and its checksum */
    for (size_t at = SIGNATURE; file->bytes - at >= AROUND;) {
        const uint8_t *chunk = file->data + at;
        const size_t bytes = (size_t)big_endian(chunk);
        if (bytes > file->bytes - at - AROUND) {
            return 1;
        }
        if (memcmp(chunk + 4, "eXIf", 4) == 0) {
            return mo_exif_orientation(chunk + BEFORE, bytes);
        }
        at += bytes + AROUND;
    }
    return 1;
}

mo_status mo_png_decode(const mo_picture_file *file, mo_picture *out, int *orientation, mo_error *err)
{
    reading r = {file->data, file->data + file->bytes, err, MO_ENOMEM, false};
    if (file->bytes < HEADER) {
        return mo_fail(err, MO_EFORMAT, "the PNG picture is damaged: it ends early");
    }
    /* Checks the size before libpng reads the chunks before the pixels. */
    mo_status status =
        mo_picture_check(big_endian(file->data + 16), big_endian(file->data + 20), file->limits, err);
    if (status != MO_OK) {
        return status;
    }
    png_structp png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &r, failed, warned, &r, allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (info) {
        read_all(png, info, &r, file, out);
    } else {
        r.status = mo_fail(err, MO_ENOMEM, "no memory to decode the PNG picture");
    }
    png_destroy_read_struct(&png, &info, NULL);
    *orientation = r.status == MO_OK ? find_orientation(file) : 1;
    return r.status;
}
