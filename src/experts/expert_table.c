#include "experts/expert_table.h"
#include "disk/choice.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

int64_t mo_expert_part_span(int64_t bytes)
{
    return mo_disk_capacity(0, bytes) + MO_DISK_ALIGN;
}

static bool same_expert(const mo_home *a, const mo_home *b)
{
    return a->layer == b->layer && a->expert == b->expert;
}

static mo_status allocate(mo_expert_table *b, const mo_checkpoint *model, const mo_home *homes, size_t count,
                          mo_error *err)
{
    const mo_model_spec *spec = mo_checkpoint_spec(model);
    b->layers = spec->layer_count;
    b->experts = 1;
    for (int i = 0; i < spec->layer_count; i++) {
        if (spec->layers[i].routed && spec->layers[i].moe.experts > b->experts) {
            b->experts = spec->layers[i].moe.experts;
        }
    }
    size_t experts = 0;
    for (size_t i = 0; i < count; i++) {
        experts += i == 0 || !same_expert(&homes[i - 1], &homes[i]);
    }
    b->home = calloc(experts + 1, sizeof *b->home);
    b->parts = calloc(count + 1, sizeof *b->parts);
    b->map = malloc((size_t)b->layers * (size_t)b->experts * sizeof *b->map);
    b->layer = malloc((size_t)b->layers * sizeof *b->layer);
    if (!b->home || !b->parts || !b->map || !b->layer) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the table of %zu experts; free some and try again",
                       experts);
    }
    for (int i = 0; i < b->layers; i++) {
        b->layer[i] = -1;
    }
    for (int64_t i = 0; i < (int64_t)b->layers * b->experts; i++) {
        b->map[i] = -1;
    }
    return MO_OK;
}

/* Homes are sorted: experts by layer and number, then streamed layers. The matrices of an expert are
 * consecutive. */
static mo_status number(mo_expert_table *b, const mo_home *homes, size_t count, mo_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const mo_home *h = &homes[i];
        if (i == 0 || !same_expert(&homes[i - 1], h)) {
            b->home[b->count++] = (mo_expert_home){
                .layer = h->layer, .expert = h->expert, .first = (int32_t)i, .size_class = -1};
        }
        mo_expert_home *home = &b->home[b->count - 1];
        if (home->parts == MO_EXPERT_PARTS) {
            return mo_fail(err, MO_EUNSUPPORTED, "layer %d has more than %d matrices that could be streamed",
                           h->layer, MO_EXPERT_PARTS);
        }
        b->parts[i] =
            (mo_expert_part){.matrix = h->matrix, .file = h->part, .offset = h->offset, .bytes = h->bytes};
        home->parts++;
        home->bytes += h->bytes;
        if (h->expert >= 0) {
            b->expert_count = b->count;
            b->map[(int64_t)h->layer * b->experts + h->expert] = b->count - 1;
        } else {
            b->layer[h->layer] = b->count - 1;
        }
    }
    return MO_OK;
}

/* Sets the offset of each part in a slot. Returns the slot bytes for the whole expert. */
static int64_t lay_parts(const mo_expert_table *b, const mo_expert_home *home)
{
    int64_t at = 0;
    for (int i = 0; i < home->parts; i++) {
        mo_expert_part *part = &b->parts[home->first + i];
        part->at = at;
        at += mo_expert_part_span(part->bytes);
    }
    return at;
}

/* The class for slots of this size: the one of exactly this size, a new one, or the smallest that is large
 * enough. */
static int class_for(mo_expert_table *b, int64_t bytes)
{
    int best = -1;
    for (int i = 0; i < b->class_count; i++) {
        if (b->classes[i].slot_bytes == bytes) {
            return i;
        }
        if (b->classes[i].slot_bytes > bytes &&
            (best < 0 || b->classes[i].slot_bytes < b->classes[best].slot_bytes)) {
            best = i;
        }
    }
    if (b->class_count < MO_EXPERT_CLASSES) {
        b->classes[b->class_count].slot_bytes = bytes;
        return b->class_count++;
    }
    return best;
}

