/* JPEG, by libjpeg-turbo. Its warnings about missing or invalid data are errors here. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/interrupt.h"
#include "base/status.h"
#include "picture/decoder.h"
#include "picture/orientation.h"

/* Maximum scans of a progressive file: each scan covers the whole picture. Typical files have about ten. */
enum { SCANS_MAX = 64, EXIF_MARKER = JPEG_APP0 + 1, SCAN_MARKER = 0xda };

typedef struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    mo_error *err;
    mo_status status;
    bool scans; /* more than one scan */
} reading;

static void failed(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    r->status = jpeg->err->msg_code == JERR_OUT_OF_MEMORY
                    ? mo_fail(r->err, MO_ENOMEM, "no memory to decode the JPEG picture")
                    : mo_fail(r->err, MO_EFORMAT, "the JPEG picture is damaged: %s", message);
    longjmp(r->out, 1);
}

/* Only the end marker may be missing, and only in a file with one scan: with several, more may be missing. */
static void warned(j_common_ptr jpeg, int level)
{
    const reading *r = jpeg->client_data;
    const int code = jpeg->err->msg_code;
    if (level < 0 &&
        (code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || (code == JWRN_JPEG_EOF && r->scans))) {
        failed(jpeg);
    }
}

static void watched(j_common_ptr jpeg)
{
    reading *r = jpeg->client_data;
    if (r->jpeg.input_scan_number > SCANS_MAX) {
        r->status = mo_fail(r->err, MO_EUNSUPPORTED, "the JPEG picture has more than %d scans", SCANS_MAX);
        longjmp(r->out, 1);
    }
    if (mo_interrupted(r->jpeg.image_width)) {
        r->status = mo_interrupt_fail(r->err);
        longjmp(r->out, 1);
    }
}

/* Does not use jpeg_save_markers(), which for each new marker walks over all saved ones. */
static int find_orientation(const mo_picture_file *file)
{
    enum {
        START = 2,
        LENGTH = 2,
        /* start of the file; a length that includes itself; "Exif" */
        NAME = 6
    };
    for (size_t at = START; file->bytes - at >= 2 + LENGTH;) {
        const uint8_t *marker = file->data + at;
        const size_t bytes = (size_t)marker[2] << 8 | marker[3];
        if (marker[0] != 0xff || marker[1] == SCAN_MARKER || bytes < LENGTH || bytes > file->bytes - at - 2) {
            return 1;
        }
        if (marker[1] == EXIF_MARKER && bytes > LENGTH + NAME && memcmp(marker + 4, "Exif\0\0", NAME) == 0) {
            return mo_exif_orientation(marker + 4 + NAME, bytes - LENGTH - NAME);
        }
        at += 2 + bytes;
    }
    return 1;
}

/* CMYK as written by Adobe's programs: 255 means no ink. */
static void mix_inks(const uint8_t *cmyk, uint8_t *rgb, int64_t width)
{
    for (int64_t x = 0; x < width; x++) {
        for (int i = 0; i < 3; i++) {
            rgb[x * 3 + i] = (uint8_t)((cmyk[x * 4 + i] * cmyk[x * 4 + 3] + 127) / 255);
        }
    }
}

/* Errors leave by longjmp(). */
static void read_rows(struct jpeg_decompress_struct *jpeg, const mo_picture *out)
{
    const bool inks = jpeg->out_color_space == JCS_CMYK;
    JSAMPARRAY line =
        inks ? jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE, jpeg->output_width * 4, 1) : NULL;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *row = mo_picture_row(out, jpeg->output_scanline);
        if (inks) {
            jpeg_read_scanlines(jpeg, line, 1);
            mix_inks(line[0], row, out->width);
        } else {
            jpeg_read_scanlines(jpeg, &row, 1);
        }
        watched((j_common_ptr)jpeg);
    }
}

static void read_all(reading *r, const mo_picture_file *file, mo_picture *out, int *orientation)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    if (setjmp(r->out) != 0) {
        return;
    }
    jpeg_create_decompress(jpeg);
    jpeg->client_data = r;
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, file->data, file->bytes);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->arith_code) { /* missing data would become zeros without a warning */
        r->status =
            mo_fail(r->err, MO_EUNSUPPORTED,
                    "the JPEG picture has arithmetic coding, which is not supported; convert it to PNG");
        return;
    }
    r->scans = jpeg_has_multiple_scans(jpeg);
    r->status = mo_picture_begin(file, jpeg->image_width, jpeg->image_height, out, r->err);
    if (r->status != MO_OK) {
        return;
    }
    jpeg->out_color_space =
        jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    *orientation = find_orientation(file);
    read_rows(jpeg, out);
}

mo_status mo_jpeg_decode(const mo_picture_file *file, mo_picture *out, int *orientation, mo_error *err)
{
    reading *r = calloc(1, sizeof *r);
    if (!r) {
        return mo_fail(err, MO_ENOMEM, "no memory to decode the JPEG picture");
    }
    r->err = err;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = failed;
    r->errors.emit_message = warned;
    r->progress.progress_monitor = watched;
    read_all(r, file, out, orientation);
    jpeg_destroy_decompress(&r->jpeg);
    mo_status status = r->status;
    free(r);
    return status;
}
