/* Pictures: image files to pixels, files that are refused, and the sizes that encoders read. Expected values: data/pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "check.h"
#include "failing_memory.h"

#include "moraine_server.h"
#include "picture/decode.h"
#include "picture/resize.h"

#define DATA     MO_TEST_DATA "/pictures/"
#define FILE_MAX (512 << 10)

enum { WIDTH = 23, HEIGHT = 14, RGB_BYTES = WIDTH * HEIGHT * 3 }; /* of the files in formats/ */

typedef struct content {
    uint8_t *data;
    size_t bytes;
} content;

static content read_content(const char *folder, const char *name)
{
    char path[512];
    content c;
    snprintf(path, sizeof path, DATA "%s%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fail_msg("cannot read %s", path);
    }
    c.data = malloc(FILE_MAX);
    assert_non_null(c.data);
    c.bytes = fread(c.data, 1, FILE_MAX, f);
    fclose(f);
    return c;
}

static content format_file(const char *name)
{
    return read_content("formats/", name);
}

/* Does this build read the file, going by the end of its name? If not it must say which library is missing. */
static bool known(const char *name)
{
    static const char *const endings[][3] = {{".png", "PNG", "libpng"},
                                             {".jpg", "JPEG", "libjpeg-turbo"},
                                             {".webp", "WebP", "libwebp"},
                                             {".gif", "GIF", "giflib"}};
    for (int i = 0; i < 4; i++) {
        if (strstr(name, endings[i][0]) && !strstr(mo_picture_formats(), endings[i][1])) {
            content c = format_file(name);
            mo_picture p;
            mo_error err;
            assert_int_equal(mo_picture_decode(c.data, c.bytes, NULL, &p, &err), MO_EUNSUPPORTED);
            check_says(&err, endings[i][1]);
            check_says(&err, endings[i][2]);
            free(c.data);
            return false;
        }
    }
    return true;
}

static mo_picture decode(content c, const char *name)
{
    mo_picture p;
    mo_error err;
    if (mo_picture_decode(c.data, c.bytes, NULL, &p, &err) != MO_OK) {
        fail_msg("%s: %s", name, err.detail);
    }
    return p;
}

static void check_close(const char *name, const uint8_t *got, const uint8_t *want, int tolerance)
{
    if (abs(*got - *want) > tolerance) {
        fail_msg("%s: a channel is %d, expected %d", name, *got, *want);
    }
}

/* The pixel (x, y) of the upright picture, in one that EXIF's orientation stands for. */
static const uint8_t *as_held(const uint8_t *rgb, int orientation, int64_t x, int64_t y)
{
    static const struct {
        bool turned, flip_x, flip_y;
    } ways[9] = {{0}, {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 1}, {1, 1, 0}};
    const int64_t column = ways[orientation].turned ? y : x, row = ways[orientation].turned ? x : y;
    return rgb + 3 * ((ways[orientation].flip_y ? HEIGHT - 1 - row : row) * WIDTH +
                      (ways[orientation].flip_x ? WIDTH - 1 - column : column));
}

static void check_picture(const char *name, const mo_picture *p, const uint8_t *rgb, int orientation,
                          int tolerance)
{
    assert_int_equal(p->width, orientation >= 5 ? HEIGHT : WIDTH);
    assert_int_equal(p->height, orientation >= 5 ? WIDTH : HEIGHT);
    for (int64_t y = 0; y < p->height; y++) {
        for (int64_t x = 0; x < p->width; x++) {
            const uint8_t *want = as_held(rgb, orientation, x, y);
            for (int c = 0; c < 3; c++) {
                check_close(name, mo_picture_row(p, y) + 3 * x + c, want + c, tolerance);
            }
        }
    }
}

static void check_file(const char *name, const char *rgb, int orientation, int tolerance)
{
    if (!known(name)) {
        return;
    }
    content c = format_file(name), want = format_file(rgb);
    mo_picture p = decode(c, name);
    assert_int_equal(want.bytes, RGB_BYTES);
    check_picture(name, &p, want.data, orientation, tolerance);
    mo_picture_free(&p);
    free(c.data);
    free(want.data);
}

