#include "server/scheduler/pace.h"

/* Fewer than the least would hardly be faster where tokens choose experts: the first few bring most of them. */
enum { FIRST_PIECE = 64, LEAST_PIECE = 16, LONE_PIECE = 512, FORGET_STEPS = 64 };
/* What a step of prompts alone may take. It may take longer where the time is not that of its tokens, as when every step reads
 * all experts from disk, and where fewer than LONE_PIECE would fit. */
#define LONE_S 1.0
/* A piece may take longer than the bound where a smaller one would leave most of its step to what every step costs (the answers' tokens,
 * reading experts): up to where a third of the step is, so that prompts pass at two thirds of the rate that they have alone, and answers wait
 * no longer than this. */
#define PATIENCE_S 0.5

void srv_pace_init(srv_pace *p, int64_t batch, double bound_s)
{
    *p = (srv_pace){.batch = batch, .bound_s = bound_s, .piece = FIRST_PIECE, .lone_piece = LONE_PIECE};
}

int64_t srv_pace_piece(const srv_pace *p, int answers)
{
    const int64_t room = p->batch > answers ? p->batch - answers : 1;
    const int64_t piece = (int64_t)(answers ? p->piece : p->lone_piece);
    return piece < room ? piece : room;
}

/* Clients that ask together arrive some hundred microseconds apart, and a step that has begun is not left: the first would have it alone, and the
 * prompts of the others would run in pieces with its answer. A hundredth of the step is waited for them, but not if no request could arrive in that
 * time, nor longer than simultaneous requests need. */
#define LEAST_GATHERING_S 0.0002
#define MOST_GATHERING_S  0.005

double srv_pace_gathering(const srv_pace *p, int64_t prompt)
{
    const int64_t tokens = prompt < srv_pace_piece(p, 0) ? prompt : srv_pace_piece(p, 0);
    const double wait = p->rate > 0.0 ? 0.01 * (double)tokens / p->rate : 0.0;
    return wait < LEAST_GATHERING_S ? 0.0 : wait < MOST_GATHERING_S ? wait : MOST_GATHERING_S;
}

/* Where a token alone takes longer than the bound, pieces may take as long again: smaller ones would hardly be faster, and
 * the prompt would never end. */
static double target(const srv_pace *p)
{
    return p->bound_s > 2.0 * p->alone_s ? p->bound_s : 2.0 * p->alone_s;
}

/* Until answers and prompts have met, what prompts alone take says how to begin: half of what fits by that, since few tokens
 * cost more each than many do. */
static void guess(srv_pace *p, int64_t prompt, double seconds)
{
    const double fits = 0.5 * (double)prompt * p->bound_s / seconds;
    p->piece = fits > LEAST_PIECE ? fits : LEAST_PIECE;
    p->piece = p->piece < (double)p->batch ? p->piece : (double)p->batch;
}

/* What one step of prompts takes says how fast they are alone; short ones say little. */
static void learn_rate(srv_pace *p, double tokens, double seconds)
{
    if (tokens >= FIRST_PIECE) {
        p->rate += p->rate > 0.0 ? 0.5 * (tokens / seconds - p->rate) : tokens / seconds;
    }
}

/* Two pieces of unlike sizes give the cost of a prompt token next to answers. Far into a context or with many answers that may be more
 * than alone and all that the piece took: then larger ones would be of no use. Where tokens choose experts, the first of a piece cost more than
 * the later ones, up to four fifths of it by such a line: only what is clearly above that counts, and it is looked at again after a while. */
static void learn_cost(srv_pace *p, double prompt, double seconds)
{
    const double more = prompt - p->met_tokens, least = prompt < p->met_tokens ? prompt : p->met_tokens;
    const double apart = least > 0.0 ? (more > 0.0 ? more : -more) / least : 0.0;
    if (apart > 0.5) {
        const double cost = (seconds - p->met_s) / more;
        p->slower = cost * prompt > 0.9 * seconds && cost * p->rate > 1.0 ? 1.0 / cost : 0.0;
        p->since = 0;
    } else if (p->slower > 0.0 && ++p->since >= FORGET_STEPS) {
        p->slower = 0.0;
    }
    if (p->rate <= 0.0) {
        p->rate = prompt / seconds; /* until there are prompts alone */
    }
    if (apart <= 0.2 ||
        apart > 0.5) { /* otherwise the other one is kept until there is a piece to compare it with */
        p->met_tokens = prompt;
        p->met_s = seconds;
    }
}

