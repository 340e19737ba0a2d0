/* Speculation: see speculation.h. */
#include "server/requests/speculation.h"

#include "server/common/body.h"
#include "server/common/writer.h"

/* "none" switches it off; the others mean what the server has. Names of llama-server and of --speculate, in a text with commas
 * between them. */
static bool read_type(srv_field f, bool *off)
{
    static const char *const names[] = {
        "none",        "off",   "auto", "ngram",  "ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod",
        "ngram_cache", "draft", "mtp",  "eagle3", "draft_simple", "draft_mtp",   "draft_eagle3",
    };
    mo_text text = {"", 0};
    if (!srv_read_text(f, &text)) {
        return false;
    }
    for (size_t at = 0, length; at < text.length; at += length + 1) {
        length = strcspn(text.data + at, ",");
        size_t known = 0;
        while (known < sizeof names / sizeof *names &&
               !srv_text_is((mo_text){text.data + at, length}, names[known])) {
            known++;
        }
        if (known == sizeof names / sizeof *names) {
            return srv_wrong(&f, "must be none, auto, ngram, mtp or draft, not %.40s", text.data);
        }
        *off = known < 2;
    }
    return true;
}

bool srv_speculation_read(const srv_field *object, srv_parameters *p)
{
    mo_generation_options *o = &p->generation;
    int64_t most = -1, least = 0;
    bool off = false;
    if (!srv_read_int(srv_member(object, "speculative.n_max"), -1, INT32_MAX, &most) ||
        !srv_read_int(srv_member(object, "speculative.n_min"), 0, INT32_MAX, &least) ||
        !srv_read_float(srv_member(object, "speculative.p_min"), 0, 1, &o->draft_p_min) ||
        !read_type(srv_member(object, "speculative.type"), &off)) {
        return false;
    }
    o->draft_max = off ? 0 : (int)most;
    o->draft_min = (int)(most >= 0 && least > most ? most : least);
    return true;
}

/* A text, or a list of parts that are texts. */
static bool read_content(srv_field f, srv_writer *out)
{
    mo_text text = {"", 0};
    if (!json_is_array(f.value)) {
        const bool good = f.value ? srv_read_text(f, &text) : srv_missing(&f);
        srv_put(out, text.data, text.length);
        return good;
    }
    for (size_t i = 0; i < srv_count(&f); i++) {
        const srv_field part = srv_element(&f, i), type = srv_member(&part, "type"),
                        content = srv_member(&part, "text");
        mo_text kind = {"text", 4};
        if (!srv_is_object(part) || !srv_read_text(type, &kind)) {
            return false;
        }
        if (!srv_text_is(kind, "text")) {
            return srv_wrong(&type, "must be text");
        }
        if (!content.value) {
            return srv_missing(&content);
        }
        if (!srv_read_text(content, &text)) {
            return false;
        }
        srv_put(out, text.data, text.length);
    }
    return true;
}

static bool tokenize(const srv_field *f, const mo_model *model, mo_text text, srv_parameters *p)
{
    mo_model_info info;
    mo_error err;
    size_t count = 0;
    if (!srv_text_hold(text.length, f->fault)) {
        return false;
    }
    mo_model_describe(model, &info, sizeof info);
    const mo_status status = mo_tokenize_first(model, text.data, text.length, 0, (size_t)info.context,
                                               &p->prediction, &count, &err);
    srv_text_release(text.length);
    p->generation.prediction = p->prediction;
    p->generation.prediction_count = count;
    return status == MO_OK || srv_fault_status(f->fault, &err, "prediction");
}

bool srv_prediction_read(const srv_field *object, const mo_model *model, srv_parameters *p)
{
    const srv_field f = srv_member(object, "prediction"), type = srv_member(&f, "type");
    mo_text kind = {"content", 7};
    srv_writer text = {0};
    if (!f.value) {
        return true;
    }
    if (!srv_is_object(f) || !srv_read_text(type, &kind)) {
        return false;
    }
    if (!srv_text_is(kind, "content")) {
        return srv_wrong(&type, "must be content");
    }
    bool good = read_content(srv_member(&f, "content"), &text);
    if (good && text.failed) {
        good = srv_fault_set(f.fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    if (good && text.length > 0 && p->generation.draft_max) {
        good = tokenize(&f, model, (mo_text){text.data, text.length}, p);
    }
    srv_writer_free(&text);
    return good;
}
