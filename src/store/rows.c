#include "store/rows.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/input.h"
#include "base/status.h"

struct mo_rows {
    mo_input *input;
    int64_t offset, row_bytes, rows;
    mo_type type;
};

mo_status mo_rows_open(const mo_checkpoint *model, mo_rows **out, mo_error *err)
{
    size_t count = 0;
    const mo_home *homes = mo_checkpoint_homes(model, &count);
    const mo_weights *table = &mo_checkpoint_spec(model)->embed;
    mo_rows *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) {
        return mo_fail(err, MO_ENOMEM, "out of memory while reading the embedding; free some and try again");
    }
    const mo_home *home = &homes[count - 1]; /* the embedding comes last */
    const mo_status status =
        mo_input_open(mo_gguf_part_path(mo_checkpoint_gguf(model), home->part), &r->input, err);
    if (status != MO_OK) {
        free(r);
        return status;
    }
    /* The kernel must not read ahead: the next row is anywhere. */
    posix_fadvise(mo_input_descriptor(r->input), 0, 0, POSIX_FADV_RANDOM);
    r->offset = home->offset;
    r->type = table->type;
    r->rows = table->rows;
    r->row_bytes = mo_format_row_bytes(mo_format_of(table->type), table->cols);
    *out = r;
    return MO_OK;
}

void mo_rows_close(mo_rows *r)
{
    if (r) {
        mo_input_close(r->input);
        free(r);
    }
}

mo_status mo_rows_read(const mo_rows *r, int64_t row, uint8_t *data, mo_error *err)
{
    mo_status status = mo_input_read_at(r->input, data, (size_t)r->row_bytes,
                                        (uint64_t)(r->offset + row * r->row_bytes), err);
    if (status == MO_OK) {
        status = mo_format_check(r->type, data, r->row_bytes, err);
    }
    return status == MO_OK ? MO_OK
                           : mo_fail_prefix(err, status, "the embedding of token %lld", (long long)row);
}
