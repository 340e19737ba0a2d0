/* Post-Fetch settings: how experts in RAM are copied to the device after the router has chosen them. Options
 * override the environment variables LLAMA_POSTFETCH_*, whose names, meanings and defaults are those of the
 * original design. */
#ifndef MO_PLAN_POSTFETCH_H
#define MO_PLAN_POSTFETCH_H

#include "moraine.h"

typedef struct mo_postfetch {
    mo_postfetch_mode mode; /* off, auto, down or expert; never the default */
    bool force_cpu;         /* _FORCE_CPU (0): copy nothing, whatever the mode */
    bool block_on_miss;     /* _BLOCK_ON_MISS (1): wait for a late copy; 0: the CPU takes over */
    bool block_given;       /* it was set; otherwise each layer's measured times decide */
    int max_transfers;      /* _MAX_TRANSFERS (8): concurrent copies; the rest are queued */
    /* _SCRATCHPAD_MB (0): maximum MiB of device memory for copies, in every mode; 0: as much as helps */
    int64_t scratch_mb;
    bool dedicated_streams; /* _USE_DEDICATED_STREAMS (1): copies have their own stream */
    int cpu_limit; /* _CPU_LIMIT (6): the CPU computes gate and up of at most this many experts per layer */
    bool debug;    /* _DEBUG (0): log every transfer */
} mo_postfetch;

enum { MO_POSTFETCH_NOTES = 8 };

/* Messages to show the user once, at start. */
typedef struct mo_postfetch_notes {
    char line[MO_POSTFETCH_NOTES][320];
    int count; /* further ones are dropped */
} mo_postfetch_notes;

/* Like getenv(): the value of a variable, or NULL. */
typedef const char *(*mo_postfetch_get)(void *user, const char *name);

/* Combines the option and the environment; get NULL: getenv(). LLAMA_POSTFETCH_ENABLE=1 alone means auto or
 * the mode in _MODE, =0 off. --postfetch overrides both and _FORCE_CPU. An empty variable counts as unset.
 * MO_EINVAL names the variable with the invalid value. *notes (may be NULL) gets settings that are overridden
 * or have no effect. On failure *out is unchanged. */
mo_status mo_postfetch_settings(mo_postfetch_mode option, mo_postfetch_get get, void *user, mo_postfetch *out,
                                mo_postfetch_notes *notes, mo_error *err);

/* Notes names in the environment (a NULL-terminated list such as environ) that start with LLAMA_POSTFETCH_
 * and are unknown: probably typos. */
void mo_postfetch_unknown(char *const *environment, mo_postfetch_notes *notes);

/* Sizes that the settings depend on. */
typedef struct mo_postfetch_facts {
    int64_t vram_free_bytes; /* before the scratch is allocated */
    int64_t down_bytes;      /* largest expert's down matrix there, in both layouts if RAM has its own */
    int64_t expert_bytes;    /* largest expert, likewise */
    int64_t scratch_bytes;   /* set by the plan; 0: not known yet */
    int used;                /* maximum experts that a token uses in one layer */
} mo_postfetch_facts;

typedef struct mo_postfetch_capacity {
    int64_t scratch_bytes; /* as given, or at most a tenth of the free device memory; 0: Post-Fetch is off */
    int transfers;         /* concurrent copies that fit, at most max_transfers */
} mo_postfetch_capacity;

/* Sizes the scratch for one mode (auto: as for expert, which needs more). MO_EINVAL if _SCRATCHPAD_MB cannot
 * hold one transfer of a mode that needs it; err gives a sufficient value. If no size is given and one
 * transfer exceeds a tenth of the free memory, the capacity is 0 and a note says so. Fewer transfers than
 * requested are noted. Auto notes nothing: rates decide there. */
mo_status mo_postfetch_size(const mo_postfetch *settings, const mo_postfetch_facts *facts,
                            mo_postfetch_capacity *out, mo_postfetch_notes *notes, mo_error *err);

#endif