/* The tokens that a piece must have to be worth its step, which took so long with `prompt` tokens. 0: any number is. */
static double worthwhile(const srv_pace *p, double prompt, double seconds)
{
    const double rate = p->slower > 0.0 ? p->slower : p->rate;
    const double idle = rate > 0.0 ? seconds - prompt / rate : 0.0; /* does not depend on the piece */
    if (idle <= 0.0) {
        return 0.0;
    }
    const double enough = 2.0 * idle * rate, bearable = (PATIENCE_S - idle) * rate;
    const double goal = enough < bearable ? enough : bearable;
    /* Part of the way: `idle` is less in a larger piece where most of it is experts. Back at once where it took too long. */
    const double next = p->piece + (goal - p->piece) / 3.0, most = prompt * PATIENCE_S / seconds;
    return seconds <= PATIENCE_S || next < most ? next : most;
}

/* Do the tokens that this step has more than the last one take less than half of what as many took there? */
static bool nearly_free(const srv_pace *p, double tokens, double seconds)
{
    return seconds / p->lone_s - 1.0 < 0.5 * (tokens / p->lone_tokens - 1.0);
}

/* Steps of prompts alone grow as long as they are short, or as more tokens cost little; one larger step is tried to know that. */
static void learn_alone(srv_pace *p, double tokens, double seconds)
{
    if (tokens < 0.75 * p->lone_piece) {
        return; /* the end of a prompt says little */
    }
    const double fits = tokens * LONE_S / seconds;
    double next = fits < 2.0 * tokens ? fits : 2.0 * tokens;
    if (fits < tokens && !p->lone_known) {
        if (tokens > 1.2 * p->lone_tokens) {
            p->lone_beyond = p->lone_tokens == 0.0 || nearly_free(p, tokens, seconds);
            p->lone_known = !p->lone_beyond;
            next = p->lone_beyond ? 2.0 * tokens : fits;
        } else if (p->lone_beyond) {
            next = tokens;
        }
    }
    p->lone_tokens = tokens;
    p->lone_s = seconds;
    next = next > LONE_PIECE ? next : LONE_PIECE;
    p->lone_piece = next < (double)p->batch ? next : (double)p->batch;
}

void srv_pace_learn(srv_pace *p, int answers, int64_t prompt, double seconds)
{
    if (seconds <= 0.0 || (!answers && prompt < LEAST_PIECE)) {
        return;
    }
    if (!answers) {
        learn_rate(p, (double)prompt, seconds);
        learn_alone(p, (double)prompt, seconds);
        if (p->met_tokens == 0.0) {
            guess(p, prompt, seconds);
        }
        return;
    }
    if (!prompt) {
        p->alone_s += p->alone_s > 0.0 ? 0.1 * (seconds - p->alone_s) : seconds;
        return;
    }
    /* What a step takes is a part that does not depend on the piece and one that does; the first is at most what a step
     * alone takes, so scaling by the second never oversteps. */
    const double fixed = p->alone_s < 0.9 * seconds ? p->alone_s : 0.9 * seconds;
    const double in_time = (double)prompt * (0.9 * target(p) - fixed) / (seconds - fixed);
    learn_cost(p, (double)prompt, seconds - fixed);
    const double worth = worthwhile(p, (double)prompt, seconds);
    const double fits = in_time > worth ? in_time : worth;
    const double most = 2.0 * (double)prompt > p->piece ? 2.0 * (double)prompt : p->piece;
    double next = fits < most ? fits : most; /* a short piece says little about a long one */
    if (next > p->piece && (double)prompt < 0.5 * p->piece) {
        next = p->piece; /* it was not the bound that made this one short */
    }
    next = next > LEAST_PIECE ? next : LEAST_PIECE;
    p->piece = next < (double)p->batch ? next : (double)p->batch;
}
