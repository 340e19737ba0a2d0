/* Models for tests: files of the oracle by name, loading that has to work or to fail, and a model as a list of tensors that a
 * test may change and write as a file of its own. */
#ifndef MO_TESTS_MODEL_DRAFT_H
#define MO_TESTS_MODEL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/read.h"
#include "model/load.h"

/* False when the tree does not have it; those that it leaves out are found in the folder MO_TEST_ORACLE names. */
bool model_path(const char *name, char path[512]);
mo_checkpoint *model_load(const char *path, bool map, int interleave, mo_pool *pool);
mo_checkpoint *model_load_named(const char *name, bool map, int interleave);

/* Loading must fail with this status and a sentence that holds all of the words, the last of which is NULL. */
void model_refused(const char *path, mo_status status, const char *const *words);
#define EXPECT(path, status, ...) model_refused(path, status, (const char *const[]){__VA_ARGS__, NULL})

typedef struct entry {
    char name[MO_GGUF_NAME];
    mo_type type;
    int64_t size[4];
    uint8_t *data;
    int64_t bytes;
} entry;

typedef struct draft {
    mo_gguf *gguf;
    entry tensors[1024];
    int count;
    /* One key that is written differently: as a string, as a number, or not at all. */
    const char *key, *text;
    int64_t number;
    bool leave_out;
    /* And one more, a number; NULL: none. */
    const char *other_key;
    int64_t other_number;
} draft;

draft *draft_open(const char *name);
void draft_close(draft *d);
entry *draft_find(draft *d, const char *name);
void draft_drop(draft *d, const char *name);
/* A new tensor; zeros. */
entry *draft_add(draft *d, const char *name, mo_type type, int64_t n0, int64_t n1, int64_t n2);
/* As a file; its path. */
const char *draft_write(draft *d, const char *path);

#endif
