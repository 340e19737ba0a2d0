/* Drafts: what a step keeps of slices with draft tokens until it is known which of them are accepted: the logits of all their rows, what
 * recurrent layers were given, whose states such a step does not write, and the experts that drafts chose, which count only if
 * accepted. Sized for the model and allocated with the engine. Under the engine's lock. */
#ifndef MO_ENGINE_DRAFTS_H
#define MO_ENGINE_DRAFTS_H

#include "base/status.h"
#include "model/parts.h"

/* The most draft tokens of one session, whatever is asked for. */
enum { MO_DRAFTS_MAX = 64 };

/* What a recurrent layer was given, row by row. */
typedef struct mo_draft_inputs {
    float *before; /* [rows][before_values]: of the convolution */
    float *after;  /* [rows][after_values]: its results; short convolution: none */
    float *gates;  /* [rows][gate_values]: delta: beta and alpha; Mamba: widths of steps, */
    float *parts;  /* [rows][part_values]: and b and c of its first kind */
    int64_t before_values, after_values, gate_values, part_values;
} mo_draft_inputs;

typedef struct mo_drafts {
    int64_t most;            /* drafts of a session; 0: none */
    int64_t rows;            /* most rows of slices with drafts in a step */
    float *logits;           /* [rows][vocab] */
    int32_t *best;           /* [rows] the likeliest token, where a device has found it */
    bool *applied;           /* [layers] a device has applied the layer's rows: they are not in `inputs` */
    mo_draft_inputs *inputs; /* [layers] */
    float *copies;           /* [threads][copy_values]: the piece of a state that a thread works on */
    int64_t copy_values;
    int32_t *picked;    /* [layers][rows][used] experts that the rows chose */
    uint32_t *guessed;  /* [experts] drafts that chose it, of the layer that was noted last */
    uint8_t *cold;      /* [layers][experts] was it missing when it was asked for? */
    int used, experts;  /* the largest of all layers */
    int64_t used_total; /* experts of a token in all layers */
    void *memory;
    size_t bytes;
} mo_drafts;

/* Most rows of slices with drafts in a step of such a model; 0: none. */
int64_t mo_drafts_rows(const mo_model_spec *spec, int64_t drafts);

/* drafts: most drafts of a session; 0: none. */
size_t mo_drafts_bytes(const mo_model_spec *spec, int64_t drafts, int threads);
mo_status mo_drafts_init(mo_drafts *d, const mo_model_spec *spec, int64_t drafts, int threads, mo_error *err);
void mo_drafts_drop(mo_drafts *d); /* a zeroed one is allowed */
/* Other ranks compute no more than so many rows of slices with drafts in a step: there are no more from now on. */
void mo_drafts_limit(mo_drafts *d, int64_t rows);

static inline int32_t *mo_drafts_picked(const mo_drafts *d, int layer, int64_t row)
{
    return d->picked + ((int64_t)layer * d->rows + row) * d->used;
}

#endif
