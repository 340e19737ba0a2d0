/* A slot's memory has a room for each matrix of its brick; a room begins on a page and the bytes begin inside
 * it where they begin inside their page of the file, so that a direct read lands where it is used. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "numeric/block.h"
#include "store/slots.h"

/* An expert's matrices. */
enum { GATE, UP, DOWN, MATRICES };

/* Bricks of one submission. */
enum { AT_ONCE = 64 };

/* States of a need. */
enum { NEED_SLOT, NEED_BYTES, NEED_NOTHING };

/* Where a brick's bytes are, besides what mo_slots knows. */
enum { GUESS_NONE, GUESS_UNDER_WAY, GUESS_LANDED };

typedef struct brick_slot {
    mo_read reads[MATRICES];
    uint8_t guess;
} brick_slot;

typedef struct size_class {
    mo_slots *slots;
    brick_slot *slot; /* [slot_count] */
    int32_t slot_count;
    uint8_t *memory;
    size_t memory_bytes;
    int64_t room;
    const int32_t *brick; /* number in the class -> brick */
} size_class;

struct mo_store {
    const mo_bricks *bricks;
    const mo_checkpoint *model;
    const mo_policy *policy;
    bool still;
    mo_disk *disk;
    size_class classes[MO_BRICK_CLASSES];
    int class_count;
    bool *checked; /* [bricks] their bytes were found to be well formed, or cannot be otherwise */
    uint64_t now;  /* passes */
    mo_store_phase phase;

    mo_need *needs; /* of the current layer */
    int need_count;
    int32_t *guesses; /* bricks whose guessed reads are under way */
    int guess_count, guess_room;
    mo_store_counters counters;
};

/* ---- Small steps ---- */

static size_class *class_of(const mo_store *s, int32_t brick)
{
    return (size_class *)&s->classes[s->bricks->home[brick].size_class];
}

static int32_t slot_number(const mo_store *s, int32_t brick)
{
    return mo_slots_find(class_of(s, brick)->slots, s->bricks->home[brick].in_class);
}

static brick_slot *slot_of(const mo_store *s, int32_t brick)
{
    return &class_of(s, brick)->slot[slot_number(s, brick)];
}

static bool landed(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire) == MO_READ_DONE;
}

static bool failed(const mo_read *r)
{
    return atomic_load_explicit(&r->state, memory_order_acquire) == MO_READ_FAILED;
}

static bool ended(const brick_slot *slot)
{
    for (int i = 0; i < MATRICES; i++) {
        if (!landed(&slot->reads[i]) && !failed(&slot->reads[i])) {
            return false;
        }
    }
    return true;
}

static void pin(mo_store *s, int32_t brick)
{
    mo_slots_pin(class_of(s, brick)->slots, s->bricks->home[brick].in_class);
}

static void unpin(mo_store *s, int32_t brick)
{
    mo_slots_unpin(class_of(s, brick)->slots, s->bricks->home[brick].in_class);
}

static void clear_views(const mo_store *s, int32_t brick)
{
    const mo_brick_home *home = &s->bricks->home[brick];
    for (int i = 0; i < home->parts; i++) {
        s->bricks->parts[home->first + i].matrix->data = NULL;
    }
}

static void drop(mo_store *s, int32_t brick)
{
    clear_views(s, brick);
    mo_slots_drop(class_of(s, brick)->slots, s->bricks->home[brick].in_class);
}

/* Gives the brick a slot, pinned, and prepares its reads. False when every slot is in use. */
static bool take_slot(mo_store *s, int32_t brick, mo_urgency urgency)
{
    const mo_brick_home *home = &s->bricks->home[brick];
    size_class *c = class_of(s, brick);
    int32_t evicted = -1;
    const int32_t number = mo_slots_take(c->slots, home->in_class, &evicted);
    if (number < 0) {
        return false;
    }
    brick_slot *slot = &c->slot[number];
    if (evicted >= 0) {
        s->counters.evictions++;
        s->counters.wasted += slot->guess == GUESS_LANDED;
        clear_views(s, c->brick[evicted]);
    }
    slot->guess = GUESS_NONE;
    for (int i = 0; i < MATRICES; i++) {
        const mo_brick_part *part = &s->bricks->parts[home->first + i];
        mo_read *r = &slot->reads[i];
        r->part = part->file;
        r->offset = part->offset;
        r->bytes = part->bytes;
        r->room = c->memory + (size_t)number * (size_t)c->room + part->at;
        r->urgency = urgency;
        atomic_store_explicit(&r->state, MO_READ_IDLE, memory_order_relaxed);
    }
    return true;
}

