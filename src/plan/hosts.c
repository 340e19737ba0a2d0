/* Reads and writes hosts files. One table of keys drives reading, checking and writing. */
#include "plan/hosts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cachedir.h"
#include "base/log.h"
#include "base/output.h"
#include "base/status.h"
#include "plan/quantity.h"
#include "plan/rates.h"

enum { BYTES_MAX = 1 << 18, WORD_MAX = 64 };

static const struct key {
    const char *name;
    mo_quantity_kind kind;
    size_t at; /* offset of a double, or of an int64_t for a size */
} keys[] = {
    {"ram", MO_QUANTITY_SIZE, offsetof(mo_host, ram_bytes)},
    {"cpu", MO_QUANTITY_RATE, offsetof(mo_host, cpu_bytes_s)},
    {"disk", MO_QUANTITY_RATE, offsetof(mo_host, disk_bytes_s)},
    {"vram", MO_QUANTITY_SIZE, offsetof(mo_host, vram_bytes)},
    {"gpu", MO_QUANTITY_RATE, offsetof(mo_host, gpu_bytes_s)},
    {"link", MO_QUANTITY_WIRE, offsetof(mo_host, lead.bytes_s)},
    {"latency", MO_QUANTITY_TIME, offsetof(mo_host, lead.latency_s)},
    {"message", MO_QUANTITY_TIME, offsetof(mo_host, lead.message_s)},
    {"next-link", MO_QUANTITY_WIRE, offsetof(mo_host, next_bytes_s)},
    {"next-latency", MO_QUANTITY_TIME, offsetof(mo_host, next_latency_s)},
};

#define KEYS (sizeof keys / sizeof *keys)

/* ---- Reading ---- */

/* A line and its position. */
typedef struct place {
    const char *name;
    int line;
} place;

static mo_status read_value(const place *p, const struct key *k, const char *text, mo_host *host,
                            mo_error *err)
{
    double value;
    if (!mo_quantity_read(k->kind, text, &value)) {
        return mo_fail(err, MO_EFORMAT, "%s: line %d: %s=%.40s is not %s, as in %s=%s", p->name, p->line,
                       k->name, text, mo_quantity_words(k->kind), k->name, mo_quantity_example(k->kind));
    }
    if (k->kind == MO_QUANTITY_SIZE) {
        *(int64_t *)(void *)((char *)host + k->at) = (int64_t)value;
    } else {
        *(double *)(void *)((char *)host + k->at) = value;
    }
    return MO_OK;
}

static mo_status read_word(const place *p, const char *word, mo_host *host, mo_error *err)
{
    const char *equals = strchr(word, '=');
    for (size_t i = 0; equals && i < KEYS; i++) {
        if (strlen(keys[i].name) == (size_t)(equals - word) &&
            strncmp(keys[i].name, word, (size_t)(equals - word)) == 0) {
            return read_value(p, &keys[i], equals + 1, host, err);
        }
    }
    return mo_fail(err, MO_EFORMAT,
                   "%s: line %d: unknown word \"%.40s\"; use ram=, cpu=, disk=, "
                   "vram=, gpu=, link=, latency=, message=, next-link= and next-latency=",
                   p->name, p->line, word);
}

/* The next word of a line from *at on. Returns false at the end. */
static bool next_word(const char **at, const char *end, char *word, bool *long_one)
{
    const char *from = *at;
    while (from < end && (*from == ' ' || *from == '\t' || *from == '\r')) {
        from++;
    }
    const char *to = from;
    while (to < end && *to != ' ' && *to != '\t' && *to != '\r') {
        to++;
    }
    if (from == to || *from == '#') {
        return false;
    }
    *long_one = to - from >= WORD_MAX;
    const size_t length = *long_one ? WORD_MAX - 1 : (size_t)(to - from);
    memcpy(word, from, length);
    word[length] = '\0';
    *at = to;
    return true;
}

static mo_status check_word(const place *p, const char *word, bool long_one, mo_error *err)
{
    for (const char *c = word; *c; c++) {
        if (*c < '!' || *c > '~') {
            return mo_fail(err, MO_EFORMAT, "%s: line %d contains a character that is not plain text",
                           p->name, p->line);
        }
    }
    return long_one ? mo_fail(err, MO_EFORMAT, "%s: line %d: a word is longer than %d characters", p->name,
                              p->line, WORD_MAX - 1)
                    : MO_OK;
}

