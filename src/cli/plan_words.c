#include "plan_words.h"

#include <string.h>

const char *cli_plan_words(const mo_plan_report *r)
{
    const char *mode = r->mode;
    if (r->device.ceiling_bytes && r->device.used_bytes == r->device.whole_bytes) {
        return "everything is in VRAM";
    }
    if (r->device.ceiling_bytes && strcmp(mode, "resident") == 0) {
        return "everything is in RAM, and in VRAM what fits there";
    }
    return strcmp(mode, "resident") == 0 ? "everything is in RAM"
           : strcmp(mode, "slots") == 0  ? "the core is in RAM, experts in slots and on disk"
                                        : "layers come from the disk for every token, through buffers in RAM";
}