/* ---- Looking ---- */

/* Bytes that came from disk for the first time: formats that can hold nonsense are checked once. */
static mo_status check(mo_store *s, int32_t brick, mo_error *err)
{
    const mo_brick_home *home = &s->bricks->home[brick];
    for (int i = 0; i < MATRICES && !s->checked[brick]; i++) {
        const mo_brick_part *part = &s->bricks->parts[home->first + i];
        const mo_status status = mo_format_check(part->matrix->type, part->matrix->data, part->bytes, err);
        if (status != MO_OK) {
            return mo_fail_prefix(err, status, "%s: layer %d, expert %d", mo_checkpoint_path(s->model),
                                  home->layer, home->expert);
        }
    }
    s->checked[brick] = true;
    return MO_OK;
}

static void show(const mo_store *s, int32_t brick, int matrix, const mo_read *r)
{
    s->bricks->parts[s->bricks->home[brick].first + matrix].matrix->data = mo_disk_data(r);
}

static mo_status read_failure(const mo_store *s, int32_t brick, const brick_slot *slot, mo_error *err)
{
    const mo_brick_home *home = &s->bricks->home[brick];
    for (int i = 0; i < MATRICES; i++) {
        if (failed(&slot->reads[i])) {
            *err = slot->reads[i].error;
            return mo_fail_prefix(err, err->status, "layer %d, expert %d could not be read", home->layer,
                                  home->expert);
        }
    }
    return MO_OK;
}

/* Fills the answers of a need whose slot is taken; true when one has changed. A brick that was never checked is
 * given out whole, so that it can be checked whole. */
static bool answer(mo_store *s, mo_need *need, mo_status *status, mo_error *err)
{
    const brick_slot *slot = slot_of(s, need->brick);
    const bool had_in = need->in, had_down = need->down;
    if (!s->checked[need->brick]) {
        if (!ended(slot)) {
            return false;
        }
        *status = *status == MO_OK ? read_failure(s, need->brick, slot, err) : *status;
        for (int m = 0; m < MATRICES && *status == MO_OK; m++) {
            show(s, need->brick, m, &slot->reads[m]);
        }
        *status = *status == MO_OK ? check(s, need->brick, err) : *status;
        need->in = need->down = *status == MO_OK;
        return true;
    }
    if (!need->in && landed(&slot->reads[GATE]) && landed(&slot->reads[UP])) {
        show(s, need->brick, GATE, &slot->reads[GATE]);
        show(s, need->brick, UP, &slot->reads[UP]);
        need->in = true;
    }
    if (!need->down && landed(&slot->reads[DOWN])) {
        show(s, need->brick, DOWN, &slot->reads[DOWN]);
        need->down = true;
    }
    if (*status == MO_OK && ended(slot)) {
        *status = read_failure(s, need->brick, slot, err);
    }
    return need->in != had_in || need->down != had_down || *status != MO_OK;
}

/* Every gate and up before any down. */
static void submit(mo_store *s, const int32_t *bricks, int count)
{
    mo_read *reads[AT_ONCE * MATRICES];
    int n = 0;
    for (int i = 0; i < count; i++) {
        reads[n++] = &slot_of(s, bricks[i])->reads[GATE];
        reads[n++] = &slot_of(s, bricks[i])->reads[UP];
    }
    for (int i = 0; i < count; i++) {
        reads[n++] = &slot_of(s, bricks[i])->reads[DOWN];
    }
    if (n > 0) {
        mo_disk_submit(s->disk, reads, n);
    }
}

