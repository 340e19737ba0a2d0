#include "plan/serving.h"

enum { USUAL_PARALLEL = 4, USUAL_CONTEXT = 8192, KEPT_LEAST = 1 << 20 };

/* The context may cost at most 5 % of the speed and is reduced otherwise: the KV cache takes memory from
 * experts. */
#define SPEED_KEPT 0.95

typedef struct choice {
    mo_server_plan *out;
    mo_serving_try try;
    void *user;
    double least_tokens_s; /* a plan that costs little is at least this fast */
} choice;

/* Applies the options that determine values directly. */
static void take_asked(const mo_server_request *asked, mo_server_plan *out)
{
    out->context = asked->context;
    out->parallel = asked->parallel;
    if (asked->context_all && !asked->context) {
        out->parallel = asked->parallel ? asked->parallel : USUAL_PARALLEL;
        out->context = asked->context_all / out->parallel > 0 ? asked->context_all / out->parallel : 1;
    } else if (asked->context_all && !asked->parallel) {
        const int64_t fit = asked->context_all / asked->context;
        out->parallel = fit > 256 ? 256 : fit < 1 ? 1 : (int)fit;
    }
}

/* True if the plan is possible and hardly slower than without the last change. */
static bool costs_little(const choice *c)
{
    mo_serving_plan plan = {0};
    mo_error ignored = {0};
    return c->try(c->user, c->out, &plan, &ignored) == MO_OK && plan.tokens_s >= c->least_tokens_s;
}

/* The maximum number of sequences, up to the usual number, that the plan allows with this many positions
 * each. */
static mo_status choose_parallel(const choice *c, mo_serving_plan *plan, mo_error *err)
{
    mo_status status = MO_OK;
    for (c->out->parallel = USUAL_PARALLEL; c->out->parallel >= 1; c->out->parallel /= 2) {
        status = c->try(c->user, c->out, plan, err);
        if (status == MO_OK) {
            return MO_OK;
        }
    }
    return status;
}

static void choose_context(const choice *c, int64_t most)
{
    const int64_t least = c->out->context;
    for (int64_t n = most; n > least; n = n / 2 > least ? n / 2 : least) {
        c->out->context = n;
        if (costs_little(c)) {
            return;
        }
    }
    c->out->context = least;
}

/* Tries `most`, then half of it, and so on. */
static void choose_kept(const choice *c, int64_t *kept, int64_t most)
{
    for (int64_t bytes = most; bytes >= KEPT_LEAST; bytes /= 2) {
        *kept = bytes;
        if (costs_little(c)) {
            return;
        }
    }
    *kept = 0;
}

mo_status mo_plan_serving(const mo_server_request *asked, bool planned, mo_serving_try try, void *user,
                          mo_server_plan *out, mo_error *err)
{
    const int64_t made_for = out->made_for ? out->made_for : USUAL_CONTEXT;
    mo_serving_plan least = {0};
    choice c = {.out = out, .try = try, .user = user};
    take_asked(asked, out);
    const bool open = out->context == 0;
    if (open) {
        out->context = made_for < USUAL_CONTEXT ? made_for : USUAL_CONTEXT;
    }
    if (!planned) {
        out->parallel = out->parallel ? out->parallel : USUAL_PARALLEL;
        out->kept_bytes = asked->kept_bytes;
        return MO_OK;
    }
    const mo_status status = out->parallel ? try(user, out, &least, err) : choose_parallel(&c, &least, err);
    if (status != MO_OK) {
        return status;
    }
    c.least_tokens_s = SPEED_KEPT * least.tokens_s;
    if (open) {
        choose_context(&c, made_for);
    }
    choose_kept(&c, &out->kept_bytes, asked->kept_bytes);
    if (least.device) { /* the device gets a quarter of it */
        choose_kept(&c, &out->kept_device_bytes, out->kept_bytes / 4);
    }
    return MO_OK;
}
