#include "plan/place.h"

#include <pthread.h>

/* Protected by the lock. An entry that holds nothing is free. */
static struct {
    mo_place_id place;
    int64_t bytes;
} entries[MO_HELD_PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool same(mo_place_id a, mo_place_id b)
{
    return a.machine == b.machine && a.device == b.device && a.tier == b.tier;
}

void mo_place_hold(mo_place_id place, int64_t bytes)
{
    int at = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MO_HELD_PLACES; i++) {
        if (entries[i].bytes != 0 && same(entries[i].place, place)) {
            at = i;
            break;
        }
        at = at < 0 && entries[i].bytes == 0 ? i : at;
    }
    if (at >= 0) {
        entries[at].place = place;
        entries[at].bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
}

int64_t mo_place_held(mo_place_id place)
{
    int64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MO_HELD_PLACES; i++) {
        bytes += entries[i].bytes != 0 && same(entries[i].place, place) ? entries[i].bytes : 0;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

void mo_place_holding_add(mo_place_holding *h, mo_place_id place, int64_t bytes)
{
    if (bytes > 0 && h->count < MO_HOLDING_PLACES) {
        h->place[h->count] = place;
        h->bytes[h->count++] = bytes;
    }
}

int64_t mo_place_holding_at(const mo_place_holding *h, mo_place_id place)
{
    int64_t bytes = 0;
    for (int i = 0; i < h->count; i++) {
        bytes += same(h->place[i], place) ? h->bytes[i] : 0;
    }
    return bytes;
}
