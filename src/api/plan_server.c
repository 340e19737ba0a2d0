/* Plans for servers, under the public names in moraine_server.h. */
#include "base/growing.h"
#include "plan/serving.h"

typedef struct asked_file {
    const char *path;
    const mo_model_options *loading;
} asked_file;

static mo_status try_plan(void *user, const mo_server_plan *choice, mo_serving_plan *out, mo_error *err)
{
    const asked_file *f = user;
    mo_model_options o = *f->loading;
    mo_plan_report report;
    o.positions = 0;
    o.context = choice->context;
    o.sessions = choice->parallel;
    o.kept_bytes = choice->kept_bytes;
    o.kept_device_bytes = choice->kept_device_bytes;
    const mo_status status = mo_plan_file(f->path, &o, NULL, &report, sizeof report, err);
    if (status == MO_OK) {
        *out =
            (mo_serving_plan){.tokens_s = report.tokens_per_second, .device = report.device.name[0] != '\0'};
    }
    return status;
}

static mo_status read_made_for(const char *path, int64_t *out, mo_error *err)
{
    mo_file *file;
    mo_file_info info;
    mo_status status = mo_file_open(path, &file, err);
    if (status == MO_OK) {
        status = mo_file_summarize(file, &info, sizeof info, err);
        *out = status == MO_OK ? info.context_length : 0;
        mo_file_close(file);
    }
    return status;
}

mo_status mo_plan_server(const char *path, const mo_model_options *loading, const mo_server_request *asked,
                         mo_server_plan *out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, loading, asked, out)
    asked_file f = {.path = path, .loading = loading};
    *out = (mo_server_plan){0};
    const mo_status status = read_made_for(path, &out->made_for, err);
    return status == MO_OK ? mo_plan_serving(asked, !loading->map, try_plan, &f, out, err) : status;
}
