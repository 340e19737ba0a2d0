#include "device/choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "device/cuda/cuda.h"
#include "device/sim/sim.h"

/* ---- The simulated device ---- */

static mo_status bad_sim(const char *text, size_t length, const char *wanted, mo_error *err)
{
    return mo_fail(err, MO_EINVAL, "MORAINE_SIM: cannot parse \"%.*s\": expected %s",
                   (int)(length < 100 ? length : 100), text, wanted);
}

/* A number with K, M, G or T, each `unit` times the one before. */
static bool read_amount(const char *text, size_t length, double unit, double *out)
{
    char copy[40];
    if (length == 0 || length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    char *end;
    static const char units[] = "KMGT";
    double amount = strtod(copy, &end);
    const char *found = end != copy && *end ? strchr(units, *end) : NULL;
    if (found) {
        amount *= pow(unit, (double)(found - units + 1));
        end++;
    }
    *out = amount;
    return end != copy && *end == 0 && amount >= 0 && amount < 9e18;
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* ":100", and behind it perhaps ":3" */
static bool read_counts(const char *text, size_t length, mo_sim_options *o)
{
    const char *colon = memchr(text + 1, ':', length - 1);
    const size_t first = colon ? (size_t)(colon - text) : length;
    double after = 0, count = 1;
    if (!read_amount(text + 1, first - 1, 1000, &after) ||
        (colon && (!read_amount(colon + 1, length - first - 1, 1000, &count) || count < 1))) {
        return false;
    }
    o->after = (int64_t)after;
    o->count = (int64_t)count;
    return o->fault != MO_SIM_LOST || o->count == 1;
}

/* "lost:100", "copy:5:2" */
static bool read_fault(const char *text, size_t length, mo_sim_options *o)
{
    static const struct {
        const char *name;
        mo_sim_fault fault;
    } faults[] = {{"alloc", MO_SIM_ALLOC}, {"pin", MO_SIM_PIN},   {"copy", MO_SIM_COPY},
                  {"peer", MO_SIM_PEER},   {"make", MO_SIM_MAKE}, {"hang", MO_SIM_HANG},
                  {"lost", MO_SIM_LOST},   {"open", MO_SIM_OPEN}};
    const char *colon = memchr(text, ':', length);
    const size_t word = colon ? (size_t)(colon - text) : length;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (is_word(text, word, faults[i].name)) {
            o->fault = faults[i].fault;
            return !colon || read_counts(colon, length - word, o);
        }
    }
    return false;
}

static mo_status read_sim_entry(const char *text, size_t length, mo_sim_options *o, mo_error *err)
{
    const char *equals = memchr(text, '=', length);
    const size_t word = equals ? (size_t)(equals - text) : length;
    const char *value = equals ? equals + 1 : text + length;
    const size_t rest = (size_t)(text + length - value);
    double amount = 0;
    if (is_word(text, word, "memory")) {
        if (!read_amount(value, rest, 1024, &amount) || amount < 1) {
            return bad_sim(text, length, "a size such as memory=2G", err);
        }
        o->memory_bytes = (int64_t)amount;
    } else if (is_word(text, word, "link")) {
        if (!read_amount(value, rest, 1000, &amount)) {
            return bad_sim(text, length, "a rate such as link=10G (bytes per second)", err);
        }
        o->link_bytes_s = amount;
    } else if (is_word(text, word, "latency")) {
        if (!read_amount(value, rest, 1000, &amount) || amount > 1e6) {
            return bad_sim(text, length, "microseconds per copy such as latency=5", err);
        }
        o->link_copy_s = amount * 1e-6;
    } else if (is_word(text, word, "rate")) {
        if (!read_amount(value, rest, 1000, &amount)) {
            return bad_sim(text, length, "a rate such as rate=900G (bytes per second)", err);
        }
        o->memory_bytes_s = amount;
    } else if (is_word(text, length, "alone")) {
        o->alone = true;
    } else if (is_word(text, length, "exact")) {
        o->exact = true;
    } else if (is_word(text, word, "hang")) {
        if (!read_amount(value, rest, 1000, &amount) || amount > 600000) {
            return bad_sim(text, length, "milliseconds such as hang=500", err);
        }
        o->hang_ms = (int)amount;
    } else if (!is_word(text, word, "fault") || !read_fault(value, rest, o)) {
        return bad_sim(text, length,
                       "memory=SIZE, link=RATE, latency=US, rate=RATE, alone, "
                       "exact, hang=MS, or fault=open, alloc, pin, copy, peer, "
                       "make, hang or lost with :AFTER and, except for lost, :COUNT",
                       err);
    }
    return MO_OK;
}

static mo_status open_sim(int index, mo_device **out, mo_error *err)
{
    mo_sim_options options = {.index = index};
    char variable[32];
    snprintf(variable, sizeof variable, "MORAINE_SIM_%d", index);
    const char *text = getenv(variable) ? getenv(variable) : getenv("MORAINE_SIM");
    while (text && *text) {
        const size_t length = strcspn(text, ",");
        const mo_status status = length ? read_sim_entry(text, length, &options, err) : MO_OK;
        if (status != MO_OK) {
            return status;
        }
        text += length + (text[length] == ',');
    }
    return mo_sim_open(&options, out, err);
}

/* ---- The GPU ---- */

/* A variable that is 0 or 1; *out stays as it is where there is none. */
static mo_status read_switch(const char *name, bool *out, mo_error *err)
{
    const char *text = getenv(name);
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return mo_fail(err, MO_EINVAL, "%s: cannot parse \"%.60s\": expected 0 or 1", name, text);
    }
    *out = text ? *text == '1' : *out;
    return MO_OK;
}

