/* The type of a GGUF file: adapters, picture encoders and importance matrices are not models. Needs no family. */
#include <string.h>

#include "base/status.h"
#include "model/family.h"

mo_status mo_family_check_type(const mo_gguf *gguf, mo_error *err)
{
    static const struct {
        const char *type, *architecture, *says; /* architecture: "" of any file */
    } others[] = {
        {"adapter", "", "a LoRA adapter, not a model; name the model, and the adapter with `adapters`"},
        {"mmproj", "clip",
         "an encoder of pictures, not a model; name the model, and the encoder with `mmproj`"},
        {"imatrix", "", "an importance matrix, not a model; name the model"},
    };
    const char *type = "", *architecture = "";
    mo_status status = mo_gguf_string_or(gguf, "general.type", "model", &type, err);
    if (status == MO_OK) {
        status = mo_gguf_string_or(gguf, "general.architecture", "", &architecture, err);
    }
    for (size_t i = 0; status == MO_OK && i < sizeof others / sizeof *others; i++) {
        const bool same = *others[i].architecture && strcmp(architecture, others[i].architecture) == 0;
        if (same || strcmp(type, others[i].type) == 0) {
            return mo_fail(err, MO_EFORMAT, "%s is %s", mo_gguf_part_path(gguf, 0), others[i].says);
        }
    }
    return status;
}
