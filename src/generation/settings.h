/* Settings: the options of a generation, checked, copied and completed with the recommendations of the
 * model's file, the defaults, the tokens that must not be sampled, and a seed. */
#ifndef MO_GENERATION_SETTINGS_H
#define MO_GENERATION_SETTINGS_H

#include "moraine_server.h"

typedef struct mo_generation_settings {
    int64_t vocab;
    bool has_vocabulary;
    mo_sampler_options sampler; /* its bias, breakers and order are those below */
    uint32_t *breakers;         /* bit mask of tokens that end a repetition; NULL: not needed */
    char **dry_breakers;        /* the strings in these tokens */
    size_t dry_breaker_count;
    char *samplers;
    mo_logit_bias *bias;
    size_t own_bias; /* number of the caller's biases, which come first */
    int64_t max_tokens, thought_tokens;
    char **stop;
    size_t stop_count;
    char *grammar, *schema, *tools, *tool_choice; /* NULL: none */
    mo_grammar *compiled;                         /* the caller's grammar, which replaces these; NULL: none */
    mo_reply_options reply;                       /* its tools are `reply_tools` */
    char *reply_tools;
    bool reply_given; /* reply is the caller's: its in_thought is valid too */
    bool strict, single_call, raw, ignore_end;
    int logprobs; /* -1: none */
    int draft_max, draft_min;
    float draft_p_min;
    int32_t *prediction; /* [prediction_count]; NULL: none */
    size_t prediction_count;
    bool (*progress)(void *user, int64_t done_tokens, int64_t total_tokens);
    void *user;
} mo_generation_settings;

/* A numeric sampling option: its offsets in both structs. */
typedef struct mo_sampling_field {
    const char *name;
    size_t option, sampler; /* offset of a float, or (whole) of an int64_t */
    bool whole;
} mo_sampling_field;

enum { MO_SAMPLING_FIELDS = 21 };
extern const mo_sampling_field mo_sampling_fields[MO_SAMPLING_FIELDS];

/* extra: additions of our own programs, or NULL. On failure nothing is left. */
mo_status mo_generation_settings_make(const mo_model *model, const mo_generation_options *options,
                                      const mo_generation_extra *extra, mo_generation_settings *out,
                                      mo_error *err);
void mo_generation_settings_free(mo_generation_settings *set);

/* Compiles the grammar of an answer; *out NULL: the answer is free. */
mo_status mo_generation_settings_compile(const mo_generation_settings *set, const mo_model *model,
                                         bool in_thought, mo_grammar **out, mo_error *err);

#endif
