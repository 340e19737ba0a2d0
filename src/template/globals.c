/* Functions that every template can call. */
#include <locale.h>
#include <pthread.h>

#include "template/print.h"
#include "template/run.h"

static mo_jv g_raise_exception(MO_JPARAMETERS)
{
    const mo_jstring text = mo_jv_str(r->w, a[0]);
    mo_work_raise(r->w, mo_jstring_data(text), text.length);
}

enum { RANGE_MOST = 100000 }; /* jinja2's sandbox has the same limit */

static mo_jv g_range(MO_JPARAMETERS)
{
    int64_t from = 0, to = mo_jv_integer(r->w, a[0], "range's bound"), step = 1;
    if (!mo_jv_is_absent(a[1])) {
        from = to;
        to = mo_jv_integer(r->w, a[1], "range's bound");
    }
    if (!mo_jv_is_absent(a[2])) {
        step = mo_jv_integer(r->w, a[2], "range's step");
    }
    if (step == 0) {
        mo_work_fail(r->w, MO_EINVAL, "range() arg 3 must not be zero");
    }
    mo_jlist *list = mo_jlist_new(r->w, MO_SHAPE_RANGE, 0);
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (list->count >= RANGE_MOST) {
            mo_work_fail(r->w, MO_ENOSPC, "range too big: at most %d numbers are possible", RANGE_MOST);
        }
        mo_jlist_add(r->w, list, mo_jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    return mo_jv_list(list);
}

/* dict(...) and namespace(...): from a mapping or pairs, and from keyword arguments. */
static mo_jdict *dict_from(mo_jrun *r, const mo_jargs *all)
{
    mo_jdict *dict = mo_jdict_new(r->w, 0);
    if (all->count > 0 && all->places[0].kind == MO_J_DICT) {
        dict = mo_jdict_copy(r->w, all->places[0].as.dict);
    } else if (all->count > 0) {
        const mo_jlist *pairs = mo_jv_iterate(r->w, all->places[0]);
        for (uint32_t i = 0; i < pairs->count; i++) {
            const mo_jlist *pair = mo_jv_iterate(r->w, pairs->items[i]);
            if (pair->count != 2) {
                mo_work_fail(r->w, MO_EINVAL, "a dict requires pairs; one has %u items", pair->count);
            }
            mo_jdict_set(r->w, dict, pair->items[0], pair->items[1]);
        }
    }
    for (uint32_t i = 0; all->names && i < all->names->count; i++) {
        mo_jdict_set(r->w, dict, all->names->entries[i].key, all->names->entries[i].value);
    }
    return dict;
}

static mo_jv g_dict(MO_JPARAMETERS)
{
    return mo_jv_dict(dict_from(r, all));
}

static mo_jv g_namespace(MO_JPARAMETERS)
{
    return (mo_jv){.kind = MO_J_NAMESPACE, .as.dict = dict_from(r, all)};
}

static locale_t c_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

mo_jstring mo_clock_text(mo_work *w, const struct tm *clock, const char *format)
{
    char text[1024];
    pthread_once(&once, open_locale);
    if (!clock || !*format) {
        return mo_jstring_literal(w, "");
    }
    const size_t length = strftime_l(text, sizeof text, format, clock, c_locale);
    if (length == 0) {
        mo_work_fail(w, MO_EINVAL, "strftime_now: the result is empty or longer than %zu bytes", sizeof text);
    }
    return mo_jstring_new(w, text, length, false);
}

static mo_jv g_strftime_now(MO_JPARAMETERS)
{
    const char *format = mo_jstring_text(r->w, mo_jv_need_string(r->w, a[0], "strftime_now's format"));
    return mo_jv_string(mo_clock_text(r->w, r->clock, format));
}

/* ---- joiner: empty the first time, then its separator ---- */

static mo_jv join_next(MO_JPARAMETERS)
{
    if (!mo_jdict_find(self.as.dict, "used")) {
        mo_jdict_set_text(r->w, self.as.dict, "used", mo_jv_bool(true));
        return mo_jv_text(r->w, "");
    }
    return *mo_jdict_find(self.as.dict, "separator");
}

static mo_jv g_joiner(MO_JPARAMETERS)
{
    static const mo_jfunction next = {"joiner", "", join_next};
    mo_jmethod *m = mo_work_alloc(r->w, sizeof *m);
    mo_jdict *state = mo_jdict_new(r->w, 2);
    mo_jdict_set_text(r->w, state, "separator", mo_jv_is_absent(a[0]) ? mo_jv_text(r->w, ", ") : a[0]);
    *m = (mo_jmethod){mo_jv_dict(state), &next};
    return (mo_jv){.kind = MO_J_METHOD, .as.method = m};
}

const mo_jfunction mo_globals[] = {
    {"raise_exception", "message", g_raise_exception},
    {"range", "start stop? step?", g_range},
    {"dict", NULL, g_dict},
    {"namespace", NULL, g_namespace},
    {"strftime_now", "format", g_strftime_now},
    {"joiner", "sep?", g_joiner},
    {NULL, NULL, NULL},
};
