/* Expert table: the parts of a model that stay on disk, numbered: the experts of all routed layers, and
 * layers whose core is streamed. It knows where each expert's bytes are and how large a slot it needs. */
#ifndef MO_EXPERTS_EXPERT_TABLE_H
#define MO_EXPERTS_EXPERT_TABLE_H

#include "disk/disk.h"
#include "model/load.h"

enum {
    MO_EXPERT_PARTS = 16,   /* maximum matrices of an expert */
    MO_EXPERT_CLASSES = 16, /* maximum slot sizes; models with more share the larger ones */
};

/* One matrix of an expert. */
typedef struct mo_expert_part {
    mo_weights *matrix; /* the view whose data pointer is set to the bytes */
    int file;
    int64_t offset, bytes;
    int64_t at; /* offset in the slot */
} mo_expert_part;

typedef struct mo_expert_home {
    int32_t layer, expert; /* expert -1: the layer's core */
    int32_t first, parts;  /* in mo_expert_table.parts; gate, up, down for experts */
    int64_t bytes;
    int32_t size_class;
    int32_t in_class; /* its number in the class */
} mo_expert_home;

typedef struct mo_expert_class {
    int64_t slot_bytes;
    int64_t bytes;      /* weights of all its experts */
    int32_t count;      /* experts */
    int32_t used;       /* maximum that one token needs in one layer */
    int32_t layers;     /* number of layers with experts of this class */
    int32_t *expert_id; /* [count] numbers in mo_expert_table.home */
} mo_expert_class;

typedef struct mo_expert_table {
    mo_expert_home *home;
    int32_t count; /* entries: experts first, then layers */
    int32_t expert_count;
    mo_expert_part *parts;
    mo_expert_class classes[MO_EXPERT_CLASSES]; /* size classes of experts, larger ones first */
    int class_count;
    int layers, experts; /* sizes of the map */
    int32_t *map;        /* [layers][experts] index in home, or -1 */
    int32_t *layer;      /* [layers] index in home of a streamed layer, or -1 */
    int64_t layer_bytes; /* of the largest streamed layer */
} mo_expert_table;

/* Slot bytes for a matrix at any file offset: whole pages, and one more because it may begin inside a
 * page. */
int64_t mo_expert_part_span(int64_t bytes);

/* Lists everything that the loader left on disk. */
mo_status mo_expert_table_create(const mo_checkpoint *model, mo_expert_table **out, mo_error *err);
void mo_expert_table_destroy(mo_expert_table *b); /* NULL is allowed */

/* Opens the model's files to read experts into these regions, like mo_disk_open(). */
mo_status mo_expert_table_open_disk(const mo_checkpoint *model, const mo_disk_options *options,
                                    uint8_t *const *regions, const size_t *region_bytes, int region_count,
                                    mo_disk **out, mo_error *err);

static inline int32_t mo_expert_table_id(const mo_expert_table *b, int layer, int expert)
{
    return b->map[(int64_t)layer * b->experts + expert];
}

#endif
