/* The disk: the location of the model file, its read methods, and whether it was measured. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/io_uring.h>

#include "api/doctor/findings.h"
#include "base/textfile.h"
#include "plan/rates.h"

/* ---- The model's file ------------------------------------------------------------------------- */

/* The file system type of a device, from lines "id parent MAJOR:MINOR root mount options [tags] - TYPE
 * ...". */
static bool find_type(const char *root, dev_t device, char *type, size_t bytes)
{
    char path[512], line[2048], number[64];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    snprintf(number, sizeof number, " %u:%u ", major(device), minor(device));
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *dash = strstr(line, " - ");
        if (dash && strstr(line, number) && strstr(line, number) < dash) {
            snprintf(type, bytes, "%.*s", (int)strcspn(dash + 3, " \n"), dash + 3);
            found = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

static bool one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(word, *list) != 0) {
        list++;
    }
    return *list != NULL;
}

static void look_at_file_system(mo_visit *v, dev_t device)
{
    static const char *const far[] = {"nfs",         "nfs4",      "cifs",       "smb3",           "9p",
                                      "ceph",        "glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs",
                                      "fuse.rclone", "virtiofs",  NULL};
    static const char *const memory[] = {"tmpfs", "ramfs", "devtmpfs", NULL};
    char type[64], mend[256];
    if (!find_type(v->root, device, type, sizeof type)) {
        return;
    }
    if (one_of(type, far)) {
        snprintf(mend, sizeof mend, "cp '%.150s' ~/   (to a local disk, and use that copy)", v->model);
        mo_visit_wrong(v, "file_system", mend,
                       "The model is on a network file system (%s): opening it, "
                       "and experts that do not fit in RAM, wait for the network",
                       type);
    } else if (one_of(type, memory)) {
        snprintf(mend, sizeof mend, "mv '%.150s' ~/   (to a disk)", v->model);
        mo_visit_wrong(
            v, "file_system", mend,
            "The model file is on a file system in memory (%s), so the model takes its size in memory twice",
            type);
    } else {
        mo_visit_well(v, "file_system", "%s", type);
    }
}

/* A virtual machine's disk does not reveal the real one: virtio reports all as rotating. */
static bool is_virtual(const char *root, unsigned a, unsigned b)
{
    char path[512], real[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/dev/block/%u:%u", root, a, b);
    return realpath(path, real) && strstr(real, "/virtio");
}

/* A partition uses its disk's queue. */
static void look_at_disk(mo_visit *v, dev_t device)
{
    char text[16];
    const unsigned a = major(device), b = minor(device);
    if (is_virtual(v->root, a, b)) {
        mo_visit_well(v, "disk", "virtual");
        return;
    }
    if (!mo_textfile_read(text, sizeof text, "%s/sys/dev/block/%u:%u/queue/rotational", v->root, a, b) &&
        !mo_textfile_read(text, sizeof text, "%s/sys/dev/block/%u:%u/../queue/rotational", v->root, a, b)) {
        return;
    }
    if (text[0] == '1') {
        char mend[256];
        snprintf(mend, sizeof mend, "cp '%.150s' /path/on/an/ssd/   (and use that copy)", v->model);
        mo_visit_wrong(v, "disk", mend,
                       "The model is on a hard disk: an expert that is not in RAM takes about 10 ms to find");
    } else {
        mo_visit_well(v, "disk", "solid state");
    }
}

/* ---- Reading ---------------------------------------------------------------------------------- */

static bool uring_works(void)
{
    struct io_uring_params p = {0};
    const long fd = syscall(SYS_io_uring_setup, 1, &p);
    if (fd >= 0) {
        close((int)fd);
    }
    return fd >= 0;
}

static void look_at_uring(mo_visit *v)
{
    char text[16];
    const bool known = mo_textfile_read(text, sizeof text, "%s/proc/sys/kernel/io_uring_disabled", v->root);
    if (known && text[0] != '0') {
        mo_visit_wrong(v, "io_uring", "sudo sysctl kernel.io_uring_disabled=0",
                       "io_uring is disabled in the kernel "
                       "(kernel.io_uring_disabled is %c); reads use "
                       "threads instead, which take time from computing",
                       text[0]);
    } else if (!v->root[0] && !uring_works()) {
        mo_visit_wrong(
            v, "io_uring",
            "docker run --security-opt seccomp=unconfined ...   (in a container, or a profile that allows "
            "it)",
            "io_uring is not permitted here (%s); reads use threads instead, which take time from computing",
            strerror(errno));
    } else {
        mo_visit_well(v, "io_uring", "permitted");
    }
}

static void look_at_rates(mo_visit *v)
{
    const mo_rates rates = mo_rates_here();
    if (!rates.measured) {
        mo_visit_wrong(
            v, "rates", "moraine probe",
            "This machine has not been measured yet; plans use conservative defaults for memory and disk");
    } else if (rates.disk_bytes_s < 1e9) {
        mo_visit_wrong(v, "rates", "",
                       "The disk was measured at %.2f GB/s; experts that do not fit in RAM "
                       "will wait for it. A faster disk (NVMe) or a smaller model helps",
                       rates.disk_bytes_s / 1e9);
    } else {
        mo_visit_well(v, "rates", "measured: memory %.1f GB/s, disk %.1f GB/s", rates.ram_bytes_s / 1e9,
                      rates.disk_bytes_s / 1e9);
    }
}

void mo_visit_disk(mo_visit *visit)
{
    struct stat st;
    if (visit->model && stat(visit->model, &st) == 0) {
        look_at_file_system(visit, st.st_dev);
        look_at_disk(visit, st.st_dev);
    }
    look_at_uring(visit);
    look_at_rates(visit);
}
