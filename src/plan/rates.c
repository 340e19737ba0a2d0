/* Reads and writes rates as JSON. One table of fields drives reading, checking and writing. */
#include "plan/rates.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/cachedir.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nesting.h"
#include "base/output.h"
#include "base/status.h"
#include "plan/quantity.h"

#define SIZE_MOST ((double)((int64_t)1 << 60))
#define RATE_MOST 1e15 /* one petabyte per second: more is a typo */

enum {
    BYTES_MAX = 1 << 16, /* a hundred times the usual size */
    LEVELS_MAX = 8,      /* one is used; the parser recurses for each further one */
};

typedef enum kind { KIND_SIZE, KIND_COUNT, KIND_REAL, KIND_TEXT } kind; /* int64_t, int, double, char[] */

static const struct field {
    const char *name;
    kind kind;
    size_t at;
    double least, most;
    bool above; /* the minimum itself is too small */
} fields[] = {
    {"ram_bytes", KIND_SIZE, offsetof(mo_rates, ram_bytes), 0, SIZE_MOST, false},
    {"vram_bytes", KIND_SIZE, offsetof(mo_rates, vram_bytes), 0, SIZE_MOST, false},
    {"threads", KIND_COUNT, offsetof(mo_rates, threads), 0, 65536, false},
    {"cores", KIND_COUNT, offsetof(mo_rates, cores), 0, 65536, false},
    {"ram_bytes_s", KIND_REAL, offsetof(mo_rates, ram_bytes_s), 0, RATE_MOST, true},
    {"compute_share", KIND_REAL, offsetof(mo_rates, compute_share), 0, 1, true},
    {"slot_share", KIND_REAL, offsetof(mo_rates, slot_share), 0, 1, false},
    {"disk_bytes_s", KIND_REAL, offsetof(mo_rates, disk_bytes_s), 0, RATE_MOST, true},
    {"link_bytes_s", KIND_REAL, offsetof(mo_rates, link_bytes_s), 0, RATE_MOST, false},
    {"link_pageable_bytes_s", KIND_REAL, offsetof(mo_rates, link_pageable_bytes_s), 0, RATE_MOST, false},
    {"vram_bytes_s", KIND_REAL, offsetof(mo_rates, vram_bytes_s), 0, RATE_MOST, false},
    {"host_bytes_s", KIND_REAL, offsetof(mo_rates, host_bytes_s), 0, RATE_MOST, false},
    {"round_trip_s", KIND_REAL, offsetof(mo_rates, round_trip_s), 0, 1, false},
    {"link_copy_s", KIND_REAL, offsetof(mo_rates, link_copy_s), 0, 1, false},
    {"vram_reuse", KIND_REAL, offsetof(mo_rates, vram_reuse), 0, 1e3, false},
    {"device", KIND_TEXT, offsetof(mo_rates, device), 0, sizeof(((mo_rates *)0)->device) - 1, false},
};

#define FIELDS (sizeof fields / sizeof *fields)

mo_rates mo_rates_default(void)
{
    /* Two memory channels and a SATA disk. */
    return (mo_rates){.ram_bytes_s = 20e9, .compute_share = 0.6, .disk_bytes_s = 0.5e9};
}

bool mo_rates_for_device(mo_rates *r, const char *name, double link_bytes_s, double link_copy_s,
                         double memory_bytes_s)
{
    if (r->device[0] && strcmp(r->device, name) != 0) {
        r->link_bytes_s = r->link_pageable_bytes_s = r->vram_bytes_s = r->host_bytes_s = r->round_trip_s = 0;
        r->link_copy_s = r->vram_reuse = 0;
        r->expert_count = 0;
        r->old = false;
    }
    const bool known = r->measured && r->link_bytes_s > 0 && r->vram_bytes_s > 0;
    if (!(r->link_bytes_s > 0)) {
        r->link_bytes_s = link_bytes_s > 0 ? link_bytes_s : MO_RATES_LINK_GUESS;
        r->link_copy_s = r->link_copy_s > 0 ? r->link_copy_s : link_copy_s;
    }
    if (!(r->vram_bytes_s > 0)) {
        r->vram_bytes_s = memory_bytes_s > 0 ? memory_bytes_s : MO_RATES_VRAM_GUESS;
    }
    snprintf(r->device, sizeof r->device, "%s", name);
    return known;
}

