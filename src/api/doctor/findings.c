#include "api/doctor/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static mo_finding *add(mo_visit *v, const char *name, bool wrong)
{
    if (v->count == v->limit) {
        const int limit = v->limit ? 2 * v->limit : 16;
        mo_finding *list = realloc(v->list, sizeof *list * (size_t)limit);
        if (!list) {
            v->no_memory = true;
            return NULL;
        }
        v->list = list;
        v->limit = limit;
    }
    mo_finding *f = &v->list[v->count++];
    *f = (mo_finding){.name = name, .wrong = wrong};
    return f;
}

void mo_visit_well(mo_visit *v, const char *name, const char *fmt, ...)
{
    mo_finding *f = add(v, name, false);
    if (f) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(f->what, sizeof f->what, fmt, args);
        va_end(args);
    }
}

void mo_visit_wrong(mo_visit *v, const char *name, const char *mend, const char *fmt, ...)
{
    mo_finding *f = add(v, name, true);
    if (f) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(f->what, sizeof f->what, fmt, args);
        va_end(args);
        snprintf(f->mend, sizeof f->mend, "%s", mend);
    }
}