static mo_status read_line(const place *p, const char *at, const char *end, mo_host *usual, mo_hosts *out,
                           mo_error *err)
{
    char word[WORD_MAX], name[WORD_MAX];
    bool long_one = false;
    if (!next_word(&at, end, name, &long_one)) {
        return MO_OK;
    }
    mo_status status = check_word(p, name, long_one, err);
    if (status == MO_OK && strchr(name, '=')) {
        status = mo_fail(err, MO_EFORMAT, "%s: line %d starts with \"%.40s\" instead of a host name", p->name,
                         p->line, name);
    }
    mo_host host = *usual;
    while (status == MO_OK && next_word(&at, end, word, &long_one)) {
        status = check_word(p, word, long_one, err);
        status = status == MO_OK ? read_word(p, word, &host, err) : status;
    }
    if (status != MO_OK) {
        return status;
    }
    if (strcmp(name, "default") == 0) {
        *usual = host;
        return MO_OK;
    }
    if (host.ram_bytes < 1) {
        return mo_fail(err, MO_EFORMAT, "%s: line %d: %s has no ram=, as in ram=64G", p->name, p->line, name);
    }
    if (out->count == MO_DIVISION_RANKS) {
        return mo_fail(err, MO_EFORMAT, "%s: line %d: more than %d hosts", p->name, p->line,
                       MO_DIVISION_RANKS);
    }
    memcpy(host.name, name, sizeof host.name);
    out->host[out->count++] = host;
    return MO_OK;
}

_Static_assert((int)WORD_MAX == (int)MO_HOST_NAME, "every word can be a name");

mo_status mo_hosts_read(const char *name, const char *text, size_t length, mo_hosts *out, mo_error *err)
{
    const mo_rates rates = mo_rates_default();
    mo_host usual = {.cpu_bytes_s = mo_rates_products(&rates),
                     .disk_bytes_s = rates.disk_bytes_s,
                     .gpu_bytes_s = MO_RATES_VRAM_GUESS,
                     .lead = mo_network_guess()};
    place p = {.name = name};
    mo_status status = MO_OK;
    out->count = 0;
    if (memchr(text, '\0', length)) {
        return mo_fail(err, MO_EFORMAT, "%s: contains NUL bytes and is not a list of hosts", name);
    }
    for (const char *at = text, *end = text + length; at < end && status == MO_OK; at++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line : end;
        p.line++;
        status = read_line(&p, at, line, &usual, out, err);
        at = line;
    }
    if (status == MO_OK && out->count == 0) {
        status = mo_fail(err, MO_EFORMAT, "%s: contains no hosts; add a line such as \"anna ram=64G\"", name);
    }
    return status;
}

mo_status mo_hosts_load(const char *path, mo_hosts *out, mo_error *err)
{
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return mo_fail(err, errno == ENOENT ? MO_ENOENT : MO_EIO, "%s: cannot read the hosts: %s", path,
                       strerror(errno));
    }
    mo_status status = MO_OK;
    char *text = malloc(BYTES_MAX + 1);
    errno = 0;
    const size_t length = text ? fread(text, 1, BYTES_MAX + 1, file) : 0;
    if (!text) {
        status = mo_fail(err, MO_ENOMEM, "%s: out of memory for a list of hosts", path);
    } else if (ferror(file)) {
        status = mo_fail(err, MO_EIO, "%s: cannot read the hosts: %s", path, strerror(errno ? errno : EIO));
    } else if (length > BYTES_MAX) {
        status = mo_fail(err, MO_EFORMAT, "%s: is larger than %d KiB and not a list of hosts", path,
                         BYTES_MAX / 1024);
    } else {
        status = mo_hosts_read(path, text, length, out, err);
    }
    fclose(file);
    free(text);
    return status;
}

/* ---- Writing ---- */

static int write_key(char *text, size_t size, const struct key *k, const mo_host *host)
{
    if (k->kind == MO_QUANTITY_SIZE) {
        const int64_t bytes = *(const int64_t *)(const void *)((const char *)host + k->at);
        return bytes > 0 ? snprintf(text, size, " %s=%lld", k->name, (long long)bytes) : 0;
    }
    const double value = *(const double *)(const void *)((const char *)host + k->at);
    const bool next = strncmp(k->name, "next", 4) == 0;
    char written[64];
    return next && value == 0 ? 0
                              : snprintf(text, size, " %s=%s", k->name,
                                         mo_quantity_write(k->kind, value, written, sizeof written));
}

/* A name that can be read back. */
static void plain_name(const char *name, char *out)
{
    snprintf(out, MO_HOST_NAME, "%s", name[0] ? name : "host");
    for (char *c = out; *c; c++) {
        *c = *c < '!' || *c > '~' || *c == '=' || (c == out && *c == '#') ? '_' : *c;
    }
    if (strcmp(out, "default") == 0) {
        *out = 'D';
    }
}

