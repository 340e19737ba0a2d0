/* Rank: a logit and its token as one number, larger for the larger logit and, among equals, for the lower token, as
 * mo_likeliest() of the engine has it: the largest of many, in any order, is the likeliest token. */
#ifndef MO_DEVICE_RANK_H
#define MO_DEVICE_RANK_H

#include "numeric/half.h"

/* For a finite logit; never 0. */
MO_ANYWHERE uint64_t mo_rank_of(float logit, uint32_t token)
{
    const uint32_t bits = mo_bits_of(logit + 0.0f); /* both zeros are equal */
    const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | ~token;
}

MO_ANYWHERE int32_t mo_rank_token(uint64_t rank)
{
    return (int32_t) ~(uint32_t)rank;
}

#endif
