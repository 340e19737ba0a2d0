#include "plan/location.h"

#include <pthread.h>

/* Protected by the lock. An entry with 0 bytes is free. */
static struct {
    mo_location_id location;
    int64_t bytes;
} entries[MO_HELD_LOCATIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool same(mo_location_id a, mo_location_id b)
{
    return a.machine == b.machine && a.device == b.device && a.tier == b.tier;
}

void mo_location_hold(mo_location_id location, int64_t bytes)
{
    int at = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MO_HELD_LOCATIONS; i++) {
        if (entries[i].bytes != 0 && same(entries[i].location, location)) {
            at = i;
            break;
        }
        at = at < 0 && entries[i].bytes == 0 ? i : at;
    }
    if (at >= 0) {
        entries[at].location = location;
        entries[at].bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
}

int64_t mo_location_held(mo_location_id location)
{
    int64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MO_HELD_LOCATIONS; i++) {
        bytes += entries[i].bytes != 0 && same(entries[i].location, location) ? entries[i].bytes : 0;
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

void mo_location_holding_add(mo_location_holding *h, mo_location_id location, int64_t bytes)
{
    if (bytes > 0 && h->count < MO_HOLDING_LOCATIONS) {
        h->location[h->count] = location;
        h->bytes[h->count++] = bytes;
    }
}

int64_t mo_location_holding_at(const mo_location_holding *h, mo_location_id location)
{
    int64_t bytes = 0;
    for (int i = 0; i < h->count; i++) {
        bytes += same(h->location[i], location) ? h->bytes[i] : 0;
    }
    return bytes;
}
