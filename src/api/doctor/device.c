/* The GPU: whether there is one, whether it is used, and why not. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/doctor/findings.h"
#include "base/textfile.h"
#include "device/choice.h"

static unsigned long number_of(const char *folder, const char *name, int base)
{
    char text[64];
    return mo_textfile_read(text, sizeof text, "%s/%s", folder, name) ? strtoul(text, NULL, base) : 0;
}

/* Counts usable GPUs and finds the first one whose slot provides fewer lanes than GPU and slot support. */
static int count_devices(const char *root, unsigned long *has, unsigned long *could)
{
    enum { NVIDIA = 0x10de, DISPLAY = 0x03 };
    char path[512], pci[1024];
    int count = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(pci, sizeof pci, "%s/%s", path, e->d_name);
        if (number_of(pci, "vendor", 16) != NVIDIA || number_of(pci, "class", 16) >> 16 != DISPLAY) {
            continue;
        }
        count++;
        const unsigned long now = number_of(pci, "current_link_width", 10),
                            most = number_of(pci, "max_link_width", 10);
        if (now && now < most && *could == 0) {
            *has = now;
            *could = most;
        }
    }
    if (d) {
        closedir(d);
    }
    return count;
}

static void look_at_memory(mo_visit *v, mo_device *device)
{
    mo_device_info info;
    mo_device_describe(device, &info);
    const double gib = 1.0 / (double)(INT64_C(1) << 30),
                 free_share = (double)info.free_bytes / (double)info.total_bytes;
    if (info.total_bytes > 0 && free_share < 0.7) {
        mo_visit_wrong(v, "gpu", "nvidia-smi   (and end the processes listed there)",
                       "%s is in use, but other programs occupy %.1f of its %.1f GiB", info.name,
                       (double)(info.total_bytes - info.free_bytes) * gib, (double)info.total_bytes * gib);
    } else {
        mo_visit_well(v, "gpu", "%s, %.1f GiB free", info.name, (double)info.free_bytes * gib);
    }
}

mo_status mo_visit_device(mo_visit *v, const char *name, mo_error *err)
{
    char why[MO_DEVICE_WHY] = "";
    mo_device *device = NULL;
    unsigned long has = 0, could = 0;
    const int devices = count_devices(v->root, &has, &could);
    const mo_status status = mo_device_choose(name, &device, why, sizeof why, err);
    if (status == MO_EINVAL) {
        return status;
    }
    if (device) {
        look_at_memory(v, device);
        mo_device_close(device);
    } else if (devices == 0 && (!name || strcmp(name, "auto") == 0)) {
        mo_visit_well(v, "gpu", "none found; the CPU does all the work");
    } else if (status != MO_OK || why[0]) {
        mo_visit_wrong(v, "gpu", "nvidia-smi   (shows whether the driver works)", "The GPU is not used: %s",
                       status != MO_OK ? err->detail : why);
    } else {
        mo_visit_well(v, "gpu", "not requested");
    }
    if (could) {
        mo_visit_wrong(v, "gpu_link", "",
                       "A GPU uses %lu of its %lu PCIe lanes: it is in a narrow slot or "
                       "not seated properly; copies of weights are slower in proportion",
                       has, could);
    }
    return MO_OK;
}
