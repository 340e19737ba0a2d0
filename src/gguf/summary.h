/* Summary: what a model weighs and what one token reads of it, computed from names, sizes and types. */
#ifndef MO_GGUF_SUMMARY_H
#define MO_GGUF_SUMMARY_H

#include "gguf/read.h"

/* Where a tensor's bytes count. */
typedef enum mo_tensor_role {
    MO_ROLE_OTHER,     /* read whole by every token */
    MO_ROLE_EXPERTS,   /* all experts of a layer, back to back: a token reads the share it is routed to */
    MO_ROLE_EXPERT,    /* one expert of the older layout */
    MO_ROLE_OUTPUT,    /* the output matrix */
    MO_ROLE_EMBEDDING, /* one row per token */
    MO_ROLE_UNUSED,    /* never read while decoding */
} mo_tensor_role;

/* The role a tensor's name gives it; *layer is -1 outside the layers. layers > 0: those at and above
 * this number predict further tokens and are not used. Pure. */
mo_tensor_role mo_tensor_role_of(const char *name, int layers, int *layer);

/* Fills *out, and formats [MO_TYPE_LIMIT], which it refers to; strings belong to g. MO_EFORMAT where metadata and tensors
 * contradict each other. */
mo_status mo_gguf_summarize(const mo_gguf *g, mo_file_info *out, mo_file_format *formats, mo_error *err);

#endif