/* Takes slots for needs that have none yet and begins their reads. */
static void ask(mo_store *s)
{
    int32_t bricks[AT_ONCE];
    int count = 0;
    for (int i = 0; i < s->need_count; i++) {
        mo_need *need = &s->needs[i];
        if (need->state != NEED_SLOT || !take_slot(s, need->brick, MO_READ_NOW)) {
            continue;
        }
        need->state = NEED_BYTES;
        s->counters.phase[s->phase].bytes += (uint64_t)s->bricks->home[need->brick].bytes;
        bricks[count++] = need->brick;
        if (count == AT_ONCE) {
            submit(s, bricks, count);
            count = 0;
        }
    }
    submit(s, bricks, count);
}

/* Guesses that have landed may leave again; those that failed were none. */
static void settle_guesses(mo_store *s)
{
    int kept = 0;
    for (int i = 0; i < s->guess_count; i++) {
        const int32_t brick = s->guesses[i];
        brick_slot *slot = slot_of(s, brick);
        if (!ended(slot)) {
            s->guesses[kept++] = brick;
            continue;
        }
        bool good = true;
        for (int m = 0; m < MATRICES; m++) {
            good &= landed(&slot->reads[m]);
        }
        unpin(s, brick);
        if (slot->guess == GUESS_UNDER_WAY) {
            slot->guess = good ? GUESS_LANDED : GUESS_NONE;
            if (!good) {
                drop(s, brick);
            }
        }
    }
    s->guess_count = kept;
}

mo_status mo_store_look(mo_store *s, bool wait, mo_error *err)
{
    mo_status status = MO_OK;
    uint64_t seen = mo_disk_ended(s->disk);
    const int64_t began = wait ? mo_clock_ns() : 0;
    for (bool news = false;;) {
        settle_guesses(s);
        ask(s);
        for (int i = 0; i < s->need_count; i++) {
            mo_need *need = &s->needs[i];
            if (need->state == NEED_BYTES && !(need->in && need->down)) {
                news |= answer(s, need, &status, err);
            }
        }
        if (news || !wait || status != MO_OK) {
            break;
        }
        seen = mo_disk_wait(s->disk, seen);
    }
    if (wait) {
        s->counters.phase[s->phase].wait_ns += (uint64_t)(mo_clock_ns() - began);
    }
    return status;
}

/* ---- A layer ---- */

void mo_store_pass(mo_store *s, mo_store_phase phase)
{
    s->now++;
    s->phase = phase;
    s->counters.phase[phase].passes++;
}

/* A brick that is in a slot, or on its way there. */
static void meet(mo_store *s, mo_need *need)
{
    brick_slot *slot = slot_of(s, need->brick);
    mo_store_phase_counters *c = &s->counters.phase[s->phase];
    pin(s, need->brick);
    need->state = NEED_BYTES;
    if (slot->guess == GUESS_UNDER_WAY && !ended(slot)) {
        for (int i = 0; i < MATRICES; i++) {
            mo_disk_hasten(s->disk, &slot->reads[i]);
        }
        need->missing = true;
        c->landing++;
        s->counters.late++;
    } else {
        c->hits++;
        s->counters.useful += slot->guess != GUESS_NONE;
    }
    slot->guess = GUESS_NONE;
}

void mo_store_want(mo_store *s, int layer, mo_need *needs, int count)
{
    s->needs = needs;
    s->need_count = count;
    settle_guesses(s);
    for (int i = 0; i < count; i++) {
        mo_need *need = &needs[i];
        const int32_t brick = mo_bricks_of(s->bricks, layer, need->expert);
        *need = (mo_need){.expert = need->expert, .picks = need->picks, .brick = brick, .state = NEED_SLOT};
        mo_slots_touch(class_of(s, brick)->slots, s->bricks->home[brick].in_class, s->now, need->picks);
        s->counters.phase[s->phase].asked++;
        if (slot_number(s, brick) >= 0) {
            meet(s, need);
        } else {
            need->missing = true;
        }
    }
}

void mo_store_release(mo_store *s, mo_need *need)
{
    unpin(s, need->brick);
    need->state = NEED_NOTHING;
}

void mo_store_forgo(mo_store *s, mo_need *need)
{
    if (need->state == NEED_BYTES) { /* a guess that is under way */
        unpin(s, need->brick);
    }
    need->state = NEED_NOTHING;
}