static mo_status open_cuda(int index, mo_device **out, mo_error *err)
{
    bool fuse = true, prelaunch = true;
    mo_status status = read_switch("MORAINE_CUDA_FUSE", &fuse, err);
    if (status == MO_OK) {
        status = read_switch("MORAINE_CUDA_PRELAUNCH", &prelaunch, err);
    }
    if (status == MO_OK) {
        status = mo_cuda_open(index, 0, out, err);
    }
    if (status == MO_OK) {
        mo_cuda_fuse(*out, fuse);
        mo_cuda_prelaunch(*out, prelaunch);
    }
    return status;
}

/* ---- The choice ---- */

/* Does this machine have a GPU that "auto" would have liked to use? Then a reason for not using it is a warning;
 * otherwise a note. Opens nothing. */
static bool gpu_expected(void)
{
    /* What the kernel's driver shows, whether or not this build or its libraries can use it. */
    return access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidia0", F_OK) == 0;
}

/* What "auto" chooses from: the machine's GPUs, or the number of simulated ones set by developers. */
typedef struct found_gpus {
    int count;
    mo_status (*open)(int index, mo_device **out, mo_error *err);
} found_gpus;

static mo_status find_gpus(found_gpus *out, mo_error *no, mo_error *err)
{
    const char *text = getenv("MORAINE_SIM_COUNT");
    if (!text) {
        *out = (found_gpus){.count = mo_cuda_count(no), .open = open_cuda};
        return MO_OK;
    }
    if (strlen(text) != 1 || *text < '0' || *text > '0' + MO_DEVICES) {
        return mo_fail(err, MO_EINVAL, "MORAINE_SIM_COUNT: cannot parse \"%.60s\": expected 0 to %d", text,
                       MO_DEVICES);
    }
    *out = (found_gpus){.count = *text - '0', .open = open_sim};
    return MO_OK;
}

/* Opens those that can be used, at most `most`; *no: why the first that cannot be is left out. */
static mo_status open_found(bool told, int most, mo_device **out, int *count, mo_error *no, mo_error *err)
{
    found_gpus found = {0};
    mo_status status = find_gpus(&found, no, err);
    *count = 0;
    for (int i = 0; i < found.count && *count < most && status == MO_OK; i++) {
        mo_error own = {0};
        const mo_status opened = found.open(i, &out[*count], &own);
        *count += opened == MO_OK;
        if (opened == MO_EINVAL) { /* the environment is wrong, not the GPU */
            status = mo_fail(err, opened, "%s", own.detail);
        } else if (opened != MO_OK) {
            *no = no->detail[0] ? *no : own;
        }
        if (opened != MO_OK && told && found.count > 1) {
            mo_log(MO_LOG_WARN, "device", "%s; the device is not used", own.detail);
        }
    }
    return status;
}

static mo_status choose_best(mo_device **out, char *why, size_t why_bytes, mo_error *err)
{
    mo_error no = {0};
    int count;
    const mo_status status = open_found(false, 1, out, &count, &no, err);
    if (status == MO_OK && count == 0) {
        *out = NULL;
        if (why) {
            snprintf(why, why_bytes, "%s", no.detail[0] ? no.detail : "there is no GPU");
        }
    }
    return status;
}

