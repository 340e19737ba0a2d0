/* Finds the directories of our own groups: /proc/self/cgroup names the group in each hierarchy,
 * /proc/self/mountinfo says where the hierarchies are mounted and which part of them is visible. */
#include "base/cgroup.h"

#include "base/textfile.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define FILE_BYTES 65536 /* enough for mountinfo on a machine with many containers; the rest is ignored */

/* v1 writes "no limit" as the largest multiple of the page size. */
#define LIMIT_NONE (UINT64_C(1) << 60)

typedef enum kind { KIND_V2, KIND_V1_MEMORY, KIND_V1_CPU } kind;

typedef struct hierarchy {
    char mount[PATH_BYTES]; /* where it is mounted */
    char top[PATH_BYTES];   /* the group that is visible there, "/" when all are */
} hierarchy;

static const char *controller_of(kind k)
{
    return k == KIND_V1_MEMORY ? "memory" : k == KIND_V1_CPU ? "cpu" : "";
}

/* Is `word` one of the comma-separated words of list (length bytes)? */
static bool list_has(const char *list, size_t length, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list, *end = list + length; p <= end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t len = (size_t)((comma ? comma : end) - p);
        if (len == n && memcmp(p, word, n) == 0) {
            return true;
        }
        if (!comma) {
            break;
        }
        p = comma + 1;
    }
    return false;
}

/* Copies a field of mountinfo, in which a space is written \040. False if it is too long. */
static bool copy_field(char *to, const char *from, size_t length)
{
    size_t used = 0;
    for (size_t i = 0; i < length && used + 1 < PATH_BYTES; used++) {
        if (from[i] == '\\' && i + 3 < length) {
            to[used] = (char)((from[i + 1] - '0') * 64 + (from[i + 2] - '0') * 8 + (from[i + 3] - '0'));
            i += 4;
        } else {
            to[used] = from[i++];
        }
    }
    to[used] = 0;
    return used + 1 < PATH_BYTES;
}

/* One line of mountinfo: id parent dev ROOT MOUNT options [tags] - TYPE source SUPER_OPTIONS */
static bool parse_mount(const char *line, kind k, hierarchy *h)
{
    const char *field[5], *p = line;
    size_t length[5];
    for (int i = 0; i < 5; i++) {
        field[i] = p;
        length[i] = strcspn(p, " ");
        if (p[length[i]] == 0) {
            return false;
        }
        p += length[i] + 1;
    }
    const char *dash = strstr(p, "- ");
    if (!dash) {
        return false;
    }
    const char *type = dash + 2;
    size_t type_length = strcspn(type, " ");
    const char *want = k == KIND_V2 ? "cgroup2" : "cgroup";
    if (type_length != strlen(want) || memcmp(type, want, type_length) != 0) {
        return false;
    }
    const char *super = strrchr(type, ' ');
    if (k != KIND_V2 && (!super || !list_has(super + 1, strlen(super + 1), controller_of(k)))) {
        return false;
    }
    return copy_field(h->top, field[3], length[3]) && copy_field(h->mount, field[4], length[4]);
}

