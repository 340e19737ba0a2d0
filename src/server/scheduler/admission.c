/* Places: which task begins next, in which sequences, and how much of its prompt is there already. */
#include <string.h>

#include "base/clock.h"
#include "server/common/caller.h"
#include "server/common/log.h"
#include "server/scheduler/scheduler.h"

/* Positions whose blocks a kept session may want when it is restored (mo_snapshot_lean()). */
enum { TAIL_MAX = 256 };

typedef struct admitting {
    srv_engine *engine;
    int free;
} admitting;

/* May the task begin now? Not while there are too few sequences, or while another task computes the prefix of its
 * prompt: then it waits for that. */
static bool may_begin(void *user, srv_job *task)
{
    const admitting *p = user;
    srv_engine *e = p->engine;
    if (task->choices > p->free) {
        return false;
    }
    for (int i = 0; e->sharing && !task->options.no_cache && i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (!s->task || s->waits || s->held >= s->prompt || s->task->options.no_cache ||
            s->task->adapters != task->adapters || !srv_owner_shares(s->task->owner, task->owner)) {
            continue;
        }
        const int64_t common = srv_tokens_alike(s->tokens, s->prompt, task->tokens, task->prompt);
        if (common < SRV_WORTHWHILE || common <= s->held || 2 * common < task->prompt) {
            continue;
        }
        if (!e->info.rewinds && common < s->prompt && (!s->mark || common < s->mark)) {
            s->mark = common; /* else what is shared could not be had from it */
        }
        return false;
    }
    return true;
}

/* Where a sequence's beginning can come from. */
typedef struct source {
    int64_t usable; /* tokens that need not be computed */
    int slot;       /* a free one that holds them; -1: none */
    int busy;       /* one that is running; -1: none */
    const mo_snapshot *snapshot;
} source;

/* What a session saves of a task's prompt. */
static int64_t usable(const srv_engine *e, const srv_sequence *s, const srv_job *task)
{
    if (mo_session_adapters(s->session) != task->adapters || !srv_owner_shares(s->owner, task->owner)) {
        return 0;
    }
    const int64_t common = srv_tokens_alike(s->tokens, s->held, task->tokens, task->prompt);
    return common == s->held || e->info.rewinds ? common : 0;
}

static source find_source(srv_engine *e, const srv_job *task)
{
    source best = {.slot = -1, .busy = -1};
    const srv_prefix_key key = {task->adapters, task->tokens, task->prompt, task->owner};
    int64_t saved;
    if (!e->sharing || task->options.no_cache) {
        return best;
    }
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        saved = s->task || s->dirty ? 0 : usable(e, s, task);
        if (saved > best.usable) {
            best = (source){.usable = saved, .slot = i, .busy = -1};
        }
    }
    const mo_snapshot *snapshot = e->prefix ? srv_prefix_find(e->prefix, &key, &saved) : NULL;
    if (snapshot && saved > best.usable + SRV_WORTHWHILE / 2) {
        best = (source){.usable = saved, .slot = -1, .busy = -1, .snapshot = snapshot};
    }
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        saved = !s->task || s->dirty || s->waits ? 0 : usable(e, s, task);
        if (saved > best.usable + SRV_WORTHWHILE) {
            best = (source){.usable = saved, .slot = -1, .busy = i};
        }
    }
    return best;
}

/* The free sequence that is missed least: the one with nothing to lose, or used longest ago. */
static int choose_slot(const srv_engine *e)
{
    int best = -1;
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        if (s->task) {
            continue;
        }
        const srv_sequence *b = best >= 0 ? &e->sequences[best] : NULL;
        if (!b || (s->held == 0 && b->held > 0) || ((s->held == 0) == (b->held == 0) && s->used < b->used)) {
            best = i;
        }
    }
    return best;
}

void srv_sequence_restore(srv_engine *e, srv_sequence *s, const mo_snapshot *snapshot)
{
    s->dirty = mo_session_restore(s->session, snapshot, -1, NULL) != MO_OK &&
               (snapshot == e->empty || mo_session_restore(s->session, e->empty, -1, NULL) != MO_OK);
}

