#include "engine/draft_model.h"

#include <string.h>

#include "base/clock.h"

/* Unread tokens after a round, if all drafts were accepted: the last draft, and the token after it. */
enum { LEFT = 2 };

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- The text --------------------------------------------------------------------------------- */

static void begin_at(mo_head_session *s, int64_t at)
{
    mo_state_reset(&s->state);
    s->base = at;
}

/* Number of tokens of the text that are not in the state. */
static int64_t missing_of(const mo_head_wish *wish)
{
    return wish->count - wish->session->base - wish->session->state.length;
}

/* Keeps the common prefix of state and text, except the text's last token, whose logits are needed. */
static void take_back(const mo_head_wish *wish)
{
    mo_head_session *s = wish->session;
    const int64_t most = min64(s->state.length, wish->count - 1 - s->base);
    const int32_t *text = wish->tokens + s->base;
    int64_t same = 0;
    if (most > 0 && memcmp(s->tokens, text, sizeof *text * (size_t)most) == 0) {
        same = most;
    }
    while (same < most && s->tokens[same] == text[same]) {
        same++;
    }
    if (most < 0 || same < 1 || (same < s->state.length && !mo_state_trim(&s->state, same))) {
        begin_at(s, 0);
    }
}

/* The draft model reads no pictures: its text begins after the last one. */
static void pass_pictures(const mo_head_wish *wish)
{
    mo_head_session *s = wish->session;
    int64_t from = wish->count;
    while (from > s->base && wish->tokens[from - 1] >= 0) {
        from--;
    }
    if (from > s->base) {
        begin_at(s, from);
    }
}

/* If more tokens are missing than may be read, or than fit, it reads only the last tokens of the text. */
static void leave_out(mo_head_wish *wish, int64_t most)
{
    mo_head_session *s = wish->session;
    const int64_t space = s->state.context;
    if (wish->count + wish->drafts - s->base > space) {
        begin_at(s, wish->count - min64(most, min64(wish->count, (space + 1) / 2)));
    } else if (missing_of(wish) > most) {
        begin_at(s, wish->count - most);
    }
    wish->drafts = min64(wish->drafts, space - (wish->count - s->base));
}

/* ---- Reading and drafting ---------------------------------------------------------------------- */

/* The next tokens of the text, up to `count`, as a slice of a step. */
static mo_slice slice_of(const mo_head_wish *wish, int64_t count)
{
    mo_head_session *s = wish->session;
    const int64_t at = s->state.length;
    memcpy(s->tokens + at, wish->tokens + s->base + at, sizeof *s->tokens * (size_t)count);
    return (mo_slice){.state = &s->state, .tokens = s->tokens + at, .count = count, .prompt = count > 1};
}

/* Stops drafting for cancelled requests. */
static void look_for_cancels(mo_head_wish *wishes, int count)
{
    for (int i = 0; i < count; i++) {
        if (wishes[i].cancel && atomic_load(wishes[i].cancel)) {
            wishes[i].drafts = 0;
        }
    }
}

/* Reads the missing tokens except the last one, if more are missing than drafts leave. */
static bool catch_up(mo_head *head, mo_head_wish *wishes, int count)
{
    for (int done = 0; done < count;) {
        mo_slice slices[MO_HEAD_TOGETHER];
        int used = 0;
        look_for_cancels(wishes, count);
        for (int64_t tokens = 0; done < count && tokens < head->engine->batch;) {
            const int64_t rest = missing_of(&wishes[done]) > LEFT ? missing_of(&wishes[done]) - 1 : 0;
            const int64_t some = wishes[done].drafts ? min64(rest, head->engine->batch - tokens) : 0;
            if (some) {
                slices[used++] = slice_of(&wishes[done], some);
                tokens += some;
            }
            if (some < rest && wishes[done].drafts) {
                break; /* the next step reads the rest */
            }
            done++;
        }
        if (used && !mo_head_step(head, slices, used)) {
            return false;
        }
    }
    return true;
}

/* Computes draft number `draft` for all requests that want that many: the first one after the text's last
 * tokens, the others after the previous draft. */
static bool guess(mo_head *head, const mo_head_wish *wishes, int count, int64_t draft, bool *more)
{
    mo_slice slices[MO_HEAD_TOGETHER];
    const mo_head_wish *of[MO_HEAD_TOGETHER];
    int used = 0;
    for (int i = 0; i < count; i++) {
        const mo_head_wish *wish = &wishes[i];
        mo_head_session *s = wish->session;
        if (draft >= wish->drafts) {
            continue;
        }
        if (draft == 0) {
            slices[used] = slice_of(wish, missing_of(wish));
        } else {
            const int64_t at = s->state.length;
            s->tokens[at] = wish->out[draft - 1];
            slices[used] = (mo_slice){.state = &s->state, .tokens = s->tokens + at, .count = 1};
        }
        slices[used].logits = s->logits;
        slices[used].logits_from = slices[used].count - 1;
        of[used++] = wish;
    }
    *more = used > 0;
    if (!used || !mo_head_step(head, slices, used)) {
        return !used;
    }
    for (int i = 0; i < used; i++) {
        of[i]->out[draft] = mo_head_likeliest(of[i]->session->logits, head->engine->spec->vocab);
    }
    return true;
}

/* If several have much to read, the first one reads now and the others when they are asked again. */
static void prepare(const mo_head *head, mo_head_wish *wishes, int count)
{
    const bool beside = atomic_load(&head->trunk->accelerator) != NULL;
    int64_t left = beside ? MO_DRAFT_MODEL_READS_BESIDE : MO_DRAFT_MODEL_READS;
    const int64_t most = left;
    for (int i = 0; i < count; i++) {
        take_back(&wishes[i]);
        pass_pictures(&wishes[i]);
        if (missing_of(&wishes[i]) < 1) { /* the text ends in a picture */
            wishes[i].drafts = 0;
            continue;
        }
        leave_out(&wishes[i], most);
        const int64_t missing = missing_of(&wishes[i]);
        if (missing > LEFT && missing > left) {
            wishes[i].drafts = 0;
        } else if (missing > LEFT) {
            left -= missing;
        }
    }
}

static bool draft(mo_head *head, mo_head_wish *wishes, int count, int64_t *behind_ns)
{
    bool more = true;
    prepare(head, wishes, count);
    const int64_t began = mo_clock_ns();
    bool good = catch_up(head, wishes, count);
    *behind_ns = mo_clock_ns() - began;
    for (int64_t n = 0; good && more; n++) {
        good = guess(head, wishes, count, n, &more);
    }
    for (int i = 0; i < count && !good; i++) {
        begin_at(wishes[i].session, 0);
    }
    return good;
}

mo_status mo_draft_model_open(mo_engine *trunk, const mo_checkpoint *checkpoint, const mo_state_size *states,
                              mo_head **out, mo_error *err)
{
    const mo_status status = mo_head_open(trunk, checkpoint, states, false, out, err);
    if (status == MO_OK) {
        (*out)->draft = draft;
    }
    return status;
}
