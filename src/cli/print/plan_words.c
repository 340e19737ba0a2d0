#include "cli/print/plan_words.h"

#include <string.h>

const char *cli_plan_words(const mo_plan_report *r)
{
    const char *mode = r->mode;
    const bool layers = r->device.layers + r->device.streamed_layers > 0; /* false: only experts */
    if (r->device.ceiling_bytes && r->device.used_bytes == r->device.whole_bytes && layers) {
        return "everything is in VRAM";
    }
    if (r->device.ceiling_bytes && strcmp(mode, "resident") == 0) {
        return layers ? "everything is in RAM, as much as fits also in VRAM"
                      : "everything is in RAM, as many experts as fit also in VRAM";
    }
    if (r->device.ceiling_bytes && r->streamed_layers == 0) { /* data in one tier is in no other */
        return r->token_disk_bytes == 0 ? "RAM and VRAM together hold everything"
                                        : "experts are in VRAM, RAM and on disk";
    }
    return strcmp(mode, "resident") == 0 ? "everything is in RAM"
           : strcmp(mode, "slots") == 0
               ? "the core is in RAM, experts are cached in RAM and read from disk"
               : "layers are streamed from disk for every token, through buffers in RAM";
}