static double between(double a, double b, double share)
{
    return a + share * (b - a);
}

bool mo_rates_expert_of(const mo_rates *r, double bytes, mo_rates_expert *out)
{
    if (r->expert_count == 0) {
        return false;
    }
    int i = 0;
    while (i < r->expert_count - 1 && r->expert[i + 1].bytes < bytes) {
        i++;
    }
    const mo_rates_expert *a = &r->expert[i], *b = &r->expert[i < r->expert_count - 1 ? i + 1 : i];
    const double share = b > a ? fmin(1, fmax(0, log(bytes / a->bytes) / log(b->bytes / a->bytes))) : 0;
    *out = (mo_rates_expert){.bytes = bytes,
                             .cpu_bytes_s = between(a->cpu_bytes_s, b->cpu_bytes_s, share),
                             .both_cpu_bytes_s = between(a->both_cpu_bytes_s, b->both_cpu_bytes_s, share),
                             .both_link_bytes_s = between(a->both_link_bytes_s, b->both_link_bytes_s, share)};
    return true;
}

/* ---- Reading ---- */

static mo_status fail_unknown(const char *path, const char *key, mo_error *err)
{
    char names[512] = "";
    for (size_t i = 0, used = 0; i < FIELDS; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", fields[i].name);
    }
    return mo_fail(err, MO_EFORMAT, "%s: unknown field \"%.100s\"; the fields are %sexperts, measured", path,
                   key, names);
}

static mo_status read_text(const char *path, const struct field *f, const json_t *value, char *to,
                           mo_error *err)
{
    if (!json_is_string(value) || json_string_length(value) > (size_t)f->most) {
        return mo_fail(err, MO_EFORMAT, "%s: %s must be a string of at most %g bytes", path, f->name,
                       f->most);
    }
    memcpy(to, json_string_value(value), json_string_length(value) + 1);
    return MO_OK;
}

/* A number, or for sizes also a string with a unit. */
static bool read_number(const struct field *f, const json_t *value, double *number)
{
    *number = json_number_value(value);
    return json_is_number(value) || (f->kind == KIND_SIZE && json_is_string(value) &&
                                     mo_quantity_read(MO_QUANTITY_SIZE, json_string_value(value), number));
}

static mo_status read_field(const char *path, const struct field *f, const json_t *value, mo_rates *rates,
                            mo_error *err)
{
    void *to = (char *)rates + f->at;
    double number;
    if (f->kind == KIND_TEXT) {
        return read_text(path, f, value, to, err);
    }
    if (!read_number(f, value, &number)) {
        return mo_fail(err, MO_EFORMAT, "%s: %s must be a number%s", path, f->name,
                       f->kind == KIND_SIZE ? ", or a size such as \"32G\"" : "");
    }
    const bool whole = f->kind == KIND_REAL || floor(number) == number;
    if (!(number >= f->least && number <= f->most) || (f->above && number == f->least) || !whole) {
        return mo_fail(err, MO_EFORMAT, "%s: %s is %g, but must be %s%s %g and at most %g", path, f->name,
                       number, f->kind == KIND_REAL ? "" : "an integer, ", f->above ? "above" : "at least",
                       f->least, f->most);
    }
    switch (f->kind) {
    case KIND_SIZE:
        *(int64_t *)to = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
        break;
    case KIND_COUNT: *(int *)to = (int)number; break;
    case KIND_REAL: *(double *)to = number; break;
    case KIND_TEXT: break;
    }
    return MO_OK;
}

