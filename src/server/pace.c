#include "server/pace.h"

/* Fewer than the least would hardly be faster where tokens choose experts: the first few bring most of them. */
enum { FIRST_PIECE = 64, LEAST_PIECE = 16 };

void srv_pace_init(srv_pace *p, int64_t batch, double bound_s)
{
    *p = (srv_pace){.batch = batch, .bound_s = bound_s, .piece = FIRST_PIECE};
}

int64_t srv_pace_piece(const srv_pace *p, int answers)
{
    const int64_t room = p->batch > answers ? p->batch - answers : 1;
    const int64_t piece = answers ? (int64_t)p->piece : room;
    return piece < room ? piece : room;
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

void srv_pace_learn(srv_pace *p, int answers, int64_t prompt, double seconds)
{
    if (seconds <= 0.0 || (!answers && (p->met || prompt < LEAST_PIECE))) {
        return;
    }
    if (!answers) {
        guess(p, prompt, seconds);
        return;
    }
    p->met |= prompt > 0;
    if (!prompt) {
        p->alone_s += p->alone_s > 0.0 ? 0.1 * (seconds - p->alone_s) : seconds;
        return;
    }
    /* What a step takes is a part that does not depend on the piece and one that does; the first is at most what a step
     * alone takes, so scaling by the second never oversteps. */
    const double fixed = p->alone_s < 0.9 * seconds ? p->alone_s : 0.9 * seconds;
    const double fits = (double)prompt * (0.9 * target(p) - fixed) / (seconds - fixed);
    const double most = 2.0 * (double)prompt > p->piece ? 2.0 * (double)prompt : p->piece;
    double next = fits < most ? fits : most; /* a short piece says little about a long one */
    if (next > p->piece && (double)prompt < 0.5 * p->piece) {
        next = p->piece; /* it was not the bound that made this one short */
    }
    next = next > LEAST_PIECE ? next : LEAST_PIECE;
    p->piece = next < (double)p->batch ? next : (double)p->batch;
}
