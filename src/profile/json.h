/* Profile as JSON, in the schema of the work that the hot cache follows. Writes
   "llama.cpp.moe_layer_opt_perf.v1", reads it and "llama.cpp.moe_layer_perf.v1", so that files can be
   exchanged. Data outside the schema (fingerprint, phases, prompts, exact times) is in an additional root
   member, "moraine", which other readers ignore.

   Reading follows the authors' rules: the picks of a layer are hot_experts + cold_experts if there are any,
   otherwise experts, which count as cold. Pairs of one expert are added, zeros dropped, layers without picks
   omitted. Picks of a file without phases count as generation. */
#ifndef MO_PROFILE_JSON_H
#define MO_PROFILE_JSON_H

#include "profile/profile.h"

#define MO_PROFILE_SCHEMA     "llama.cpp.moe_layer_opt_perf.v1"
#define MO_PROFILE_SCHEMA_OLD "llama.cpp.moe_layer_perf.v1"

/* Level of detail. */
typedef enum mo_profile_mode {
    MO_PROFILE_OFF,    /* only says that nothing is counted */
    MO_PROFILE_UPDATE, /* picks, and times for an update of the hot set */
    MO_PROFILE_FULL,   /* all times */
} mo_profile_mode;

/* "off", "update", "full". A constant. */
const char *mo_profile_mode_name(mo_profile_mode mode);

/* Writes one line of JSON, terminated; free() *text. p may be NULL for MO_PROFILE_OFF. */
mo_status mo_profile_json_write(const mo_profile *p, mo_profile_mode mode, char **text, size_t *length,
                                mo_error *err);

/* Reads such a text, which need not be terminated. On MO_EFORMAT (invalid JSON, another schema, no layers, an
   invalid pair, contradictions) *out is NULL and err names the place. Untrusted input is safe: the limits of
   profile.h bound the memory. */
mo_status mo_profile_json_read(const char *text, size_t length, mo_profile **out, mo_error *err);

#endif
