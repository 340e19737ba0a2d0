/* Fuzzing adapters: whatever a file says, it is refused with a reason, or it has pairs whose matrices are inside what was read and have the
 * shapes of the model's. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/lora.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

static const mo_checkpoint *model(void)
{
    static mo_checkpoint *loaded;
    mo_error err;
    if (!loaded) {
        require(mo_checkpoint_load(MO_TEST_DATA "/oracle/qwen3moe.gguf", &(mo_load_options){0}, &loaded,
                                   &err) == MO_OK);
    }
    return loaded;
}

static void check_pair(const mo_lora *l, const mo_lora_pair *p)
{
    const uint8_t *end = l->region + l->region_bytes;
    const mo_weights *a = &p->a.w;
    const uint8_t *b = (const uint8_t *)p->b;
    require(a->cols == p->linear->w.cols && a->rows > 0 && a->rows <= l->rank);
    require(a->data >= l->region &&
            a->rows * mo_format_row_bytes(mo_format_of(a->type), a->cols) <= end - a->data);
    require(b >= l->region && a->rows * p->linear->w.rows * (int64_t)sizeof(float) <= end - b);
    require(mo_lora_find(l, p->linear) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int fd = memfd_create("adapter", 0);
    char path[64];
    mo_lora lora;
    mo_error err = {0};
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int describe = 1; describe >= 0; describe--) {
        if (mo_lora_load(model(), path, describe, &lora, &err) == MO_OK) {
            require(lora.rank > 0 && lora.rank <= MO_LORA_RANK_MAX && lora.identity != 0);
            for (int64_t i = 0; i < lora.count; i++) {
                check_pair(&lora, &lora.pairs[i]);
            }
            mo_lora_drop(&lora);
        } else {
            require(err.detail[0]);
        }
    }
    close(fd);
    return 0;
}
