/* Fuzzing pictures in requests: data URLs, base64, and addresses that are refused. What is taken are the bytes that the text stands for,
 * as another decoder has them; what is not is refused with a sentence, and is never our fault. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/requests/pictures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* No picture is opened here. */
mo_status mo_image_open(mo_model *model, const void *bytes, size_t size, mo_image **out, mo_error *err)
{
    (void)model, (void)bytes, (void)size, (void)out, (void)err;
    abort();
}

void mo_image_describe(const mo_image *image, mo_image_info *out, size_t size)
{
    (void)image, (void)out, (void)size;
    abort();
}

void mo_image_close(mo_image *image)
{
    require(!image);
}

/* Do the bytes say the same as the end of the text? Bit by bit, from the back of the text's letters. */
static void compare(mo_text text, const uint8_t *bytes, size_t size)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t count = (size * 8 + 5) / 6;
    size_t length = text.length;
    for (int i = 0; i < 2 && length > 0 && text.data[length - 1] == '='; i++) {
        length--;
    }
    require(count <= length);
    for (size_t i = 0; i < count; i++) {
        char c = text.data[length - count + i];
        c = c == '-' ? '+' : c == '_' ? '/' : c;
        const char *letter = memchr(letters, c, 64);
        require(letter != NULL);
        for (size_t bit = 6 * i; bit < 6 * i + 6 && bit < 8 * size; bit++) {
            const int got = bytes[bit / 8] >> (7 - bit % 8) & 1;
            require(got == ((letter - letters) >> (5 - bit % 6) & 1));
        }
    }
}

static void check(const srv_pictures *p, bool taken, const srv_fault *fault, mo_text text)
{
    require(p->count == taken);
    if (taken) {
        require(p->list[0].size <= text.length && p->text <= text.length);
        compare(text, p->list[0].bytes, p->list[0].size);
    } else {
        require((fault->kind == SRV_FAULT_REQUEST || fault->kind == SRV_FAULT_TOO_LARGE) &&
                fault->message[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1); /* exactly as long: what is read behind it is found */
    require(copy != NULL);
    memcpy(copy, data, size);
    const mo_text text = {copy, size};
    for (int way = 0; way < 3; way++) {
        srv_pictures p = {.accepted = true};
        srv_fault fault = {0};
        const srv_field part = srv_field_root(NULL, &fault);
        const bool taken = way == 0   ? srv_pictures_add_url(&p, &part, text)
                           : way == 1 ? srv_pictures_add(&p, &part, text)
                                      : srv_pictures_add_remote(&p, &part, text);
        require(way < 2 || !taken);
        check(&p, taken, &fault, text);
        srv_pictures_free(&p);
    }
    free(copy);
    return 0;
}
