#include "cluster/experts.h"

size_t mo_experts_token_bytes(int64_t width, bool codes)
{
    return codes ? (size_t)(width + width / 32 * (int64_t)sizeof(float)) : (size_t)width * sizeof(float);
}

size_t mo_experts_body_bytes(const mo_experts_head *head, int64_t width)
{
    return sizeof(mo_experts_pick) * (size_t)head->experts + sizeof(int32_t) * (size_t)head->rows +
           mo_experts_token_bytes(width, head->codes != 0) * (size_t)head->tokens +
           mo_experts_uses_bytes(head);
}

size_t mo_experts_uses_bytes(const mo_experts_head *head)
{
    return head->adapted ? sizeof(mo_experts_use) * MO_ADAPTERS_USED * (size_t)head->tokens : 0;
}

bool mo_experts_read_codes(const mo_moe *moe, int64_t width)
{
    bool codes = width % 32 == 0;
    for (int e = 0; e < moe->experts; e++) {
        const mo_expert *b = &moe->expert[e];
        codes &= !mo_linear_present(&b->gate) || mo_format_of(b->gate.w.type)->kind != MO_KIND_FLOAT;
        codes &= mo_format_of(b->up.w.type)->kind != MO_KIND_FLOAT;
    }
    return codes;
}

int64_t mo_experts_message_bytes(int64_t width, int64_t used, int peers)
{
    const int64_t lists = used * (int64_t)(sizeof(mo_experts_pick) + sizeof(int32_t));
    const int64_t uses = MO_ADAPTERS_USED * (int64_t)sizeof(mo_experts_use);
    return peers * (lists + uses + (int64_t)mo_experts_token_bytes(width, false));
}