/* All lines of the list; calls one of the functions for each. */
static void for_each_file(void (*good)(const char *, const char *, int), void (*bad)(const char *))
{
    char name[64], verdict[16], rgb[64];
    int width, height, tolerance, count = 0;
    char line[256];
    FILE *f = fopen(DATA "formats/index.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const int fields =
            sscanf(line, "%63s %15s %d %d %63s %d", name, verdict, &width, &height, rgb, &tolerance);
        count++;
        if (fields == 6 && good) {
            assert_true(width == WIDTH && height == HEIGHT);
            good(name, rgb, tolerance);
        } else if (fields == 2 && bad) {
            bad(name);
        }
    }
    fclose(f);
    assert_int_equal(count, 19);
}

/* The oracle's values of the two files with EXIF are those of the stored rows. */
static void check_listed(const char *name, const char *rgb, int tolerance)
{
    check_file(name, rgb, strstr(name, "exif-6") ? 6 : strstr(name, "exif-3") ? 3 : 1, tolerance);
}

static void files_have_the_expected_pixels(void **state)
{
    (void)state;
    for_each_file(check_listed, NULL);
    check_file("lossless.webp", "rgb.png.rgb", 1, 0);
    check_file("exif-6.webp", "rgb.png.rgb", 6, 0);
    check_file("exif-6.png", "rgb.png.rgb", 6, 0);
    check_file("cmyk.jpg", "rgb.png.rgb", 1, 12); /* stored with losses */
}

static void every_orientation_is_turned_upright(void **state)
{
    content c = format_file("exif-6.jpg"), plain = c;
    (void)state;
    if (known("exif-6.jpg")) {
        uint8_t *orientation = memmem(c.data, c.bytes, "\x01\x12\x00\x03\x00\x00\x00\x01\x00", 9);
        assert_non_null(orientation);
        orientation[9] = 1;
        mo_picture upright = decode(plain, "orientation 1");
        for (int i = 0; i <= 9; i++) { /* 0 and 9 mean nothing */
            orientation[9] = (uint8_t)i;
            mo_picture p = decode(c, "orientation");
            check_picture("orientation", &p, upright.rgb, i == 0 || i == 9 ? 1 : i, 0);
            mo_picture_free(&p);
        }
        mo_picture_free(&upright);
    }
    free(c.data);
}

/* The frame is at 4, 2 of a picture of 30 x 18; libwebp's encoder was given the pixels of rgb.png. */
static void animations_show_their_first_frame_in_its_place(void **state)
{
    (void)state;
    if (!known("animated.webp")) {
        return;
    }
    content c = format_file("animated.webp"), want = format_file("rgb.png.rgb");
    mo_picture p = decode(c, "animated.webp");
    assert_true(p.width == 30 && p.height == 18);
    for (int64_t y = 0; y < p.height; y++) {
        for (int64_t x = 0; x < p.width; x++) {
            const bool inside = x >= 4 && x < 4 + WIDTH && y >= 2 && y < 2 + HEIGHT;
            const uint8_t *pixel =
                inside ? want.data + 3 * ((y - 2) * WIDTH + x - 4) : (const uint8_t *)"\0\0";
            assert_memory_equal(mo_picture_row(&p, y) + 3 * x, pixel, 3);
        }
    }
    mo_picture_free(&p);
    free(c.data);
    free(want.data);
}

