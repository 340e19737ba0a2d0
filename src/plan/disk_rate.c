/* One JSON object in the cache directory maps file systems to rates. */
#include "plan/disk_rate.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <jansson.h>

#include "base/cachedir.h"
#include "base/json.h"
#include "base/nesting.h"
#include "base/output.h"
#include "base/status.h"

#define SLOWEST 1e6   /* bytes per second */
#define FASTEST 100e9 /* faster is memory */
#define WEIGHT  ((double)((int64_t)4 << 30))

enum {
    DISKS_MOST = 64,      /* maximum file systems stored */
    BYTES_MOST = 1 << 14, /* maximum file size: three times what these need */
    LEVELS_MOST = 4,
};

/* A name that survives reboots: most file systems derive their id from their UUID. */
static bool name_of(const char *path, char *name, size_t size)
{
    struct statvfs at;
    if (statvfs(path, &at) != 0) {
        return false;
    }
    snprintf(name, size, "%llx-%llx", (unsigned long long)at.f_fsid,
             (unsigned long long)at.f_blocks * at.f_frsize);
    return true;
}

static json_t *parse(const char *text, size_t length)
{
    json_t *root = mo_nesting_beyond(text, length, LEVELS_MOST)
                       ? NULL
                       : json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(root)) {
        return root;
    }
    json_decref(root);
    return NULL;
}

/* The stored rates; NULL: nothing readable. */
static json_t *read_all(void)
{
    char path[PATH_MAX], *text = malloc(BYTES_MOST + 1);
    json_t *root = NULL;
    FILE *file =
        text && mo_cachedir_path("disks.json", path, sizeof path, NULL) == MO_OK ? fopen(path, "rbe") : NULL;
    if (file) {
        const size_t length = fread(text, 1, BYTES_MOST + 1, file);
        fclose(file);
        root = length <= BYTES_MOST ? parse(text, length) : NULL;
    }
    free(text);
    return root;
}

static bool is_rate(double bytes_s)
{
    return bytes_s >= SLOWEST && bytes_s <= FASTEST;
}

double mo_disk_rate_known(const char *path)
{
    char name[64] = "";
    json_t *all = name_of(path, name, sizeof name) ? read_all() : NULL;
    const double rate = json_number_value(json_object_get(all, name));
    json_decref(all);
    return is_rate(rate) ? rate : 0;
}

static mo_status write_text(const char *text, mo_error *err)
{
    char path[PATH_MAX];
    mo_output *output = NULL;
    mo_status status = mo_cachedir_path("disks.json", path, sizeof path, err);
    status = status == MO_OK ? mo_cachedir_make(path, err) : status;
    status = status == MO_OK ? mo_output_create(path, 0, &output, err) : status;
    if (status != MO_OK) {
        return status;
    }
    status = mo_output_append(output, text, strlen(text), err);
    if (status != MO_OK) {
        mo_output_abort(output);
        return status;
    }
    return mo_output_commit(output, err);
}

static mo_status write_all(const json_t *all, mo_error *err)
{
    char *text = mo_json_dump(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    if (!text) {
        return mo_fail(err, MO_ENOMEM, "out of memory while saving the speed of a disk");
    }
    const mo_status status = write_text(text, err);
    free(text);
    return status;
}

mo_status mo_disk_rate_note(const char *path, uint64_t bytes, uint64_t busy_ns, double before, mo_error *err)
{
    char name[64];
    const double seen = busy_ns > 0 ? (double)bytes * 1e9 / (double)busy_ns : 0;
    if (bytes < MO_DISK_RATE_BYTES || !is_rate(seen) || !name_of(path, name, sizeof name)) {
        return MO_OK;
    }
    /* As if the bytes of both had been read one after the other. */
    const double seconds = (double)bytes / seen + (is_rate(before) ? WEIGHT / before : 0);
    const double rate = ((double)bytes + (is_rate(before) ? WEIGHT : 0)) / seconds;
    json_t *all = read_all();
    if (!all || (json_object_size(all) >= DISKS_MOST && !json_object_get(all, name))) {
        json_decref(all);
        all = json_object(); /* full: start over; relevant rates soon return */
    }
    const bool set = all && json_object_set_new(all, name, json_real(rate)) == 0;
    const mo_status status =
        set ? write_all(all, err) : mo_fail(err, MO_ENOMEM, "out of memory while saving the speed of a disk");
    json_decref(all);
    return status;
}
