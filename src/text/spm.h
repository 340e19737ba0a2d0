/* Spm: SentencePiece-style tokenizing: characters merge into the token with the highest score. Constant after
   creation: any thread may encode. Private to the module. */
#ifndef MO_TEXT_SPM_H
#define MO_TEXT_SPM_H

#include "text/ids.h"
#include "text/vocab.h"

typedef struct mo_spm {
    const mo_vocab *vocab; /* must outlive this */
    bool words_apart;      /* no token has a space mark after another character, so words never merge */
} mo_spm;

void mo_spm_init(mo_spm *s, const mo_vocab *v);

/* Appends the ids of a text without special tokens. prefix: as if a space were before it. */
mo_status mo_spm_encode(const mo_spm *s, const uint8_t *text, size_t length, bool prefix, mo_ids *ids,
                        mo_error *err);

#endif
