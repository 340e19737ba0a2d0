/* Parameters: how an answer is to be made, by the names of every dialect, read once for all of them. */
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

/* Where one of a request's fields has another meaning than in the others. */
typedef enum srv_dialect {
    SRV_DIALECT_CHAT,      /* OpenAI chat completions */
    SRV_DIALECT_TEXT,      /* OpenAI completions: logprobs is a number */
    SRV_DIALECT_RESPONSES, /* OpenAI responses */
    SRV_DIALECT_ANTHROPIC,
    SRV_DIALECT_OLLAMA,
    SRV_DIALECT_COMPLETION, /* llama-server's own */
} srv_dialect;

typedef struct srv_parameters {
    /* Complete, but for what is set when the job is submitted: stop, breakers, samplers and logprobs, from members below, and raw. */
    mo_generation_options generation;
    bool seeded; /* a seed was given; otherwise one is drawn */
    const char *stop[SRV_STOP_MAX];
    const char
        *breakers[SRV_STOP_MAX]; /* of DRY; used where generation.dry_breaker_count or no_breakers is set */
    bool no_breakers;
    char samplers[160]; /* their order; "": as usual */
    mo_logit_bias *bias;
    int32_t *prediction; /* the tokens; NULL: none */
    int64_t n;
    bool logprobs;
    int64_t top;
    bool stream, include_usage;
    bool cache_prompt;
    bool return_tokens, timings_per_token, return_progress;
    bool verbose; /* answers of OpenAI's chats show the prompt */
    bool trace;   /* which experts its tokens used can be asked for */
    bool post_sampling_probs;
    int64_t heartbeat_ms;    /* of a stream; 0: the server's, -1: none */
    bool keep_thought;       /* reasoning_format "none": thoughts stay in the text */
    bool hide_thought;       /* Anthropic's blocks of thoughts come without a text */
    srv_switch thinking;     /* unset: as the template does */
    const char *effort;      /* NULL: not given */
    const char *think_field; /* the request's field that asks for thoughts or limits them; NULL: none does */
    const json_t *template_kwargs;
    mo_adapter_use adapters[SRV_ADAPTERS]; /* of the model, with the scales that the answer is made with */
    int adapter_count;
    bool adapters_asked; /* the request says which */
} srv_parameters;

/* The defaults without server options: llama-server's. */
srv_parameters srv_parameters_default(void);

/* Reads what the object says over what *p holds. Strings stay the JSON's. False: something is wrong; free *p in any case. The
 * model's vocabulary is asked for biases. */
bool srv_parameters_read(const srv_field *object, srv_dialect dialect, const mo_model *model,
                         srv_parameters *p);
void srv_parameters_free(srv_parameters *p);

/* logprobs, top_logprobs and n_probs, for a dialect that has them with the other parameters. */
bool srv_probabilities_read(const srv_field *object, srv_dialect dialect, srv_parameters *p);

/* A list of ids and scales, over the scales that are there; NULL: it leaves them. */
bool srv_adapters_read(const srv_field *list, mo_adapter_use *adapters, int count);

/* Draws a seed where none was given. */
void srv_parameters_seed(srv_parameters *p);

#endif