/* [[bytes, products, products during copies, copies], ...] */
static mo_status read_experts(const char *path, const json_t *list, mo_rates *rates, mo_error *err)
{
    bool fine = json_is_array(list) && json_array_size(list) <= MO_RATES_EXPERTS;
    const int count = fine ? (int)json_array_size(list) : 0;
    for (int i = 0; i < count && fine; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        double of[4] = {0};
        fine = json_is_array(row) && json_array_size(row) == 4;
        for (size_t k = 0; k < 4 && fine; k++) {
            const json_t *value = json_array_get(row, k);
            of[k] = json_number_value(value);
            fine = json_is_number(value) && of[k] > 0 && of[k] <= RATE_MOST;
        }
        fine = fine && (i == 0 || of[0] > rates->expert[i - 1].bytes);
        rates->expert[i] = (mo_rates_expert){of[0], of[1], of[2], of[3]};
    }
    rates->expert_count = fine ? count : 0;
    return fine ? MO_OK
                : mo_fail(err, MO_EFORMAT,
                          "%s: experts must be a list of at most %d rows of four numbers above 0: bytes, in "
                          "ascending order, and bytes per second of products, of products while experts are "
                          "copied, and of these copies",
                          path, MO_RATES_EXPERTS);
}

static mo_status read_member(const char *path, const char *key, const json_t *value, mo_rates *rates,
                             mo_error *err)
{
    for (size_t i = 0; i < FIELDS; i++) {
        if (strcmp(key, fields[i].name) == 0) {
            return read_field(path, &fields[i], value, rates, err);
        }
    }
    if (strcmp(key, "experts") == 0) {
        return read_experts(path, value, rates, err);
    }
    if (strcmp(key, "measured") != 0) {
        return fail_unknown(path, key, err);
    }
    if (!json_is_boolean(value)) {
        return mo_fail(err, MO_EFORMAT, "%s: measured must be true or false", path);
    }
    return MO_OK;
}

static mo_status read_object(const char *path, json_t *root, mo_rates *out, mo_error *err)
{
    const char *key;
    json_t *value;
    mo_rates rates = mo_rates_default();
    mo_status status = MO_OK;
    if (!json_is_object(root)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: expected a JSON object that describes a machine, as in {\"ram_bytes\": 48e9}",
                       path);
    }
    json_object_foreach(root, key, value)
    {
        status = status == MO_OK ? read_member(path, key, value, &rates, err) : status;
    }
    if (status == MO_OK) {
        /* The rates that determine the speed must all be in the file. */
        rates.measured = json_object_get(root, "ram_bytes_s") && json_object_get(root, "disk_bytes_s") &&
                         !json_is_false(json_object_get(root, "measured"));
        rates.old = rates.measured && rates.link_bytes_s > 0 && !json_object_get(root, "experts");
        *out = rates;
    }
    return status;
}

/* Reads the file into text, which has space for BYTES_MAX + 1 bytes. */
static mo_status read_file(const char *path, char *text, size_t *length, mo_error *err)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return mo_fail(err, errno == ENOENT ? MO_ENOENT : MO_EIO,
                       "%s: cannot read the rates of a machine: %s", path, strerror(errno));
    }
    errno = 0;
    *length = fread(text, 1, BYTES_MAX + 1, file);
    const int failed = ferror(file) ? (errno ? errno : EIO) : 0;
    fclose(file);
    if (failed) {
        return mo_fail(err, MO_EIO, "%s: cannot read the rates of a machine: %s", path, strerror(failed));
    }
    if (*length > BYTES_MAX) {
        return mo_fail(err, MO_EFORMAT, "%s: is larger than %d KiB and not a description of a machine", path,
                       BYTES_MAX / 1024);
    }
    return MO_OK;
}

