#include "plan/kv_in_ram.h"

#include <math.h>

double mo_plan_kv_in_ram_token(const mo_plan_model *m, int layers, int64_t bytes)
{
    double all = 0;
    for (int i = m->layers - 1; m->layer && i >= 0 && layers > 0; i--) {
        all += m->layer[i].kv_bytes > 0 ? (double)m->layer[i].read_bytes : 0;
        layers -= m->layer[i].kv_bytes > 0;
    }
    return (all > 0 ? all : (double)bytes) / 2;
}

/* Sum of the positions that all tiles of the step read over the link: each reads the positions before its own
 * end, except the first `brought`, which are staged. */
static double tile_positions(int64_t from, int64_t tokens, int64_t each, int64_t brought)
{
    const int64_t count = (tokens + each - 1) / each;
    /* tiles that end within the staged positions */
    const int64_t before = brought > from ? (brought - from) / each : 0;
    const double tiles = (double)count, skip = (double)before;
    if (brought >= from + tokens) {
        return 0;
    }
    return (tiles - skip) * (double)(from - brought) +
           (double)each * (tiles * (tiles - 1) - skip * (skip + 1)) / 2 + (double)tokens;
}

static double layer_crossing(const mo_plan_model *m, const mo_plan_layer *l, int64_t from, int64_t tokens)
{
    const double position = (double)l->read_bytes / (double)m->context, block = position * MO_PLAN_KV_BLOCK;
    const int64_t all = (from + tokens + MO_PLAN_KV_BLOCK - 1) / MO_PLAN_KV_BLOCK;
    if (!(block > 0)) {
        return 0;
    }
    const double space = mo_plan_brings(tokens, l->queries) ? floor((double)m->device_idle_bytes / block) : 0;
    const int64_t brought = space < (double)all ? (int64_t)space : all;
    const double read =
        tile_positions(from, tokens, mo_plan_tile_tokens(l->queries), brought * MO_PLAN_KV_BLOCK);
    return (double)brought * block + position * (double)mo_plan_tile_reads(l->queries) * read;
}

double mo_plan_kv_in_ram_crossing(const mo_plan_model *m, int layers, int64_t from, int64_t tokens)
{
    double bytes = 0;
    for (int i = m->layers - 1; m->layer && m->context > 0 && tokens > 0 && i >= 0 && layers > 0; i--) {
        if (m->layer[i].kv_bytes > 0) {
            bytes += layer_crossing(m, &m->layer[i], from, tokens);
            layers--;
        }
    }
    return bytes;
}

double mo_plan_kv_in_ram_prompt(const mo_plan_model *m, int layers, int64_t from, int64_t tokens)
{
    const int64_t batch = m->batch > 0 && m->batch < tokens ? m->batch : tokens;
    double bytes = 0;
    for (int64_t done = 0; layers > 0 && done < tokens; done += batch) {
        bytes +=
            mo_plan_kv_in_ram_crossing(m, layers, from + done, tokens - done < batch ? tokens - done : batch);
    }
    return bytes;
}
