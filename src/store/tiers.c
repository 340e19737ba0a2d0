#include "store/tiers.h"

#include <stdlib.h>

#include "base/status.h"

static mo_status open_parts(mo_tiers *t, const mo_checkpoint *model, const mo_tiers_options *o, mo_error *err)
{
    size_t count = 0;
    const mo_home *homes = mo_checkpoint_homes(model, &count);
    mo_status status = mo_expert_table_create(model, &t->experts, err);
    if (status == MO_OK && t->experts->expert_count > 0) {
        status = mo_store_open(model, t->experts, &o->store, &t->store, err);
    }
    if (status == MO_OK && t->experts->count > t->experts->expert_count) {
        mo_disk_options disk = o->store.disk;
        disk.told = t->store != NULL;
        status =
            mo_layer_buffer_open(model, t->experts, o->layer_slots, o->pass_bytes, &disk, &t->layers, err);
    }
    if (status == MO_OK && count > 0 && homes[count - 1].layer < 0) {
        status = mo_rows_open(model, &t->rows, err);
    }
    return status;
}

mo_status mo_tiers_open(const mo_checkpoint *model, const mo_tiers_options *options, mo_tiers **out,
                        mo_error *err)
{
    mo_tiers *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tiers; free some and try again");
    }
    t->prefetch = (mo_prefetch_state){
        .on = options->predict, .layers = options->predict, .distance = 1, .most = MO_PREFETCH_DISTANCE_MAX};
    t->skip_missing = options->skip_missing;
    const mo_status status = open_parts(t, model, options, err);
    if (status != MO_OK) {
        mo_tiers_close(t);
        return status;
    }
    *out = t;
    return MO_OK;
}

void mo_tiers_close(mo_tiers *t)
{
    if (t) {
        mo_store_close(t->store);
        mo_layer_buffer_close(t->layers);
        mo_rows_close(t->rows);
        mo_expert_table_destroy(t->experts);
        free(t);
    }
}
