/* Split: the patterns, and running them with PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/utf8.h"

enum { STAGES = 6 };

struct mo_split {
    const struct pre *pre;
    int stages;
    pcre2_code *code[STAGES];
    bool jit[STAGES];
};

struct mo_split_scratch {
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* ---- Patterns ---- */

/* \p{White_Space} is used because PCRE2's \s includes U+180E, which Unicode's White_Space does not. */

#define S  "\\p{White_Space}"
#define NS "\\P{White_Space}"

#define CONTRACTION "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES      S "*[\\r\\n]+|" S "+(?!" NS ")|" S "+"
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" S "\\p{L}\\p{N}]+|" S "+(?!" NS ")"
#define LLAMA3(digits)                                                                                       \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35                                                                                               \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" S "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"       \
                "|" SPACES

/* LLAMA3, except that each newline is a piece of its own. */
#define BAILING                                                                                              \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" S "\\p{L}\\p{N}]+[\\r\\n]*|" S "*[\\r\\n]|" S   \
                "+(?!" NS ")|" S "+"

/* Words joined by single spaces are one piece. */
#define EXAONE                                                                                               \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+|\\p{N}| ?[^" S                  \
                "\\p{L}\\p{N}]+[\\r\\n/]?|" S "*[\\r\\n]|" S "+(?!" NS ")|" S "+"

/* Words of upper-case and lower-case letters. Letters without case, and marks, count as both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix, digits)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix \
    "|" digits "| ?[^" S "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

/* The same for everything but Chinese characters, which are pieces of their own. The published pattern is a
   class with &&[^\p{Han}], which PCRE2 does not support. */
#define OTHERS      "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}"
#define KIMI_UPPER  "[^\\p{Ll}" OTHERS "]"
#define KIMI_LOWER  "[^\\p{Lu}\\p{Lt}" OTHERS "]"
#define KIMI_SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define KIMI                                                                                                 \
    "\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" KIMI_SUFFIX                          \
    "|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" KIMI_SUFFIX "|\\p{N}{1,3}| ?[^" S                \
    "\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

#define DEEPSEEK3                                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"      \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

/* Groups of three digits from the right end of a run; the first has one to three. Only the first group looks
   ahead over the rest of the run. */
#define DIGIT_GROUPS "(?<!\\p{N})\\p{N}{1,2}(?=(?:\\p{N}{3})++(?!\\p{N}))|\\p{N}{1,3}"
/* The same if the run ends at a word boundary. cohere2moe's \d{1,3}(?=(?:\d{3})*\b) would look ahead before
   every group. */
#define WORD_DIGIT_GROUPS                                                                                    \
    "(?<!\\p{Nd})\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+(?![\\p{L}\\p{M}\\p{Nd}\\p{Pc}]))|(?<=\\p{Nd})\\G\\p{Nd}{3}"
/* Scripts without spaces between words, as listed by afmoe. */
#define UNSPACED                                                                                             \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"       \
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}"            \
    "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]"

/* The classes that older DeepSeek tokenizers list explicitly. */
#define EAST_ASIA "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]"
#define PUNCTUATION                                                                                          \
    "[\\x{21}-\\x{2F}\\x{3A}-\\x{7E}\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"               \
    "\\x{3000}-\\x{3002}]"
#define LETTERS                                                                                              \
    "[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}"         \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}"   \
    "\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"          \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"        \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"        \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{"     \
    "1F7D}"                                                                                                  \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"                  \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"        \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"           \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"         \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"          \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"        \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"        \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"                   \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]"

typedef struct pre {
    const char *name;
    bool adds_bos, ignores_merges, composes;
    const char *patterns[STAGES];
} pre;