void mo_store_leave(mo_store *s)
{
    for (int i = 0; i < s->need_count; i++) {
        mo_need *need = &s->needs[i];
        if (need->state != NEED_BYTES) {
            continue;
        }
        const brick_slot *slot = slot_of(s, need->brick);
        bool good = true;
        for (uint64_t seen = mo_disk_ended(s->disk); !ended(slot);) {
            seen = mo_disk_wait(s->disk, seen);
        }
        for (int m = 0; m < MATRICES; m++) {
            good &= landed(&slot->reads[m]);
        }
        unpin(s, need->brick);
        if (!good) {
            settle_guesses(s); /* a guess that became a need still holds a pin of its own */
            drop(s, need->brick);
        }
    }
    s->needs = NULL;
    s->need_count = 0;
}

/* Those of the experts that are resident must not make room for the others. */
static void hold(mo_store *s, int layer, const int32_t *experts, int count, bool on)
{
    for (int i = 0; i < count; i++) {
        const int32_t brick = mo_bricks_of(s->bricks, layer, experts[i]);
        if (slot_number(s, brick) >= 0) {
            if (on) {
                pin(s, brick);
            } else {
                unpin(s, brick);
            }
        }
    }
}

void mo_store_guess(mo_store *s, int layer, const int32_t *experts, int count, int64_t max_bytes)
{
    int32_t bricks[AT_ONCE];
    int chosen = 0;
    count = count < AT_ONCE ? count : AT_ONCE;
    settle_guesses(s);
    hold(s, layer, experts, count, true);
    for (int i = 0; i < count; i++) {
        const int32_t brick = mo_bricks_of(s->bricks, layer, experts[i]);
        if (slot_number(s, brick) >= 0 || s->bricks->home[brick].bytes > max_bytes ||
            s->guess_count == s->guess_room || !take_slot(s, brick, MO_READ_GUESS)) {
            continue;
        }
        pin(s, brick); /* which hold() takes back */
        max_bytes -= s->bricks->home[brick].bytes;
        slot_of(s, brick)->guess = GUESS_UNDER_WAY;
        s->guesses[s->guess_count++] = brick;
        s->counters.guessed++;
        s->counters.guessed_bytes += (uint64_t)s->bricks->home[brick].bytes;
        bricks[chosen++] = brick;
    }
    submit(s, bricks, chosen);
    hold(s, layer, experts, count, false);
}

bool mo_store_resident(const mo_store *s, int layer, int expert)
{
    const int32_t brick = mo_bricks_of(s->bricks, layer, expert);
    return brick >= 0 && slot_number(s, brick) >= 0 && ended(slot_of(s, brick));
}

/* ---- Between passes ---- */

typedef struct warm_item {
    int32_t brick;
    int file;
    int64_t offset;
    const mo_store_request *request;
} warm_item;

static int by_place(const void *left, const void *right)
{
    const warm_item *a = left, *b = right;
    return a->file != b->file ? a->file - b->file : (a->offset > b->offset) - (a->offset < b->offset);
}

/* Slots that warming leaves free, so that a layer's misses find room without an eviction; where every brick has a
 * slot nothing will miss. */
static int32_t spare_slots(const mo_store *s, int index)
{
    const mo_brick_class *c = &s->bricks->classes[index];
    return s->still && s->classes[index].slot_count < c->count ? 2 * c->used : 0;
}

/* Those of the requests that are not resident and for which there is room, sorted by their place. */
static int choose_warm(mo_store *s, const mo_store_request *requests, int count, uint64_t most,
                       warm_item *items)
{
    int32_t room[MO_BRICK_CLASSES];
    int chosen = 0;
    for (int i = 0; i < s->class_count; i++) {
        room[i] = mo_slots_free(s->classes[i].slots) - spare_slots(s, i);
    }
    for (int i = 0; i < count; i++) {
        const mo_store_request *w = &requests[i];
        const bool known =
            w->layer >= 0 && w->layer < s->bricks->layers && w->expert >= 0 && w->expert < s->bricks->experts;
        const int32_t brick = known ? mo_bricks_of(s->bricks, w->layer, w->expert) : -1;
        if (brick < 0) {
            continue;
        }
        const mo_brick_home *home = &s->bricks->home[brick];
        if (w->hits > 0) {
            mo_slots_seed(s->classes[home->size_class].slots, home->in_class, w->hits, most);
        }
        if (slot_number(s, brick) < 0 && room[home->size_class] > 0) {
            room[home->size_class]--;
            const mo_brick_part *first = &s->bricks->parts[home->first];
            items[chosen++] = (warm_item){brick, first->file, first->offset, w};
        }
    }
    qsort(items, (size_t)chosen, sizeof *items, by_place);
    return chosen;
}

