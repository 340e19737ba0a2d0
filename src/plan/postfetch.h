/* Post-Fetch, its settings: how experts in RAM travel to the device after the router has
 * chosen them. Options beat the environment variables LLAMA_POSTFETCH_*, which have its design's names, meanings and
 * defaults. */
#ifndef MO_PLAN_POSTFETCH_H
#define MO_PLAN_POSTFETCH_H

#include "moraine.h"

typedef struct mo_postfetch {
    mo_postfetch_mode mode; /* off, auto, down or expert; never the default */
    bool force_cpu;         /* _FORCE_CPU (0): nothing is sent, whatever the mode */
    bool block_on_miss;     /* _BLOCK_ON_MISS (1): wait for a late copy; otherwise the CPU takes over */
    bool block_given;       /* it was set; otherwise each layer's measured times decide */
    int max_transfers;      /* _MAX_TRANSFERS (8): copies under way at once; the rest queue */
    int64_t
        scratch_mb; /* _SCRATCHPAD_MB (0): most MiB of device memory they go to, in every mode; 0: as many as help */
    bool dedicated_streams; /* _USE_DEDICATED_STREAMS (1): copies have a stream of their own */
    int cpu_limit; /* _CPU_LIMIT (6): gate and up of at most this many experts of a layer run on the CPU */
    bool debug;    /* _DEBUG (0): every transfer is logged */
} mo_postfetch;

enum { MO_POSTFETCH_NOTES = 8 };

/* What the user should hear once, at start. */
typedef struct mo_postfetch_notes {
    char line[MO_POSTFETCH_NOTES][320];
    int count; /* further ones are dropped */
} mo_postfetch_notes;

/* Like getenv(): the value of a variable, or NULL. */
typedef const char *(*mo_postfetch_get)(void *user, const char *name);

/* From the option and the environment; get NULL: getenv(). LLAMA_POSTFETCH_ENABLE=1 alone means automatic or what _MODE names, =0 off, and
 * --postfetch beats both and _FORCE_CPU. A variable that is empty counts as not set. MO_EINVAL names the variable whose
 * value cannot be used. *notes (may be NULL) gets what is overruled or has no effect. On failure *out is untouched. */
mo_status mo_postfetch_settings(mo_postfetch_mode option, mo_postfetch_get get, void *user, mo_postfetch *out,
                                mo_postfetch_notes *notes, mo_error *err);

/* Names in the environment (a list that ends with NULL, such as environ) that begin with LLAMA_POSTFETCH_ and are none
 * of ours are noted: they are slips. */
void mo_postfetch_unknown(char *const *environment, mo_postfetch_notes *notes);

/* What the settings meet. */
typedef struct mo_postfetch_facts {
    int64_t vram_free_bytes; /* before the scratch is taken */
    int64_t down_bytes; /* of the largest expert's down matrix there, in both layouts where RAM has its own */
    int64_t expert_bytes;  /* of the largest expert, likewise */
    int64_t scratch_bytes; /* that the plan has given; 0: not known yet */
    int used;              /* experts that a token uses in one layer, at most */
} mo_postfetch_facts;

typedef struct mo_postfetch_capacity {
    int64_t scratch_bytes; /* as given, or at most a tenth of the free device memory; 0: Post-Fetch is off */
    int transfers;         /* copies that fit there at once, at most max_transfers */
} mo_postfetch_capacity;

/* Sizes the scratch for one mode (auto: as for expert, which needs more). MO_EINVAL when _SCRATCHPAD_MB holds not one
 * transfer of a mode that needs one: err says which value would do. Where nothing is given and even one transfer is more than a
 * tenth of the free memory, the capacity is 0 and a note says so. Fewer transfers than asked for are noted. Of auto nothing is noted: rates decide there. */
mo_status mo_postfetch_size(const mo_postfetch *settings, const mo_postfetch_facts *facts,
                            mo_postfetch_capacity *out, mo_postfetch_notes *notes, mo_error *err);

#endif