/* Trailing space is (?<!\s)\s++\z, because \s+$ tries every start of a long run and takes quadratic time. */
static const pre table[] = {
    {"llama-bpe", true, true, false, {LLAMA3("\\p{N}{1,3}")}},
    {"llama3", true, true, false, {LLAMA3("\\p{N}{1,3}")}},
    {"llama-v3", true, true, false, {LLAMA3("\\p{N}{1,3}")}},
    {"lfm2", true, true, false, {LLAMA3("\\p{N}{1,3}")}},
    {"pixtral", true, true, false, {LLAMA3("\\p{N}{1,3}")}},
    {"glm4", false, false, false, {LLAMA3("\\p{N}{1,3}")}},
    {"chatglm-bpe", false, false, false, {LLAMA3("\\p{N}{1,3}")}},
    {"qwen2", false, false, true, {LLAMA3("\\p{N}")}},
    {"deepseek-r1-qwen", false, false, false, {LLAMA3("\\p{N}")}},
    {"qwen35", false, false, true, {QWEN35}},
    {"hunyuan", false, false, false, {LLAMA3("\\p{N}")}},
    {"solar-open", false, false, false, {LLAMA3("\\p{N}")}},
    {"bailingmoe2", false, false, false, {BAILING}},
    {"bailingmoe", false, false, false, {BAILING}},
    {"exaone-moe", false, false, false, {EXAONE}},
    {"dbrx", false, false, false, {LLAMA3("\\p{N}{1,3}")}},
    {"refact", false, false, false, {"\\p{N}", GPT2}},
    {"smollm", false, false, false, {"\\p{N}", GPT2}},
    {"gpt-2", false, false, false, {GPT2}},
    {"olmo", false, false, true, {GPT2}},
    {"deepseek-v3",
     false,
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {"hunyuan-dense",
     false,
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {"gpt-4o", false, false, false, {CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"kanana2", false, false, false, {CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"kimi-k2", false, false, false, {KIMI}},
    {"minimax-m2", false, false, false, {CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"tekken", true, true, false, {CASED("", "\\p{N}")}},
    {"laguna", false, false, false, {"[^\\n]+|\\n+", LLAMA3("\\p{N}")}},
    {"cohere2moe", false, false, false, {WORD_DIGIT_GROUPS, CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"tiny_aya", false, false, false, {WORD_DIGIT_GROUPS, CASED(CONTRACTION "?", "\\p{N}{1,3}")}},
    {"afmoe", false, false, false, {DIGIT_GROUPS, UNSPACED "+", DEEPSEEK3}},
    {"deepseek-coder",
     false,
     false,
     false,
     {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", EAST_ASIA "+", "\\p{N}"}},
    {"deepseek-llm",
     false,
     false,
     false,
     {"[\\r\\n]", S "?" LETTERS "+", S "?" PUNCTUATION "+", "(?<!" S ")" S "++\\z", EAST_ASIA "+",
      "\\p{N}+"}},
};

enum { PRES = sizeof table / sizeof *table };

static const pre *find(const char *name)
{
    for (int i = 0; i < PRES; i++) {
        if (!strcmp(table[i].name, name)) {
            return &table[i];
        }
    }
    return NULL;
}

bool mo_split_adds_bos(const char *name)
{
    const pre *p = find(name);
    return p && p->adds_bos;
}

bool mo_split_ignores_merges(const mo_split *s)
{
    return s->pre->ignores_merges;
}

bool mo_split_composes(const mo_split *s)
{
    return s->pre->composes;
}

/* ---- Creating ---- */

static mo_status unknown(const char *name, mo_error *err)
{
    char known[512];
    size_t used = 0;
    for (int i = 0; i < PRES && used < sizeof known; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i].name);
    }
    return mo_fail(err, MO_EUNSUPPORTED,
                   "unknown pre-tokenizer \"%.100s\" (tokenizer.ggml.pre); "
                   "this version knows %s. Use token ids instead of text",
                   name, known);
}

mo_status mo_split_create(const char *name, mo_split **out, mo_error *err)
{
    const pre *p = find(name);
    *out = NULL;
    if (!p) {
        return unknown(name, err);
    }
    mo_split *s = calloc(1, sizeof *s);
    if (!s) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the pre-tokenizer");
    }
    s->pre = p;
    for (; s->stages < STAGES && p->patterns[s->stages]; s->stages++) {
        int number = 0;
        PCRE2_SIZE offset = 0;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)p->patterns[s->stages], PCRE2_ZERO_TERMINATED,
                                         PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &number, &offset, NULL);
        if (!code) {
            mo_split_destroy(s);
            if (number == PCRE2_ERROR_HEAP_FAILED) {
                return mo_fail(err, MO_ENOMEM, "out of memory for the pre-tokenizer");
            }
            return mo_fail(err, MO_EUNSUPPORTED,
                           "PCRE2 rejects the pattern of pre-tokenizer \"%s\" at "
                           "%zu (error %d); version 10.40 or later is required",
                           name, (size_t)offset, number);
        }
        s->code[s->stages] = code;
        s->jit[s->stages] = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
        if (!s->jit[s->stages] && s->stages == 0) {
            mo_log(MO_LOG_WARN, "text",
                   "PCRE2 has no JIT compiler here; splitting "
                   "text runs at about a quarter of its speed");
        }
    }
    *out = s;
    return MO_OK;
}

void mo_split_destroy(mo_split *s)
{
    if (s) {
        for (int i = 0; i < s->stages; i++) {
            pcre2_code_free(s->code[i]);
        }
        free(s);
    }
}

mo_split_scratch *mo_split_scratch_create(const mo_split *s)
{
    (void)s;
    mo_split_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) {
        return NULL;
    }
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->limits = pcre2_match_context_create(NULL);
    if (!scratch->match || !scratch->limits) {
        mo_split_scratch_destroy(scratch);
        return NULL;
    }
    /* The patterns take linear time, but the default limit would refuse long runs of one letter. */
    pcre2_set_match_limit(scratch->limits, UINT32_MAX);
    return scratch;
}

void mo_split_scratch_destroy(mo_split_scratch *scratch)
{
    if (scratch) {
        pcre2_match_data_free(scratch->match);
        pcre2_match_context_free(scratch->limits);
        free(scratch);
    }
}

/* ---- Running ---- */

typedef struct run {
    const mo_split *split;
    mo_split_scratch *scratch;
    mo_split_fn fn;
    void *user;
    mo_error *err;
} run;

/* The next match at or after `from`. False: none, or a failure (*s). */
static bool next_match(const run *r, int stage, const uint8_t *text, size_t length, size_t from,
                       size_t *start, size_t *end, mo_status *s)
{
    const pcre2_code *code = r->split->code[stage];
    pcre2_match_data *match = r->scratch->match;
    pcre2_match_context *limits = r->scratch->limits;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->split->jit[stage]) {
        rc = pcre2_jit_match(code, text, length, from, PCRE2_NO_UTF_CHECK, match, limits);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter keeps its stack on the heap */
        rc = pcre2_match(code, text, length, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, limits);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        return false;
    }
    if (rc < 0) {
        *s = mo_fail(r->err, MO_ENOMEM,
                     "splitting %zu bytes of text failed "
                     "with PCRE2 error %d; use smaller parts",
                     length, rc);
        return false;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(match);
    *start = at[0];
    *end = at[1];
    return *end > *start; /* no pattern has an empty match */
}

static mo_status apply(const run *r, int stage, const uint8_t *text, size_t length)
{
    if (stage == r->split->stages) {
        return r->fn(r->user, text, length, r->err);
    }
    mo_status s = MO_OK;
    size_t at = 0, start, end;
    while (s == MO_OK && at < length && next_match(r, stage, text, length, at, &start, &end, &s)) {
        if (start > at) {
            s = apply(r, stage + 1, text + at, start - at);
        }
        if (s == MO_OK) {
            s = apply(r, stage + 1, text + start, end - start);
        }
        at = end;
    }
    if (s == MO_OK && at < length) {
        s = apply(r, stage + 1, text + at, length - at);
    }
    return s;
}

mo_status mo_split_run(const mo_split *split, mo_split_scratch *scratch, const uint8_t *text, size_t length,
                       mo_split_fn fn, void *user, mo_error *err)
{
    const run r = {split, scratch, fn, user, err};
    mo_status s = MO_OK;
    size_t at = 0;
    while (s == MO_OK && at < length) {
        size_t end = at, n = 1;
        while (end < length && (n = mo_utf8_length(text + end, length - end)) > 0) {
            end += n;
        }
        if (end > at) {
            s = apply(&r, 0, text + at, end - at);
        }
        if (s == MO_OK && end < length) {
            s = fn(user, text + end, 1, err);
            end++;
        }
        at = end;
    }
    return s;
}