/* Waits for one brick that was asked for without need; unpins it, or drops it when it failed. */
static mo_status receive(mo_store *s, int32_t brick, mo_error *err)
{
    const brick_slot *slot = slot_of(s, brick);
    for (uint64_t seen = mo_disk_ended(s->disk); !ended(slot);) {
        seen = mo_disk_wait(s->disk, seen);
    }
    mo_status status = read_failure(s, brick, slot, err);
    for (int m = 0; m < MATRICES && status == MO_OK; m++) {
        show(s, brick, m, &slot->reads[m]);
    }
    status = status == MO_OK ? check(s, brick, err) : status;
    unpin(s, brick);
    if (status != MO_OK) {
        drop(s, brick);
    }
    return status;
}

static void keep(mo_store *s, int32_t brick)
{
    mo_slots_keep(class_of(s, brick)->slots, s->bricks->home[brick].in_class, true);
}

mo_status mo_store_warm(mo_store *s, const mo_store_request *requests, int count, uint64_t most_hits,
                        mo_progress_fn progress, void *user, mo_error *err)
{
    warm_item *items = malloc(((size_t)count + 1) * sizeof *items);
    if (!items) {
        return mo_fail(err, MO_ENOMEM, "no memory for warming the cache; free some and try again");
    }
    const int chosen = choose_warm(s, requests, count, most_hits, items);
    mo_status status = MO_OK;
    int asked = 0;
    for (int got = 0; got < chosen; got++) {
        for (int32_t brick; asked < chosen && asked < got + AT_ONCE; asked++) {
            brick = items[asked].brick;
            take_slot(s, brick, MO_READ_AHEAD); /* a free slot was counted for it */
            submit(s, &brick, 1);
        }
        mo_error one = {0};
        const mo_status result = receive(s, items[got].brick, &one);
        if (result == MO_OK && (s->still || items[got].request->keep)) {
            keep(s, items[got].brick);
        }
        if (result != MO_OK && status == MO_OK) {
            status = result;
            *err = one;
        }
        if (status == MO_OK && progress && !progress(user, got + 1, chosen)) {
            status = mo_fail(err, MO_ECANCELLED, "warming the cache was stopped before it was done");
        }
        if (status != MO_OK) {
            for (int rest = got + 1; rest < asked; rest++) {
                receive(s, items[rest].brick, &one);
            }
            break;
        }
    }
    free(items);
    return status;
}

mo_status mo_store_exchange(mo_store *s, int layer, int evict, int add, mo_error *err)
{
    const int32_t from = mo_bricks_of(s->bricks, layer, evict), to = mo_bricks_of(s->bricks, layer, add);
    settle_guesses(s);
    const bool there = to >= 0 && slot_number(s, to) >= 0;
    const bool passing = there && s->still && ended(slot_of(s, to));
    if (from < 0 || to < 0 || from == to || !mo_store_resident(s, layer, evict) || (there && !passing) ||
        class_of(s, from) != class_of(s, to)) {
        return mo_fail(err, MO_EINVAL, "layer %d: expert %d cannot take the place of expert %d", layer, add,
                       evict);
    }
    drop(s, from);
    mo_status status = MO_OK;
    if (!there) {
        take_slot(s, to, MO_READ_NOW); /* the slot that has just become free, or another free one */
        submit(s, &to, 1);
        status = receive(s, to, err);
    }
    if (status == MO_OK && s->still) {
        keep(s, to);
    }
    return status;
}

