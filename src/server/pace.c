#include "server/pace.h"

enum { FIRST_PIECE = 64, LEAST_PIECE = 8 };

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

void srv_pace_learn(srv_pace *p, int answers, int64_t prompt, double seconds)
{
    if (!answers || seconds <= 0.0) {
        return;
    }
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
