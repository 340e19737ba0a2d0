/* Profile as JSON, in the schema of the work that the hot cache follows: "llama.cpp.moe_layer_opt_perf.v1" is written,
 * it and "llama.cpp.moe_layer_perf.v1" are read, so that files can be exchanged. What that schema has no place
 * for (fingerprint, phases, prompts, exact times) stands under one more root key, "moraine", which other
 * readers pass over.
 *
 * Read as the authors do: the picks of a layer are hot_experts + cold_experts where there are any, else
 * experts, which then count as cold. Pairs of one expert are summed, zeros dropped, layers without picks
 * left out. Picks of a file without phases count as generation. */
#ifndef MO_PROFILE_JSON_H
#define MO_PROFILE_JSON_H

#include "profile/profile.h"

#define MO_PROFILE_SCHEMA     "llama.cpp.moe_layer_opt_perf.v1"
#define MO_PROFILE_SCHEMA_OLD "llama.cpp.moe_layer_perf.v1"

/* Level of detail. */
typedef enum mo_profile_mode {
    MO_PROFILE_OFF,    /* only that nothing is counted */
    MO_PROFILE_UPDATE, /* picks and what an update of the hot set needs */
    MO_PROFILE_FULL,   /* all times too */
} mo_profile_mode;

/* "off", "update", "full". A constant. */
const char *mo_profile_mode_name(mo_profile_mode mode);

/* Writes one line of JSON, terminated; free() *text. p may be NULL when the mode is off. Counts above 2^63
 * - 1 become that. */
mo_status mo_profile_json_write(const mo_profile *p, mo_profile_mode mode, char **text, size_t *length,
                                mo_error *err);

/* Reads such a text; it need not be terminated. On MO_EFORMAT (no JSON, another schema, no layers, a pair
 * that is none, contradictions) *out is NULL and err says what is wrong and where. Hostile input is safe:
 * memory is bound by the limits of profile.h. */
mo_status mo_profile_json_read(const char *text, size_t length, mo_profile **out, mo_error *err);

#endif