/* "cuda" or "cuda:1": the number; -1: it is another name. */
static int number_of(const char *name, const char *kind)
{
    const size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0 || (name[length] && name[length] != ':')) {
        return -1;
    }
    if (!name[length]) {
        return 0;
    }
    const char *digits = name + length + 1;
    const size_t count = strspn(digits, "0123456789");
    return count > 0 && count < 4 && !digits[count] ? atoi(digits) : -1;
}

mo_status mo_device_choose(const char *name, mo_device **out, char *why, size_t why_bytes, mo_error *err)
{
    *out = NULL;
    if (why && why_bytes) {
        *why = 0;
    }
    if (!name || strcmp(name, "auto") == 0) {
        return choose_best(out, why_bytes ? why : NULL, why_bytes, err);
    }
    if (strcmp(name, "none") == 0) {
        return MO_OK;
    }
    if (number_of(name, "sim") >= 0) {
        return open_sim(number_of(name, "sim"), out, err);
    }
    if (number_of(name, "cuda") >= 0) {
        return open_cuda(number_of(name, "cuda"), out, err);
    }
    return mo_fail(err, MO_EINVAL,
                   "`device` \"%.60s\" is not a device; use none, sim, cuda or auto, "
                   "with a number as in cuda:1, or a comma-separated list",
                   name);
}

static void tell_none(const char *why)
{
    mo_log(gpu_expected() ? MO_LOG_WARN : MO_LOG_INFO, "device", "the CPU computes everything: %s", why);
}

mo_status mo_device_choose_verbose(const char *name, mo_device **out, char *why, size_t why_bytes,
                                   mo_error *err)
{
    const mo_status status = mo_device_choose(name, out, why, why_bytes, err);
    if (status == MO_OK && !*out && why && *why) {
        tell_none(why);
    }
    return status;
}

/* ---- Several ---- */

static void close_all(mo_device **devices, int *count)
{
    while (*count > 0) {
        mo_device_close(devices[--*count]);
    }
}

/* Every GPU that can be used. */
static mo_status open_all(bool told, mo_device **out, int *count, char *why, size_t why_bytes, mo_error *err)
{
    mo_error no = {0};
    const mo_status status = open_found(told, MO_DEVICES, out, count, &no, err);
    if (status != MO_OK) {
        close_all(out, count);
    } else if (*count == 0) {
        const char *reason = no.detail[0] ? no.detail : "there is no GPU";
        out[0] = NULL;
        if (why && why_bytes) {
            snprintf(why, why_bytes, "%s", reason);
        }
        if (told) {
            tell_none(reason);
        }
    }
    return status;
}

/* A name of a list, and its place there. */
static mo_status open_named(const char *text, size_t length, int place, mo_device **out, mo_error *err)
{
    char name[64];
    if (length == 0 || length >= sizeof name - 8) {
        return mo_fail(err, MO_EINVAL,
                       "`device` \"%.60s\" is not a device; a list is written as cuda:0,cuda:1", text);
    }
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (strcmp(name, "none") == 0 || strcmp(name, "auto") == 0) {
        return mo_fail(err, MO_EINVAL, "`device` \"%s\" cannot be part of a list of devices", name);
    }
    if (strcmp(name, "sim") == 0) {
        snprintf(name, sizeof name, "sim:%d", place);
    }
    return mo_device_choose(name, out, NULL, 0, err);
}

mo_status mo_devices_choose(const char *names, bool told, mo_device **out, int *count, char *why,
                            size_t why_bytes, mo_error *err)
{
    *count = 0;
    if (why && why_bytes) {
        *why = 0;
    }
    if (!names || strcmp(names, "auto") == 0) {
        return open_all(told, out, count, why, why_bytes, err);
    }
    if (!strchr(names, ',')) {
        const mo_status status =
            (told ? mo_device_choose_verbose : mo_device_choose)(names, &out[0], why, why_bytes, err);
        *count = status == MO_OK && out[0] != NULL;
        return status;
    }
    mo_status status = MO_OK;
    for (const char *text = names; text && status == MO_OK;) {
        const char *comma = strchr(text, ',');
        if (*count == MO_DEVICES) {
            status = mo_fail(err, MO_EINVAL, "`device` can name at most %d devices", MO_DEVICES);
        } else {
            status = open_named(text, strcspn(text, ","), *count, &out[*count], err);
            *count += status == MO_OK;
        }
        text = comma ? comma + 1 : NULL;
    }
    if (status != MO_OK) {
        close_all(out, count);
    }
    return status;
}
