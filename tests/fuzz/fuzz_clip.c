/* Fuzzing encoders of pictures: whatever a file says, it is refused with a reason, or the encoder's matrices and tables are inside the
 * memory that was read, and their values make sense of each other. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vision/encoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

/* Every byte is there: the sanitizers watch. */
static void read_linear(const mo_vision_linear *l)
{
    const int64_t bytes = mo_format_row_bytes(mo_format_of(l->w.type), l->w.cols) * l->w.rows;
    volatile uint8_t sum = 0;
    require(l->w.rows >= 0 && l->w.cols >= 0);
    for (int64_t i = 0; i < bytes; i++) {
        sum ^= l->w.data[i];
    }
}

static void check(const mo_vision_spec *s)
{
    require(s->heads > 0 && s->head_len % 4 == 0 && s->head_len <= MO_VISION_HEAD && s->layers > 0);
    require(s->patch > 0 && s->merge > 0 && s->out > 0 && s->side > 0 && s->features <= s->layers);
    read_linear(&s->kernel[0]);
    for (int n = 0; n < s->layers; n++) {
        const mo_vision_layer *l = &s->layer[n];
        require(l->q.w.rows == s->heads * s->head_len && l->q.w.cols == s->width &&
                l->down.w.rows == s->width);
        read_linear(&l->q);
        read_linear(&l->v);
        read_linear(&l->down);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("mmproj", 0);
    char path[64];
    mo_encoder *e;
    mo_error err = {0};
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int describe = 1; describe >= 0; describe--) {
        if (mo_encoder_open(path, describe, &e, &err) == MO_OK) {
            if (!describe) {
                check(mo_encoder_spec(e));
            }
            mo_encoder_close(e);
        } else {
            require(err.detail[0]);
        }
    }
    close(fd);
    return 0;
}
