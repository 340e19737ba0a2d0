/* Gemma: the notation in which Gemma 4 writes arguments, turned into JSON as it comes: keys without quotes, strings between
 * marks of their own and without escapes.
 *
 *     {city:<|"|>Bern<|"|>,days:[1,2],deep:{x:true}}        ->        {"city":"Bern","days":[1,2],"deep":{"x":true}} */
#ifndef MO_DIALOGUE_GEMMA_H
#define MO_DIALOGUE_GEMMA_H

#include "base/bytes.h"
#include "dialogue/json.h"

enum { MO_GEMMA_DEPTH = 64 }; /* deeper values become strings */

typedef struct mo_gemma {
    int state;
    int depth;
    bool list[MO_GEMMA_DEPTH + 1]; /* of each open level: is it a list? */
    bool comma;                    /* a value stands before the next one of this level */
    int ignored;                   /* levels too deep that are open */
    mo_json_scan plain;            /* a string in JSON's own quotes */
    mo_bytes word;                 /* a key or a value without quotes, so far */
} mo_gemma;

/* The opening brace has been read. */
void mo_gemma_begin(mo_gemma *g, mo_bytes *to);
void mo_gemma_free(mo_gemma *g);

/* Adds a byte, or the mark around strings; JSON goes to `to`. True: the arguments are complete. */
bool mo_gemma_put(mo_gemma *g, char c, mo_bytes *to);
void mo_gemma_quote(mo_gemma *g, mo_bytes *to);

/* Is a string in JSON's quotes being read, in which marks are only text? */
bool mo_gemma_in_string(const mo_gemma *g);

#endif
