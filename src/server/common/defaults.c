/* Defaults: see defaults.h. */
#include "server/common/defaults.h"

#include <math.h>

srv_defaults srv_defaults_none(void)
{
    return (srv_defaults){
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .repeat_penalty = NAN,
        .presence_penalty = NAN,
        .frequency_penalty = NAN,
        .top_k = SRV_NOT_GIVEN,
        .seed = SRV_NOT_GIVEN,
        .max_tokens = SRV_NOT_GIVEN,
        .repeat_last_n = SRV_NOT_GIVEN,
        .reasoning_budget = SRV_NOT_GIVEN,
    };
}
