/* Picture case: the cases of data/pictures/index.txt: prompts with pictures, their tokens and the text that follows. */
#ifndef MO_TESTS_PICTURE_CASE_H
#define MO_TESTS_PICTURE_CASE_H

#include <stddef.h>
#include <stdint.h>

enum { PICTURE_CASES = 8, PICTURE_IMAGES = 2, PICTURE_TOKENS = 256, PICTURE_GREEDY = 16 };

typedef struct picture_case {
    char model[32], name[48]; /* as in "gemma4", "gemma4.a" */
    char prompt[256];
    int images;
    char file[PICTURE_IMAGES][64];
    int64_t columns[PICTURE_IMAGES], lines[PICTURE_IMAGES]; /* rows of tokens that a picture becomes */
    int32_t tokens[PICTURE_TOKENS + PICTURE_GREEDY]; /* with -1 - number for each row of picture `number` */
    int64_t count, vocab;
    int32_t greedy[PICTURE_GREEDY]; /* what follows */
} picture_case;

/* All of them; the test fails where there are fewer. */
void picture_cases_read(picture_case out[PICTURE_CASES]);

/* A file of data/pictures, or of the folder pictures/ in the one that MO_TEST_ORACLE names, of this size (0: any); NULL: neither has it. To be
 * freed. */
void *picture_file(const char *name, size_t bytes, size_t *size);

#endif