static int by_size(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

/* Creates classes from the largest size down, so that a large enough class always exists. */
static mo_status classify(mo_expert_table *b, mo_error *err)
{
    int64_t *sizes = malloc(((size_t)b->expert_count + 1) * sizeof *sizes);
    if (!sizes) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the table of experts; free some and try again");
    }
    for (int32_t i = 0; i < b->expert_count; i++) {
        sizes[i] = lay_parts(b, &b->home[i]);
    }
    for (int32_t i = b->expert_count; i < b->count; i++) {
        const int64_t bytes = lay_parts(b, &b->home[i]);
        b->layer_bytes = bytes > b->layer_bytes ? bytes : b->layer_bytes;
    }
    qsort(sizes, (size_t)b->expert_count, sizeof *sizes, by_size);
    for (int32_t i = 0; i < b->expert_count; i++) {
        class_for(b, sizes[i]);
    }
    free(sizes);
    for (int32_t i = 0; i < b->expert_count; i++) {
        mo_expert_home *home = &b->home[i];
        home->size_class = class_for(b, lay_parts(b, home));
        mo_expert_class *c = &b->classes[home->size_class];
        home->in_class = c->count++;
        c->bytes += home->bytes;
    }
    return MO_OK;
}

static mo_status list_classes(mo_expert_table *b, const mo_model_spec *spec, mo_error *err)
{
    for (int i = 0; i < b->class_count; i++) {
        mo_expert_class *c = &b->classes[i];
        c->expert_id = malloc(((size_t)c->count + 1) * sizeof *c->expert_id);
        if (!c->expert_id) {
            return mo_fail(err, MO_ENOMEM, "out of memory for the table of experts; free some and try again");
        }
    }
    int last[MO_EXPERT_CLASSES];
    memset(last, -1, sizeof last);
    for (int32_t i = 0; i < b->expert_count; i++) {
        const mo_expert_home *home = &b->home[i];
        mo_expert_class *c = &b->classes[home->size_class];
        c->expert_id[home->in_class] = i;
        if (last[home->size_class] != home->layer) {
            last[home->size_class] = home->layer;
            c->layers++;
        }
        const int here = spec->experts.divided ? spec->experts.end - spec->experts.first : INT_MAX;
        const int all = spec->layers[home->layer].moe.used, used = all < here ? all : here;
        c->used = used > c->used ? used : c->used;
    }
    return MO_OK;
}

mo_status mo_expert_table_create(const mo_checkpoint *model, mo_expert_table **out, mo_error *err)
{
    size_t count = 0;
    const mo_home *homes = mo_checkpoint_homes(model, &count);
    mo_expert_table *b = calloc(1, sizeof *b);
    *out = NULL;
    /* the embedding is read row by row and is not an expert */
    while (count > 0 && homes[count - 1].layer < 0) {
        count--;
    }
    if (!b) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the table of experts; free some and try again");
    }
    mo_status status = allocate(b, model, homes, count, err);
    if (status == MO_OK) {
        status = number(b, homes, count, err);
    }
    if (status == MO_OK) {
        status = classify(b, err);
    }
    if (status == MO_OK) {
        status = list_classes(b, mo_checkpoint_spec(model), err);
    }
    if (status != MO_OK) {
        mo_expert_table_destroy(b);
        return status;
    }
    *out = b;
    return MO_OK;
}

void mo_expert_table_destroy(mo_expert_table *b)
{
    if (!b) {
        return;
    }
    for (int i = 0; i < b->class_count; i++) {
        free(b->classes[i].expert_id);
    }
    free(b->home);
    free(b->parts);
    free(b->map);
    free(b->layer);
    free(b);
}

mo_status mo_expert_table_open_disk(const mo_checkpoint *model, const mo_disk_options *options,
                                    uint8_t *const *regions, const size_t *region_bytes, int region_count,
                                    mo_disk **out, mo_error *err)
{
    const mo_gguf *gguf = mo_checkpoint_gguf(model);
    const int parts = mo_gguf_parts(gguf);
    const char **paths = calloc((size_t)parts, sizeof(char *));
    mo_disk_options disk = *options;
    if (!paths) {
        return mo_fail(err, MO_ENOMEM,
                       "out of memory while opening the model's files; free some and try again");
    }
    for (int i = 0; i < parts; i++) {
        paths[i] = mo_gguf_part_path(gguf, i);
    }
    disk.regions = regions;
    disk.region_bytes = region_bytes;
    disk.region_count = region_count;
    const mo_status status = mo_disk_open(paths, parts, &disk, out, err);
    free(paths);
    return status;
}