/* As much of a kept one as the prompt has in common with it: all of it may be more than a sequence holds now. */
static mo_status restore_usable(const srv_engine *e, const srv_sequence *s, const source *from, mo_error *err)
{
    const int64_t all = mo_snapshot_length(from->snapshot);
    const int64_t length = e->info.rewinds && from->usable < all ? from->usable : all;
    return mo_session_restore(s->session, from->snapshot, length, err);
}

/* Restoring a cached one may take blocks: others are evicted for them. */
static void restore_kept(srv_engine *e, srv_sequence *s, const srv_job *task, source *from)
{
    mo_error err = {0};
    s->dirty = restore_usable(e, s, from, &err) != MO_OK;
    if (!s->dirty) {
        return;
    }
    srv_sequence_restore(e, s, e->empty);
    if (err.status != MO_ENOMEM || s->dirty) {
        return;
    }
    srv_memory_make_room_for(e, mo_session_need(s->session, TAIL_MAX));
    *from = find_source(e, task); /* it may have been dropped for that */
    if (from->snapshot && restore_usable(e, s, from, NULL) != MO_OK) {
        srv_sequence_restore(e, s, e->empty);
    }
}

/* Brings the sequence to what the source has. A part that could not be restored is computed again: it is not reported as cached, and does
 * not come as one piece. */
static void begin_from(srv_engine *e, srv_sequence *s, const srv_job *task, source *from)
{
    mo_snapshot *copy = NULL;
    if (from->busy >= 0 && mo_snapshot_open(e->sequences[from->busy].session, &copy, NULL) == MO_OK) {
        srv_sequence_restore(e, s, copy);
        mo_snapshot_close(copy);
    } else if (from->snapshot) {
        restore_kept(e, s, task, from);
    } else if (from->slot < 0 && (s->held > 0 || s->dirty)) {
        srv_sequence_restore(e, s, e->empty);
    }
    if (s->dirty || mo_session_length(s->session) < from->usable) {
        from->usable = 0;
    }
}

/* Gives the sequence to a choice of the task; its session is what it is. */
static void occupy(srv_engine *e, int slot, srv_job *task, int choice)
{
    srv_sequence *s = &e->sequences[slot];
    memcpy(s->tokens, task->tokens, sizeof *s->tokens * (size_t)task->prompt);
    pthread_mutex_lock(&e->lock);
    s->task = task;
    s->owner = task->owner;
    s->choice = choice;
    s->count = s->prompt = task->prompt;
    s->held = 0;
    s->cached = 0;
    s->generated = 0;
    s->waits = choice > 0;
    s->used = ++e->uses;
    task->slots[choice] = slot;
    if (atomic_load(&task->cancelled)) { /* later cancels find it by its slots */
        mo_session_cancel(s->session);
    }
    pthread_mutex_unlock(&e->lock);
    s->untold = (srv_draft_counts){0};
    s->kept = false;
    s->mark = 0;
}

/* The session computes with the task's adapters for the choice's generation. What it held with others is lost. */
static mo_status prepare(const srv_sequence *s, const srv_job *task, int choice, mo_error *err)
{
    const mo_status status =
        mo_session_adapt(s->session, task->options.adapters, task->options.adapter_count, err);
    return status == MO_OK
               ? mo_generation_prompt(task->generations[choice], s->session, task->tokens, task->prompt, err)
               : status;
}

/* Does another task have a sequence? */
static bool has_company(const srv_engine *e, const srv_job *task)
{
    bool any = false;
    for (int i = 0; i < e->parallel; i++) {
        any |= e->sequences[i].task && e->sequences[i].task != task;
    }
    return any;
}

/* For a text without a cached prefix: its experts are read before it is fed, if no other task waits for that. A failure costs only
 * that. */
static void discover(srv_engine *e, srv_sequence *s, const srv_job *task)
{
    mo_error err;
    const int64_t count = e->options.discover < task->prompt ? e->options.discover : task->prompt;
    int64_t experts;
    if (count < 1 || s->dirty || mo_session_length(s->session) > 0 || has_company(e, task)) {
        return;
    }
    if (mo_session_discover(s->session, task->tokens, count, &experts, &err) == MO_EUNSUPPORTED) {
        e->options.discover = 0;
        srv_say(MO_LOG_WARN, "discover", "no effect: %s", err.detail);
    }
}

