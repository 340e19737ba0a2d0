#include "hub/picture_model.h"

#include <string.h>

bool hub_reads_pictures(const mo_file *model, const char *projector)
{
    mo_metadata_info info;
    mo_file_info of;
    bool sections = false;
    if (mo_file_summarize(model, &of, sizeof of, NULL) != MO_OK) {
        return false;
    }
    for (int64_t i = 0; !sections && mo_file_metadata(model, i, &info, sizeof info); i++) {
        sections = strstr(info.key, ".rope.dimension_sections") != NULL;
    }
    const bool gemma = strcmp(of.architecture, "gemma4") == 0;
    const bool qwen = strncmp(of.architecture, "qwen3", 5) == 0 && sections;
    return !projector ? gemma || qwen : strcmp(projector, "gemma4v") == 0 ? gemma : qwen;
}