mo_status mo_store_bring(mo_store *s, int layer, int expert, mo_error *err)
{
    const int32_t brick = mo_bricks_of(s->bricks, layer, expert);
    mo_store_settle(s);
    if (slot_number(s, brick) >= 0) {
        pin(s, brick); /* which receive() takes back */
    } else if (take_slot(s, brick, MO_READ_NOW)) {
        submit(s, &brick, 1);
    } else {
        return mo_fail(err, MO_ENOMEM,
                       "layer %d, expert %d: every place in RAM is in use; choose a larger --ram", layer,
                       expert);
    }
    return receive(s, brick, err);
}

void mo_store_settle(mo_store *s)
{
    uint64_t seen = mo_disk_ended(s->disk);
    for (settle_guesses(s); s->guess_count > 0; settle_guesses(s)) {
        seen = mo_disk_wait(s->disk, seen);
    }
}

/* ---- Copies of what is resident ---- */

int32_t mo_store_class_slots(const mo_store *s, int index)
{
    return s->classes[index].slot_count;
}

int32_t mo_store_slot(const mo_store *s, int index, int32_t slot, const uint8_t **room)
{
    const size_class *c = &s->classes[index];
    const int32_t number = mo_slots_brick(c->slots, slot);
    *room = c->memory + (size_t)slot * (size_t)c->room;
    for (int m = 0; number >= 0 && m < MATRICES; m++) {
        if (!landed(&c->slot[slot].reads[m])) {
            return -1;
        }
    }
    return number < 0 ? -1 : c->brick[number];
}

uint8_t *mo_store_claim(mo_store *s, int32_t brick)
{
    const size_class *c = class_of(s, brick);
    if (slot_number(s, brick) >= 0 || mo_slots_free(c->slots) == 0 || !take_slot(s, brick, MO_READ_AHEAD)) {
        return NULL;
    }
    return c->memory + (size_t)slot_number(s, brick) * (size_t)c->room;
}

mo_status mo_store_filled(mo_store *s, int32_t brick, bool good, mo_error *err)
{
    brick_slot *slot = slot_of(s, brick);
    for (int m = 0; m < MATRICES && good; m++) {
        atomic_store_explicit(&slot->reads[m].state, MO_READ_DONE, memory_order_relaxed);
        show(s, brick, m, &slot->reads[m]);
    }
    const mo_status status = good ? check(s, brick, err) : MO_OK;
    unpin(s, brick);
    if (!good || status != MO_OK) {
        drop(s, brick);
    }
    return status;
}

/* ---- Instruments ---- */

mo_store_counters mo_store_count(const mo_store *s)
{
    mo_store_counters c = s->counters;
    c.disk = mo_disk_count(s->disk);
    return c;
}

void mo_store_slots(const mo_store *s, int32_t *slots, int32_t *filled, int64_t *bytes)
{
    *slots = *filled = 0;
    *bytes = 0;
    for (int i = 0; i < s->class_count; i++) {
        const size_class *c = &s->classes[i];
        *slots += c->slot_count;
        *filled += c->slot_count - mo_slots_free(c->slots);
        *bytes += (int64_t)c->memory_bytes;
    }
}

const mo_disk *mo_store_disk(const mo_store *s)
{
    return s->disk;
}

const mo_policy *mo_store_policy(const mo_store *s)
{
    return s->policy;
}

const mo_bricks *mo_store_bricks(const mo_store *s)
{
    return s->bricks;
}

/* ---- Opening ---- */

static mo_status open_class(mo_store *s, int index, int32_t slots, mo_error *err)
{
    const mo_brick_class *from = &s->bricks->classes[index];
    size_class *c = &s->classes[index];
    if (slots < from->used) {
        return mo_fail(err, MO_EINVAL,
                       "%d slots are too few for the %d experts of %lld bytes that a token needs", slots,
                       from->used, (long long)from->room);
    }
    c->slot_count = slots < from->count ? slots : from->count;
    c->room = from->room;
    c->brick = from->brick;
    c->memory_bytes = (size_t)c->slot_count * (size_t)c->room;
    c->memory = mo_host_alloc_huge(c->memory_bytes);
    c->slot = calloc((size_t)c->slot_count, sizeof *c->slot);
    s->class_count = index + 1;
    if (!c->memory || !c->slot) {
        return mo_fail(err, MO_ENOMEM,
                       "%.1f MiB for %d experts cannot be had; free some memory or choose a smaller --ram",
                       (double)c->memory_bytes / (1 << 20), c->slot_count);
    }
    const mo_status status = mo_slots_create(s->policy, from->count, c->slot_count, &c->slots, err);
    for (int32_t i = 0; i < from->count && status == MO_OK; i++) {
        mo_slots_place(c->slots, i, s->bricks->home[from->brick[i]].layer);
    }
    return status;
}