static bool find_mount(const char *root, kind k, char *scratch, hierarchy *h)
{
    if (!mo_textfile_read(scratch, FILE_BYTES, "%s/proc/self/mountinfo", root)) {
        /* No list of mounts: try the usual mount point. */
        snprintf(h->mount, sizeof h->mount, "/sys/fs/cgroup%s%s", k == KIND_V2 ? "" : "/", controller_of(k));
        strcpy(h->top, "/");
        return true;
    }
    for (char *save, *line = strtok_r(scratch, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (parse_mount(line, k, h)) {
            return true;
        }
    }
    return false;
}

/* Finds our group in a hierarchy, from lines "number:controllers:path". */
static bool find_group(const char *root, kind k, char *scratch, char *group)
{
    if (!mo_textfile_read(scratch, FILE_BYTES, "%s/proc/self/cgroup", root)) {
        return false;
    }
    for (char *save, *line = strtok_r(scratch, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        size_t length = (size_t)(path - list - 1);
        bool ours = k == KIND_V2 ? length == 0 && strncmp(line, "0:", 2) == 0
                                 : list_has(list + 1, length, controller_of(k));
        if (ours && strlen(path + 1) < PATH_BYTES) {
            memcpy(group, path + 1, strlen(path + 1) + 1);
            return true;
        }
    }
    return false;
}

/* Reads a file with one number. False for "max", negative numbers and missing files. */
static bool read_number(uint64_t *out, const char *directory, const char *name)
{
    char text[64];
    return mo_textfile_read(text, sizeof text, "%s/%s", directory, name) && text[0] >= '0' &&
           text[0] <= '9' && sscanf(text, "%" SCNu64, out) == 1;
}

/* The number after `key` in a memory.stat; 0 if it is missing. */
static uint64_t stat_number(const char *stat, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = stat; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
        if (strncmp(p, key, n) == 0 && p[n] == ' ') {
            return strtoull(p + n + 1, NULL, 10);
        }
    }
    return 0;
}

static void add_limit(mo_cgroup *out, uint64_t limit, uint64_t used, uint64_t reclaimable)
{
    if (limit >= LIMIT_NONE) {
        return;
    }
    used = used > reclaimable ? used - reclaimable : 0;
    uint64_t rest = limit > used ? limit - used : 0;
    if (out->memory_limit_bytes == 0 || limit < out->memory_limit_bytes) {
        out->memory_limit_bytes = limit;
    }
    if (rest < out->memory_available_bytes) {
        out->memory_available_bytes = rest;
    }
}

static void read_memory(mo_cgroup *out, const char *directory, kind k)
{
    char stat[8192];
    uint64_t limit, used = 0;
    bool v2 = k == KIND_V2;
    if (!mo_textfile_read(stat, sizeof stat, "%s/memory.stat", directory)) {
        stat[0] = 0;
    }
    read_number(&used, directory, v2 ? "memory.current" : "memory.usage_in_bytes");
    uint64_t cache = stat_number(stat, v2 ? "inactive_file" : "total_inactive_file") +
                     stat_number(stat, v2 ? "active_file" : "total_active_file");
    if (read_number(&limit, directory, v2 ? "memory.max" : "memory.limit_in_bytes")) {
        add_limit(out, limit, used, cache);
    }
    /* Above memory.high the kernel slows a group down severely, so it counts as a limit. */
    if (v2 && read_number(&limit, directory, "memory.high")) {
        add_limit(out, limit, used, cache);
    }
    /* In a container the groups above are not visible, but their smallest limit is. */
    limit = v2 ? 0 : stat_number(stat, "hierarchical_memory_limit");
    if (limit) {
        add_limit(out, limit, used, cache);
    }
}

static void read_cpu(mo_cgroup *out, const char *directory, kind k)
{
    char text[64];
    uint64_t quota, period;
    if (k == KIND_V2) {
        if (!mo_textfile_read(text, sizeof text, "%s/cpu.max", directory) ||
            sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2) {
            return;
        }
    } else if (!read_number(&quota, directory, "cpu.cfs_quota_us") ||
               !read_number(&period, directory, "cpu.cfs_period_us")) {
        return;
    }
    if (period == 0 || quota > UINT64_MAX / 1000 || quota * 1000 / period > INT32_MAX) {
        return;
    }
    int millicores = (int)(quota * 1000 / period);
    millicores = millicores ? millicores : 1;
    if (out->cpu_millicores == 0 || millicores < out->cpu_millicores) {
        out->cpu_millicores = millicores;
    }
}

/* The part of our group's path below the mount; "" if it is not visible there. */
static const char *below_mount(const hierarchy *h, const char *group)
{
    size_t n = strlen(h->top);
    if (strstr(group, "/..")) {
        return "";
    }
    if (strcmp(h->top, "/") == 0) {
        return group;
    }
    bool inside = strncmp(group, h->top, n) == 0 && (group[n] == '/' || group[n] == 0);
    return inside ? group + n : "";
}

static void read_hierarchy(mo_cgroup *out, const char *root, kind k)
{
    char *scratch = malloc(FILE_BYTES + 3 * PATH_BYTES);
    hierarchy *h = malloc(sizeof *h);
    if (scratch && h) {
        char *group = scratch + FILE_BYTES, *directory = group + PATH_BYTES;
        if (find_group(root, k, scratch, group) && find_mount(root, k, scratch, h)) {
            int top = snprintf(directory, 2 * PATH_BYTES, "%s%s", root, h->mount);
            int end = snprintf(directory, 2 * PATH_BYTES, "%s%s%s", root, h->mount, below_mount(h, group));
            while (end < 2 * PATH_BYTES && end >= top) {
                if (k != KIND_V1_CPU) {
                    read_memory(out, directory, k);
                }
                if (k != KIND_V1_MEMORY) {
                    read_cpu(out, directory, k);
                }
                char *slash = strrchr(directory, '/');
                end = slash ? (int)(slash - directory) : -1;
                directory[end > 0 ? end : 0] = 0;
            }
        }
    }
    free(h);
    free(scratch);
}

mo_cgroup mo_cgroup_read(const char *root)
{
    mo_cgroup out = {.memory_available_bytes = UINT64_MAX};
    read_hierarchy(&out, root, KIND_V2);
    read_hierarchy(&out, root, KIND_V1_MEMORY);
    read_hierarchy(&out, root, KIND_V1_CPU);
    return out;
}