static void put(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* A BMP of 3 x 2 with these rows, which are `stride` bytes each; palette of 4 bytes a colour, or masks. */
static content make_bmp(int bits, uint32_t compression, int32_t height, const uint8_t *extra,
                        size_t extra_bytes, const uint8_t *rows, size_t stride)
{
    content c = {calloc(1, 256), 54 + extra_bytes + 2 * stride};
    assert_non_null(c.data);
    put(c.data, 'B' | 'M' << 8, 2);
    put(c.data + 2, (uint32_t)c.bytes, 4);
    put(c.data + 10, (uint32_t)(54 + extra_bytes), 4);
    put(c.data + 14, 40, 4);
    put(c.data + 18, 3, 4);
    put(c.data + 22, (uint32_t)height, 4);
    put(c.data + 26, 1, 2);
    put(c.data + 28, (uint32_t)bits, 2);
    put(c.data + 30, compression, 4);
    put(c.data + 46, bits <= 8 ? (uint32_t)extra_bytes / 4 : 0, 4);
    if (extra) {
        memcpy(c.data + 54, extra, extra_bytes);
    }
    memcpy(c.data + 54 + extra_bytes, rows, 2 * stride);
    return c;
}

static void check_bmp(const char *name, content c, const char *pixels)
{
    mo_picture p = decode(c, name);
    assert_true(p.width == 3 && p.height == 2);
    if (memcmp(p.rgb, pixels, 18) != 0) {
        fail_msg("%s: other pixels", name);
    }
    mo_picture_free(&p);
    free(c.data);
}

static void bmp_of_every_depth(void **state)
{
    static const uint8_t palette[] = {1, 2, 3, 0, 11, 12, 13, 0}; /* blue, green, red */
    static const uint8_t masks[] = {0, 0xf8, 0, 0, 0xe0, 7, 0, 0, 0x1f, 0, 0, 0};
    static const char two[] = "\3\2\1\15\14\13\3\2\1\15\14\13\15\14\13\15\14\13";
    static const char grey[] = "\0\0\0\377\377\377\0\0\0\377\0\0\0\377\0\0\0\377";
    (void)state;
    /* Rows begin with the lowest, or with a negative height the highest. */
    check_bmp("1 bit", make_bmp(1, 0, 2, palette, 8, (const uint8_t *)"\xe0\0\0\0\x40\0\0\0", 4), two);
    check_bmp("1 bit, highest first",
              make_bmp(1, 0, -2, palette, 8, (const uint8_t *)"\x40\0\0\0\xe0\0\0\0", 4), two);
    check_bmp("4 bits", make_bmp(4, 0, 2, palette, 8, (const uint8_t *)"\x11\x10\0\0\x01\0\0\0", 4), two);
    check_bmp("8 bits", make_bmp(8, 0, 2, palette, 8, (const uint8_t *)"\1\1\1\0\0\1\0\0", 4), two);
    check_bmp(
        "16 bits, 5 5 5",
        make_bmp(16, 0, 2, NULL, 0, (const uint8_t *)"\x00\x7c\xe0\x03\x1f\0\0\0\0\0\xff\x7f\0\0\0\0", 8),
        grey);
    check_bmp(
        "16 bits, 5 6 5",
        make_bmp(16, 3, 2, masks, 12, (const uint8_t *)"\x00\xf8\xe0\x07\x1f\0\0\0\0\0\xff\xff\0\0\0\0", 8),
        grey);
    check_bmp("32 bits",
              make_bmp(32, 0, 2, NULL, 0,
                       (const uint8_t *)"\0\0\377\7\0\377\0\7\377\0\0\7\0\0\0\0\377\377\377\0\0\0\0\0", 12),
              grey);
    /* A colour that is not in the palette is black. */
    check_bmp("short palette", make_bmp(8, 0, 2, palette, 4, (const uint8_t *)"\0\0\0\0\0\1\0\0", 4),
              "\3\2\1\0\0\0\3\2\1\3\2\1\3\2\1\3\2\1");
}

static void check_refusal(content c, const char *name, mo_status status, const char *words)
{
    mo_picture p = {1, 1, (uint8_t *)""};
    mo_error err = {0};
    const mo_status got = mo_picture_decode(c.data, c.bytes, NULL, &p, &err);
    if (got != status) {
        fail_msg("%s: status %d instead of %d, %s", name, got, status, err.detail);
    }
    check_says(&err, words);
    assert_null(p.rgb);
    assert_true(p.width == 0 && p.height == 0);
}

static void check_refused(const char *name)
{
    content c = format_file(name);
    const bool bomb = strstr(name, "bomb"), unknown = strstr(name, "magic");
    if (unknown || c.bytes == 0 || known(name)) {
        check_refusal(c, name, bomb ? MO_ENOSPC : MO_EFORMAT, bomb ? "60000 x 60000" : "");
    }
    free(c.data);
}

static long most_memory(void) /* KiB so far */
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void bad_files_are_refused_with_a_reason(void **state)
{
    (void)state;
    for_each_file(NULL, check_refused);
    check_refusal((content){(uint8_t *)"no picture", 10}, "text", MO_EFORMAT, "BMP");
    check_refusal((content){(uint8_t *)"\0\0\0\x18"
                                       "ftypheic",
                            12},
                  "HEIC", MO_EUNSUPPORTED, "HEIC");
    check_refusal((content){(uint8_t *)"\0\0\0\x18"
                                       "ftypavif",
                            12},
                  "AVIF", MO_EUNSUPPORTED, "AVIF");
    check_refusal((content){(uint8_t *)"II*\0", 4}, "TIFF", MO_EUNSUPPORTED, "TIFF");
    content rle = make_bmp(8, 1, 2, NULL, 0, (const uint8_t *)"\1\1\1\0\0\1\0\0", 4);
    check_refusal(rle, "RLE", MO_EUNSUPPORTED, "compressed");
    free(rle.data);
    if (known("rgb.jpg")) {
        content c = format_file("rgb.jpg");
        uint8_t *frame = memmem(c.data, c.bytes, "\xff\xc0\x00\x11\x08", 5);
        assert_non_null(frame);
        frame[1] = 0xc9;
        check_refusal(c, "arithmetic.jpg", MO_EUNSUPPORTED, "arithmetic");
        free(c.data);
    }
}

/* Sizes in headers that cost 16 GB: of PNG, JPEG, GIF, WebP and BMP. */
static void bombs_cost_nothing(void **state)
{
    static const struct {
        const char *name;
        size_t at;
        const char *size;
        size_t length;
    } bombs[] = {{"rgb.png", 16, "\x00\x00\xff\xff\x00\x00\xff\xff", 8},
                 {"two-frames.gif", 6, "\xff\xff\xff\xff", 4},
                 {"rgb.bmp", 18, "\xff\xff\x00\x00\xff\xff\x00\x00", 8},
                 {"animated.webp", 24, "\xff\x4f\x00\xff\x4f\x00", 6}};
    const long before = most_memory();
    (void)state;
    for (size_t i = 0; i < sizeof bombs / sizeof bombs[0]; i++) {
        if (known(bombs[i].name)) {
            content c = format_file(bombs[i].name);
            memcpy(c.data + bombs[i].at, bombs[i].size, bombs[i].length);
            check_refusal(c, bombs[i].name, MO_ENOSPC, "at most 16384 on a side");
            free(c.data);
        }
    }
    if (known("progressive.jpg")) {
        content c = format_file("progressive.jpg");
        uint8_t *frame = memmem(c.data, c.bytes, "\xff\xc2\x00\x11\x08", 5);
        assert_non_null(frame);
        put(frame + 5, 0xdcffdcff, 4);
        check_refusal(c, "progressive.jpg", MO_ENOSPC, "65500 x 65500");
        free(c.data);
    }
    assert_true(most_memory() - before < 16 << 10);
}

/* Their number may not matter: libjpeg goes through all that it saves at each of them. */
static void many_markers_take_no_time(void **state)
{
    enum { MARKERS = 100000 };
    (void)state;
    if (known("rgb.jpg")) {
        static const uint8_t marker[] = {0xff, 0xe1, 0, 2};
        content c = format_file("rgb.jpg");
        const size_t bytes = c.bytes + sizeof marker * MARKERS;
        uint8_t *data = malloc(bytes);
        mo_picture p;
        mo_error err;
        assert_non_null(data);
        memcpy(data, c.data, 2);
        for (int i = 0; i < MARKERS; i++) {
            memcpy(data + 2 + sizeof marker * (size_t)i, marker, sizeof marker);
        }
        memcpy(data + 2 + sizeof marker * MARKERS, c.data + 2, c.bytes - 2);
        const clock_t began = clock();
        assert_int_equal(mo_picture_decode(data, bytes, NULL, &p, &err), MO_OK);
        assert_true(clock() - began < 10 * CLOCKS_PER_SEC);
        mo_picture_free(&p);
        free(data);
        free(c.data);
    }
}

static void limits_are_those_of_the_caller(void **state)
{
    static const char *const names[] = {"rgb.png", "rgb.jpg", "lossless.webp", "two-frames.gif", "rgb.bmp"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        content c = format_file(names[i]);
        mo_picture_limits fits = {(int64_t)c.bytes, WIDTH, (int64_t)WIDTH * HEIGHT};
        mo_picture p;
        mo_error err;
        if (known(names[i])) {
            assert_int_equal(mo_picture_decode(c.data, c.bytes, &fits, &p, &err), MO_OK);
            mo_picture_free(&p);
            fits.pixels--;
            assert_int_equal(mo_picture_decode(c.data, c.bytes, &fits, &p, &err), MO_ENOSPC);
            fits.pixels++;
            fits.side--;
            assert_int_equal(mo_picture_decode(c.data, c.bytes, &fits, &p, &err), MO_ENOSPC);
            fits.side++;
            fits.bytes--;
            assert_int_equal(mo_picture_decode(c.data, c.bytes, &fits, &p, &err), MO_ENOSPC);
            check_says(&err, "bytes");
        }
        free(c.data);
    }
}

/* Whatever comes of it, it has a reason or a picture. */
static void try_damaged(const uint8_t *data, size_t bytes)
{
    mo_picture p;
    mo_error err = {0};
    uint8_t *copy = malloc(bytes ? bytes : 1); /* so that a read behind its end is seen */
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    if (mo_picture_decode(copy, bytes, &(mo_picture_limits){1 << 20, 4096, 1 << 16}, &p, &err) == MO_OK) {
        assert_true(p.rgb && p.width > 0 && p.height > 0);
        mo_picture_free(&p);
    } else {
        assert_true(!p.rgb && err.detail[0]);
    }
    free(copy);
}

static void damage(const char *name, const char *rgb, int tolerance)
{
    content c = format_file(name);
    (void)rgb;
    (void)tolerance;
    for (size_t i = 0; i < c.bytes; i++) {
        const uint8_t byte = c.data[i];
        try_damaged(c.data, i);
        c.data[i] = byte ^ 0xff;
        try_damaged(c.data, c.bytes);
        c.data[i] = byte ^ (uint8_t)(1 << i % 8);
        try_damaged(c.data, c.bytes);
        c.data[i] = byte;
    }
    free(c.data);
}

static void damage_at_every_byte_is_survived(void **state)
{
    (void)state;
    for_each_file(damage, NULL);
    damage("lossless.webp", NULL, 0);
    damage("lossy.webp", NULL, 0);
    damage("alpha.webp", NULL, 0);
    damage("animated.webp", NULL, 0);
    damage("exif-6.png", NULL, 0);
    damage("cmyk.jpg", NULL, 0);
}

/* A file that ends in the middle of its pixels, or just before its last byte. */
static void cut_files_are_refused(void **state)
{
    static const char *const names[] = {
        "rgb.png",       "rgb-interlaced.png", "rgb.jpg",        "progressive.jpg",
        "lossless.webp", "lossy.webp",         "two-frames.gif", "rgb.bmp"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        if (known(names[i])) {
            content c = format_file(names[i]);
            check_refusal((content){c.data, c.bytes * 7 / 10}, names[i], MO_EFORMAT, "");
            check_refusal((content){c.data, c.bytes / 2}, names[i], MO_EFORMAT, "");
            free(c.data);
        }
    }
}

static void memory_that_runs_out_is_reported(void **state)
{
    static const char *const names[] = {"rgb.png", "exif-6.jpg", "lossless.webp", "two-frames.gif",
                                        "rgb.bmp"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        content c = format_file(names[i]);
        mo_status status = known(names[i]) ? MO_ENOMEM : MO_OK;
        for (int n = 0; status != MO_OK; n++) {
            mo_picture p;
            mo_error err;
            fail_after = n;
            status = mo_picture_decode(c.data, c.bytes, NULL, &p, &err);
            fail_after = -1;
            assert_true(status == MO_OK || (status == MO_ENOMEM && strstr(err.detail, "no memory")));
            mo_picture_free(&p);
        }
        free(c.data);
    }
}

static bool unwanted(void *user)
{
    (void)user;
    return true;
}

static void work_that_is_no_longer_wanted_ends(void **state)
{
    (void)state;
    if (known("rgb.png")) {
        content c = read_content("", "letters-224x130.png");
        mo_picture p;
        mo_error err;
        mo_interrupt_set(unwanted, NULL);
        assert_int_equal(mo_picture_decode(c.data, c.bytes, NULL, &p, &err), MO_ECANCELLED);
        mo_interrupt_set(NULL, NULL);
        assert_null(p.rgb);
        free(c.data);
    }
}

static void sizes_are_the_expected_ones(void **state)
{
    char line[256];
    int count = 0;
    FILE *f = fopen(DATA "sizes.txt", "r");
    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        long long v[9];
        if (sscanf(line, "%lld %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4],
                   &v[5], &v[6], &v[7], &v[8]) == 9) {
            const mo_resize_rule rule = {v[2], v[3], v[4]};
            const mo_resize_size s = mo_resize_find(&rule, v[0], v[1]);
            if (s.width != v[5] || s.height != v[6] || s.inner_width != v[7] || s.inner_height != v[8]) {
                fail_msg("%s: %lld %lld %lld %lld", line, (long long)s.width, (long long)s.height,
                         (long long)s.inner_width, (long long)s.inner_height);
            }
            count++;
        }
    }
    fclose(f);
    assert_int_equal(count, 123);
}

