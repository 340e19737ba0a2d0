#include "numeric/weights.h"

#include <string.h>

static const mo_unit_run units[MO_TYPE_LIMIT][3] = {
#define RUNS(name, number, log2, bytes, fold, at0, count0, size0, at1, count1, size1)                        \
    [MO_##name] = {{at0, count0, size0}, {at1, count1, size1}},
    MO_QUANTIZED_FORMATS(RUNS)
#undef RUNS
};

const mo_unit_run *mo_weights_units(mo_type type)
{
    return units[type][0].count ? units[type] : NULL;
}

/* Where the group of row r begins inside interleaved data, or NULL when the row is in the plain tail. */
static const uint8_t *group_of(const mo_weights *w, int64_t r, int64_t row_bytes)
{
    const int group = w->interleave;
    const bool grouped = group && mo_weights_units(w->type) && r < w->rows / group * group;
    return grouped ? w->data + r / group * group * row_bytes : NULL;
}

/* Unit u of each of the group's rows, for all units of a run. */
static inline __attribute__((always_inline)) uint8_t *
put_run(uint8_t *to, const uint8_t *from, int64_t row_bytes, int count, int group, int size)
{
    for (int u = 0; u < count; u++, from += size) {
        for (int member = 0; member < group; member++, to += size) {
            memcpy(to, from + member * row_bytes, (size_t)size);
        }
    }
    return to;
}

void mo_weights_interleave(const mo_weights *w, int group, uint8_t *out)
{
    const mo_format *f = mo_format_of(w->type);
    const int64_t row_bytes = mo_format_row_bytes(f, w->cols);
    const int64_t whole = mo_weights_units(w->type) ? w->rows / group * group : 0;
    uint8_t *to = out;
    for (int64_t first = 0; first < whole; first += group) {
        for (int64_t b = 0; b < w->cols / f->block_values; b++) {
            const uint8_t *from = w->data + first * row_bytes + b * f->block_bytes;
            for (const mo_unit_run *run = units[w->type]; run->count; run++) {
                switch (run->size) { /* a size the compiler knows makes each copy one load and one store */
                case 1: to = put_run(to, from + run->offset, row_bytes, run->count, group, 1); break;
                case 2: to = put_run(to, from + run->offset, row_bytes, run->count, group, 2); break;
                default: to = put_run(to, from + run->offset, row_bytes, run->count, group, 4); break;
                }
            }
        }
    }
    memcpy(to, w->data + whole * row_bytes, (size_t)((w->rows - whole) * row_bytes));
}

const uint8_t *mo_weights_block(const mo_weights *w, int64_t r, int64_t b, uint8_t space[MO_BLOCK_BYTES_MAX])
{
    const mo_format *f = mo_format_of(w->type);
    const int64_t row_bytes = mo_format_row_bytes(f, w->cols);
    const uint8_t *from = group_of(w, r, row_bytes);
    if (!from) {
        return w->data + r * row_bytes + b * f->block_bytes;
    }
    from += b * w->interleave * f->block_bytes;
    for (const mo_unit_run *run = units[w->type]; run->count; run++) {
        for (int u = 0; u < run->count; u++) {
            memcpy(space + run->offset + u * run->size, from + r % w->interleave * run->size,
                   (size_t)run->size);
            from += (int64_t)w->interleave * run->size;
        }
    }
    return space;
}
