/* Findings: what was checked on a machine, and what makes models slow on it. For the files of this folder. */
#ifndef MO_API_DOCTOR_FINDINGS_H
#define MO_API_DOCTOR_FINDINGS_H

#include "moraine_tools.h"

typedef struct mo_finding {
    const char *name; /* a constant */
    bool wrong;
    char what[512];
    char mend[512]; /* commands; "": none fixes it */
} mo_finding;

/* A visit: what is looked at, and what was found. */
typedef struct mo_visit {
    const char *root;    /* before every path of /proc and /sys; "": this machine */
    const char *model;   /* NULL: none */
    int64_t model_bytes; /* of all its parts */
    mo_machine_info machine;
    mo_finding *list;
    int count, limit;
    bool no_memory; /* something was not noted */
} mo_visit;

/* Note a passed check, and a problem with its fix ("": none). */
void mo_visit_well(mo_visit *visit, const char *name, const char *fmt, ...) MO_PRINTF(3, 4);
void mo_visit_wrong(mo_visit *visit, const char *name, const char *mend, const char *fmt, ...)
    MO_PRINTF(4, 5);

/* Each looks at one part of the machine. */
void mo_visit_processor(mo_visit *visit);
void mo_visit_memory(mo_visit *visit);
void mo_visit_disk(mo_visit *visit);
/* MO_EINVAL: there is no device of that name. */
mo_status mo_visit_device(mo_visit *visit, const char *device, mo_error *err);

#endif