static void resized_pixels_are_the_expected_ones(void **state)
{
    static const mo_resize_rule qwen = {16, 8 * 256, 4096 * 256}, gemma = {12, 40 * 144, 280 * 144};
    static const struct {
        const char *picture, *pixels;
        const mo_resize_rule *rule;
        int width, height;
    } cases[] = {{"photo-61x37.png", "qwen3vlmoe.a.0.pixels.u8", &qwen, 64, 32},
                 {"letters-224x130.png", "qwen3vlmoe.b.0.pixels.u8", &qwen, 224, 128},
                 {"photo-20x9.png", "qwen3vlmoe.c.0.pixels.u8", &qwen, 80, 32},
                 {"photo-61x37.png", "gemma4.a.0.pixels.u8", &gemma, 108, 60},
                 {"letters-224x130.png", "gemma4.b.0.pixels.u8", &gemma, 228, 132},
                 {"photo-20x9.png", "gemma4.c.0.pixels.u8", &gemma, 120, 60}};
    (void)state;
    for (size_t i = 0; known("rgb.png") && i < sizeof cases / sizeof cases[0]; i++) {
        content c = read_content("", cases[i].picture), want = read_content("", cases[i].pixels);
        mo_picture p = decode(c, cases[i].picture), out;
        mo_error err;
        const mo_resize_size size = mo_resize_find(cases[i].rule, p.width, p.height);
        check_status(mo_resize_run(&p, &size, &out, &err), &err);
        assert_true(out.width == cases[i].width && out.height == cases[i].height);
        assert_int_equal(want.bytes, out.width * out.height * 3);
        assert_memory_equal(out.rgb, want.data, want.bytes);
        mo_picture_free(&p);
        /* A picture of the right size stays as it is. */
        const mo_resize_size same = mo_resize_find(cases[i].rule, out.width, out.height);
        check_status(mo_resize_run(&out, &same, &p, &err), &err);
        assert_memory_equal(p.rgb, want.data, want.bytes);
        mo_picture_free(&p);
        mo_picture_free(&out);
        free(c.data);
        free(want.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bombs_cost_nothing), /* first, before memory was used for anything */
        cmocka_unit_test(files_have_the_expected_pixels),
        cmocka_unit_test(every_orientation_is_turned_upright),
        cmocka_unit_test(animations_show_their_first_frame_in_its_place),
        cmocka_unit_test(bmp_of_every_depth),
        cmocka_unit_test(bad_files_are_refused_with_a_reason),
        cmocka_unit_test(many_markers_take_no_time),
        cmocka_unit_test(limits_are_those_of_the_caller),
        cmocka_unit_test(damage_at_every_byte_is_survived),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_reported),
        cmocka_unit_test(work_that_is_no_longer_wanted_ends),
        cmocka_unit_test(sizes_are_the_expected_ones),
        cmocka_unit_test(resized_pixels_are_the_expected_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