/* Memory that must not be swapped out: the plan counted on it. */
uint8_t *mo_store_region(const mo_store *s, int number, size_t *bytes)
{
    *bytes = number < s->class_count ? s->classes[number].memory_bytes : 0;
    return number < s->class_count ? s->classes[number].memory : NULL;
}

static void lock_memory(const mo_store *s)
{
    for (int i = 0; i < s->class_count; i++) {
        if (mlock(s->classes[i].memory, s->classes[i].memory_bytes) != 0) {
            mo_log(
                MO_LOG_WARN, "store",
                "the cache of experts could not be locked in RAM (see ulimit -l); under memory pressure the "
                "system may swap parts of it");
            return;
        }
    }
}

static mo_status open_disk(mo_store *s, const mo_store_options *options, mo_error *err)
{
    uint8_t *regions[MO_BRICK_CLASSES];
    size_t bytes[MO_BRICK_CLASSES];
    for (int i = 0; i < s->class_count; i++) {
        regions[i] = s->classes[i].memory;
        bytes[i] = s->classes[i].memory_bytes;
    }
    return mo_bricks_open_disk(s->model, &options->disk, regions, bytes, s->class_count, &s->disk, err);
}

static mo_status open_store(mo_store *s, const mo_store_options *options, mo_error *err)
{
    mo_status status = MO_OK;
    int32_t slots = 0;
    s->policy = options->policy ? options->policy : mo_policy_at(0);
    for (int i = 0; i < s->bricks->class_count && status == MO_OK; i++) {
        status = open_class(s, i, options->class_slots[i], err);
        slots += s->classes[i].slot_count;
    }
    if (status != MO_OK) {
        return status;
    }
    s->guess_room = slots / 4;
    s->checked = calloc((size_t)s->bricks->count + 1, sizeof *s->checked);
    s->guesses = calloc((size_t)s->guess_room + 1, sizeof *s->guesses);
    if (!s->checked || !s->guesses) {
        return mo_fail(err, MO_ENOMEM, "no memory for the store; free some and try again");
    }
    for (int32_t i = 0; i < s->bricks->count; i++) {
        const mo_brick_home *home = &s->bricks->home[i];
        s->checked[i] = true;
        for (int m = 0; m < home->parts; m++) {
            s->checked[i] &= !mo_format_needs_check(s->bricks->parts[home->first + m].matrix->type);
        }
    }
    status = open_disk(s, options, err);
    if (status == MO_OK) {
        lock_memory(s);
    }
    return status;
}

mo_status mo_store_open(const mo_checkpoint *model, const mo_bricks *bricks, const mo_store_options *options,
                        mo_store **out, mo_error *err)
{
    mo_store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "no memory for the store; free some and try again");
    }
    s->bricks = bricks;
    s->model = model;
    s->still = options->still;
    const mo_status status = open_store(s, options, err);
    if (status != MO_OK) {
        mo_store_close(s);
        return status;
    }
    *out = s;
    return MO_OK;
}

void mo_store_close(mo_store *s)
{
    if (!s) {
        return;
    }
    mo_disk_close(s->disk); /* nothing writes into the slots after this */
    for (int i = 0; i < s->class_count; i++) {
        size_class *c = &s->classes[i];
        mo_slots_destroy(c->slots);
        free(c->slot);
        if (c->memory) {
            mo_host_free_huge(c->memory, c->memory_bytes);
        }
    }
    free(s->checked);
    free(s->guesses);
    free(s);
}
