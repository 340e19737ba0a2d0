/* Expert map: see expert_map.h. */
#include "server/status/expert_map.h"

#include <stdlib.h>
#include <string.h>

/* The counts of one model. */
typedef struct seen_model {
    const char *id; /* the model's, which lives as long as the models */
    uint64_t *picks, *hits;
    size_t count;
    struct seen_model *next;
} seen_model;

struct srv_expert_map {
    seen_model *models;
    mo_expert_report list[SRV_LAYER_EXPERTS];
    char used[SRV_LAYER_EXPERTS], missed[SRV_LAYER_EXPERTS], locations[SRV_LAYER_EXPERTS];
};

srv_expert_map *srv_expert_map_open(void)
{
    return calloc(1, sizeof(srv_expert_map));
}

static void free_counts(seen_model *s)
{
    free(s->picks);
    free(s->hits);
    s->picks = s->hits = NULL;
    s->count = 0;
}

void srv_expert_map_close(srv_expert_map *map)
{
    while (map && map->models) {
        seen_model *s = map->models;
        map->models = s->next;
        free_counts(s);
        free(s);
    }
    free(map);
}

char srv_expert_map_letter(mo_expert_place location)
{
    return location == MO_EXPERT_DEVICE ? '2' : location == MO_EXPERT_RAM ? '1' : '0';
}

/* The counts for this many experts of a model; reset if it was reloaded from another file. NULL: no memory. */
static seen_model *find(srv_expert_map *map, const char *id, size_t count)
{
    seen_model *s = map->models;
    while (s && s->id != id) {
        s = s->next;
    }
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) {
            return NULL;
        }
        s->id = id;
        s->next = map->models;
        map->models = s;
    }
    if (s->count != count) {
        free_counts(s);
        s->picks = calloc(count + 1, sizeof *s->picks);
        s->hits = calloc(count + 1, sizeof *s->hits);
        if (!s->picks || !s->hits) {
            free_counts(s);
            return NULL;
        }
        s->count = count;
    }
    return s;
}

/* 0 to 9, then a to z; more is z. */
static char digit(uint64_t value)
{
    return (char)(value < 10 ? '0' + value : value < 36 ? 'a' + (value - 10) : 'z');
}

/* What was added to a count that may have begun anew. */
static uint64_t since(uint64_t *before, uint64_t now)
{
    const uint64_t added = now >= *before ? now - *before : now;
    *before = now;
    return added;
}

static void put_member(srv_writer *w, const char *name, const char *letters, size_t count)
{
    srv_puts(w, name);
    srv_put(w, letters, count);
    srv_put_literal(w, "\"");
}

static void put_layer(srv_expert_map *map, mo_model *model, int layer, seen_model *s, size_t first,
                      bool fresh, srv_writer *w)
{
    const int count = mo_model_experts(model, layer, map->list, sizeof *map->list, SRV_LAYER_EXPERTS);
    size_t n = 0;
    for (; n < (size_t)count && n < SRV_LAYER_EXPERTS && first + n < s->count; n++) {
        const mo_expert_report *e = &map->list[n];
        const uint64_t used = since(&s->picks[first + n], e->picks),
                       hits = since(&s->hits[first + n], e->hits);
        map->locations[n] = srv_expert_map_letter(e->place);
        map->used[n] = digit(fresh ? 0 : used);
        map->missed[n] = digit(fresh || hits > used ? 0 : used - hits);
    }
    srv_print(w, "{\"layer\":%d", layer);
    put_member(w, ",\"places\":\"", map->locations, n);
    put_member(w, ",\"used\":\"", map->used, n);
    put_member(w, ",\"missed\":\"", map->missed, n);
    srv_put_literal(w, "}");
}

static void put_model(srv_expert_map *map, srv_model *held, bool fresh, srv_writer *w)
{
    mo_model *model = srv_model_mo(held);
    mo_model_info info;
    size_t count = 0, first = 0;
    mo_model_describe(model, &info, sizeof info);
    for (int layer = 0; layer < info.layers; layer++) {
        count += (size_t)mo_model_layer_experts(model, layer);
    }
    seen_model *s = find(map, srv_model_id(held), count);
    srv_print(w, "{\"model\":%s,\"layers\":[", srv_model_id(held));
    for (int layer = 0; s && layer < info.layers; layer++) {
        const int experts = mo_model_layer_experts(model, layer);
        if (experts > 0) {
            srv_puts(w, first ? "," : "");
            put_layer(map, model, layer, s, first, fresh, w);
            first += (size_t)experts;
        }
    }
    srv_put_literal(w, "]}");
}

void srv_expert_map_write(srv_expert_map *map, srv_models *models, bool fresh, srv_writer *w)
{
    bool first = true;
    srv_put_literal(w, "{\"models\":[");
    for (int i = 0, count = srv_models_count(models); i < count; i++) {
        srv_model *model = srv_models_peek(models, i);
        if (model) {
            srv_puts(w, first ? "" : ",");
            put_model(map, model, fresh, w);
            first = false;
            srv_models_unpeek(model);
        }
    }
    srv_put_literal(w, "]}");
}
