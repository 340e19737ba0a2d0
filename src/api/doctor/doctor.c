#include <stdlib.h>
#include <sys/stat.h>

#include "api/doctor/findings.h"
#include "base/growing.h"
#include "base/machine.h"
#include "base/status.h"
#include "gguf/read.h"

struct mo_doctor {
    mo_finding *list;
    int count;
};

void mo_doctor_options_init(mo_doctor_options *options, size_t size)
{
    const mo_doctor_options defaults = {.size = sizeof defaults};
    mo_options_write(options, size, &defaults, sizeof defaults);
}

static mo_status measure_model(mo_visit *v, mo_error *err)
{
    mo_gguf *g = NULL;
    const mo_status status = mo_gguf_open(v->model, &g, err);
    for (int i = 0; status == MO_OK && i < mo_gguf_parts(g); i++) {
        v->model_bytes += mo_gguf_part_bytes(g, i);
    }
    mo_gguf_close(g);
    return status;
}

mo_status mo_doctor_open(const mo_doctor_options *options, mo_doctor **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    mo_doctor_options o = {.size = sizeof o};
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_doctor_options", err);
    if (status == MO_OK) {
        status = mo_check_file(o.model, "model", err);
    }
    mo_visit v = {.root = o.root ? o.root : "", .model = o.model};
    if (status == MO_OK && v.model) {
        status = measure_model(&v, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_machine_read_at(v.root, &v.machine);
    mo_visit_processor(&v);
    mo_visit_memory(&v);
    mo_visit_disk(&v);
    status = mo_visit_device(&v, o.device, err);
    if (status != MO_OK) {
        free(v.list);
        return status;
    }
    mo_doctor *d = v.no_memory ? NULL : malloc(sizeof *d);
    if (!d) {
        free(v.list);
        return mo_fail(err, MO_ENOMEM, "out of memory for the findings");
    }
    *d = (mo_doctor){.list = v.list, .count = v.count};
    *out = d;
    return MO_OK;
}

void mo_doctor_close(mo_doctor *doctor)
{
    if (doctor) {
        free(doctor->list);
        free(doctor);
    }
}

bool mo_doctor_finding(const mo_doctor *doctor, int index, mo_finding_info *out, size_t size)
{
    if (index < 0 || index >= doctor->count) {
        return false;
    }
    const mo_finding *f = &doctor->list[index];
    const mo_finding_info info = {.name = f->name, .wrong = f->wrong, .what = f->what, .mend = f->mend};
    mo_report_write(out, size, &info, sizeof info);
    return true;
}