mo_status mo_hosts_save(const char *path, const mo_hosts *hosts, mo_error *err)
{
    static const char head[] = "# Hosts measured by moraine probe, rank 0 first, for plans.\n";
    mo_output *output = NULL;
    mo_status status = mo_cachedir_make(path, err);
    status = status == MO_OK ? mo_output_create(path, 0, &output, err) : status;
    if (status != MO_OK) {
        return status;
    }
    status = mo_output_append(output, head, sizeof head - 1, err);
    for (int i = 0; i < hosts->count && status == MO_OK; i++) {
        char text[1024], name[MO_HOST_NAME];
        plain_name(hosts->host[i].name, name);
        int used = snprintf(text, sizeof text, "%s", name);
        for (size_t k = 0; k < KEYS; k++) {
            used += write_key(text + used, sizeof text - (size_t)used, &keys[k], &hosts->host[i]);
        }
        used += snprintf(text + used, sizeof text - (size_t)used, "\n");
        status = mo_output_append(output, text, (size_t)used, err);
    }
    if (status != MO_OK) {
        mo_output_abort(output);
        return status;
    }
    return mo_output_commit(output, err);
}

mo_status mo_hosts_path(char *path, size_t size, mo_error *err)
{
    return mo_cachedir_path("hosts.txt", path, size, err);
}

/* ---- As ranks ---- */

void mo_hosts_ranks(const mo_hosts *hosts, mo_division_rank *ranks)
{
    const mo_host *first = &hosts->host[0];
    for (int i = 0; i < hosts->count; i++) {
        const mo_host *h = &hosts->host[i], *after = &hosts->host[(i + 1) % hosts->count];
        /* A host's figures describe its distance to rank 0; rank 0's own end limits every link too. */
        const mo_network_wire lead = {.latency_s = fmax(h->lead.latency_s, first->lead.latency_s),
                                      .bytes_s = fmin(h->lead.bytes_s, first->lead.bytes_s),
                                      .message_s = fmax(h->lead.message_s, first->lead.message_s)};
        const mo_network_wire next = {
            .latency_s =
                h->next_latency_s > 0 ? h->next_latency_s : fmax(h->lead.latency_s, after->lead.latency_s),
            .bytes_s = h->next_bytes_s > 0 ? h->next_bytes_s : fmin(h->lead.bytes_s, after->lead.bytes_s),
            .message_s = fmax(h->lead.message_s, after->lead.message_s)};
        ranks[i] = (mo_division_rank){.ram_bytes = h->ram_bytes,
                                      .ram_bytes_s = h->cpu_bytes_s,
                                      .disk_bytes_s = h->disk_bytes_s,
                                      .vram_bytes = h->vram_bytes,
                                      .vram_bytes_s = h->gpu_bytes_s,
                                      .lead = lead,
                                      .next = next};
    }
}

/* The host of this name that no rank has yet, searched cyclically from `from`. -1: none, or the name is
 * empty. */
static int find_host(const mo_hosts *hosts, const char *name, int from, const bool *taken)
{
    char plain[MO_HOST_NAME];
    plain_name(name, plain);
    for (int i = 0; name[0] && i < hosts->count; i++) {
        const int at = (from + i) % hosts->count;
        if (!taken[at] && strcmp(hosts->host[at].name, plain) == 0) {
            return at;
        }
    }
    return -1;
}

/* mo_hosts_wires() on a loaded list. */
static bool match(const mo_hosts *hosts, mo_division_rank *ranks, const char *const *names, int count)
{
    bool taken[MO_DIVISION_RANKS] = {false};
    int at[MO_DIVISION_RANKS] = {0};
    bool known = count >= 1 && count <= hosts->count;
    for (int r = 0; known && r < count; r++) {
        at[r] = find_host(hosts, names[r], r, taken);
        known = at[r] >= 0 && (r > 0 || at[r] == 0);
        taken[known ? at[r] : 0] = true;
    }
    mo_hosts *these = known ? calloc(1, sizeof *these) : NULL;
    mo_division_rank *kept = known ? calloc((size_t)count, sizeof *kept) : NULL;
    known = these && kept;
    for (int r = 0; known && r < count; r++) {
        these->host[these->count++] = hosts->host[at[r]];
        if (at[(r + 1) % count] != (at[r] + 1) % hosts->count) { /* measured to another host */
            these->host[r].next_latency_s = these->host[r].next_bytes_s = 0;
        }
    }
    if (known) {
        mo_hosts_ranks(these, kept);
    }
    for (int r = 0; known && r < count; r++) {
        ranks[r].lead = kept[r].lead;
        ranks[r].next = kept[r].next;
    }
    free(these);
    free(kept);
    return known;
}

bool mo_hosts_wires(mo_division_rank *ranks, const char *const *names, int count)
{
    char path[4096];
    mo_error err = {0};
    mo_hosts *hosts = calloc(1, sizeof *hosts);
    mo_status status = hosts ? mo_hosts_path(path, sizeof path, &err) : MO_ENOENT;
    status = status == MO_OK ? mo_hosts_load(path, hosts, &err) : status;
    const bool known = status == MO_OK && match(hosts, ranks, names, count);
    if (status != MO_OK && status != MO_ENOENT) {
        mo_log(MO_LOG_WARN, "plan", "%s; the network speed is estimated instead", err.detail);
    }
    free(hosts);
    return known;
}