static void begin_task(srv_engine *e, srv_job *task)
{
    mo_error err;
    source from = find_source(e, task);
    const int first = from.slot >= 0 ? from.slot : choose_slot(e);
    srv_sequence *s = &e->sequences[first];
    /* Wherever it comes from, this much is held again: by the same owner. */
    const int64_t same = s->owner == task->owner ? usable(e, s, task) : 0;
    if (!s->kept && s->held > same + SRV_WORTHWHILE / 2) {
        srv_memory_keep(e, s, s->held);                     /* what it held is about to be lost */
        from = from.snapshot ? find_source(e, task) : from; /* which may have been dropped for it */
    }
    mo_status status = prepare(s, task, 0, &err);
    if (from.slot >= 0 && from.slot != first) {
        from = (source){.slot = -1, .busy = -1};
    }
    begin_from(e, s, task, &from);
    if (e->prefix) {
        srv_prefix_return(e->prefix);
    }
    /* The last token always goes through the step in which the first one is sampled, though it may find its logits there. */
    const int64_t most = from.usable < task->prompt ? from.usable : task->prompt - 1;
    const srv_prefix_key key = {task->adapters, task->tokens, task->prompt, task->owner};
    /* Where snapshots cannot be shortened, the place where prompts part is worth one. */
    const int64_t common =
        e->prefix && !e->info.rewinds && !task->options.no_cache ? srv_prefix_common(e->prefix, &key) : 0;
    occupy(e, first, task, 0);
    mo_generation_set_held(task->generations[0], most);
    s->mark = common >= SRV_WORTHWHILE && common > most && common < task->prompt ? common : 0;
    for (int i = 1; i < task->choices && status == MO_OK; i++) {
        const int slot = choose_slot(e);
        srv_sequence *other = &e->sequences[slot];
        if (!other->kept) {
            srv_memory_keep(e, other, other->held);
        }
        status = prepare(other, task, i, &err);
        occupy(e, slot, task, i);
    }
    const double now = mo_clock_s();
    pthread_mutex_lock(&e->lock);
    task->state = SRV_PROMPT;
    task->started = now;
    task->cached = most;
    s->held = s->cached = most;
    pthread_mutex_unlock(&e->lock);
    if (status != MO_OK) {
        srv_end_job(e, task, &err);
        return;
    }
    srv_raw_events_add(
        e, &(srv_raw_event){
               .kind = SRV_EVENT_STARTED, .task = task, .at = now, .cached = task->cached, .done = most});
    if (task->options.progress) { /* what was found, before anything is computed */
        srv_raw_events_add(
            e,
            &(srv_raw_event){
                .kind = SRV_EVENT_PROGRESS, .task = task, .at = now, .cached = task->cached, .done = most});
    }
    discover(e, s, task);
}

bool srv_admission_admit(srv_engine *e)
{
    for (bool some = false;; some = true) {
        admitting p = {.engine = e};
        for (int i = 0; i < e->parallel; i++) {
            p.free += e->sequences[i].task == NULL;
        }
        pthread_mutex_lock(&e->lock);
        srv_job *task = p.free ? srv_queue_take(&e->queue, may_begin, &p) : NULL;
        pthread_mutex_unlock(&e->lock);
        if (!task) {
            return some;
        }
        begin_task(e, task);
    }
}

/* Those that wait want more sequences than are free. Under the lock. */
static bool lacks_sequences(const srv_engine *e)
{
    int free = 0;
    for (int i = 0; i < e->parallel; i++) {
        free += e->sequences[i].task == NULL;
    }
    for (const srv_job *t = e->queue.first; t; t = t->next) {
        if (t->choices > free) {
            return true;
        }
    }
    return false;
}

/* A client that does not read keeps its sequence only as long as no other task needs it: the one that was paused first, and for
 * long enough, ends. True: one did. */
bool srv_admission_end_stalled(srv_engine *e)
{
    const double now = mo_clock_s();
    srv_job *longest = NULL;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->parallel && lacks_sequences(e); i++) {
        srv_job *task = e->sequences[i].task;
        if (task && srv_engine_stalled(e, task, now) && (!longest || task->paused_at < longest->paused_at)) {
            longest = task;
        }
    }
    if (longest) {
        srv_engine_log_stalled(longest, now);
    }
    pthread_mutex_unlock(&e->lock);
    if (longest) {
        srv_end_job(e, longest, &(mo_error){.status = MO_ECANCELLED, .detail = "the client does not read"});
    }
    return longest != NULL;
}
