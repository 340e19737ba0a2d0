/* Findings: the results of checking a machine, including what slows models down on it. Private to this
 * directory. */
#ifndef MO_API_DOCTOR_FINDINGS_H
#define MO_API_DOCTOR_FINDINGS_H

#include "moraine_tools.h"

typedef struct mo_finding {
    const char *name; /* a constant */
    bool wrong;
    char what[512];
    char mend[512]; /* commands; "": no fix */
} mo_finding;

/* A visit: the machine to check and its findings. */
typedef struct mo_visit {
    const char *root;    /* prepended to all paths of /proc and /sys; "": this machine */
    const char *model;   /* NULL: none */
    int64_t model_bytes; /* all parts */
    mo_machine_info machine;
    mo_finding *list;
    int count, limit;
    bool no_memory; /* a finding was lost */
} mo_visit;

/* Record a passed check, and a problem with its fix ("": none). */
void mo_visit_well(mo_visit *visit, const char *name, const char *fmt, ...) MO_PRINTF(3, 4);
void mo_visit_wrong(mo_visit *visit, const char *name, const char *mend, const char *fmt, ...)
    MO_PRINTF(4, 5);

/* Each checks one part of the machine. */
void mo_visit_processor(mo_visit *visit);
void mo_visit_memory(mo_visit *visit);
void mo_visit_disk(mo_visit *visit);
/* MO_EINVAL: no such device. */
mo_status mo_visit_device(mo_visit *visit, const char *device, mo_error *err);

#endif