static mo_status read_text_of(const char *path, const char *text, size_t length, mo_rates *out, mo_error *err)
{
    json_error_t where;
    bool no_memory;
    if (mo_nesting_beyond(text, length, LEVELS_MAX)) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: expected one JSON object that describes a machine; this has more than %d levels",
                       path, LEVELS_MAX);
    }
    json_t *root = mo_json_load(text, length, JSON_REJECT_DUPLICATES, &where, &no_memory);
    const mo_status status =
        root        ? read_object(path, root, out, err)
        : no_memory ? mo_fail(err, MO_ENOMEM, "%s: out of memory for the rates of a machine", path)
                    : mo_fail(err, MO_EFORMAT, "%s: line %d is not JSON: %s", path, where.line, where.text);
    json_decref(root);
    return status;
}

mo_status mo_rates_load(const char *path, mo_rates *out, mo_error *err)
{
    size_t length = 0;
    char *text = malloc(BYTES_MAX + 1);
    if (!text) {
        return mo_fail(err, MO_ENOMEM, "%s: out of memory for the rates of a machine", path);
    }
    mo_status status = read_file(path, text, &length, err);
    status = status == MO_OK ? read_text_of(path, text, length, out, err) : status;
    free(text);
    return status;
}

/* ---- Writing ---- */

static json_t *experts_of(const mo_rates *rates)
{
    json_t *list = json_array();
    for (int i = 0; i < rates->expert_count; i++) {
        const mo_rates_expert *e = &rates->expert[i];
        json_array_append_new(list, json_pack("[f, f, f, f]", e->bytes, e->cpu_bytes_s, e->both_cpu_bytes_s,
                                              e->both_link_bytes_s));
    }
    return list;
}

static json_t *make_object(const mo_rates *rates)
{
    json_t *root = json_object();
    bool made = root != NULL;
    for (size_t i = 0; i < FIELDS && made; i++) {
        const void *from = (const char *)rates + fields[i].at;
        json_t *value = NULL;
        switch (fields[i].kind) {
        case KIND_SIZE: value = json_integer(*(const int64_t *)from); break;
        case KIND_COUNT: value = json_integer(*(const int *)from); break;
        case KIND_REAL: value = json_real(*(const double *)from); break;
        case KIND_TEXT: value = json_string(from); break;
        }
        made = json_object_set_new(root, fields[i].name, value) == 0;
    }
    made = made && json_object_set_new(root, "experts", experts_of(rates)) == 0;
    made = made && json_object_set_new(root, "measured", json_boolean(rates->measured)) == 0;
    if (!made) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static mo_status write_text(const char *path, const char *text, mo_error *err)
{
    mo_output *output;
    mo_status status = mo_output_create(path, 0, &output, err);
    if (status != MO_OK) {
        return status;
    }
    status = mo_output_append(output, text, strlen(text), err);
    if (status == MO_OK) {
        status = mo_output_append(output, "\n", 1, err);
    }
    if (status != MO_OK) {
        mo_output_abort(output);
        return status;
    }
    return mo_output_commit(output, err);
}

mo_status mo_rates_save(const char *path, const mo_rates *rates, mo_error *err)
{
    json_t *root = make_object(rates);
    char *text = root ? mo_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (!text) {
        return mo_fail(err, MO_EINVAL, "%s: the rates are not numbers, or out of memory; nothing was saved",
                       path);
    }
    mo_status status = mo_cachedir_make(path, err);
    status = status == MO_OK ? write_text(path, text, err) : status;
    free(text);
    return status;
}

mo_status mo_rates_path(char *path, size_t size, mo_error *err)
{
    return mo_cachedir_path("rates.json", path, size, err);
}

mo_rates mo_rates_here(void)
{
    char path[PATH_MAX];
    mo_error err = {0};
    mo_rates rates = mo_rates_default();
    mo_status status = mo_rates_path(path, sizeof path, &err);
    if (status == MO_OK) {
        status = mo_rates_load(path, &rates, &err);
    }
    if (status != MO_OK && status != MO_ENOENT) {
        mo_log(MO_LOG_WARN, "plan", "%s; conservative defaults are used instead", err.detail);
    }
    return status == MO_OK ? rates : mo_rates_default();
}
