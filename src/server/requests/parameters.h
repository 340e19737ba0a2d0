/* Parameters: generation settings under the names of every dialect, read once for all of them. */
#ifndef SRV_PARAMETERS_H
#define SRV_PARAMETERS_H

#include "server/common/field.h"
#include "server/scheduler/job.h"

enum {
    SRV_STOP_MAX = 64,
    SRV_BIAS_MAX = 1 << 16,
    SRV_CHOICES_MAX = 128,
};

typedef enum srv_switch { SRV_UNSET, SRV_ON, SRV_OFF } srv_switch;

/* Dialects in which some field has a different meaning. */
typedef enum srv_dialect {
    SRV_DIALECT_CHAT,      /* OpenAI chat completions */
    SRV_DIALECT_TEXT,      /* OpenAI completions: logprobs is a number */
    SRV_DIALECT_RESPONSES, /* OpenAI responses */
    SRV_DIALECT_ANTHROPIC,
    SRV_DIALECT_OLLAMA,
    SRV_DIALECT_COMPLETION, /* llama-server's native endpoint */
} srv_dialect;

typedef struct srv_parameters {
    /* Complete except for fields set at submission from members below and raw: stop, breakers, samplers and
     * logprobs. */
    mo_generation_options generation;
    bool seeded; /* a seed was given; otherwise a random one is used */
    const char *stop[SRV_STOP_MAX];
    /* for DRY; used if generation.dry_breaker_count or no_breakers is set */
    const char *breakers[SRV_STOP_MAX];
    bool no_breakers;
    char samplers[160]; /* their order; "": default */
    mo_logit_bias *bias;
    int32_t *prediction; /* the predicted tokens; NULL: none */
    int64_t n;
    bool logprobs;
    int64_t top;
    bool stream, include_usage;
    bool cache_prompt;
    bool return_tokens, timings_per_token, return_progress;
    bool verbose; /* answers of OpenAI's chats include the prompt */
    bool trace;   /* record which experts its tokens use */
    bool post_sampling_probs;
    int64_t heartbeat_ms;    /* of a stream; 0: the server's, -1: none */
    bool keep_thought;       /* reasoning_format "none": thoughts stay in the text */
    bool hide_thought;       /* Anthropic's thinking blocks have no text */
    srv_switch thinking;     /* unset: as the template does */
    const char *effort;      /* NULL: not given */
    const char *think_field; /* the request field that enables or limits thinking; NULL: none */
    const json_t *template_kwargs;
    mo_adapter_use adapters[SRV_ADAPTERS]; /* the model's adapters with the scales for this answer */
    int adapter_count;
    bool adapters_asked; /* the request sets them */
} srv_parameters;

/* Defaults without server options: those of llama-server. */
srv_parameters srv_parameters_default(void);

/* Reads the object's fields over *p. Strings still point into the JSON. Returns false on an error; free *p in
 * any case. Biases use the model's vocabulary. */
bool srv_parameters_read(const srv_field *object, srv_dialect dialect, const mo_model *model,
                         srv_parameters *p);
void srv_parameters_free(srv_parameters *p);

/* Reads logprobs, top_logprobs and n_probs, for dialects that keep them with the other parameters. */
bool srv_probabilities_read(const srv_field *object, srv_dialect dialect, srv_parameters *p);

/* Reads a list of ids and scales over the current scales; NULL: keeps them. */
bool srv_adapters_read(const srv_field *list, mo_adapter_use *adapters, int count);

/* Draws a random seed if none was given. */
void srv_parameters_seed(srv_parameters *p);

#endif
